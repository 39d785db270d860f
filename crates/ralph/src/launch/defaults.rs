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
    /// An agent that succeeds without output has failed.
    pub(crate) retry_empty: bool,
    pub(crate) inactivity_ms: Option<u64>,
    pub(crate) agent: Option<&'static str>,
    /// Standard error of a plain-text agent is part of its answer.
    pub(crate) stderr_counts_as_output: bool,
    /// Something besides guardrails can veto a completion.
    pub(crate) gates: bool,
    pub(crate) sandbox: SandboxBackend,
    pub(crate) session_log: bool,
    /// A failure uses up its iteration, and an agent killed for inactivity has answered. The prompt may be
    /// empty, `SIGTERM` pauses the run, a completion is final, and failures share an exit code.
    pub(crate) is_worker: bool,
}

impl Defaults {
    /// The base for the other commands.
    const RUN: Defaults = Defaults {
        max_iterations: 10,
        exit_at_limit: exit_code::INCOMPLETE,
        retries: 3,
        retry_empty: false,
        inactivity_ms: None,
        agent: None,
        stderr_counts_as_output: false,
        gates: false,
        sandbox: SandboxBackend::None,
        session_log: false,
        is_worker: false,
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
        inactivity_ms: Some(300_000),
        is_worker: true,
        ..Defaults::RUN
    };

    /// A screen shows activity at once.
    const INTERACTIVE_WORKER: Defaults =
        Defaults { inactivity_ms: Some(60_000), ..Defaults::WORKER };
}
