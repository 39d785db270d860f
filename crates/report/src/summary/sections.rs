//! The report in words: one description for all renderers.

use jiff::tz::TimeZone;

use super::overview;
use super::words::{MAX_FAILURES, commit_line, count, format_time};
use super::{IterationSummary, Summary};
use crate::check_view::CheckMark;
use crate::next_steps::unchecked_work_note;
use crate::run_table::continued_after_text;
use ralph_events::event::{Class, Outcome};
use ralph_events::journal;
use ralph_events::run_state::{Continuation, GuardrailResult, Listed, ScmTaskState};

const MAX_LINES: usize = 50;
const MAX_HISTORY: usize = 60;
/// Lines of the agent's last words, and of a check's output.
const MAX_EXCERPT: usize = 15;

/// The whole report except for the list of iterations, which stands before `history`.
#[derive(Debug)]
pub struct Report {
    pub lead: String,
    /// The first has no heading.
    pub findings: Vec<Section>,
    /// First on a page, last on a terminal.
    pub next: Vec<Section>,
    pub history: Vec<Section>,
}

#[derive(Debug)]
pub struct Section {
    pub heading: String,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub kind: LineKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// A value with its name.
    Row(&'static str),
    Item,
    /// Starts with an id.
    Commit,
    /// Words of the agent.
    Quote,
    /// Output of a program, or a command to type.
    Code,
}

impl LineKind {
    pub fn name(self) -> &'static str {
        if let LineKind::Row(name) = self { name } else { "" }
    }

    /// Returns whether lines of both kinds belong to the same list.
    pub fn is_like(self, other: LineKind) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

pub fn report(facts: &Summary, zone: &TimeZone) -> Report {
    let (check, output) = failure_output(facts);
    let next = overview::next_steps(facts, zone);
    let commands = lines(LineKind::Code, next.commands);
    let others = facts.commits_by_others.iter().map(commit_line).collect();
    Report {
        lead: overview::lead(facts, zone),
        findings: sections([
            ("", rows(overview::main_rows(facts))),
            ("Open questions", lines(LineKind::Item, open_questions(facts))),
            (
                "Last words of the agent",
                lines(LineKind::Quote, excerpt(facts.answer.as_deref().unwrap_or_default())),
            ),
            (&check, lines(LineKind::Code, output)),
            ("Commits", lines(LineKind::Commit, commit_lines(facts))),
            ("Worth a look", lines(LineKind::Item, notices(facts))),
            ("Left to do", lines(LineKind::Item, remaining_lines(facts))),
        ]),
        next: sections([("Next", [lines(LineKind::Item, next.notes), commands].concat())]),
        history: sections([
            (
                "Checks by iteration (+ passed, - failed, ~ interrupted, . not run)",
                lines(LineKind::Code, check_history(facts)),
            ),
            ("Your answers and guidance", lines(LineKind::Item, guidance_lines(facts))),
            ("Resumed", lines(LineKind::Item, continuation_lines(facts, zone))),
            ("Committed by others", lines(LineKind::Commit, others)),
            ("Details", rows(overview::detail_rows(facts, zone))),
        ]),
    }
}

fn lines(kind: LineKind, texts: Vec<String>) -> Vec<Line> {
    texts.into_iter().map(|text| Line { kind, text }).collect()
}

fn rows(rows: Vec<overview::Row>) -> Vec<Line> {
    rows.into_iter().map(|(name, text)| Line { kind: LineKind::Row(name), text }).collect()
}

/// Leaves out empty sections and shortens long ones.
fn sections<const N: usize>(sections: [(&str, Vec<Line>); N]) -> Vec<Section> {
    let bounded = sections.into_iter().map(|(heading, mut lines)| {
        let more = lines.len().saturating_sub(MAX_LINES + 1);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(Line { kind: LineKind::Item, text: format!("and {more} more") });
        }
        Section { heading: heading.to_owned(), lines }
    });
    bounded.filter(|section| !section.lines.is_empty()).collect()
}

/// Returns the last lines, with a mark if there are more.
fn excerpt(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let start = lines.len().saturating_sub(MAX_EXCERPT);
    let mark = (start > 0).then_some("…");
    mark.into_iter().chain(lines[start..].iter().copied()).map(str::to_owned).collect()
}

/// The feedback about a check starts with its name.
fn is_feedback_of(check: &GuardrailResult, feedback: &str) -> bool {
    let rest = feedback.strip_prefix("Guardrail \"");
    let rest = rest.and_then(|rest| rest.strip_prefix(check.command.as_str()));
    rest.is_some_and(|rest| rest.starts_with('"'))
}

/// Heading and end of the output of the failing check.
fn failure_output(facts: &Summary) -> (String, Vec<String>) {
    let Some(check) = overview::failing_check(facts) else {
        return (String::new(), Vec::new());
    };
    let exit = check.exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string());
    let feedback = facts.remaining.feedback.iter().find(|part| is_feedback_of(check, part));
    let output = feedback.and_then(|part| {
        let starts = ["\nEnd of output:\n", "\nOutput (truncated):\n", "\nOutput:\n"];
        starts.iter().find_map(|start| Some(part.split_once(start)?.1))
    });
    let mut lines = excerpt(output.unwrap_or_default());
    lines.push(format!("(log: {})", check.log));
    (format!("Why {} failed ({exit})", check.command), lines)
}

/// The newest commits first.
fn commit_lines(facts: &Summary) -> Vec<String> {
    let own = facts.iterations.iter().rev().flat_map(|iteration| {
        let number = iteration.record.number;
        let commits = iteration.commits.iter().rev();
        commits.map(move |commit| format!("{} (iteration {number})", commit_line(commit)))
    });
    own.collect()
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
    let iterations = count(failed_in.len(), "iteration");
    let since = if *recovered { "; it succeeded later" } else { "" };
    format!("{task} failed in {iterations}: {reason}{since}")
}

fn remaining_lines(facts: &Summary) -> Vec<String> {
    let left = &facts.remaining;
    // The output of the failing check has its own section.
    let shown = overview::failing_check(facts);
    let is_new = |part: &&String| !shown.is_some_and(|check| is_feedback_of(check, part));
    let undone = facts.scm.iter().filter(|task| !task.recovered);
    let undone = undone.map(|task| format!("SCM task not done: {}: {}", task.task, task.reason));
    undone
        .chain(left.story.iter().map(|story| format!("Next story: {story}")))
        .chain(left.problems.iter().map(|problem| format!("Not done: {problem}")))
        .chain(left.feedback.iter().filter(is_new).map(|it| format!("Pending feedback: {it}")))
        .chain(left.plan.iter().map(|entry| format!("Open in the agent's plan: {entry}")))
        .collect()
}

fn open_questions(facts: &Summary) -> Vec<String> {
    let open = facts.steering.open_questions();
    open.map(|it| format!("{} (iteration {}): {}", it.id, it.iteration, it.text)).collect()
}

fn guidance_lines(facts: &Summary) -> Vec<String> {
    let place = |delivered_in: Option<u32>| match delivered_in {
        Some(iteration) => format!("iteration {iteration}"),
        None if facts.activity.is_some() => "waits for the next prompt".to_owned(),
        None if facts.end.outcome.is_none() => "goes into the next prompt on resume".to_owned(),
        None => "not delivered: the run ended first".to_owned(),
    };
    let answers = facts.steering.questions.iter().filter_map(|question| {
        let answer = question.answer.as_ref()?;
        let (headline, place) = (question.headline(), place(answer.delivered_in));
        Some(format!("{place}: {headline} {}", answer.text))
    });
    let guidance = facts.steering.guidance.iter().map(|it| {
        let place = if it.cleared && it.delivered_in.is_none() {
            "dropped".to_owned()
        } else {
            place(it.delivered_in)
        };
        let every = if it.every { " (every prompt)" } else { "" };
        format!("{place}{every}: {}", it.text)
    });
    answers.chain(guidance).collect()
}

/// A line per check with a sign per iteration.
fn check_history(facts: &Summary) -> Vec<String> {
    let line = |command: &str| {
        let sign = |iteration: &IterationSummary| {
            let own = iteration.record.guardrails.iter().rfind(|check| check.command == command);
            CheckMark::of(own).ascii_sign()
        };
        let signs: String = facts.iterations.iter().map(sign).collect();
        let start = signs.len().saturating_sub(MAX_HISTORY);
        let cut = if start > 0 { "…" } else { "" };
        format!("{cut}{}  {command}", &signs[start..])
    };
    overview::check_commands(facts).into_iter().take(MAX_LINES).map(line).collect()
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
