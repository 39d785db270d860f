//! Sections after the iterations: guardrails, waits, warnings, remaining work.

use jiff::tz::TimeZone;

use super::words::{commit_line, format_time};
use super::{IterationSummary, RunActivity, Summary};
use crate::next_steps::unchecked_work_note;
use crate::run_table::continued_after_text;
use ralph_events::event::{Class, Outcome, WaitReason};
use ralph_events::run_state::{Continuation, Listed, Wait};
use ralph_events::text;

const MAX_LINES: usize = 50;
const MAX_HISTORY: usize = 60;
const CUT_SHORT_MS: i64 = 2_000;

#[derive(Debug)]
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) lines: Vec<String>,
    pub(super) kind: SectionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    /// First on a page, last on a terminal.
    Remaining,
    Guardrails,
    Other,
}

pub(super) fn sections(facts: &Summary, zone: &TimeZone) -> Vec<Section> {
    let history = "Guardrails, from the first iteration to the last".to_owned();
    let others =
        format!("Committed while the run was not at work ({})", facts.commits_by_others.len());
    let (denied, warnings) = (&facts.denied, &facts.warnings);
    let sections = [
        (SectionKind::Guardrails, history, guardrails(facts)),
        (SectionKind::Other, "Went on".to_owned(), continuation_lines(facts, zone)),
        (SectionKind::Other, total_wait(facts), rate_limit_lines(facts, zone)),
        (SectionKind::Other, others, facts.commits_by_others.iter().map(commit_line).collect()),
        (SectionKind::Other, format!("Denied to the agent ({})", denied.total), list_lines(denied)),
        (SectionKind::Other, format!("Warnings ({})", warnings.total), list_lines(warnings)),
        (SectionKind::Remaining, "Left to do".to_owned(), remaining_lines(facts)),
    ];
    let bounded = sections.map(|(kind, heading, mut lines)| {
        let more = lines.len().saturating_sub(MAX_LINES + 1);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("and {more} more"));
        }
        Section { heading, lines, kind }
    });
    bounded.into_iter().filter(|section| !section.lines.is_empty()).collect()
}

fn list_lines(list: &Listed<String>) -> Vec<String> {
    let lines = list.first.iter().map(|told| match told.times {
        1 => told.item.clone(),
        times => format!("{times} times: {}", told.item),
    });
    let more = Some(list.omitted_count()).filter(|more| *more > 0);
    lines.chain(more.map(|more| format!("and {more} more"))).collect()
}

fn continuation_lines(facts: &Summary, zone: &TimeZone) -> Vec<String> {
    let line = |continued: &Continuation| {
        let (time, after) =
            (format_time(continued.time_ms, zone), continued_after_text(continued.after));
        let again = continued.cut_off.map(|n| format!("; iteration {n} was begun again"));
        let checked = continued
            .unchecked
            .map(|n| format!("; what the agent of iteration {n} had done was checked"));
        format!("{time}, after {after}{}", again.or(checked).unwrap_or_default())
    };
    facts.continued.iter().map(line).collect()
}

fn limits(facts: &Summary) -> impl Iterator<Item = &Wait> {
    facts.waits.iter().filter(|wait| wait.reason == WaitReason::RateLimit)
}

fn total_wait(facts: &Summary) -> String {
    let waited = |wait: &Wait| wait.ended_ms.map_or(0, |ended| (ended - wait.from_ms).max(0));
    let all = limits(facts).map(waited).sum::<i64>().unsigned_abs();
    format!("Limits waited for ({} in all)", text::format_duration(all))
}

fn rate_limit_lines(facts: &Summary, zone: &TimeZone) -> Vec<String> {
    let length =
        |from: i64, until: i64| text::format_duration(u64::try_from(until - from).unwrap_or(0));
    let line = |wait: &Wait| {
        let Wait { iteration, from_ms, until_ms, ended_ms, .. } = *wait;
        let from = format_time(from_ms, zone);
        let planned = length(from_ms, until_ms);
        let how = match ended_ms {
            Some(ended) if ended + CUT_SHORT_MS < until_ms => {
                format!("for {} of {planned}, then it was stopped", length(from_ms, ended))
            }
            Some(ended) => format!("for {}", length(from_ms, ended)),
            None if facts.activity == Some(RunActivity::Waiting { until_ms }) => {
                format!("until {}", format_time(until_ms, zone))
            }
            None => format!("for {planned}, but the run was cut off meanwhile"),
        };
        format!("iteration {iteration}: from {from} {how}")
    };
    limits(facts).map(line).collect()
}

fn remaining_lines(facts: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    let is_over = facts.activity.is_none() && !is_complete(facts);
    // A killed run leaves its last iteration open.
    let cut_off =
        facts.iterations.last().filter(|last| last.record.cut_off || is_over && !last.record.ended);
    // The advice for a budget says it.
    let is_told = facts.end.outcome == Some(Outcome::Budget);
    let cut_off = cut_off.filter(|last| has_done_work(last) && !is_told);
    lines
        .extend(cut_off.map(|last| unchecked_work_note(last.record.number, &last.record.scm_done)));
    let undone = facts.scm.iter().filter(|task| !task.recovered);
    lines.extend(undone.map(|task| format!("SCM task not done: {}: {}", task.task, task.reason)));
    let left = &facts.remaining;
    if let Some((done, total)) = left.stories.filter(|(done, total)| done < total) {
        let next = left.story.as_ref().map_or(String::new(), |story| format!(", next {story}"));
        lines.push(format!("stories: {done} of {total} pass{next}"));
    }
    lines.extend(left.problems.iter().map(|problem| format!("not complete: {problem}")));
    let told = match facts.activity {
        Some(_) => "the agent is told",
        None => "the agent was to be told",
    };
    lines.extend(left.feedback.iter().map(|part| format!("{told}: {part}")));
    lines.extend(left.plan.iter().map(|entry| format!("open in the agent's plan: {entry}")));
    lines
}

/// Returns whether an iteration may have done anything; a refused agent has not.
fn has_done_work(iteration: &IterationSummary) -> bool {
    let turned_away = matches!(
        iteration.record.class,
        Some(Class::NotStarted | Class::Credentials | Class::RateLimited | Class::Overloaded)
    );
    // A failure before the first tool means that no work was done.
    iteration.record.tools > 0 || !turned_away && iteration.record.failure.is_none()
}

fn is_complete(facts: &Summary) -> bool {
    matches!(facts.end.outcome, Some(Outcome::Complete | Outcome::CompleteScmFailed))
}

/// A line per guardrail with a symbol per iteration, and a legend.
fn guardrails(facts: &Summary) -> Vec<String> {
    let mut commands: Vec<&str> = Vec::new();
    for check in facts.iterations.iter().flat_map(|iteration| &iteration.record.guardrails) {
        if !commands.contains(&check.command.as_str()) && commands.len() < MAX_LINES {
            commands.push(&check.command);
        }
    }
    if commands.is_empty() {
        return Vec::new();
    }
    let line = |command: &str| {
        let sign = |iteration: &IterationSummary| {
            let own = iteration.record.guardrails.iter().rfind(|check| check.command == command);
            match own {
                None => '.',
                Some(check) if check.passed => '+',
                Some(check) if check.cut_off => '~',
                Some(_) => '-',
            }
        };
        let signs: String = facts.iterations.iter().map(sign).collect();
        let failed = signs.matches('-').count();
        let shown = match signs.len().checked_sub(MAX_HISTORY) {
            Some(cut @ 1..) => format!("…{} (failed {failed} times)", &signs[cut..]),
            _ => signs,
        };
        format!("{shown}  {command}")
    };
    let signs = "(+ passed, - failed, ~ interrupted, . not run)".to_owned();
    commands.into_iter().map(line).chain([signs]).collect()
}
