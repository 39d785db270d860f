//! The final `result` line.

use std::borrow::Cow;

use jiff::Zoned;

use crate::json::{RawJson, RawText};
use crate::tools::json_text;
use crate::{api, reset};
use ralph_events::event::{Failure, FailureKind};
use ralph_events::text::first_line;

/// A wrong figure must not cost the result.
#[derive(Clone, Copy)]
pub(super) struct ResultLine<'a>(pub(super) RawJson<'a>);

impl<'a> ResultLine<'a> {
    /// `None` if it does not say whether it is a success.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let line: RawJson<'a> = serde_json::from_slice(bytes).ok()?;
        let is_error = line.member("is_error");
        (is_error.is_null() || is_error.as_bool().is_some()).then_some(ResultLine(line))
    }

    pub(super) fn member(self, name: &str) -> Option<RawJson<'a>> {
        self.0.member(name).non_null()
    }

    fn word(self, name: &str) -> Cow<'a, str> {
        self.0.member(name).text()
    }

    fn message(self) -> Option<String> {
        let errors = self.0.member("errors").elements().unwrap_or_default().into_iter();
        let errors: Vec<Cow<'_, str>> = errors
            .map(|error| error.as_text().map_or_else(|| json_text(error), RawText::text))
            .collect();
        let message_in = |name| {
            let raw = self.0.member(name);
            let text = raw.as_text().or_else(|| raw.member("message").as_text())?.text();
            (!text.is_empty()).then(|| text.into_owned())
        };
        message_in("result")
            .or_else(|| message_in("error"))
            .or_else(|| (!errors.is_empty()).then(|| errors.join("; ")))
    }

    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        self.0.member("result").as_text().map(RawText::text)
    }

    /// Returns why this is no success. The arguments come from earlier lines.
    pub(super) fn failure(
        self,
        api_error: Option<&str>,
        limit_ends: Option<i64>,
    ) -> Option<Failure> {
        let subtype = &*self.0.member("subtype").text_or("success");
        // `"subtype":"success"` means only that the program itself did not fail.
        if !self.0.member("is_error").is_true() && !subtype.starts_with("error") {
            let error = api_error?;
            let text = error.trim_start_matches("[API Error: ");
            let failure = api::classify_failure(api::leading_status(text), text);
            return Some(Failure { message: error.to_owned(), ..failure });
        }
        let mut message = self.message().unwrap_or_else(|| subtype.replace('_', " "));
        if subtype == "error_during_execution"
            && let Some(reason) = self.0.member("terminal_reason").as_text()
        {
            // The message may be just a code.
            message = format!("error during execution ({}): {message}", reason.text());
        }
        let kind = match (
            subtype,
            &*self.word("terminal_reason"),
            &*self.word("stop_reason"),
            &*self.word("api_error_type"),
            self.0.member("api_error_status").as_count(),
        ) {
            ("error_max_turns", ..) => FailureKind::TurnLimit,
            ("error_max_budget_usd", ..) => FailureKind::AgentBudget,
            (_, "prompt_too_long", ..) => FailureKind::Context,
            (_, _, "refusal", ..) => FailureKind::Refusal,
            (.., "rate_limit_error", _) | (.., 429) => FailureKind::RateLimit,
            (.., "overloaded_error", _) | (.., 503 | 529) => FailureKind::Overloaded,
            (.., "authentication_error" | "permission_error", _) | (.., 401 | 403) => {
                FailureKind::Credentials
            }
            _ => failure_by_message(&message).map_or(FailureKind::Other, |failure| failure.kind),
        };
        let resets_at = (kind == FailureKind::RateLimit)
            .then(|| limit_ends.or_else(|| reset::claude_reset(&message, &Zoned::now())))
            .flatten();
        Some(Failure { kind, message, resets_at })
    }
}

/// Classifies the program's own final message. Never use it for text of a model or tool.
pub(crate) fn failure_by_message(text: &str) -> Option<Failure> {
    const PHRASES: &[(FailureKind, &str)] = &[
        (
            FailureKind::RateLimit,
            "You've hit your|usage limit reached|Request rejected (429)|API Error: 429|\
             Credit balance is too low",
        ),
        (FailureKind::Context, "Prompt is too long"),
        (FailureKind::Overloaded, "API Error: 529|overloaded_error"),
        (
            FailureKind::Credentials,
            "Invalid API key|Please run /login|No auth type is selected|\
             OAuth token has expired|Failed to authenticate|API Error: 401|API Error: 403",
        ),
    ];
    let text = first_line(text)?;
    let kind = api::kind_by_phrase(PHRASES, text)?;
    let resets_at = (kind == FailureKind::RateLimit)
        .then(|| reset::claude_reset(text, &Zoned::now()))
        .flatten();
    Some(Failure { kind, message: text.to_owned(), resets_at })
}
