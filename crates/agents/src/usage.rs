//! Token counts, under the names that the agents use.

use crate::json::RawJson;
use ralph_events::event::Usage;

pub(super) fn read_usage(counts: RawJson<'_>) -> Usage {
    let mut usage = Usage::default();
    let _ = counts.for_each_member(|key, value| {
        let count = match key {
            b"input_tokens" | b"inputTokens" => &mut usage.input_tokens,
            b"output_tokens" | b"outputTokens" => &mut usage.output_tokens,
            b"cache_read_input_tokens"
            | b"cacheReadInputTokens"
            | b"cacheReadTokens"
            | b"cached_input_tokens" => &mut usage.cache_read_tokens,
            b"cache_creation_input_tokens"
            | b"cacheCreationInputTokens"
            | b"cacheWriteTokens"
            | b"cache_write_input_tokens" => &mut usage.cache_write_tokens,
            _ => return,
        };
        *count = value.as_count();
    });
    usage
}

/// For agents whose input count includes cached tokens.
pub(super) fn read_inclusive_usage(counts: RawJson<'_>) -> Usage {
    let usage = read_usage(counts);
    let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
    Usage { input_tokens: usage.input_tokens.saturating_sub(cached), ..usage }
}
