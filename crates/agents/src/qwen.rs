//! Qwen Code: `qwen -o stream-json`, whose stream has the shape of claude's.
//!
//! It tells a failed API call as the model's own words, `[API Error: …]`, after whatever the model
//! had said by then, calls that a success and exits with 0.

use super::messages::{StreamJsonDialect, StreamJsonParser};
use super::structured::StructuredReader;
use super::text::{LastOutput, PlainReader};
use super::{
    Adapter, AgentInvocation, AgentRequest, OutputReader, PromptVia, api, failure, has_option,
};
use crate::profile::{
    AgentHome, AgentProfile, FileExposure, HomeDir, MODEL_SERVICE_PREFIXES, Recording,
};
use ralph_events::event::{Exit, Failure, FailureKind};
use ralph_events::text::first_line;

/// The adapter for `qwen`.
#[derive(Debug)]
pub(super) struct Qwen;

static PROFILE: AgentProfile = AgentProfile {
    name: "qwen",
    install_command: "npm install -g @qwen-code/qwen-code",
    recording: Recording::Version { product: "Qwen Code", version: "0.15.10" },
    tokens: Some("with each message"),
    cost: None,
    cost_is_verified: false,
    limit_end: Some("if the service tells"),
    streams_text: false,
    sandboxes_itself: false,
    stop_hook: false,
    interactive_autonomous_flags: &["--yolo"],
    hosts: &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "*.qwen.ai"],
    key_prefixes: MODEL_SERVICE_PREFIXES,
    cloud_keys: &[],
    configured_keys: None,
    homes: &[AgentHome {
        dir: HomeDir { moved_by: None, path: ".qwen" },
        entries: &[
            ("oauth_creds.json", FileExposure::Credentials),
            (".env", FileExposure::Config),
            ("QWEN.md", FileExposure::Config),
            ("settings.json", FileExposure::Copy),
        ],
    }],
};

impl Adapter for Qwen {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        let flags = request.flags;
        if !has_option(flags, &["-o", "--output-format"]) {
            invocation.args(["-o", if request.stream { "stream-json" } else { "text" }]);
        }
        if request.autonomous && !has_option(flags, &["-y", "--yolo", "--approval-mode"]) {
            invocation.arg("--yolo");
        }
        invocation.model(request, flags, &["-m", "--model"]);
        invocation.args(flags);
        invocation.prompt_as_option(request);
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        if structured {
            Box::new(StructuredReader::new(StreamJsonParser::new(&DIALECT)))
        } else {
            Box::new(PlainReader::new(explain))
        }
    }
}

static DIALECT: StreamJsonDialect = StreamJsonDialect {
    echoes_prompt: true,
    explain_failure: explain,
    api_error: Some(api_error),
    denial: Some("Qwen Code requires permission to use "),
    remedy: Some("see `qwen auth`, or check OPENAI_API_KEY"),
    result_counts_as_text: false,
    input_includes_cache: true,
};

const API_ERROR: &str = "[API Error: ";

/// A message that is nothing but such an error is one. One that ends so may be the model's own, but
/// a message that the API has finished has a usage.
fn api_error(text: &str, unused: bool) -> Option<usize> {
    if text.starts_with(API_ERROR) {
        return Some(0);
    }
    let at = text.rfind(API_ERROR)?;
    (unused && text[at..].contains(']')).then_some(at)
}

/// What qwen's last words mean when there was no result.
fn explain(words: &LastOutput<'_>) -> Option<Failure> {
    if words.exit == Some(Exit::Code(53)) {
        return Some(failure(FailureKind::TurnLimit, "qwen ended at its own limit of turns"));
    }
    let said = first_line(words.stderr)?;
    let failure = api::classify_failure(0, said);
    (failure.kind != FailureKind::Other).then_some(failure)
}
