//! Classifies failed API calls.
//!
//! Only for messages of the program itself: the same text from a file, tool or model means nothing.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::reset;
use ralph_events::event::{Failure, FailureKind};

/// `status` is 0 if unknown.
pub(super) fn classify_failure(status: u64, message: &str) -> Failure {
    classify_failure_at(status, message, None)
}

/// Classifies a message without a status. `None` if it is of no known kind.
pub(super) fn known_failure(message: &str) -> Option<Failure> {
    let failure = classify_failure(0, message);
    (failure.kind != FailureKind::Other).then_some(failure)
}

/// Counts "in 40 seconds" from `reported_at`.
pub(super) fn classify_failure_at(
    status: u64,
    message: &str,
    reported_at: Option<Timestamp>,
) -> Failure {
    let kind = failure_kind(status, message);
    let reported_at = reported_at.unwrap_or_else(Timestamp::now).to_zoned(TimeZone::UTC);
    let resets_at = (kind == FailureKind::RateLimit)
        .then(|| reset::retry_after_reset(message, &reported_at))
        .flatten();
    Failure { kind, message: message.trim().to_owned(), resets_at }
}

pub(super) fn failure_kind(status: u64, message: &str) -> FailureKind {
    let by_message = kind_by_message(message);
    match status {
        // Only the message tells a too large request from other bad ones.
        400 | 413 | 422 if by_message == Some(FailureKind::Context) => FailureKind::Context,
        413 => FailureKind::Context,
        401 | 403 => FailureKind::Credentials,
        402 | 429 => FailureKind::RateLimit,
        503 | 529 => FailureKind::Overloaded,
        0 => by_message.unwrap_or(FailureKind::Other),
        // Gateways report limits as server errors.
        500.. => by_message.unwrap_or(FailureKind::Other),
        _ => match by_message {
            Some(FailureKind::Credentials) if status == 400 => FailureKind::Credentials,
            _ => FailureKind::Other,
        },
    }
}

fn kind_by_message(message: &str) -> Option<FailureKind> {
    // By precedence: token quotas mention the context, too.
    const PHRASES: &[(FailureKind, &str)] = &[
        (
            FailureKind::Context,
            "context length|context window|context_length|context limit|prompt is too long|\
             input token count",
        ),
        (
            FailureKind::RateLimit,
            "rate limit|rate_limit|too many requests|quota|resource_exhausted|usage limit|\
             insufficient balance",
        ),
        (FailureKind::Overloaded, "overloaded|service unavailable|at capacity"),
        (
            FailureKind::Credentials,
            "invalid api key|invalid x-api-key|incorrect api key|api key not valid|\
             api key is missing|unauthorized|unauthenticated|permission_denied|\
             authentication|not logged in",
        ),
    ];
    kind_by_phrase(PHRASES, &message.to_lowercase())
}

/// The kind with the first phrase that a text contains. `|` separates phrases.
pub(super) fn kind_by_phrase(kinds: &[(FailureKind, &str)], text: &str) -> Option<FailureKind> {
    let contains = |phrases: &str| phrases.split('|').any(|phrase| text.contains(phrase));
    kinds.iter().find(|(_, phrases)| contains(phrases)).map(|(kind, _)| *kind)
}

/// The status in `401 invalid x-api-key`, or 0.
pub(super) fn leading_status(message: &str) -> u64 {
    let digits = message.trim_start().split(|c: char| !c.is_ascii_digit()).next();
    match digits {
        Some(digits) if digits.len() == 3 => digits.parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_kind_prefers_status_code_over_message() {
        for (status, message, expected) in [
            (401, "the rate limit of your quota", FailureKind::Credentials),
            (429, "slow down", FailureKind::RateLimit),
            (529, "Overloaded", FailureKind::Overloaded),
            (400, "This model's maximum context length is 8192 tokens.", FailureKind::Context),
            (400, "API key not valid. Please pass a valid API key.", FailureKind::Credentials),
            (400, "mock bad request: rate limit", FailureKind::Other),
            (500, "upstream: quota exceeded", FailureKind::RateLimit),
            (500, "internal", FailureKind::Other),
            (0, "This request would exceed your organization's rate limit", FailureKind::RateLimit),
            (0, "invalid x-api-key", FailureKind::Credentials),
            (0, "The socket connection was closed unexpectedly.", FailureKind::Other),
        ] {
            assert_eq!(failure_kind(status, message), expected, "{status} {message}");
        }
    }

    #[test]
    fn leading_status_code_is_parsed_from_message() {
        for (message, status) in
            [("429 slow down", 429), ("401", 401), ("40 days", 0), ("4290 x", 0), ("", 0), ("x", 0)]
        {
            assert_eq!(leading_status(message), status, "{message}");
        }
    }
}
