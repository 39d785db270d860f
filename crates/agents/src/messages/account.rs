//! Tokens and costs.
//!
//! An `assistant` line has the usage at the start of the message: the output is too low, but good
//! enough to watch a budget. In a `result`, `usage` covers only the last turns, omits subagents and
//! is zero if the agent's own budget stopped it. `modelUsage` and `total_cost_usd` cover
//! everything, so `modelUsage` is preferred to the sum of `usage` or messages.

use super::StreamJsonDialect;
use super::outcome::ResultLine;
use crate::json::RawJson;
use crate::tools::RecentMap;
use crate::usage::{read_inclusive_usage, read_usage};
use ralph_events::event::Usage;

impl StreamJsonDialect {
    pub(super) fn usage(&self, counts: RawJson<'_>) -> Usage {
        if self.input_includes_cache { read_inclusive_usage(counts) } else { read_usage(counts) }
    }
}

#[derive(Debug, Default)]
pub(super) struct UsageTotals {
    pub(super) total: Usage,
    messages: RecentMap<Usage>,
    results: Usage,
}

impl UsageTotals {
    /// Returns whether the total changed.
    pub(super) fn add_message(&mut self, id: &str, usage: Usage) -> bool {
        let before = self.total;
        let known = self.messages.get_or_default(id);
        self.total.add(&known.shortfall(&usage));
        known.at_least(&usage);
        self.total != before
    }

    pub(super) fn finish(&mut self, line: ResultLine<'_>, dialect: &StreamJsonDialect) -> Usage {
        self.results.add(&dialect.usage(line.0.member("usage")));
        let (mut models, mut has_models) = (Usage::default(), false);
        let _ = line.0.member("modelUsage").for_each_member(|_, model| {
            models.add(&read_usage(model));
            has_models = true;
        });
        let tokens = if has_models {
            models
        } else {
            let mut most = self.results;
            most.at_least(&Usage { cost_usd: None, ..self.total });
            most
        };
        // Cumulative, so it never decreases.
        let before = self.total.cost_usd.unwrap_or(0.0);
        let cost = line.0.member("total_cost_usd").as_f64();
        // With tokens, a cost of 0 means that the program knows no price, as behind a proxy.
        let is_known = |cost: f64| cost > 0.0 || tokens.total_tokens() == 0;
        let cost = cost.filter(|cost| *cost >= before && is_known(*cost));
        self.total = Usage { cost_usd: cost.or(self.total.cost_usd), ..tokens };
        self.total
    }
}
