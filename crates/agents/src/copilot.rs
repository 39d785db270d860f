//! GitHub Copilot CLI: `copilot --output-format json`.
//!
//! Only whole messages count, not their pieces. The prompt is echoed. Lines of a subagent carry its
//! id. Tokens are only in the usage file, dollars nowhere.

use super::structured::{LineOutcome, LineParser, stream_or_text};
use super::text::LastOutput;
use super::todo::TodoChange;
use super::tools::{ToolCall, ToolEnd, ToolTracker, tool_output};
use super::{
    Adapter, AgentInvocation, AgentRequest, Emit, OutputReader, PREVIEW_CHARS, PromptVia, api,
    emit_notice, emit_thinking, failure, has_option, start_failure,
};
use crate::json::RawJson;
use crate::profile::{AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, Recording};
use crate::usage::read_inclusive_usage;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Event, Failure, FailureKind, Usage};

#[derive(Debug)]
pub(super) struct Copilot;

static PROFILE: AgentProfile = AgentProfile {
    name: "copilot",
    install_command: "npm install -g @github/copilot",
    recording: Recording::Version { product: "GitHub Copilot CLI", version: "1.0.102" },
    tokens: Some("at the end"),
    cost: None,
    cost_is_verified: false,
    limit_end: Some("if the service reports it"),
    interactive_autonomous_flags: &["--allow-all-tools"],
    hosts: &["api.githubcopilot.com", "*.githubcopilot.com", "api.github.com"],
    key_prefixes: &["COPILOT_"],
    homes: &[AgentHome {
        dir: HomeDir { moved_by: Some("COPILOT_HOME"), path: ".copilot" },
        entries: &[
            ("config.json", FileExposure::Credentials),
            ("mcp-config.json", FileExposure::Config),
            ("agents", FileExposure::Config),
            ("skills", FileExposure::Config),
        ],
    }],
    extras: AgentExtras::NONE,
};

impl Adapter for Copilot {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        if !request.stream {
            // Prints only the answer.
            invocation.default_args(flags, &["-s", "--silent"], &["-s"]);
        } else {
            invocation.default_args(flags, &["--output-format"], &["--output-format", "json"]);
        }
        if request.autonomous && !has_option(flags, &PERMISSION_FLAGS) {
            // Without a sandbox, copilot still asks before it leaves the directory.
            invocation.arg(if request.sandboxed { "--allow-all" } else { "--allow-all-tools" });
        }
        invocation.default_args(flags, &["--no-ask-user"], &["--no-ask-user"]);
        invocation.model(request, flags, &["--model"]);
        if request.stream && !has_option(flags, &["--usage-output-file"]) {
            invocation.arg("--usage-output-file");
            invocation.arg(request.side_file);
            invocation.side_file = Some(request.side_file.to_owned());
        }
        invocation.args(flags);
        invocation.prompt_as_option(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, CopilotParser::default(), explain_failure)
    }
}

const PERMISSION_FLAGS: [&str; 4] = ["--allow-all-tools", "--allow-all", "--yolo", "--allow-tool"];

/// Lines whose contents other lines report whole.
const REPEATED_LINES: &str = "\
    assistant.message_start assistant.message_delta assistant.reasoning_delta \
    assistant.tool_call_delta assistant.turn_start assistant.turn_end assistant.idle \
    assistant.intent assistant.streaming_delta assistant.usage model.call_start \
    model.call_finished model.call_final_result tool.shell_output tool.execution_partial_result \
    tool.execution_progress session.skills_loaded session.mcp_servers_loaded \
    session.mcp_server_status_changed session.custom_agents_updated \
    session.background_tasks_changed session.usage_info session.title_changed session.start \
    session.idle subagent.started subagent.selected subagent.configured subagent.deselected \
    subagent.completed";

#[derive(Debug, Default)]
struct CopilotParser {
    model: String,
    tools: ToolTracker,
    /// The latest message contained its reasoning, which follows once more.
    reasoning_seen: bool,
    status: u64,
    error: Option<Failure>,
    blocked: bool,
}

impl LineParser for CopilotParser {
    fn read(&mut self, bytes: &[u8], emit: &mut Emit<'_>) -> LineOutcome {
        let Ok(line) = serde_json::from_slice::<RawJson<'_>>(bytes) else {
            return LineOutcome::Malformed;
        };
        let subagent = !line.member("agentId").is_null();
        let data = line.member("data");
        match &*line.member("type").text() {
            "user.message" | "system.message" => {}
            "session.tools_updated" | "session.model_change" => {
                let model = data.member("model").as_text();
                let model = model.or_else(|| data.member("newModel").as_text());
                let model = model.unwrap_or_default().text();
                if !subagent && !model.is_empty() && *model != self.model {
                    self.model = model.clone().into_owned();
                    emit(Event::Session { id: None, model: Some(model) });
                }
            }
            "assistant.message" => {
                let reasoning = data.member("reasoningText").text();
                self.reasoning_seen = !reasoning.is_empty();
                emit_thinking(reasoning, subagent, emit);
                let text = data.member("content").text();
                if !text.is_empty() {
                    self.blocked = !subagent && text == BLOCKED_MESSAGE;
                    if self.blocked {
                        emit(Event::Notice { text });
                    } else {
                        emit(Event::Text { text, joined: false, subagent });
                    }
                }
            }
            "assistant.reasoning" => {
                if !std::mem::replace(&mut self.reasoning_seen, false) {
                    emit_thinking(data.member("content").text(), subagent, emit);
                }
            }
            "tool.execution_start" => {
                let id = data.member("toolCallId").text();
                let name = data.member("toolName").text_or("tool");
                let input = data.member("arguments");
                let todo = input.non_null().filter(|_| name == "update_todo");
                let change = todo.and_then(TodoChange::replace);
                let call = ToolCall { change, ..ToolCall::new(&name, input) };
                self.tools.start(&id, call, subagent, emit);
            }
            "tool.execution_complete" => self.tool_ended(data, subagent, emit),
            "model.call_failure" => self.status = data.member("statusCode").as_count(),
            "assistant.turn_retry" => {
                let reason = data.member("reason").text_or("unknown").replace('_', " ");
                let text = match std::mem::take(&mut self.status) {
                    0 => format!("API call failed ({reason}), retrying"),
                    status => format!("API error {status} ({reason}), retrying"),
                };
                emit(Event::Notice { text: text.into() });
            }
            "session.info" | "session.warning" => {
                // Retries are reported already.
                if data.member("infoType").text() != "model_retry" {
                    emit_notice(&data.member("message").text(), emit);
                }
            }
            "session.error" => {
                let failure = session_failure(data);
                if subagent {
                    emit_notice(&failure.message, emit);
                } else {
                    self.error = Some(failure);
                }
            }
            "abort" | "agent.interrupted" => {
                let text = match data.member("reason").text().replace('_', " ").as_str() {
                    "" => "copilot was interrupted".to_owned(),
                    reason => format!("copilot was interrupted: {reason}"),
                };
                emit_notice(&text, emit);
            }
            "subagent.failed" => {
                emit_notice(&format!("subagent failed: {}", data.member("error").text()), emit);
            }
            "result" => {
                let Some(code) = line.member("exitCode").as_f64() else {
                    return LineOutcome::Malformed;
                };
                if let Some(id) = line.member("sessionId").as_text() {
                    emit(Event::Session { id: Some(id.text()), model: None });
                }
                let failure = if code != 0.0 {
                    Some(self.error.take().unwrap_or_else(|| {
                        failure(FailureKind::Other, "copilot failed without giving a reason")
                    }))
                } else {
                    self.blocked.then(|| failure(FailureKind::Refusal, BLOCKED_MESSAGE))
                };
                emit(Event::Result { failure, usage: None, turns: None });
                return LineOutcome::Result;
            }
            kind if REPEATED_LINES.split(' ').any(|known| known == kind) => {}
            _ => return LineOutcome::Unknown,
        }
        LineOutcome::Parsed
    }

    fn pending_failure(&self) -> Option<Failure> {
        // The process may end between error and result.
        self.error.clone()
    }

    fn side_file(&mut self, text: &str, emit: &mut Emit<'_>) -> bool {
        let mut used = Usage::default();
        let models = RawJson::from_document(text.as_bytes()).member("modelMetrics");
        let read = models.for_each_member(|_, model| {
            used.add(&read_inclusive_usage(model.member("usage")));
        });
        if read.is_some() {
            emit(Event::Usage(used));
        }
        read.is_some()
    }
}

impl CopilotParser {
    fn tool_ended(&mut self, data: RawJson<'_>, subagent: bool, emit: &mut Emit<'_>) {
        let error = data.member("error");
        let (size, preview) = match error.member("message").as_text() {
            Some(message) => (message.size(), message.prefix(PREVIEW_CHARS)),
            None => tool_output(data.member("result").member("content")),
        };
        let exit_code = data.member("shellExecution").member("exitCode").as_f64();
        // copilot reports a failed command as a successful call.
        let failed =
            data.member("success").as_bool() == Some(false) || exit_code.unwrap_or_default() != 0.0;
        let denied = ["denied", "rejected"].contains(&&*error.member("code").text());
        let id = data.member("toolCallId").text();
        self.tools.end(&id, ToolEnd { failed, denied, size, preview }, subagent, emit);
    }
}

/// copilot's text in place of an answer that the service withheld.
const BLOCKED_MESSAGE: &str =
    "The model returned no content because the response was blocked by content filtering.";

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    let stderr = strip_control_chars(output.stderr);
    for line in stderr.lines().map(str::trim) {
        if line.contains("No authentication information found") {
            return Some(failure(
                FailureKind::Credentials,
                "copilot is not logged in: run `copilot login`, or set COPILOT_GITHUB_TOKEN",
            ));
        }
        if line.starts_with("error: ") {
            return Some(start_failure("copilot", line, "copilot --help"));
        }
    }
    let message = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    api::known_failure(message)
}

fn session_failure(error: RawJson<'_>) -> Failure {
    let status = error.member("statusCode").as_count();
    let mut failure = api::classify_failure(status, &error.member("message").text());
    failure.kind = match &*error.member("errorType").text() {
        "authentication" | "authorization" => FailureKind::Credentials,
        "rate_limit" | "quota" => FailureKind::RateLimit,
        "context_limit" => FailureKind::Context,
        _ => failure.kind,
    };
    failure
}
