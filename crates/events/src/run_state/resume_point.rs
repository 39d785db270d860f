//! What a later process needs to resume the run.

use serde::Serialize;

use super::clock::millis_between;
use crate::attempt::describe_end;
use crate::event::{Class, Event, Failure, Feedback, Outcome, Purpose, Stamp, Usage, WaitReason};

/// Where a resumed run continues.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ResumePoint {
    /// Iterations that are finished.
    pub iterations: u32,
    /// The iteration that was started and not finished.
    pub open: Option<OpenIteration>,
    /// Known facts about the open iteration that were not acted upon.
    pub pending: Pending,
    /// Failures in a row that the retry policy counts.
    pub failures: u32,
    /// An iteration has ended without a failure.
    pub any_succeeded: bool,
    pub limits: RateLimits,
    /// Feedback for the next prompt.
    pub feedback: Vec<Feedback>,
    /// The feedback when an iteration last finished. An iteration that was stopped may have added to
    /// `feedback` the result of its first guardrail.
    pub last_feedback: Vec<Feedback>,
    /// The message an agent has written for the commit that comes next.
    pub commit_message: Option<String>,
    /// The message of a commit that was started. Only the repository knows whether it was made.
    pub pending_commit: Option<String>,
    pub scm_failed: bool,
    pub stall: StallSeen,
    /// `stall` was taken after the last iteration.
    pub stall_checked: bool,
    /// How the last working agent ended.
    #[serde(skip)]
    pub class: Option<Class>,
    /// The retry policy counted the last attempt as a failure.
    #[serde(skip)]
    pub failed: bool,
    /// Start of the agent that is running.
    #[serde(skip)]
    pub agent_since_ms: Option<i64>,
}

/// An iteration that was started and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OpenIteration {
    pub iteration: u32,
    pub attempts: u32,
    /// How long agents have worked on it.
    pub worked_ms: u64,
}

/// What a run had not acted upon when it was cut off. Acting upon it saves another agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    /// The open iteration starts again.
    #[default]
    Nothing,
    /// An agent ended without an answer.
    Ended(Box<AgentReport>),
    /// An agent's work counts, and its checks are not finished.
    Unchecked(Box<AgentReport>),
    /// Guardrails passed, SCM tasks ran, the completion rule was applied. Gates may still object.
    Checked { class: Class, complete: bool, found: Option<String> },
    /// The work is complete.
    Complete,
}

impl Pending {
    /// The work to check is that of an agent that ended by itself and well.
    pub fn is_an_answer(&self) -> bool {
        matches!(self, Pending::Unchecked(report) if report.class.finished_normally())
    }

    /// What the end of a working agent leaves to do. An agent that ralph interrupted leaves nothing, nor
    /// does an answer without a note on whether it completes the run.
    fn after(ended: &Event<'_>) -> Pending {
        let Event::AgentEnded {
            exit,
            ended_by,
            class,
            failure,
            repeats_prompt,
            complete,
            found,
            ..
        } = ended
        else {
            return Pending::Nothing;
        };
        // The usage stays empty: the spending of the run includes it already.
        let report = Box::new(AgentReport {
            failure: failure.clone(),
            exit: describe_end(*exit, *ended_by),
            repeats_prompt: *repeats_prompt,
            complete: complete.unwrap_or(false),
            found: found.as_deref().map(str::to_owned),
            ..AgentReport::of(*class)
        });
        match (class, complete) {
            (Class::Interrupted, _) | (Class::Answered, None) => Pending::Nothing,
            (Class::Answered, Some(_)) => Pending::Unchecked(report),
            _ => Pending::Ended(report),
        }
    }
}

/// How an agent process ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AgentReport {
    pub class: Class,
    pub failure: Option<Failure>,
    /// How the process ended, in words.
    pub exit: String,
    pub usage: Usage,
    pub tools: u32,
    pub tool_errors: u32,
    /// The completion rule matched.
    pub complete: bool,
    /// The text it was compared with.
    pub found: Option<String>,
    /// The driver holds a commit message from this agent.
    pub has_message: bool,
    /// The agent only repeated its prompt.
    pub repeats_prompt: bool,
}

impl AgentReport {
    /// A report without details.
    pub fn of(class: Class) -> AgentReport {
        AgentReport { class, ..AgentReport::default() }
    }
}

/// Rate limits in a row, and how long the run has waited for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RateLimits {
    pub count: u32,
    pub waited_ms: u64,
    /// The current wait: its start and its planned end, by the wall clock.
    pub waiting: Option<(i64, i64)>,
}

impl RateLimits {
    /// Ends the current wait.
    pub fn stop_waiting(&mut self, now_ms: i64) {
        if let Some((since_ms, until_ms)) = self.waiting.take() {
            let waited_ms = millis_between(since_ms, now_ms.min(until_ms));
            self.waited_ms = self.waited_ms.saturating_add(waited_ms);
        }
    }
}

/// State of the repository at the last stall check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StallSeen {
    pub fingerprint: Option<u64>,
    /// Iterations in a row without a change.
    pub unchanged: u32,
    /// Times in a row that guardrails failed in the same way.
    pub same_failures: u32,
}

impl ResumePoint {
    /// The first iteration was started.
    pub fn has_started(&self) -> bool {
        self.iterations > 0 || self.open.is_some()
    }

    /// The next step needs no agent and no prompt. Another iteration may follow.
    pub fn needs_only_checks(&self) -> bool {
        match self.pending {
            Pending::Unchecked(_) | Pending::Checked { .. } => self.open.is_some(),
            Pending::Complete => true,
            Pending::Nothing | Pending::Ended(_) => false,
        }
    }

    /// Opens the iteration named by an entry, if its start is missing from the journal. Returns whether it did.
    pub(super) fn trust_stamp(&mut self, at: Stamp) -> bool {
        let known = self.open.is_some_and(|open| open.iteration >= at.iteration);
        let missing = at.iteration > self.iterations && !known;
        if missing {
            let (iteration, attempts) = (at.iteration, at.attempt);
            self.open = Some(OpenIteration { iteration, attempts, worked_ms: 0 });
            self.pending = Pending::Nothing;
        }
        missing
    }

    /// Returns whether the iteration is started for the first time.
    pub(super) fn iteration_started(&mut self, iteration: u32) -> bool {
        let again = self.open.filter(|open| open.iteration == iteration);
        let worked_ms = again.map_or(0, |open| open.worked_ms);
        self.open = Some(OpenIteration { iteration, attempts: 0, worked_ms });
        self.pending = Pending::Nothing;
        (self.commit_message, self.pending_commit) = (None, None);
        self.stall_checked = false;
        again.is_none()
    }

    pub(super) fn agent_started(&mut self, at: Stamp, purpose: Purpose) {
        self.agent_since_ms = Some(at.time_ms);
        self.limits.stop_waiting(at.time_ms);
        (self.commit_message, self.pending_commit) = (None, None);
        if purpose == Purpose::Work {
            self.pending = Pending::Nothing;
            if let Some(open) = &mut self.open {
                open.attempts = at.attempt;
            }
        }
    }

    pub(super) fn is_agent_running(&self) -> bool {
        self.agent_since_ms.is_some()
    }

    /// Ends an attempt whose end is missing from the journal. Returns whether there was one.
    pub(super) fn settle_attempt(&mut self, last_ms: Option<i64>) -> bool {
        let Some(since_ms) = self.agent_since_ms.take() else { return false };
        let worked_ms = last_ms.map_or(0, |last_ms| millis_between(since_ms, last_ms));
        self.add_work(worked_ms);
        true
    }

    fn add_work(&mut self, worked_ms: u64) {
        if let Some(open) = &mut self.open {
            open.worked_ms = open.worked_ms.saturating_add(worked_ms);
        }
    }

    pub(super) fn agent_ended(&mut self, event: &Event<'_>) {
        let Event::AgentEnded { purpose, class, duration_ms, commit_message, .. } = event else {
            return;
        };
        self.agent_since_ms = None;
        self.add_work(*duration_ms);
        self.commit_message = commit_message.as_deref().map(str::to_owned);
        if *purpose != Purpose::Work {
            return;
        }
        self.class = Some(*class);
        self.pending = Pending::after(event);
        self.failed = false;
        if *class == Class::Answered {
            self.failures = 0;
        }
        if !matches!(class, Class::RateLimited | Class::Overloaded) {
            self.limits = RateLimits::default();
        }
    }

    pub(super) fn attempt_failed(&mut self, failures: u32) {
        self.failed = true;
        self.failures = failures;
        self.pending = Pending::Nothing;
    }

    pub(super) fn waiting(&mut self, reason: WaitReason, now_ms: i64, until_ms: i64) {
        self.pending = Pending::Nothing;
        if reason == WaitReason::RateLimit {
            self.limits.stop_waiting(now_ms);
            self.limits.count = self.limits.count.saturating_add(1);
            self.limits.waiting = Some((now_ms, until_ms));
        }
    }

    /// Checks of the agent's work begin, so its work counts even without an answer.
    pub(super) fn checks_started(&mut self) {
        self.pending = match std::mem::take(&mut self.pending) {
            Pending::Ended(report) => Pending::Unchecked(report),
            pending => pending,
        };
    }

    pub(super) fn scm_started(&mut self, argv: &[String]) {
        self.checks_started();
        self.pending_commit = argv.iter().skip_while(|word| *word != "-m").nth(1).cloned();
    }

    pub(super) fn scm_ended(&mut self, ok: bool) {
        self.scm_failed = !ok;
        self.pending_commit = None;
    }

    pub(super) fn completion_checked(
        &mut self,
        complete: bool,
        found: Option<&str>,
        scm_failed: bool,
    ) {
        self.scm_failed |= scm_failed;
        self.commit_message = None;
        self.pending = Pending::Checked {
            class: self.class.unwrap_or(Class::Answered),
            complete,
            found: found.map(str::to_owned),
        };
    }

    /// The iteration was stopped before its checks were finished.
    pub(super) fn iteration_cut_off(&mut self, at: Stamp) {
        let (iteration, attempts) = (at.iteration, at.attempt);
        let known = self.open.filter(|open| open.iteration == iteration);
        let worked_ms = known.map_or(0, |open| open.worked_ms);
        self.open = Some(OpenIteration { iteration, attempts, worked_ms });
    }

    pub(super) fn iteration_finished(&mut self, iteration: u32, complete: bool) {
        self.iterations = self.iterations.max(iteration);
        self.open = None;
        self.last_feedback.clone_from(&self.feedback);
        self.stall_checked = false;
        self.pending = if complete { Pending::Complete } else { Pending::Nothing };
        if !self.failed {
            self.failures = 0;
            self.any_succeeded = true;
        }
    }

    pub(super) fn record_stall_check(
        &mut self,
        fingerprint: Option<&str>,
        unchanged: u32,
        same_failures: u32,
    ) {
        let fingerprint = fingerprint.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        self.stall = StallSeen { fingerprint, unchanged, same_failures };
        self.stall_checked = true;
    }

    pub(super) fn run_ended(&mut self, now_ms: i64, outcome: Outcome, begun: u32, cut_off: bool) {
        let known = matches!(self.pending, Pending::Unchecked(_) | Pending::Checked { .. });
        if !(known && cut_off) {
            self.pending = Pending::Nothing;
        }
        self.limits.stop_waiting(now_ms);
        self.iterations = self.iterations.max(begun.saturating_sub(u32::from(cut_off)));
        if outcome == Outcome::Stalled {
            // The user who resumes a stalled run has changed something.
            self.stall = StallSeen::default();
        }
    }
}
