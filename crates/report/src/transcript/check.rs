//! Checks of an iteration, and claims that they do not support.

use super::tool_call::exit_note;
use super::{ItemKind, Transcript};
use crate::check_view::CheckMark;
use crate::status_line::one_line;
use ralph_events::event::{Event, Stamp};

impl Transcript {
    pub(super) fn check_ended(&mut self, event: &Event<'_>, changed: &mut Vec<u64>) {
        let Event::GuardrailEnded { command, exit, cut_off, passed, log, duration_ms, .. } = event
        else {
            return;
        };
        let mark = match (passed, cut_off) {
            (true, _) => CheckMark::Passed,
            (_, true) => CheckMark::Interrupted,
            _ => CheckMark::Failed,
        };
        let command = one_line(command);
        match mark {
            CheckMark::Failed => self.failed.push(command.clone()),
            CheckMark::Interrupted => self.unfinished_checks = true,
            _ => {}
        }
        self.end_open(changed, |kind| {
            let ItemKind::Check(check) = kind else { return false };
            if check.command != command {
                return false;
            }
            check.mark = Some(mark);
            check.note = exit_note(exit.filter(|_| !passed), *duration_ms);
            check.log = one_line(log);
            true
        });
    }

    /// A mark in an iteration whose checks failed proves nothing.
    pub(super) fn claim(&mut self, id: u64, at: Stamp, changed: &mut Vec<u64>) {
        let (stories, failed) =
            (std::mem::take(&mut self.marked), std::mem::take(&mut self.failed));
        let is_unproven = !failed.is_empty() || self.unfinished_checks;
        if !stories.is_empty() && is_unproven {
            let stories = stories.iter().map(|story| one_line(story)).collect();
            self.add(id, at, ItemKind::Claim { stories, failed }, changed);
        }
    }
}
