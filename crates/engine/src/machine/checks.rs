//! What is held against an agent's work once it has answered: guardrails, version control, the
//! completion rule, gates.

use super::super::rules::ScmTask;
use super::super::stall::Verdict;
use super::timers::LAST_COMMIT_MS;
use super::{
    Action, GateVerdict, GuardrailEnd, LoopMachine, Now, Phase, ScmLook, StagedLook, Stop,
};
use ralph_events::event::{Class, Event, Feedback, Outcome, Purpose, StallReason};
use ralph_events::exit_code;

impl LoopMachine {
    pub(super) fn check_work(&mut self, now: Now, out: &mut Vec<Action>) {
        self.new_feedback.clear();
        self.unseen = None;
        self.guardrail(now, 0, out);
    }

    fn guardrail(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        if index < self.rules.guardrails.len() {
            self.phase = Phase::Guardrail { index, started: now.mono_ms, ending: None };
            out.push(Action::RunGuardrail(index));
            return;
        }
        let passed = self.new_feedback.is_empty();
        self.guardrails_passed = Some(passed);
        if !self.opening {
            self.watch.checked(&self.new_feedback);
        }
        if self.opening || (!passed && self.rules.gates) {
            // They may have something to add to what failed. There is nothing yet to be committed.
            self.complete = false;
            return self.ask_gates(out);
        }
        let feedback = std::mem::take(&mut self.new_feedback);
        self.set_feedback(feedback, out);
        if !passed {
            self.complete = false;
            self.iteration_done(now, out);
        } else if self.rules.scm.is_empty() {
            self.check_completion(now, out);
        } else if !self.rules.scm.contains(&ScmTask::Commit) {
            self.scm_task(now, 0, out);
        } else {
            self.phase = Phase::LookingAtScm { started: now.mono_ms, ending: false };
            out.push(Action::LookAtScm);
        }
    }

    pub(super) fn guardrail_ended(
        &mut self,
        now: Now,
        failed: Option<Feedback>,
        out: &mut Vec<Action>,
    ) {
        let Phase::Guardrail { index, ending, .. } = self.phase else {
            return;
        };
        let finished = ending != Some(GuardrailEnd::CutOff);
        if finished {
            self.new_feedback.extend(failed);
        }
        if self.stop.is_some() && !(finished && self.may_be_judged(index + 1)) {
            return self.stop_here(now, out);
        }
        if ending.is_some()
            && let Some(used_up) = self.run_budget_exceeded(now)
        {
            return self.finish_by_budget(now, &used_up, out);
        }
        self.guardrail(now, index + 1, out);
    }

    pub(super) fn set_feedback(&mut self, feedback: Vec<Feedback>, out: &mut Vec<Action>) {
        if !feedback.is_empty() || !self.feedback.is_empty() {
            out.push(Action::Emit(Event::FeedbackSet { parts: feedback.clone() }));
        }
        self.lasting_feedback = feedback.len();
        self.feedback = feedback;
    }

    pub(super) fn scm_looked(&mut self, now: Now, look: ScmLook, out: &mut Vec<Action>) {
        let Phase::LookingAtScm { ending, .. } = self.phase else { return };
        self.dirty = matches!(look, ScmLook::Dirty { .. });
        if self.stop.is_some() {
            self.stop_here(now, out);
        } else if ending && let Some(used_up) = self.run_budget_exceeded(now) {
            self.finish_by_budget(now, &used_up, out);
        } else {
            match look {
                ScmLook::Clean => return self.commit_message(now, out),
                ScmLook::Dirty { has_message } => {
                    self.has_message |= has_message;
                    return self.commit_message(now, out);
                }
                ScmLook::Failed(told) => self.scm_feedback.extend(told),
            }
            self.scm_failed = true;
            self.check_completion(now, out);
        }
    }

    /// Asks the agent for a commit message if one is needed and can still be paid for.
    pub(super) fn commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        if !self.dirty {
            return self.scm_task(now, 0, out);
        }
        if std::mem::take(&mut self.has_message) {
            // It was given before the run was cut off, or for a commit that failed, and is paid for.
            self.scm_until = now.mono_ms.saturating_add(LAST_COMMIT_MS);
            return self.scm_task(now, 0, out);
        }
        if self.meddles {
            // One that writes something whenever it is started would never come to an end.
            return self.own_message(now, "the agent did more than give a message before", out);
        }
        if self.run_budget_exceeded(now).is_some() {
            return self.own_message(now, "the budget is used up", out);
        }
        if self.iteration_budget_exceeded(self.worked_ms) {
            return self.own_message(now, "the budget of the iteration is used up", out);
        }
        self.start_agent(now, Purpose::CommitMessage, out);
    }

    /// What was checked is committed, whoever could not be asked for a message, or gave none.
    fn own_message(&mut self, now: Now, why: &str, out: &mut Vec<Action>) {
        let message = format!("{why}, so the commit gets a message of ralph's own");
        out.push(Action::Emit(Event::Warning { message: message.into() }));
        self.scm_until = now.mono_ms.saturating_add(LAST_COMMIT_MS);
        self.scm_task(now, 0, out);
    }

    pub(super) fn scm_task(&mut self, now: Now, index: usize, out: &mut Vec<Action>) {
        match self.rules.scm.get(index) {
            None => self.check_completion(now, out),
            Some(ScmTask::Commit) if !self.dirty => {
                out.push(Action::SkipScmTask(index, "nothing to commit"));
                self.scm_failed = false;
                self.scm_task(now, index + 1, out);
            }
            Some(_) => {
                self.phase = Phase::Scm { index, started: now.mono_ms, ending: false };
                out.push(Action::RunScmTask(index));
            }
        }
    }

    pub(super) fn scm_task_ended(&mut self, now: Now, ok: bool, out: &mut Vec<Action>) {
        let Phase::Scm { index, ending, .. } = self.phase else { return };
        self.scm_failed = !ok;
        let last = !ending && (!ok || index + 1 >= self.rules.scm.len());
        if self.stop.is_some() && !(last && self.stop == Some(Stop::Graceful)) {
            self.stop_here(now, out);
        } else if ending && let Some(used_up) = self.run_budget_exceeded(now) {
            self.finish_by_budget(now, &used_up, out);
        } else if ok {
            self.scm_task(now, index + 1, out);
        } else {
            self.check_completion(now, out);
        }
    }

    /// An agent was asked for words and may have done more than that. What was checked and staged is committed; what
    /// no guardrail has seen is not, and completes nothing: the next iteration's guardrails judge it.
    pub(super) fn staged_looked(&mut self, now: Now, look: StagedLook, out: &mut Vec<Action>) {
        let Phase::LookingAtStaged { given, ending, .. } = self.phase else { return };
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if ending && let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        let moved = matches!(look, StagedLook::Moved(_));
        if let StagedLook::Beside(unseen) | StagedLook::Moved(unseen) = look {
            self.scm_feedback.push(unseen.feedback);
            self.unseen = Some(unseen.reason);
            self.meddles = true;
        }
        match (moved, given) {
            (true, _) => self.check_completion(now, out),
            (false, true) => self.scm_task(now, 0, out),
            (false, false) => self.no_commit_message(now, out),
        }
    }

    /// Guardrails have passed on what is there now.
    fn checks_stand(&self) -> bool {
        self.guardrails_passed == Some(true) && self.unseen.is_none()
    }

    pub(super) fn no_commit_message(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        self.own_message(now, "the agent gave no commit message", out);
    }

    pub(super) fn end_scm(&mut self, timed_out: bool, out: &mut Vec<Action>) {
        if let Phase::LookingAtScm { ending, .. }
        | Phase::LookingAtStaged { ending, .. }
        | Phase::Scm { ending, .. }
        | Phase::Looking { ending, .. } = &mut self.phase
            && !std::mem::replace(ending, true)
        {
            out.push(Action::EndScmTask { timed_out });
        }
    }

    pub(super) fn check_completion(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Some(reason) = self.unseen.clone() {
            // That there was nothing left to check is not noted: whoever goes on after a cut checks it all again.
            if std::mem::take(&mut self.complete) {
                out.push(Action::Emit(Event::Vetoed { reason: reason.into() }));
            }
            return self.ask_or_end(now, out);
        }
        let found = self.found.clone().map(Into::into);
        let (complete, scm_failed) = (self.complete, self.scm_failed);
        out.push(Action::Emit(Event::CompletionChecked { complete, found, scm_failed }));
        self.ask_or_end(now, out);
    }

    /// The completion rule was applied, and the gates have the last word.
    pub(super) fn ask_or_end(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.rules.gates {
            self.ask_gates(out);
        } else {
            self.iteration_done(now, out);
        }
    }

    fn ask_gates(&mut self, out: &mut Vec<Action>) {
        self.phase = Phase::Gates;
        out.push(Action::CheckGates { claimed: self.complete, checks_passed: self.checks_stand() });
    }

    pub(super) fn gates_checked(&mut self, now: Now, verdict: GateVerdict, out: &mut Vec<Action>) {
        if self.phase != Phase::Gates {
            return;
        }
        let mut told = std::mem::take(&mut self.new_feedback);
        match verdict {
            GateVerdict::Stands => {}
            GateVerdict::Complete => self.complete = self.checks_stand(),
            GateVerdict::Veto { reason, feedback } => {
                if std::mem::take(&mut self.complete) || self.opening {
                    out.push(Action::Emit(Event::Vetoed { reason: reason.into() }));
                }
                told.extend(feedback);
            }
        }
        if !self.complete {
            told.append(&mut self.scm_feedback);
        }
        self.set_feedback(told, out);
        self.iteration_done(now, out);
    }

    /// Somebody asked to stop and to let finish what is running, and it finished so that nothing has
    /// to be started any more to tell what it came to. Its result is not thrown away.
    pub(super) fn may_be_judged(&self, next_guardrail: usize) -> bool {
        let failed = next_guardrail > 0 && !self.new_feedback.is_empty();
        self.stop == Some(Stop::Graceful)
            && self.class == Class::Answered
            && next_guardrail >= self.rules.guardrails.len()
            && self.rules.scm.is_empty()
            && !failed
    }

    fn iteration_done(&mut self, now: Now, out: &mut Vec<Action>) {
        // One that was to finish has: it is judged, and the run stops before the next.
        let judged = self.stop == Some(Stop::Graceful) && !self.opening;
        if self.stop.is_some() && !judged {
            return self.stop_here(now, out);
        }
        let opening = std::mem::take(&mut self.opening);
        if !self.complete {
            let told = std::mem::take(&mut self.scm_feedback);
            if !told.is_empty() {
                self.set_feedback(told, out);
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

    /// All that has a say in it agrees that the work is complete.
    pub(super) fn end_complete(&mut self, now: Now, out: &mut Vec<Action>) {
        let n = self.iteration;
        let after = format!("after {n} iteration{}", if n == 1 { "" } else { "s" });
        if self.scm_failed {
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
        if !std::mem::replace(&mut self.iteration_open, false) {
            return;
        }
        self.last_took_ms = now.mono_ms.saturating_sub(self.iteration_started);
        out.push(Action::Emit(Event::IterationEnded {
            class: self.class,
            guardrails_passed: self.guardrails_passed,
            complete: self.complete && self.checks_stand(),
            cut_off,
            duration_ms: self.last_took_ms,
            usage: self.spending.iteration(),
        }));
    }

    /// Before the next iteration: did the last one get anywhere?
    pub(super) fn repository_looked(
        &mut self,
        now: Now,
        fingerprint: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let Phase::Looking { .. } = self.phase else { return };
        let verdict = self.watch.looked(fingerprint);
        let seen = self.watch.seen();
        out.push(Action::Emit(Event::Looked {
            unchanged: seen.unchanged,
            same_failures: seen.same_failures,
            fingerprint: fingerprint.map(|number| format!("{number:016x}").into()),
        }));
        if self.stop.is_some() {
            return self.stop_here(now, out);
        }
        if let Some(used_up) = self.run_budget_exceeded(now) {
            return self.finish_by_budget(now, &used_up, out);
        }
        match verdict {
            Verdict::Fine => {}
            Verdict::Warn { reason, iterations } => {
                let limit = self.watch.stops_after();
                out.push(Action::Emit(Event::Stalling { reason, iterations, limit }));
            }
            Verdict::Stop { reason, iterations } => {
                let message = stalled(reason, iterations);
                return self.finish(now, Outcome::Stalled, exit_code::BUDGET, message, out);
            }
        }
        if self.pause {
            return self.pause_here(now, false, out);
        }
        self.begin_iteration(now, out);
    }
}

fn stalled(reason: StallReason, iterations: u32) -> String {
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
