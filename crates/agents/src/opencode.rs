//! opencode: `opencode run --format json`.
//!
//! Tools appear only when they end. There is no final line: the last step ends for another reason
//! than tool calls. The model is not reported.

use jiff::Timestamp;
use serde::Deserialize;

use super::structured::{LineOutcome, LineParser, stream_or_text};
use super::text::LastOutput;
use super::todo::TodoChange;
use super::tools::{ToolEnd, ToolTracker, summary, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PromptVia, api, emit_notice,
    emit_text, emit_thinking, failure, has_option, with_credentials_hint,
};
use crate::json::{Count, RawJson, RawText, ShortStr, lenient};
use crate::profile::{
    AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, MODEL_SERVICE_PREFIXES,
    PROVIDER_HOSTS, Recording,
};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Event, Exit, Failure, FailureKind, Usage};

#[derive(Debug)]
pub(super) struct Opencode;

static PROFILE: AgentProfile = AgentProfile {
    name: "opencode",
    install_command: "npm install -g opencode-ai",
    recording: Recording::Version { product: "opencode", version: "1.18.33" },
    tokens: Some("after each step"),
    cost: Some("after each step"),
    cost_is_verified: true,
    limit_end: Some("if the service tells"),
    interactive_autonomous_flags: &[],
    hosts: PROVIDER_HOSTS,
    key_prefixes: MODEL_SERVICE_PREFIXES,
    homes: &[AgentHome {
        dir: HomeDir::HOME,
        entries: &[
            (".local/share/opencode/auth.json", FileExposure::Credentials),
            (".config/opencode", FileExposure::Config),
            (".opencode/bin", FileExposure::Config),
        ],
    }],
    extras: AgentExtras::NONE,
};

impl Adapter for Opencode {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        invocation.arg("run");
        if request.stream && !has_option(flags, &["--format"]) {
            invocation.args(["--format", "json"]);
        }
        if request.autonomous && !has_option(flags, &["--auto"]) {
            invocation.arg("--auto");
        }
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        // Otherwise every start leaves a 5.6 MB library in the temporary directory.
        invocation.env.push(("OPENCODE_DISABLE_FFF", "1".into()));
        if let Some(prompt) = invocation.prompt_argument(request) {
            invocation.args(["--", &*prompt]);
        }
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, OpencodeParser::default(), explain_failure)
    }
}

#[derive(Debug, Default)]
struct OpencodeParser {
    session: String,
    tools: ToolTracker,
    usage: Usage,
    steps: u32,
    /// Context overflows since the last progress. After the first, opencode continues with a
    /// summary. If the prompt itself is too long, it does so forever, so the second is final.
    overflow_count: u32,
    overflow: Option<Failure>,
    /// A denied tool. opencode then ends as if it had succeeded.
    rejected: Option<String>,
    /// The next step is a summary.
    compacting: bool,
    /// Tools may be running.
    in_step: bool,
}

impl LineParser for OpencodeParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Ok(line) = serde_json::from_slice::<OpencodeLine<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        let session = line.session.as_deref().unwrap_or_default();
        if self.session.is_empty() && !session.is_empty() {
            session.clone_into(&mut self.session);
            emit(Event::Session { id: Some(session.into()), model: None });
        }
        let subagent = session != self.session;
        match (&*line.kind, &line.part) {
            ("step_start", _) => {
                self.in_step = true;
                self.rejected = None;
                if !subagent && !self.compacting {
                    self.overflow = None;
                    self.overflow_count = 0;
                }
                LineOutcome::Parsed
            }
            ("text", Some(part)) => {
                self.text(part, subagent, emit);
                LineOutcome::Parsed
            }
            ("reasoning", Some(part)) => {
                emit_thinking(part.text.unwrap_or_default().text(), subagent, emit);
                LineOutcome::Parsed
            }
            ("tool_use", Some(part)) => self.tool(part, subagent, emit),
            ("step_finish", Some(part)) => {
                // A subagent's step is nested in the main agent's.
                self.in_step = subagent;
                self.step(part, subagent, emit)
            }
            ("error", _) => {
                let failure = error_failure(line.error.unwrap_or_default(), line.timestamp.0);
                self.error(failure, subagent, emit)
            }
            _ => LineOutcome::Unknown,
        }
    }

    fn pending_failure(&self) -> Option<Failure> {
        self.overflow.clone()
    }

    fn may_run_tool(&self) -> bool {
        self.in_step
    }

    fn revise_failure(&self, _exit: Option<Exit>) -> Option<Failure> {
        self.overflow.clone()
    }
}

impl OpencodeParser {
    fn text(&mut self, part: &MessagePart<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let text = part.text.unwrap_or_default().text();
        if text.is_empty() {
            return;
        }
        if !part.synthetic {
            return if self.compacting && !subagent {
                emit_thinking(text, subagent, emit);
            } else {
                emit_text(text, subagent, emit);
            };
        }
        let metadata = part.metadata.unwrap_or_default();
        if metadata.member("compaction_continue").is_true() && !subagent {
            // The previous step was a summary.
            let reason = "the agent's context was compacted: its last words were a summary";
            emit(Event::Retracted { reason: reason.into() });
        }
        emit_notice(&text, emit);
    }

    fn error(&mut self, failure: Failure, subagent: bool, emit: &mut Emit<'_>) -> LineOutcome {
        if !subagent && failure.kind == FailureKind::Context {
            self.compacting = true;
            self.overflow_count += 1;
            if self.overflow_count != 2 {
                emit_notice(&failure.message, emit);
                self.overflow = (self.overflow_count == 1).then_some(failure);
                return LineOutcome::Parsed;
            }
            self.overflow = None;
        }
        if subagent {
            emit_notice(&failure.message, emit);
            return LineOutcome::Parsed;
        }
        emit(Event::Result {
            failure: Some(failure),
            usage: self.usage(),
            turns: Some(self.steps),
        });
        LineOutcome::Result
    }

    fn tool(&mut self, part: &MessagePart<'_>, subagent: bool, emit: &mut Emit<'_>) -> LineOutcome {
        let state: ToolState<'_> = lenient(part.state);
        let id = part.call.as_deref().unwrap_or_default();
        let name = part.tool.as_deref().unwrap_or("tool");
        let change = state.input.filter(|_| name == "todowrite").and_then(TodoChange::replace);
        self.tools.start(id, name, summary(name, state.input), change, subagent, emit);
        let failed = state.status.as_deref() == Some("error");
        let exit: f64 = lenient(state.metadata.map(|metadata| metadata.member("exit")));
        let error = state.error.unwrap_or_default().text();
        if failed && !subagent && error.contains(REJECTED_PHRASE) {
            self.rejected = Some(name.to_owned());
        }
        let (size, preview) = match state.error.filter(|_| failed) {
            Some(error) => (error.size(), error.prefix(super::PREVIEW_CHARS)),
            None => tool_output(state.output),
        };
        self.tools.end(
            id,
            ToolEnd {
                // opencode reports a failed command as a successful call.
                failed: failed || exit != 0.0,
                denied: failed && DENIED_PHRASES.iter().any(|phrase| error.contains(phrase)),
                size,
                preview,
            },
            subagent,
            emit,
        );
        LineOutcome::Parsed
    }

    fn step(&mut self, part: &MessagePart<'_>, subagent: bool, emit: &mut Emit<'_>) -> LineOutcome {
        let cost: Option<f64> = lenient(part.cost);
        let cost = cost.filter(|cost| *cost >= 0.0);
        self.usage.add(&usage(part.tokens.unwrap_or_default(), cost));
        emit(Event::Usage(self.usage));
        if subagent {
            return LineOutcome::Parsed;
        }
        self.steps += 1;
        if std::mem::take(&mut self.compacting) {
            return LineOutcome::Parsed;
        }
        let failure = match part.reason.as_deref().unwrap_or("unknown") {
            "tool-calls" | "unknown" => match self.rejected.take() {
                Some(tool) => Some(failure(
                    FailureKind::Other,
                    format!(
                        "opencode stopped, because nobody allowed it to use {tool} (allow that in \
                         opencode's settings, or set \"agent\": {{\"autonomous\": true}})"
                    ),
                )),
                None => return LineOutcome::Parsed,
            },
            "content-filter" => Some(failure(
                FailureKind::Refusal,
                "the answer was stopped by the provider's content filter",
            )),
            "length" => {
                let text = "the answer was cut off at the model's limit for its output";
                emit(Event::Notice { text: text.into() });
                None
            }
            "error" => Some(failure(FailureKind::Other, "the model's answer ended in an error")),
            _ => None,
        };
        emit(Event::Result { failure, usage: self.usage(), turns: Some(self.steps) });
        LineOutcome::Result
    }

    fn usage(&self) -> Option<Usage> {
        (self.steps > 0 || !self.usage.is_zero()).then_some(self.usage)
    }
}

const REMEDY: &str =
    "run `opencode auth login`, or check the provider's key in opencode's settings";

/// Errors of a tool that the settings or the user denied.
const DENIED_PHRASES: [&str; 2] = [REJECTED_PHRASE, "prevents you from using this specific tool"];
const REJECTED_PHRASE: &str = "rejected permission";

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    let stderr = strip_control_chars(output.stderr);
    let message = stderr.lines().rev().find_map(|line| line.trim().strip_prefix("Error: "))?;
    if message.starts_with("You must provide a message") {
        return Some(failure(FailureKind::Usage, "opencode got no prompt: the prompt is empty"));
    }
    if message.contains("Model not found") {
        return Some(failure(
            FailureKind::Usage,
            format!("opencode would not start: {message} (`opencode models` lists what there is)"),
        ));
    }
    api::known_failure(message).map(|failure| with_credentials_hint(failure, REMEDY))
}

#[derive(Deserialize)]
struct OpencodeLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: ShortStr<'a>,
    #[serde(default)]
    timestamp: Count,
    #[serde(rename = "sessionID")]
    session: Option<ShortStr<'a>>,
    part: Option<MessagePart<'a>>,
    error: Option<RawJson<'a>>,
}

#[derive(Deserialize)]
struct MessagePart<'a> {
    #[serde(borrow)]
    text: Option<RawText<'a>>,
    /// Written by the program, not by the model.
    #[serde(default)]
    synthetic: bool,
    metadata: Option<RawJson<'a>>,
    tool: Option<ShortStr<'a>>,
    #[serde(rename = "callID")]
    call: Option<ShortStr<'a>>,
    state: Option<RawJson<'a>>,
    reason: Option<ShortStr<'a>>,
    tokens: Option<RawJson<'a>>,
    cost: Option<RawJson<'a>>,
}

#[derive(Deserialize, Default)]
struct ToolState<'a> {
    #[serde(borrow)]
    status: Option<ShortStr<'a>>,
    input: Option<RawJson<'a>>,
    output: Option<RawJson<'a>>,
    error: Option<RawText<'a>>,
    metadata: Option<RawJson<'a>>,
}

/// The output count excludes reasoning.
fn usage(tokens: RawJson<'_>, cost_usd: Option<f64>) -> Usage {
    let count = |name| tokens.member(name).as_count();
    let cache = tokens.member("cache");
    Usage {
        cost_usd,
        input_tokens: count("input"),
        output_tokens: count("output").saturating_add(count("reasoning")),
        cache_read_tokens: cache.member("read").as_count(),
        cache_write_tokens: cache.member("write").as_count(),
    }
}

/// `reported_at` is in milliseconds.
fn error_failure(error: RawJson<'_>, reported_at: u64) -> Failure {
    let name = error.member("name").text_or("an error without a name");
    let data = error.member("data");
    let message = data.member("message").text();
    let message = if message.is_empty() { &name } else { &message };
    let mut failure = api::classify_failure(data.member("statusCode").as_count(), message);
    failure.kind = match &*name {
        "ProviderAuthError" => FailureKind::Credentials,
        "ContextOverflowError" => FailureKind::Context,
        "ContentFilterError" => FailureKind::Refusal,
        _ => failure.kind,
    };
    if failure.kind == FailureKind::RateLimit {
        let retry_at = || retry_at(data.member("responseHeaders"), reported_at);
        failure.resets_at = failure.resets_at.or_else(retry_at);
    }
    with_credentials_hint(failure, REMEDY)
}

/// The time in `retry-after`, which has seconds or a date.
fn retry_at(headers: RawJson<'_>, reported_at: u64) -> Option<i64> {
    let mut retry_after = None;
    headers.for_each_member(|name, value| {
        if name.eq_ignore_ascii_case(b"retry-after") {
            retry_after = value.as_text();
        }
    })?;
    let retry_after = retry_after?.text();
    let reported_at = i64::try_from(reported_at / 1000).ok().filter(|at| *at > 0);
    match retry_after.trim().parse::<i64>() {
        Ok(seconds) => {
            let from = reported_at.unwrap_or_else(|| Timestamp::now().as_second());
            Some(from.saturating_add(seconds.max(0)))
        }
        Err(_) => jiff::fmt::rfc2822::parse(retry_after.trim())
            .ok()
            .map(|moment| moment.timestamp().as_second()),
    }
}
