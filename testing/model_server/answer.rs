//! A model's answer, independent of the protocol.

use serde_json::Value;

use super::script::{Turn, Usage};
use super::tools::{Tool, ToolCall, to_tool_call};

#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) ids: Ids,
    pub(super) model: &'a str,
    pub(super) thinking: Option<&'a str>,
    /// Present unless there are calls.
    pub(super) text: Option<&'a str>,
    pub(super) calls: Vec<ToolCall>,
    pub(super) stop: Option<&'a str>,
    pub(super) usage: Usage,
    pub(super) created: u64,
    chunk: usize,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        turn: &'a Turn,
        offered: &[Tool],
        model: &'a str,
        ids: Ids,
        created: u64,
    ) -> Answer<'a> {
        let calls: Vec<ToolCall> =
            turn.calls.iter().map(|call| to_tool_call(call, offered)).collect();
        let text = turn.text.as_deref();
        let text = if calls.is_empty() {
            Some(text.unwrap_or_default())
        } else {
            text.filter(|text| !text.is_empty())
        };
        Answer {
            ids,
            model,
            thinking: turn.thinking.as_deref(),
            text,
            calls,
            stop: turn.stop.as_deref(),
            usage: turn.usage,
            created,
            chunk: turn.chunk,
        }
    }

    pub(super) fn pieces<'t>(&self, text: &'t str) -> Vec<&'t str> {
        pieces(text, self.chunk)
    }
}

pub(super) fn input_pieces(json: &str) -> Vec<&str> {
    pieces(json, 24)
}

/// Splits a text into pieces of `chars` characters; an empty text is one piece.
fn pieces(text: &str, chars: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(chars.max(1)) {
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Ids for the parts of an answer: counted, not random, so that recordings differ little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) request: u64,
}

impl Ids {
    pub(super) fn of_answer(self, prefix: &str) -> String {
        format!("{prefix}{:020}", self.request)
    }

    pub(super) fn of_part(self, prefix: &str, part: usize) -> String {
        format!("{prefix}{:016}{part:04}", self.request)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) name: Option<String>,
    pub(super) data: String,
    /// A piece of a longer text, which a script may follow by a delay.
    pub(super) piece: bool,
}

impl Frame {
    pub(super) fn typed(data: &Value) -> Frame {
        let name = data["type"].as_str().map(str::to_owned);
        Frame { name, data: data.to_string(), piece: false }
    }

    pub(super) fn nameless(data: &Value) -> Frame {
        Frame { name: None, data: data.to_string(), piece: false }
    }

    pub(super) fn piece(mut self) -> Frame {
        self.piece = true;
        self
    }

    pub(super) fn text(&self) -> String {
        match &self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data),
            None => format!("data: {}\n\n", self.data),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn with_answer<T>(
        turn: Value,
        offered: &[Tool],
        then: impl FnOnce(&Answer<'_>) -> T,
    ) -> T {
        let turn: Turn = serde_json::from_value(turn).unwrap();
        then(&Answer::new(&turn, offered, "some-model", Ids { request: 7 }, 1_700_000_000))
    }

    pub(in super::super) fn parsed(frames: &[Frame]) -> Vec<Value> {
        frames
            .iter()
            .filter(|frame| frame.data != "[DONE]")
            .map(|frame| serde_json::from_str(&frame.data).unwrap())
            .collect()
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(pieces("añ→😀b", 2), ["añ", "→😀", "b"]);
        assert_eq!(pieces("ab", 2), ["ab"]);
        assert_eq!(pieces("", 2), [""]);
        assert_eq!(pieces("ab", 0), ["a", "b"]);
    }
}
