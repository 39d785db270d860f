//! The state of one iteration.

use std::collections::HashSet;

use super::{Now, RefusedHost};
use ralph_events::event::{Class, Feedback};
use ralph_events::progress::Open;

/// The current iteration, or the last one if none is open: its number and class are still needed between iterations.
///
/// Every iteration starts with a new value. Number 0 stands for the time before the first one, in which an initial
/// check may run.
#[derive(Debug, Clone)]
pub(super) struct Iteration {
    pub(super) number: u32,
    pub(super) attempt: u32,
    pub(super) is_open: bool,
    pub(super) started: u64,
    /// Working time of the agents of this iteration, without the one that is running.
    pub(super) worked_ms: u64,
    /// The work is being checked before the first iteration; it may be complete already.
    pub(super) is_initial_check: bool,
    pub(super) class: Class,
    pub(super) complete: bool,
    /// The text in which the completion rule found its signal.
    pub(super) found: Option<String>,
    pub(super) checks: Checks,
    pub(super) scm: ScmState,
    /// Refused hosts that were reported; a warning takes the place after the last one.
    pub(super) refused: HashSet<RefusedHost>,
}

/// Results of the guardrails of one iteration.
#[derive(Debug, Clone, Default)]
pub(super) struct Checks {
    pub(super) failed: Vec<Feedback>,
    /// None until all guardrails have ended.
    pub(super) passed: Option<bool>,
    /// Why the work differs from what the guardrails checked, if it does.
    pub(super) changed_since: Option<String>,
}

impl Checks {
    /// All guardrails passed on the work as it is now.
    pub(super) fn are_current(&self) -> bool {
        self.passed == Some(true) && self.changed_since.is_none()
    }
}

/// Progress of the SCM tasks of one iteration.
#[derive(Debug, Clone, Default)]
pub(super) struct ScmState {
    pub(super) is_dirty: bool,
    /// The agent has given a commit message that was not used.
    pub(super) has_message: bool,
    /// SCM tasks may run until this time even if the time of the run is up.
    pub(super) grace_until: u64,
    /// Problems with committing that the next agent has to know.
    pub(super) feedback: Vec<Feedback>,
}

impl Iteration {
    pub(super) fn new(number: u32, now: Now) -> Iteration {
        Iteration { number, is_open: true, started: now.mono_ms, ..Iteration::default() }
    }

    /// An iteration that was cut off and continues where it was.
    pub(super) fn reopened(open: Open, has_message: bool) -> Iteration {
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
        Iteration { number, ..Iteration::default() }
    }
}

impl Default for Iteration {
    fn default() -> Self {
        Iteration {
            number: 0,
            attempt: 0,
            is_open: false,
            started: 0,
            worked_ms: 0,
            is_initial_check: false,
            class: Class::NotStarted,
            complete: false,
            found: None,
            checks: Checks::default(),
            scm: ScmState::default(),
            refused: HashSet::new(),
        }
    }
}
