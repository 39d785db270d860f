//! Driver: the task list.

use super::Driver;
use crate::task_gate::TaskGate;
use crate::world::World;
use ralph_engine::machine::{GateVerdict, Input};
use ralph_tasks::ledger::LedgerReview;
use ralph_tasks::verdict::{
    TaskVerdict, briefing, final_verdict, initial_verdict, parked_feedback, unfinished_verdict,
};

impl<W: World> Driver<'_, W> {
    pub(super) fn collect_briefing(&mut self) {
        let first = self.machine.attempt() == 0;
        self.set_parked_stories();
        let told = self.review_tasks(first, |gate, review| {
            let mut feedback = briefing(review, gate.name());
            let parked = gate.parked();
            if !parked.is_empty() {
                feedback.push(parked_feedback(&parked, gate.next_story()));
            }
            (feedback, gate.doubts_message(review))
        });
        let (feedback, doubts) = told.unzip();
        if let Some(message) = doubts.flatten() {
            self.recorder.warn(message);
        }
        self.queue.push_back(Input::Briefed { feedback: feedback.unwrap_or_default() });
    }

    /// Finds out whether a story can start that waits for no answer.
    pub(super) fn find_story(&mut self) {
        let parks_all = self.set_parked_stories();
        let can_start = self.review_tasks(false, |gate, _| gate.can_start());
        self.queue.push_back(Input::StoryFound(!parks_all && can_start.unwrap_or(true)));
    }

    /// Returns whether a question belongs to no story, and so to all of them.
    fn set_parked_stories(&mut self) -> bool {
        let parked = self.machine.parked_stories();
        let parks_all = parked.contains(&None);
        if let Some(gate) = &mut self.gate {
            gate.set_parked(parked.into_iter().flatten().map(str::to_owned).collect());
        }
        parks_all
    }

    pub(super) fn check_gates(&mut self, claimed: bool, checks_passed: bool) {
        let is_opening = self.machine.is_initial_check();
        let came_to_its_end = self.machine.agent_finished_normally();
        let judged = self.review_tasks(is_opening, |gate, review| {
            if is_opening {
                return (initial_verdict(review, checks_passed, gate.name()), None);
            }
            if !came_to_its_end {
                let verdict = unfinished_verdict(review, checks_passed, gate.name());
                return (verdict, gate.doubts_message(review));
            }
            gate.iteration_ended(checks_passed);
            (final_verdict(review, claimed, checks_passed, gate.name()), None)
        });
        let (verdict, doubts) = judged.unzip();
        if let Some(message) = doubts.flatten() {
            self.recorder.warn(message);
        }
        self.queue.push_back(match verdict {
            Some(verdict) => Input::GatesChecked(gate_verdict(verdict)),
            // Without a gate, nothing may pass.
            None => {
                Input::InternalError { message: "internal error: no completion gate".to_owned() }
            }
        });
    }

    pub(super) fn finish_tasks(&mut self) {
        if let Some(gate) = &mut self.gate
            && let Some(message) = gate.finish(self.world)
        {
            self.recorder.warn(message);
        }
    }

    fn review_tasks<T>(
        &mut self,
        tell: bool,
        judge: impl FnOnce(&mut TaskGate, &LedgerReview) -> T,
    ) -> Option<T> {
        let gate = self.gate.as_mut()?;
        let looked = gate.review(self.world);
        if tell || looked.has_changes {
            self.recorder.record(&gate.progress());
        }
        for message in looked.warnings {
            self.recorder.warn(message);
        }
        Some(judge(gate, &looked.review))
    }
}

fn gate_verdict(verdict: TaskVerdict) -> GateVerdict {
    match verdict {
        TaskVerdict::Stands => GateVerdict::Neutral,
        TaskVerdict::Complete => GateVerdict::Complete,
        TaskVerdict::Veto { reason, feedback } => GateVerdict::Veto { reason, feedback },
    }
}
