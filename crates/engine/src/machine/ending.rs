//! Pausing, stopping, and the end of a run.

use super::super::rules::RetryScope;
use super::{Action, GuardrailEnd, LoopMachine, Now, Phase, StopMode};
use ralph_events::attempt;
use ralph_events::event::{Class, EndCause, Event, Outcome, WaitReason};
use ralph_events::exit_code;

/// How and why a run ends.
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
        if self.phase != Phase::Finished && !std::mem::replace(&mut self.pause, true) {
            out.push(Action::Emit(Event::PauseRequested));
            // There is no use in waiting for what is not to be done.
            if let Phase::Waiting { reason, .. } = self.phase {
                self.enter_pause(now, self.is_retry_wait(reason), out);
            }
        }
    }

    /// What follows such a wait is another attempt at the same iteration.
    pub(super) fn is_retry_wait(&self, reason: WaitReason) -> bool {
        reason != WaitReason::Backoff
            || !matches!(self.rules.retry.scope, RetryScope::NextIteration { .. })
    }

    pub(super) fn enter_pause(&mut self, now: Now, again: bool, out: &mut Vec<Action>) {
        self.phase = Phase::Paused { since: now.mono_ms, again };
        out.push(Action::Emit(Event::Paused));
        out.push(Action::Save);
    }

    pub(super) fn resume(&mut self, now: Now, out: &mut Vec<Action>) {
        let max_iterations = self.rules.max_iterations;
        out.push(Action::Emit(Event::Resumed { max_iterations }));
        if let Phase::Paused { since, again } = self.phase {
            self.exclude_pause(now, since);
            if again { self.retry(now, out) } else { self.next_iteration(now, out) }
        }
    }

    /// Leaves a pause out of the time of the run and of its iteration.
    fn exclude_pause(&mut self, now: Now, since: u64) {
        let paused_ms = now.mono_ms.saturating_sub(since);
        self.run_started = self.run_started.saturating_add(paused_ms);
        self.iteration_started = self.iteration_started.saturating_add(paused_ms);
    }

    pub(super) fn request_stop(
        &mut self,
        now: Now,
        signal: &'static str,
        at_once: bool,
        out: &mut Vec<Action>,
    ) {
        if self.phase == Phase::Finished {
            return;
        }
        out.push(Action::Emit(Event::StopRequested { signal: signal.into(), now: at_once }));
        if matches!(self.stop, None | Some(StopMode::Graceful)) {
            self.stop = Some(if at_once { StopMode::Now } else { StopMode::Graceful });
        }
        self.apply_stop(out);
        self.stop_if_idle(now, out);
    }

    /// Somebody, or something, wants the run to end and lets nothing finish.
    pub fn is_immediate_stop(&self) -> bool {
        matches!(self.stop, Some(StopMode::Now | StopMode::Broken(_)))
    }

    /// Ends what is running, if it may not finish. The end of it is still to be heard of.
    pub(super) fn apply_stop(&mut self, out: &mut Vec<Action>) {
        let cause = match self.stop {
            None | Some(StopMode::Graceful) => return,
            Some(StopMode::Now) => EndCause::Interrupt,
            Some(StopMode::Broken(_)) => EndCause::Broken,
        };
        match &mut self.phase {
            Phase::Agent { .. } => self.end_agent(cause, out),
            Phase::Guardrail { ending: ending @ None, .. } => {
                *ending = Some(GuardrailEnd::CutOff);
                out.push(Action::EndGuardrail { timed_out: false });
            }
            Phase::LookingAtScm { .. }
            | Phase::LookingAtStaged { .. }
            | Phase::Scm { .. }
            | Phase::Looking { .. } => self.end_scm(false, out),
            _ => {}
        }
    }

    /// A stop that finds nothing running takes effect at once.
    pub(super) fn stop_if_idle(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Phase::Paused { since, .. } = self.phase {
            self.exclude_pause(now, since);
        }
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Paused { .. } | Phase::New) {
            // What was to be tried again never was.
            self.class = Class::Interrupted;
            self.finish_stopped(now, out);
        }
    }

    pub(super) fn finish_stopped(&mut self, now: Now, out: &mut Vec<Action>) {
        match self.stop.take() {
            Some(StopMode::Broken(message)) => {
                self.finish(now, Outcome::Broken, exit_code::USAGE, message, out)
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

    /// Ends the run because attempts failed `self.failures` times in a row, the last one with `failure`.
    pub(super) fn give_up(&mut self, now: Now, failure: String, out: &mut Vec<Action>) {
        let message = attempt::retries_exhausted_message(self.failures, &failure);
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
        if self.phase == Phase::Finished {
            return;
        }
        let RunEnding { outcome, exit_code, message, last_failure, used_up } = ending;
        let complete = matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
        if !complete {
            self.complete = false;
        }
        // What guardrails have said so far is for whoever goes on.
        let said = std::mem::take(&mut self.new_feedback);
        if !said.is_empty() {
            self.guardrails_passed = Some(false);
            self.set_feedback(said, out);
        }
        // Only one that completes the run is checked to its end and still open. Its end and that of the run
        // are written together: whoever finds the one without the other would have to guess.
        let cut_off = self.iteration_open && !complete;
        self.end_iteration(now, !complete, out);
        self.phase = Phase::Finished;
        out.push(Action::Emit(Event::RunEnded {
            outcome,
            exit_code,
            message: message.into(),
            iterations: self.iteration,
            cut_off,
            duration_ms: self.active_ms(now),
            usage: self.spending.reported(),
            tools: self.tools,
            tool_errors: self.tool_errors,
            // The driver fills these in: only it knows the notification command and the repository.
            notify: false,
            branch: None,
            last_failure: last_failure.map(Into::into),
            used_up: used_up.map(Into::into),
        }));
        out.push(Action::Save);
        out.push(Action::Finish { outcome, exit_code });
    }
}
