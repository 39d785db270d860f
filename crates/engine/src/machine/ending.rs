//! Pausing, stopping, and the end of a run.

use super::super::rules::RetryScope;
use super::state::StopMode;
use super::{Action, FinalChecks, JobEnd, LoopMachine, Now, Phase, Step, StopSignal};
use ralph_events::attempt;
use ralph_events::event::{Class, EndCause, Event, Outcome, WaitReason};
use ralph_events::exit_code;

impl LoopMachine {
    pub(super) fn request_pause(&mut self, step: &mut Step) {
        if !self.is_finished() && !std::mem::replace(&mut self.steering.pause, true) {
            self.emit(step, Event::PauseRequested);
            match self.phase {
                Phase::Waiting { reason, .. } => {
                    self.enter_pause(step, self.is_retry_wait(reason));
                }
                Phase::Parked { since } => {
                    self.leave_park(step, since);
                    self.enter_pause(step, false);
                }
                _ => {}
            }
        }
    }

    /// Whether the wait is followed by another attempt at the same iteration.
    pub(super) fn is_retry_wait(&self, reason: WaitReason) -> bool {
        reason != WaitReason::Backoff
            || !matches!(self.rules.retry.scope, RetryScope::NextIteration { .. })
    }

    pub(super) fn enter_pause(&mut self, step: &mut Step, retry: bool) {
        self.phase = Phase::Paused { since: step.now.mono_ms, retry };
        self.emit(step, Event::Paused);
        step.push(Action::Save);
    }

    pub(super) fn resume(&mut self, step: &mut Step) {
        self.steering.signals = 0;
        let max_iterations = self.rules.max_iterations;
        self.emit(step, Event::Resumed { max_iterations });
        if let Phase::Paused { since, retry } = self.phase {
            self.exclude_pause(step.now, since);
            if retry { self.retry(step) } else { self.next_iteration(step) }
        }
    }

    /// The first signal lets the job finish, the second ends it, the third kills it.
    pub(super) fn on_signal(&mut self, step: &mut Step, signal: StopSignal) {
        let earlier = self.steering.signals;
        self.steering.signals = earlier.saturating_add(1);
        if signal == StopSignal::Terminate && self.rules.term_pauses && earlier == 0 {
            return self.request_pause(step);
        }
        if earlier >= 2 && matches!(self.phase, Phase::Running { .. }) {
            step.push(Action::KillJob);
        }
        let at_once = signal.is_immediate() || earlier >= 1;
        self.request_stop(step, signal.name(), at_once);
    }

    /// Since the start or the end of the last pause.
    pub fn was_signalled(&self) -> bool {
        self.steering.signals > 0
    }

    /// Leaves a pause out of the time of the run and of its iteration.
    pub(super) fn exclude_pause(&mut self, now: Now, since: u64) {
        let paused_ms = now.mono_ms.saturating_sub(since);
        self.clock.started = self.clock.started.saturating_add(paused_ms);
        self.iteration.started = self.iteration.started.saturating_add(paused_ms);
    }

    pub(super) fn request_stop(&mut self, step: &mut Step, signal: &'static str, at_once: bool) {
        let mode = if at_once { StopMode::Now } else { StopMode::Graceful };
        self.request_stop_as(step, signal, mode);
    }

    pub(super) fn request_stop_as(&mut self, step: &mut Step, signal: &'static str, to: StopMode) {
        if self.is_finished() {
            return;
        }
        let now = to == StopMode::Now;
        self.emit(step, Event::StopRequested { signal: signal.into(), now });
        match (&self.steering.stop, &to) {
            // An earlier request asks for more.
            (Some(StopMode::Now | StopMode::InternalError(_)), _)
            | (Some(StopMode::Graceful), StopMode::AfterIteration) => {}
            _ => self.steering.stop = Some(to),
        }
        self.apply_stop(step);
        self.stop_if_idle(step);
    }

    /// The run has to end without waiting for the running job.
    pub fn is_immediate_stop(&self) -> bool {
        matches!(self.steering.stop, Some(StopMode::Now | StopMode::InternalError(_)))
    }

    pub(super) fn apply_stop(&mut self, step: &mut Step) {
        let cause = match self.steering.stop {
            None | Some(StopMode::AfterIteration | StopMode::Graceful) => return,
            Some(StopMode::Now) => EndCause::Interrupt,
            Some(StopMode::InternalError(_)) => EndCause::InternalError,
        };
        self.end_job(step, JobEnd::CutOff(cause));
    }

    pub(super) fn stop_if_idle(&mut self, step: &mut Step) {
        if let Phase::Paused { since, .. } | Phase::Parked { since } = self.phase {
            self.exclude_pause(step.now, since);
        }
        let is_idle = matches!(
            self.phase,
            Phase::Waiting { .. } | Phase::Paused { .. } | Phase::Parked { .. } | Phase::New
        );
        if is_idle {
            // The retry never happened.
            self.iteration.class = Class::Interrupted;
            self.finish_stopped(step);
        }
    }

    /// Ends the run if it has to stop within the iteration, or if its budget is used up. Returns whether it did.
    pub(super) fn finish_if_due(&mut self, step: &mut Step, check_budget: bool) -> bool {
        let is_between = !self.iteration.is_open && self.steering.stop.is_some();
        if is_between || self.steering.ends_iteration() {
            self.finish_stopped(step);
            return true;
        }
        let used_up = self.run_budget_exceeded(step.now).filter(|_| check_budget);
        if let Some(used_up) = &used_up {
            self.finish_by_budget(step, used_up);
        }
        used_up.is_some()
    }

    pub(super) fn finish_stopped(&mut self, step: &mut Step) {
        match self.steering.stop.take() {
            Some(StopMode::InternalError(message)) => {
                self.finish(step, Outcome::InternalError, exit_code::USAGE, message)
            }
            _ => self.finish(
                step,
                Outcome::Interrupted,
                exit_code::INTERRUPTED,
                "interrupted".to_owned(),
            ),
        }
    }

    pub(super) fn finish_by_budget(&mut self, step: &mut Step, used_up: &str) {
        let message = attempt::budget_exceeded_message(used_up);
        let used_up = Some(used_up.to_owned());
        self.finish_with(step, Outcome::Budget, exit_code::BUDGET, message, None, used_up);
    }

    /// Ends the run after too many failures in a row.
    pub(super) fn give_up(&mut self, step: &mut Step, failure: String) {
        let message = attempt::retries_exhausted_message(self.retries.failures, &failure);
        let exit_code = self.rules.retry.exit_code;
        self.finish_with(step, Outcome::AgentFailed, exit_code, message, Some(failure), None);
    }

    pub(super) fn finish(
        &mut self,
        step: &mut Step,
        outcome: Outcome,
        exit_code: u8,
        message: String,
    ) {
        self.finish_with(step, outcome, exit_code, message, None, None);
    }

    fn finish_with(
        &mut self,
        step: &mut Step,
        outcome: Outcome,
        exit_code: u8,
        message: String,
        last_failure: Option<String>,
        used_up: Option<String>,
    ) {
        if self.is_finished() {
            return;
        }
        let complete = matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
        if !complete {
            self.iteration.complete = false;
        }
        // Guardrail results so far are kept for a resumed run.
        let failed = std::mem::take(&mut self.iteration.checks.failed);
        if !failed.is_empty() {
            self.iteration.checks.passed = Some(false);
            self.set_feedback(step, failed);
        }
        // Only a completing iteration is still open and fully checked here. Its end and the run's are written
        // together: one alone would be ambiguous.
        let cut_off = self.iteration.is_open && !complete;
        self.end_iteration(step, !complete);
        self.phase = Phase::Finished(outcome);
        step.push(Action::RunFinalChecks(FinalChecks {
            uncommitted: complete,
            required_outputs: exit_code == exit_code::SUCCESS,
            missing_signal: outcome == Outcome::LimitReached,
        }));
        let event = Event::RunEnded {
            outcome,
            exit_code,
            message: message.into(),
            iterations: self.iteration.number,
            cut_off,
            duration_ms: self.clock.active_ms(step.now.mono_ms),
            usage: self.totals.spending.reported(),
            tools: self.totals.tools,
            tool_errors: self.totals.tool_errors,
            // Recorded with the end, because ralph may be killed right after it.
            notify: self.rules.notify,
            // Filled in by the driver, which knows the repository.
            branch: None,
            last_failure: last_failure.map(Into::into),
            used_up: used_up.map(Into::into),
        };
        self.emit(step, event);
        step.push(Action::Save);
        step.push(Action::Finish { outcome, exit_code });
    }

    /// The exit code must not claim an outcome that the journal lacks.
    pub(super) fn on_end_not_recorded(&mut self, step: &mut Step, message: String) {
        if matches!(self.phase, Phase::Finished(outcome) if outcome != Outcome::InternalError) {
            self.phase = Phase::Finished(Outcome::InternalError);
            self.emit(step, Event::Warning { message: message.into() });
            step.push(Action::Finish {
                outcome: Outcome::InternalError,
                exit_code: exit_code::USAGE,
            });
        }
    }
}
