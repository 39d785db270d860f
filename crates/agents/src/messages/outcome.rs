//! The final `result` line.

use std::borrow::Cow;

use jiff::Zoned;
use serde::Deserialize;

use crate::json::{RawJson, RawText};
use crate::tools::json_text;
use crate::{api, reset};
use ralph_events::event::{Failure, FailureKind};
use ralph_events::text::first_line;

/// Parsed leniently: a wrong figure must not cost the result.
#[derive(Deserialize)]
pub(super) struct ResultLine<'a> {
    #[serde(borrow)]
    subtype: Option<RawText<'a>>,
    is_error: Option<bool>,
    terminal_reason: Option<RawText<'a>>,
    stop_reason: Option<RawText<'a>>,
    api_error_type: Option<RawText<'a>>,
    api_error_status: Option<RawJson<'a>>,
    result: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
    errors: Option<RawJson<'a>>,
    pub(super) usage: Option<RawJson<'a>>,
    #[serde(rename = "modelUsage")]
    pub(super) model_usage: Option<RawJson<'a>>,
    pub(super) total_cost_usd: Option<RawJson<'a>>,
    pub(super) num_turns: Option<RawJson<'a>>,
}

impl ResultLine<'_> {
    fn message(&self) -> Option<String> {
        let errors: Vec<Cow<'_, str>> = self
            .errors
            .and_then(RawJson::elements)
            .into_iter()
            .flatten()
            .map(|error| error.as_text().map_or_else(|| json_text(error), RawText::text))
            .collect();
        let message_in = |raw: Option<RawJson<'_>>| {
            let raw = raw?;
            let text = raw.as_text().or_else(|| raw.member("message").as_text())?.text();
            (!text.is_empty()).then(|| text.into_owned())
        };
        message_in(self.result)
            .or_else(|| message_in(self.error))
            .or_else(|| (!errors.is_empty()).then(|| errors.join("; ")))
    }

    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        self.result.and_then(RawJson::as_text).map(RawText::text)
    }

    /// Returns why this is no success. The arguments come from earlier lines.
    pub(super) fn failure(
        &self,
        api_error: Option<&str>,
        limit_ends: Option<i64>,
    ) -> Option<Failure> {
        let subtype = self.subtype.map_or("success".into(), RawText::text);
        let subtype = &*subtype;
        // `"subtype":"success"` means only that the program itself did not fail.
        if !self.is_error.unwrap_or(false) && !subtype.starts_with("error") {
            let error = api_error?;
            let text = error.trim_start_matches("[API Error: ");
            let failure = api::classify_failure(api::leading_status(text), text);
            return Some(Failure { message: error.to_owned(), ..failure });
        }
        let mut message = self.message().unwrap_or_else(|| subtype.replace('_', " "));
        if subtype == "error_during_execution"
            && let Some(reason) = self.terminal_reason
        {
            // The message may be just a code.
            message = format!("error during execution ({}): {message}", reason.text());
        }
        let kind = match (
            subtype,
            &*self.terminal_reason.unwrap_or_default().text(),
            &*self.stop_reason.unwrap_or_default().text(),
            &*self.api_error_type.unwrap_or_default().text(),
            self.api_error_status.unwrap_or_default().as_count(),
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
    const PHRASES: [(&str, FailureKind); 15] = [
        ("You've hit your", FailureKind::RateLimit),
        ("usage limit reached", FailureKind::RateLimit),
        ("Request rejected (429)", FailureKind::RateLimit),
        ("API Error: 429", FailureKind::RateLimit),
        ("Credit balance is too low", FailureKind::RateLimit),
        ("Prompt is too long", FailureKind::Context),
        ("API Error: 529", FailureKind::Overloaded),
        ("overloaded_error", FailureKind::Overloaded),
        ("Invalid API key", FailureKind::Credentials),
        ("Please run /login", FailureKind::Credentials),
        ("No auth type is selected", FailureKind::Credentials),
        ("OAuth token has expired", FailureKind::Credentials),
        ("Failed to authenticate", FailureKind::Credentials),
        ("API Error: 401", FailureKind::Credentials),
        ("API Error: 403", FailureKind::Credentials),
    ];
    let text = first_line(text)?;
    let (_, kind) = PHRASES.iter().find(|(phrase, _)| text.contains(phrase))?;
    let resets_at = (*kind == FailureKind::RateLimit)
        .then(|| reset::claude_reset(text, &Zoned::now()))
        .flatten();
    Some(Failure { kind: *kind, message: text.to_owned(), resets_at })
}
