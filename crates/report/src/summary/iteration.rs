use super::IterationSummary;
use super::words::{MAX_FAILURES, commit_line, short_commit_id};
use ralph_events::event::{Class, EndCause, FailureKind};
use ralph_events::run_state::{GuardrailResult, Listed};
use ralph_events::text;

const MAX_COMMITS: usize = 20;
const MIN_WAIT_MS: u64 = 60_000;

pub(super) fn state_label(iteration: &IterationSummary) -> &'static str {
    if iteration.is_current {
        return "under way";
    }
    let Some(class) = iteration.record.class.filter(|_| iteration.record.ended) else {
        return "not ended";
    };
    if iteration.record.guardrails.iter().any(GuardrailResult::has_failed) {
        return "guardrail failed";
    }
    match class {
        Class::Answered if iteration.record.cut_off => "not all checked",
        Class::Answered if iteration.record.vetoed.is_some() => "not complete",
        Class::Answered => "answered",
        Class::Empty if iteration.record.repeats_prompt => "repeated its prompt",
        Class::Empty => "said nothing",
        Class::Failed if iteration.record.ended_by == Some(EndCause::SilentModel) => "fell silent",
        Class::Failed => "failed",
        Class::RateLimited => "rate limit",
        Class::Overloaded => "overloaded",
        Class::Credentials => "credentials refused",
        Class::ContextExhausted => "context full",
        Class::Limited => match (iteration.record.ended_by, iteration.record.failure) {
            (Some(EndCause::Budget), _) => "run's budget",
            (None, Some(FailureKind::TurnLimit)) => "agent's turn limit",
            (None, Some(FailureKind::AgentBudget)) => "agent's own budget",
            _ => "iteration's budget",
        },
        Class::TimedOut if iteration.record.ended_by == Some(EndCause::Inactivity) => "fell silent",
        Class::TimedOut => "timed out",
        Class::Interrupted => "interrupted",
        Class::NotStarted => "not started",
    }
}

pub(super) fn attempts_text(iteration: &IterationSummary) -> Option<String> {
    match (iteration.record.starts, iteration.record.attempts) {
        (0..=1, 0..=1) => None,
        (0..=1, n) => Some(format!("{n} attempts")),
        (m, n) if n <= m => Some(format!("begun {m} times")),
        (m, n) => Some(format!("begun {m} times, {n} attempts")),
    }
}

pub(super) fn cost(iteration: &IterationSummary) -> String {
    match (iteration.record.usage.cost_usd, iteration.estimated_cost_usd) {
        (_, Some(guess)) => format!("~{}", text::format_dollars(guess)),
        (Some(told), None) => text::format_dollars(told),
        (None, None) => "-".to_owned(),
    }
}

#[derive(Debug)]
pub(super) enum IterationDetail {
    Commit(String),
    Plain(String),
    Bad(String),
}

pub(super) fn details(iteration: &IterationSummary) -> Vec<IterationDetail> {
    let mut details = Vec::new();
    let and_more = |shown: usize, all: usize| {
        let more = all.saturating_sub(shown);
        (more > 0).then(|| IterationDetail::Plain(format!("and {more} more")))
    };
    let commits = &iteration.commits;
    details.extend(
        commits.iter().take(MAX_COMMITS).map(|it| IterationDetail::Commit(commit_line(it))),
    );
    details.extend(and_more(MAX_COMMITS, commits.len()));
    if let Some(head) = iteration.record.head.as_ref().filter(|_| commits.is_empty()) {
        details.push(IterationDetail::Plain(format!("HEAD moved to {}", short_commit_id(head))));
    }
    if iteration.record.waited_ms >= MIN_WAIT_MS {
        details.push(IterationDetail::Plain(format!(
            "waited {}",
            text::format_duration(iteration.record.waited_ms)
        )));
    }
    let mut failures = Listed::default();
    iteration.record.failures.iter().for_each(|why| failures.push(why.clone()));
    let failed = failures.first.iter().take(MAX_FAILURES).map(|told| match told.times {
        1 => format!("failed: {}", told.item),
        times => format!("failed {times} times: {}", told.item),
    });
    details.extend(failed.map(IterationDetail::Bad));
    details.extend(and_more(MAX_FAILURES, failures.first.len()));
    let scm = iteration.record.scm_failed.iter().take(MAX_FAILURES);
    details.extend(
        scm.map(|it| IterationDetail::Bad(format!("SCM task failed: {}: {}", it.task, it.reason))),
    );
    let vetoed = iteration.record.vetoed.iter();
    details.extend(vetoed.map(|why| IterationDetail::Bad(format!("not complete: {why}"))));
    details
}

/// The first and last iterations, and those between that are summarized.
pub(super) fn collapse_middle(
    iterations: &[IterationSummary],
    first: usize,
    last: usize,
) -> (&[IterationSummary], &[IterationSummary], &[IterationSummary]) {
    if iterations.len() <= first + last + 1 {
        return (iterations, &[], &[]);
    }
    let (first, rest) = iterations.split_at(first);
    let (middle, last) = rest.split_at(rest.len() - last);
    (first, middle, last)
}

pub(super) fn brief(iterations: &[IterationSummary]) -> String {
    let mut states: Vec<(&str, u32)> = Vec::new();
    let (mut took, mut commits) = (0_u64, 0);
    let (mut cost, mut guessed) = (None, "");
    for iteration in iterations {
        took = took.saturating_add(iteration.record.duration_ms);
        commits += iteration.commits.len();
        if iteration.estimated_cost_usd.is_some() {
            guessed = "~";
        }
        if let Some(own) = iteration.estimated_cost_usd.or(iteration.record.usage.cost_usd) {
            *cost.get_or_insert(0.0) += own;
        }
        let word = state_label(iteration);
        match states.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => states.push((word, 1)),
        }
    }
    states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let states: Vec<String> =
        states.into_iter().map(|(word, count)| format!("{count} {word}")).collect();
    let cost =
        cost.map(|cost| format!(", {guessed}{}", text::format_dollars(cost))).unwrap_or_default();
    let number = |iteration: Option<&IterationSummary>| iteration.map_or(0, |it| it.record.number);
    format!(
        "{} to {}: {}; {}{cost}, {commits} commits",
        number(iterations.first()),
        number(iterations.last()),
        states.join(", "),
        text::format_duration(took)
    )
}
