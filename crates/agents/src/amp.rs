//! Amp: `amp --stream-json -x`, in the format of claude's stream.
//!
//! Written from its documentation: amp talks only to its own server, so nothing could be recorded.

use super::messages::{StreamJsonDialect, StreamJsonParser};
use super::structured::stream_or_text;
use super::text::LastOutput;
use super::{
    Adapter, AgentInvocation, AgentRequest, OutputReader, PromptVia, failure, has_option, messages,
    start_failure,
};
use crate::profile::{AgentExtras, AgentHome, AgentProfile, FileExposure, HomeDir, Recording};
use ralph_events::event::{Failure, FailureKind};
use ralph_events::text::first_line;

#[derive(Debug)]
pub(super) struct Amp;

static PROFILE: AgentProfile = AgentProfile {
    name: "amp",
    install_command: "npm install -g @sourcegraph/amp",
    recording: Recording::Missing {
        reason: "only refused starts; the rest follows its documentation",
    },
    tokens: Some("with each message"),
    cost: Some("if it reports it"),
    cost_is_verified: false,
    limit_end: None,
    interactive_autonomous_flags: &["--dangerously-allow-all"],
    hosts: &["ampcode.com"],
    key_prefixes: &["AMP_"],
    homes: &[AgentHome {
        dir: HomeDir::HOME,
        entries: &[
            (".local/share/amp/secrets.json", FileExposure::Credentials),
            (".config/amp", FileExposure::Config),
        ],
    }],
    extras: AgentExtras::NONE,
};

impl Adapter for Amp {
    fn profile(&self) -> &'static AgentProfile {
        &PROFILE
    }

    fn invocation(&self, request: &AgentRequest<'_>) -> AgentInvocation {
        let mut invocation = AgentInvocation::new(request, PromptVia::Stdin);
        invocation.args(request.flags);
        invocation.model(request, &[], &[]);
        if request.stream {
            invocation.arg("--stream-json");
        }
        if request.autonomous && !has_option(request.flags, &["--dangerously-allow-all"]) {
            invocation.arg("--dangerously-allow-all");
        }
        // `-x` and the prompt must be last.
        invocation.arg("-x");
        let is_argument = invocation.prompt_via == PromptVia::Argument;
        if is_argument && request.prompt.starts_with('-') {
            // A leading dash would start an option; the model ignores a space.
            invocation.arg(format!(" {}", request.prompt));
        } else {
            invocation.args(invocation.prompt_word(request));
        }
        invocation
    }

    fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        stream_or_text(structured, StreamJsonParser::new(&DIALECT), explain_failure)
    }
}

static DIALECT: StreamJsonDialect =
    StreamJsonDialect { echoes_prompt: true, ..StreamJsonDialect::CLAUDE };

fn explain_failure(output: &LastOutput<'_>) -> Option<Failure> {
    if output.stdout.contains("No API key found") || output.stderr.contains("No API key found") {
        return Some(failure(
            FailureKind::Credentials,
            "amp has no API key: run `amp login`, or set AMP_API_KEY",
        ));
    }
    let message = first_line(output.stderr)?;
    if message.starts_with("error: ") || message.starts_with("Error: unknown option") {
        return Some(start_failure("amp", message, "amp --help"));
    }
    messages::failure_by_message(message)
}
