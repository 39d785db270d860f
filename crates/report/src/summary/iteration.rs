use super::IterationSummary;
use super::words::{MAX_FAILURES, count};
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

fn cost(iteration: &IterationSummary) -> String {
    match (iteration.record.usage.cost_usd, iteration.estimated_cost_usd) {
        (_, Some(guess)) => format!("~{}", text::format_dollars(guess)),
        (Some(reported), None) => text::format_dollars(reported),
        (None, None) => "-".to_owned(),
    }
}

/// A row of the list of iterations.
#[derive(Debug)]
pub(super) struct IterationRow {
    pub(super) cells: [String; 5],
    pub(super) notes: Vec<IterationNote>,
}

#[derive(Debug)]
pub(super) struct IterationNote {
    pub(super) text: String,
    pub(super) is_failure: bool,
}

pub(super) const COLUMNS: [&str; 5] = ["#", "outcome", "time", "cost", "tools"];

/// Returns the first and last iterations, with one row for those between.
pub(super) fn rows(
    iterations: &[IterationSummary],
    first: usize,
    last: usize,
) -> Vec<IterationRow> {
    if iterations.len() <= first + last + 1 {
        return iterations.iter().map(row).collect();
    }
    let (first, rest) = iterations.split_at(first);
    let (middle, last) = rest.split_at(rest.len() - last);
    let number = |it: Option<&IterationSummary>| it.map_or(0, |it| it.record.number);
    let (from, to) = (number(middle.first()), number(middle.last()));
    let hidden = format!("iterations {from} to {to}: ralph report --json");
    let cells = ["…", &hidden, "", "", ""].map(str::to_owned);
    let middle = IterationRow { cells, notes: Vec::new() };
    first.iter().map(row).chain([middle]).chain(last.iter().map(row)).collect()
}

fn row(iteration: &IterationSummary) -> IterationRow {
    let cells = [
        iteration.record.number.to_string(),
        state_label(iteration).to_owned(),
        text::format_duration(iteration.record.duration_ms),
        cost(iteration),
        iteration.record.tools.to_string(),
    ];
    let note = |is_failure| move |text| IterationNote { text, is_failure };
    let remarks = remarks(iteration).into_iter().map(note(false));
    IterationRow { cells, notes: remarks.chain(failures(iteration).map(note(true))).collect() }
}

fn remarks(iteration: &IterationSummary) -> Vec<String> {
    let record = &iteration.record;
    let moved = record.head.as_ref().filter(|_| iteration.commits.is_empty());
    let parts = [
        Some(count(iteration.commits.len(), "commit")).filter(|_| !iteration.commits.is_empty()),
        moved.map(|head| format!("HEAD moved to {}", text::short_commit(head))),
        (record.starts > 1).then(|| format!("started {} times", record.starts)),
        (record.attempts > record.starts.max(1)).then(|| format!("{} attempts", record.attempts)),
        (record.waited_ms >= MIN_WAIT_MS)
            .then(|| format!("waited {}", text::format_duration(record.waited_ms))),
    ];
    parts.into_iter().flatten().collect()
}

fn failures(iteration: &IterationSummary) -> impl Iterator<Item = String> {
    let record = &iteration.record;
    let mut failures = Listed::default();
    record.failures.iter().for_each(|why| failures.push(why.clone()));
    let failures = failures.first.into_iter().take(MAX_FAILURES).map(|entry| match entry.times {
        1 => format!("failed: {}", entry.item),
        times => format!("failed {times} times: {}", entry.item),
    });
    let scm = record.scm_failed.iter().take(MAX_FAILURES);
    let scm = scm.map(|it| format!("SCM task failed: {}: {}", it.task, it.reason));
    let vetoed = record.vetoed.iter().map(|why| format!("not done: {why}"));
    failures.chain(scm).chain(vetoed)
}
