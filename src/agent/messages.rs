//! The stream of messages that claude prints, and others after its example.
//!
//! A line is an object with a `type`, which need not be its first key. Lines of type `assistant` and
//! `user` are most of a stream, and only what is shown of them is looked at; the others are few and
//! are parsed, each as what it is.
//!
//! Tokens: an `assistant` line carries the usage of its message as it was when the message began,
//! which is right for the input and too low for the output. That is good enough to watch a budget
//! by while the agent works. A `result` has three accounts: `usage` covers only the turns since the
//! result before it, leaves subagents out and is all zero when the agent's own budget stopped it;
//! `modelUsage` and `total_cost_usd` cover everything since the start. So `modelUsage` counts where
//! it is told, and elsewhere the sum of `usage`, or what was seen in the messages if that is more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::json::{Count, Raw, RawText, Size, Str, Walk, lenient, utf8};
use super::structured::{LineParser, Read};
use super::text::Words;
use super::{Emit, PREVIEW_CHARS, SUMMARY_CHARS, api, one_line, reset, with_remedy};
use crate::core::event::{Event, Failure, FailureKind, TodoItem, TodoStatus, Usage};
use crate::core::text::{duration, first_line};

/// In what the agents of this family differ.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The prompt comes back as a `user` message. It is no news, and nothing that the agent said.
    pub(super) echoes_prompt: bool,
    /// What the last words mean when there was no result.
    pub(super) explain: fn(&Words<'_>) -> Option<Failure>,
    /// Where in the text of a message the program's own words about a failed API call begin, if it
    /// puts them there. The second argument says that the message has no usage.
    pub(super) api_error: Option<fn(&str, bool) -> Option<usize>>,
    /// How the result of a tool begins that was not run for want of permission.
    pub(super) denial: Option<&'static str>,
    /// What to do about credentials that were refused, where the program itself does not say.
    pub(super) remedy: Option<&'static str>,
    /// The count of input tokens includes the ones that were read from a cache.
    pub(super) input_includes_cache: bool,
}

impl Dialect {
    fn tokens(&self, told: Tokens) -> Tokens {
        if !self.input_includes_cache {
            return told;
        }
        let cached =
            told.cache_read_input_tokens.0.saturating_add(told.cache_creation_input_tokens.0);
        Tokens { input_tokens: Count(told.input_tokens.0.saturating_sub(cached)), ..told }
    }
}

/// Makes events of the lines of one agent process.
#[derive(Debug)]
pub(super) struct Messages {
    dialect: &'static Dialect,
    session: String,
    model: String,
    running: Recent<Started>,
    /// Tool calls that the agent said were denied, before their result came.
    denied: Recent<()>,
    todo: Todo,
    account: Account,
    /// When the limit ends that the agent said it ran into.
    resets_at: Option<i64>,
    /// The failed API call that the latest message ended with.
    api_error: Option<String>,
}

impl Messages {
    pub(super) fn new(dialect: &'static Dialect) -> Self {
        Messages {
            dialect,
            session: String::new(),
            model: String::new(),
            running: Recent::default(),
            denied: Recent::default(),
            todo: Todo::default(),
            account: Account::default(),
            resets_at: None,
            api_error: None,
        }
    }

    fn assistant(&mut self, line: &Head<'_>, emit: &mut Emit<'_>) -> Read {
        let Some(message) = &line.message else {
            return Read::Unknown;
        };
        let subagent = line.from_subagent;
        let tokens = message.usage.map(|usage| self.dialect.tokens(Tokens::read(usage)));
        let unused = tokens.is_none_or(|tokens| tokens == Tokens::default());
        self.api_error = None;
        // Words that the program put into the model's mouth, such as an API error.
        let synthetic =
            line.api_error || message.model.is_some_and(|model| model.bytes() == b"<synthetic>");
        let mut understood = true;
        for block in &message.blocks {
            match block.kind.bytes() {
                b"text" | b"thinking" if block.text.is_empty() => {}
                b"text" if synthetic => self.synthetic(&block.text.text(), line.timestamp, emit),
                b"text" => self.said(block.text.text(), unused, subagent, emit),
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
        if let (Some(id), Some(tokens)) = (message.id, tokens)
            && self.account.message(&id.text(), tokens)
        {
            emit(Event::Usage(self.account.total));
        }
        Read::understood(understood)
    }

    /// Tells what the model said, and apart from it what the program added.
    fn said(&mut self, text: Cow<'_, str>, unused: bool, subagent: bool, emit: &mut Emit<'_>) {
        let error = self.dialect.api_error.and_then(|find| find(&text, unused));
        let Some(at) = error else {
            return emit(Event::Text { text, joined: false, subagent });
        };
        let (said, error) = text.split_at(at);
        if !said.trim().is_empty() {
            emit(Event::Text { text: said.into(), joined: false, subagent });
        }
        emit(Event::Notice { text: one_line(error).into() });
        if !subagent {
            self.api_error = Some(error.to_owned());
        }
    }

    /// Tells what the program itself said, and keeps the end of a limit if it named one.
    fn synthetic(&mut self, text: &str, timestamp: Option<RawText<'_>>, emit: &mut Emit<'_>) {
        if text.contains("limit") {
            let said_at = timestamp
                .and_then(|timestamp| timestamp.text().parse::<Timestamp>().ok())
                .map(|timestamp| timestamp.to_zoned(jiff::tz::TimeZone::system()));
            let told = reset::claude(text, &said_at.unwrap_or_else(Zoned::now));
            // The exact moment of a `rate_limit_event` is better than minutes in words.
            self.resets_at = self.resets_at.or(told);
        }
        emit(Event::Notice { text: one_line(text).into() });
    }

    fn user(&mut self, line: &Head<'_>, emit: &mut Emit<'_>) -> Read {
        let Some(message) = &line.message else {
            return Read::Unknown;
        };
        let subagent = line.from_subagent;
        if !subagent {
            self.api_error = None;
        }
        // What a person or ralph asked is known; what the program added by itself is news.
        let news = !self.dialect.echoes_prompt && !subagent && !line.replay;
        let mut understood = true;
        for block in &message.blocks {
            match block.kind.bytes() {
                kind if kind.ends_with(b"tool_result") => {
                    let denied = block.is_error
                        && (refused(line.tool_result_meta, block)
                            || self
                                .dialect
                                .denial
                                .is_some_and(|words| begins(block.content, words)));
                    self.tool_ended(block, denied, subagent, emit);
                }
                b"text" => {
                    if news {
                        emit(Event::Notice {
                            text: one_line(&block.text.head(SUMMARY_CHARS + 1)).into(),
                        });
                    }
                }
                b"image" | b"document" => {}
                _ => understood = false,
            }
        }
        Read::understood(understood)
    }

    fn tool_started(&mut self, block: &Block<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let id = &*block.id.text();
        let name = &*block.name.map_or("tool".into(), RawText::text);
        let summary = summary(name, block.input);
        // A subagent's list is not the one that the user follows.
        let plan = if subagent { None } else { PlanChange::of(name, block.input) };
        if plan.is_none() {
            emit(Event::ToolStarted {
                id: id.into(),
                name: name.into(),
                summary: summary.as_str().into(),
                subagent,
            });
        }
        self.running.put(id, Started { name: name.to_owned(), summary, plan });
    }

    fn tool_ended(&mut self, block: &Block<'_>, denied: bool, subagent: bool, emit: &mut Emit<'_>) {
        let id = &*block.id.text();
        let failed = block.is_error;
        let denied = self.denied.take(id).is_some() || denied;
        let started = self.running.take(id);
        let (size, preview) = tool_output(block.content);
        if let Some(plan) = started.as_ref().and_then(|started| started.plan.as_ref()) {
            if !failed {
                if self.todo.apply(plan, &preview) {
                    emit(Event::Todo { items: self.todo.items() });
                }
                return;
            }
            // It was held back as a mere change of the list; its failure is a tool's failure.
            emit(Event::ToolStarted {
                id: id.into(),
                name: started.as_ref().map_or("tool", |started| &started.name).into(),
                summary: started.as_ref().map_or("", |started| &started.summary).into(),
                subagent,
            });
        }
        emit(Event::ToolEnded {
            id: id.into(),
            name: started.as_ref().map_or("tool", |started| &started.name).into(),
            failed,
            denied,
            lines: size.lines,
            chars: size.chars,
            preview,
            subagent,
        });
    }

    /// Pieces of a message that comes whole in an `assistant` line. Only its final usage is news.
    fn partial(&mut self, bytes: &[u8]) -> Read {
        let Ok(line) = serde_json::from_slice::<Partial<'_>>(bytes) else {
            return Read::Malformed;
        };
        if let (Some(id), Some(usage)) = (line.api_message_id, line.event.usage) {
            // Told with the next whole message, or with the result.
            self.account.message(&id, self.dialect.tokens(usage));
        }
        Read::Understood
    }

    fn system(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> Read {
        let Ok(line) = serde_json::from_slice::<System<'_>>(bytes) else {
            return Read::Malformed;
        };
        match line.subtype.as_deref().unwrap_or("init") {
            "init" => self.init(&line, emit),
            "api_retry" => {
                let delay = duration(line.retry_delay_ms.0);
                let error = line.error.as_deref().unwrap_or("unknown");
                let status = match line.error_status.0 {
                    0 => String::new(),
                    status => format!(" ({status})"),
                };
                let (attempt, max) = (line.attempt.0, line.max_retries.0);
                emit(Event::Notice {
                    text: format!("API error: {error}{status}, retry {attempt}/{max} in {delay}")
                        .into(),
                });
            }
            "background_tasks_changed" => {
                let tasks: Vec<IgnoredAny> = lenient(line.tasks);
                emit(Event::BackgroundTasks {
                    running: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
                });
            }
            "permission_denied" => {
                if let Some(id) = line.tool_use_id {
                    self.denied.put(&id, ());
                }
            }
            "task_notification" => {
                let status = line.status.as_deref().unwrap_or("ended");
                let summary = line.summary.map(RawText::text).unwrap_or_default();
                emit(Event::Notice {
                    text: one_line(&format!("background task {status}: {summary}")).into(),
                });
            }
            "hook_response" => {
                if line.outcome.as_deref().is_some_and(|outcome| outcome != "success") {
                    let name = line.hook_name.as_deref().unwrap_or("?");
                    let said = line.stderr.map(RawText::text).unwrap_or_default();
                    emit(Event::Notice {
                        text: one_line(&format!("hook {name} failed: {said}")).into(),
                    });
                }
            }
            "compact_boundary" => {
                emit(Event::Notice { text: "the agent's context was compacted".into() })
            }
            "model_refusal_no_fallback" => {
                emit(Event::Notice { text: "the model refused to answer".into() })
            }
            "notification" | "informational" => {
                match line.text.or(line.content).map(RawText::text) {
                    Some(text) if !text.is_empty() => {
                        emit(Event::Notice { text: one_line(&text).into() })
                    }
                    _ => {}
                }
            }
            // Progress of what other lines tell better.
            "status" | "thinking_tokens" | "hook_started" | "hook_progress" | "task_started"
            | "task_updated" | "task_progress" => {}
            _ => return Read::Unknown,
        }
        Read::Understood
    }

    fn init(&mut self, line: &System<'_>, emit: &mut Emit<'_>) {
        let id = line.session_id.as_deref().unwrap_or_default();
        let model = line.model.as_deref().unwrap_or_default();
        // Every turn of a session begins with the same line.
        if (id, model) == (&self.session, &self.model) {
            return;
        }
        id.clone_into(&mut self.session);
        model.clone_into(&mut self.model);
        let told = |text: &'_ str| (!text.is_empty()).then(|| Cow::Owned(text.to_owned()));
        emit(Event::Session { id: told(id), model: told(model) });
    }

    fn rate_limit(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> Read {
        let Ok(RateLimitLine { rate_limit_info: info }) = serde_json::from_slice(bytes) else {
            return Read::Malformed;
        };
        let status = info.status.as_deref().unwrap_or_default();
        let resets_at = i64::try_from(info.resets_at.0).ok().filter(|at| *at > 0);
        if status == "allowed" {
            return Read::Understood;
        }
        if status == "rejected" {
            self.resets_at = resets_at;
        }
        let limit = info.kind.as_deref().unwrap_or("rate").replace('_', "-");
        let mut text = match (status, info.utilization) {
            ("rejected", _) => format!("{limit} limit used up"),
            (_, Some(share)) => format!("{limit} limit {:.0}% used", share * 100.0),
            (status, None) => format!("{limit} limit: {status}"),
        };
        if let Some(at) = resets_at.and_then(|at| Timestamp::from_second(at).ok()) {
            text.push_str(&format!(", resets at {at}"));
        }
        emit(Event::Notice { text: text.into() });
        Read::Understood
    }

    fn result(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> Read {
        let Ok(line) = serde_json::from_slice::<Outcome<'_>>(bytes) else {
            return Read::Malformed;
        };
        let usage = self.account.settle(&line, self.dialect);
        let turns: Count = lenient(line.num_turns);
        emit(Event::Result {
            failure: self.verdict(&line).map(|failure| match self.dialect.remedy {
                Some(remedy) => with_remedy(failure, remedy),
                None => failure,
            }),
            usage: (line.usage.is_some() || line.model_usage.is_some() || !usage.is_zero())
                .then_some(usage),
            turns: line.num_turns.map(|_| u32::try_from(turns.0).unwrap_or(u32::MAX)),
        });
        Read::Verdict
    }

    fn verdict(&self, line: &Outcome<'_>) -> Option<Failure> {
        let subtype = line.subtype.as_deref().unwrap_or("success");
        // `"subtype":"success"` says only that the program itself did not fail.
        if !line.is_error.unwrap_or(false) && !subtype.starts_with("error") {
            let told = self.api_error.as_deref()?;
            let words = told.trim_start_matches("[API Error: ");
            let failure = api::failure(api::leading_status(words), words);
            return Some(Failure { message: told.to_owned(), ..failure });
        }
        let mut message = line.message().unwrap_or_else(|| subtype.replace('_', " "));
        if subtype == "error_during_execution"
            && let Some(reason) = &line.terminal_reason
        {
            // The words alone may be no more than a diagnostic code.
            message = format!("error during execution ({}): {message}", &**reason);
        }
        let status: Count = lenient(line.api_error_status);
        let kind = match (
            subtype,
            line.terminal_reason.as_deref().unwrap_or_default(),
            line.stop_reason.as_deref().unwrap_or_default(),
            line.api_error_type.as_deref().unwrap_or_default(),
            status.0,
        ) {
            ("error_max_turns", ..) => FailureKind::TurnLimit,
            ("error_max_budget_usd", ..) => FailureKind::AgentBudget,
            (_, "prompt_too_long", ..) => FailureKind::Context,
            (_, _, "refusal", ..) => FailureKind::Refusal,
            (.., "rate_limit_error", _) | (.., 429) => FailureKind::RateLimit,
            (.., "overloaded_error", _) | (.., 503 | 529) => FailureKind::Overloaded,
            (.., "authentication_error" | "permission_error", _) | (.., 401 | 403) => {
                FailureKind::Credentials
            }
            _ => failure_in_words(&message).map_or(FailureKind::Other, |failure| failure.kind),
        };
        let resets_at = (kind == FailureKind::RateLimit)
            .then(|| self.resets_at.or_else(|| reset::claude(&message, &Zoned::now())))
            .flatten();
        Some(Failure { kind, message, resets_at })
    }
}

impl LineParser for Messages {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> Read {
        let Some(line) = Head::of(bytes) else {
            return Read::Malformed;
        };
        match line.kind.bytes() {
            b"assistant" => self.assistant(&line, emit),
            b"user" => self.user(&line, emit),
            b"stream_event" => self.partial(bytes),
            b"system" => self.system(bytes, emit),
            b"result" => self.result(bytes, emit),
            b"rate_limit_event" => self.rate_limit(bytes, emit),
            _ => Read::Unknown,
        }
    }

    fn explain(&self, words: &Words<'_>) -> Option<Failure> {
        (self.dialect.explain)(words)
    }
}

/// What kind of failure a sentence tells that the program itself said as its verdict. Never to be
/// asked about anything that a model or a tool said.
pub(super) fn failure_in_words(text: &str) -> Option<Failure> {
    const PHRASES: [(&str, FailureKind); 15] = [
        ("You've hit your", FailureKind::RateLimit),
        ("usage limit reached", FailureKind::RateLimit),
        ("Request rejected (429)", FailureKind::RateLimit),
        ("API Error: 429", FailureKind::RateLimit),
        ("Credit balance is too low", FailureKind::RateLimit),
        ("Prompt is too long", FailureKind::Context),
        ("API Error: 529", FailureKind::Overloaded),
        ("overloaded_error", FailureKind::Overloaded),
        ("Invalid API key", FailureKind::Credentials),
        ("Please run /login", FailureKind::Credentials),
        ("No auth type is selected", FailureKind::Credentials),
        ("OAuth token has expired", FailureKind::Credentials),
        ("Failed to authenticate", FailureKind::Credentials),
        ("API Error: 401", FailureKind::Credentials),
        ("API Error: 403", FailureKind::Credentials),
    ];
    let text = first_line(text)?;
    let (_, kind) = PHRASES.iter().find(|(phrase, _)| text.contains(phrase))?;
    let resets_at =
        (*kind == FailureKind::RateLimit).then(|| reset::claude(text, &Zoned::now())).flatten();
    Some(Failure { kind: *kind, message: text.to_owned(), resets_at })
}

// ---- Tools ---------------------------------------------------------------------------------------

/// A tool call without its result.
#[derive(Debug)]
struct Started {
    name: String,
    summary: String,
    plan: Option<PlanChange>,
}

/// What is known by an id, for the latest hundred or so: an agent that never ends what it starts
/// must not fill the memory.
#[derive(Debug)]
pub(super) struct Recent<T>(Vec<(String, T)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(Vec::new())
    }
}

impl<T> Recent<T> {
    const MAX: usize = 128;

    pub(super) fn put(&mut self, id: &str, value: T) {
        if self.0.len() >= Self::MAX {
            self.0.remove(0);
        }
        self.0.push((id.to_owned(), value));
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let mut latest_first = self.0.iter_mut().rev();
        latest_first.find(|(known, _)| known == id).map(|(_, value)| value)
    }

    pub(super) fn take(&mut self, id: &str) -> Option<T> {
        let at = self.0.iter().rposition(|(known, _)| known == id)?;
        Some(self.0.remove(at).1)
    }
}

/// Whether what a tool gave back begins with these words.
fn begins(content: Option<Raw<'_>>, words: &str) -> bool {
    tool_output(content).1.starts_with(words)
}

/// Whether the program says that it refused to run the tool that `block` is the result of.
fn refused(meta: Option<Raw<'_>>, block: &Block<'_>) -> bool {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        id: Option<RawText<'a>>,
        non_execution_kind: Option<Str<'a>>,
        permission_decision: Option<Decision<'a>>,
    }
    #[derive(Deserialize)]
    struct Decision<'a> {
        #[serde(borrow)]
        decision: Option<Str<'a>>,
    }
    let metas: Vec<Meta<'_>> = lenient(meta);
    metas.iter().any(|meta| {
        let decision = meta.permission_decision.as_ref();
        meta.id == Some(block.id)
            && (meta.non_execution_kind.as_deref() == Some("permission-rule")
                || decision.and_then(|decision| decision.decision.as_deref()) == Some("reject"))
    })
}

/// Size and beginning of what a tool gave back: a text, or a list of texts and other things.
pub(super) fn tool_output(content: Option<Raw<'_>>) -> (Size, Cow<'_, str>) {
    let Some(raw) = content.filter(|raw| !raw.is_null()) else {
        return (Size::default(), Cow::Borrowed(""));
    };
    if let Some(text) = raw.text() {
        return (text.size(), text.head(PREVIEW_CHARS));
    }
    let mut size = Size::default();
    let mut preview = Cow::Borrowed("");
    let mut add = |part: Size, head: Cow<'_, str>| {
        size.lines += part.lines;
        size.chars += part.chars;
        let shown = preview.chars().count() + 1;
        if !preview.is_empty() && shown < PREVIEW_CHARS {
            let preview = preview.to_mut();
            preview.push('\n');
            preview.push_str(crate::core::text::head(&head, PREVIEW_CHARS - shown));
        } else if preview.is_empty() {
            preview = Cow::Owned(head.into_owned());
        }
    };
    let listed = raw.elements(|part| {
        let mut kind = RawText::default();
        let mut text = None;
        let object = part.members(|key, value| match key {
            b"type" => kind = value.text().unwrap_or_default(),
            b"text" => text = value.text(),
            _ => {}
        });
        match (text, object) {
            (Some(text), _) => add(text.size(), text.head(PREVIEW_CHARS)),
            (None, Some(())) => {
                let name = format!("[{}]", kind.text());
                add(Size { lines: 1, chars: 0 }, name.into());
            }
            (None, None) => add(written_size(part), written(part)),
        }
    });
    if listed.is_none() {
        return (written_size(raw), written(raw));
    }
    (size, preview)
}

/// A value of another form than is known is shown as it is written.
fn written(raw: Raw<'_>) -> Cow<'_, str> {
    let bytes = raw.bytes();
    utf8(&bytes[..bytes.len().min(PREVIEW_CHARS)])
}

fn written_size(raw: Raw<'_>) -> Size {
    Size { lines: 1, chars: utf8(raw.bytes()).chars().count() as u64 }
}

/// What a tool works on, in one line.
pub(super) fn summary(name: &str, input: Option<Raw<'_>>) -> String {
    let wanted: &[&str] = match name {
        "Read" | "Edit" | "MultiEdit" | "Write" | "NotebookEdit" | "read" | "edit" | "write"
        | "view" | "create" | "read_file" | "write_file" | "replace" | "editor" => {
            &["file_path", "filePath", "notebook_path", "absolute_path", "path"]
        }
        "Bash" | "bash" | "run_shell_command" => &["command", "cmd"],
        "Grep" | "Glob" | "grep" | "glob" | "grep_search" | "search_file_content" => &["pattern"],
        "Task" | "Agent" | "task" | "agent" => &["description"],
        "WebFetch" | "webfetch" | "web_fetch" => &["url", "prompt"],
        "WebSearch" | "websearch" | "google_web_search" => &["query"],
        "TaskCreate" => &["subject"],
        _ => &[],
    };
    let mut found = None;
    if let Some(input) = input {
        let _ = input.members(|key, value| {
            if found.is_none() && wanted.iter().any(|wanted| wanted.as_bytes() == key) {
                found = value.text();
            }
        });
    }
    match found {
        Some(text) => one_line(&text.head(SUMMARY_CHARS + 1)),
        None => key_values(input),
    }
}

/// A tool's input that is not known, as `key=value, key=value`.
pub(super) fn key_values(input: Option<Raw<'_>>) -> String {
    let mut out = String::new();
    if let Some(input) = input {
        let _ = input.members(|key, value| {
            // One line will not show more.
            if out.len() > 4 * SUMMARY_CHARS {
                return;
            }
            if !out.is_empty() {
                out.push_str(", ");
            }
            out.push_str(&utf8(key));
            out.push('=');
            match value.text() {
                Some(text) => out.push_str(&text.head(SUMMARY_CHARS + 1)),
                None => out.push_str(&written(value)),
            }
        });
    }
    one_line(&out)
}

// ---- The agent's own plan ------------------------------------------------------------------------

/// What a tool call does to the agent's list, once it has succeeded.
#[derive(Debug)]
enum PlanChange {
    /// `TodoWrite`: the whole list.
    Replace(Vec<TodoItem>),
    /// `TaskCreate`.
    Add(String),
    /// `TaskUpdate`. A deleted task has no status.
    Change { id: String, subject: Option<String>, status: Option<Option<TodoStatus>> },
}

impl PlanChange {
    fn of(tool: &str, input: Option<Raw<'_>>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Task<'a> {
            #[serde(borrow, rename = "taskId")]
            id: Option<Raw<'a>>,
            subject: Option<RawText<'a>>,
            status: Option<Str<'a>>,
        }
        let input = input?;
        match tool {
            "TodoWrite" | "todo_write" => todo_items(input).map(PlanChange::Replace),
            "TaskCreate" => {
                let task: Task<'_> = serde_json::from_slice(input.bytes()).ok()?;
                Some(PlanChange::Add(task.subject?.text().into_owned()))
            }
            "TaskUpdate" => {
                let task: Task<'_> = serde_json::from_slice(input.bytes()).ok()?;
                Some(PlanChange::Change {
                    id: task.id.map(plain)?,
                    subject: task.subject.map(|subject| subject.text().into_owned()),
                    status: task.status.as_deref().map(status),
                })
            }
            _ => None,
        }
    }
}

/// The list that a tool for keeping one was given: `{"todos": [{"content": …, "status": …}]}`.
pub(super) fn todo_items(input: Raw<'_>) -> Option<Vec<TodoItem>> {
    #[derive(Deserialize)]
    struct Write<'a> {
        #[serde(borrow)]
        todos: Vec<Entry<'a>>,
    }
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow, alias = "description")]
        content: RawText<'a>,
        status: Option<Str<'a>>,
    }
    let write: Write<'_> = serde_json::from_slice(input.bytes()).ok()?;
    // What was given up is no work that is left.
    let kept = write.todos.into_iter().filter(|entry| entry.status.as_deref() != Some("cancelled"));
    let item = |entry: Entry<'_>| TodoItem {
        text: entry.content.text().into_owned(),
        status: status(entry.status.as_deref().unwrap_or_default()).unwrap_or(TodoStatus::Pending),
    };
    Some(kept.take(Todo::MAX).map(item).collect())
}

/// An id may be a string or a number.
fn plain(raw: Raw<'_>) -> String {
    raw.text().map_or_else(|| written(raw), RawText::text).into_owned()
}

fn status(word: &str) -> Option<TodoStatus> {
    match word {
        "pending" => Some(TodoStatus::Pending),
        "in_progress" => Some(TodoStatus::InProgress),
        "completed" => Some(TodoStatus::Completed),
        _ => None,
    }
}

/// The list as it stands.
#[derive(Debug, Default)]
struct Todo(Vec<(String, TodoItem)>);

impl Todo {
    const MAX: usize = 500;

    /// Carries out a change that has succeeded, and says whether the list is another one now.
    fn apply(&mut self, change: &PlanChange, answer: &str) -> bool {
        match change {
            PlanChange::Replace(items) => {
                self.0 = items.iter().map(|item| (String::new(), item.clone())).collect();
                true
            }
            PlanChange::Add(subject) => {
                if self.0.len() >= Self::MAX {
                    return false;
                }
                // "Task #7 created successfully: …"; without it, they are numbered from 1.
                let id = answer
                    .split_once('#')
                    .and_then(|(_, rest)| rest.split([' ', ':']).next())
                    .map_or_else(|| (self.0.len() + 1).to_string(), str::to_owned);
                let item = TodoItem { text: subject.clone(), status: TodoStatus::Pending };
                self.0.push((id, item));
                true
            }
            PlanChange::Change { id, subject, status } => {
                let Some(at) = self.0.iter().position(|(known, _)| known == id) else {
                    return false;
                };
                if *status == Some(None) {
                    self.0.remove(at);
                    return true;
                }
                let item = &mut self.0[at].1;
                let before = item.clone();
                if let Some(subject) = subject {
                    item.text.clone_from(subject);
                }
                if let Some(Some(status)) = status {
                    item.status = *status;
                }
                *item != before
            }
        }
    }

    fn items(&self) -> Vec<TodoItem> {
        self.0.iter().map(|(_, item)| item.clone()).collect()
    }
}

// ---- Tokens and money ----------------------------------------------------------------------------

/// What has been used so far.
#[derive(Debug, Default)]
struct Account {
    total: Usage,
    /// The latest messages, of which more lines may come.
    messages: Recent<Tokens>,
    /// The sum of what the results said of themselves.
    results: Tokens,
}

impl Account {
    /// Takes the usage of a message, told as often as it likes, and says whether the total changed.
    fn message(&mut self, id: &str, tokens: Tokens) -> bool {
        let known = match self.messages.get_mut(id) {
            Some(known) => known,
            None => {
                self.messages.put(id, Tokens::default());
                match self.messages.get_mut(id) {
                    Some(known) => known,
                    None => return false,
                }
            }
        };
        let before = self.total;
        let more = tokens.beyond(known);
        *known = known.max(&tokens);
        more.add_to(&mut self.total);
        self.total != before
    }

    fn settle(&mut self, line: &Outcome<'_>, dialect: &Dialect) -> Usage {
        let since_last = dialect.tokens(lenient(line.usage));
        self.results = self.results.plus(&since_last);
        let models: BTreeMap<Str<'_>, ModelTokens> = lenient(line.model_usage);
        let seen = Tokens::of(&self.total);
        let tokens = if models.is_empty() {
            self.results.max(&seen)
        } else {
            models.values().fold(Tokens::default(), |sum, model| sum.plus(&model.tokens()))
        };
        let cost: Option<f64> = lenient(line.total_cost_usd);
        self.total = tokens.usage(cost.or(self.total.cost_usd));
        self.total
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl Tokens {
    fn read(raw: Raw<'_>) -> Self {
        let mut tokens = Tokens::default();
        let _ = raw.members(|key, value| match key {
            b"input_tokens" => tokens.input_tokens = Count(value.count()),
            b"output_tokens" => tokens.output_tokens = Count(value.count()),
            b"cache_read_input_tokens" => tokens.cache_read_input_tokens = Count(value.count()),
            b"cache_creation_input_tokens" => {
                tokens.cache_creation_input_tokens = Count(value.count());
            }
            _ => {}
        });
        tokens
    }

    fn of(usage: &Usage) -> Self {
        Tokens {
            input_tokens: Count(usage.input_tokens),
            output_tokens: Count(usage.output_tokens),
            cache_read_input_tokens: Count(usage.cache_read_tokens),
            cache_creation_input_tokens: Count(usage.cache_write_tokens),
        }
    }

    fn zip(&self, other: &Tokens, with: fn(u64, u64) -> u64) -> Self {
        let with = |a: Count, b: Count| Count(with(a.0, b.0));
        Tokens {
            input_tokens: with(self.input_tokens, other.input_tokens),
            output_tokens: with(self.output_tokens, other.output_tokens),
            cache_read_input_tokens: with(
                self.cache_read_input_tokens,
                other.cache_read_input_tokens,
            ),
            cache_creation_input_tokens: with(
                self.cache_creation_input_tokens,
                other.cache_creation_input_tokens,
            ),
        }
    }

    fn plus(&self, other: &Tokens) -> Self {
        self.zip(other, u64::saturating_add)
    }

    fn max(&self, other: &Tokens) -> Self {
        self.zip(other, u64::max)
    }

    fn beyond(&self, known: &Tokens) -> Self {
        self.zip(known, u64::saturating_sub)
    }

    fn usage(&self, cost_usd: Option<f64>) -> Usage {
        Usage {
            cost_usd,
            input_tokens: self.input_tokens.0,
            output_tokens: self.output_tokens.0,
            cache_read_tokens: self.cache_read_input_tokens.0,
            cache_write_tokens: self.cache_creation_input_tokens.0,
        }
    }

    fn add_to(&self, total: &mut Usage) {
        *total = Tokens::of(total).plus(self).usage(total.cost_usd);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ModelTokens {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl ModelTokens {
    fn tokens(&self) -> Tokens {
        Tokens {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
        }
    }
}

// ---- Lines ---------------------------------------------------------------------------------------

/// What is needed of a line to know what it is, and all that is needed of most.
#[derive(Default)]
struct Head<'a> {
    kind: RawText<'a>,
    message: Option<Message<'a>>,
    from_subagent: bool,
    api_error: bool,
    replay: bool,
    tool_result_meta: Option<Raw<'a>>,
    timestamp: Option<RawText<'a>>,
}

impl<'a> Head<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut head = Head::default();
        let mut walk = Walk::over(line);
        walk.object(|key, walk| {
            match key {
                // In some lines it is a sentence.
                b"message" if walk.next() == Some(b'{') => {
                    head.message = Some(Message::take(walk)?);
                }
                b"type" => head.kind = walk.value()?.text().unwrap_or_default(),
                b"parent_tool_use_id" => head.from_subagent = !walk.value()?.is_null(),
                b"is_api_error_message" => head.api_error = walk.value()?.is_true(),
                b"isReplay" => head.replay = walk.value()?.is_true(),
                b"tool_result_meta" => head.tool_result_meta = Some(walk.value()?),
                b"timestamp" => head.timestamp = walk.value()?.text(),
                // The same output a second time, and about half of the line.
                b"tool_use_result" => walk.skip_value_before(b",\"tool_result_meta\":")?,
                _ => {
                    walk.value()?;
                }
            }
            Some(())
        })?;
        walk.end()?;
        Some(head)
    }
}

/// A message of the model, or one to it.
#[derive(Default)]
struct Message<'a> {
    id: Option<RawText<'a>>,
    model: Option<RawText<'a>>,
    blocks: Vec<Block<'a>>,
    usage: Option<Raw<'a>>,
}

impl<'a> Message<'a> {
    fn take(walk: &mut Walk<'a>) -> Option<Self> {
        let mut message = Message::default();
        walk.object(|key, walk| {
            match key {
                b"id" => message.id = walk.value()?.text(),
                b"model" => message.model = walk.value()?.text(),
                b"usage" => message.usage = Some(walk.value()?),
                b"content" if walk.next() == Some(b'[') => walk.array(|walk| {
                    message.blocks.push(Block::take(walk)?);
                    Some(())
                })?,
                // A message of nothing but a text.
                b"content" => {
                    if let Some(text) = walk.value()?.text() {
                        message.blocks.push(Block {
                            kind: RawText::keyword("text"),
                            text,
                            ..Block::default()
                        });
                    }
                }
                _ => {
                    walk.value()?;
                }
            }
            Some(())
        })?;
        Some(message)
    }
}

/// A piece of a message: a text, a tool call, a tool's result.
#[derive(Default)]
struct Block<'a> {
    kind: RawText<'a>,
    /// What was said or thought.
    text: RawText<'a>,
    /// The id of the tool call, in the call as well as in its result.
    id: RawText<'a>,
    name: Option<RawText<'a>>,
    input: Option<Raw<'a>>,
    content: Option<Raw<'a>>,
    is_error: bool,
}

impl<'a> Block<'a> {
    fn take(walk: &mut Walk<'a>) -> Option<Self> {
        let mut block = Block::default();
        walk.object(|key, walk| {
            let value = walk.value()?;
            match key {
                b"type" => block.kind = value.text().unwrap_or_default(),
                b"text" | b"thinking" => block.text = value.text().unwrap_or_default(),
                b"id" | b"tool_use_id" => block.id = value.text().unwrap_or_default(),
                b"name" => block.name = value.text(),
                b"input" => block.input = Some(value),
                b"content" => block.content = Some(value),
                b"is_error" => block.is_error = value.is_true(),
                _ => {}
            }
            Some(())
        })?;
        Some(block)
    }
}

#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(borrow)]
    api_message_id: Option<Str<'a>>,
    event: PartialEvent,
}

#[derive(Deserialize)]
struct PartialEvent {
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct System<'a> {
    #[serde(borrow)]
    subtype: Option<Str<'a>>,
    session_id: Option<Str<'a>>,
    model: Option<Str<'a>>,
    #[serde(default)]
    attempt: Count,
    #[serde(default)]
    max_retries: Count,
    #[serde(default)]
    retry_delay_ms: Count,
    #[serde(default)]
    error_status: Count,
    error: Option<Str<'a>>,
    tasks: Option<Raw<'a>>,
    tool_use_id: Option<Str<'a>>,
    status: Option<Str<'a>>,
    summary: Option<RawText<'a>>,
    outcome: Option<Str<'a>>,
    hook_name: Option<Str<'a>>,
    stderr: Option<RawText<'a>>,
    text: Option<RawText<'a>>,
    content: Option<RawText<'a>>,
}

#[derive(Deserialize)]
struct RateLimitLine<'a> {
    #[serde(borrow)]
    rate_limit_info: RateLimitInfo<'a>,
}

#[derive(Deserialize)]
struct RateLimitInfo<'a> {
    #[serde(borrow)]
    status: Option<Str<'a>>,
    #[serde(default, rename = "resetsAt")]
    resets_at: Count,
    #[serde(rename = "rateLimitType")]
    kind: Option<Str<'a>>,
    utilization: Option<f64>,
}

/// A `result` line. What is only a figure is read leniently: the verdict must not be lost over it.
#[derive(Deserialize)]
struct Outcome<'a> {
    #[serde(borrow)]
    subtype: Option<Str<'a>>,
    is_error: Option<bool>,
    terminal_reason: Option<Str<'a>>,
    stop_reason: Option<Str<'a>>,
    api_error_type: Option<Str<'a>>,
    api_error_status: Option<Raw<'a>>,
    result: Option<Raw<'a>>,
    error: Option<Raw<'a>>,
    errors: Option<Raw<'a>>,
    usage: Option<Raw<'a>>,
    #[serde(rename = "modelUsage")]
    model_usage: Option<Raw<'a>>,
    total_cost_usd: Option<Raw<'a>>,
    num_turns: Option<Raw<'a>>,
}

impl Outcome<'_> {
    /// What the agent says of its failure.
    fn message(&self) -> Option<String> {
        #[derive(Deserialize, Default)]
        struct ErrorObject<'a> {
            #[serde(borrow)]
            message: Option<RawText<'a>>,
        }
        let errors: Vec<Raw<'_>> = lenient(self.errors);
        let errors: Vec<Cow<'_, str>> = errors
            .into_iter()
            .map(|error| error.text().map_or_else(|| written(error), RawText::text))
            .collect();
        let said = |raw: Option<Raw<'_>>| {
            let raw = raw?;
            let text = raw.text().map(RawText::text).or_else(|| {
                let error: ErrorObject<'_> = lenient(Some(raw));
                error.message.map(|message| message.text().into_owned().into())
            })?;
            (!text.is_empty()).then(|| text.into_owned())
        };
        said(self.result)
            .or_else(|| said(self.error))
            .or_else(|| (!errors.is_empty()).then(|| errors.join("; ")))
    }
}
