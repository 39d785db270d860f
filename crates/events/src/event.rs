//! The one vocabulary of things that happen in a run, whichever agent they came from.
//!
//! An [`Event`] is what the journal stores, what `--output json` prints and what every display is
//! drawn from. Texts are borrowed where they can be, because most events are made from a line that
//! is still in the read buffer and are gone again once they are written.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// When and where in a run an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch; in JSON a time that people can read.
    #[serde(rename = "time", with = "rfc3339")]
    pub time_ms: i64,
    /// The iteration, counted from 1; 0 before the first.
    pub iteration: u32,
    /// The attempt at that iteration, counted from 1; 0 outside of one.
    pub attempt: u32,
}

/// Which of an agent's two output streams something came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What an agent process was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// An iteration of the loop.
    Work,
    /// A one-line commit message, asked for before an SCM commit.
    CommitMessage,
}

/// One entry of the plan that an agent keeps for itself.
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

/// What was used up. The four token counts do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// US dollars, where the agent tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Input that was neither read from nor written to a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

impl Usage {
    /// Everything that went into the model, cached or not.
    pub fn total_input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens)
    }

    /// Everything that a token budget counts.
    pub fn total_tokens(&self) -> u64 {
        self.total_input().saturating_add(self.output_tokens)
    }

    pub fn is_zero(&self) -> bool {
        self.total_tokens() == 0 && self.cost_usd.unwrap_or(0.0) == 0.0
    }

    /// Adds what another attempt used. Nobody is paid for using something.
    pub fn add(&mut self, other: &Usage) {
        if let Some(cost) = other.cost_usd.filter(|cost| *cost >= 0.0) {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
        // What an agent tells is not ours to trust: a count that is too large must stay too large.
        for (own, more) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
        ] {
            *own = own.saturating_add(more);
        }
    }
}

impl Usage {
    /// What of `other` is not in this, each count by itself.
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

    /// At least what a later count of the same tells: what it counts beyond this was told by something that
    /// cannot be read any more.
    pub fn at_least(&mut self, told: &Usage) {
        let missing = self.shortfall(told);
        self.add(&missing);
    }
}

/// What kind of failure an agent reported of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The account's or the key's limit is used up for now.
    RateLimit,
    /// The service has no capacity; trying again later helps.
    Overloaded,
    /// No, wrong or expired credentials. Trying again does not help.
    Credentials,
    /// The context window is full or the prompt is too long for it.
    Context,
    /// The model declined to answer.
    Refusal,
    /// A limit that the user gave to the agent itself: turns.
    TurnLimit,
    /// A limit that the user gave to the agent itself: money.
    AgentBudget,
    /// The agent would not start as asked (bad flags, refused as root, untrusted directory). Trying again does
    /// not help.
    Usage,
    /// Any other failure that the agent reported.
    Other,
}

/// A failure as the agent reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// When a limit ends, in seconds since the Unix epoch, if the agent told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<i64>,
}

impl Failure {
    /// The cause does not go away by itself.
    pub fn is_permanent(&self) -> bool {
        self.kind == FailureKind::Usage
    }
}

/// How a process ended.
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

/// Why ralph ended an agent that would have gone on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Nothing was printed for the inactivity limit.
    Inactivity,
    /// Nothing was printed for the limit of a silent model, and none of its tools was running.
    SilentModel,
    /// The iteration's time limit.
    IterationTimeout,
    /// It had given its final result and did not leave.
    ResultGrace,
    /// Its credentials were refused, and it went on trying.
    Refused,
    /// The run's budget.
    Budget,
    /// The iteration's budget.
    IterationBudget,
    /// A second signal, or a hang-up.
    Interrupt,
    /// The journal cannot be written any more.
    Broken,
}

/// What became of one attempt at an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Answered,
    /// It ended well and said nothing at all.
    Empty,
    Failed,
    RateLimited,
    Overloaded,
    Credentials,
    ContextExhausted,
    /// Ended early by a limit that the user set: its turns, its money, our budget for an iteration.
    Limited,
    TimedOut,
    Interrupted,
    /// It could not be started.
    NotStarted,
}

impl Class {
    /// The agent ended by itself and well. One that was stopped by a limit has not done what it meant to do,
    /// whatever it left.
    pub fn finished_normally(self) -> bool {
        matches!(self, Class::Answered | Class::Empty)
    }
}

/// What a failed guardrail does to the next prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum FailAction {
    /// The failure is added after the prompt.
    Append,
    /// The failure is put before the prompt.
    Prepend,
    /// The failure takes the prompt's place.
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

/// One piece of feedback for the next prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    pub action: FailAction,
    pub message: String,
}

/// A commit, as git told of it when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub id: String,
    pub subject: String,
    /// The commit that it took the place of: it was amended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// It came with all that is between that commit and this one, of which git's log of moves does not tell.
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

/// Why the loop is not working right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Before another attempt at a failed iteration.
    Backoff,
    /// Until the agent's limit ends.
    RateLimit,
}

/// By what a loop seems to get nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallReason {
    /// Nothing changed in the repository.
    Unchanged,
    /// Guardrails failed in the same way, and nobody could tell whether anything changed.
    SameFailure,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Complete,
    /// Complete, but the last SCM task failed.
    CompleteScmFailed,
    LimitReached,
    Interrupted,
    Budget,
    Stalled,
    /// The agent kept failing, or its limit lasts longer than may be waited for.
    AgentFailed,
    CredentialsRefused,
    /// The prompt, or a file that the agent works by, is not there any more.
    PromptLost,
    /// ralph itself could not go on, for instance because the disk is full.
    Broken,
}

/// Something that happened in a run.
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
        /// The adapter's name, or that of a program that no adapter knows.
        agent: Cow<'a, str>,
        /// The first 200 characters of the prompt, or the name of its file.
        prompt: Cow<'a, str>,
        /// The completion rule, in words.
        completion: Cow<'a, str>,
        max_iterations: u32,
        /// The branch that is checked out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Cow<'a, str>>,
        /// A text of the agent may continue the one before, in the middle of a line.
        #[serde(default, skip_serializing_if = "is_false")]
        streams_text: bool,
        /// No adapter knows the agent: its output is plain text.
        #[serde(default, skip_serializing_if = "is_false")]
        plain_text: bool,
    },
    /// The run had been left, and goes on from there.
    RunContinued {
        /// How it had ended; nothing if it was cut off before it could say so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Outcome>,
        /// The iterations that had come to their end.
        iterations: u32,
        /// The iteration that had not, and is begun again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_off: Option<u32>,
        /// The iteration that had not, but whose agent had: what that did is checked now, and no other agent is
        /// started for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unchecked: Option<u32>,
        /// What was used up, and how long the run had been at work.
        usage: Usage,
        duration_ms: u64,
    },
    /// Where the repository stands, as the run begins and whenever that has changed.
    Repository {
        /// The commit that is checked out.
        head: Cow<'a, str>,
        /// What was committed since this was last told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        commits: Vec<Commit>,
        /// Nothing of this run was at work then: somebody else did it.
        #[serde(default, skip_serializing_if = "is_false")]
        by_others: bool,
    },
    /// What the agent is locked in was tried out, and held.
    SandboxReady {
        /// `bwrap`, `landlock` or `docker`.
        backend: Cow<'a, str>,
        /// `allowlist`, `full` or `none`.
        network: Cow<'a, str>,
        /// Guardrails and SCM tasks are inside as well.
        guardrails: bool,
        /// What it does not confine.
        limits: Vec<String>,
    },
    IterationStarted {
        max_iterations: u32,
    },
    /// The prompt of an attempt is composed.
    Prompt {
        bytes: u64,
        /// The first 200 characters.
        preview: Cow<'a, str>,
        /// Whether it carries feedback from the iteration before.
        feedback: bool,
    },
    AgentStarted {
        purpose: Purpose,
        pid: u32,
        argv: Vec<String>,
    },

    // What an adapter reads from the agent's streams.
    /// The agent named its session or its model.
    Session {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Cow<'a, str>>,
    },
    /// The agent said something.
    Text {
        text: Cow<'a, str>,
        /// It goes on from the text before without a break (a delta, or part of a long line).
        #[serde(default, skip_serializing_if = "is_false")]
        joined: bool,
        /// A subagent said it: shown, but never a completion.
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
        /// What it works on, in one line: a path, a command, a pattern.
        summary: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        subagent: bool,
    },
    ToolEnded {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        failed: bool,
        /// The agent was not allowed to use it.
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
    /// What this attempt has used so far, all of it, as far as the stream tells before its end.
    Usage(Usage),
    /// The agent told of its own retries, hooks and the like.
    Notice {
        text: Cow<'a, str>,
    },
    /// What the agent seemed to have said so far was not its word, for instance because it was a summary
    /// of its own conversation, which may quote anything. It completes nothing.
    Retracted {
        reason: Cow<'a, str>,
    },
    /// The agent announced tasks that go on after its result (their number; 0 when all have ended).
    BackgroundTasks {
        running: u32,
    },
    /// The agent's own verdict on its work.
    Result {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// All that this attempt used, if the agent told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<u32>,
    },
    /// A line that no adapter understands, or anything on standard error. Kept, never judged.
    Output {
        stream: Stream,
        text: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "is_false")]
        joined: bool,
    },

    /// The agent printed more than the journal has room for. What was left out is in no display either; its
    /// end follows when the agent has ended.
    LeftOut {
        /// So far, of this agent: events, and about how long they were.
        events: u64,
        bytes: u64,
    },
    /// The agent is gone, and so is everything that it had started.
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
        /// All that it said was what it had been asked.
        #[serde(default, skip_serializing_if = "is_false")]
        repeats_prompt: bool,
        /// Lines of its stream that the user's response filter could make nothing of.
        #[serde(default, skip_serializing_if = "is_zero")]
        filter_errors: u64,
        /// Of work that was answered: whether the completion rule is met by what was said, and what was found
        /// and compared. Whoever goes on needs no other answer. Journals of earlier versions do not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        complete: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Cow<'a, str>>,
        /// The commit message, if that is what it was asked for and gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit_message: Option<Cow<'a, str>>,
    },
    /// Processes that the agent had put in the background.
    Leftovers {
        processes: Vec<Leftover>,
        /// They were left alone because `agent.keepBackground` says so.
        kept: bool,
    },
    /// Something inside a sandbox asked for a host that is not allowed.
    NetworkRefused {
        host: Cow<'a, str>,
        port: u16,
        why: Cow<'a, str>,
        /// What would allow it, as an entry of `sandbox.allowedDomains`.
        allow: Cow<'a, str>,
    },
    Retrying {
        class: Class,
        message: Cow<'a, str>,
        /// Nothing if no retry follows, because the iterations or the budget are used up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        /// The failures in a row so far, and how many end the run.
        failures: u32,
        max_failures: u32,
    },
    /// A dialog on the agent's own screen waits for a person.
    DialogOpened {
        /// What it asks for, in a few words.
        dialog: Cow<'a, str>,
    },
    /// That dialog is gone.
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
        /// It was ended because the run was to end, which says nothing of the work.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        passed: bool,
        fail_action: FailAction,
        log: Cow<'a, str>,
        duration_ms: u64,
    },
    /// What the next prompt will carry.
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
        /// What the SCM said, or why there was nothing to do.
        detail: Cow<'a, str>,
        duration_ms: u64,
    },
    CompletionChecked {
        complete: bool,
        /// What was found and compared, if anything was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Cow<'a, str>>,
        /// What was to be committed before was not.
        #[serde(default, skip_serializing_if = "is_false")]
        scm_failed: bool,
    },
    /// How far the task list is, before an attempt and whenever that changed.
    Tasks {
        done: u32,
        total: u32,
        /// The story to work on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        story: Option<Cow<'a, str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Cow<'a, str>>,
        /// What is wrong with the list, which the next agent is told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        problems: Vec<String>,
        /// It cannot be read, and the figures are the last that could be.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unreadable: bool,
    },
    /// The user took the task list as it is: earlier versions of it no longer count (`--accept-list`).
    TaskListAccepted {
        list: Cow<'a, str>,
    },
    /// A completion does not count: a gate refused it, or there is something that no guardrail has seen.
    Vetoed {
        reason: Cow<'a, str>,
    },
    IterationEnded {
        class: Class,
        /// Nothing if they did not come to their end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guardrails_passed: Option<bool>,
        complete: bool,
        /// The run ended before the work was checked to the end: whoever goes on checks it if there is an answer,
        /// and begins it again otherwise.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        duration_ms: u64,
        usage: Usage,
    },

    /// The repository was looked at, to see whether the loop gets anywhere.
    Looked {
        /// For so many iterations in a row it has been the same.
        unchanged: u32,
        /// So often in a row have guardrails failed in the same way.
        same_failures: u32,
        /// What it looks like, as hexadecimal digits that mean nothing; nothing if nobody can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fingerprint: Option<Cow<'a, str>>,
    },
    /// The loop seems to get nowhere.
    Stalling {
        reason: StallReason,
        /// For so many iterations in a row.
        iterations: u32,
        /// How many of them stop the run, if any do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    },
    /// The agent prints nothing while none of its tools runs: its connection to the model may be dead.
    ModelSilent {
        /// For so long.
        silent_ms: u64,
        /// It is ended when it has been silent for so long.
        limit_ms: u64,
    },
    /// A signal or a command asked the run to stop.
    StopRequested {
        signal: Cow<'a, str>,
        /// End the agent now rather than let it finish.
        now: bool,
    },
    /// Somebody asked for a pause after what is running.
    PauseRequested,
    /// Nothing runs, and nothing will until the run is resumed.
    Paused,
    Resumed {
        max_iterations: u32,
    },
    Warning {
        message: Cow<'a, str>,
    },
    /// A detail that only `--verbose` shows.
    Note {
        message: Cow<'a, str>,
    },
    RunEnded {
        outcome: Outcome,
        exit_code: u8,
        message: Cow<'a, str>,
        /// Those that were begun.
        iterations: u32,
        /// The last of them was not checked to its end: whoever goes on does that, or begins it again.
        #[serde(default, skip_serializing_if = "is_false")]
        cut_off: bool,
        duration_ms: u64,
        usage: Usage,
        tools: u32,
        tool_errors: u32,
        /// `notify.command` is to be told of it.
        #[serde(default, skip_serializing_if = "is_false")]
        notify: bool,
        /// The branch that is checked out, if it is another than at the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<Cow<'a, str>>,
        /// How the last attempt failed, if the run gave up after failed attempts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_failure: Option<Cow<'a, str>>,
        /// How much of which budget was used, if the run ended because a budget was used up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        used_up: Option<Cow<'a, str>>,
    },
    /// `notify.command` was told of the end, if only late; or it failed, and is not told again.
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

/// Milliseconds since the Unix epoch as `2026-11-15T20:27:52.123Z`.
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

/// An event with its place in the run: a line of the journal.
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
