//! How far a run had come, told by its journal: all that it takes to go on with it.

use super::attempt::describe_end;
use super::event::{Class, Entry, Event, Feedback, Outcome, Purpose, Usage, WaitReason};
use super::spending::Spending;

use super::run_state::{AgentReport as Report, StallSeen as Seen};

pub use super::run_state::{OpenIteration as Open, Pending, RateLimits as Limits};

/// Where a run stands.
#[derive(Debug, Clone, Default)]
pub struct ResumePoint {
    /// Iterations that came to their end.
    pub iterations: u32,
    /// An iteration that was begun and not ended, and how many attempts were made at it.
    pub open: Option<Open>,
    /// What was known of it, or of the run, and not yet acted upon.
    pub pending: Pending,
    /// Failures in a row that the retry policy counts.
    pub failures: u32,
    /// An iteration has ended without a failure.
    pub any_succeeded: bool,
    /// Limits of the agent's account in a row.
    pub limits: Limits,
    /// What the next prompt is to carry.
    pub feedback: Vec<Feedback>,
    /// The same as it was when an iteration last came to its end: one that was stopped may have added to it
    /// what the first of its guardrails said.
    pub last_feedback: Vec<Feedback>,
    /// What was to be committed with which message, if an agent has been asked for one already.
    pub commit_message: Option<String>,
    /// The message of the commit that was being made. Whether it was made, only the repository knows.
    pub pending_commit: Option<String>,
    pub scm_failed: bool,
    pub tools: u32,
    pub tool_errors: u32,
    /// What was used up, as budgets count it.
    pub spending: Spending,
    /// What it knew of the repository, and whether that was after its last iteration.
    pub stall: Seen,
    pub stall_checked: bool,
    /// The commit that was checked out when that was last told.
    pub head: Option<String>,
    /// How long the run has been at work, pauses and the time after a cut left out.
    pub active_ms: u64,
    /// How it ended; `None` if it was cut off.
    pub outcome: Option<Outcome>,
}

impl ResumePoint {
    /// Its first iteration was begun. Until then it was only checked whether there is anything to do.
    pub fn has_started(&self) -> bool {
        self.iterations > 0 || self.open.is_some()
    }

    /// What comes next needs no agent and no prompt: an answer is to be checked, or what was checked has only to
    /// be acted upon. Another iteration may be needed after that.
    pub fn needs_only_checks(&self) -> bool {
        match self.pending {
            Pending::Unchecked(_) | Pending::Checked { .. } => self.open.is_some(),
            Pending::Complete => true,
            Pending::Nothing | Pending::Ended(_) => false,
        }
    }

    fn track_commit(&mut self, event: &Event<'_>) {
        match event {
            Event::ScmStarted { argv, .. } => {
                let message = argv.iter().skip_while(|word| *word != "-m").nth(1);
                self.pending_commit = message.map(|message| message.as_str().to_owned());
            }
            Event::ScmEnded { .. }
            | Event::AgentStarted { .. }
            | Event::IterationStarted { .. }
            // It has been looked for.
            | Event::Repository { .. } => self.pending_commit = None,
            _ => {}
        }
    }
}

/// Reads the entries of a run's journal, from the first to the last whole one.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    progress: ResumePoint,
    /// What the attempt that is open has used so far, and since when its agent has worked if it does.
    running: Option<Usage>,
    working_since: Option<i64>,
    /// How the last agent that worked ended.
    class: Option<Class>,
    /// The retry policy has counted the last attempt as a failure.
    failed: bool,
    last_ms: Option<i64>,
    idle: bool,
}

impl Tracker {
    pub fn apply(&mut self, entry: &Entry<'_>) {
        if let Event::RunStarted { .. } = entry.event {
            self.settle_cut_attempt();
        }
        self.advance_clock(entry);
        self.trust_stamp(entry);
        self.progress.track_commit(&entry.event);
        let progress = &mut self.progress;
        match &entry.event {
            Event::RunStarted { .. } => {
                progress.outcome = None;
                progress.limits.stop_waiting(entry.at.time_ms);
            }
            Event::RunContinued { iterations, usage, duration_ms, .. } => {
                progress.iterations = progress.iterations.max(*iterations);
                progress.spending.at_least(usage);
                progress.active_ms = progress.active_ms.max(*duration_ms);
            }
            Event::IterationStarted { .. } => {
                let iteration = entry.at.iteration;
                // What was used at its first try is a part of what it may use.
                let again = progress.open.filter(|open| open.iteration == iteration);
                if again.is_none() {
                    progress.spending.start_iteration();
                }
                let worked_ms = again.map_or(0, |open| open.worked_ms);
                progress.open = Some(Open { iteration, attempts: 0, worked_ms });
                progress.pending = Pending::Nothing;
                progress.commit_message = None;
                progress.stall_checked = false;
            }
            Event::AgentStarted { purpose, .. } => {
                // The end of the one before cannot be read if it is still there.
                self.settle_cut_attempt();
                let progress = &mut self.progress;
                self.running = Some(Usage::default());
                self.working_since = Some(entry.at.time_ms);
                progress.limits.stop_waiting(entry.at.time_ms);
                progress.commit_message = None;
                if *purpose == Purpose::Work {
                    progress.pending = Pending::Nothing;
                    if let Some(open) = &mut progress.open {
                        open.attempts = entry.at.attempt;
                    }
                }
            }
            Event::Usage(usage) | Event::Result { usage: Some(usage), .. } => {
                if let Some(running) = &mut self.running {
                    *running = *usage;
                }
            }
            Event::AgentEnded {
                purpose,
                class,
                usage,
                duration_ms,
                tools,
                tool_errors,
                commit_message,
                ..
            } => {
                self.running = None;
                progress.spending.end_attempt(usage);
                progress.tools = progress.tools.saturating_add(*tools);
                progress.tool_errors = progress.tool_errors.saturating_add(*tool_errors);
                self.working_since = None;
                if let Some(open) = &mut progress.open {
                    open.worked_ms = open.worked_ms.saturating_add(*duration_ms);
                }
                progress.commit_message = commit_message.as_ref().map(|it| it.as_ref().to_owned());
                if *purpose == Purpose::Work {
                    self.class = Some(*class);
                    progress.pending = pending_after(&entry.event);
                    self.failed = false;
                    if *class == Class::Answered {
                        progress.failures = 0;
                    }
                    if !matches!(class, Class::RateLimited | Class::Overloaded) {
                        progress.limits = Limits::default();
                    }
                }
            }
            Event::Retrying { failures, .. } => {
                self.failed = true;
                progress.failures = *failures;
                progress.pending = Pending::Nothing;
            }
            Event::Waiting { reason, until_ms } => {
                progress.pending = Pending::Nothing;
                if *reason == WaitReason::RateLimit {
                    progress.limits.stop_waiting(entry.at.time_ms);
                    progress.limits.count = progress.limits.count.saturating_add(1);
                    progress.limits.waiting = Some((entry.at.time_ms, *until_ms));
                }
            }
            Event::GuardrailStarted { .. } | Event::ScmStarted { .. } => {
                // What it did counts, then.
                if let Pending::Ended(report) = &mut progress.pending {
                    let report = std::mem::replace(report, Box::new(Report::of(Class::NotStarted)));
                    progress.pending = Pending::Unchecked(report);
                }
            }
            Event::FeedbackSet { parts } => progress.feedback.clone_from(parts),
            Event::ScmEnded { ok, .. } => progress.scm_failed = !ok,
            Event::CompletionChecked { complete, found, scm_failed } => {
                progress.scm_failed |= scm_failed;
                progress.commit_message = None;
                progress.pending = Pending::Checked {
                    class: self.class.unwrap_or(Class::Answered),
                    complete: *complete,
                    found: found.as_ref().map(|found| found.as_ref().to_owned()),
                };
            }
            Event::IterationEnded { cut_off: true, usage, .. } => {
                progress.spending.iteration_at_least(usage);
                let (iteration, attempts) = (entry.at.iteration, entry.at.attempt);
                let before = progress.open.filter(|open| open.iteration == iteration);
                let worked_ms = before.map_or(0, |open| open.worked_ms);
                progress.open = Some(Open { iteration, attempts, worked_ms });
            }
            Event::IterationEnded { complete, usage, .. } => {
                progress.spending.iteration_at_least(usage);
                progress.spending.start_iteration();
                progress.iterations = progress.iterations.max(entry.at.iteration);
                progress.open = None;
                progress.last_feedback.clone_from(&progress.feedback);
                progress.stall_checked = false;
                progress.pending = if *complete { Pending::Complete } else { Pending::Nothing };
                // Whatever it came to, it was none of those that count: silence may be none.
                if !self.failed {
                    progress.failures = 0;
                    progress.any_succeeded = true;
                }
            }
            Event::Looked { unchanged, same_failures, fingerprint } => {
                let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
                progress.stall = Seen {
                    fingerprint: fingerprint.as_deref().and_then(number),
                    unchanged: *unchanged,
                    same_failures: *same_failures,
                };
                progress.stall_checked = true;
            }
            Event::Repository { head, .. } => progress.head = Some(head.as_ref().to_owned()),
            Event::RunEnded { outcome, iterations, cut_off, duration_ms, usage, .. } => {
                progress.outcome = Some(*outcome);
                let is_known =
                    matches!(progress.pending, Pending::Unchecked(_) | Pending::Checked { .. });
                if !(is_known && *cut_off) {
                    progress.pending = Pending::Nothing;
                }
                progress.limits.stop_waiting(entry.at.time_ms);
                let ended = iterations.saturating_sub(u32::from(*cut_off));
                progress.iterations = progress.iterations.max(ended);
                progress.spending.at_least(usage);
                progress.active_ms = progress.active_ms.max(*duration_ms);
                if *outcome == Outcome::Stalled {
                    // Whoever goes on has done something about it.
                    progress.stall = Seen::default();
                }
            }
            _ => {}
        }
    }

    /// The run is known to have been there at this moment, by something that it wrote elsewhere.
    pub fn note_alive(&mut self, time_ms: i64) {
        if let Some(last_ms) =
            self.last_ms.filter(|_| !self.idle && self.progress.outcome.is_none())
        {
            self.add_time(last_ms, time_ms);
            self.last_ms = Some(time_ms.max(last_ms));
        }
    }

    /// The journal goes no further.
    pub fn finish(mut self) -> ResumePoint {
        self.settle_cut_attempt();
        self.progress
    }

    /// What an agent had used when it was cut off is used up all the same.
    fn settle_cut_attempt(&mut self) {
        if let Some(usage) = self.running.take() {
            self.progress.spending.end_attempt(&usage);
        }
        let since_ms = self.working_since.take();
        if let (Some(since_ms), Some(last_ms)) = (since_ms, self.last_ms)
            && let Some(open) = &mut self.progress.open
        {
            open.worked_ms = open.worked_ms.saturating_add(elapsed_ms(since_ms, last_ms));
        }
    }

    /// Every entry tells in which iteration it was: one before that has ended, though its end cannot be read.
    fn trust_stamp(&mut self, entry: &Entry<'_>) {
        let (iteration, attempts) = (entry.at.iteration, entry.at.attempt);
        let progress = &mut self.progress;
        progress.iterations = progress.iterations.max(iteration.saturating_sub(1));
        let is_known = progress.open.is_some_and(|open| open.iteration >= iteration);
        let begins = matches!(entry.event, Event::IterationStarted { .. });
        if iteration > progress.iterations && !is_known && !begins {
            progress.spending.start_iteration();
            progress.open = Some(Open { iteration, attempts, worked_ms: 0 });
            progress.pending = Pending::Nothing;
        }
    }

    fn advance_clock(&mut self, entry: &Entry<'_>) {
        let now_ms = entry.at.time_ms;
        let resumes = matches!(entry.event, Event::RunStarted { .. });
        if let Some(last_ms) = self.last_ms.filter(|_| !self.idle && !resumes) {
            self.add_time(last_ms, now_ms);
        }
        self.last_ms = Some(now_ms);
        match entry.event {
            // A word may follow about those who were told of the end.
            Event::Paused | Event::RunEnded { .. } => self.idle = true,
            Event::Resumed { .. } | Event::RunStarted { .. } => self.idle = false,
            _ => {}
        }
    }

    fn add_time(&mut self, from_ms: i64, to_ms: i64) {
        let passed = elapsed_ms(from_ms, to_ms);
        self.progress.active_ms = self.progress.active_ms.saturating_add(passed);
    }
}

/// How long it is from one moment to another. A clock that was set back takes no time away.
fn elapsed_ms(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}

/// What is to be made of an agent that has ended, as far as its end tells. What ralph itself ended says nothing,
/// nor does an answer of which nobody noted whether it completes the run.
fn pending_after(ended: &Event<'_>) -> Pending {
    let Event::AgentEnded {
        exit, ended_by, class, failure, repeats_prompt, complete, found, ..
    } = ended
    else {
        return Pending::Nothing;
    };
    // What it used is counted.
    let report = Box::new(Report {
        failure: failure.clone(),
        exit: describe_end(*exit, *ended_by),
        repeats_prompt: *repeats_prompt,
        complete: complete.unwrap_or(false),
        found: found.as_ref().map(|found| found.as_ref().to_owned()),
        ..Report::of(*class)
    });
    match (class, complete) {
        (Class::Interrupted, _) | (Class::Answered, None) => Pending::Nothing,
        (Class::Answered, Some(_)) => Pending::Unchecked(report),
        _ => Pending::Ended(report),
    }
}

#[cfg(test)]
mod tests;
