//! The rules of a loop: limits, retries, budgets.

use serde::{Deserialize, Serialize};

use super::stall::StallRule;
use ralph_events::event::Usage;
use ralph_events::spending::Spending;
use ralph_events::text;

#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub max_iterations: u32,
    pub exit_at_limit: u8,
    pub exit_without_prompt: u8,
    pub retry: Retry,
    /// Retry an attempt that ended normally without output.
    pub retry_empty: bool,
    pub inactivity_ms: Option<u64>,
    /// An agent ended for inactivity has failed; otherwise its iteration just ends.
    pub inactivity_fails: bool,
    /// The silence, while no tool runs, after which an agent has failed. The user is warned at a quarter of it.
    pub silent_model_ms: Option<u64>,
    pub iteration_timeout_ms: Option<u64>,
    /// The time an agent may stay after its final result.
    pub result_grace_ms: Option<u64>,
    pub rate_limit: RateLimit,
    pub budget: Budget,
    pub iteration_budget: Budget,
    /// The time limit of each guardrail.
    pub guardrails: Vec<Option<u64>>,
    pub scm: Vec<ScmTaskKind>,
    /// The limit of each SCM task and of each inspection before it.
    pub scm_timeout_ms: Option<u64>,
    /// Gates, beside guardrails, decide on completion.
    pub gates: bool,
    pub stall: StallRule,
    /// A first SIGTERM pauses the run.
    pub term_pauses: bool,
    /// Refused hosts reported per iteration.
    pub max_refusals: usize,
    /// The silence after which to see whether a plain-text agent has said that it is done.
    pub check_done_ms: Option<u64>,
    /// A notification is due at the end of the run.
    pub notify: bool,
    pub questions: QuestionMode,
}

/// What a question of the agent does to the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QuestionMode {
    /// The loop continues, and the answer goes into the prompt that follows it.
    #[default]
    Continue,
    /// The run parks after the current iteration until it is answered.
    Wait,
    /// Nothing is a question.
    Off,
}

impl Rules {
    pub const MAX_REFUSALS: usize = 50;
    /// Questions per iteration.
    pub const MAX_QUESTIONS: u32 = 10;
    pub const CHECK_DONE_MS: u64 = 1_000;

    pub fn is_iteration_budget_exceeded(&self, spending: &Spending, worked_ms: u64) -> bool {
        let (used, reported) = (spending.iteration_budget_usage(), spending.iteration());
        self.iteration_budget.exceeded(&used, &reported, worked_ms).is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub scope: RetryScope,
    pub backoff_ms: u64,
    pub backoff_cap_ms: u64,
    pub exit_code: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryScope {
    SameIteration {
        retries: u32,
    },
    /// This many failures in a row end the run.
    NextIteration {
        failures: u32,
    },
}

impl Retry {
    /// Failures in a row that end the run.
    pub fn max_failures(self) -> u32 {
        match self.scope {
            RetryScope::SameIteration { retries } => retries.saturating_add(1),
            RetryScope::NextIteration { failures } => failures.max(1),
        }
    }

    /// The wait after the `n`th failure, doubled each time.
    pub fn backoff(self, n: u32) -> u64 {
        let doublings = n.saturating_sub(1).min(40);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.backoff_cap_ms)
    }
}

/// Reaction to rate limits and overloaded services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub wait: bool,
    /// The longest wait in a row.
    pub max_wait_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub cost_usd: Option<f64>,
    pub tokens: Option<u64>,
    pub duration_ms: Option<u64>,
}

impl Budget {
    pub fn describe(&self) -> Option<String> {
        let parts = [
            self.cost_usd.map(text::format_dollars),
            self.tokens.map(|tokens| format!("{tokens} tokens")),
            self.duration_ms.map(text::format_duration),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Describes the exceeded limit. Unreported cost is an estimate.
    pub fn exceeded(&self, used: &Usage, reported: &Usage, elapsed_ms: u64) -> Option<String> {
        let spent = used.cost_usd.unwrap_or(0.0);
        if let Some(limit) = self.cost_usd.filter(|limit| spent >= *limit) {
            let about = if used.cost_usd == reported.cost_usd { "" } else { "about " };
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
    /// Needs changes and a message from the agent.
    Commit,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_description_lists_set_limits() {
        let none = Budget::default();
        assert_eq!(none.describe(), None);
        let some = Budget { cost_usd: Some(2.5), duration_ms: Some(90_000), ..none };
        assert_eq!(some.describe().as_deref(), Some("$2.50, 1m30s"));
    }

    #[test]
    fn partly_reported_cost_is_described_as_estimate() {
        let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
        let cost = |usd| Usage { cost_usd: usd, ..Usage::default() };
        for (used, reported, words) in [
            (Some(0.5), Some(0.5), None),
            (Some(1.25), Some(1.25), Some("cost $1.25 of $1.00")),
            (Some(1.25), Some(0.25), Some("cost about $1.25 of $1.00")),
            (Some(1.25), None, Some("cost about $1.25 of $1.00")),
        ] {
            assert_eq!(budget.exceeded(&cost(used), &cost(reported), 0).as_deref(), words);
        }
    }
}
