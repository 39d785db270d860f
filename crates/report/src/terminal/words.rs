//! Wording of the terminal view.

use ralph_events::event::{Class, EndCause, Exit, Outcome, Usage};
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

pub(super) fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `2/10`, or `2` where there is no limit.
pub(super) fn format_progress(iteration: u32, max_iterations: u32) -> String {
    match max_iterations {
        0 => iteration.to_string(),
        max => format!("{iteration}/{max}"),
    }
}

pub(super) fn describe_exit(exit: Option<Exit>) -> String {
    exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string())
}

pub(super) fn describe_class(class: Class) -> &'static str {
    match class {
        Class::Answered => "The agent answered",
        Class::Empty => "The agent said nothing",
        Class::Failed => "The agent failed",
        Class::RateLimited => "The agent's rate limit is used up",
        Class::Overloaded => "The agent's service is overloaded",
        Class::Credentials => "The agent's credentials were refused",
        Class::ContextExhausted => "The agent's context is full",
        Class::Limited => "The agent was stopped by a limit",
        Class::TimedOut => "The agent timed out",
        Class::Interrupted => "The agent was interrupted",
        Class::NotStarted => "The agent could not be started",
    }
}

pub(super) const PROMPT_ECHO_MESSAGE: &str = "The agent repeated its prompt and said nothing else";

pub(super) fn describe_cause(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Inactivity => "Ended: it printed nothing for the inactivity limit",
        EndCause::SilentModel => "Ended: it printed nothing while none of its tools ran",
        EndCause::IterationTimeout => "Ended: the iteration's time limit",
        EndCause::ResultGrace => "Ended: it had given its result and did not leave",
        EndCause::Refused => "Ended: it went on trying with credentials that were refused",
        EndCause::Budget => "Ended: the run's budget",
        EndCause::IterationBudget => "Ended: the iteration's budget",
        EndCause::Interrupt => "Ended: a stop was asked for",
        EndCause::InternalError => "Ended: the run's journal cannot be written any more",
    }
}

pub(super) fn describe_outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "Run complete",
        Outcome::CompleteScmFailed => "Run complete, but an SCM task failed",
        Outcome::LimitReached => "Run not complete, iteration limit reached",
        Outcome::Interrupted => "Run interrupted",
        Outcome::Budget => "Run stopped by its budget",
        Outcome::Stalled => "Run stopped, nothing changed in the repository any more",
        Outcome::AgentFailed => "Run failed, the agent kept failing",
        Outcome::CredentialsRefused => "Run failed, the agent's credentials were refused",
        Outcome::PromptMissing => "Run failed before the agent was asked",
        Outcome::InternalError => "Run failed, ralph could not go on",
    }
}

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunEnding<'a> {
    pub(crate) run: &'a str,
    pub(crate) outcome: Outcome,
    /// The run ended because a budget was used up, not because a wait would outlast it.
    pub(crate) budget_used_up: bool,
    pub(crate) iterations: u32,
    pub(crate) max_iterations: u32,
    pub(crate) cut_off: bool,
    pub(crate) scm_done: &'a [String],
    pub(crate) limit_ends: Option<&'a str>,
}

impl RunEnding<'_> {
    /// The next command for the user.
    pub(crate) fn next_step(&self) -> Option<String> {
        // A run stopped after its last iteration needs a higher limit.
        let used_up = self.outcome == Outcome::Interrupted
            && !self.cut_off
            && self.max_iterations > 0
            && self.iterations >= self.max_iterations;
        let stuck = if used_up { Outcome::LimitReached } else { self.outcome };
        let mut next = next_step(stuck, self.run)?;
        if let Some(time) = self.limit_ends {
            // There is nothing else to be looked into.
            let time_is_left = stuck == Outcome::Budget && !self.budget_used_up;
            if stuck == Outcome::AgentFailed || time_is_left {
                next = format!("then `ralph resume {}` goes on", self.run);
            }
            next = format!("the limit ends at {time}; {next}");
        }
        // An agent that was refused has done nothing.
        if self.cut_off && stuck == Outcome::Budget && self.limit_ends.is_none() {
            next.push_str(&format!("; {}", cut_short_message(self.iterations, self.scm_done)));
        }
        Some(next)
    }
}

pub(crate) fn cut_short_message(iteration: u32, scm_done: &[String]) -> String {
    if scm_done.is_empty() {
        return format!(
            "what iteration {iteration} did lies in the work tree, unchecked and not committed by ralph"
        );
    }
    let done = scm_done.join(", ");
    format!(
        "iteration {iteration} passed its checks, and was cut off after these SCM tasks: {done}"
    )
}

pub fn next_step(outcome: Outcome, run: &str) -> Option<String> {
    let shows = format!("`ralph replay {run}` shows what happened");
    let resume = format!("`ralph resume {run}`");
    Some(match outcome {
        Outcome::Complete => return None,
        Outcome::CompleteScmFailed => {
            "the work is done; carry out the failed SCM task by hand".to_owned()
        }
        Outcome::LimitReached => {
            format!("{resume} with more iterations (-n) goes on; {shows}")
        }
        Outcome::Interrupted => format!("{resume} goes on; {shows}"),
        Outcome::Budget => format!(
            "{resume} with a larger --max-cost, --max-tokens or --max-time goes on; \
             `ralph report {run}` tells what was done"
        ),
        Outcome::Stalled => format!("{shows}; make the prompt clearer, then {resume}"),
        Outcome::AgentFailed => format!(
            "{shows}; then {resume}, which keeps the settings of this run (to change them, \
             start a new one)"
        ),
        Outcome::CredentialsRefused => {
            format!("sign in with the agent's own program, then {resume}")
        }
        Outcome::PromptMissing => format!("put back what is missing, then {resume}"),
        Outcome::InternalError => format!("see the message above, then {resume}"),
    })
}
