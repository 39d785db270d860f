//! The loop as a state machine.
//!
//! [`LoopMachine::step`] takes an [`Input`] and returns [`Action`]s to carry out in order. Time comes with every
//! input; [`LoopMachine::deadline`] tells when to wake the machine.

mod attempt;
mod checks;
mod conversation;
mod ending;
mod iteration;
mod job;
mod messages;
mod state;
mod timers;

pub use conversation::PersonMessages;
pub use messages::{
    Action, CommitGuardResult, FinalChecks, GateVerdict, Input, Now, RefusedHost, ScmStatus,
    StopSignal, UncheckedChange,
};
pub use ralph_events::run_state::AgentReport;

use super::rules::Rules;
use super::stall::StallWatch;
use conversation::Conversation;
use iteration::Iteration;
use job::{AgentRun, Job, JobEnd};
use ralph_events::event::{Class, Event, Feedback, Outcome, Stamp, WaitReason};
use ralph_events::run_state::{Pending, RunState, Totals};
use state::{OpenWork, PromptFeedback, Retries, RunClock, RunTotals, StopMode, StopRequests};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    New,
    /// Collecting the gates' notes for the next prompt.
    Briefing,
    /// A child process is being started or is running.
    Running {
        job: Job,
        started: u64,
        /// Requested; the end is not reported yet.
        ending: Option<JobEnd>,
    },
    /// Waiting for the next attempt.
    Waiting {
        reason: WaitReason,
        until_mono: u64,
        until_wall: Option<i64>,
        /// The end of the wait if the wall clock never gets there.
        latest_mono: u64,
    },
    CheckingGates,
    /// Paused by request; no process is running.
    Paused {
        since: u64,
        /// Retry the open iteration instead of starting the next one.
        retry: bool,
    },
    /// Finding out whether a story can start although a question is open.
    FindingStory,
    /// Nothing can start until a question is answered; no process is running.
    Parked {
        since: u64,
    },
    Finished(Outcome),
}

/// One step of the machine: its time, and the actions so far.
struct Step {
    now: Now,
    actions: Vec<Action>,
}

impl Step {
    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

#[derive(Debug, Clone)]
pub struct LoopMachine {
    rules: Rules,
    clock: RunClock,
    totals: RunTotals,
    retries: Retries,
    steering: StopRequests,
    conversation: Conversation,
    /// Work of an earlier process that is still open; taken at the start.
    resume: OpenWork,
    feedback: PromptFeedback,
    stall: StallWatch,
    iteration: Iteration,
    phase: Phase,
}

impl LoopMachine {
    pub fn new(rules: Rules) -> Self {
        LoopMachine {
            stall: StallWatch::new(rules.stall),
            rules,
            clock: RunClock::default(),
            totals: RunTotals::default(),
            retries: Retries::default(),
            steering: StopRequests::default(),
            conversation: Conversation::default(),
            resume: OpenWork::default(),
            feedback: PromptFeedback::default(),
            iteration: Iteration::default(),
            phase: Phase::New,
        }
    }

    /// Continues a run of an earlier process. An open iteration starts again under its number, unless the journal has
    /// enough to finish it.
    pub fn resumed(rules: Rules, state: RunState) -> Self {
        let mut state = state.closed();
        state.forgive_failures();
        let RunState { resume, totals, clock, steering, .. } = state;
        let Totals { spending, tools, tool_errors, .. } = totals;
        let open = resume.open;
        let pending = match (resume.pending, open) {
            (Pending::Ended(_) | Pending::Unchecked(_) | Pending::Checked { .. }, None) => {
                Pending::Nothing
            }
            // The work so far is checked, as if the agent had just met its limit.
            (Pending::Nothing, Some(open))
                if rules.is_iteration_budget_exceeded(&spending, open.worked_ms) =>
            {
                Pending::Unchecked(Box::new(AgentReport::of(Class::Limited)))
            }
            (pending, _) => pending,
        };
        let reopened = open.filter(|_| !matches!(pending, Pending::Nothing | Pending::Complete));
        let counts = open.is_none_or(|_| reopened.is_some()) && !resume.stall_checked;
        let stall = StallWatch::resumed(rules.stall, resume.stall, &resume.last_feedback, counts);
        LoopMachine {
            iteration: match reopened {
                Some(open) => Iteration::reopened(open, resume.commit_message.is_some()),
                None => Iteration::ended(resume.iterations),
            },
            resume: OpenWork { cut_off: open, pending },
            retries: Retries {
                failures: resume.failures,
                any_succeeded: resume.any_succeeded,
                limits: resume.limits,
            },
            feedback: PromptFeedback::carried(resume.feedback),
            totals: RunTotals {
                spending,
                tools,
                tool_errors,
                scm_failed: resume.scm_failed,
                ..RunTotals::default()
            },
            clock: RunClock { started: 0, active_before_ms: clock.active_ms },
            conversation: Conversation::resumed(steering),
            stall,
            ..LoopMachine::new(rules)
        }
    }

    /// Checks the work before the first iteration; it may be complete already.
    #[must_use]
    pub fn with_initial_check(self) -> Self {
        let iteration = Iteration { is_initial_check: true, ..self.iteration };
        LoopMachine { iteration, ..self }
    }

    pub fn is_initial_check(&self) -> bool {
        self.iteration.is_initial_check
    }

    pub fn agent_finished_normally(&self) -> bool {
        self.iteration.class.finished_normally()
    }

    /// The iteration whose work an earlier process left unchecked.
    pub fn unchecked_iteration(&self) -> Option<u32> {
        matches!(self.resume.pending, Pending::Unchecked(_)).then_some(self.iteration.number)
    }

    pub fn iteration(&self) -> u32 {
        self.iteration.number
    }

    pub fn attempt(&self) -> u32 {
        self.iteration.attempt
    }

    /// The stamp of what happens now: the iteration that is open or ended last, and its attempt.
    pub fn stamp(&self, now: Now) -> Stamp {
        self.iteration.stamp(now)
    }

    pub fn has_open_iteration(&self) -> bool {
        self.iteration.is_open
    }

    pub fn max_iterations(&self) -> u32 {
        self.rules.max_iterations
    }

    pub fn feedback(&self) -> Vec<Feedback> {
        self.feedback.all()
    }

    pub fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused { .. })
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished(_))
    }

    pub fn step(&mut self, now: Now, input: Input) -> Vec<Action> {
        let step = &mut Step { now, actions: Vec::new() };
        match input {
            Input::Start => {
                if self.phase == Phase::New {
                    self.clock.started = now.mono_ms;
                    self.retries.limits.stop_waiting(now.wall_ms);
                    self.start(step);
                }
            }
            Input::Briefed { feedback } => self.on_briefed(step, feedback),
            Input::AgentStarted => {
                if let Phase::Running { job: Job::Agent(agent), started, .. } = &mut self.phase {
                    *started = now.mono_ms;
                    agent.last_output = now.mono_ms;
                }
                self.record_delivery(step);
                // A stop may have been requested while it was being started.
                self.apply_stop(step);
            }
            Input::AgentNotStarted { message } => self.agent_not_started(step, message),
            Input::PromptFailed { message } => {
                if self.agent().is_some() {
                    let code = self.rules.exit_without_prompt;
                    self.finish(step, Outcome::PromptMissing, code, message);
                }
            }
            Input::Output => {
                let check_done_ms = self.rules.check_done_ms;
                if let Some(agent) = self.agent_mut() {
                    agent.on_output(now, check_done_ms);
                }
            }
            Input::Working => {
                if let Some(agent) = self.agent_mut() {
                    (agent.refused, agent.result_at) = (false, None);
                }
            }
            Input::ToolRunning(running) => {
                if let Some(agent) = self.agent_mut() {
                    agent.tool_running = running;
                }
            }
            Input::UsageReported(usage) => {
                self.totals.spending.set_running(usage);
                self.check_budgets(step);
            }
            Input::ResultSeen | Input::Refused => {
                let refused = input == Input::Refused;
                if let Some(agent) = self.agent_mut() {
                    (agent.refused, agent.result_at) = (refused, Some(now.mono_ms));
                }
            }
            Input::BackgroundTasks(running) => {
                if let Some(agent) = self.agent_mut() {
                    agent.background = running;
                    agent.result_at = agent.result_at.map(|_| now.mono_ms);
                }
            }
            Input::AgentEnded(report) => self.agent_ended(step, *report),
            Input::GuardrailEnded { failed } => self.guardrail_ended(step, failed),
            Input::ScmStatus(result) => self.on_scm_status(step, result),
            Input::CommitGuardChecked(result) => self.on_commit_guard(step, result),
            Input::ScmTaskEnded { ok, feedback } => {
                self.iteration.scm.feedback.extend(feedback);
                self.scm_task_ended(step, ok);
            }
            Input::GatesChecked(verdict) => self.gates_checked(step, verdict),
            Input::StallChecked { fingerprint } => {
                self.on_stall_check(step, fingerprint);
            }
            Input::CommitsFound { head, commits, job_runs } => {
                let by_others = !(job_runs && self.job_may_commit());
                self.emit(step, Event::Repository { head: head.into(), commits, by_others });
            }
            Input::Timer => self.on_timer(step),
            Input::Refusals(hosts) => self.on_refusals(step, hosts),
            Input::Signal(signal) => self.on_signal(step, signal),
            Input::Stop { signal, now: at_once } => {
                self.request_stop(step, signal, at_once);
            }
            Input::StopAfterIteration { signal } => {
                self.request_stop_as(step, signal, StopMode::AfterIteration);
            }
            Input::Pause => self.request_pause(step),
            Input::Tell { id, text, now, every } => self.on_tell(step, id, text, now, every),
            Input::ClearGuidance { id } => self.clear_guidance(step, id),
            Input::Asked { id, text, story } => self.on_question(step, id, text, story),
            Input::Answered { question, text } => self.on_answer(step, question, text),
            Input::StoryFound(found) => self.on_story_found(step, found),
            Input::Resume { max_iterations } => {
                if !self.is_finished() && std::mem::replace(&mut self.steering.pause, false) {
                    self.rules.max_iterations = max_iterations.unwrap_or(self.rules.max_iterations);
                    self.resume(step);
                }
            }
            Input::EndNotRecorded { message } => self.on_end_not_recorded(step, message),
            Input::InternalError { message } => {
                if !self.is_finished() {
                    self.steering.stop = Some(StopMode::InternalError(message));
                    self.apply_stop(step);
                    self.stop_if_idle(step);
                }
            }
        }
        std::mem::take(&mut step.actions)
    }

    fn emit(&self, step: &mut Step, event: Event<'static>) {
        step.push(Action::Emit(self.stamp(step.now), event));
    }

    /// Starts with what the journal already decides: that needs no agent.
    fn start(&mut self, step: &mut Step) {
        self.iteration.started = step.now.mono_ms;
        match std::mem::take(&mut self.resume.pending) {
            Pending::Nothing if self.iteration.is_initial_check => self.run_checks(step),
            Pending::Nothing => self.next_iteration(step),
            Pending::Ended(report) | Pending::Unchecked(report) => {
                self.classify_attempt(step, *report)
            }
            Pending::Checked { class, complete, found } => {
                self.retries.record_success();
                (self.iteration.class, self.iteration.complete, self.iteration.found) =
                    (class, complete, found);
                self.iteration.checks.passed = Some(true);
                self.stall.record_guardrails(&[]);
                self.check_gates_or_end(step);
            }
            Pending::Complete => self.end_complete(step),
        }
    }

    fn next_iteration(&mut self, step: &mut Step) {
        if self.finish_if_due(step, true) {
            return;
        }
        if self.iteration.number >= self.rules.max_iterations {
            let n = self.iteration.number;
            let s = if n == 1 { "" } else { "s" };
            // If failures are retried in the same iteration, none ends with one.
            if self.retries.failures > 0 && !self.retries.any_succeeded {
                let message = format!("every iteration failed ({n} iteration{s})");
                let exit_code = self.rules.retry.exit_code;
                return self.finish(step, Outcome::AgentFailed, exit_code, message);
            }
            let message = format!("the limit of {n} iteration{s} was reached without completion");
            return self.finish(step, Outcome::LimitReached, self.rules.exit_at_limit, message);
        }
        if self.steering.pause {
            return self.enter_pause(step, false);
        }
        if self.waits_for_answer(step) {
            return;
        }
        self.check_stall_or_start(step);
    }

    fn check_stall_or_start(&mut self, step: &mut Step) {
        if self.stall.needs_check() {
            return self.start_job(step, Job::StallCheck);
        }
        self.start_iteration(step);
    }

    fn start_iteration(&mut self, step: &mut Step) {
        self.stall.start_iteration();
        let number = self.iteration.number + 1;
        self.iteration = Iteration::new(number, step.now);
        match self.resume.cut_off.take().filter(|open| open.iteration == number) {
            // The time and money of its first try count against its budget.
            Some(open) => self.iteration.worked_ms = open.worked_ms,
            None => self.totals.spending.start_iteration(),
        }
        let event = Event::IterationStarted { max_iterations: self.rules.max_iterations };
        self.emit(step, event);
        self.retry(step);
    }
}

#[cfg(test)]
mod tests;
