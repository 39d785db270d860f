use super::IterationSummary;
use super::words::{MAX_FAILURES, count, short_commit_id};
use ralph_events::event::{Class, EndCause, FailureKind};
use ralph_events::run_state::{GuardrailResult, Listed};
use ralph_events::text;

const MIN_WAIT_MS: u64 = 60_000;

pub(super) fn state_label(iteration: &IterationSummary) -> &'static str {
    if iteration.is_current {
        return "working";
    }
    let Some(class) = iteration.record.class.filter(|_| iteration.record.ended) else {
        return "interrupted";
    };
    if iteration.record.guardrails.iter().any(GuardrailResult::has_failed) {
        return "check failed";
    }
    match class {
        Class::Answered if iteration.record.cut_off => "not checked",
        Class::Answered if iteration.record.vetoed.is_some() => "not done",
        Class::Answered => "answered",
        Class::Empty if iteration.record.repeats_prompt => "repeated its prompt",
        Class::Empty => "said nothing",
        Class::Failed if iteration.record.ended_by == Some(EndCause::SilentModel) => "no output",
        Class::Failed => "failed",
        Class::RateLimited => "rate limit",
        Class::Overloaded => "overloaded",
        Class::Credentials => "credentials refused",
        Class::ContextExhausted => "context full",
        Class::Limited => match (iteration.record.ended_by, iteration.record.failure) {
            (Some(EndCause::Budget), _) => "run budget",
            (None, Some(FailureKind::TurnLimit)) => "agent's turn limit",
            (None, Some(FailureKind::AgentBudget)) => "agent's budget",
            _ => "iteration budget",
        },
        Class::TimedOut if iteration.record.ended_by == Some(EndCause::Inactivity) => "no output",
        Class::TimedOut => "timed out",
        Class::Interrupted => "interrupted",
        Class::NotStarted => "not started",
    }
}

/// `1 commit, started 2 times, 3 attempts`, without what is usual.
pub(super) fn counts_text(iteration: &IterationSummary) -> String {
    let (starts, attempts) = (iteration.record.starts, iteration.record.attempts);
    let parts = [
        Some(count(iteration.commits.len(), "commit")).filter(|_| !iteration.commits.is_empty()),
        (starts > 1).then(|| format!("started {starts} times")),
        (attempts > starts.max(1)).then(|| format!("{attempts} attempts")),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

pub(super) fn cost(iteration: &IterationSummary) -> String {
    match (iteration.record.usage.cost_usd, iteration.estimated_cost_usd) {
        (_, Some(guess)) => format!("~{}", text::format_dollars(guess)),
        (Some(reported), None) => text::format_dollars(reported),
        (None, None) => "-".to_owned(),
    }
}

#[derive(Debug)]
pub(super) enum IterationDetail {
    Plain(String),
    Bad(String),
}

impl IterationDetail {
    pub(super) fn text(&self) -> &str {
        let (IterationDetail::Plain(text) | IterationDetail::Bad(text)) = self;
        text
    }
}

pub(super) fn details(iteration: &IterationSummary) -> Vec<IterationDetail> {
    let mut details = Vec::new();
    if let Some(head) = iteration.record.head.as_ref().filter(|_| iteration.commits.is_empty()) {
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
    let failed = failures.first.iter().take(MAX_FAILURES).map(|entry| match entry.times {
        1 => format!("failed: {}", entry.item),
        times => format!("failed {times} times: {}", entry.item),
    });
    details.extend(failed.map(IterationDetail::Bad));
    let more = failures.first.len().saturating_sub(MAX_FAILURES);
    details.extend((more > 0).then(|| IterationDetail::Plain(format!("and {more} more"))));
    let scm = iteration.record.scm_failed.iter().take(MAX_FAILURES);
    details.extend(
        scm.map(|it| IterationDetail::Bad(format!("SCM task failed: {}: {}", it.task, it.reason))),
    );
    let vetoed = iteration.record.vetoed.iter();
    details.extend(vetoed.map(|why| IterationDetail::Bad(format!("not done: {why}"))));
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
