//! The checks after an answer: guardrails, SCM tasks, the completion rule, gates.

use super::super::rules::ScmTaskKind;
use super::super::stall::StallDecision;
use super::iteration::Checks;
use super::state::{PromptFeedback, StopMode};
use super::timers::FINAL_SCM_GRACE_MS;
use super::{
    Action, CommitGuardResult, GateVerdict, Job, JobEnd, LoopMachine, Now, Phase, ScmStatus,
};
use ralph_events::event::{Class, Event, Feedback, Outcome, Purpose, StallReason};
use ralph_events::exit_code;

impl LoopMachine {
    pub(super) fn run_checks(&mut self, now: Now, out: &mut Vec<Action>) {
        self.iteration.checks = Checks::default();
        self.run_guardrail(now, 0, out);
    }

    fn run_guardrail(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        if index < self.rules.guardrails.len() {
            return self.start_job(now, Job::Guardrail(index), out);
        }
        let passed = self.iteration.checks.failed.is_empty();
        self.iteration.checks.passed = Some(passed);
        if !self.iteration.is_initial_check {
            self.stall.record_guardrails(&self.iteration.checks.failed);
        }
        if self.iteration.is_initial_check || (!passed && self.rules.gates) {
            // The gates may add feedback. There is nothing to commit yet.
            self.iteration.complete = false;
            return self.check_gates(out);
        }
        let feedback = std::mem::take(&mut self.iteration.checks.failed);
        self.set_feedback(now, feedback, out);
        if !passed {
            self.iteration.complete = false;
            self.finish_iteration(now, out);
        } else if self.rules.scm.is_empty() {
            self.check_completion(now, out);
        } else if !self.rules.scm.contains(&ScmTaskKind::Commit) {
            self.run_scm_task(now, 0, out);
        } else {
            self.start_job(now, Job::ScmStatus, out);
        }
    }

    pub(super) fn guardrail_ended(
        &mut self,
        now: Now,
        failed: Option<Feedback>,
        out: &mut Vec<Action>,
    ) {
        let Phase::Running { job: Job::Guardrail(index), ending, .. } = self.phase else {
            return;
        };
        let finished = !matches!(ending, Some(JobEnd::CutOff(_)));
        if finished {
            self.iteration.checks.failed.extend(failed);
        }
        if self.steering.stop.is_some() && !(finished && self.may_check_gates(index + 1)) {
            return self.finish_stopped(now, out);
        }
        if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(now)
        {
            return self.finish_by_budget(now, &used_up, out);
        }
        self.run_guardrail(now, index + 1, out);
    }

    pub(super) fn set_feedback(
        &mut self,
        now: Now,
        feedback: Vec<Feedback>,
        out: &mut Vec<Action>,
    ) {
        if !feedback.is_empty() || !self.feedback.is_empty() {
            self.emit(now, Event::FeedbackSet { parts: feedback.clone() }, out);
        }
        self.feedback = PromptFeedback::carried(feedback);
    }

    pub(super) fn on_scm_status(&mut self, now: Now, status: ScmStatus, out: &mut Vec<Action>) {
        let Phase::Running { job: Job::ScmStatus, ending, .. } = self.phase else { return };
        self.iteration.scm.is_dirty = matches!(status, ScmStatus::Dirty { .. });
        if self.steering.stop.is_some() {
            self.finish_stopped(now, out);
        } else if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(now)
        {
            self.finish_by_budget(now, &used_up, out);
        } else {
            match status {
                ScmStatus::Clean => return self.request_commit_message(now, out),
                ScmStatus::Dirty { has_message } => {
                    self.iteration.scm.has_message |= has_message;
                    return self.request_commit_message(now, out);
                }
                ScmStatus::Failed(feedback) => self.iteration.scm.feedback.extend(feedback),
            }
            self.totals.scm_failed = true;
            self.check_completion(now, out);
        }
    }

    /// Unless none is needed or the budget is used up.
    pub(super) fn request_commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.iteration.scm.is_dirty {
            return self.run_scm_task(now, 0, out);
        }
        if std::mem::take(&mut self.iteration.scm.has_message) {
            // Paid for already: before the run was cut off, or for a commit that failed.
            self.iteration.scm.grace_until = now.mono_ms.saturating_add(FINAL_SCM_GRACE_MS);
            return self.run_scm_task(now, 0, out);
        }
        if self.totals.message_agent_meddles {
            return self.commit_with_default_message(
                now,
                "the agent did more than give a message before",
                out,
            );
        }
        if self.run_budget_exceeded(now).is_some() {
            return self.commit_with_default_message(now, "the budget is used up", out);
        }
        if self.iteration_budget_exceeded(self.iteration.worked_ms) {
            return self.commit_with_default_message(
                now,
                "the budget of the iteration is used up",
                out,
            );
        }
        self.start_agent(now, Purpose::CommitMessage, out);
    }

    fn commit_with_default_message(&mut self, now: Now, why: &str, out: &mut Vec<Action>) {
        let message = format!("{why}, so the commit gets a message of ralph's own");
        self.emit(now, Event::Warning { message: message.into() }, out);
        self.iteration.scm.grace_until = now.mono_ms.saturating_add(FINAL_SCM_GRACE_MS);
        self.run_scm_task(now, 0, out);
    }

    pub(super) fn run_scm_task(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        match self.rules.scm.get(index) {
            None => self.check_completion(now, out),
            Some(ScmTaskKind::Commit) if !self.iteration.scm.is_dirty => {
                out.push(Action::SkipScmTask(index, "nothing to commit"));
                self.totals.scm_failed = false;
                self.run_scm_task(now, index + 1, out);
            }
            Some(_) => {
                self.start_job(now, Job::ScmTask(index), out);
            }
        }
    }

    pub(super) fn scm_task_ended(&mut self, now: Now, ok: bool, out: &mut Vec<Action>) {
        let Phase::Running { job: Job::ScmTask(index), ending, .. } = self.phase else { return };
        self.totals.scm_failed = !ok;
        let last = ending.is_none() && (!ok || index + 1 >= self.rules.scm.len());
        if self.steering.stop.is_some() && !(last && self.steering.stop == Some(StopMode::Graceful))
        {
            self.finish_stopped(now, out);
        } else if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(now)
        {
            self.finish_by_budget(now, &used_up, out);
        } else if ok {
            self.run_scm_task(now, index + 1, out);
        } else {
            self.check_completion(now, out);
        }
    }

    /// Commits what was checked and staged. Other changes prevent completion until guardrails have judged them.
    pub(super) fn on_commit_guard(
        &mut self,
        now: Now,
        result: CommitGuardResult,
        out: &mut Vec<Action>,
    ) {
        let Phase::Running { job: Job::CommitGuard { has_message }, ending, .. } = self.phase
        else {
            return;
        };
        if self.steering.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(now)
        {
            return self.finish_by_budget(now, &used_up, out);
        }
        let moved = matches!(result, CommitGuardResult::Moved(_));
        if let CommitGuardResult::ChangedBeside(unseen) | CommitGuardResult::Moved(unseen) = result
        {
            self.iteration.scm.feedback.push(unseen.feedback);
            self.iteration.checks.changed_since = Some(unseen.reason);
            self.totals.message_agent_meddles = true;
        }
        match (moved, has_message) {
            (true, _) => self.check_completion(now, out),
            (false, true) => self.run_scm_task(now, 0, out),
            (false, false) => self.on_missing_commit_message(now, out),
        }
    }

    pub(super) fn on_missing_commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.steering.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        self.commit_with_default_message(now, "the agent gave no commit message", out);
    }

    pub(super) fn check_completion(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Some(reason) = self.iteration.checks.changed_since.clone() {
            // No `CompletionChecked` is emitted, so a resumed run repeats all checks.
            if std::mem::take(&mut self.iteration.complete) {
                self.emit(now, Event::Vetoed { reason: reason.into() }, out);
            }
            return self.check_gates_or_end(now, out);
        }
        let found = self.iteration.found.clone().map(Into::into);
        let (complete, scm_failed) = (self.iteration.complete, self.totals.scm_failed);
        self.emit(now, Event::CompletionChecked { complete, found, scm_failed }, out);
        self.check_gates_or_end(now, out);
    }

    pub(super) fn check_gates_or_end(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.rules.gates {
            self.check_gates(out);
        } else {
            self.finish_iteration(now, out);
        }
    }

    fn check_gates(&mut self, out: &mut Vec<Action>) {
        self.phase = Phase::CheckingGates;
        out.push(Action::CheckGates {
            claimed: self.iteration.complete,
            checks_passed: self.iteration.checks.are_current(),
        });
    }

    pub(super) fn gates_checked(&mut self, now: Now, verdict: GateVerdict, out: &mut Vec<Action>) {
        if self.phase != Phase::CheckingGates {
            return;
        }
        let mut feedback = std::mem::take(&mut self.iteration.checks.failed);
        match verdict {
            GateVerdict::Neutral => {}
            GateVerdict::Complete => self.iteration.complete = self.iteration.checks.are_current(),
            GateVerdict::Veto { reason, feedback: more } => {
                if std::mem::take(&mut self.iteration.complete) || self.iteration.is_initial_check {
                    self.emit(now, Event::Vetoed { reason: reason.into() }, out);
                }
                feedback.extend(more);
            }
        }
        if !self.iteration.complete {
            feedback.append(&mut self.iteration.scm.feedback);
        }
        self.set_feedback(now, feedback, out);
        self.finish_iteration(now, out);
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

    fn finish_iteration(&mut self, now: Now, out: &mut Vec<Action>) {
        // After a graceful stop, the iteration is still judged.
        let judged =
            self.steering.stop == Some(StopMode::Graceful) && !self.iteration.is_initial_check;
        if self.steering.stop.is_some() && !judged {
            return self.finish_stopped(now, out);
        }
        let opening = std::mem::take(&mut self.iteration.is_initial_check);
        if !self.iteration.complete {
            let feedback = std::mem::take(&mut self.iteration.scm.feedback);
            if !feedback.is_empty() {
                self.set_feedback(now, feedback, out);
            }
            self.end_iteration(now, false, out);
            out.push(Action::Save);
            return self.next_iteration(now, out);
        }
        if opening {
            let message = "nothing to do, every check passes".to_owned();
            return self.finish(now, Outcome::Complete, exit_code::SUCCESS, message, out);
        }
        self.end_complete(now, out);
    }

    pub(super) fn end_complete(&mut self, now: Now, out: &mut Vec<Action>) {
        let n = self.iteration.number;
        let after = format!("after {n} iteration{}", if n == 1 { "" } else { "s" });
        if self.totals.scm_failed {
            let message = format!("complete {after}, but an SCM task failed");
            self.finish(now, Outcome::CompleteScmFailed, exit_code::SCM_FAILED, message, out);
        } else {
            self.finish(
                now,
                Outcome::Complete,
                exit_code::SUCCESS,
                format!("complete {after}"),
                out,
            );
        }
    }

    pub(super) fn end_iteration(&mut self, now: Now, cut_off: bool, out: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.iteration.is_open, false) {
            return;
        }
        let duration_ms = now.mono_ms.saturating_sub(self.iteration.started);
        self.stall.end_iteration(duration_ms);
        let event = Event::IterationEnded {
            class: self.iteration.class,
            guardrails_passed: self.iteration.checks.passed,
            complete: self.iteration.complete && self.iteration.checks.are_current(),
            cut_off,
            duration_ms,
            usage: self.totals.spending.iteration(),
        };
        self.emit(now, event, out);
    }

    pub(super) fn on_stall_check(
        &mut self,
        now: Now,
        fingerprint: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let Phase::Running { job: Job::StallCheck, .. } = self.phase else { return };
        let verdict = self.stall.record_fingerprint(fingerprint);
        let seen = self.stall.snapshot();
        let event = Event::StallChecked {
            unchanged: seen.unchanged,
            same_failures: seen.same_failures,
            fingerprint: fingerprint.map(|number| format!("{number:016x}").into()),
        };
        self.emit(now, event, out);
        if self.steering.stop.is_some() {
            return self.finish_stopped(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        match verdict {
            StallDecision::Continue => {}
            StallDecision::Warn { reason, iterations } => {
                let limit = self.stall.stops_after();
                self.emit(now, Event::StallWarning { reason, iterations, limit }, out);
            }
            StallDecision::Stop { reason, iterations } => {
                let message = stalled_message(reason, iterations);
                return self.finish(now, Outcome::Stalled, exit_code::BUDGET, message, out);
            }
        }
        if self.steering.pause {
            return self.enter_pause(now, false, out);
        }
        self.start_iteration(now, out);
    }
}

fn stalled_message(reason: StallReason, iterations: u32) -> String {
    match (reason, iterations) {
        (StallReason::Unchanged, 1) => "an iteration changed nothing in the repository".to_owned(),
        (StallReason::Unchanged, n) => {
            format!("{n} iterations in a row changed nothing in the repository")
        }
        (StallReason::SameFailure, n) => {
            format!("guardrails failed in the same way in {n} iterations in a row")
        }
    }
}
