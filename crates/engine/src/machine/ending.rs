//! Pausing, stopping, and the end of a run.

use super::super::rules::RetryScope;
use super::state::StopMode;
use super::{Action, FinalChecks, JobEnd, LoopMachine, Now, Phase, StopSignal};
use ralph_events::attempt;
use ralph_events::event::{Class, EndCause, Event, Outcome, WaitReason};
use ralph_events::exit_code;

struct RunEnding {
    outcome: Outcome,
    exit_code: u8,
    message: String,
    last_failure: Option<String>,
    used_up: Option<String>,
}

impl RunEnding {
    fn new(outcome: Outcome, exit_code: u8, message: String) -> RunEnding {
        RunEnding { outcome, exit_code, message, last_failure: None, used_up: None }
    }
}

impl LoopMachine {
    pub(super) fn request_pause(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.is_finished() && !std::mem::replace(&mut self.steering.pause, true) {
            self.emit(now, Event::PauseRequested, out);
            if let Phase::Waiting { reason, .. } = self.phase {
                self.enter_pause(now, self.is_retry_wait(reason), out);
            }
        }
    }

    /// Whether the wait is followed by another attempt at the same iteration.
    pub(super) fn is_retry_wait(&self, reason: WaitReason) -> bool {
        reason != WaitReason::Backoff
            || !matches!(self.rules.retry.scope, RetryScope::NextIteration { .. })
    }

    pub(super) fn enter_pause(&mut self, now: Now, retry: bool, out: &mut Vec<Action>) {
        self.phase = Phase::Paused { since: now.mono_ms, retry };
        self.emit(now, Event::Paused, out);
        out.push(Action::Save);
    }

    pub(super) fn resume(&mut self, now: Now, out: &mut Vec<Action>) {
        self.steering.signals = 0;
        let max_iterations = self.rules.max_iterations;
        self.emit(now, Event::Resumed { max_iterations }, out);
        if let Phase::Paused { since, retry } = self.phase {
            self.exclude_pause(now, since);
            if retry { self.retry(now, out) } else { self.next_iteration(now, out) }
        }
    }

    /// The first signal lets the job finish, the second ends it, the third kills it.
    pub(super) fn on_signal(&mut self, now: Now, signal: StopSignal, out: &mut Vec<Action>) {
        let earlier = self.steering.signals;
        self.steering.signals = earlier.saturating_add(1);
        if signal == StopSignal::Terminate && self.rules.term_pauses && earlier == 0 {
            return self.request_pause(now, out);
        }
        if earlier >= 2 && matches!(self.phase, Phase::Running { .. }) {
            out.push(Action::KillJob);
        }
        let at_once = signal.is_immediate() || earlier >= 1;
        self.request_stop(now, signal.name(), at_once, out);
    }

    /// Since the start or the end of the last pause.
    pub fn was_signalled(&self) -> bool {
        self.steering.signals > 0
    }

    /// Leaves a pause out of the time of the run and of its iteration.
    fn exclude_pause(&mut self, now: Now, since: u64) {
        let paused_ms = now.mono_ms.saturating_sub(since);
        self.clock.started = self.clock.started.saturating_add(paused_ms);
        self.iteration.started = self.iteration.started.saturating_add(paused_ms);
    }

    pub(super) fn request_stop(
        &mut self,
        now: Now,
        signal: &'static str,
        at_once: bool,
        out: &mut Vec<Action>,
    ) {
        if self.is_finished() {
            return;
        }
        self.emit(now, Event::StopRequested { signal: signal.into(), now: at_once }, out);
        if matches!(self.steering.stop, None | Some(StopMode::Graceful)) {
            self.steering.stop = Some(if at_once { StopMode::Now } else { StopMode::Graceful });
        }
        self.apply_stop(out);
        self.stop_if_idle(now, out);
    }

    /// The run has to end without waiting for the running job.
    pub fn is_immediate_stop(&self) -> bool {
        matches!(self.steering.stop, Some(StopMode::Now | StopMode::InternalError(_)))
    }

    pub(super) fn apply_stop(&mut self, out: &mut Vec<Action>) {
        let cause = match self.steering.stop {
            None | Some(StopMode::Graceful) => return,
            Some(StopMode::Now) => EndCause::Interrupt,
            Some(StopMode::InternalError(_)) => EndCause::InternalError,
        };
        self.end_job(JobEnd::CutOff(cause), out);
    }

    pub(super) fn stop_if_idle(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Phase::Paused { since, .. } = self.phase {
            self.exclude_pause(now, since);
        }
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Paused { .. } | Phase::New) {
            // The retry never happened.
            self.iteration.class = Class::Interrupted;
            self.finish_stopped(now, out);
        }
    }

    pub(super) fn finish_stopped(&mut self, now: Now, out: &mut Vec<Action>) {
        match self.steering.stop.take() {
            Some(StopMode::InternalError(message)) => {
                self.finish(now, Outcome::InternalError, exit_code::USAGE, message, out)
            }
            _ => self.finish(
                now,
                Outcome::Interrupted,
                exit_code::INTERRUPTED,
                "interrupted".to_owned(),
                out,
            ),
        }
    }

    pub(super) fn finish_by_budget(&mut self, now: Now, used_up: &str, out: &mut Vec<Action>) {
        let ending = RunEnding {
            used_up: Some(used_up.to_owned()),
            ..RunEnding::new(
                Outcome::Budget,
                exit_code::BUDGET,
                attempt::budget_exceeded_message(used_up),
            )
        };
        self.finish_with(now, ending, out);
    }

    /// Ends the run after too many failures in a row.
    pub(super) fn give_up(&mut self, now: Now, failure: String, out: &mut Vec<Action>) {
        let message = attempt::retries_exhausted_message(self.retries.failures, &failure);
        let exit_code = self.rules.retry.exit_code;
        let ending = RunEnding {
            last_failure: Some(failure),
            ..RunEnding::new(Outcome::AgentFailed, exit_code, message)
        };
        self.finish_with(now, ending, out);
    }

    pub(super) fn finish(
        &mut self,
        now: Now,
        outcome: Outcome,
        exit_code: u8,
        message: String,
        out: &mut Vec<Action>,
    ) {
        self.finish_with(now, RunEnding::new(outcome, exit_code, message), out);
    }

    fn finish_with(&mut self, now: Now, ending: RunEnding, out: &mut Vec<Action>) {
        if self.is_finished() {
            return;
        }
        let RunEnding { outcome, exit_code, message, last_failure, used_up } = ending;
        let complete = matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
        if !complete {
            self.iteration.complete = false;
        }
        // Guardrail results so far are kept for a resumed run.
        let failed = std::mem::take(&mut self.iteration.checks.failed);
        if !failed.is_empty() {
            self.iteration.checks.passed = Some(false);
            self.set_feedback(now, failed, out);
        }
        // Only a completing iteration is still open and fully checked here. Its end and the run's are written
        // together: one alone would be ambiguous.
        let cut_off = self.iteration.is_open && !complete;
        self.end_iteration(now, !complete, out);
        self.phase = Phase::Finished(outcome);
        out.push(Action::RunFinalChecks(FinalChecks {
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
            duration_ms: self.clock.active_ms(now.mono_ms),
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
        self.emit(now, event, out);
        out.push(Action::Save);
        out.push(Action::Finish { outcome, exit_code });
    }

    /// The exit code must not claim an outcome that the journal lacks.
    pub(super) fn on_end_not_recorded(&mut self, now: Now, message: String, out: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Finished(outcome) if outcome != Outcome::InternalError) {
            self.phase = Phase::Finished(Outcome::InternalError);
            self.emit(now, Event::Warning { message: message.into() }, out);
            out.push(Action::Finish {
                outcome: Outcome::InternalError,
                exit_code: exit_code::USAGE,
            });
        }
    }
}
