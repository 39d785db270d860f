//! Scripts, and which turn comes next.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value};

#[derive(Debug)]
pub(crate) struct Script {
    /// Never empty; no session is.
    sessions: Vec<Vec<Turn>>,
    pub(super) side: Turn,
    pub(super) side_is_main: bool,
}

impl Script {
    pub(crate) fn parse(json: &str) -> Result<Script, serde_json::Error> {
        Script::from_value(serde_json::from_str(json)?)
    }

    pub(super) fn from_value(value: Value) -> Result<Script, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            turns: Option<Vec<Turn>>,
            sessions: Option<Vec<Vec<Turn>>>,
            side: Option<String>,
            #[serde(default)]
            side_is_main: bool,
        }
        let form = match value {
            turns @ Value::Array(_) => Form {
                turns: Some(serde_json::from_value(turns)?),
                sessions: None,
                side: None,
                side_is_main: false,
            },
            object => serde_json::from_value(object)?,
        };
        let sessions = match (form.turns, form.sessions) {
            (Some(turns), None) => vec![turns],
            (None, Some(sessions)) => sessions,
            _ => return Err(serde_json::Error::custom("`turns` or `sessions` is required")),
        };
        if sessions.is_empty() || sessions.iter().any(Vec::is_empty) {
            return Err(serde_json::Error::custom("a session needs at least one turn"));
        }
        let mut side = Turn::says(form.side.unwrap_or_else(|| "A title".to_owned()));
        // Agents include side requests in their sums; the script alone determines the usage.
        side.usage = Usage { input: 0, output: 0, cache_read: 0, cache_write: 0 };
        Ok(Script { sessions, side, side_is_main: form.side_is_main })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) session: usize,
    pub(super) turn: usize,
    used: u64,
    /// This session has had an answer other than a failure.
    answered: bool,
}

impl Position {
    /// `fresh`: no answer yet, so the request starts a session or repeats a failed one.
    pub(super) fn advance<'s>(&mut self, script: &'s Script, fresh: bool) -> &'s Turn {
        if fresh && self.answered {
            let session = (self.session + 1).min(script.sessions.len() - 1);
            *self = Position { session, ..Position::default() };
        }
        let turns = &script.sessions[self.session];
        while turns[self.turn].times.is_some_and(|times| self.used >= times)
            && self.turn + 1 < turns.len()
        {
            self.turn += 1;
            self.used = 0;
        }
        let turn = &turns[self.turn];
        self.used += 1;
        self.answered |= turn.fail.is_none();
        turn
    }
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Usage,
    pub(super) stop: Option<String>,
    pub(super) chunk: usize,
    pub(super) chunk_ms: u64,
    pub(super) delay_s: f64,
    pub(super) headers: Vec<(String, String)>,
    /// `None` is forever.
    times: Option<u64>,
    pub(super) fail: Option<Fail>,
}

impl Turn {
    fn says(text: String) -> Turn {
        Turn {
            text: Some(text),
            thinking: None,
            calls: Vec::new(),
            usage: Usage::default(),
            stop: None,
            chunk: default_chunk(),
            chunk_ms: 0,
            delay_s: 0.0,
            headers: Vec::new(),
            times: Some(1),
            fail: None,
        }
    }
}

/// Token counts that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    #[serde(rename = "in", default)]
    pub(super) input: u64,
    #[serde(rename = "out", default)]
    pub(super) output: u64,
    #[serde(default)]
    pub(super) cache_read: u64,
    #[serde(default)]
    pub(super) cache_write: u64,
}

impl Default for Usage {
    /// Four numbers that no mistake turns into one another.
    fn default() -> Self {
        Usage { input: 120, output: 17, cache_read: 40, cache_write: 8 }
    }
}

impl Usage {
    /// As counted by services without prices for cache writes.
    pub(super) fn input_with_cached(&self) -> u64 {
        self.input + self.cache_read
    }
}

/// A tool call. All but `Exact` use whichever tool the agent offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Shell { command: String, extra: Map<String, Value> },
    Write { path: String, content: String },
    Plan(Vec<Step>),
    Exact { tool: String, input: Value },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Step(pub(super) String, pub(super) String);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fail {
    Status { status: u16, failure_text: FailureText, retry_after: Option<u64>, body: Option<Value> },
    Unanswered,
    Silence,
    Midway { after: usize, how: Midway },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Midway {
    Cut,
    /// Closed in order, but too early.
    Close,
    Hang,
    Garbage,
    Error(FailureText),
}

/// The text of a failure; the protocol fills in what is missing.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct FailureText {
    pub(super) message: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) code: Option<Value>,
}

fn default_chunk() -> usize {
    8
}

const CALL_KEYS: [&str; 6] = ["sh", "extra", "write", "todo", "tool", "input"];

impl<'de> Deserialize<'de> for Turn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            text: Option<String>,
            thinking: Option<String>,
            #[serde(default)]
            tools: Vec<Call>,
            #[serde(default)]
            usage: Usage,
            stop: Option<String>,
            #[serde(default = "default_chunk")]
            chunk: usize,
            #[serde(default)]
            chunk_ms: u64,
            #[serde(default)]
            delay_s: f64,
            #[serde(default)]
            headers: BTreeMap<String, String>,
            times: Option<i64>,
            fail: Option<Value>,
            after: Option<usize>,
            message: Option<String>,
            etype: Option<String>,
            code: Option<Value>,
            retry_after: Option<u64>,
            body: Option<Value>,
        }
        let mut object = match Value::deserialize(deserializer)? {
            Value::String(text) => return Ok(Turn::says(text)),
            Value::Object(object) => object,
            other => return Err(D::Error::custom(format!("a turn cannot be {other}"))),
        };
        let call: Map<String, Value> = CALL_KEYS
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), object.shift_remove(*key)?)))
            .collect();
        let form: Form = serde_json::from_value(Value::Object(object)).map_err(D::Error::custom)?;
        let mut calls = form.tools;
        if !call.is_empty() {
            calls.push(serde_json::from_value(Value::Object(call)).map_err(D::Error::custom)?);
        }
        let failure_text = FailureText { message: form.message, kind: form.etype, code: form.code };
        let midway = |how| Fail::Midway { after: form.after.unwrap_or(4), how };
        let fail = match &form.fail {
            None => None,
            Some(Value::Number(status)) => {
                let status = status.as_u64().and_then(|status| u16::try_from(status).ok());
                let status =
                    status.ok_or_else(|| D::Error::custom("`fail` is not an HTTP status"))?;
                let (retry_after, body) = (form.retry_after, form.body);
                Some(Fail::Status { status, failure_text, retry_after, body })
            }
            Some(Value::String(name)) => Some(match name.as_str() {
                "cut0" => Fail::Unanswered,
                "hang" => Fail::Silence,
                "cut" => midway(Midway::Cut),
                "close" => midway(Midway::Close),
                "hang_mid" => midway(Midway::Hang),
                "garbage" => midway(Midway::Garbage),
                "sse_error" => midway(Midway::Error(failure_text)),
                other => return Err(D::Error::custom(format!("unknown failure {other:?}"))),
            }),
            Some(other) => return Err(D::Error::custom(format!("unknown failure {other}"))),
        };
        let times = match form.times {
            None => Some(1),
            Some(-1) => None,
            Some(times) => Some(times.try_into().map_err(D::Error::custom)?),
        };
        Ok(Turn {
            text: form.text,
            thinking: form.thinking,
            calls,
            usage: form.usage,
            stop: form.stop,
            chunk: form.chunk.max(1),
            chunk_ms: form.chunk_ms,
            delay_s: form.delay_s,
            headers: form.headers.into_iter().collect(),
            times,
            fail,
        })
    }
}

impl<'de> Deserialize<'de> for Call {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            path: String,
            content: String,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            sh: Option<String>,
            #[serde(default)]
            extra: Map<String, Value>,
            write: Option<File>,
            todo: Option<Vec<Step>>,
            tool: Option<String>,
            input: Option<Value>,
        }
        let form = Form::deserialize(deserializer)?;
        match (form.sh, form.write, form.todo, form.tool) {
            (Some(command), None, None, None) => Ok(Call::Shell { command, extra: form.extra }),
            (None, Some(File { path, content }), None, None) => Ok(Call::Write { path, content }),
            (None, None, Some(steps), None) => Ok(Call::Plan(steps)),
            (None, None, None, Some(tool)) => {
                let input = form.input.unwrap_or_else(|| Value::Object(Map::new()));
                Ok(Call::Exact { tool, input })
            }
            _ => Err(D::Error::custom("a call is one of `sh`, `write`, `todo` and `tool`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn script(value: Value) -> Script {
        Script::from_value(value).unwrap()
    }

    fn walk(script: &Script, requests: &[bool]) -> Vec<String> {
        let mut position = Position::default();
        let text = |turn: &Turn| turn.text.clone().unwrap_or_else(|| "-".to_owned());
        requests.iter().map(|fresh| text(position.advance(script, *fresh))).collect()
    }

    #[test]
    fn a_conversation_goes_on_and_a_new_one_takes_the_next_session() {
        let sessions = script(json!({"sessions": [["a", "b"], ["c"], ["d", "e"]]}));
        assert_eq!(
            walk(&sessions, &[true, false, true, true, false, false, true]),
            ["a", "b", "c", "d", "e", "e", "d"],
            "the last turn of a session and the last session repeat"
        );
    }

    #[test]
    fn an_agent_that_tries_again_after_a_failure_is_in_the_same_session() {
        let failing = json!({"fail": 429, "times": 2});
        let sessions = script(json!({"sessions": [[failing, "a"], ["b"]]}));
        assert_eq!(walk(&sessions, &[true, true, true, true]), ["-", "-", "a", "b"]);
        let for_ever = script(json!([{"fail": 500, "times": -1}, "never"]));
        assert_eq!(walk(&for_ever, &[true; 5]), ["-"; 5]);
    }

    #[test]
    fn turns_are_read() {
        let turn = |value: Value| serde_json::from_value::<Turn>(value).unwrap();
        let failure_text = FailureText { message: Some("no".to_owned()), ..FailureText::default() };
        assert_eq!(
            turn(json!({"fail": 429, "message": "no", "retry_after": 3})).fail,
            Some(Fail::Status { status: 429, failure_text, retry_after: Some(3), body: None })
        );
        assert_eq!(
            turn(json!({"fail": "cut", "after": 2})).fail,
            Some(Fail::Midway { after: 2, how: Midway::Cut })
        );
        let several =
            turn(json!({"tools": [{"sh": "ls"}, {"tool": "T"}], "todo": [["s", "pending"]]}));
        assert_eq!(several.calls.len(), 3);
        assert_eq!(several.calls[1], Call::Exact { tool: "T".to_owned(), input: json!({}) });
    }

    #[test]
    fn a_script_with_a_mistake_is_refused() {
        for wrong in [
            json!({}),
            json!([]),
            json!({"turns": ["a"], "sessions": [["a"]]}),
            json!({"sessions": [["a"], []]}),
            json!([{"txet": "a"}]),
            json!([{"fail": "cutt"}]),
            json!([{"sh": "a", "tool": "b"}]),
            json!([{"input": {}}]),
            json!([{"times": -2}]),
            json!([7]),
        ] {
            assert!(Script::from_value(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
