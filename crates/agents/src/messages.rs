//! The message stream of claude and its imitators.
//!
//! `assistant` and `user` lines are most of a stream, so only their shown parts are read. `type`
//! need not be the first key.

mod account;
mod lines;
mod outcome;

use std::borrow::Cow;

use jiff::{Timestamp, Zoned};

use self::account::UsageTotals;
use self::lines::{ContentBlock, LineHeader};
use self::outcome::ResultLine;
pub(super) use self::outcome::failure_by_message;
use super::structured::{LineOutcome, LineParser};
use super::todo::TodoChange;
use super::tools::{RecentMap, ToolCall, ToolEnd, ToolTracker, tool_output};
use super::{Emit, SUMMARY_CHARS, emit_notice, failure, reset, with_credentials_hint};
use crate::json::{RawJson, RawText};
use ralph_events::event::{Event, FailureKind};
use ralph_events::text::format_duration;

#[derive(Debug)]
pub(super) struct StreamJsonDialect {
    /// The prompt comes back as a `user` message.
    pub(super) echoes_prompt: bool,
    /// Finds the start of the program's own API error in a text. The flag says that the message has
    /// no usage.
    pub(super) api_error: Option<fn(&str, bool) -> Option<usize>>,
    /// Prefix of the result of a denied tool.
    pub(super) denial: Option<&'static str>,
    /// Hint for rejected credentials.
    pub(super) remedy: Option<&'static str>,
    /// The result's text counts as said, even if no message contains it.
    pub(super) result_counts_as_text: bool,
    pub(super) input_includes_cache: bool,
}

impl StreamJsonDialect {
    pub(super) const CLAUDE: StreamJsonDialect = StreamJsonDialect {
        echoes_prompt: false,
        api_error: None,
        denial: None,
        remedy: None,
        result_counts_as_text: true,
        input_includes_cache: false,
    };
}

#[derive(Debug)]
pub(super) struct StreamJsonParser {
    dialect: &'static StreamJsonDialect,
    session: String,
    model: String,
    tools: ToolTracker,
    /// Calls reported as denied before their result.
    denied: RecentMap<()>,
    account: UsageTotals,
    resets_at: Option<i64>,
    /// The API error at the end of the latest message.
    api_error: Option<String>,
    /// The latest text, of the model or the program.
    last_text: String,
}

impl StreamJsonParser {
    pub(super) fn new(dialect: &'static StreamJsonDialect) -> Self {
        StreamJsonParser {
            dialect,
            session: String::new(),
            model: String::new(),
            tools: ToolTracker::default(),
            denied: RecentMap::default(),
            account: UsageTotals::default(),
            resets_at: None,
            api_error: None,
            last_text: String::new(),
        }
    }

    fn assistant(&mut self, line: &LineHeader<'_>, emit: &mut Emit<'_>) -> LineOutcome {
        let Some(message) = &line.message else {
            return LineOutcome::Unknown;
        };
        let subagent = line.from_subagent;
        let usage = message.usage.map(|counts| self.dialect.usage(counts));
        let has_no_usage = usage.is_none_or(|usage| usage.total_tokens() == 0);
        self.api_error = None;
        // The program's own text, such as an API error.
        let synthetic =
            line.api_error || message.model.is_some_and(|model| model.bytes() == b"<synthetic>");
        if let Some(model) = message.model.filter(|_| !synthetic && !subagent) {
            self.set_model(&model.text(), emit);
        }
        let mut understood = true;
        for block in &message.blocks {
            match block.kind.bytes() {
                b"text" | b"thinking" if block.text.is_empty() => {}
                b"text" => {
                    let text = block.text.text();
                    if !subagent {
                        text.trim().clone_into(&mut self.last_text);
                    }
                    if synthetic {
                        self.emit_synthetic(&text, line.timestamp, emit);
                    } else {
                        self.emit_text(text, has_no_usage, subagent, emit);
                    }
                }
                b"thinking" => {
                    emit(Event::Thinking { text: block.text.text(), joined: false, subagent })
                }
                b"redacted_thinking" => {}
                kind if kind.ends_with(b"tool_use") => self.tool_started(block, subagent, emit),
                kind if kind.ends_with(b"tool_result") => {
                    self.tool_ended(block, false, subagent, emit);
                }
                _ => understood = false,
            }
        }
        if let (Some(id), Some(usage)) = (message.id, usage)
            && self.account.add_message(&id.text(), usage)
        {
            emit(Event::Usage(self.account.total));
        }
        LineOutcome::parsed_if(understood)
    }

    /// Emits the model's text without an API error that the program appended.
    fn emit_text(
        &mut self,
        text: Cow<'_, str>,
        has_no_usage: bool,
        subagent: bool,
        emit: &mut Emit<'_>,
    ) {
        let error = self.dialect.api_error.and_then(|find| find(&text, has_no_usage));
        let Some(at) = error else {
            return emit(Event::Text { text, joined: false, subagent });
        };
        let (answer, error) = text.split_at(at);
        if !answer.trim().is_empty() {
            emit(Event::Text { text: answer.into(), joined: false, subagent });
        }
        emit_notice(error, emit);
        if !subagent {
            self.api_error = Some(error.to_owned());
        }
    }

    /// Emits the program's own text and remembers a reset time in it.
    fn emit_synthetic(&mut self, text: &str, timestamp: Option<RawText<'_>>, emit: &mut Emit<'_>) {
        if text.contains("limit") {
            let reported_at = timestamp
                .and_then(|timestamp| timestamp.text().parse::<Timestamp>().ok())
                .map(|timestamp| timestamp.to_zoned(jiff::tz::TimeZone::system()));
            let resets_at = reset::claude_reset(text, &reported_at.unwrap_or_else(Zoned::now));
            // A `rate_limit_event` is more precise than the text.
            self.resets_at = self.resets_at.or(resets_at);
        }
        emit_notice(text, emit);
    }

    fn user(&mut self, line: &LineHeader<'_>, emit: &mut Emit<'_>) -> LineOutcome {
        let Some(message) = &line.message else {
            return LineOutcome::Unknown;
        };
        let subagent = line.from_subagent;
        if !subagent {
            self.api_error = None;
        }
        // Prompts are known; text added by the program is not.
        let is_news = !self.dialect.echoes_prompt && !subagent && !line.replay;
        let mut understood = true;
        for block in &message.blocks {
            match block.kind.bytes() {
                kind if kind.ends_with(b"tool_result") => {
                    let is_denial = |prefix: &str| tool_output(block.content).1.starts_with(prefix);
                    let denied = block.is_error
                        && (is_denied_tool(line.tool_result_meta, block)
                            || self.dialect.denial.is_some_and(is_denial));
                    self.tool_ended(block, denied, subagent, emit);
                }
                b"text" => {
                    if is_news {
                        emit_notice(&block.text.prefix(SUMMARY_CHARS + 1), emit);
                    }
                }
                b"image" | b"document" => {}
                _ => understood = false,
            }
        }
        LineOutcome::parsed_if(understood)
    }

    fn tool_started(&mut self, block: &ContentBlock<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let id = &*block.id.text();
        let name = &*block.name.map_or("tool".into(), RawText::text);
        let change = TodoChange::from_tool_call(name, block.input);
        let call = ToolCall { change, ..ToolCall::new(name, block.input) };
        self.tools.start(id, call, subagent, emit);
    }

    fn tool_ended(
        &mut self,
        block: &ContentBlock<'_>,
        denied: bool,
        subagent: bool,
        emit: &mut Emit<'_>,
    ) {
        let id = &*block.id.text();
        let denied = self.denied.remove(id).is_some() || denied;
        let (size, preview) = tool_output(block.content);
        let end = ToolEnd { failed: block.is_error, denied, size, preview };
        self.tools.end(id, end, subagent, emit);
    }

    /// Reads part of a message that an `assistant` line repeats. Only the final usage is new.
    fn handle_partial(&mut self, line: RawJson<'_>) -> LineOutcome {
        let usage = line.member("event").member("usage");
        if let Some(id) = line.member("api_message_id").as_text().filter(|_| !usage.is_null()) {
            self.account.add_message(&id.text(), self.dialect.usage(usage));
        }
        LineOutcome::Parsed
    }

    fn system(&mut self, line: RawJson<'_>, emit: &mut Emit<'_>) -> LineOutcome {
        match &*line.member("subtype").text_or("init") {
            "init" => self.init(line, emit),
            "api_retry" => return api_retry(line, emit),
            "background_tasks_changed" => {
                let tasks = line.member("tasks").elements().unwrap_or_default();
                let running = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
                emit(Event::BackgroundTasks { running });
            }
            "permission_denied" => {
                if let Some(id) = line.member("tool_use_id").as_text() {
                    self.denied.insert(&id.text(), ());
                }
            }
            "task_notification" => {
                let status = line.member("status").text_or("ended");
                let summary = line.member("summary").text();
                emit_notice(&format!("background task {status}: {summary}"), emit);
            }
            "hook_response" => {
                if !["", "success"].contains(&&*line.member("outcome").text()) {
                    let name = line.member("hook_name").text_or("?");
                    let stderr = line.member("stderr").text();
                    emit_notice(&format!("hook {name} failed: {stderr}"), emit);
                }
            }
            "compact_boundary" => emit_notice("the agent's context was compacted", emit),
            "model_refusal_no_fallback" => emit_notice("the model refused to answer", emit),
            "notification" | "informational" => {
                let text = line.member("text").as_text();
                let text = text.or_else(|| line.member("content").as_text());
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    emit_notice(&text.text(), emit);
                }
            }
            _ => return LineOutcome::Unknown,
        }
        LineOutcome::Parsed
    }

    fn init(&mut self, line: RawJson<'_>, emit: &mut Emit<'_>) {
        let (id, model) = (line.member("session_id").text(), line.member("model").text());
        // Every turn repeats this line.
        if id == self.session && model == self.model {
            return;
        }
        self.session = id.clone().into_owned();
        self.model = model.clone().into_owned();
        let non_empty = |text: &Cow<'_, str>| !text.is_empty();
        let (id, model) = (Some(id).filter(non_empty), Some(model).filter(non_empty));
        emit(Event::Session { id, model });
    }

    /// The first line's model wins: it is the requested one.
    fn set_model(&mut self, model: &str, emit: &mut Emit<'_>) {
        if self.model.is_empty() && !model.is_empty() {
            model.clone_into(&mut self.model);
            emit(Event::Session { id: None, model: Some(model.into()) });
        }
    }

    fn rate_limit(&mut self, line: RawJson<'_>, emit: &mut Emit<'_>) -> LineOutcome {
        let info = line.member("rate_limit_info");
        if info.is_null() {
            return LineOutcome::Malformed;
        }
        let status = &*info.member("status").text();
        let resets_at = info.member("resetsAt").as_count();
        let resets_at = i64::try_from(resets_at).ok().filter(|at| *at > 0);
        if status == "allowed" {
            return LineOutcome::Parsed;
        }
        if status == "rejected" {
            self.resets_at = resets_at;
        }
        let limit = info.member("rateLimitType").text_or("rate").replace('_', "-");
        let mut text = match (status, info.member("utilization").as_f64()) {
            ("rejected", _) => format!("{limit} limit used up"),
            (_, Some(share)) => format!("{limit} limit {:.0}% used", share * 100.0),
            (status, None) => format!("{limit} limit: {status}"),
        };
        if let Some(at) = resets_at.and_then(|at| Timestamp::from_second(at).ok()) {
            text.push_str(&format!(", resets at {at}"));
        }
        emit(Event::Notice { text: text.into() });
        LineOutcome::Parsed
    }

    fn result(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Some(line) = ResultLine::parse(bytes) else {
            return LineOutcome::Malformed;
        };
        let usage = self.account.finish(line, self.dialect);
        let failure = line.failure(self.api_error.as_deref(), self.resets_at);
        if failure.is_none()
            && self.dialect.result_counts_as_text
            && let Some(text) = line.text()
            && !text.trim().is_empty()
            && !self.last_text.ends_with(text.trim())
        {
            text.trim().clone_into(&mut self.last_text);
            emit(Event::Text { text, joined: false, subagent: false });
        }
        emit(Event::Result {
            failure: failure.map(|failure| match self.dialect.remedy {
                Some(remedy) => with_credentials_hint(failure, remedy),
                None => failure,
            }),
            usage: (["usage", "modelUsage"].iter().any(|name| line.member(name).is_some())
                || !usage.is_zero())
            .then_some(usage),
            turns: line.member("num_turns").map(RawJson::as_u32),
        });
        LineOutcome::Result
    }
}

/// Progress that other lines report better.
const PROGRESS_SUBTYPES: [&[u8]; 7] = [
    b"status",
    b"thinking_tokens",
    b"hook_started",
    b"hook_progress",
    b"task_started",
    b"task_updated",
    b"task_progress",
];

impl LineParser for StreamJsonParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Some(line) = LineHeader::parse(bytes) else {
            return LineOutcome::Malformed;
        };
        let document = RawJson::from_document(bytes);
        match line.kind.bytes() {
            b"assistant" => self.assistant(&line, emit),
            b"user" => self.user(&line, emit),
            b"stream_event" => self.handle_partial(document),
            b"system" if PROGRESS_SUBTYPES.contains(&line.subtype.bytes()) => LineOutcome::Parsed,
            b"system" => self.system(document, emit),
            b"result" => self.result(bytes, emit),
            b"rate_limit_event" => self.rate_limit(document, emit),
            _ => LineOutcome::Unknown,
        }
    }
}

/// Reports a retry. The program may renew credentials after the first rejection; after the second,
/// it only repeats it for minutes.
fn api_retry(line: RawJson<'_>, emit: &mut Emit<'_>) -> LineOutcome {
    let count = |name| line.member(name).as_count();
    let delay = format_duration(count("retry_delay_ms"));
    let error = line.member("error").text_or("unknown");
    let error_status = count("error_status");
    let status = match error_status {
        0 => String::new(),
        status => format!(" ({status})"),
    };
    let (attempt, max) = (count("attempt"), count("max_retries"));
    let text = format!("API error: {error}{status}, retry {attempt}/{max} in {delay}");
    emit(Event::Notice { text: text.into() });
    if error_status != 401 || attempt != 2 {
        return LineOutcome::Parsed;
    }
    let message = format!(
        "API error: {error}{status}, repeatedly (check the API key in the environment, or sign in \
         again with /login)"
    );
    let failure = Some(failure(FailureKind::Credentials, message));
    emit(Event::Result { failure, usage: None, turns: None });
    LineOutcome::Result
}

fn is_denied_tool(meta: RawJson<'_>, block: &ContentBlock<'_>) -> bool {
    meta.elements().iter().flatten().any(|meta| {
        meta.member("id").as_text() == Some(block.id)
            && (meta.member("non_execution_kind").text() == "permission-rule"
                || meta.member("permission_decision").member("decision").text() == "reject")
    })
}
