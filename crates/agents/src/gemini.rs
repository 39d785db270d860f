//! Gemini CLI: `gemini -o stream-json`.
//!
//! Text pieces belong together until another line. The prompt is echoed. After an API failure, the
//! exit code is the HTTP status modulo 256: 145 for 401, 173 for 429.

use super::structured::{LineOutcome, LineParser, stream_or_text};
use super::text::LastOutput;
use super::todo::TodoChange;
use super::tools::{ToolCall, ToolEnd, ToolTracker, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PREVIEW_CHARS, PromptVia, api,
    emit_notice, failure, start_failure, with_credentials_hint,
};
use crate::json::{RawJson, RawText};
use crate::profile::{AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, Recording};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Event, Exit, Failure, FailureKind, Usage};

#[derive(Debug)]
pub(super) struct Gemini;

static PROFILE: AgentProfile = AgentProfile {
    name: "gemini",
    install_command: "npm install -g @google/gemini-cli",
    recording: Recording::Version { product: "Gemini CLI", version: "0.61.0" },
    tokens: Some("at the end"),
    cost: None,
    cost_is_verified: false,
    limit_end: Some("if the service reports it"),
    interactive_autonomous_flags: &["--approval-mode", "yolo"],
    hosts: &[
        "generativelanguage.googleapis.com",
        "cloudcode-pa.googleapis.com",
        "oauth2.googleapis.com",
    ],
    key_prefixes: &["GEMINI_", "GOOGLE_API_KEY", "GOOGLE_GEMINI_", "GOOGLE_GENERATIVE_AI_"],
    homes: &[AgentHome {
        dir: HomeDir { moved_by: None, path: ".gemini" },
        entries: &[
            ("oauth_creds.json", FileExposure::Credentials),
            ("google_accounts.json", FileExposure::Copy),
            ("installation_id", FileExposure::Copy),
            (".env", FileExposure::Config),
            ("GEMINI.md", FileExposure::Config),
            ("commands", FileExposure::Config),
            ("extensions", FileExposure::Config),
            ("settings.json", FileExposure::Copy),
            ("trustedFolders.json", FileExposure::Copy),
        ],
    }],
    extras: AgentExtras {
        streams_text: true,
        sandbox_switch: Some("GEMINI_SANDBOX"),
        ..AgentExtras::NONE
    },
};

impl Adapter for Gemini {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        let format = if request.stream { "stream-json" } else { "text" };
        invocation.default_args(flags, &["-o", "--output-format"], &["-o", format]);
        if request.autonomous {
            let options = ["-y", "--yolo", "--approval-mode"];
            invocation.default_args(flags, &options, &["--approval-mode", "yolo"]);
            // Required in an untrusted directory.
            invocation.env.push(("GEMINI_CLI_TRUST_WORKSPACE", "true".into()));
        }
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        invocation.prompt_as_option(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, GeminiParser::default(), explain_failure)
    }
}

#[derive(Debug, Default)]
struct GeminiParser {
    /// The next text continues this one.
    is_streaming_text: bool,
    tools: ToolTracker,
    /// The last error, for a result without a message.
    error: Option<String>,
    failure: Option<Failure>,
}

impl LineParser for GeminiParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Ok(line) = serde_json::from_slice::<RawJson<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        let continued = std::mem::replace(&mut self.is_streaming_text, false);
        match &*line.member("type").text() {
            "init" => {
                let [id, model] = ["session_id", "model"]
                    .map(|name| line.member(name).as_text().map(RawText::text));
                emit(Event::Session { id, model });
            }
            "message" => match &*line.member("role").text() {
                "assistant" => {
                    let text = line.member("content").text();
                    self.is_streaming_text = line.member("delta").is_true();
                    if !text.is_empty() {
                        emit(Event::Text {
                            text,
                            joined: continued && self.is_streaming_text,
                            subagent: false,
                        });
                    }
                }
                // The echoed prompt.
                "user" => {}
                _ => return LineOutcome::Unknown,
            },
            "tool_use" => {
                let id = line.member("tool_id").text();
                let name = line.member("tool_name").text_or("tool");
                let input = line.member("parameters");
                let todo = input.non_null().filter(|_| name == "write_todos");
                let change = todo.and_then(TodoChange::replace);
                let call = ToolCall { change, ..ToolCall::new(&name, input) };
                self.tools.start(&id, call, false, emit);
            }
            "tool_result" => self.tool_result(line, emit),
            "error" => {
                let text = line.member("message").text();
                emit_notice(&text, emit);
                if line.member("severity").text() == "error" {
                    self.error = Some(text.into_owned());
                }
            }
            "result" => {
                let Some(status) = line.member("status").as_text() else {
                    return LineOutcome::Malformed;
                };
                let failed = status.bytes() != b"success";
                self.failure = failed.then(|| self.result_failure(line));
                emit(Event::Result {
                    failure: self.failure.clone(),
                    usage: line.member("stats").non_null().map(usage),
                    turns: None,
                });
                return LineOutcome::Result;
            }
            _ => return LineOutcome::Unknown,
        }
        LineOutcome::Parsed
    }

    fn revise_failure(&self, exit: Option<Exit>) -> Option<Failure> {
        let reported =
            self.failure.as_ref().filter(|failure| failure.kind == FailureKind::Other)?;
        let kind = kind_by_exit_code(exit)?;
        Some(Failure { kind, ..reported.clone() })
    }
}

impl GeminiParser {
    fn tool_result(&mut self, line: RawJson<'_>, emit: &mut Emit<'_>) {
        let (output, error) = (line.member("output"), line.member("error"));
        let failed = line.member("status").text() == "error";
        let (size, preview) = match error.member("message").as_text() {
            Some(message) if output.is_null() => (message.size(), message.prefix(PREVIEW_CHARS)),
            _ => tool_output(output),
        };
        let denied = failed && error.member("type").text() == "policy_violation";
        let id = line.member("tool_id").text();
        self.tools.end(&id, ToolEnd { failed, denied, size, preview }, false, emit);
    }

    fn result_failure(&self, line: RawJson<'_>) -> Failure {
        let error = line.member("error");
        let reported = error.member("message").as_text().map(|text| text.text().into_owned());
        let message = reported.or_else(|| self.error.clone()).unwrap_or_default();
        if message.is_empty() {
            return failure(FailureKind::Other, "gemini failed without giving a reason");
        }
        let (status, text) = match message.strip_prefix("[API Error: ") {
            Some(text) => parse_api_error(text),
            None => (0, message.clone()),
        };
        let reported_at = line.member("timestamp").text().parse().ok();
        let mut failure = api::classify_failure_at(status, &text, reported_at);
        failure.kind = match (&*error.member("type").text(), failure.kind) {
            ("FatalAuthenticationError", _) => FailureKind::Credentials,
            ("FatalTurnLimitedError", _) => FailureKind::TurnLimit,
            (_, FailureKind::Other) if message.contains("session turns") => FailureKind::TurnLimit,
            (_, FailureKind::Other)
                if BLOCKED_PHRASES.iter().any(|phrase| message.contains(phrase)) =>
            {
                FailureKind::Refusal
            }
            (_, kind) => kind,
        };
        with_credentials_hint(failure, REMEDY)
    }
}

const BLOCKED_PHRASES: [&str; 3] = ["safety", "recitation", "blocked"];

const REMEDY: &str = "check GEMINI_API_KEY, or run `gemini` once and log in";

/// Returns status and message. The error may be the API's JSON, followed by text.
fn parse_api_error(message: &str) -> (u64, String) {
    let mut values = serde_json::Deserializer::from_str(message).into_iter::<RawJson<'_>>();
    if message.starts_with('{')
        && let Some(Ok(body)) = values.next()
        && let Some(text) = body.member("error").member("message").as_text()
    {
        let status = body.member("error").member("code").as_count();
        return (status, format!("API error {status}: {}", text.text()));
    }
    // The bracket that closes `[API Error: `.
    let text = message.replacen("]\n", "\n", 1);
    let text = text.trim_end_matches(']');
    (api::leading_status(message), format!("API error: {text}"))
}

fn kind_by_exit_code(exit: Option<Exit>) -> Option<FailureKind> {
    let Some(Exit::Code(code)) = exit else {
        return None;
    };
    match code {
        41 => return Some(FailureKind::Credentials),
        42 | 44 | 52 | 55 => return Some(FailureKind::Usage),
        53 => return Some(FailureKind::TurnLimit),
        _ => {}
    }
    [401, 403, 429, 503, 529]
        .into_iter()
        .find(|status| status % 256 == u64::from(code.unsigned_abs()))
        .map(|status| api::failure_kind(status, ""))
}

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    let stderr = strip_control_chars(output.stderr);
    let last_line = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last_line = last_line.unwrap_or("no reason given");
    if output.exit == Some(Exit::Code(55)) {
        return Some(failure(
            FailureKind::Usage,
            "gemini does not trust this directory: trust it once in an interactive session, set \
             GEMINI_CLI_TRUST_WORKSPACE=true in \"agent\": {\"env\"}, or set \"autonomous\": true",
        ));
    }
    let kind = kind_by_exit_code(output.exit)?;
    let message = match kind {
        FailureKind::Credentials => format!("gemini is not logged in: {last_line}"),
        FailureKind::Usage => start_failure("gemini", last_line, "gemini --help").message,
        FailureKind::TurnLimit => format!("gemini reached its own turn limit: {last_line}"),
        // A stack trace follows the error.
        _ => stderr
            .lines()
            .find_map(|line| line.split_once("Error: ").map(|(_, message)| message))
            .map_or_else(|| format!("API error: {last_line}"), str::to_owned),
    };
    let resets_at = api::classify_failure(0, &message).resets_at;
    Some(Failure { kind, message, resets_at })
}

fn usage(stats: RawJson<'_>) -> Usage {
    let count = |name| stats.member(name).as_count();
    let (input, cached) = (count("input_tokens"), count("cached"));
    Usage {
        cost_usd: None,
        input_tokens: input.saturating_sub(cached),
        // Reasoning is only in the total.
        output_tokens: count("total_tokens").saturating_sub(input).max(count("output_tokens")),
        cache_read_tokens: cached,
        cache_write_tokens: 0,
    }
}
