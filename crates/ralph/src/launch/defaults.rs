//! The defaults of the loop commands.

use crate::config::settings::SandboxBackend;
use ralph_events::exit_code;

/// A command's defaults, below settings and flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) command: &'static str,
    pub(crate) max_iterations: u32,
    pub(crate) exit_at_limit: u8,
    pub(crate) retries: u32,
    /// A failure uses up its iteration instead of retrying it.
    pub(crate) failure_uses_iteration: bool,
    pub(crate) exit_at_failure: u8,
    /// An agent that succeeds without output has failed.
    pub(crate) retry_empty: bool,
    pub(crate) inactivity_ms: Option<u64>,
    /// An agent killed for inactivity has failed.
    pub(crate) inactivity_fails: bool,
    pub(crate) agent: Option<&'static str>,
    /// Standard error of a plain-text agent is part of its answer.
    pub(crate) stderr_counts_as_output: bool,
    /// Something besides guardrails can veto a completion.
    pub(crate) gates: bool,
    pub(crate) sandbox: SandboxBackend,
    pub(crate) session_log: bool,
    pub(crate) exit_without_prompt: u8,
    pub(crate) empty_prompt: bool,
    /// `SIGTERM` pauses the run.
    pub(crate) term_pauses: bool,
    /// A completion cannot be revoked.
    pub(crate) completion_is_final: bool,
}

impl Defaults {
    /// The base for the other commands.
    pub(crate) const RUN: Defaults = Defaults {
        command: "run",
        max_iterations: 10,
        exit_at_limit: exit_code::INCOMPLETE,
        retries: 3,
        failure_uses_iteration: false,
        exit_at_failure: exit_code::AGENT_FAILED,
        retry_empty: false,
        inactivity_ms: None,
        inactivity_fails: true,
        agent: None,
        stderr_counts_as_output: false,
        gates: false,
        sandbox: SandboxBackend::None,
        session_log: false,
        exit_without_prompt: exit_code::USAGE,
        empty_prompt: false,
        term_pauses: false,
        completion_is_final: false,
    };
}
