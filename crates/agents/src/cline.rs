//! Cline: `cline --json`.
//!
//! Text arrives in pieces, then whole, and the last one twice more; only whole texts count. A
//! subagent's text is not marked, but arrives only while its tool runs.
//!
//! By default cline uses a daemon that outlives the run and whose tools ralph could not kill, so it
//! is started with the flag to work in its own process.

use std::borrow::Cow;

use super::structured::{LineOutcome, LineParser, stream_or_text};
use super::text::LastOutput;
use super::tools::{ToolCall, ToolEnd, ToolTracker, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PREVIEW_CHARS, PromptVia, api,
    emit_notice, emit_text, emit_thinking, failure, has_option, one_line, with_credentials_hint,
};
use crate::json::{RawJson, RawText, TextSize};
use crate::profile::{
    AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, MODEL_SERVICE_PREFIXES,
    PROVIDER_HOSTS, Recording,
};
use crate::usage::read_inclusive_usage;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Event, Failure, FailureKind, Usage};

#[derive(Debug)]
pub(super) struct Cline;

/// Linux limits an argument to 128 KiB.
const MAX_ARGUMENT: usize = 100 * 1024;

/// cline appends standard input to this argument.
const STDIN_PROMPT_ARGUMENT: &str = "Follow the instructions below.";

static PROFILE: AgentProfile = AgentProfile {
    name: "cline",
    install_command: "npm install -g cline",
    recording: Recording::Version { product: "cline", version: "3.0.65" },
    tokens: Some("after each answer"),
    cost: Some("if it knows the price"),
    cost_is_verified: true,
    limit_end: Some("if the service reports it"),
    interactive_autonomous_flags: &[],
    hosts: PROVIDER_HOSTS,
    key_prefixes: MODEL_SERVICE_PREFIXES,
    homes: &[AgentHome {
        dir: HomeDir { moved_by: Some("CLINE_DIR"), path: ".cline" },
        entries: &[
            ("data/settings/providers.json", FileExposure::Credentials),
            ("data/secrets.json", FileExposure::Credentials),
            ("data/globalState.json", FileExposure::Copy),
        ],
    }],
    extras: AgentExtras::NONE,
};

impl Adapter for Cline {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let default_via = if request.prompt.len() > MAX_ARGUMENT {
            PromptVia::Stdin
        } else {
            PromptVia::Argument
        };
        let mut invocation = AgentInvocation::new(request, default_via);
        let flags = request.flags;
        if request.stream && !has_option(flags, &["--json"]) {
            invocation.arg("--json");
        }
        // Approves everything by default.
        let approve = if request.autonomous { "true" } else { "false" };
        invocation.default_args(flags, &["--auto-approve"], &["--auto-approve", approve]);
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        if !has_option(flags, &["--zen"]) {
            invocation.env.push(("CLINE_SESSION_BACKEND_MODE", "local".into()));
        }
        let mut prompt =
            invocation.prompt_argument(request).unwrap_or(STDIN_PROMPT_ARGUMENT.into());
        if !prompt.contains(char::is_whitespace) {
            // A single word would be a command.
            prompt.to_mut().push('\n');
        }
        invocation.args(["--", &*prompt]);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, ClineParser::default(), explain_failure)
    }
}

#[derive(Debug, Default)]
struct ClineParser {
    session: String,
    tools: ToolTracker,
    /// The latest text of the main agent.
    last_text: String,
    /// The kind of the last error, which the result has only as prose.
    error_class: Option<FailureKind>,
    usage: Usage,
}

impl LineParser for ClineParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Ok(line) = serde_json::from_slice::<RawJson<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        match &*line.member("type").text() {
            "hook_event" => {
                // A subagent's conversation has a parent.
                let id = line.member("taskId").text();
                let main = line.member("parentAgentId").is_null();
                if main && !id.is_empty() && id != self.session {
                    self.session = id.clone().into_owned();
                    emit(Event::Session { id: Some(id), model: None });
                }
                LineOutcome::Parsed
            }
            "agent_event" => LineOutcome::parsed_if(self.event(line.member("event"), emit)),
            "run_result" => self.result(line, emit),
            "error" => {
                emit_notice(&line.member("message").text(), emit);
                LineOutcome::Parsed
            }
            // Follows the result of a stopped run.
            "run_aborted" => LineOutcome::Parsed,
            _ => LineOutcome::Unknown,
        }
    }

    fn read_stderr(&mut self, line: &str, emit: &mut Emit<'_>) -> bool {
        let message = stderr_message(line);
        message.iter().for_each(|message| emit_notice(message, emit));
        message.is_some()
    }
}

impl ClineParser {
    /// Text is a subagent's while a tool runs.
    fn is_in_tool(&self) -> bool {
        self.tools.is_any_running_except(None)
    }

    fn event(&mut self, event: RawJson<'_>, emit: &mut Emit<'_>) -> bool {
        match (&*event.member("type").text(), &*event.member("contentType").text()) {
            ("content_start" | "content_update", "text" | "reasoning") => {}
            ("content_end", "text") => {
                let text = event.member("text").text();
                let subagent = self.is_in_tool();
                if !subagent {
                    self.last_text = text.clone().into_owned();
                }
                emit_text(text, subagent, emit);
            }
            ("content_end", "reasoning") => {
                let text = event.member("reasoning").text();
                emit_thinking(text, self.is_in_tool(), emit);
            }
            ("content_start", "tool") => self.tool_started(event, emit),
            ("content_update", "tool") => {}
            ("content_end", "tool") => self.tool_ended(event, emit),
            ("usage", _) => {
                // The totals in this line are per agent.
                self.usage.add(&usage(event, event.member("cost")));
                emit(Event::Usage(self.usage));
            }
            ("error", _) => {
                if event.member("recoverable").is_true() {
                    emit_notice(&event.member("error").member("message").text(), emit);
                }
                self.error_class = match &*event.member("errorClass").text() {
                    "auth" => Some(FailureKind::Credentials),
                    "context_window_exceeded" => Some(FailureKind::Context),
                    _ => None,
                };
            }
            ("notice", _) => emit_notice(&event.member("message").text(), emit),
            ("iteration_start" | "iteration_end" | "done", _) => {}
            _ => return false,
        }
        true
    }

    fn tool_started(&mut self, event: RawJson<'_>, emit: &mut Emit<'_>) {
        let id = event.member("toolCallId").text();
        let name = event.member("toolName").text_or("tool");
        let subagent = self.is_in_tool();
        let input = event.member("input");
        let mut call = ToolCall::new(&name, input);
        if let Some(summary) = list_summary(&name, input) {
            call.summary = summary;
        }
        self.tools.start(&id, call, subagent, emit);
    }

    fn tool_ended(&mut self, event: RawJson<'_>, emit: &mut Emit<'_>) {
        let id = event.member("toolCallId").text();
        let subagent = self.tools.is_any_running_except(Some(&id));
        let mut end = tool_end(event.member("output"));
        end.failed |= !event.member("error").is_null();
        end.denied = end.failed && DENIALS.iter().any(|phrase| end.preview.contains(phrase));
        self.tools.end(&id, end, subagent, emit);
    }

    fn result(&mut self, line: RawJson<'_>, emit: &mut Emit<'_>) -> LineOutcome {
        let text = line.member("text").text();
        if let Some(id) = line.member("model").member("id").as_text() {
            emit(Event::Session { id: None, model: Some(id.text()) });
        }
        let Some(reason) = line.member("finishReason").as_text() else {
            return LineOutcome::Malformed;
        };
        let failure = match &*reason.text() {
            "completed" => None,
            "max_iterations" => {
                Some(failure(FailureKind::TurnLimit, "cline reached its own iteration limit"))
            }
            reason => Some(self.to_failure(reason, &text)),
        };
        if failure.is_none() && !text.is_empty() && *text != self.last_text {
            emit(Event::Text { text, joined: false, subagent: false });
        }
        let counts = line.member("aggregateUsage").non_null().unwrap_or(line.member("usage"));
        let total = usage(counts, counts.member("totalCost"));
        // The result omits subagents, the lines before it other usage.
        if total.total_tokens() > self.usage.total_tokens() {
            self.usage = Usage { cost_usd: total.cost_usd.or(self.usage.cost_usd), ..total };
        }
        emit(Event::Result {
            failure,
            usage: Some(self.usage),
            turns: line.member("iterations").non_null().map(RawJson::as_u32),
        });
        LineOutcome::Result
    }

    fn to_failure(&self, reason: &str, text: &str) -> Failure {
        if text.is_empty() {
            return failure(
                FailureKind::Other,
                format!("cline ended: {}", reason.replace('_', " ")),
            );
        }
        let mut failure = api::classify_failure(0, text);
        failure.kind = self.error_class.unwrap_or(failure.kind);
        with_credentials_hint(failure, REMEDY)
    }
}

/// Denied by the daemon, and without it.
const DENIALS: [&str; 2] = ["Tool approval", "requires approval in a TTY session"];

const REMEDY: &str = "run `cline auth`, or check its API key";

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    let stderr = strip_control_chars(output.stderr);
    let mut messages = stderr.lines().map(str::trim).filter_map(|line| {
        let plain = || line.strip_prefix("error:").map(|message| message.trim().into());
        stderr_message(line).or_else(plain)
    });
    let message = messages.rfind(|message| !message.starts_with("hook dispatch failed"))?;
    if let Some(failure) = api::known_failure(&message) {
        return Some(with_credentials_hint(failure, REMEDY));
    }
    const USAGE_PHRASES: [&str; 3] = ["requires a prompt", "Unknown command", "unknown option"];
    USAGE_PHRASES.iter().any(|phrase| message.contains(phrase)).then(|| {
        failure(
            FailureKind::Usage,
            format!(
                "cline did not start: {message} (check \"agent\" in the settings, and cline --help)"
            ),
        )
    })
}

/// In a stream, errors on stderr are JSON.
fn stderr_message(line: &str) -> Option<Cow<'_, str>> {
    let line = serde_json::from_str::<RawJson<'_>>(line).ok()?;
    line.member("type").as_text()?;
    line.member("message").as_text().map(RawText::text)
}

/// A cost of 0 means unknown.
fn usage(counts: RawJson<'_>, cost: RawJson<'_>) -> Usage {
    Usage { cost_usd: cost.as_f64().filter(|cost| *cost > 0.0), ..read_inclusive_usage(counts) }
}

/// Of tools that take a list.
fn list_summary(name: &str, input: RawJson<'_>) -> Option<String> {
    let wanted = match name {
        "run_commands" => "commands",
        "read_files" => "files",
        _ => return None,
    };
    let elements = input.member(wanted).elements().into_iter().flatten();
    let texts = elements.filter_map(|it| it.as_text().or(it.member("path").as_text()));
    let parts: Vec<_> = texts.map(|text| text.prefix(super::SUMMARY_CHARS + 1)).collect();
    (!parts.is_empty()).then(|| one_line(&parts.join("; ")))
}

fn tool_end(output: RawJson<'_>) -> ToolEnd<'_> {
    let (size, preview) = tool_output(output);
    let mut end = ToolEnd { size, preview, ..ToolEnd::default() };
    if let Some(error) = output.member("error").as_text() {
        let (size, preview) = (error.size(), error.prefix(PREVIEW_CHARS));
        return ToolEnd { failed: true, denied: false, size, preview };
    }
    let mut parts: Vec<RawText<'_>> = Vec::new();
    let mut known = true;
    let listed = output.for_each_element(|part| {
        let mut result = None;
        let object = part.for_each_member(|key, value| match key {
            b"result" => result = value.as_text(),
            b"success" => end.failed |= value.bytes() == b"false",
            _ => {}
        });
        known &= object.is_some() && result.is_some();
        parts.extend(result);
    });
    if listed.is_some() && known {
        end.size = TextSize::default();
        let mut preview = String::new();
        for part in parts {
            let size = part.size();
            end.size.lines += size.lines;
            end.size.chars += size.chars;
            let room = PREVIEW_CHARS.saturating_sub(preview.chars().count());
            preview.push_str(&part.prefix(room));
        }
        end.preview = preview.into();
    }
    end
}
