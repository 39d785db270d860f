//! The rules of a loop: its limits, and what happens when something fails.

use serde::{Deserialize, Serialize};

use super::stall::StallRule;
use ralph_events::event::Usage;
use ralph_events::text;

/// What a loop may do, and when it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub max_iterations: u32,
    /// The exit code when the limit is reached without completion.
    pub exit_at_limit: u8,
    /// The exit code when the prompt is gone.
    pub exit_without_prompt: u8,
    pub retry: Retry,
    /// An attempt that ended well and said nothing is tried again.
    pub retry_empty: bool,
    pub inactivity_ms: Option<u64>,
    /// An agent that was ended for its silence has failed; else its iteration is simply over.
    pub inactivity_fails: bool,
    /// How long an agent whose stream is understood may print nothing while none of its tools runs. It is
    /// warned of at a quarter of this, and has failed at the end of it.
    pub silent_model_ms: Option<u64>,
    pub iteration_timeout_ms: Option<u64>,
    /// How long an agent may stay after its final result.
    pub result_grace_ms: Option<u64>,
    pub rate_limit: RateLimit,
    pub budget: Budget,
    pub iteration_budget: Budget,
    /// The time limit of each guardrail, in order.
    pub guardrails: Vec<Option<u64>>,
    /// The SCM tasks, in order.
    pub scm: Vec<ScmTaskKind>,
    /// How long each of them may take, and what has to be known before them.
    pub scm_timeout_ms: Option<u64>,
    /// Something other than guardrails can veto a completion.
    pub gates: bool,
    pub stall: StallRule,
    /// A first SIGTERM pauses the run instead of stopping it.
    pub term_pauses: bool,
    /// Refused hosts that are reported per iteration.
    pub max_refusals: usize,
}

impl Rules {
    pub const MAX_REFUSALS: usize = 50;
}

/// What happens when an agent fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub scope: RetryScope,
    pub backoff_ms: u64,
    pub backoff_cap_ms: u64,
    pub exit_code: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryScope {
    /// The same iteration is tried again, so many times.
    SameIteration { retries: u32 },
    /// A failure uses up its iteration; so many in a row end the run.
    NextIteration { failures: u32 },
}

impl Retry {
    /// The number of failures in a row that ends the run.
    pub fn max_failures(self) -> u32 {
        match self.scope {
            RetryScope::SameIteration { retries } => retries.saturating_add(1),
            RetryScope::NextIteration { failures } => failures.max(1),
        }
    }

    /// How long to wait after the `n`th failure in a row: twice as long each time, up to the cap.
    pub fn backoff(self, n: u32) -> u64 {
        let doublings = n.saturating_sub(1).min(40);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.backoff_cap_ms)
    }
}

/// What happens when the agent's account is at its limit, or its service has no capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub wait: bool,
    /// The longest that may be waited in a row.
    pub max_wait_ms: u64,
}

/// What may be used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub cost_usd: Option<f64>,
    pub tokens: Option<u64>,
    pub duration_ms: Option<u64>,
}

impl Budget {
    pub fn is_none(&self) -> bool {
        *self == Budget::default()
    }

    /// What it is, in words; nothing if there is no limit.
    pub fn describe(&self) -> Option<String> {
        let parts = [
            self.cost_usd.map(text::format_dollars),
            self.tokens.map(|tokens| format!("{tokens} tokens")),
            self.duration_ms.map(text::format_duration),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// This one, and the other where it says nothing.
    #[must_use]
    pub fn or(self, other: Budget) -> Budget {
        Budget {
            cost_usd: self.cost_usd.or(other.cost_usd),
            tokens: self.tokens.or(other.tokens),
            duration_ms: self.duration_ms.or(other.duration_ms),
        }
    }

    /// What is used up of this budget, in words. A cost that is not all told is called an estimate.
    pub fn exceeded(&self, used: &Usage, told: &Usage, elapsed_ms: u64) -> Option<String> {
        let spent = used.cost_usd.unwrap_or(0.0);
        if let Some(limit) = self.cost_usd.filter(|limit| spent >= *limit) {
            let about = if used.cost_usd == told.cost_usd { "" } else { "about " };
            Some(format!(
                "cost {about}{} of {}",
                text::format_dollars(spent),
                text::format_dollars(limit)
            ))
        } else if let Some(limit) = self.tokens.filter(|limit| used.total_tokens() >= *limit) {
            Some(format!("{} of {} tokens", used.total_tokens(), limit))
        } else {
            let limit = self.duration_ms.filter(|limit| elapsed_ms >= *limit)?;
            Some(format!(
                "{} of {}",
                text::format_duration(elapsed_ms),
                text::format_duration(limit)
            ))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScmTaskKind {
    /// Needs something to commit, and a message that the agent is asked for.
    Commit,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_description_lists_set_limits() {
        let (cost_usd, tokens) = (Some(2.5), Some(20_000));
        let none = Budget::default();
        assert_eq!((none.describe(), none.is_none()), (None, true));
        let some = Budget { cost_usd, duration_ms: Some(90_000), ..none };
        assert_eq!(some.describe().as_deref(), Some("$2.50, 1m30s"));
        let other = Budget { tokens, cost_usd: Some(1.0), ..none };
        assert_eq!(some.or(other), Budget { tokens, ..some });
        assert_eq!(none.or(other), other);
    }

    #[test]
    fn partly_reported_cost_is_described_as_estimate() {
        let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
        let cost = |usd| Usage { cost_usd: usd, ..Usage::default() };
        for (used, told, words) in [
            (Some(0.5), Some(0.5), None),
            (Some(1.25), Some(1.25), Some("cost $1.25 of $1.00")),
            (Some(1.25), Some(0.25), Some("cost about $1.25 of $1.00")),
            (Some(1.25), None, Some("cost about $1.25 of $1.00")),
        ] {
            assert_eq!(budget.exceeded(&cost(used), &cost(told), 0).as_deref(), words);
        }
    }
}
