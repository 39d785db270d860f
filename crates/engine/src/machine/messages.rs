//! What goes into the machine and what comes out of it.

use ralph_events::event::{EndCause, Event, Feedback, Outcome, Purpose, Usage};

use ralph_events::run_state::AgentReport as Report;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Never goes back, and stands still while the machine sleeps: for everything that is measured.
    pub mono_ms: u64,
    /// Milliseconds since the Unix epoch: for what the outside world names by its time.
    pub wall_ms: i64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The first input, and only the first.
    Start,
    /// What the gates have to say to the agent before it begins.
    Briefed {
        feedback: Vec<Feedback>,
    },
    AgentStarted,
    /// The agent's program could not be run.
    AgentNotStarted {
        message: String,
    },
    /// The prompt is gone or cannot be read.
    PromptFailed {
        message: String,
    },
    /// The agent printed something.
    Output,
    /// The agent works: it said something or used a tool.
    Working,
    /// Whether a tool of the agent's is running, as far as its stream tells.
    ToolRunning(bool),
    /// All that the attempt has used so far.
    UsageReported(Usage),
    /// The agent has given a final result.
    ResultSeen,
    /// The agent said that its credentials were refused.
    Refused,
    /// So many of the agent's own background tasks are running.
    BackgroundTasks(u32),
    AgentEnded(Box<Report>),
    GuardrailEnded {
        failed: Option<Feedback>,
    },
    ScmStatus(ScmStatus),
    /// What an agent has done besides that was asked for a commit message.
    CommitGuardChecked(CommitGuardResult),
    /// One that failed may be something for the next agent to know.
    ScmTaskEnded {
        ok: bool,
        feedback: Option<Feedback>,
    },
    GatesChecked(GateVerdict),
    /// What the repository looks like, as a number that is another one when it looks different; nothing
    /// if nobody can tell.
    StallChecked {
        fingerprint: Option<u64>,
    },
    /// The time that [`LoopMachine::deadline`] named has come.
    Timer,
    /// Hosts that the agent asked for and was refused.
    Refusals(Vec<RefusedHost>),
    /// A signal that asks the run to pause or stop. Its meaning depends on those before it.
    Signal(StopSignal),
    /// Somebody asked to stop: after what is running now, or at once.
    Stop {
        signal: &'static str,
        now: bool,
    },
    /// Somebody asked for a pause: what is running comes to its end, and nothing new is begun.
    Pause,
    /// Somebody asked to go on, with another limit if one is given.
    Resume {
        max_iterations: Option<u32>,
    },
    /// The journal could not take the end of the run.
    EndNotRecorded {
        message: String,
    },
    /// ralph itself cannot go on.
    Broken {
        message: String,
    },
}

/// A host that the proxy of the sandbox did not let the agent reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefusedHost {
    pub host: String,
    pub port: u16,
    pub reason: &'static str,
    /// The setting that would allow it.
    pub allow_entry: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    Interrupt,
    Terminate,
    HangUp,
    Quit,
    CpuLimit,
}

impl StopSignal {
    pub(super) fn name(self) -> &'static str {
        match self {
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Terminate => "SIGTERM",
            StopSignal::HangUp => "SIGHUP",
            StopSignal::Quit => "SIGQUIT",
            StopSignal::CpuLimit => "SIGXCPU",
        }
    }

    /// Does not wait for the running job, even as the first signal.
    pub(super) fn is_immediate(self) -> bool {
        matches!(self, StopSignal::HangUp | StopSignal::Quit | StopSignal::CpuLimit)
    }
}

/// What there is to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScmStatus {
    Clean,
    /// Something; for the very same an agent may have given a message already that was not used.
    Dirty {
        has_message: bool,
    },
    /// It cannot be committed, or nobody can tell; why was said, and what the next agent is to be told.
    Failed(Option<Feedback>),
}

/// What became of the work while an agent was asked for a commit message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitGuardResult {
    /// It is what the guardrails saw.
    Same,
    /// Something was changed besides, which was said. What was staged is as it was.
    ChangedBeside(UncheckedChange),
    /// What would be committed is not what was staged, or nobody can tell; which was said.
    Moved(UncheckedChange),
}

/// What no guardrail has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedChange {
    /// Why the work is not complete.
    pub reason: String,
    /// What the next agent is to be told.
    pub feedback: Feedback,
}

/// What the gates say to what the agent claims.
#[derive(Debug, Clone, PartialEq)]
pub enum GateVerdict {
    /// What the completion rule found stands.
    Neutral,
    /// The work is complete, whether or not the agent said so.
    Complete,
    /// It is not complete, for this reason, and the next agent is to be told this, after what
    /// guardrails have to say.
    Veto { reason: String, feedback: Vec<Feedback> },
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask the gates what the agent has to know. Answered by `Briefed`.
    CollectBriefing,
    /// Compose the prompt from its source and [`LoopMachine::feedback`], and start the agent.
    /// Answered by `AgentStarted`, `AgentNotStarted` or `PromptFailed`.
    StartAgent(Purpose),
    /// End the agent with everything that it started. `AgentEnded` still follows.
    EndAgent(EndCause),
    /// Answered by `GuardrailEnded`.
    RunGuardrail(usize),
    /// The guardrail's time is up, or it has to go.
    EndGuardrail {
        timed_out: bool,
    },
    /// Answered by `ScmLooked`.
    CheckScmStatus,
    /// An agent was asked for a commit message: is everything as it was? Answered by `StagedLooked`.
    CheckStaged,
    /// Answered by `ScmTaskEnded`.
    RunScmTask(usize),
    /// There is nothing to commit: say so.
    SkipScmTask(usize, &'static str),
    /// End the task, or the look at the repository: its time is up, or it has to go. Its end is still to be heard of.
    EndScmTask {
        timed_out: bool,
    },
    /// Answered by `RepositoryLooked`.
    CheckStall,
    /// Answered by `GatesChecked`.
    CheckGates {
        /// The completion rule has found what it looks for.
        claimed: bool,
        /// So do all guardrails. If not, the work is not complete whatever the gates say.
        checks_passed: bool,
    },
    /// Kill the running job without a grace period.
    KillJob,
    Emit(Event<'static>),
    /// An iteration is over: what is recorded must be safe.
    Save,
    /// The last action, unless `EndNotRecorded` follows.
    Finish {
        outcome: Outcome,
        exit_code: u8,
    },
}
