//! The stream of messages that claude prints, and others after its example.
//!
//! A line is an object with a `type`, which need not be its first key. Lines of type `assistant` and
//! `user` are most of a stream and are read in one pass, with every text borrowed from the line;
//! the others are few and are read a second time, each as what it is.
//!
//! Tokens: an `assistant` line carries the usage of its message as it was when the message began,
//! which is right for the input and too low for the output. That is good enough to watch a budget
//! by while the agent works. A `result` has three accounts: `usage` covers only the turns since the
//! result before it, leaves subagents out and is all zero when the agent's own budget stopped it;
//! `modelUsage` and `total_cost_usd` cover everything since the start. So `modelUsage` counts where
//! it is told, and elsewhere the sum of `usage`, or what was seen in the messages if that is more.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::{Timestamp, Zoned};
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::json::{Count, RawText, Size, Str, lenient};
use super::structured::{LineParser, Read};
use super::text::Words;
use super::{Emit, PREVIEW_CHARS, SUMMARY_CHARS, one_line, reset};
use crate::core::event::{Event, Failure, FailureKind, TodoItem, TodoStatus, Usage};
use crate::core::text::{duration, first_line};

/// In what the agents of this family differ.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The prompt comes back as a `user` message. It is no news, and nothing that the agent said.
    pub(super) echoes_prompt: bool,
    /// What the last words mean when there was no result.
    pub(super) explain: fn(&Words<'_>) -> Option<Failure>,
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
        }
    }

    fn assistant(&mut self, line: Envelope<'_>, emit: &mut Emit<'_>) -> Read {
        let Some(Message::Message(message)) = line.message else {
            return Read::Unknown;
        };
        let subagent = line.parent_tool_use_id.is_some();
        // Words that the program put into the model's mouth, such as an API error.
        let synthetic = line.is_api_error_message.unwrap_or(false)
            || message.model.as_deref() == Some("<synthetic>");
        let mut understood = true;
        match message.content {
            Content::None => {}
            Content::Text(text) if synthetic => self.synthetic(&text, &line.timestamp, emit),
            Content::Text(text) => emit(Event::Text { text, joined: false, subagent }),
            Content::Blocks(blocks) => {
                for block in blocks {
                    match (&*block.kind, block.text, block.thinking) {
                        ("text", Some(text), _) if synthetic => {
                            self.synthetic(&text.text(), &line.timestamp, emit);
                        }
                        ("text", Some(text), _) if text.is_empty() => {}
                        ("text", Some(text), _) => {
                            emit(Event::Text { text: text.text(), joined: false, subagent })
                        }
                        ("thinking", _, Some(text)) if text.is_empty() => {}
                        ("thinking", _, Some(text)) => {
                            emit(Event::Thinking { text: text.text(), joined: false, subagent })
                        }
                        ("redacted_thinking", ..) => {}
                        (kind, ..) if kind.ends_with("tool_use") => {
                            self.tool_started(&block, subagent, emit);
                        }
                        (kind, ..) if kind.ends_with("tool_result") => {
                            self.tool_ended(&block, false, subagent, emit);
                        }
                        _ => understood = false,
                    }
                }
            }
        }
        if let (Some(id), Some(tokens)) = (message.id, message.usage)
            && self.account.message(&id, tokens)
        {
            emit(Event::Usage(self.account.total));
        }
        Read::understood(understood)
    }

    /// Tells what the program itself said, and keeps the end of a limit if it named one.
    fn synthetic(&mut self, text: &str, timestamp: &Option<Str<'_>>, emit: &mut Emit<'_>) {
        if text.contains("limit") {
            let said_at = timestamp
                .as_deref()
                .and_then(|timestamp| timestamp.parse::<Timestamp>().ok())
                .map(|timestamp| timestamp.to_zoned(jiff::tz::TimeZone::system()));
            let told = reset::claude(text, &said_at.unwrap_or_else(Zoned::now));
            // The exact moment of a `rate_limit_event` is better than minutes in words.
            self.resets_at = self.resets_at.or(told);
        }
        emit(Event::Notice { text: one_line(text).into() });
    }

    fn user(&mut self, line: Envelope<'_>, emit: &mut Emit<'_>) -> Read {
        let Some(Message::Message(message)) = line.message else {
            return Read::Unknown;
        };
        let subagent = line.parent_tool_use_id.is_some();
        // What a person or ralph asked is known; what the program added by itself is news.
        let told = !self.dialect.echoes_prompt && !subagent && !line.is_replay.unwrap_or(false);
        let mut understood = true;
        match message.content {
            Content::None => {}
            Content::Text(text) => {
                if told {
                    emit(Event::Notice { text: one_line(&text).into() });
                }
            }
            Content::Blocks(blocks) => {
                for block in blocks {
                    match (&*block.kind, block.text) {
                        (kind, _) if kind.ends_with("tool_result") => {
                            let denied = block.is_error.unwrap_or(false)
                                && refused(line.tool_result_meta, &block);
                            self.tool_ended(&block, denied, subagent, emit);
                        }
                        ("text", Some(text)) => {
                            if told {
                                emit(Event::Notice {
                                    text: one_line(&text.head(SUMMARY_CHARS + 1)).into(),
                                });
                            }
                        }
                        ("image" | "document", _) => {}
                        _ => understood = false,
                    }
                }
            }
        }
        Read::understood(understood)
    }

    fn tool_started(&mut self, block: &Block<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let id = block.id.as_deref().unwrap_or_default();
        let name = block.name.as_deref().unwrap_or("tool");
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
        let id = block.tool_use_id.as_deref().unwrap_or_default();
        let failed = block.is_error.unwrap_or(false);
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
            self.account.message(&id, usage);
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
        let usage = self.account.settle(&line);
        let turns: Count = lenient(line.num_turns);
        emit(Event::Result {
            failure: self.verdict(&line),
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
            return None;
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
        let Ok(line) = serde_json::from_slice::<Envelope<'_>>(bytes) else {
            return Read::Malformed;
        };
        match &*line.kind {
            "assistant" => self.assistant(line, emit),
            "user" => self.user(line, emit),
            "stream_event" => self.partial(bytes),
            "system" => self.system(bytes, emit),
            "result" => self.result(bytes, emit),
            "rate_limit_event" => self.rate_limit(bytes, emit),
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
    const PHRASES: [(&str, FailureKind); 14] = [
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

/// What is known by an id, for the latest few hundred ids: an agent that never ends what it starts
/// must not fill the memory.
#[derive(Debug)]
struct Recent<T>(Vec<(String, T)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(Vec::new())
    }
}

impl<T> Recent<T> {
    const MAX: usize = 256;

    fn put(&mut self, id: &str, value: T) {
        if self.0.len() >= Self::MAX {
            self.0.remove(0);
        }
        self.0.push((id.to_owned(), value));
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let mut latest_first = self.0.iter_mut().rev();
        latest_first.find(|(known, _)| known == id).map(|(_, value)| value)
    }

    fn take(&mut self, id: &str) -> Option<T> {
        let at = self.0.iter().rposition(|(known, _)| known == id)?;
        Some(self.0.remove(at).1)
    }
}

/// Whether the program says that it refused to run the tool that `block` is the result of.
fn refused(meta: Option<&RawValue>, block: &Block<'_>) -> bool {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow)]
        id: Option<Str<'a>>,
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
        meta.id == block.tool_use_id
            && (meta.non_execution_kind.as_deref() == Some("permission-rule")
                || decision.and_then(|decision| decision.decision.as_deref()) == Some("reject"))
    })
}

/// Size and beginning of what a tool gave back: a text, or a list of texts and other things.
fn tool_output(content: Option<&RawValue>) -> (Size, Cow<'_, str>) {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<Str<'a>>,
        text: Option<RawText<'a>>,
    }
    let Some(raw) = content.filter(|raw| raw.get() != "null") else {
        return (Size::default(), Cow::Borrowed(""));
    };
    if let Some(text) = RawText::of(raw) {
        return (text.size(), text.head(PREVIEW_CHARS));
    }
    let Ok(parts) = serde_json::from_str::<Vec<Part<'_>>>(raw.get()) else {
        let size = Size { lines: 1, chars: raw.get().chars().count() as u64 };
        return (size, crate::core::text::head(raw.get(), PREVIEW_CHARS).into());
    };
    if let [Part { text: Some(text), .. }] = parts[..] {
        return (text.size(), text.head(PREVIEW_CHARS));
    }
    let mut size = Size::default();
    let mut preview = String::new();
    let mut left = PREVIEW_CHARS;
    for part in parts {
        let (part_size, head) = match part.text {
            Some(text) => (text.size(), text.head(left)),
            None => {
                let name = format!("[{}]", part.kind.as_deref().unwrap_or("?"));
                (Size { lines: 1, chars: 0 }, Cow::Owned(name))
            }
        };
        size.lines += part_size.lines;
        size.chars += part_size.chars;
        if left > 0 {
            if !preview.is_empty() && !preview.ends_with('\n') {
                preview.push('\n');
            }
            preview.push_str(&head);
            left = left.saturating_sub(head.chars().count() + 1);
        }
    }
    (size, preview.into())
}

/// What a tool works on, in one line.
fn summary(name: &str, input: Option<&RawValue>) -> String {
    #[derive(Deserialize, Default)]
    struct Input<'a> {
        #[serde(borrow)]
        file_path: Option<&'a RawValue>,
        notebook_path: Option<&'a RawValue>,
        path: Option<&'a RawValue>,
        command: Option<&'a RawValue>,
        cmd: Option<&'a RawValue>,
        pattern: Option<&'a RawValue>,
        description: Option<&'a RawValue>,
        url: Option<&'a RawValue>,
        query: Option<&'a RawValue>,
        subject: Option<&'a RawValue>,
    }
    let parsed: Input<'_> = lenient(input);
    let wanted = match name {
        "Read" | "Edit" | "MultiEdit" | "Write" | "NotebookEdit" => {
            parsed.file_path.or(parsed.notebook_path).or(parsed.path)
        }
        "Bash" => parsed.command.or(parsed.cmd),
        "Grep" | "Glob" => parsed.pattern,
        "Task" | "Agent" => parsed.description,
        "WebFetch" => parsed.url,
        "WebSearch" => parsed.query,
        "TaskCreate" => parsed.subject,
        _ => None,
    };
    match wanted.and_then(RawText::of) {
        Some(text) => one_line(&text.head(SUMMARY_CHARS + 1)),
        None => key_values(input),
    }
}

/// A tool's input that is not known, as `key=value, key=value`.
pub(super) fn key_values(input: Option<&RawValue>) -> String {
    struct Pairs(String);

    impl<'de> Deserialize<'de> for Pairs {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct InOrder;

            impl<'de> Visitor<'de> for InOrder {
                type Value = Pairs;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                    let mut out = String::new();
                    while let Some((key, value)) = map.next_entry::<Str<'de>, &'de RawValue>()? {
                        if out.len() > 4 * SUMMARY_CHARS {
                            continue;
                        }
                        if !out.is_empty() {
                            out.push_str(", ");
                        }
                        out.push_str(&key);
                        out.push('=');
                        match RawText::of(value) {
                            Some(text) => out.push_str(&text.head(SUMMARY_CHARS + 1)),
                            None => out
                                .push_str(crate::core::text::head(value.get(), SUMMARY_CHARS + 1)),
                        }
                    }
                    Ok(Pairs(out))
                }
            }

            deserializer.deserialize_map(InOrder)
        }
    }

    match input.map(|raw| serde_json::from_str::<Pairs>(raw.get())) {
        Some(Ok(Pairs(pairs))) => one_line(&pairs),
        _ => String::new(),
    }
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
    fn of(tool: &str, input: Option<&RawValue>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Write<'a> {
            #[serde(borrow)]
            todos: Vec<Entry<'a>>,
        }
        #[derive(Deserialize)]
        struct Entry<'a> {
            #[serde(borrow)]
            content: RawText<'a>,
            status: Option<Str<'a>>,
        }
        #[derive(Deserialize)]
        struct Task<'a> {
            #[serde(borrow, rename = "taskId")]
            id: Option<&'a RawValue>,
            subject: Option<RawText<'a>>,
            status: Option<Str<'a>>,
        }
        let input = input?.get();
        match tool {
            "TodoWrite" | "todo_write" => {
                let write: Write<'_> = serde_json::from_str(input).ok()?;
                let item = |entry: Entry<'_>| TodoItem {
                    text: entry.content.text().into_owned(),
                    status: status(entry.status.as_deref().unwrap_or_default())
                        .unwrap_or(TodoStatus::Pending),
                };
                Some(PlanChange::Replace(
                    write.todos.into_iter().take(Todo::MAX).map(item).collect(),
                ))
            }
            "TaskCreate" => {
                let task: Task<'_> = serde_json::from_str(input).ok()?;
                Some(PlanChange::Add(task.subject?.text().into_owned()))
            }
            "TaskUpdate" => {
                let task: Task<'_> = serde_json::from_str(input).ok()?;
                Some(PlanChange::Change {
                    id: task.id?.get().trim_matches('"').to_owned(),
                    subject: task.subject.map(|subject| subject.text().into_owned()),
                    status: task.status.as_deref().map(status),
                })
            }
            _ => None,
        }
    }
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

    fn settle(&mut self, line: &Outcome<'_>) -> Usage {
        let since_last: Tokens = lenient(line.usage);
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

/// Any line; `assistant` and `user` are all here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    message: Option<Message<'a>>,
    parent_tool_use_id: Option<Str<'a>>,
    is_api_error_message: Option<bool>,
    #[serde(rename = "isReplay")]
    is_replay: Option<bool>,
    tool_result_meta: Option<&'a RawValue>,
    timestamp: Option<Str<'a>>,
}

/// `message` is an object in the lines that matter, and a sentence in some others.
enum Message<'a> {
    Message(MessageBody<'a>),
    Other,
}

#[derive(Deserialize)]
struct MessageBody<'a> {
    #[serde(borrow)]
    id: Option<Str<'a>>,
    model: Option<Str<'a>>,
    #[serde(default)]
    content: Content<'a>,
    usage: Option<Tokens>,
}

#[derive(Default)]
enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    text: Option<RawText<'a>>,
    thinking: Option<RawText<'a>>,
    id: Option<Str<'a>>,
    name: Option<Str<'a>>,
    input: Option<&'a RawValue>,
    tool_use_id: Option<Str<'a>>,
    content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Message<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectOrText;

        impl<'de> Visitor<'de> for ObjectOrText {
            type Value = Message<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }

            fn visit_str<E>(self, _: &str) -> Result<Message<'de>, E> {
                Ok(Message::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Message<'de>, A::Error> {
                MessageBody::deserialize(MapAccessDeserializer::new(map)).map(Message::Message)
            }
        }

        deserializer.deserialize_any(ObjectOrText)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBlocks;

        impl<'de> Visitor<'de> for TextOrBlocks {
            type Value = Content<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_unit<E>(self) -> Result<Content<'de>, E> {
                Ok(Content::None)
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content<'de>, A::Error> {
                // Nearly always there is exactly one.
                let mut blocks = Vec::with_capacity(1);
                while let Some(block) = seq.next_element()? {
                    blocks.push(block);
                }
                Ok(Content::Blocks(blocks))
            }
        }

        deserializer.deserialize_any(TextOrBlocks)
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
    tasks: Option<&'a RawValue>,
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
    api_error_status: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    errors: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    #[serde(rename = "modelUsage")]
    model_usage: Option<&'a RawValue>,
    total_cost_usd: Option<&'a RawValue>,
    num_turns: Option<&'a RawValue>,
}

impl Outcome<'_> {
    /// What the agent says of its failure.
    fn message(&self) -> Option<String> {
        #[derive(Deserialize, Default)]
        struct ErrorObject<'a> {
            #[serde(borrow)]
            message: Option<RawText<'a>>,
        }
        let errors: Vec<&RawValue> = lenient(self.errors);
        let errors: Vec<Cow<'_, str>> = errors
            .into_iter()
            .map(|error| RawText::of(error).map_or(error.get().into(), RawText::text))
            .collect();
        let said = |raw: Option<&RawValue>| {
            let raw = raw?;
            let text = RawText::of(raw).map(RawText::text).or_else(|| {
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
