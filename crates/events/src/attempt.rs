//! Classifies an attempt.
//!
//! Exit codes are unreliable: some agents exit 0 after an API error, or when they are ended. So ralph's own
//! actions come first, then the agent's report, then the exit code.

use super::event::{Class, EndCause, Exit, Failure, FailureKind};

#[derive(Debug, Clone, Default)]
pub struct AttemptResult<'a> {
    pub exit: Option<Exit>,
    pub ended_by: Option<EndCause>,
    /// The agent's report, if any: `Some(None)` is success.
    pub result: Option<Option<&'a Failure>>,
    /// It wrote text or used a tool.
    pub active: bool,
    /// The completion signal counts even if the agent hangs or exits with an error, but not after a signal or a
    /// reported failure.
    pub completed: bool,
}

const FAILED_PREFIX: &str = "the agent failed: ";
const LAST_FAILURE_INFIX: &str = ", the last time: ";

pub fn retries_exhausted_message(failures: u32, last: &str) -> String {
    match failures {
        1 => format!("{FAILED_PREFIX}{last}"),
        n => format!("the agent failed {n} times in a row{LAST_FAILURE_INFIX}{last}"),
    }
}

/// Returns how the last attempt failed, from the message in a journal of ralph 0.1.0.
pub(crate) fn why_it_gave_up(words: &str) -> Option<&str> {
    let several = words.split_once(LAST_FAILURE_INFIX).map(|(_, last)| last);
    several.or_else(|| words.strip_prefix(FAILED_PREFIX))
}

const BUDGET_EXCEEDED_PREFIX: &str = "the budget is used up: ";

pub fn budget_exceeded_message(how_much: &str) -> String {
    format!("{BUDGET_EXCEEDED_PREFIX}{how_much}")
}

/// Returns the argument of [`budget_exceeded_message`], for journals of ralph 0.1.0.
pub(crate) fn how_much_was_used_up(message: &str) -> Option<&str> {
    message.strip_prefix(BUDGET_EXCEEDED_PREFIX)
}

/// When the rate limit resets, in milliseconds since the Unix epoch, if reported.
pub fn rate_limit_reset_ms(class: Class, failure: Option<&Failure>) -> Option<i64> {
    if !matches!(class, Class::RateLimited | Class::Overloaded) {
        return None;
    }
    failure?.resets_at.map(|seconds| seconds.saturating_mul(1000))
}

/// Describes how an attempt ended if the agent reported nothing.
pub fn describe_end(exit: Option<Exit>, ended_by: Option<EndCause>) -> String {
    match (ended_by, exit) {
        (Some(EndCause::Inactivity), _) => "no output within the inactivity limit".to_owned(),
        (Some(EndCause::SilentModel), _) => {
            "no output and no running tool for too long: the connection to the model is probably \
             dead"
                .to_owned()
        }
        (Some(EndCause::IterationTimeout), _) => "it reached the iteration's time limit".to_owned(),
        (None, Some(Exit::Signal(9))) => {
            "killed by signal 9, not sent by ralph: out of memory?".to_owned()
        }
        (_, Some(exit)) => exit.to_string(),
        (_, None) => "unknown exit status".to_owned(),
    }
}

pub fn classify(facts: &AttemptResult<'_>) -> Class {
    match facts.ended_by {
        Some(EndCause::Interrupt | EndCause::Guidance | EndCause::InternalError) => {
            return Class::Interrupted;
        }
        Some(EndCause::Inactivity | EndCause::SilentModel) if facts.completed => {
            return classify_result(facts.result.flatten(), true);
        }
        Some(EndCause::Inactivity | EndCause::IterationTimeout) => return Class::TimedOut,
        Some(EndCause::SilentModel) => return Class::Failed,
        Some(EndCause::Budget | EndCause::IterationBudget) => return Class::Limited,
        // The result counts, not how the agent was ended.
        Some(EndCause::ResultGrace | EndCause::Refused) => {
            return classify_result(facts.result.flatten(), facts.active);
        }
        None => {}
    }
    if let Some(Some(failure)) = facts.result {
        return classify_result(Some(failure), facts.active);
    }
    match facts.exit {
        Some(exit) if exit.success() => classify_result(None, facts.active),
        Some(Exit::Code(_)) if facts.completed => Class::Answered,
        _ => Class::Failed,
    }
}

fn classify_result(failure: Option<&Failure>, active: bool) -> Class {
    let Some(failure) = failure else {
        return if active { Class::Answered } else { Class::Empty };
    };
    match failure.kind {
        FailureKind::RateLimit => Class::RateLimited,
        FailureKind::Overloaded => Class::Overloaded,
        FailureKind::Credentials => Class::Credentials,
        FailureKind::Context => Class::ContextExhausted,
        FailureKind::TurnLimit | FailureKind::AgentBudget => Class::Limited,
        FailureKind::Refusal | FailureKind::Usage | FailureKind::Other => Class::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_class_prefers_own_kill_then_result_then_exit() {
        let failure = |kind| Failure { kind, message: String::new(), resets_at: None };
        let limit = failure(FailureKind::RateLimit);
        let other = failure(FailureKind::Other);
        let refused = failure(FailureKind::Credentials);
        let code = |code| Some(Exit::Code(code));
        let cases = [
            // exit, ended by us, verdict, active, class
            (code(0), None, None, true, Class::Answered),
            (code(0), None, None, false, Class::Empty),
            (code(0), None, Some(None), true, Class::Answered),
            (code(0), None, Some(Some(&other)), true, Class::Failed),
            (code(0), None, Some(Some(&limit)), true, Class::RateLimited),
            (code(1), None, Some(Some(&limit)), false, Class::RateLimited),
            (code(1), None, Some(None), true, Class::Failed),
            (code(1), None, None, true, Class::Failed),
            (Some(Exit::Signal(9)), None, None, true, Class::Failed),
            (None, None, None, true, Class::Failed),
            // An agent that exits 0 when it is ended did not answer.
            (code(0), Some(EndCause::Inactivity), None, true, Class::TimedOut),
            (code(0), Some(EndCause::IterationTimeout), Some(None), true, Class::TimedOut),
            (code(0), Some(EndCause::SilentModel), None, true, Class::Failed),
            (code(143), Some(EndCause::Interrupt), Some(None), true, Class::Interrupted),
            (code(143), Some(EndCause::ResultGrace), Some(None), true, Class::Answered),
            (code(143), Some(EndCause::ResultGrace), Some(Some(&other)), true, Class::Failed),
            (code(143), Some(EndCause::Refused), Some(Some(&refused)), true, Class::Credentials),
            (code(0), Some(EndCause::IterationBudget), None, true, Class::Limited),
        ];
        for (exit, ended_by, result, active, class) in cases {
            let facts = AttemptResult { exit, ended_by, result, active, completed: false };
            assert_eq!(classify(&facts), class, "{facts:?}");
        }
        let cases = [
            // What it said stands.
            (code(0), Some(EndCause::Inactivity), None, Class::Answered),
            (code(143), Some(EndCause::Inactivity), None, Class::Answered),
            (code(143), Some(EndCause::SilentModel), None, Class::Answered),
            (code(3), None, None, Class::Answered),
            (code(1), None, Some(None), Class::Answered),
            // And here it does not.
            (Some(Exit::Signal(9)), None, None, Class::Failed),
            (code(1), None, Some(Some(&limit)), Class::RateLimited),
            (code(1), Some(EndCause::Inactivity), Some(Some(&other)), Class::Failed),
            (code(0), Some(EndCause::Interrupt), None, Class::Interrupted),
            (code(0), Some(EndCause::IterationTimeout), None, Class::TimedOut),
        ];
        for (exit, ended_by, result, class) in cases {
            let facts = AttemptResult { exit, ended_by, result, active: true, completed: true };
            assert_eq!(classify(&facts), class, "{facts:?}");
        }
    }

    #[test]
    fn kill_by_others_is_distinguished_from_own_kill() {
        let killed = Some(Exit::Signal(9));
        assert!(describe_end(killed, None).contains("not sent by ralph: out of memory?"));
        assert_eq!(describe_end(killed, Some(EndCause::Budget)), "signal 9");
        assert_eq!(describe_end(Some(Exit::Signal(15)), None), "signal 15");
    }

    #[test]
    fn give_up_reason_round_trips_through_message() {
        for failures in [1, 2, 10] {
            assert_eq!(
                why_it_gave_up(&retries_exhausted_message(failures, "exit code 1")),
                Some("exit code 1")
            );
        }
        assert_eq!(why_it_gave_up("the limit of iterations is reached"), None);
        assert_eq!(how_much_was_used_up(&budget_exceeded_message("$5 of $5")), Some("$5 of $5"));
    }
}
