//! Qwen Code: `qwen -o stream-json`, in the format of claude's stream.
//!
//! It appends a failed API call to the model's text as `[API Error: …]`, and exits with 0.

use super::messages::{StreamJsonDialect, StreamJsonParser};
use super::structured::stream_or_text;
use super::text::LastOutput;
use super::{
    Adapter, AgentInvocation, AgentRequest, OutputReader, PromptVia, api, failure, has_option,
};
use crate::profile::{
    AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, MODEL_SERVICE_PREFIXES, Recording,
};
use ralph_events::event::{Exit, Failure, FailureKind};
use ralph_events::text::first_line;

#[derive(Debug)]
pub(super) struct Qwen;

static PROFILE: AgentProfile = AgentProfile {
    name: "qwen",
    install_command: "npm install -g @qwen-code/qwen-code",
    recording: Recording::Version { product: "Qwen Code", version: "0.15.10" },
    tokens: Some("with each message"),
    cost: None,
    cost_is_verified: false,
    limit_end: Some("if the service reports it"),
    interactive_autonomous_flags: &["--yolo"],
    hosts: &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "*.qwen.ai"],
    key_prefixes: MODEL_SERVICE_PREFIXES,
    homes: &[AgentHome {
        dir: HomeDir { moved_by: None, path: ".qwen" },
        entries: &[
            ("oauth_creds.json", FileExposure::Credentials),
            (".env", FileExposure::Config),
            ("QWEN.md", FileExposure::Config),
            ("settings.json", FileExposure::Copy),
        ],
    }],
    extras: AgentExtras { sandbox_switch: Some("QWEN_SANDBOX"), ..AgentExtras::NONE },
};

impl Adapter for Qwen {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        let format = if request.stream { "stream-json" } else { "text" };
        invocation.default_args(flags, &["-o", "--output-format"], &["-o", format]);
        if request.autonomous && !has_option(flags, &["-y", "--yolo", "--approval-mode"]) {
            invocation.arg("--yolo");
        }
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        invocation.prompt_as_option(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, StreamJsonParser::new(&DIALECT), explain_failure)
    }
}

static DIALECT: StreamJsonDialect = StreamJsonDialect {
    echoes_prompt: true,
    api_error: Some(api_error),
    denial: Some("Qwen Code requires permission to use "),
    remedy: Some("see `qwen auth`, or check OPENAI_API_KEY"),
    result_counts_as_text: false,
    input_includes_cache: true,
};

const API_ERROR: &str = "[API Error: ";

/// A text that only ends so may be the model's own, but then the message has a usage.
fn api_error(text: &str, has_no_usage: bool) -> Option<usize> {
    if text.starts_with(API_ERROR) {
        return Some(0);
    }
    let at = text.rfind(API_ERROR)?;
    (has_no_usage && text[at..].contains(']')).then_some(at)
}

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    if output.exit == Some(Exit::Code(53)) {
        return Some(failure(FailureKind::TurnLimit, "qwen reached its own turn limit"));
    }
    api::known_failure(first_line(output.stderr)?)
}
