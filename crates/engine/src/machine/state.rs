//! The state of a run beyond one iteration.

use ralph_events::event::Feedback;
use ralph_events::run_state::{OpenIteration, Pending, RateLimits};
use ralph_events::spending::Spending;

/// The time that counts against the budget: all processes of the run, without pauses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunClock {
    /// Process start, moved forward by every pause.
    pub(super) started: u64,
    pub(super) active_before_ms: u64,
}

impl RunClock {
    pub(super) fn active_ms(&self, mono_ms: u64) -> u64 {
        self.active_before_ms.saturating_add(mono_ms.saturating_sub(self.started))
    }

    /// The time at which the run has been active for `limit_ms`.
    pub(super) fn deadline(&self, limit_ms: u64) -> u64 {
        self.started.saturating_add(limit_ms.saturating_sub(self.active_before_ms))
    }
}

/// Everything that a run adds up or must do only once.
#[derive(Debug, Clone, Default)]
pub(super) struct RunTotals {
    pub(super) spending: Spending,
    pub(super) tools: u32,
    pub(super) tool_errors: u32,
    /// Retried after the next iteration that passes.
    pub(super) scm_failed: bool,
    /// An agent asked for a commit message changed files. None is asked again: one that always writes would never end.
    pub(super) message_agent_meddles: bool,
    pub(super) silence_warned: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Retries {
    /// Failures in a row that count for the retry policy.
    pub(super) failures: u32,
    /// An iteration has ended without a failure.
    pub(super) any_succeeded: bool,
    pub(super) limits: RateLimits,
}

impl Retries {
    pub(super) fn record_success(&mut self) {
        (self.failures, self.any_succeeded) = (0, true);
    }
}

/// Requests to stop or pause the run.
#[derive(Debug, Clone, Default)]
pub(super) struct StopRequests {
    pub(super) stop: Option<StopMode>,
    pub(super) pause: bool,
    /// Since the start or the end of the last pause.
    pub(super) signals: u32,
}

impl StopRequests {
    /// The run has to stop, and not only after the iteration.
    pub(super) fn ends_iteration(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| *stop != StopMode::AfterIteration)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum StopMode {
    AfterIteration,
    /// After the job that is running.
    Graceful,
    Now,
    InternalError(String),
}

/// Work that an earlier process left open.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenWork {
    pub(super) pending: Pending,
    /// The iteration that was cut off. It starts again under its number.
    pub(super) cut_off: Option<OpenIteration>,
}

/// Messages for the next prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct PromptFeedback {
    /// From the iteration before.
    carried: Vec<Feedback>,
    /// From the gates, new for each attempt.
    briefing: Vec<Feedback>,
}

impl PromptFeedback {
    pub(super) fn carried(carried: Vec<Feedback>) -> PromptFeedback {
        PromptFeedback { carried, briefing: Vec::new() }
    }

    pub(super) fn brief(&mut self, briefing: Vec<Feedback>) {
        self.briefing = briefing;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.carried.is_empty() && self.briefing.is_empty()
    }

    pub(super) fn all(&self) -> Vec<Feedback> {
        self.carried.iter().chain(&self.briefing).cloned().collect()
    }
}
