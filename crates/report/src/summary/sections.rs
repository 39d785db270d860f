//! The report in words: one description for all renderers.

use jiff::tz::TimeZone;

use super::overview::{self, Row};
use super::words::{MAX_FAILURES, commit_line, format_time};
use super::{IterationSummary, RunActivity, Summary};
use crate::next_steps::{NextSteps, unchecked_work_note};
use crate::run_table::continued_after_text;
use ralph_events::event::{Class, Outcome, WaitReason};
use ralph_events::journal;
use ralph_events::run_state::{Continuation, GuardrailResult, Listed, ScmTaskState, Wait};
use ralph_events::text;

pub(super) const MAX_LINES: usize = 50;
const MAX_COMMITS: usize = 20;
const MAX_HISTORY: usize = 60;
const MAX_ANSWER_LINES: usize = 12;
const MAX_OUTPUT_LINES: usize = 15;
const CUT_SHORT_MS: i64 = 2_000;

/// The whole report except for the list of iterations.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) title: &'a str,
    pub(super) lead: String,
    pub(super) rows: Vec<Row>,
    /// Before the iterations.
    pub(super) findings: Vec<Section>,
    pub(super) next: NextSteps,
    /// After the iterations.
    pub(super) history: Vec<Section>,
    pub(super) details: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) kind: SectionKind,
    pub(super) lines: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    List,
    /// Words of the agent.
    Quote,
    /// Output of a program.
    Output,
    /// Each line starts with an id.
    Commits,
}

pub(super) fn report<'a>(facts: &'a Summary, zone: &TimeZone) -> Report<'a> {
    let (check, output) = failure_output(facts);
    let others = format!("Committed by others ({})", facts.commits_by_others.len());
    let waited = text::format_duration(overview::total_wait_ms(facts));
    let findings = [
        ("Last words of the agent".to_owned(), SectionKind::Quote, answer_lines(facts)),
        (check, SectionKind::Output, output),
        ("Commits".to_owned(), SectionKind::Commits, commit_lines(facts)),
        ("Worth a look".to_owned(), SectionKind::List, notices(facts)),
        ("Left to do".to_owned(), SectionKind::List, remaining_lines(facts)),
    ];
    let history = [
        (
            "Checks by iteration (+ passed, - failed, ~ interrupted, . not run)".to_owned(),
            SectionKind::Output,
            check_history(facts),
        ),
        ("Resumed".to_owned(), SectionKind::List, continuation_lines(facts, zone)),
        (
            format!("Rate limits (waited {waited})"),
            SectionKind::List,
            rate_limit_lines(facts, zone),
        ),
        (others, SectionKind::Commits, facts.commits_by_others.iter().map(commit_line).collect()),
    ];
    let title = if facts.title.is_empty() { "Untitled run" } else { &facts.title };
    Report {
        title,
        lead: overview::lead(facts, zone),
        rows: overview::main_rows(facts),
        findings: bounded(findings),
        next: overview::next_steps(facts, zone),
        history: bounded(history),
        details: overview::detail_rows(facts, zone),
    }
}

/// Leaves out empty sections and shortens long ones.
fn bounded(sections: impl IntoIterator<Item = (String, SectionKind, Vec<String>)>) -> Vec<Section> {
    let bounded = sections.into_iter().map(|(heading, kind, mut lines)| {
        let more = lines.len().saturating_sub(MAX_LINES + 1);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("and {more} more"));
        }
        Section { heading, kind, lines }
    });
    bounded.filter(|section| !section.lines.is_empty()).collect()
}

/// The end of the agent's last text.
fn answer_lines(facts: &Summary) -> Vec<String> {
    let answer = facts.answer.as_deref().unwrap_or_default();
    last_lines(answer, MAX_ANSWER_LINES)
}

fn last_lines(text: &str, max: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let omitted = lines.len().saturating_sub(max);
    let mark = (omitted > 0).then_some("…");
    mark.into_iter().chain(lines[omitted..].iter().copied()).map(str::to_owned).collect()
}

/// The feedback about a check starts with its name.
fn is_feedback_of(check: &GuardrailResult, feedback: &str) -> bool {
    let rest = feedback.strip_prefix("Guardrail \"");
    rest.is_some_and(|rest| rest.starts_with(check.command.as_str()))
}

/// Heading and end of the output of the failing check.
fn failure_output(facts: &Summary) -> (String, Vec<String>) {
    let Some(check) = overview::failing_check(facts) else {
        return (String::new(), Vec::new());
    };
    let exit = check.exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string());
    let heading = format!("Why {} failed ({exit})", check.command);
    let feedback = facts.remaining.feedback.iter().find(|part| is_feedback_of(check, part));
    let output = feedback.and_then(|part| {
        let ends = ["\nEnd of output:\n", "\nOutput (truncated):\n", "\nOutput:\n"];
        ends.iter().find_map(|end| Some(part.split_once(end)?.1))
    });
    let mut lines = last_lines(output.unwrap_or_default(), MAX_OUTPUT_LINES);
    if !check.log.is_empty() {
        lines.push(format!("(log: {})", check.log));
    }
    if lines.is_empty() {
        lines.push("Its output is not in the journal.".to_owned());
    }
    (heading, lines)
}

/// The newest commits first.
fn commit_lines(facts: &Summary) -> Vec<String> {
    let line = |iteration: &IterationSummary, commit| {
        format!("{} (iteration {})", commit_line(commit), iteration.record.number)
    };
    let own = facts.iterations.iter().rev();
    let all = own.flat_map(|it| it.commits.iter().rev().map(move |commit| line(it, commit)));
    let more = facts.commits().count().saturating_sub(MAX_COMMITS);
    let more = (more > 0).then(|| format!("and {more} more"));
    all.take(MAX_COMMITS).chain(more).collect()
}

/// Everything that a person should check.
fn notices(facts: &Summary) -> Vec<String> {
    let mut lines: Vec<String> = unchecked_work(facts).into_iter().collect();
    lines.extend(facts.scm.iter().take(MAX_FAILURES).map(scm_failure));
    if facts.end.notify_pending {
        lines.push("notify.command did not run: ralph was killed before it".to_owned());
    }
    if let Some(damage) = journal::unreadable_message(facts.unreadable) {
        lines.push(format!("{damage}: the run did more than this report shows"));
    }
    lines.extend(list_lines("denied: ", &facts.denied));
    lines.extend(list_lines("", &facts.warnings));
    lines
}

fn list_lines(label: &str, list: &Listed<String>) -> Vec<String> {
    let lines = list.first.iter().map(|entry| match entry.times {
        1 => format!("{label}{}", entry.item),
        times => format!("{label}{} ({times} times)", entry.item),
    });
    let more = Some(list.omitted_count()).filter(|more| *more > 0);
    lines.chain(more.map(|more| format!("{label}and {more} more"))).collect()
}

/// A killed run leaves its last iteration open.
fn unchecked_work(facts: &Summary) -> Option<String> {
    let is_over = facts.activity.is_none() && !overview::is_complete(facts);
    let last = facts.iterations.last()?;
    let is_unchecked = last.record.cut_off || is_over && !last.record.ended;
    // After a budget, the next steps say it.
    let is_said = facts.end.outcome == Some(Outcome::Budget);
    (is_unchecked && has_done_work(last) && !is_said)
        .then(|| unchecked_work_note(last.record.number, &last.record.scm_done))
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

fn scm_failure(task: &ScmTaskState) -> String {
    let ScmTaskState { task, failed_in, reason, recovered } = task;
    let iterations = super::words::count(failed_in.len(), "iteration");
    let last = failed_in.last().copied().unwrap_or_default();
    let since = if *recovered { "; it succeeded later" } else { "" };
    format!("{task} failed in {iterations}, last in iteration {last}: {reason}{since}")
}

fn remaining_lines(facts: &Summary) -> Vec<String> {
    let undone = facts.scm.iter().filter(|task| !task.recovered);
    let mut lines: Vec<String> =
        undone.map(|task| format!("SCM task not done: {}: {}", task.task, task.reason)).collect();
    let left = &facts.remaining;
    let stories = left.stories.filter(|(done, total)| done < total);
    if let Some(story) = left.story.as_ref().filter(|_| stories.is_some()) {
        lines.push(format!("Next story: {story}"));
    }
    lines.extend(left.problems.iter().map(|problem| format!("Not done: {problem}")));
    // The output of the failing check is shown in full.
    let shown = overview::failing_check(facts);
    let feedback = left.feedback.iter();
    let feedback = feedback.filter(|part| !shown.is_some_and(|check| is_feedback_of(check, part)));
    lines.extend(feedback.map(|part| format!("Pending feedback: {part}")));
    lines.extend(left.plan.iter().map(|entry| format!("Open in the agent's plan: {entry}")));
    lines
}

/// A line per check with a sign per iteration.
fn check_history(facts: &Summary) -> Vec<String> {
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
        let shown = match signs.len().checked_sub(MAX_HISTORY) {
            Some(cut @ 1..) => format!("…{}", &signs[cut..]),
            _ => signs,
        };
        format!("{shown}  {command}")
    };
    overview::check_commands(facts).into_iter().map(line).collect()
}

fn continuation_lines(facts: &Summary, zone: &TimeZone) -> Vec<String> {
    let line = |continued: &Continuation| {
        let (time, after) =
            (format_time(continued.time_ms, zone), continued_after_text(continued.after));
        let again = continued.cut_off.map(|n| format!("; restarted iteration {n}"));
        let checked = continued.unchecked.map(|n| format!("; checked the work of iteration {n}"));
        format!("{time}, after {after}{}", again.or(checked).unwrap_or_default())
    };
    facts.continued.iter().map(line).collect()
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
                format!("for {} of {planned}, then stopped", length(from_ms, ended))
            }
            Some(ended) => format!("for {}", length(from_ms, ended)),
            None if facts.activity == Some(RunActivity::Waiting { until_ms }) => {
                format!("until {}", format_time(until_ms, zone))
            }
            None => format!("for {planned}, interrupted"),
        };
        format!("iteration {iteration}: from {from} {how}")
    };
    let limits = facts.waits.iter().filter(|wait| wait.reason == WaitReason::RateLimit);
    limits.map(line).collect()
}
