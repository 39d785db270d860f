//! Tokens and money.
//!
//! An `assistant` line carries the usage of its message as it was when the message began,
//! which is right for the input and too low for the output. That is good enough to watch a budget
//! by while the agent works. A `result` has three accounts: `usage` covers only the turns since the
//! result before it, leaves subagents out and is all zero when the agent's own budget stopped it;
//! `modelUsage` and `total_cost_usd` cover everything since the start. So `modelUsage` counts where
//! it is told, and elsewhere the sum of `usage`, or what was seen in the messages if that is more. A cost of 0 with
//! tokens is no price, but the want of one.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Dialect;
use super::outcome::Outcome;
use crate::json::{Count, Raw, Str, lenient};
use crate::tools::Recent;
use ralph_events::event::Usage;

impl Dialect {
    /// Tokens as they are told, made into counts that do not overlap.
    pub(super) fn tokens(&self, told: Tokens) -> Tokens {
        if !self.input_includes_cache {
            return told;
        }
        let cached =
            told.cache_read_input_tokens.0.saturating_add(told.cache_creation_input_tokens.0);
        Tokens { input_tokens: Count(told.input_tokens.0.saturating_sub(cached)), ..told }
    }
}

/// What has been used so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) total: Usage,
    /// The latest messages, of which more lines may come.
    messages: Recent<Tokens>,
    /// The sum of what the results said of themselves.
    results: Tokens,
}

impl Account {
    /// Takes the usage of a message, told as often as it likes, and says whether the total changed.
    pub(super) fn message(&mut self, id: &str, tokens: Tokens) -> bool {
        let known = match self.messages.get_mut(id) {
            Some(known) => known,
            None => {
                self.messages.put(id, Tokens::default());
                match self.messages.get_mut(id) {
                    Some(known) => known,
                    None => return false,
                }
            }
        };
        let before = self.total;
        let more = tokens.beyond(known);
        *known = known.max(&tokens);
        more.add_to(&mut self.total);
        self.total != before
    }

    pub(super) fn settle(&mut self, line: &Outcome<'_>, dialect: &Dialect) -> Usage {
        let since_last = dialect.tokens(lenient(line.usage));
        self.results = self.results.plus(&since_last);
        let models: BTreeMap<Str<'_>, ModelTokens> = lenient(line.model_usage);
        let seen = Tokens::of(&self.total);
        let tokens = if models.is_empty() {
            self.results.max(&seen)
        } else {
            models.values().fold(Tokens::default(), |sum, model| sum.plus(&model.tokens()))
        };
        // It is of all that was done, and never becomes less.
        let before = self.total.cost_usd.unwrap_or(0.0);
        let cost: Option<f64> = lenient(line.total_cost_usd);
        // Behind a proxy, or with a model that the program has no price for, nothing is what it adds up. Tokens of a
        // service are not free, and none were used where a call was refused.
        let is_told = |cost: f64| cost > 0.0 || tokens == Tokens::default();
        let cost = cost.filter(|cost| *cost >= before && is_told(*cost));
        self.total = tokens.usage(cost.or(self.total.cost_usd));
        self.total
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl Tokens {
    pub(super) fn read(raw: Raw<'_>) -> Self {
        let mut tokens = Tokens::default();
        let _ = raw.members(|key, value| match key {
            b"input_tokens" => tokens.input_tokens = Count(value.count()),
            b"output_tokens" => tokens.output_tokens = Count(value.count()),
            b"cache_read_input_tokens" => tokens.cache_read_input_tokens = Count(value.count()),
            b"cache_creation_input_tokens" => {
                tokens.cache_creation_input_tokens = Count(value.count());
            }
            _ => {}
        });
        tokens
    }

    fn of(usage: &Usage) -> Self {
        Tokens {
            input_tokens: Count(usage.input_tokens),
            output_tokens: Count(usage.output_tokens),
            cache_read_input_tokens: Count(usage.cache_read_tokens),
            cache_creation_input_tokens: Count(usage.cache_write_tokens),
        }
    }

    fn zip(&self, other: &Tokens, with: fn(u64, u64) -> u64) -> Self {
        let with = |a: Count, b: Count| Count(with(a.0, b.0));
        Tokens {
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

    fn plus(&self, other: &Tokens) -> Self {
        self.zip(other, u64::saturating_add)
    }

    fn max(&self, other: &Tokens) -> Self {
        self.zip(other, u64::max)
    }

    fn beyond(&self, known: &Tokens) -> Self {
        self.zip(known, u64::saturating_sub)
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
        *total = Tokens::of(total).plus(self).usage(total.cost_usd);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ModelTokens {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

impl ModelTokens {
    fn tokens(&self) -> Tokens {
        Tokens {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
        }
    }
}
