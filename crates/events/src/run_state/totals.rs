//! Sums over the whole run. All money is summed here.

use serde::Serialize;

use super::{IterationRecord, RunState};
use crate::event::{Class, Outcome, Usage};
use crate::spending::Spending;

/// Counts over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Totals {
    pub spending: Spending,
    /// The highest iteration number seen.
    pub iteration: u32,
    pub tools: u32,
    pub tool_errors: u32,
    pub failures: FailureCount,
    pub results: IterationResults,
    /// Iterations that ended, including one whose failure ended the run.
    pub iterations_ended: u32,
    /// Time that those took.
    pub ended_ms: u64,
    /// Iterations that were stopped before their end.
    pub cut_off: u32,
    /// The current iteration has not ended.
    pub iteration_open: bool,
    /// Bytes of agents' output that the journal had no room for, of all agents that have ended.
    pub omitted_bytes: u64,
    /// The same of the current agent.
    #[serde(skip)]
    omitted_now: u64,
}

/// Failed attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FailureCount {
    pub total: u32,
    /// In a row.
    pub consecutive: u32,
    /// The failure of the current iteration is already counted.
    #[serde(skip)]
    counted: bool,
}

/// Iterations with a prompt, by the result of their last start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IterationResults {
    pub successful: u32,
    pub failed: u32,
    pub interrupted: u32,
    #[serde(skip)]
    last: Option<(u32, IterationResult)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IterationResult {
    Successful,
    Failed,
    Interrupted,
}

impl IterationResult {
    /// Only an answer that passed all guardrails is a success.
    pub fn new(
        class: Class,
        guardrails_passed: Option<bool>,
        complete: bool,
        cut_off: bool,
    ) -> IterationResult {
        match (class, guardrails_passed) {
            _ if complete => IterationResult::Successful,
            (Class::Answered, Some(true)) if !cut_off => IterationResult::Successful,
            (Class::Interrupted, _)
            | (Class::Answered, Some(true))
            | (Class::Answered | Class::Empty, None) => IterationResult::Interrupted,
            _ => IterationResult::Failed,
        }
    }
}

impl IterationResults {
    pub fn total(&self) -> u32 {
        self.successful.saturating_add(self.failed).saturating_add(self.interrupted)
    }

    pub(super) fn record(&mut self, iteration: u32, result: IterationResult) {
        if let Some((last, previous)) = self.last.replace((iteration, result))
            && last == iteration
        {
            *self.count(previous) -= 1;
        }
        *self.count(result) += 1;
    }

    fn count(&mut self, result: IterationResult) -> &mut u32 {
        match result {
            IterationResult::Successful => &mut self.successful,
            IterationResult::Failed => &mut self.failed,
            IterationResult::Interrupted => &mut self.interrupted,
        }
    }
}

/// US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cost {
    /// As reported by agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<f64>,
    /// The reported cost plus an estimate for tokens without a price; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<f64>,
}

impl Cost {
    /// Returns the cost with estimates; `None` if it is unknown.
    pub fn usd(&self) -> Option<f64> {
        self.estimated.or(self.reported)
    }
}

impl RunState {
    /// Returns the cost of the run so far, including the running attempt.
    pub fn cost(&self) -> Cost {
        let reported = self.usage().cost_usd;
        // The price of a running attempt corrects estimates only once it is settled.
        let mut settled = self.totals.spending.clone();
        settled.settle();
        let with_estimate = settled.budget_usage().cost_usd;
        Cost { reported, estimated: with_estimate.filter(|cost| Some(*cost) != reported) }
    }

    /// Returns everything that agents reported, including the running attempt.
    pub fn usage(&self) -> Usage {
        self.totals.spending.reported_so_far()
    }

    /// Returns the cost of one iteration, without an attempt that is still running.
    pub fn iteration_cost(&self, iteration: &IterationRecord) -> Cost {
        let reported = iteration.usage.cost_usd;
        let has_unpriced = iteration.unpriced.total_tokens() > 0;
        let estimated = has_unpriced
            .then(|| reported.unwrap_or(0.0) + self.totals.spending.estimate(&iteration.unpriced));
        Cost { reported, estimated }
    }
}

impl Totals {
    pub(super) fn iteration_started(&mut self) {
        self.iteration_open = true;
        self.failures.counted = false;
    }

    pub(super) fn attempt_ended(&mut self, usage: &Usage, tools: u32, tool_errors: u32) {
        self.spending.end_attempt(usage);
        self.tools = self.tools.saturating_add(tools);
        self.tool_errors = self.tool_errors.saturating_add(tool_errors);
    }

    pub(super) fn attempt_failed(&mut self, consecutive: u32) {
        self.failures.consecutive = consecutive;
        self.failures.total = self.failures.total.saturating_add(1);
        self.failures.counted = true;
    }

    pub(super) fn iteration_ended(&mut self, class: Class, cut_off: bool, duration_ms: u64) {
        if cut_off && !is_failure(class) {
            self.count_cut_off();
            return;
        }
        self.iteration_open = false;
        self.iterations_ended = self.iterations_ended.saturating_add(1);
        self.ended_ms = self.ended_ms.saturating_add(duration_ms);
        if !self.failures.counted && !is_failure(class) {
            self.failures.consecutive = 0;
        }
    }

    /// A resumed run either finishes the checks of the open iteration or starts it again.
    pub(super) fn continued(&mut self, unchecked: Option<u32>) {
        if unchecked.is_none() {
            self.count_cut_off();
        } else if !std::mem::replace(&mut self.iteration_open, true) {
            self.cut_off = self.cut_off.saturating_sub(1);
        }
    }

    fn count_cut_off(&mut self) {
        let open = std::mem::take(&mut self.iteration_open);
        self.cut_off = self.cut_off.saturating_add(u32::from(open));
    }

    /// The failure that ends a run is followed by no retry, so it is counted here.
    pub(super) fn run_ended(&mut self, outcome: Outcome, last_class: Option<Class>) {
        let class = last_class.unwrap_or(Class::NotStarted);
        if outcome == Outcome::AgentFailed && !self.failures.counted && is_failure(class) {
            self.attempt_failed(self.failures.consecutive.saturating_add(1));
        }
    }

    pub(super) fn set_omitted(&mut self, bytes: u64) {
        self.omitted_now = bytes;
    }

    pub(super) fn settle_omitted(&mut self) {
        let bytes = std::mem::take(&mut self.omitted_now);
        self.omitted_bytes = self.omitted_bytes.saturating_add(bytes);
    }
}

/// An iteration with this result has failed.
fn is_failure(class: Class) -> bool {
    matches!(class, Class::Failed | Class::NotStarted | Class::ContextExhausted)
}
