//! The vocabulary of a run: journal, JSON output and every display use these events.
//!
//! Texts are borrowed where possible: most events are built from a line in the read buffer and dropped once
//! written.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// When and where in a run an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch; RFC 3339 in JSON.
    #[serde(rename = "time", with = "rfc3339")]
    pub time_ms: i64,
    /// Counted from 1; 0 before the first iteration.
    pub iteration: u32,
    /// Counted from 1; 0 outside of an iteration.
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Why an agent process was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    #[default]
    Work,
    /// A one-line commit message for an SCM commit.
    CommitMessage,
}

/// An entry of the agent's own todo list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    pub text: String,
    pub status: TodoStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

/// The lines that a tool call replaces, without those that the old and the new text share at the start and end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdit {
    /// The beginning of the removed lines; empty for a new file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub old: String,
    /// The beginning of the added lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub new: String,
    /// Lines in all; `old` and `new` may hold fewer.
    pub removed: u64,
    pub added: u64,
}

/// Tokens and cost. The four token counts do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// US dollars, if the agent reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Input that was neither read from nor written to a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

impl Usage {
    /// All input, cached or not.
    pub fn total_input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }

    /// All tokens that a token budget counts.
    pub fn total_tokens(&self) -> u64 {
        self.total_input().saturating_add(self.output_tokens)
    }

    pub fn is_zero(&self) -> bool {
        self.total_tokens() == 0 && self.cost_usd.unwrap_or(0.0) == 0.0
    }

    /// Adds the usage of another attempt. Ignores negative costs; counts saturate, because agents report them.
    pub fn add(&mut self, other: &Usage) {
        if let Some(cost) = other.cost_usd.filter(|cost| *cost >= 0.0) {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
        for (own, more) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
        ] {
            *own = own.saturating_add(more);
        }
    }

    /// The part of `other` that exceeds this, for each count.
    pub fn shortfall(&self, other: &Usage) -> Usage {
        let more = |own: Option<f64>, told: Option<f64>| match (own, told) {
            (Some(own), Some(told)) => (told > own).then_some(told - own),
            (_, told) => told,
        };
        Usage {
            cost_usd: more(self.cost_usd, other.cost_usd),
            input_tokens: other.input_tokens.saturating_sub(self.input_tokens),
            output_tokens: other.output_tokens.saturating_sub(self.output_tokens),
            cache_read_tokens: other.cache_read_tokens.saturating_sub(self.cache_read_tokens),
            cache_write_tokens: other.cache_write_tokens.saturating_sub(self.cache_write_tokens),
        }
    }

    /// Raises each count to at least that of a later report.
    pub fn at_least(&mut self, told: &Usage) {
        let missing = self.shortfall(told);
        self.add(&missing);
    }
}

/// The kind of failure that an agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The limit of the account or key is used up for now.
    RateLimit,
    /// The service has no capacity; a retry can help.
    Overloaded,
    /// Missing, wrong or expired credentials; a retry does not help.
    Credentials,
    /// The context window is full, or the prompt is too long for it.
    Context,
    /// The model declined to answer.
    Refusal,
    /// The agent's own turn limit, set by the user.
    TurnLimit,
    /// The agent's own cost limit, set by the user.
    AgentBudget,
    /// The agent refused to start (bad flags, running as root, untrusted directory); a retry does not help.
    Usage,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// End of the limit in seconds since the Unix epoch, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<i64>,
}

impl Failure {
    /// Returns whether a retry cannot help.
    pub fn is_permanent(&self) -> bool {
        self.kind == FailureKind::Usage
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Why ralph ended an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// No output within the inactivity limit.
    Inactivity,
    /// No output within the limit for a silent model, while no tool was running.
    SilentModel,
    /// The iteration's time limit.
    IterationTimeout,
    /// It printed its result but did not exit.
    ResultGrace,
    /// Its credentials were refused, and it kept retrying.
    Refused,
    /// The run's budget.
    Budget,
    /// The iteration's budget.
    IterationBudget,
    /// A second signal, or a hang-up.
    Interrupt,
    /// The iteration restarts with new guidance.
    Guidance,
    /// The journal cannot be written.
    #[serde(rename = "broken")]
    InternalError,
}

/// The result of one attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Answered,
    /// It exited successfully without any output.
    Empty,
    Failed,
    RateLimited,
    Overloaded,
    Credentials,
    ContextExhausted,
    /// Ended by a limit that the user set: turns, cost, iteration budget.
    Limited,
    TimedOut,
    Interrupted,
    #[default]
    NotStarted,
}

impl Class {
    /// The agent exited by itself and successfully.
    pub fn finished_normally(self) -> bool {
        matches!(self, Class::Answered | Class::Empty)
    }
}

/// How a failed guardrail changes the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum FailAction {
    Append,
    Prepend,
    Replace,
}

impl FailAction {
    pub fn as_str(self) -> &'static str {
        match self {
            FailAction::Append => "APPEND",
            FailAction::Prepend => "PREPEND",
            FailAction::Replace => "REPLACE",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    pub action: FailAction,
    pub message: String,
}

/// A commit, as recorded when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub id: String,
    pub subject: String,
    /// The commit that was amended into this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// First of a range of commits that the reflog does not list one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// A process that an agent started and left running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    pub pid: u32,
    pub command: String,
    /// Not even KILL ended it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub survived: bool,
}

/// Why the loop is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Before a retry.
    Backoff,
    /// Until the agent's rate limit resets.
    RateLimit,
}

/// Why a loop counts as stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallReason {
    /// Nothing changed in the repository.
    Unchanged,
    /// Guardrails failed in the same way, and changes cannot be detected.
    SameFailure,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Complete,
    /// The work is complete, but the last SCM task failed.
    CompleteScmFailed,
    LimitReached,
    Interrupted,
    Budget,
    Stalled,
    /// The agent kept failing, or its rate limit exceeds the allowed wait.
    AgentFailed,
    CredentialsRefused,
    /// The prompt or another required file is gone.
    #[serde(rename = "prompt_lost")]
    PromptMissing,
    /// ralph itself failed, for example because the disk is full.
    #[serde(rename = "broken")]
    InternalError,
}

/// The conditions under which a run works: its checks, limits and isolation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSetup {
    /// Read from the agent's installation, without running it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The guardrails' commands.
    pub checks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    pub isolation: Isolation,
    /// The prompt is a file that is read before each iteration.
    #[serde(skip_serializing_if = "is_false")]
    pub rereads_prompt: bool,
}

/// The limits on what an agent can do to the user's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Isolation {
    /// It can run any command as the user.
    #[default]
    None,
    /// It runs any command but those that the hook recognizes as dangerous.
    Hook,
    /// It asks before it runs commands.
    Approval,
    /// Its own sandbox.
    OwnSandbox,
    /// One of ralph's sandboxes; `network` is `allowlist`, `full` or `none`.
    Sandbox { backend: String, network: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    RunStarted {
        run: Cow<'a, str>,
        version: Cow<'a, str>,
        /// The command that was used: `run`, `build`, …
        command: Cow<'a, str>,
        directory: Cow<'a, str>,
        pid: u32,
        /// Adapter name, or program name for unknown agents.
        agent: Cow<'a, str>,
        /// The first 200 characters of the prompt, or the name of its file.
        prompt: Cow<'a, str>,
        /// The completion rule, in words.
        completion: Cow<'a, str>,
        max_iterations: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Cow<'a, str>>,
        /// The run's name. Absent in journals of version 0.1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Cow<'a, str>>,
        /// A text may continue the previous one in the middle of a line.
        #[serde(default, skip_serializing_if = "is_false")]
        streams_text: bool,
        /// No adapter knows the agent: its output is plain text.
        #[serde(default, skip_serializing_if = "is_false")]
        plain_text: bool,
        /// Absent in journals of version 0.1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<Box<RunSetup>>,
    },
    /// A run continues after an interruption.
    RunContinued {
        /// The earlier outcome; none if the run was killed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Outcome>,
        /// Completed iterations.
        iterations: u32,
        /// The interrupted iteration that is restarted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_off: Option<u32>,
        /// The interrupted iteration whose agent had finished: its work is checked without another agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unchecked: Option<u32>,
        /// Usage and active time so far.
        usage: Usage,
        duration_ms: u64,
    },
    /// The state of the repository, at the start and after every change.
    Repository {
        head: Cow<'a, str>,
        /// Commits since the last report.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        commits: Vec<Commit>,
        /// The commits were made while nothing of this run was active.
        #[serde(default, skip_serializing_if = "is_false")]
        by_others: bool,
    },
    /// The sandbox passed its probe.
    SandboxReady {
        /// `bwrap`, `landlock`, `seatbelt` or `docker`.
        backend: Cow<'a, str>,
        /// `allowlist`, `full` or `none`.
        network: Cow<'a, str>,
        /// Guardrails and SCM tasks run inside as well.
        guardrails: bool,
        /// Things that this backend does not confine.
        limits: Vec<String>,
    },
    IterationStarted {
        max_iterations: u32,
    },
    /// The prompt of an attempt is ready.
    Prompt {
        bytes: u64,
        /// The first 200 characters.
        preview: Cow<'a, str>,
        /// It carries feedback from the previous iteration.
        feedback: bool,
    },
    AgentStarted {
        purpose: Purpose,
        pid: u32,
        argv: Vec<String>,
    },

    // From here: events that adapters read from the agent's output.
    /// The agent named its session or its model.
    Session {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Cow<'a, str>>,
    },
    Text {
        text: Cow<'a, str>,
        /// Continues the previous text without a break (a delta, or part of a long line).
        #[serde(default, skip_serializing_if = "is_false")]
        joined: bool,
        /// From a subagent: displayed, but never counts as completion.
        #[serde(default, skip_serializing_if = "is_false")]
        subagent: bool,
    },
    Thinking {
        text: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        joined: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        subagent: bool,
    },
    ToolStarted {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        /// Subject of the call in one line: a path, a command, a pattern.
        summary: Cow<'a, str>,
        /// Only for tools that change a file, if the agent reports the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<Box<FileEdit>>,
        #[serde(default, skip_serializing_if = "is_false")]
        subagent: bool,
    },
    ToolEnded {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        failed: bool,
        /// The agent was not allowed to use the tool.
        #[serde(default, skip_serializing_if = "is_false")]
        denied: bool,
        /// Size of the whole output; `preview` may hold less.
        lines: u64,
        chars: u64,
        preview: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        subagent: bool,
    },
    Todo {
        items: Vec<TodoItem>,
    },
    /// Usage of this attempt so far.
    Usage(Usage),
    /// The agent's own retries, hooks and the like.
    Notice {
        text: Cow<'a, str>,
    },
    /// Earlier text was not the agent's answer (for example a summary of its conversation) and completes nothing.
    Retracted {
        reason: Cow<'a, str>,
    },
    /// Number of tasks that continue after the agent's result; 0 when all have ended.
    BackgroundTasks {
        running: u32,
    },
    /// The agent's own report of its success.
    Result {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// Usage of the whole attempt, if reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<u32>,
    },
    /// A line that no adapter understands, or anything on standard error. Recorded, never interpreted.
    Output {
        stream: Stream,
        text: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        joined: bool,
    },

    /// Output omitted because the journal's quota is used up. It appears in no display either; the total follows
    /// when the agent ends.
    #[serde(rename = "left_out")]
    OutputOmitted {
        /// Omitted so far: events, and their approximate size.
        events: u64,
        bytes: u64,
    },
    /// The agent and everything it started have ended.
    AgentEnded {
        purpose: Purpose,
        exit: Option<Exit>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_by: Option<EndCause>,
        class: Class,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        duration_ms: u64,
        usage: Usage,
        tools: u32,
        tool_errors: u32,
        denied: u32,
        /// The agent only repeated its prompt.
        #[serde(default, skip_serializing_if = "is_false")]
        repeats_prompt: bool,
        /// Lines that the user's response filter could not evaluate.
        #[serde(default, skip_serializing_if = "is_zero")]
        filter_errors: u64,
        /// Result of the completion rule and the matched text, so that a resumed run needs no second answer.
        /// Missing in journals of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        complete: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit_message: Option<Cow<'a, str>>,
    },
    /// Processes that the agent left in the background.
    Leftovers {
        processes: Vec<Leftover>,
        /// Kept running because of `agent.keepBackground`.
        kept: bool,
    },
    /// What a killed run had left running was ended.
    Recovered {
        run: Cow<'a, str>,
        processes: Vec<Leftover>,
    },
    /// What the agent of a killed run had planted was moved aside, or what it had changed was restored.
    Planted {
        /// What was found, and where it is now.
        message: Cow<'a, str>,
    },
    /// A sandboxed process asked for a host that is not allowed.
    NetworkRefused {
        host: Cow<'a, str>,
        port: u16,
        #[serde(rename = "why")]
        reason: Cow<'a, str>,
        /// The entry of `sandbox.allowedDomains` that would allow it.
        allow: Cow<'a, str>,
    },
    Retrying {
        class: Class,
        message: Cow<'a, str>,
        /// None if no retry follows because iterations or budget are used up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        /// Failures in a row, and the number that ends the run.
        failures: u32,
        max_failures: u32,
    },
    /// A dialog on the agent's screen waits for a person.
    DialogOpened {
        dialog: Cow<'a, str>,
    },
    DialogClosed,
    Waiting {
        reason: WaitReason,
        /// Milliseconds since the Unix epoch.
        until_ms: i64,
    },

    GuardrailStarted {
        index: u32,
        command: Cow<'a, str>,
    },
    GuardrailEnded {
        index: u32,
        command: Cow<'a, str>,
        exit: Option<Exit>,
        timed_out: bool,
        /// Ended because the run is ending; says nothing about the work.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        passed: bool,
        fail_action: FailAction,
        log: Cow<'a, str>,
        duration_ms: u64,
    },
    /// Feedback for the next prompt.
    FeedbackSet {
        parts: Vec<Feedback>,
    },
    ScmStarted {
        task: Cow<'a, str>,
        argv: Vec<String>,
    },
    ScmEnded {
        task: Cow<'a, str>,
        ok: bool,
        /// Output of the SCM command, or why there was nothing to do.
        detail: Cow<'a, str>,
        duration_ms: u64,
    },
    CompletionChecked {
        complete: bool,
        /// The matched text, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Cow<'a, str>>,
        /// An earlier SCM task failed.
        #[serde(default, skip_serializing_if = "is_false")]
        scm_failed: bool,
    },
    /// Progress of the task list, before each attempt and after each change.
    Tasks {
        done: u32,
        total: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        story: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Cow<'a, str>>,
        /// Problems of the list; they go into the next prompt.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        problems: Vec<String>,
        /// The list is unreadable; the figures are the last known ones.
        #[serde(default, skip_serializing_if = "is_false")]
        unreadable: bool,
        /// Stories that the agent marked as passing since the previous report.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marked: Vec<String>,
    },
    /// The user accepted the task list as it is (`--accept-list`).
    TaskListAccepted {
        list: Cow<'a, str>,
    },
    /// A completion does not count: a gate refused it, or files changed after the guardrails ran.
    Vetoed {
        reason: Cow<'a, str>,
    },
    IterationEnded {
        class: Class,
        /// None if the guardrails did not finish.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guardrails_passed: Option<bool>,
        complete: bool,
        /// The run ended before the work was checked; a resumed run checks the answer if there is one, or
        /// restarts the iteration.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        duration_ms: u64,
        usage: Usage,
    },

    /// The stall check compared the repository with its last state.
    #[serde(rename = "looked")]
    StallChecked {
        /// Iterations in a row without a change.
        unchanged: u32,
        /// Iterations in a row with the same guardrail failure.
        same_failures: u32,
        /// Opaque hexadecimal fingerprint; none if changes cannot be detected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fingerprint: Option<Cow<'a, str>>,
    },
    /// The loop appears to be stalled.
    #[serde(rename = "stalling")]
    StallWarning {
        reason: StallReason,
        iterations: u32,
        /// The number of such iterations that stops the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// The agent prints nothing while no tool is running: its connection to the model may be dead.
    ModelSilent {
        silent_ms: u64,
        /// The agent is ended after this much silence.
        limit_ms: u64,
    },
    StopRequested {
        signal: Cow<'a, str>,
        /// End the agent now instead of letting it finish.
        now: bool,
    },
    /// Pause after the current step.
    PauseRequested,
    /// Nothing runs until the run is resumed.
    Paused,
    Resumed {
        max_iterations: u32,
    },
    /// The agent asks a person.
    QuestionAsked {
        id: Cow<'a, str>,
        /// The first line is the question, the rest its context.
        text: Cow<'a, str>,
        /// The story that the iteration works on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        story: Option<Cow<'a, str>>,
    },
    QuestionAnswered {
        id: Cow<'a, str>,
        text: Cow<'a, str>,
    },
    /// A person's guidance, which waits for a prompt.
    GuidanceReceived {
        /// The number of the request that brought it.
        id: u64,
        text: Cow<'a, str>,
        /// For every prompt from now on, not just the next one.
        #[serde(default, skip_serializing_if = "is_false")]
        every: bool,
    },
    /// Guidance that is waiting or repeated is dropped.
    GuidanceCleared,
    /// The prompt of this attempt carries guidance, or answers to questions.
    GuidanceDelivered {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        guidance: Vec<u64>,
        /// The answered questions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<String>,
    },
    /// Nothing runs until a question is answered.
    Parked,
    Unparked,
    Warning {
        message: Cow<'a, str>,
    },
    /// A detail that only `--verbose` shows, unless it is `important`.
    Note {
        message: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        important: bool,
    },
    RunEnded {
        outcome: Outcome,
        exit_code: u8,
        message: Cow<'a, str>,
        /// Started iterations.
        iterations: u32,
        /// The last iteration was not checked completely; a resumed run does that, or restarts it.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        duration_ms: u64,
        usage: Usage,
        tools: u32,
        tool_errors: u32,
        /// `notify.command` must be called.
        #[serde(default, skip_serializing_if = "is_false")]
        notify: bool,
        /// The checked-out branch, if it differs from the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Cow<'a, str>>,
        /// The last attempt's failure, if the run gave up after failed attempts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_failure: Option<Cow<'a, str>>,
        /// The exhausted budget, if one ended the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        used_up: Option<Cow<'a, str>>,
    },
    /// `notify.command` was called (perhaps late), or failed and is not called again.
    Notified {
        ok: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
    pub(super) fn serialize<S: Serializer>(ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        let time = Timestamp::from_millisecond(*ms).unwrap_or_default();
        serializer.collect_str(&format_args!("{time:.3}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(time.as_millisecond())
    }
}

/// A line of the journal: an event with its stamp.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry<'a> {
    #[serde(flatten)]
    pub at: Stamp,
    #[serde(flatten)]
    pub event: Event<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_entry_round_trips_through_json() {
        let entry = Entry {
            at: Stamp { time_ms: 1_794_774_472_123, iteration: 3, attempt: 1 },
            event: Event::Text { text: "a\n\"b\" é".into(), joined: false, subagent: true },
        };
        let line = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            line,
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1,"event":"text","text":"a\n\"b\" é","subagent":true}"#
        );
        assert_eq!(serde_json::from_str::<Entry<'_>>(&line).unwrap(), entry);
    }

    #[test]
    fn usage_add_ignores_missing_and_invalid_costs() {
        let mut total = Usage::default();
        total.add(&Usage { input_tokens: 3, ..Usage::default() });
        assert_eq!(total.cost_usd, None);
        total.add(&Usage { cost_usd: Some(0.5), output_tokens: 2, ..Usage::default() });
        assert_eq!((total.cost_usd, total.total_tokens()), (Some(0.5), 5));
        for cost_usd in [Some(-5.0), Some(f64::NAN)] {
            total.add(&Usage { cost_usd, ..Usage::default() });
            assert_eq!(total.cost_usd, Some(0.5));
        }
    }

    #[test]
    fn usage_is_raised_but_never_lowered() {
        let mut total = Usage { cost_usd: Some(2.0), input_tokens: 5, ..Usage::default() };
        total.at_least(&Usage { cost_usd: Some(1.0), output_tokens: 7, ..Usage::default() });
        let both = Usage { output_tokens: 7, ..total };
        assert_eq!((total, total.cost_usd, total.input_tokens), (both, Some(2.0), 5));
        total.at_least(&Usage { cost_usd: Some(3.0), ..Usage::default() });
        assert_eq!((total.cost_usd, total.total_tokens()), (Some(3.0), 12));
        let mut untold = Usage::default();
        untold.at_least(&Usage::default());
        assert_eq!(untold.cost_usd, None);
    }
}
