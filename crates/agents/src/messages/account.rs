//! Tokens and costs.
//!
//! An `assistant` line has the usage at the start of the message: the output is too low, but good
//! enough to watch a budget. In a `result`, `usage` covers only the last turns, omits subagents and
//! is zero if the agent's own budget stopped it. `modelUsage` and `total_cost_usd` cover
//! everything, so `modelUsage` is preferred to the sum of `usage` or messages.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::StreamJsonDialect;
use super::outcome::ResultLine;
use crate::json::{Count, RawJson, ShortStr, lenient};
use crate::tools::RecentMap;
use ralph_events::event::Usage;

impl StreamJsonDialect {
    pub(super) fn tokens(&self, reported: TokenCounts) -> TokenCounts {
        if !self.input_includes_cache {
            return reported;
        }
        let cached = reported
            .cache_read_input_tokens
            .0
            .saturating_add(reported.cache_creation_input_tokens.0);
        TokenCounts {
            input_tokens: Count(reported.input_tokens.0.saturating_sub(cached)),
            ..reported
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct UsageTotals {
    pub(super) total: Usage,
    messages: RecentMap<TokenCounts>,
    results: TokenCounts,
}

impl UsageTotals {
    /// Returns whether the total changed.
    pub(super) fn add_message(&mut self, id: &str, tokens: TokenCounts) -> bool {
        let known = match self.messages.get_mut(id) {
            Some(known) => known,
            None => {
                self.messages.insert(id, TokenCounts::default());
                match self.messages.get_mut(id) {
                    Some(known) => known,
                    None => return false,
                }
            }
        };
        let before = self.total;
        let more = tokens.saturating_sub(known);
        *known = known.max(&tokens);
        more.add_to(&mut self.total);
        self.total != before
    }

    pub(super) fn finish(&mut self, line: &ResultLine<'_>, dialect: &StreamJsonDialect) -> Usage {
        let since_last = dialect.tokens(lenient(line.usage));
        self.results = self.results.plus(&since_last);
        let models: BTreeMap<ShortStr<'_>, ModelTokenCounts> = lenient(line.model_usage);
        let seen = TokenCounts::from_usage(&self.total);
        let tokens = if models.is_empty() {
            self.results.max(&seen)
        } else {
            models.values().fold(TokenCounts::default(), |sum, model| sum.plus(&model.tokens()))
        };
        // Cumulative, so it never decreases.
        let before = self.total.cost_usd.unwrap_or(0.0);
        let cost: Option<f64> = lenient(line.total_cost_usd);
        // With tokens, a cost of 0 means that the program knows no price, as behind a proxy.
        let is_known = |cost: f64| cost > 0.0 || tokens == TokenCounts::default();
        let cost = cost.filter(|cost| *cost >= before && is_known(*cost));
        self.total = tokens.usage(cost.or(self.total.cost_usd));
        self.total
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct TokenCounts {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl TokenCounts {
    pub(super) fn read(raw: RawJson<'_>) -> Self {
        let mut tokens = TokenCounts::default();
        let _ = raw.for_each_member(|key, value| match key {
            b"input_tokens" => tokens.input_tokens = Count(value.as_count()),
            b"output_tokens" => tokens.output_tokens = Count(value.as_count()),
            b"cache_read_input_tokens" => tokens.cache_read_input_tokens = Count(value.as_count()),
            b"cache_creation_input_tokens" => {
                tokens.cache_creation_input_tokens = Count(value.as_count());
            }
            _ => {}
        });
        tokens
    }

    fn from_usage(usage: &Usage) -> Self {
        TokenCounts {
            input_tokens: Count(usage.input_tokens),
            output_tokens: Count(usage.output_tokens),
            cache_read_input_tokens: Count(usage.cache_read_tokens),
            cache_creation_input_tokens: Count(usage.cache_write_tokens),
        }
    }

    fn zip_with(&self, other: &TokenCounts, with: fn(u64, u64) -> u64) -> Self {
        let with = |a: Count, b: Count| Count(with(a.0, b.0));
        TokenCounts {
            input_tokens: with(self.input_tokens, other.input_tokens),
            output_tokens: with(self.output_tokens, other.output_tokens),
            cache_read_input_tokens: with(
                self.cache_read_input_tokens,
                other.cache_read_input_tokens,
            ),
            cache_creation_input_tokens: with(
                self.cache_creation_input_tokens,
                other.cache_creation_input_tokens,
            ),
        }
    }

    fn plus(&self, other: &TokenCounts) -> Self {
        self.zip_with(other, u64::saturating_add)
    }

    fn max(&self, other: &TokenCounts) -> Self {
        self.zip_with(other, u64::max)
    }

    fn saturating_sub(&self, known: &TokenCounts) -> Self {
        self.zip_with(known, u64::saturating_sub)
    }

    fn usage(&self, cost_usd: Option<f64>) -> Usage {
        Usage {
            cost_usd,
            input_tokens: self.input_tokens.0,
            output_tokens: self.output_tokens.0,
            cache_read_tokens: self.cache_read_input_tokens.0,
            cache_write_tokens: self.cache_creation_input_tokens.0,
        }
    }

    fn add_to(&self, total: &mut Usage) {
        *total = TokenCounts::from_usage(total).plus(self).usage(total.cost_usd);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ModelTokenCounts {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl ModelTokenCounts {
    fn tokens(&self) -> TokenCounts {
        TokenCounts {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
        }
    }
}
