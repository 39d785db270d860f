//! Usage of a run, reported and estimated.
//!
//! Agents report their cost with the result. An agent that is running or was ended early has reported tokens at
//! most. A budget in dollars must count these: they are priced like a large model's, corrected by the prices of
//! this run. The estimate is for budgets, and is labelled where it is shown.

use serde::Serialize;

use super::event::Usage;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spending {
    /// Ended attempts: of the run, and of this iteration.
    total: Usage,
    iteration: Usage,
    running: Usage,
    /// The parts of `total` and `iteration` without a price.
    unpriced: Usage,
    unpriced_in_iteration: Usage,
}

impl Spending {
    pub fn start_attempt(&mut self) {
        self.running = Usage::default();
    }

    pub fn start_iteration(&mut self) {
        self.iteration = Usage::default();
        self.unpriced_in_iteration = Usage::default();
    }

    pub fn set_running(&mut self, usage: Usage) {
        self.running = usage;
    }

    pub fn end_attempt(&mut self, usage: &Usage) {
        self.running = Usage::default();
        self.total.add(usage);
        self.iteration.add(usage);
        if usage.cost_usd.is_none() {
            self.unpriced.add(usage);
            self.unpriced_in_iteration.add(usage);
        }
    }

    /// Ends an attempt without a final report and returns its usage so far.
    pub fn settle(&mut self) -> Usage {
        let usage = self.running;
        self.end_attempt(&usage);
        usage
    }

    /// Raises the total to a figure from a later record, if entries are missing.
    pub fn at_least(&mut self, told: &Usage) {
        let missing = self.total.shortfall(told);
        self.total.add(&missing);
        if missing.cost_usd.is_none() {
            self.unpriced.add(&missing);
        }
    }

    /// The same for this iteration.
    pub fn iteration_at_least(&mut self, told: &Usage) {
        let missing = self.iteration.shortfall(told);
        self.end_attempt(&missing);
    }

    /// Reported usage of the run and of this iteration.
    pub fn reported(&self) -> Usage {
        self.total
    }

    /// The same, with the running attempt.
    pub fn reported_so_far(&self) -> Usage {
        let mut told = self.total;
        told.add(&self.running);
        told
    }

    pub fn iteration(&self) -> Usage {
        self.iteration
    }

    /// Usage that counts against the run's budget.
    pub fn budget_usage(&self) -> Usage {
        self.with_estimate(self.total, self.unpriced)
    }

    /// Usage that counts against the iteration's budget.
    pub fn iteration_budget_usage(&self) -> Usage {
        self.with_estimate(self.iteration, self.unpriced_in_iteration)
    }

    /// Estimated cost of tokens without a price.
    pub fn estimate(&self, unpriced: &Usage) -> f64 {
        list_price(unpriced) * self.price_correction()
    }

    fn with_estimate(&self, mut used: Usage, mut unpriced: Usage) -> Usage {
        used.add(&self.running);
        if self.running.cost_usd.is_none() {
            unpriced.add(&self.running);
        }
        if unpriced.total_tokens() > 0 {
            *used.cost_usd.get_or_insert(0.0) += self.estimate(&unpriced);
        }
        used
    }

    /// Actual cost of this run's tokens relative to the list price.
    fn price_correction(&self) -> f64 {
        let by_list = list_price(&self.total) - list_price(&self.unpriced);
        match self.total.cost_usd {
            Some(cost) if by_list > 0.0 => cost / by_list,
            _ => 1.0,
        }
    }
}

/// Rough price of a large model in dollars; the first result corrects it. Without it, the first iteration could
/// cost anything.
fn list_price(usage: &Usage) -> f64 {
    const PER_MILLION: f64 = 1e-6;
    PER_MILLION
        * (5.0 * usage.input_tokens as f64
            + 25.0 * usage.output_tokens as f64
            + 0.5 * usage.cache_read_tokens as f64
            + 6.25 * usage.cache_write_tokens as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(tokens: u64, cost_usd: Option<f64>) -> Usage {
        Usage { cost_usd, input_tokens: tokens, ..Usage::default() }
    }

    #[test]
    fn reported_usage_is_counted_once() {
        let mut spending = Spending::default();
        spending.start_iteration();
        spending.start_attempt();
        spending.set_running(used(10, Some(1.0)));
        assert_eq!(spending.budget_usage(), used(10, Some(1.0)));
        spending.end_attempt(&used(12, Some(1.5)));
        assert_eq!(
            (spending.budget_usage(), spending.reported()),
            (used(12, Some(1.5)), used(12, Some(1.5)))
        );
        spending.start_iteration();
        assert_eq!(spending.iteration_budget_usage(), Usage::default());
    }

    #[test]
    fn missing_cost_is_estimated_and_estimate_improves() {
        let mut spending = Spending::default();
        spending.set_running(used(1_000_000, None));
        assert_eq!(spending.budget_usage().cost_usd, Some(5.0), "by the list");
        spending.end_attempt(&used(1_000_000, None));
        // It turns out to be a model at a fifth of that.
        spending.end_attempt(&used(1_000_000, Some(1.0)));
        assert_eq!(spending.budget_usage().cost_usd, Some(2.0));
        assert_eq!(spending.reported().cost_usd, Some(1.0), "a guess is not reported");
        spending.start_iteration();
        spending.set_running(used(500_000, None));
        assert_eq!(spending.iteration_budget_usage().cost_usd, Some(0.5));
        assert_eq!(spending.budget_usage().cost_usd, Some(2.5));
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let million = 1_000_000;
        for (usage, price) in [
            (Usage { input_tokens: million, ..Usage::default() }, 5.0),
            (Usage { output_tokens: million, ..Usage::default() }, 25.0),
            (Usage { cache_read_tokens: million, ..Usage::default() }, 0.5),
            (Usage { cache_write_tokens: million, ..Usage::default() }, 6.25),
        ] {
            assert_eq!(Spending::default().estimate(&usage), price, "{usage:?}");
        }
    }

    #[test]
    fn later_record_adds_only_missing_usage() {
        let mut spending = Spending::default();
        spending.end_attempt(&used(1_000_000, Some(2.0)));
        spending.at_least(&used(1_000_000, Some(2.0)));
        assert_eq!(spending.reported(), used(1_000_000, Some(2.0)));
        spending.at_least(&used(1_500_000, Some(3.0)));
        assert_eq!(spending.budget_usage(), used(1_500_000, Some(3.0)));
        // Missing tokens without a price are estimated at the prices of this run.
        spending.at_least(&used(2_000_000, Some(3.0)));
        assert_eq!(spending.reported(), used(2_000_000, Some(3.0)));
        assert_eq!(spending.budget_usage().cost_usd, Some(4.0));
        assert_eq!(spending.iteration(), used(1_000_000, Some(2.0)));
    }

    #[test]
    fn agent_without_usage_has_zero_spending() {
        let mut spending = Spending::default();
        spending.end_attempt(&Usage::default());
        assert!(spending.budget_usage().is_zero());
    }
}
