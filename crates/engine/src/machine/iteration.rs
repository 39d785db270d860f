use std::collections::HashSet;

use super::{Now, RefusedHost};
use ralph_events::event::{Class, Feedback, Stamp};
use ralph_events::run_state::OpenIteration;

/// The current iteration, or the last one: number and class are needed between iterations. Number 0 precedes the
/// first one.
#[derive(Debug, Clone, Default)]
pub(super) struct Iteration {
    pub(super) number: u32,
    pub(super) attempt: u32,
    pub(super) is_open: bool,
    /// Ended in an earlier process: events are not stamped with its number.
    pub(super) is_past: bool,
    pub(super) started: u64,
    /// Working time of its agents, without the running one.
    pub(super) worked_ms: u64,
    pub(super) is_initial_check: bool,
    pub(super) class: Class,
    pub(super) complete: bool,
    /// The completion signal that was compared.
    pub(super) found: Option<String>,
    pub(super) checks: Checks,
    pub(super) scm: ScmState,
    /// Questions asked so far.
    pub(super) questions: u32,
    /// Reported hosts. One more than the cap stands for the warning.
    pub(super) refused: HashSet<RefusedHost>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Checks {
    pub(super) failed: Vec<Feedback>,
    /// None until all guardrails have ended.
    pub(super) passed: Option<bool>,
    /// Why the work is no longer what the guardrails checked.
    pub(super) changed_since: Option<String>,
}

impl Checks {
    pub(super) fn are_current(&self) -> bool {
        self.passed == Some(true) && self.changed_since.is_none()
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct ScmState {
    pub(super) is_dirty: bool,
    /// An agent gave a commit message that was not used.
    pub(super) has_message: bool,
    /// SCM tasks may run until then even if the run's time is up.
    pub(super) grace_until: u64,
    /// For the next agent.
    pub(super) feedback: Vec<Feedback>,
}

impl Iteration {
    pub(super) fn new(number: u32, now: Now) -> Iteration {
        Iteration { number, is_open: true, started: now.mono_ms, ..Iteration::default() }
    }

    pub(super) fn reopened(open: OpenIteration, has_message: bool) -> Iteration {
        Iteration {
            number: open.iteration,
            attempt: open.attempts,
            worked_ms: open.worked_ms,
            is_open: true,
            scm: ScmState { has_message, ..ScmState::default() },
            ..Iteration::default()
        }
    }

    pub(super) fn ended(number: u32) -> Iteration {
        Iteration { number, is_past: true, ..Iteration::default() }
    }

    pub(super) fn stamp(&self, now: Now) -> Stamp {
        let (iteration, attempt) = if self.is_past { (0, 0) } else { (self.number, self.attempt) };
        Stamp { time_ms: now.wall_ms, iteration, attempt }
    }
}
