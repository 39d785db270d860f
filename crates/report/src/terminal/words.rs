//! Wording of the terminal view.

use ralph_events::event::{Class, EndCause, Exit, Outcome, Usage};
use ralph_events::run_state::Cost;
use ralph_events::text;

/// `(cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)`, without unknown
/// and zero figures.
pub(super) fn format_figures(
    iterations: Option<u32>,
    usage: &Usage,
    counts: &[(&str, u32)],
    duration_ms: u64,
) -> String {
    let mut parts = Vec::new();
    if let Some(iterations) = iterations {
        parts.push(format!("iterations: {iterations}"));
    }
    if let Some(cost) = usage.cost_usd {
        parts.push(format!("cost: {}", text::format_dollars(cost)));
    }
    if usage.total_tokens() > 0 {
        let cached = match usage.cache_read_tokens {
            0 => String::new(),
            cached => format!(" ({} cached)", text::format_count(cached)),
        };
        parts.push(format!(
            "tokens: {} in{cached} / {} out",
            text::format_count(usage.total_input()),
            text::format_count(usage.output_tokens)
        ));
    }
    for (name, count) in counts {
        if *count > 0 {
            parts.push(format!("{name}: {count}"));
        }
    }
    parts.push(format!("time: {}", text::format_duration(duration_ms)));
    format!("({})", parts.join(", "))
}

pub(crate) fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `2/10`, or `2` where there is no limit.
pub(crate) fn format_progress(iteration: u32, max_iterations: u32) -> String {
    match max_iterations {
        0 => iteration.to_string(),
        max => format!("{iteration}/{max}"),
    }
}

pub(super) fn describe_exit(exit: Option<Exit>) -> String {
    exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string())
}

pub(crate) fn describe_class(class: Class) -> &'static str {
    match class {
        Class::Answered => "The agent answered",
        Class::Empty => "The agent said nothing",
        Class::Failed => "The agent failed",
        Class::RateLimited => "Rate limit reached",
        Class::Overloaded => "The agent's service is overloaded",
        Class::Credentials => "The agent's credentials were refused",
        Class::ContextExhausted => "The agent's context is exhausted",
        Class::Limited => "The agent was stopped by a limit",
        Class::TimedOut => "The agent timed out",
        Class::Interrupted => "The agent was interrupted",
        Class::NotStarted => "The agent could not be started",
    }
}

pub(super) const PROMPT_ECHO_MESSAGE: &str = "The agent repeated its prompt and said nothing else";

pub(crate) fn describe_cause(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Inactivity => "Stopped: no output within the inactivity limit",
        EndCause::SilentModel => "Stopped: no output, and none of its tools was running",
        EndCause::IterationTimeout => "Stopped: iteration time limit",
        EndCause::ResultGrace => "Stopped: it had finished but did not exit",
        EndCause::Refused => "Stopped: it kept retrying with refused credentials",
        EndCause::Budget => "Stopped: budget used up",
        EndCause::IterationBudget => "Stopped: iteration budget used up",
        EndCause::Interrupt => "Stopped on request",
        EndCause::Guidance => "Stopped: the iteration restarts with your guidance",
        EndCause::InternalError => "Stopped: the journal cannot be written",
    }
}

/// The outcome as the beginning of a sentence.
pub(crate) fn describe_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "Done",
        Outcome::CompleteScmFailed => "Done, but an SCM task failed",
        Outcome::LimitReached => "Not done: iteration limit reached",
        Outcome::Interrupted => "Stopped by you",
        Outcome::Budget => "Stopped",
        Outcome::Stalled => "Stopped: no progress",
        Outcome::AgentFailed => "Failed",
        Outcome::CredentialsRefused => "Failed: the agent's credentials were refused",
        Outcome::PromptMissing => "Failed before the agent started",
        Outcome::InternalError => "Failed",
    }
}

/// ` after 2 iterations in 6m40s, $0.98`
pub(super) fn format_effort(iterations: u32, cut_off: bool, took_ms: u64, cost: Cost) -> String {
    let took = text::format_duration(took_ms);
    let mut effort = match cut_off {
        true => format!(" in iteration {iterations}, after {took}"),
        false => {
            let s = plural(u64::from(iterations));
            format!(" after {iterations} iteration{s} in {took}")
        }
    };
    match (cost.reported, cost.estimated) {
        (_, Some(dollars)) => effort += &format!(", about {}", text::format_dollars(dollars)),
        (Some(dollars), None) => effort += &format!(", {}", text::format_dollars(dollars)),
        (None, None) => {}
    }
    effort
}
