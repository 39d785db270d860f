//! The loop commands and their defaults.

use serde::{Deserialize, Serialize};

use crate::config::settings::SandboxBackend;
use ralph_events::exit_code;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoopCommand {
    Run,
    Plan,
    Build,
    Prompt,
    Work,
    Spawn,
}

impl LoopCommand {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LoopCommand::Run => "run",
            LoopCommand::Plan => "plan",
            LoopCommand::Build => "build",
            LoopCommand::Prompt => "prompt",
            LoopCommand::Work => "work",
            LoopCommand::Spawn => "spawn",
        }
    }

    pub(super) fn defaults(self, interactive: bool) -> &'static Defaults {
        match self {
            LoopCommand::Run => &Defaults::RUN,
            LoopCommand::Plan | LoopCommand::Build | LoopCommand::Prompt => &Defaults::MODE,
            LoopCommand::Work => &Defaults::WORK,
            LoopCommand::Spawn if interactive => &Defaults::INTERACTIVE_WORKER,
            LoopCommand::Spawn => &Defaults::WORKER,
        }
    }
}

/// A command's defaults, below settings and flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
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
    const RUN: Defaults = Defaults {
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

    /// `plan`, `build` and `prompt`.
    const MODE: Defaults = Defaults {
        exit_at_limit: exit_code::SUCCESS,
        stderr_counts_as_output: true,
        session_log: true,
        ..Defaults::RUN
    };

    const WORK: Defaults = Defaults {
        retry_empty: true,
        agent: Some("claude"),
        gates: true,
        sandbox: SandboxBackend::Auto,
        ..Defaults::RUN
    };

    const WORKER: Defaults = Defaults {
        exit_at_limit: exit_code::SUCCESS,
        retries: 4,
        failure_uses_iteration: true,
        exit_at_failure: exit_code::INCOMPLETE,
        inactivity_ms: Some(300_000),
        inactivity_fails: false,
        exit_without_prompt: exit_code::INCOMPLETE,
        empty_prompt: true,
        term_pauses: true,
        completion_is_final: true,
        ..Defaults::RUN
    };

    /// A screen shows activity at once.
    const INTERACTIVE_WORKER: Defaults =
        Defaults { inactivity_ms: Some(60_000), ..Defaults::WORKER };
}
