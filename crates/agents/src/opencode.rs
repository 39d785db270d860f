//! opencode: `opencode run --format json`.
//!
//! Tools appear only when they end. There is no final line: the last step ends for another reason
//! than tool calls. The model is not reported.

use jiff::Timestamp;

use super::structured::{LineOutcome, LineParser, stream_or_text};
use super::text::LastOutput;
use super::todo::TodoChange;
use super::tools::{ToolCall, ToolEnd, ToolTracker, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PromptVia, api, emit_notice,
    emit_text, emit_thinking, failure, has_option, with_credentials_hint,
};
use crate::json::RawJson;
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
    limit_end: Some("if the service reports it"),
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
        let Ok(line) = serde_json::from_slice::<RawJson<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        let session = line.member("sessionID").text();
        if self.session.is_empty() && !session.is_empty() {
            self.session = session.clone().into_owned();
            emit(Event::Session { id: Some(session.clone()), model: None });
        }
        let subagent = session != self.session;
        let part = line.member("part");
        match &*line.member("type").text() {
            "step_start" => {
                self.in_step = true;
                self.rejected = None;
                if !subagent && !self.compacting {
                    self.overflow = None;
                    self.overflow_count = 0;
                }
                LineOutcome::Parsed
            }
            "error" => {
                let reported_at = line.member("timestamp").as_count();
                self.error(error_failure(line.member("error"), reported_at), subagent, emit)
            }
            _ if part.is_null() => LineOutcome::Unknown,
            "text" => {
                self.text(part, subagent, emit);
                LineOutcome::Parsed
            }
            "reasoning" => {
                emit_thinking(part.member("text").text(), subagent, emit);
                LineOutcome::Parsed
            }
            "tool_use" => self.tool(part, subagent, emit),
            "step_finish" => {
                // A subagent's step is nested in the main agent's.
                self.in_step = subagent;
                self.step(part, subagent, emit)
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
    fn text(&mut self, part: RawJson<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let text = part.member("text").text();
        if text.is_empty() {
            return;
        }
        // Synthetic text is written by the program, not by the model.
        if !part.member("synthetic").is_true() {
            return if self.compacting && !subagent {
                emit_thinking(text, subagent, emit);
            } else {
                emit_text(text, subagent, emit);
            };
        }
        if part.member("metadata").member("compaction_continue").is_true() && !subagent {
            // The previous step was a summary.
            let reason = "the agent's context was compacted: its last message was a summary";
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

    fn tool(&mut self, part: RawJson<'_>, subagent: bool, emit: &mut Emit<'_>) -> LineOutcome {
        let state = part.member("state");
        let id = part.member("callID").text();
        let name = part.member("tool").text_or("tool");
        let input = state.member("input");
        let change = input.non_null().filter(|_| name == "todowrite").and_then(TodoChange::replace);
        let call = ToolCall { change, ..ToolCall::new(&name, input) };
        self.tools.start(&id, call, subagent, emit);
        let failed = state.member("status").text() == "error";
        let exit = state.member("metadata").member("exit").as_f64().unwrap_or_default();
        let error_text = state.member("error").as_text().filter(|_| failed);
        let error = error_text.unwrap_or_default().text();
        if !subagent && error.contains(REJECTED_PHRASE) {
            self.rejected = Some(name.into_owned());
        }
        let (size, preview) = match error_text {
            Some(error) => (error.size(), error.prefix(super::PREVIEW_CHARS)),
            None => tool_output(state.member("output")),
        };
        let denied = DENIED_PHRASES.iter().any(|phrase| error.contains(phrase));
        // opencode reports a failed command as a successful call.
        let failed = failed || exit != 0.0;
        self.tools.end(&id, ToolEnd { failed, denied, size, preview }, subagent, emit);
        LineOutcome::Parsed
    }

    fn step(&mut self, part: RawJson<'_>, subagent: bool, emit: &mut Emit<'_>) -> LineOutcome {
        let cost = part.member("cost").as_f64().filter(|cost| *cost >= 0.0);
        self.usage.add(&usage(part.member("tokens"), cost));
        emit(Event::Usage(self.usage));
        if subagent {
            return LineOutcome::Parsed;
        }
        self.steps += 1;
        if std::mem::take(&mut self.compacting) {
            return LineOutcome::Parsed;
        }
        let failure = match &*part.member("reason").text_or("unknown") {
            "tool-calls" | "unknown" => match self.rejected.take() {
                Some(tool) => Some(failure(
                    FailureKind::Other,
                    format!(
                        "opencode stopped: it is not allowed to use {tool} (allow it in \
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
                let text = "the answer was cut off at the model's output limit";
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
        return Some(failure(FailureKind::Usage, "the prompt is empty"));
    }
    if message.contains("Model not found") {
        return Some(failure(
            FailureKind::Usage,
            format!("opencode did not start: {message} (`opencode models` lists the models)"),
        ));
    }
    api::known_failure(message).map(|failure| with_credentials_hint(failure, REMEDY))
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
    let name = error.member("name").text_or("unnamed error");
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
