//! What a run has used up, as far as agents tell, and a guess at what they did not tell.
//!
//! An agent names its cost with its result. One that is ended before, or that is still running, has
//! told at most its tokens. A budget in dollars must count those, too, so they are taken to cost what
//! tokens have cost in this run so far. The guess is for budgets only; what is reported is what was
//! told.

use super::event::Usage;

#[derive(Debug, Clone, Default)]
pub struct Spending {
    /// Of all attempts that have ended, and of those of this iteration.
    total: Usage,
    iteration: Usage,
    /// Of the attempt that is running, so far.
    current: Usage,
    /// The tokens whose price is in `total`.
    priced_tokens: u64,
    /// The tokens of ended attempts that told no price.
    unpriced_tokens: u64,
    unpriced_in_iteration: u64,
}

impl Spending {
    /// An attempt is about to start, or did not come to start.
    pub fn attempt_starts(&mut self) {
        self.current = Usage::default();
    }

    /// An iteration is about to start.
    pub fn iteration_starts(&mut self) {
        self.iteration = Usage::default();
        self.unpriced_in_iteration = 0;
    }

    /// All that the running attempt has used so far.
    pub fn running(&mut self, usage: Usage) {
        self.current = usage;
    }

    /// The attempt is over. Tells whether its price is unknown and cannot even be guessed.
    pub fn attempt_ends(&mut self, usage: &Usage) -> bool {
        self.current = Usage::default();
        self.total.add(usage);
        self.iteration.add(usage);
        let tokens = usage.total_tokens();
        if usage.cost_usd.is_some() {
            self.priced_tokens = self.priced_tokens.saturating_add(tokens);
            return false;
        }
        self.unpriced_tokens = self.unpriced_tokens.saturating_add(tokens);
        self.unpriced_in_iteration = self.unpriced_in_iteration.saturating_add(tokens);
        tokens > 0 && self.price_of_a_token().is_none()
    }

    /// What was told of the run, and of this iteration.
    pub fn total(&self) -> Usage {
        self.total
    }

    pub fn iteration(&self) -> Usage {
        self.iteration
    }

    /// What budgets of the run are held against.
    pub fn of_run(&self) -> Usage {
        self.with_guess(self.total, self.unpriced_tokens)
    }

    /// What budgets of the iteration are held against.
    pub fn of_iteration(&self) -> Usage {
        self.with_guess(self.iteration, self.unpriced_in_iteration)
    }

    fn with_guess(&self, mut used: Usage, unpriced: u64) -> Usage {
        used.add(&self.current);
        let running = if self.current.cost_usd.is_none() { self.current.total_tokens() } else { 0 };
        let unpriced = unpriced.saturating_add(running);
        if unpriced > 0
            && let Some(price) = self.price_of_a_token()
        {
            *used.cost_usd.get_or_insert(0.0) += price * unpriced as f64;
        }
        used
    }

    fn price_of_a_token(&self) -> Option<f64> {
        let cost = self.total.cost_usd?;
        (self.priced_tokens > 0).then(|| cost / self.priced_tokens as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(tokens: u64, cost_usd: Option<f64>) -> Usage {
        Usage { cost_usd, input_tokens: tokens, ..Usage::default() }
    }

    #[test]
    fn what_is_told_is_counted_once() {
        let mut spending = Spending::default();
        spending.iteration_starts();
        spending.attempt_starts();
        spending.running(used(10, Some(1.0)));
        assert_eq!(spending.of_run(), used(10, Some(1.0)));
        assert!(!spending.attempt_ends(&used(12, Some(1.5))));
        assert_eq!(
            (spending.of_run(), spending.total()),
            (used(12, Some(1.5)), used(12, Some(1.5)))
        );
        spending.iteration_starts();
        assert_eq!(spending.of_iteration(), Usage::default());
    }

    #[test]
    fn what_is_not_told_is_guessed_from_what_was() {
        let mut spending = Spending::default();
        assert!(spending.attempt_ends(&used(100, None)), "there is nothing to guess from");
        assert_eq!(spending.of_run().cost_usd, None);
        assert!(!spending.attempt_ends(&used(100, Some(2.0))));
        assert_eq!(spending.of_run().cost_usd, Some(4.0));
        assert_eq!(spending.total().cost_usd, Some(2.0), "a guess is not reported");
        spending.iteration_starts();
        spending.running(used(50, None));
        assert_eq!(spending.of_iteration().cost_usd, Some(1.0));
        assert_eq!(spending.of_run().cost_usd, Some(5.0));
        assert!(!spending.attempt_ends(&used(60, None)));
        assert_eq!(spending.of_run().cost_usd, Some(5.2));
    }

    #[test]
    fn an_agent_that_tells_nothing_costs_nothing_that_anybody_knows() {
        let mut spending = Spending::default();
        assert!(!spending.attempt_ends(&Usage::default()));
        assert!(spending.of_run().is_zero());
    }
}
