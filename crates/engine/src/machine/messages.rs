//! Inputs and actions of the machine.

use ralph_events::event::{Commit, EndCause, Event, Feedback, Outcome, Purpose, Stamp, Usage};
use ralph_events::run_state::AgentReport;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, and stands still while the computer sleeps. All durations use it.
    pub mono_ms: u64,
    /// Milliseconds since the Unix epoch, for times that come from outside.
    pub wall_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    Start,
    /// Notes of the gates for the agent.
    Briefed {
        feedback: Vec<Feedback>,
    },
    AgentStarted,
    AgentNotStarted {
        message: String,
    },
    PromptFailed {
        message: String,
    },
    Output,
    /// An earlier result was not its last.
    Working,
    ToolRunning(bool),
    /// Usage of the whole attempt so far.
    UsageReported(Usage),
    /// The agent gave a final result.
    ResultSeen,
    /// The agent reported that its credentials were refused.
    Refused,
    /// The number of background tasks of the agent.
    BackgroundTasks(u32),
    AgentEnded(Box<AgentReport>),
    GuardrailEnded {
        failed: Option<Feedback>,
    },
    ScmStatus(ScmStatus),
    CommitGuardChecked(CommitGuardResult),
    /// A failed task may have feedback for the next agent.
    ScmTaskEnded {
        ok: bool,
        feedback: Option<Feedback>,
    },
    GatesChecked(GateVerdict),
    /// A hash of the repository's state; none if it cannot be determined.
    StallChecked {
        fingerprint: Option<u64>,
    },
    /// `job_runs`: the process of the running job was alive when they were found.
    CommitsFound {
        head: String,
        commits: Vec<Commit>,
        job_runs: bool,
    },
    Timer,
    Refusals(Vec<RefusedHost>),
    /// Its meaning depends on the signals before it.
    Signal(StopSignal),
    /// Stops the run after the running job, or now.
    Stop {
        signal: &'static str,
        now: bool,
    },
    /// Lets the running job finish and starts nothing new.
    Pause,
    /// Ends a pause, with a new limit if one is given.
    Resume {
        max_iterations: Option<u32>,
    },
    /// Stops the run after the current iteration, its checks and its commit.
    StopAfterIteration {
        signal: &'static str,
    },
    /// Guidance for the next prompt. `now` restarts the iteration with it.
    Tell {
        /// The number of its request. A request that was taken before a kill comes again.
        id: u64,
        text: String,
        now: bool,
        every: bool,
    },
    /// Drops the guidance that came before this request.
    ClearGuidance {
        id: u64,
    },
    /// The agent asks a person.
    Asked {
        id: String,
        text: String,
        story: Option<String>,
    },
    Answered {
        question: String,
        text: String,
    },
    /// Whether a story can start that waits for no answer.
    StoryFound(bool),
    EndNotRecorded {
        message: String,
    },
    /// ralph itself cannot continue.
    InternalError {
        message: String,
    },
}

impl Input {
    /// What a person said: it belongs into the first prompt of a run that is resumed.
    pub fn is_message(&self) -> bool {
        matches!(self, Input::Tell { .. } | Input::ClearGuidance { .. } | Input::Answered { .. })
    }
}

/// A host that the sandbox's proxy refused.
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

/// The result of an SCM status check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScmStatus {
    Clean,
    /// `has_message`: an agent has given an unused message for exactly these changes.
    Dirty {
        has_message: bool,
    },
    /// Impossible or unknown, which was reported.
    Failed(Option<Feedback>),
}

/// Changes made while an agent wrote a commit message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitGuardResult {
    /// Nothing: the guardrails checked this state.
    Same,
    /// Files outside the staged changes, which was reported.
    ChangedBeside(UncheckedChange),
    /// The staged changes, or it is unknown; which was reported.
    Moved(UncheckedChange),
}

/// A change that no guardrail has checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedChange {
    /// Why the work is not complete.
    pub reason: String,
    /// For the next agent.
    pub feedback: Feedback,
}

/// The gates' answer to a completion claim.
#[derive(Debug, Clone, PartialEq)]
pub enum GateVerdict {
    /// The result of the completion rule stands.
    Neutral,
    /// Complete, even without a claim of the agent.
    Complete,
    /// Not complete. The feedback follows that of the guardrails.
    Veto { reason: String, feedback: Vec<Feedback> },
}

/// The checks at the end of a run that depend on how it ends. The others are always made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalChecks {
    /// Work that is in no commit.
    pub uncommitted: bool,
    /// Files that a successful run has to leave.
    pub required_outputs: bool,
    /// Whether the prompt asked for the completion signal.
    pub missing_signal: bool,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "an action is carried out at once, never stored")]
pub enum Action {
    /// Answered by `Briefed`.
    CollectBriefing,
    /// With [`super::LoopMachine::feedback`] and [`super::LoopMachine::messages`] in the prompt. Answered by `AgentStarted`, `AgentNotStarted` or `PromptFailed`.
    StartAgent(Purpose),
    /// End the agent's process tree. `AgentEnded` still follows.
    EndAgent(EndCause),
    /// Answered by `GuardrailEnded`.
    RunGuardrail(usize),
    /// `GuardrailEnded` still follows.
    EndGuardrail {
        timed_out: bool,
    },
    /// Answered by `ScmStatus`.
    CheckScmStatus,
    /// Answered by `CommitGuardChecked`.
    CheckStaged,
    /// Answered by `ScmTaskEnded`.
    RunScmTask(usize),
    /// Report that there is nothing to commit.
    SkipScmTask(usize, &'static str),
    /// End the running SCM task or inspection. Its result still follows.
    EndScmTask {
        timed_out: bool,
    },
    /// Answered by `StallChecked`.
    CheckStall,
    /// Answered by `StoryFound`.
    FindStory,
    /// Answered by `GatesChecked`.
    CheckGates {
        /// The completion rule matched.
        claimed: bool,
        /// If not, no gate can make the work complete.
        checks_passed: bool,
    },
    KillJob,
    /// See whether the agent, which is silent, has said that it is done. If so, `ResultSeen` follows.
    CheckDone,
    /// Always directly before `RunEnded`.
    RunFinalChecks(FinalChecks),
    Emit(Stamp, Event<'static>),
    /// Flush and sync the journal.
    Save,
    /// The last action, unless `EndNotRecorded` follows.
    Finish {
        outcome: Outcome,
        exit_code: u8,
    },
}
