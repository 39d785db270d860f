//! The loop itself, as data: what to do next, given what happened.
//!
//! [`LoopMachine::step`] takes one [`Input`] and answers with the [`Action`]s to carry out, in order.
//! It knows no files, no clock and no processes: time comes in with every input, and what it waits for
//! is told by [`LoopMachine::deadline`]. Every loop of the product is this machine with other
//! [`Rules`].

mod attempt;
mod checks;
mod ending;
mod messages;
mod timers;

pub use messages::{
    Action, CommitGuardResult, GateVerdict, Input, Now, ScmStatus, UncheckedChange,
};
pub use ralph_events::run_state::AgentReport as Report;

use super::rules::Rules;
use super::stall::StallWatch;
use ralph_events::event::{Class, Event, Feedback, Outcome, Purpose, WaitReason};
use ralph_events::run_state::{OpenIteration as Open, Pending, RateLimits as Limits, ResumePoint};
use ralph_events::spending::Spending;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    New,
    /// The gates are asked what the agent has to know before it begins.
    Briefing,
    /// An agent is being started or is running.
    Agent {
        purpose: Purpose,
        started: u64,
        last_output: u64,
        result_at: Option<u64>,
        ending: bool,
    },
    Waiting {
        reason: WaitReason,
        until_mono: u64,
        until_wall: Option<i64>,
        /// The end of the wait if the wall clock never comes there.
        latest_mono: u64,
    },
    Guardrail {
        index: usize,
        started: u64,
        ending: Option<GuardrailEnd>,
    },
    LookingAtScm {
        started: u64,
        ending: bool,
    },
    /// An agent was asked for a commit message, and gave one or not.
    LookingAtStaged {
        given: bool,
        started: u64,
        ending: bool,
    },
    Scm {
        index: usize,
        started: u64,
        ending: bool,
    },
    Gates,
    /// The repository is looked at, before the next iteration.
    Looking {
        started: u64,
        ending: bool,
    },
    /// Somebody asked for a pause, and nothing is running.
    Paused {
        since: u64,
        /// What comes next is another attempt at the iteration that is open.
        again: bool,
    },
    Finished,
}

/// Why a guardrail is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardrailEnd {
    /// Its own time is up, which is a failure.
    TimedOut,
    /// The run is to end, which says nothing of the work.
    CutOff,
}

/// How somebody asked to stop.
#[derive(Debug, Clone, PartialEq)]
enum StopMode {
    Graceful,
    Now,
    Broken(String),
}

/// One loop, from its first iteration to its end.
#[derive(Debug, Clone)]
pub struct LoopMachine {
    rules: Rules,
    phase: Phase,
    stop: Option<StopMode>,
    /// Somebody asked for a pause.
    pause: bool,
    iteration: u32,
    attempt: u32,
    iteration_open: bool,
    /// The work is checked before the first iteration: it may be done already.
    is_initial_check: bool,
    /// What a run that was cut off had not yet acted upon.
    pending: Pending,
    /// The iteration that was cut off, and is begun again.
    cut_off: Option<Open>,
    /// How long the run was at work before it was resumed.
    active_before_ms: u64,
    run_started: u64,
    iteration_started: u64,
    /// Failures in a row that the retry policy counts.
    failures: u32,
    /// An iteration has ended without a failure.
    any_succeeded: bool,
    /// Limits in a row, and how long they have been waited for.
    limits: Limits,
    feedback: Vec<Feedback>,
    /// How much of it is of the iteration before; the rest is the gates' briefing.
    lasting_feedback: usize,
    new_feedback: Vec<Feedback>,
    /// Nothing until they have come to their end.
    guardrails_passed: Option<bool>,
    class: Class,
    complete: bool,
    found: Option<String>,
    background: u32,
    /// A tool of the agent's is running.
    tool_running: bool,
    /// It was said in this run that an agent is silent.
    silence_warned: bool,
    /// The agent's result is that its credentials were refused.
    refused: bool,
    /// The state of the last SCM tasks; a failed one is tried again after the next passing iteration.
    scm_failed: bool,
    /// Until when SCM tasks may go on at least, though the run's time is up.
    scm_until: u64,
    dirty: bool,
    /// What the next agent is to be told of what keeps the work from being committed.
    scm_feedback: Vec<Feedback>,
    /// Why what the guardrails saw is not what is there now.
    unseen: Option<String>,
    /// An agent that was asked for a commit message did more than that: it is not asked for one again.
    meddles: bool,
    /// An agent was asked for a commit message before, and gave one that was not used.
    has_message: bool,
    spending: Spending,
    /// The agent is ended because the run's budget was used up, as far as its cost could be told then.
    budget_ended_it: bool,
    /// How long agents have worked at this iteration before the one that is running.
    worked_ms: u64,
    tools: u32,
    tool_errors: u32,
    watch: StallWatch,
    /// How long the last iteration took.
    last_took_ms: u64,
}

impl LoopMachine {
    pub fn new(rules: Rules) -> Self {
        LoopMachine {
            watch: StallWatch::new(rules.stall),
            last_took_ms: 0,
            rules,
            phase: Phase::New,
            stop: None,
            pause: false,
            iteration: 0,
            attempt: 0,
            iteration_open: false,
            is_initial_check: false,
            pending: Pending::Nothing,
            cut_off: None,
            active_before_ms: 0,
            run_started: 0,
            iteration_started: 0,
            failures: 0,
            any_succeeded: false,
            limits: Limits::default(),
            feedback: Vec::new(),
            lasting_feedback: 0,
            new_feedback: Vec::new(),
            guardrails_passed: None,
            class: Class::NotStarted,
            complete: false,
            found: None,
            background: 0,
            tool_running: false,
            silence_warned: false,
            refused: false,
            scm_failed: false,
            scm_until: 0,
            dirty: false,
            scm_feedback: Vec::new(),
            unseen: None,
            meddles: false,
            has_message: false,
            spending: Spending::default(),
            budget_ended_it: false,
            worked_ms: 0,
            tools: 0,
            tool_errors: 0,
        }
    }

    /// Goes on where a run was left: with its counts, its spending and what its agent was to be told.
    /// An iteration that has no end is begun again under its own number, unless enough of it is known to
    /// bring it to its end.
    pub fn resumed(rules: Rules, progress: ResumePoint) -> Self {
        let ResumePoint {
            iterations,
            open,
            pending,
            failures,
            any_succeeded,
            limits,
            feedback,
            last_feedback,
            commit_message,
            scm_failed,
            tools,
            tool_errors,
            spending,
            active_ms,
            ..
        } = progress;
        let pending = match (pending, open) {
            (Pending::Ended(_) | Pending::Unchecked(_) | Pending::Checked { .. }, None) => {
                Pending::Nothing
            }
            // What was done so far stands and is checked, as if its agent had come to the limit just now.
            (Pending::Nothing, Some(open)) if is_budget_exhausted(&rules, &spending, open) => {
                Pending::Unchecked(Box::new(Report::of(Class::Limited)))
            }
            (pending, _) => pending,
        };
        let reopened = open.filter(|_| !matches!(pending, Pending::Nothing | Pending::Complete));
        let counts = open.is_none_or(|_| reopened.is_some()) && !progress.stall_checked;
        let watch = StallWatch::resumed(rules.stall, progress.stall, &last_feedback, counts);
        // Whoever starts a run again that had given up has done something about it. More time, money or iterations
        // are none of that.
        let gave_up = matches!(
            progress.outcome,
            Some(Outcome::AgentFailed | Outcome::CredentialsRefused | Outcome::Stalled)
        );
        let (failures, limits) = if gave_up { (0, Limits::default()) } else { (failures, limits) };
        LoopMachine {
            iteration: reopened.map_or(iterations, |open| open.iteration),
            attempt: reopened.map_or(0, |open| open.attempts),
            iteration_open: reopened.is_some(),
            worked_ms: reopened.map_or(0, |open| open.worked_ms),
            has_message: commit_message.is_some() && reopened.is_some(),
            cut_off: open,
            pending,
            failures,
            any_succeeded,
            limits,
            lasting_feedback: feedback.len(),
            feedback,
            scm_failed,
            tools,
            tool_errors,
            spending,
            active_before_ms: active_ms,
            watch,
            ..LoopMachine::new(rules)
        }
    }

    /// The same loop, which checks the work before its first iteration, and has nothing to do if
    /// guardrails and gates say that it is done.
    #[must_use]
    pub fn with_initial_check(self) -> Self {
        LoopMachine { is_initial_check: true, ..self }
    }

    /// What is being checked was there before the first iteration.
    pub fn is_initial_check(&self) -> bool {
        self.is_initial_check
    }

    /// The agent of this iteration ended by itself and well.
    pub fn agent_finished_normally(&self) -> bool {
        self.class.finished_normally()
    }

    /// The iteration that a run was left in with work that is to be checked before anything else.
    pub fn unchecked_iteration(&self) -> Option<u32> {
        matches!(self.pending, Pending::Unchecked(_)).then_some(self.iteration)
    }

    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The iteration that is open, and the attempt at it.
    pub fn position(&self) -> (u32, u32) {
        if self.iteration_open { (self.iteration, self.attempt) } else { (0, 0) }
    }

    /// An iteration was begun and has not come to its end.
    pub fn has_open_iteration(&self) -> bool {
        self.iteration_open
    }

    pub fn max_iterations(&self) -> u32 {
        self.rules.max_iterations
    }

    /// What the next prompt carries.
    pub fn feedback(&self) -> &[Feedback] {
        &self.feedback
    }

    /// Nothing happens until somebody asks to go on.
    pub fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused { .. })
    }

    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    pub fn step(&mut self, now: Now, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        match input {
            Input::Start => {
                if self.phase == Phase::New {
                    self.run_started = now.mono_ms;
                    self.limits.stop_waiting(now.wall_ms);
                    self.start(now, &mut out);
                }
            }
            Input::Briefed { feedback } => self.on_briefed(now, feedback, &mut out),
            Input::AgentStarted => {
                if let Phase::Agent { started, last_output, .. } = &mut self.phase {
                    *started = now.mono_ms;
                    *last_output = now.mono_ms;
                }
                // Somebody may have asked to stop at once while it was being started.
                self.apply_stop(&mut out);
            }
            Input::AgentNotStarted { message } => self.agent_not_started(now, message, &mut out),
            Input::PromptFailed { message } => {
                if self.agent_purpose().is_some() {
                    let code = self.rules.exit_without_prompt;
                    self.finish(now, Outcome::PromptLost, code, message, &mut out);
                }
            }
            Input::Output => {
                if let Phase::Agent { last_output, .. } = &mut self.phase {
                    *last_output = now.mono_ms;
                }
            }
            Input::Working => {
                self.refused = false;
                if let Phase::Agent { result_at, .. } = &mut self.phase {
                    *result_at = None;
                }
            }
            Input::ToolRunning(running) => self.tool_running = running,
            Input::UsageReported(usage) => {
                self.spending.set_running(usage);
                self.check_budgets(now, &mut out);
            }
            Input::ResultSeen | Input::Refused => {
                self.refused = input == Input::Refused;
                if let Phase::Agent { result_at, .. } = &mut self.phase {
                    *result_at = Some(now.mono_ms);
                }
            }
            Input::BackgroundTasks(running) => {
                self.background = running;
                if let Phase::Agent { result_at: Some(at), .. } = &mut self.phase {
                    *at = now.mono_ms;
                }
            }
            Input::AgentEnded(report) => self.agent_ended(now, *report, &mut out),
            Input::GuardrailEnded { failed } => self.guardrail_ended(now, failed, &mut out),
            Input::ScmStatus(look) => self.on_scm_status(now, look, &mut out),
            Input::CommitGuardChecked(look) => self.on_commit_guard(now, look, &mut out),
            Input::ScmTaskEnded { ok, feedback } => {
                self.scm_feedback.extend(feedback);
                self.scm_task_ended(now, ok, &mut out);
            }
            Input::GatesChecked(verdict) => self.gates_checked(now, verdict, &mut out),
            Input::StallChecked { fingerprint } => {
                self.on_stall_check(now, fingerprint, &mut out);
            }
            Input::Timer => self.on_timer(now, &mut out),
            Input::Stop { signal, now: at_once } => {
                self.request_stop(now, signal, at_once, &mut out);
            }
            Input::Pause => self.request_pause(now, &mut out),
            Input::Resume { max_iterations } => {
                if self.phase != Phase::Finished && std::mem::replace(&mut self.pause, false) {
                    self.rules.max_iterations = max_iterations.unwrap_or(self.rules.max_iterations);
                    self.resume(now, &mut out);
                }
            }
            Input::Broken { message } => {
                if self.phase != Phase::Finished {
                    self.stop = Some(StopMode::Broken(message));
                    self.apply_stop(&mut out);
                    self.stop_if_idle(now, &mut out);
                }
            }
        }
        out
    }

    /// Begins, or goes on with what was known when the run was cut off: what that decides needs no agent.
    fn start(&mut self, now: Now, out: &mut Vec<Action>) {
        self.iteration_started = now.mono_ms;
        match std::mem::take(&mut self.pending) {
            Pending::Nothing if self.is_initial_check => self.run_checks(now, out),
            Pending::Nothing => self.next_iteration(now, out),
            Pending::Ended(report) | Pending::Unchecked(report) => {
                self.classify_attempt(now, *report, out)
            }
            Pending::Checked { class, complete, found } => {
                (self.class, self.complete, self.found) = (class, complete, found);
                self.guardrails_passed = Some(true);
                self.watch.record_guardrails(&[]);
                self.check_gates_or_end(now, out);
            }
            Pending::Complete => self.end_complete(now, out),
        }
    }

    fn next_iteration(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        if self.iteration >= self.rules.max_iterations {
            let n = self.iteration;
            let s = if n == 1 { "" } else { "s" };
            // Where a failure is tried again in the same iteration, none of them ends with one.
            if self.failures > 0 && !self.any_succeeded {
                let message = format!("every iteration failed ({n} iteration{s})");
                let exit_code = self.rules.retry.exit_code;
                return self.finish(now, Outcome::AgentFailed, exit_code, message, out);
            }
            let message = format!("the limit of {n} iteration{s} was reached without completion");
            return self.finish(now, Outcome::LimitReached, self.rules.exit_at_limit, message, out);
        }
        if self.pause {
            return self.enter_pause(now, false, out);
        }
        if self.watch.needs_check(self.last_took_ms) {
            self.phase = Phase::Looking { started: now.mono_ms, ending: false };
            out.push(Action::CheckStall);
            return;
        }
        self.start_iteration(now, out);
    }

    fn start_iteration(&mut self, now: Now, out: &mut Vec<Action>) {
        self.watch.start_iteration();
        self.iteration += 1;
        self.attempt = 0;
        self.iteration_started = now.mono_ms;
        match self.cut_off.take().filter(|open| open.iteration == self.iteration) {
            // What was used at its first try is a part of what it may use.
            Some(open) => self.worked_ms = open.worked_ms,
            None => {
                self.worked_ms = 0;
                self.spending.start_iteration();
            }
        }
        self.iteration_open = true;
        self.complete = false;
        self.found = None;
        self.guardrails_passed = None;
        self.has_message = false;
        self.scm_feedback.clear();
        self.unseen = None;
        self.class = Class::NotStarted;
        out.push(Action::Emit(Event::IterationStarted {
            max_iterations: self.rules.max_iterations,
        }));
        self.retry(now, out);
    }
}

/// Whether an iteration that was cut off had used up what it may.
fn is_budget_exhausted(rules: &Rules, spending: &Spending, open: Open) -> bool {
    rules
        .iteration_budget
        .exceeded(&spending.iteration_budget_usage(), &spending.iteration(), open.worked_ms)
        .is_some()
}

#[cfg(test)]
mod tests;
