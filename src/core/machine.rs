//! The loop itself, as data: what to do next, given what happened.
//!
//! [`LoopMachine::step`] takes one [`Input`] and answers with the [`Action`]s to carry out, in order.
//! It knows no files, no clock and no processes: time comes in with every input, and what it waits for
//! is told by [`LoopMachine::deadline`]. Every loop of the product is this machine with other
//! [`Rules`].

mod exchange;

pub use exchange::{Action, GateVerdict, Input, Now, Report, ScmLook};

use super::event::{Class, EndCause, Event, Feedback, Outcome, Purpose, WaitReason};
use super::exit;
use super::progress::Progress;
use super::rules::{RetryScope, Rules, ScmTask};
use super::spending::Spending;
use super::text;

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
        ending: bool,
    },
    LookingAtScm {
        ending: bool,
    },
    Scm {
        index: usize,
        ending: bool,
    },
    Gates,
    /// Somebody asked for a pause, and nothing is running.
    Paused {
        since: u64,
        /// What comes next is another attempt at the iteration that is open.
        again: bool,
    },
    Finished,
}

/// How somebody asked to stop.
#[derive(Debug, Clone, PartialEq)]
enum Stop {
    Graceful,
    Now,
    Broken(String),
}

/// While a limit is waited for, the wall clock is looked at this often: it moves on while the
/// machine sleeps, and the clock that deadlines are measured by does not.
const WALL_CHECK_MS: u64 = 60_000;
/// How long an agent may stay that is refused its credentials. It may be about to leave, or to have
/// others; some go on trying for minutes.
const REFUSED_GRACE_MS: u64 = 3_000;
/// A limit that ends at a full second has ended for everybody a moment later.
const RESET_SLACK_MS: i64 = 1_000;

/// One loop, from its first iteration to its end.
#[derive(Debug, Clone)]
pub struct LoopMachine {
    rules: Rules,
    phase: Phase,
    stop: Option<Stop>,
    /// Somebody asked for a pause.
    pause: bool,
    iteration: u32,
    attempt: u32,
    iteration_open: bool,
    /// The work is checked before the first iteration: it may be done already.
    opening: bool,
    /// How long the run was at work before it was resumed.
    active_before_ms: u64,
    run_started: u64,
    iteration_started: u64,
    /// Failures in a row that the retry policy counts.
    failures: u32,
    /// Limits in a row without a time, and how long they have been waited for.
    limits: u32,
    limit_waited_ms: u64,
    feedback: Vec<Feedback>,
    /// How much of it is of the iteration before; the rest is the gates' briefing.
    lasting_feedback: usize,
    new_feedback: Vec<Feedback>,
    guardrails_passed: bool,
    class: Class,
    complete: bool,
    found: Option<String>,
    background: u32,
    /// The agent's result is that its credentials were refused.
    refused: bool,
    /// The state of the last SCM tasks; a failed one is tried again after the next passing iteration.
    scm_failed: bool,
    dirty: bool,
    spending: Spending,
    /// How long agents have worked at this iteration before the one that is running.
    worked_ms: u64,
    tools: u32,
    tool_errors: u32,
}

impl LoopMachine {
    pub fn new(rules: Rules) -> Self {
        LoopMachine {
            rules,
            phase: Phase::New,
            stop: None,
            pause: false,
            iteration: 0,
            attempt: 0,
            iteration_open: false,
            opening: false,
            active_before_ms: 0,
            run_started: 0,
            iteration_started: 0,
            failures: 0,
            limits: 0,
            limit_waited_ms: 0,
            feedback: Vec::new(),
            lasting_feedback: 0,
            new_feedback: Vec::new(),
            guardrails_passed: false,
            class: Class::NotStarted,
            complete: false,
            found: None,
            background: 0,
            refused: false,
            scm_failed: false,
            dirty: false,
            spending: Spending::default(),
            worked_ms: 0,
            tools: 0,
            tool_errors: 0,
        }
    }

    /// Goes on where a run was left: with its counts, its spending and what its agent was to be told.
    /// An iteration that has no end is begun again under its own number.
    pub fn resumed(rules: Rules, progress: Progress) -> Self {
        let Progress {
            iterations,
            failures,
            feedback,
            scm_failed,
            tools,
            tool_errors,
            spending,
            active_ms,
            ..
        } = progress;
        // Whoever starts a run again that had given up has done something about it.
        let failures = if progress.outcome.is_some() { 0 } else { failures };
        LoopMachine {
            iteration: iterations,
            failures,
            lasting_feedback: feedback.len(),
            feedback,
            scm_failed,
            tools,
            tool_errors,
            spending,
            active_before_ms: active_ms,
            ..LoopMachine::new(rules)
        }
    }

    /// The same loop, which checks the work before its first iteration, and has nothing to do if
    /// guardrails and gates say that it is done.
    #[must_use]
    pub fn checking_first(self) -> Self {
        LoopMachine { opening: true, ..self }
    }

    /// What is being checked was there before the first iteration.
    pub fn is_opening(&self) -> bool {
        self.opening
    }

    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
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

    /// The moment at which [`Input::Deadline`] is due, by the monotonic clock.
    pub fn deadline(&self) -> Option<u64> {
        let rules = &self.rules;
        match self.phase {
            Phase::Agent { ending: false, purpose, started, last_output, result_at } => [
                after(last_output, rules.inactivity_ms),
                after(started, rules.iteration_timeout_ms),
                self.result_deadline(result_at),
                self.run_deadline(),
                self.iteration_deadline(purpose, started),
            ]
            .into_iter()
            .flatten()
            .min(),
            Phase::Waiting { until_mono, .. } => {
                [Some(until_mono), self.run_deadline()].into_iter().flatten().min()
            }
            Phase::Guardrail { index, started, ending: false } => {
                let own = after(started, rules.guardrails.get(index).copied().flatten());
                [own, self.run_deadline()].into_iter().flatten().min()
            }
            Phase::LookingAtScm { ending: false } | Phase::Scm { ending: false, .. } => {
                self.run_deadline()
            }
            _ => None,
        }
    }

    /// When the run's time is up, whatever it is doing.
    fn run_deadline(&self) -> Option<u64> {
        let limit = self.rules.budget.duration_ms?;
        Some(self.run_started.saturating_add(limit.saturating_sub(self.active_before_ms)))
    }

    /// When agents have worked at this iteration for as long as they may. Waiting is no work, and
    /// neither is a commit message: what was done within the budget is to be kept.
    fn iteration_deadline(&self, purpose: Purpose, started: u64) -> Option<u64> {
        let limit = self.rules.iteration_budget.duration_ms?;
        (purpose == Purpose::Work)
            .then(|| started.saturating_add(limit.saturating_sub(self.worked_ms)))
    }

    /// How long the run has been at work in all.
    fn active_ms(&self, now: Now) -> u64 {
        self.active_before_ms.saturating_add(now.mono_ms.saturating_sub(self.run_started))
    }

    fn time_is_up(&self, now: Now) -> bool {
        self.run_deadline().is_some_and(|at| now.mono_ms >= at)
    }

    fn result_deadline(&self, result_at: Option<u64>) -> Option<u64> {
        if self.refused {
            return after(result_at?, Some(REFUSED_GRACE_MS));
        }
        if self.background > 0 { None } else { after(result_at?, self.rules.result_grace_ms) }
    }

    pub fn step(&mut self, now: Now, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        match input {
            Input::Start => {
                if self.phase == Phase::New {
                    self.run_started = now.mono_ms;
                    if self.opening {
                        self.check_work(now, &mut out);
                    } else {
                        self.next_iteration(now, &mut out);
                    }
                }
            }
            Input::Briefed { feedback } => {
                if self.phase == Phase::Briefing {
                    if self.stop.is_some() {
                        self.stop_here(now, &mut out);
                        return out;
                    }
                    if self.pause {
                        // It has not begun.
                        self.attempt -= 1;
                        self.pause_here(now, true, &mut out);
                        return out;
                    }
                    self.feedback.truncate(self.lasting_feedback);
                    self.feedback.extend(feedback);
                    self.start_agent(now, Purpose::Work, &mut out);
                }
            }
            Input::AgentStarted => {
                if let Phase::Agent { started, last_output, .. } = &mut self.phase {
                    *started = now.mono_ms;
                    *last_output = now.mono_ms;
                }
                // Somebody may have asked to stop at once while it was being started.
                self.heed_stop(&mut out);
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
            Input::Used(usage) => {
                self.spending.running(usage);
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
            Input::ScmLooked(look) => {
                if let Phase::LookingAtScm { ending } = self.phase {
                    self.dirty = look == ScmLook::Dirty;
                    if self.stop.is_some() {
                        self.stop_here(now, &mut out);
                    } else if ending && let Some(used_up) = self.run_budget_exceeded(now) {
                        self.finish_by_budget(now, &used_up, &mut out);
                    } else if look == ScmLook::Failed {
                        self.scm_failed = true;
                        self.check_completion(now, &mut out);
                    } else {
                        self.commit_message(now, &mut out);
                    }
                }
            }
            Input::ScmTaskEnded { ok } => {
                if let Phase::Scm { index, ending } = self.phase {
                    self.scm_failed = !ok;
                    if self.stop.is_some() {
                        self.stop_here(now, &mut out);
                    } else if ending && let Some(used_up) = self.run_budget_exceeded(now) {
                        self.finish_by_budget(now, &used_up, &mut out);
                    } else if ok {
                        self.scm_task(now, index + 1, &mut out);
                    } else {
                        self.check_completion(now, &mut out);
                    }
                }
            }
            Input::GatesChecked(verdict) => {
                if self.phase == Phase::Gates {
                    self.gates_checked(now, verdict, &mut out);
                }
            }
            Input::Deadline => self.deadline_passed(now, &mut out),
            Input::Stop { signal, now: at_once } => {
                if self.phase != Phase::Finished {
                    let signal = signal.into();
                    out.push(Action::Emit(Event::StopRequested { signal, now: at_once }));
                    let stop = if at_once { Stop::Now } else { Stop::Graceful };
                    if matches!(self.stop, None | Some(Stop::Graceful)) {
                        self.stop = Some(stop);
                    }
                    self.heed_stop(&mut out);
                    self.stop_if_idle(now, &mut out);
                }
            }
            Input::Pause => {
                if self.phase != Phase::Finished && !std::mem::replace(&mut self.pause, true) {
                    out.push(Action::Emit(Event::PauseRequested));
                    // There is no use in waiting for what is not to be done.
                    if let Phase::Waiting { reason, .. } = self.phase {
                        self.pause_here(now, self.waits_for_attempt(reason), &mut out);
                    }
                }
            }
            Input::Resume { max_iterations } => {
                if self.phase != Phase::Finished && std::mem::replace(&mut self.pause, false) {
                    self.rules.max_iterations = max_iterations.unwrap_or(self.rules.max_iterations);
                    self.go_on(now, &mut out);
                }
            }
            Input::Broken { message } => {
                if self.phase != Phase::Finished {
                    self.stop = Some(Stop::Broken(message));
                    self.heed_stop(&mut out);
                    self.stop_if_idle(now, &mut out);
                }
            }
        }
        out
    }

    fn agent_purpose(&self) -> Option<Purpose> {
        match self.phase {
            Phase::Agent { purpose, .. } => Some(purpose),
            _ => None,
        }
    }

    // Control points: before an iteration and before another attempt at one.

    fn next_iteration(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        if self.iteration >= self.rules.max_iterations {
            let n = self.iteration;
            let message = format!(
                "the limit of {n} iteration{} was reached without completion",
                if n == 1 { "" } else { "s" }
            );
            return self.finish(now, Outcome::LimitReached, self.rules.exit_at_limit, message, out);
        }
        if self.pause {
            return self.pause_here(now, false, out);
        }
        self.iteration += 1;
        self.attempt = 0;
        self.iteration_started = now.mono_ms;
        self.worked_ms = 0;
        self.spending.iteration_starts();
        self.iteration_open = true;
        self.complete = false;
        self.found = None;
        self.guardrails_passed = false;
        self.class = Class::NotStarted;
        out.push(Action::Emit(Event::IterationStarted {
            max_iterations: self.rules.max_iterations,
        }));
        self.try_again(now, out);
    }

    fn try_again(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        if self.iteration_budget_exceeded(self.worked_ms) {
            // What was done so far stands and is checked; the next iteration has a budget of its own.
            self.class = Class::Limited;
            return self.check_work(now, out);
        }
        if self.pause {
            return self.pause_here(now, true, out);
        }
        self.attempt += 1;
        if self.rules.gates {
            self.phase = Phase::Briefing;
            out.push(Action::Brief);
        } else {
            self.start_agent(now, Purpose::Work, out);
        }
    }

    fn start_agent(&mut self, now: Now, purpose: Purpose, out: &mut Vec<Action>) {
        self.spending.attempt_starts();
        self.background = 0;
        self.refused = false;
        let at = now.mono_ms;
        self.phase =
            Phase::Agent { purpose, started: at, last_output: at, result_at: None, ending: false };
        out.push(Action::StartAgent(purpose));
    }

    // The agent.

    fn agent_not_started(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.spending.attempt_starts();
        match self.agent_purpose() {
            Some(Purpose::Work) => {
                self.class = Class::NotStarted;
                if self.stop.is_some() {
                    self.stop_here(now, out);
                } else {
                    self.failed(now, message, out);
                }
            }
            Some(Purpose::CommitMessage) => self.no_commit_message(now, out),
            None => {}
        }
    }

    fn agent_ended(&mut self, now: Now, report: Report, out: &mut Vec<Action>) {
        let Phase::Agent { purpose, started, .. } = self.phase else {
            return;
        };
        self.spending.attempt_ends(&report.usage);
        self.tools = self.tools.saturating_add(report.tools);
        self.tool_errors = self.tool_errors.saturating_add(report.tool_errors);
        if purpose == Purpose::CommitMessage {
            if self.stop.is_some() {
                self.stop_here(now, out);
            } else if report.has_message && report.class == Class::Answered {
                self.scm_task(now, 0, out);
            } else {
                self.no_commit_message(now, out);
            }
            return;
        }
        self.worked_ms = self.worked_ms.saturating_add(now.mono_ms.saturating_sub(started));
        self.class = report.class;
        // Whatever it said: one that failed, was ended or said nothing has not completed anything.
        self.complete = report.complete && report.class == Class::Answered;
        self.found = report.found;
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if report.class != Class::RateLimited && report.class != Class::Overloaded {
            self.limits = 0;
            self.limit_waited_ms = 0;
        }
        let told = report.failure.as_ref().map(|failure| failure.message.clone());
        match report.class {
            Class::Answered => self.answered(now, out),
            Class::Empty if !self.rules.retry_empty => self.answered(now, out),
            Class::Limited => {
                if let Some(used_up) = self.run_budget_exceeded(now) {
                    return self.finish_by_budget(now, &used_up, out);
                }
                self.answered(now, out);
            }
            Class::TimedOut if !self.rules.inactivity_fails => self.answered(now, out),
            Class::Credentials => {
                let message =
                    told.unwrap_or_else(|| "the agent's credentials were refused".to_owned());
                self.finish(now, Outcome::CredentialsRefused, exit::AGENT, message, out);
            }
            Class::RateLimited | Class::Overloaded => {
                let resets_at = report.failure.as_ref().and_then(|failure| failure.resets_at);
                let message = told.unwrap_or_else(|| "the agent is at its limit".to_owned());
                self.limited(now, resets_at, &message, out);
            }
            Class::Empty => self.failed(now, "the agent said nothing".to_owned(), out),
            Class::Failed
            | Class::ContextExhausted
            | Class::TimedOut
            | Class::Interrupted
            | Class::NotStarted => {
                let message = told.unwrap_or(report.exit);
                self.failed(now, message, out);
            }
        }
    }

    fn answered(&mut self, now: Now, out: &mut Vec<Action>) {
        self.failures = 0;
        self.check_work(now, out);
    }

    fn check_work(&mut self, now: Now, out: &mut Vec<Action>) {
        self.new_feedback.clear();
        self.guardrail(now, 0, out);
    }

    /// An attempt failed, and the retry policy decides.
    fn failed(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        self.failures += 1;
        let fatal = self.rules.retry.fatal();
        if self.failures >= fatal {
            let message = match self.failures {
                1 => format!("the agent failed: {message}"),
                n => format!("the agent failed {n} times in a row, the last time: {message}"),
            };
            return self.finish(
                now,
                Outcome::AgentFailed,
                self.rules.retry.exit_code,
                message,
                out,
            );
        }
        let delay_ms = self.rules.retry.backoff(self.failures);
        out.push(Action::Emit(Event::Retrying {
            class: self.class,
            message: message.into(),
            delay_ms,
            failures: self.failures,
            max_failures: fatal,
        }));
        if let RetryScope::NextIteration { .. } = self.rules.retry.scope {
            self.end_iteration(now, out);
            if self.iteration >= self.rules.max_iterations {
                // There is nothing left to wait for.
                return self.next_iteration(now, out);
            }
        }
        self.wait(now, WaitReason::Backoff, delay_ms, None, out);
    }

    /// The agent's account or service has had enough for now. The iteration is tried again, and the
    /// wait counts as no failure.
    fn limited(&mut self, now: Now, resets_at: Option<i64>, message: &str, out: &mut Vec<Action>) {
        let limit = self.rules.rate_limit;
        self.limits += 1;
        let until_wall = resets_at
            .map(|seconds| seconds.saturating_mul(1000).saturating_add(RESET_SLACK_MS))
            .filter(|until| *until > now.wall_ms);
        let delay_ms = match until_wall {
            Some(until) => until.abs_diff(now.wall_ms),
            None => self.rules.retry.backoff(self.limits),
        };
        let waited = self.limit_waited_ms.saturating_add(delay_ms);
        if !limit.wait || waited > limit.max_wait_ms {
            let why = if limit.wait {
                format!("waiting longer than {}", text::duration(limit.max_wait_ms))
            } else {
                "waiting for limits".to_owned()
            };
            let message =
                format!("{message} ({why} is not allowed: see rateLimit in the settings)");
            return self.finish(now, Outcome::AgentFailed, exit::AGENT, message, out);
        }
        self.limit_waited_ms = waited;
        self.wait(now, WaitReason::RateLimit, delay_ms, until_wall, out);
    }

    fn wait(
        &mut self,
        now: Now,
        reason: WaitReason,
        delay_ms: u64,
        until_wall: Option<i64>,
        out: &mut Vec<Action>,
    ) {
        // There is no use in waiting for what may not be done any more.
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        let until_ms = now.wall_ms.saturating_add_unsigned(delay_ms);
        out.push(Action::Emit(Event::Waiting { reason, until_ms }));
        let first = if until_wall.is_some() { delay_ms.min(WALL_CHECK_MS) } else { delay_ms };
        self.phase = Phase::Waiting {
            reason,
            until_mono: now.mono_ms.saturating_add(first),
            until_wall,
            latest_mono: now.mono_ms.saturating_add(delay_ms),
        };
    }

    // Guardrails.

    fn guardrail(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        if index < self.rules.guardrails.len() {
            self.phase = Phase::Guardrail { index, started: now.mono_ms, ending: false };
            out.push(Action::RunGuardrail(index));
            return;
        }
        self.guardrails_passed = self.new_feedback.is_empty();
        if self.opening || (!self.guardrails_passed && self.rules.gates) {
            // They may have something to add to what failed. There is nothing yet to be committed.
            self.complete = false;
            return self.ask_gates(out);
        }
        let feedback = std::mem::take(&mut self.new_feedback);
        self.set_feedback(feedback, out);
        if !self.guardrails_passed {
            self.complete = false;
            self.iteration_done(now, out);
        } else if self.rules.scm.is_empty() {
            self.check_completion(now, out);
        } else if !self.rules.scm.contains(&ScmTask::Commit) {
            self.scm_task(now, 0, out);
        } else {
            self.phase = Phase::LookingAtScm { ending: false };
            out.push(Action::LookAtScm);
        }
    }

    fn guardrail_ended(&mut self, now: Now, failed: Option<Feedback>, out: &mut Vec<Action>) {
        let Phase::Guardrail { index, ending, .. } = self.phase else {
            return;
        };
        self.new_feedback.extend(failed);
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if ending && let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        self.guardrail(now, index + 1, out);
    }

    fn set_feedback(&mut self, feedback: Vec<Feedback>, out: &mut Vec<Action>) {
        if !feedback.is_empty() || !self.feedback.is_empty() {
            out.push(Action::Emit(Event::FeedbackSet { parts: feedback.clone() }));
        }
        self.lasting_feedback = feedback.len();
        self.feedback = feedback;
    }

    // SCM.

    /// Asks the agent for a commit message if one is needed and can still be paid for.
    fn commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.dirty {
            return self.scm_task(now, 0, out);
        }
        if self.run_budget_exceeded(now).is_none() {
            return self.start_agent(now, Purpose::CommitMessage, out);
        }
        let message = "the budget is used up, so the commit gets a message of ralph's own";
        out.push(Action::Emit(Event::Warning { message: message.into() }));
        self.scm_task(now, 0, out);
    }

    fn scm_task(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        match self.rules.scm.get(index) {
            None => self.check_completion(now, out),
            Some(ScmTask::Commit) if !self.dirty => {
                out.push(Action::SkipScmTask(index, "nothing to commit"));
                self.scm_failed = false;
                self.scm_task(now, index + 1, out);
            }
            Some(_) => {
                self.phase = Phase::Scm { index, ending: false };
                out.push(Action::RunScmTask(index));
            }
        }
    }

    fn no_commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        self.scm_failed = true;
        let message = "the agent gave no commit message, so nothing was committed; \
                       this is tried again after the next passing iteration";
        out.push(Action::Emit(Event::Warning { message: message.into() }));
        self.check_completion(now, out);
    }

    // Completion.

    fn check_completion(&mut self, now: Now, out: &mut Vec<Action>) {
        let found = self.found.clone().map(Into::into);
        out.push(Action::Emit(Event::CompletionChecked { complete: self.complete, found }));
        if self.rules.gates {
            self.ask_gates(out);
        } else {
            self.iteration_done(now, out);
        }
    }

    fn ask_gates(&mut self, out: &mut Vec<Action>) {
        self.phase = Phase::Gates;
        out.push(Action::CheckGates {
            claimed: self.complete,
            checks_passed: self.guardrails_passed,
        });
    }

    fn gates_checked(&mut self, now: Now, verdict: GateVerdict, out: &mut Vec<Action>) {
        let mut told = std::mem::take(&mut self.new_feedback);
        match verdict {
            GateVerdict::Stands => {}
            GateVerdict::Complete => self.complete = self.guardrails_passed,
            GateVerdict::Veto { reason, feedback } => {
                if std::mem::take(&mut self.complete) || self.opening {
                    out.push(Action::Emit(Event::Vetoed { reason: reason.into() }));
                }
                told.extend(feedback);
            }
        }
        self.set_feedback(told, out);
        self.iteration_done(now, out);
    }

    fn iteration_done(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        let opening = std::mem::take(&mut self.opening);
        if !self.complete {
            self.end_iteration(now, out);
            return self.next_iteration(now, out);
        }
        if opening {
            let message = "nothing to do, every check passes".to_owned();
            return self.finish(now, Outcome::Complete, exit::DONE, message, out);
        }
        let n = self.iteration;
        let after = format!("after {n} iteration{}", if n == 1 { "" } else { "s" });
        if self.scm_failed {
            let message = format!("complete {after}, but an SCM task failed");
            self.finish(now, Outcome::CompleteScmFailed, exit::SCM, message, out);
        } else {
            self.finish(now, Outcome::Complete, exit::DONE, format!("complete {after}"), out);
        }
    }

    fn end_iteration(&mut self, now: Now, out: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.iteration_open, false) {
            return;
        }
        out.push(Action::Emit(Event::IterationEnded {
            class: self.class,
            guardrails_passed: self.guardrails_passed,
            complete: self.complete && self.guardrails_passed,
            duration_ms: now.mono_ms.saturating_sub(self.iteration_started),
            usage: self.spending.iteration(),
        }));
        out.push(Action::Save);
    }

    // Time.

    fn deadline_passed(&mut self, now: Now, out: &mut Vec<Action>) {
        match self.phase {
            Phase::Agent { ending: false, started, last_output, result_at, .. } => {
                let due = |deadline: Option<u64>| deadline.is_some_and(|at| now.mono_ms >= at);
                let rules = &self.rules;
                let cause = if due(self.result_deadline(result_at)) {
                    Some(self.after_result())
                } else if due(after(started, rules.iteration_timeout_ms)) {
                    Some(EndCause::IterationTimeout)
                } else if due(after(last_output, rules.inactivity_ms)) {
                    Some(EndCause::Inactivity)
                } else {
                    None
                };
                match cause {
                    // Whatever its time ran out by: it has answered, and the answer counts.
                    Some(_) if self.has_answered() => self.end_agent(self.after_result(), out),
                    Some(cause) => self.end_agent(cause, out),
                    None => self.check_budgets(now, out),
                }
            }
            Phase::Waiting { reason, until_mono, until_wall, latest_mono } => {
                if let Some(used_up) = self.run_budget_exceeded(now) {
                    return self.finish_by_budget(now, &used_up, out);
                }
                if now.mono_ms < until_mono {
                    return;
                }
                // A clock that was set back must not make the wait longer than it was to be.
                if let Some(left) = until_wall.map(|until| until.saturating_sub(now.wall_ms))
                    && left > 0
                    && now.mono_ms < latest_mono
                {
                    let next = left.unsigned_abs().min(WALL_CHECK_MS);
                    let until_mono = now.mono_ms.saturating_add(next).min(latest_mono);
                    self.phase = Phase::Waiting { reason, until_mono, until_wall, latest_mono };
                    return;
                }
                if self.waits_for_attempt(reason) {
                    self.try_again(now, out);
                } else {
                    self.next_iteration(now, out);
                }
            }
            Phase::Guardrail { index, started, ending: false } => {
                let limit = self.rules.guardrails.get(index).copied().flatten();
                let timed_out = after(started, limit).is_some_and(|at| now.mono_ms >= at);
                if timed_out || self.time_is_up(now) {
                    self.phase = Phase::Guardrail { index, started, ending: true };
                    out.push(Action::EndGuardrail { timed_out });
                }
            }
            Phase::LookingAtScm { .. } | Phase::Scm { .. } if self.time_is_up(now) => {
                self.end_scm(out);
            }
            _ => {}
        }
    }

    /// The agent has given its result and announced nothing that goes on.
    fn has_answered(&self) -> bool {
        matches!(self.phase, Phase::Agent { result_at: Some(_), .. }) && self.background == 0
    }

    /// Why an agent is ended that has given its result.
    fn after_result(&self) -> EndCause {
        if self.refused { EndCause::Refused } else { EndCause::ResultGrace }
    }

    fn check_budgets(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.has_answered() {
            return self.check_time_after_result(now, out);
        }
        if self.run_budget_exceeded(now).is_some() {
            return self.end_agent(EndCause::Budget, out);
        }
        if let Phase::Agent { purpose: Purpose::Work, started, .. } = self.phase {
            let worked = self.worked_ms.saturating_add(now.mono_ms.saturating_sub(started));
            if self.iteration_budget_exceeded(worked) {
                self.end_agent(EndCause::IterationBudget, out);
            }
        }
    }

    fn iteration_budget_exceeded(&self, worked_ms: u64) -> bool {
        let budget = &self.rules.iteration_budget;
        budget.exceeded(&self.spending.of_iteration(), worked_ms).is_some()
    }

    /// An agent that has given its result has used up what it used up: ending it for that would save
    /// nothing and throw its answer away. The next control point heeds the budget. Only time still
    /// passes, and an agent that has answered need not stay for it.
    fn check_time_after_result(&mut self, now: Now, out: &mut Vec<Action>) {
        let Phase::Agent { purpose, started, .. } = self.phase else {
            return;
        };
        let over = self.iteration_deadline(purpose, started).is_some_and(|at| now.mono_ms >= at);
        if over || self.time_is_up(now) {
            self.end_agent(self.after_result(), out);
        }
    }

    fn run_budget_exceeded(&self, now: Now) -> Option<String> {
        let elapsed = self.active_ms(now);
        self.rules.budget.exceeded(&self.spending.of_run(), elapsed)
    }

    fn end_agent(&mut self, cause: EndCause, out: &mut Vec<Action>) {
        if let Phase::Agent { ending, .. } = &mut self.phase
            && !std::mem::replace(ending, true)
        {
            out.push(Action::EndAgent(cause));
        }
    }

    fn end_scm(&mut self, out: &mut Vec<Action>) {
        if let Phase::LookingAtScm { ending } | Phase::Scm { ending, .. } = &mut self.phase
            && !std::mem::replace(ending, true)
        {
            out.push(Action::EndScmTask);
        }
    }

    // Pausing.

    /// What follows such a wait is another attempt at the same iteration.
    fn waits_for_attempt(&self, reason: WaitReason) -> bool {
        reason != WaitReason::Backoff
            || !matches!(self.rules.retry.scope, RetryScope::NextIteration { .. })
    }

    fn pause_here(&mut self, now: Now, again: bool, out: &mut Vec<Action>) {
        self.phase = Phase::Paused { since: now.mono_ms, again };
        out.push(Action::Emit(Event::Paused));
        out.push(Action::Save);
    }

    fn go_on(&mut self, now: Now, out: &mut Vec<Action>) {
        let max_iterations = self.rules.max_iterations;
        out.push(Action::Emit(Event::Resumed { max_iterations }));
        if let Phase::Paused { since, again } = self.phase {
            // A pause is on nobody's time.
            let paused_ms = now.mono_ms.saturating_sub(since);
            self.run_started = self.run_started.saturating_add(paused_ms);
            self.iteration_started = self.iteration_started.saturating_add(paused_ms);
            if again { self.try_again(now, out) } else { self.next_iteration(now, out) }
        }
    }

    // Stopping.

    /// Ends what is running, if it may not finish. The end of it is still to be heard of.
    fn heed_stop(&mut self, out: &mut Vec<Action>) {
        let cause = match self.stop {
            None | Some(Stop::Graceful) => return,
            Some(Stop::Now) => EndCause::Interrupt,
            Some(Stop::Broken(_)) => EndCause::Broken,
        };
        match &mut self.phase {
            Phase::Agent { .. } => self.end_agent(cause, out),
            Phase::Guardrail { ending: ending @ false, .. } => {
                *ending = true;
                out.push(Action::EndGuardrail { timed_out: false });
            }
            Phase::LookingAtScm { .. } | Phase::Scm { .. } => self.end_scm(out),
            _ => {}
        }
    }

    /// A stop that finds nothing running takes effect at once.
    fn stop_if_idle(&mut self, now: Now, out: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Paused { .. } | Phase::New) {
            self.stop_here(now, out);
        }
    }

    fn stop_here(&mut self, now: Now, out: &mut Vec<Action>) {
        match self.stop.take() {
            Some(Stop::Broken(message)) => {
                self.finish(now, Outcome::Broken, exit::INPUT, message, out)
            }
            _ => self.finish(
                now,
                Outcome::Interrupted,
                exit::INTERRUPTED,
                "interrupted".to_owned(),
                out,
            ),
        }
    }

    fn finish_by_budget(&mut self, now: Now, used_up: &str, out: &mut Vec<Action>) {
        self.finish(
            now,
            Outcome::Budget,
            exit::BUDGET,
            format!("the budget is used up: {used_up}"),
            out,
        );
    }

    fn finish(
        &mut self,
        now: Now,
        outcome: Outcome,
        exit_code: u8,
        message: String,
        out: &mut Vec<Action>,
    ) {
        if self.phase == Phase::Finished {
            return;
        }
        if !matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed) {
            self.complete = false;
        }
        self.end_iteration(now, out);
        self.phase = Phase::Finished;
        out.push(Action::Emit(Event::RunEnded {
            outcome,
            exit_code,
            message: message.into(),
            iterations: self.iteration,
            duration_ms: self.active_ms(now),
            usage: self.spending.total(),
            tools: self.tools,
            tool_errors: self.tool_errors,
        }));
        out.push(Action::Finish { outcome, exit_code });
    }
}

fn after(start: u64, limit_ms: Option<u64>) -> Option<u64> {
    Some(start.saturating_add(limit_ms?))
}

#[cfg(test)]
mod tests;
