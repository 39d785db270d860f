//! The checks after an answer: guardrails, SCM tasks, the completion rule, gates.

use super::super::rules::ScmTaskKind;
use super::super::stall::StallDecision;
use super::iteration::Checks;
use super::state::{PromptFeedback, StopMode};
use super::timers::FINAL_SCM_GRACE_MS;
use super::{
    Action, CommitGuardResult, GateVerdict, Job, JobEnd, LoopMachine, Phase, ScmStatus, Step,
};
use ralph_events::event::{Class, Event, Feedback, Outcome, Purpose, StallReason};
use ralph_events::exit_code;

impl LoopMachine {
    pub(super) fn run_checks(&mut self, step: &mut Step) {
        self.iteration.checks = Checks::default();
        self.run_guardrail(step, 0);
    }

    fn run_guardrail(&mut self, step: &mut Step, index: usize) {
        if index < self.rules.guardrails.len() {
            return self.start_job(step, Job::Guardrail(index));
        }
        let passed = self.iteration.checks.failed.is_empty();
        self.iteration.checks.passed = Some(passed);
        if !self.iteration.is_initial_check {
            self.stall.record_guardrails(&self.iteration.checks.failed);
        }
        if self.iteration.is_initial_check || (!passed && self.rules.gates) {
            // The gates may add feedback. There is nothing to commit yet.
            self.iteration.complete = false;
            return self.check_gates(step);
        }
        let feedback = std::mem::take(&mut self.iteration.checks.failed);
        self.set_feedback(step, feedback);
        if !passed {
            self.iteration.complete = false;
            self.finish_iteration(step);
        } else if self.rules.scm.is_empty() {
            self.check_completion(step);
        } else if !self.rules.scm.contains(&ScmTaskKind::Commit) {
            self.run_scm_task(step, 0);
        } else {
            self.start_job(step, Job::ScmStatus);
        }
    }

    pub(super) fn guardrail_ended(&mut self, step: &mut Step, failed: Option<Feedback>) {
        let Phase::Running { job: Job::Guardrail(index), ending, .. } = self.phase else {
            return;
        };
        let finished = !matches!(ending, Some(JobEnd::CutOff(_)));
        if finished {
            self.iteration.checks.failed.extend(failed);
        }
        if self.steering.ends_iteration() && !(finished && self.may_check_gates(index + 1)) {
            return self.finish_stopped(step);
        }
        if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(step.now)
        {
            return self.finish_by_budget(step, &used_up);
        }
        self.run_guardrail(step, index + 1);
    }

    pub(super) fn set_feedback(&mut self, step: &mut Step, feedback: Vec<Feedback>) {
        if !feedback.is_empty() || !self.feedback.is_empty() {
            self.emit(step, Event::FeedbackSet { parts: feedback.clone() });
        }
        self.feedback = PromptFeedback::carried(feedback);
    }

    pub(super) fn on_scm_status(&mut self, step: &mut Step, status: ScmStatus) {
        let Phase::Running { job: Job::ScmStatus, ending, .. } = self.phase else { return };
        self.iteration.scm.is_dirty = matches!(status, ScmStatus::Dirty { .. });
        if self.finish_if_due(step, ending.is_some()) {
            return;
        }
        match status {
            ScmStatus::Clean => self.request_commit_message(step),
            ScmStatus::Dirty { has_message } => {
                self.iteration.scm.has_message |= has_message;
                self.request_commit_message(step);
            }
            ScmStatus::Failed(feedback) => {
                self.iteration.scm.feedback.extend(feedback);
                self.totals.scm_failed = true;
                self.check_completion(step);
            }
        }
    }

    /// Unless none is needed or the budget is used up.
    pub(super) fn request_commit_message(&mut self, step: &mut Step) {
        if !self.iteration.scm.is_dirty {
            return self.run_scm_task(step, 0);
        }
        if std::mem::take(&mut self.iteration.scm.has_message) {
            // Paid for already: before the run was cut off, or for a commit that failed.
            self.iteration.scm.grace_until = step.now.mono_ms.saturating_add(FINAL_SCM_GRACE_MS);
            return self.run_scm_task(step, 0);
        }
        let why = if self.totals.message_agent_meddles {
            "the agent changed files when it was last asked for a commit message"
        } else if self.run_budget_exceeded(step.now).is_some() {
            "the budget is used up"
        } else if self.iteration_budget_exceeded(self.iteration.worked_ms) {
            "the iteration's budget is used up"
        } else {
            return self.start_agent(step, Purpose::CommitMessage);
        };
        self.commit_with_default_message(step, why);
    }

    fn commit_with_default_message(&mut self, step: &mut Step, why: &str) {
        let message = format!("{why}; committing with a default message");
        self.emit(step, Event::Warning { message: message.into() });
        self.iteration.scm.grace_until = step.now.mono_ms.saturating_add(FINAL_SCM_GRACE_MS);
        self.run_scm_task(step, 0);
    }

    pub(super) fn run_scm_task(&mut self, step: &mut Step, index: usize) {
        match self.rules.scm.get(index) {
            None => self.check_completion(step),
            Some(ScmTaskKind::Commit) if !self.iteration.scm.is_dirty => {
                step.push(Action::SkipScmTask(index, "nothing to commit"));
                self.totals.scm_failed = false;
                self.run_scm_task(step, index + 1);
            }
            Some(_) => {
                self.start_job(step, Job::ScmTask(index));
            }
        }
    }

    pub(super) fn scm_task_ended(&mut self, step: &mut Step, ok: bool) {
        let Phase::Running { job: Job::ScmTask(index), ending, .. } = self.phase else { return };
        self.totals.scm_failed = !ok;
        let last = ending.is_none() && (!ok || index + 1 >= self.rules.scm.len());
        let is_graceful = self.steering.stop == Some(StopMode::Graceful);
        if self.steering.ends_iteration() && !(last && is_graceful) {
            self.finish_stopped(step);
        } else if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(step.now)
        {
            self.finish_by_budget(step, &used_up);
        } else if ok {
            self.run_scm_task(step, index + 1);
        } else {
            self.check_completion(step);
        }
    }

    /// Commits what was checked and staged. Other changes prevent completion until guardrails have judged them.
    pub(super) fn on_commit_guard(&mut self, step: &mut Step, result: CommitGuardResult) {
        let Phase::Running { job: Job::CommitGuard { has_message }, ending, .. } = self.phase
        else {
            return;
        };
        if self.finish_if_due(step, ending.is_some()) {
            return;
        }
        let moved = matches!(result, CommitGuardResult::Moved(_));
        if let CommitGuardResult::ChangedBeside(unseen) | CommitGuardResult::Moved(unseen) = result
        {
            self.iteration.scm.feedback.push(unseen.feedback);
            self.iteration.checks.changed_since = Some(unseen.reason);
            self.totals.message_agent_meddles = true;
        }
        match (moved, has_message) {
            (true, _) => self.check_completion(step),
            (false, true) => self.run_scm_task(step, 0),
            (false, false) => self.on_missing_commit_message(step),
        }
    }

    pub(super) fn on_missing_commit_message(&mut self, step: &mut Step) {
        if self.steering.ends_iteration() {
            return self.finish_stopped(step);
        }
        self.commit_with_default_message(step, "the agent gave no commit message");
    }

    pub(super) fn check_completion(&mut self, step: &mut Step) {
        if let Some(reason) = self.iteration.checks.changed_since.clone() {
            // No `CompletionChecked` is emitted, so a resumed run repeats all checks.
            if std::mem::take(&mut self.iteration.complete) {
                self.emit(step, Event::Vetoed { reason: reason.into() });
            }
            return self.check_gates_or_end(step);
        }
        let found = self.iteration.found.clone().map(Into::into);
        let (complete, scm_failed) = (self.iteration.complete, self.totals.scm_failed);
        self.emit(step, Event::CompletionChecked { complete, found, scm_failed });
        self.check_gates_or_end(step);
    }

    pub(super) fn check_gates_or_end(&mut self, step: &mut Step) {
        if self.rules.gates {
            self.check_gates(step);
        } else {
            self.finish_iteration(step);
        }
    }

    fn check_gates(&mut self, step: &mut Step) {
        self.phase = Phase::CheckingGates;
        step.push(Action::CheckGates {
            claimed: self.iteration.complete,
            checks_passed: self.iteration.checks.are_current(),
        });
    }

    pub(super) fn gates_checked(&mut self, step: &mut Step, verdict: GateVerdict) {
        if self.phase != Phase::CheckingGates {
            return;
        }
        let mut feedback = std::mem::take(&mut self.iteration.checks.failed);
        match verdict {
            GateVerdict::Neutral => {}
            GateVerdict::Complete => self.iteration.complete = self.iteration.checks.are_current(),
            GateVerdict::Veto { reason, feedback: more } => {
                if std::mem::take(&mut self.iteration.complete) || self.iteration.is_initial_check {
                    self.emit(step, Event::Vetoed { reason: reason.into() });
                }
                feedback.extend(more);
            }
        }
        if !self.iteration.complete {
            feedback.append(&mut self.iteration.scm.feedback);
        }
        self.set_feedback(step, feedback);
        self.finish_iteration(step);
    }

    /// After a graceful stop, a result counts if judging it needs no further process.
    pub(super) fn may_check_gates(&self, next_guardrail: usize) -> bool {
        let failed = next_guardrail > 0 && !self.iteration.checks.failed.is_empty();
        self.steering.stop == Some(StopMode::Graceful)
            && self.iteration.class == Class::Answered
            && next_guardrail >= self.rules.guardrails.len()
            && self.rules.scm.is_empty()
            && !failed
    }

    fn finish_iteration(&mut self, step: &mut Step) {
        // After a graceful stop, the iteration is still judged.
        let is_graceful =
            matches!(self.steering.stop, Some(StopMode::Graceful | StopMode::AfterIteration));
        let judged = is_graceful && !self.iteration.is_initial_check;
        if self.steering.stop.is_some() && !judged {
            return self.finish_stopped(step);
        }
        let opening = std::mem::take(&mut self.iteration.is_initial_check);
        if !self.iteration.complete {
            let feedback = std::mem::take(&mut self.iteration.scm.feedback);
            if !feedback.is_empty() {
                self.set_feedback(step, feedback);
            }
            self.end_iteration(step, false);
            step.push(Action::Save);
            return self.next_iteration(step);
        }
        if opening {
            let message = "nothing to do: every check passes".to_owned();
            return self.finish(step, Outcome::Complete, exit_code::SUCCESS, message);
        }
        self.end_complete(step);
    }

    pub(super) fn end_complete(&mut self, step: &mut Step) {
        let n = self.iteration.number;
        let after = format!("after {n} iteration{}", if n == 1 { "" } else { "s" });
        if self.totals.scm_failed {
            let message = format!("complete {after}, but an SCM task failed");
            self.finish(step, Outcome::CompleteScmFailed, exit_code::SCM_FAILED, message);
        } else {
            self.finish(step, Outcome::Complete, exit_code::SUCCESS, format!("complete {after}"));
        }
    }

    pub(super) fn end_iteration(&mut self, step: &mut Step, cut_off: bool) {
        if !std::mem::replace(&mut self.iteration.is_open, false) {
            return;
        }
        let duration_ms = step.now.mono_ms.saturating_sub(self.iteration.started);
        self.stall.end_iteration(duration_ms);
        let event = Event::IterationEnded {
            class: self.iteration.class,
            guardrails_passed: self.iteration.checks.passed,
            complete: self.iteration.complete && self.iteration.checks.are_current(),
            cut_off,
            duration_ms,
            usage: self.totals.spending.iteration(),
        };
        self.say(step, event);
    }

    pub(super) fn on_stall_check(&mut self, step: &mut Step, fingerprint: Option<u64>) {
        let Phase::Running { job: Job::StallCheck, .. } = self.phase else { return };
        let verdict = self.stall.record_fingerprint(fingerprint);
        let seen = self.stall.snapshot();
        let event = Event::StallChecked {
            unchanged: seen.unchanged,
            same_failures: seen.same_failures,
            fingerprint: fingerprint.map(|number| format!("{number:016x}").into()),
        };
        self.emit(step, event);
        if self.finish_if_due(step, true) {
            return;
        }
        match verdict {
            StallDecision::Continue => {}
            StallDecision::Warn { reason, iterations } => {
                let limit = self.stall.stops_after();
                self.emit(step, Event::StallWarning { reason, iterations, limit });
            }
            StallDecision::Stop { reason, iterations } => {
                let message = stalled_message(reason, iterations);
                return self.finish(step, Outcome::Stalled, exit_code::BUDGET, message);
            }
        }
        if self.steering.pause {
            return self.enter_pause(step, false);
        }
        self.start_iteration(step);
    }
}

fn stalled_message(reason: StallReason, iterations: u32) -> String {
    match (reason, iterations) {
        (StallReason::Unchanged, 1) => "an iteration changed nothing in the repository".to_owned(),
        (StallReason::Unchanged, n) => {
            format!("{n} iterations in a row changed nothing in the repository")
        }
        (StallReason::SameFailure, n) => {
            format!("guardrails failed the same way in {n} iterations in a row")
        }
    }
}
