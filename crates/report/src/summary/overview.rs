//! The start of the report: outcome, usage, next step.

use jiff::tz::TimeZone;

use super::words::{MAX_FAILURES, format_time, short_commit_id};
use super::{CommitRangeCounts, RunActivity, Summary};
use crate::next_steps::RunEnding;
use crate::run_table::outcome_label;
use ralph_events::event::{Class, Outcome};
use ralph_events::journal;
use ralph_events::run_state::ScmTaskState;
use ralph_events::text;

pub(super) fn summary_rows(facts: &Summary, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let mut items = vec![("Asked", facts.info.prompt.clone()), ("Outcome", outcome(facts, zone))];
    if is_readable(facts) {
        let took = text::format_duration(facts.duration_ms);
        if !facts.info.command.is_empty() {
            items.extend([
                ("Command", format!("ralph {} with {}", facts.info.command, facts.info.agent)),
                ("Directory", facts.info.directory.clone()),
            ]);
        }
        items.extend(facts.info.branch.as_ref().map(|first| match &facts.info.last_branch {
            Some(last) => ("Branch", format!("{last} (it began on {first})")),
            None => ("Branch", first.clone()),
        }));
        let ended = facts.ended_ms.filter(|_| facts.end.outcome.is_some());
        items.push(("Started", started(facts, zone)));
        items.extend(ended.map(|ms| ("Ended", format_time(ms, zone))));
        let name = if facts.activity.is_some() { "So far" } else { "Took" };
        items
            .extend([(name, format!("{took}, {}", iterations(facts))), ("Used", cost_line(facts))]);
        items.extend(facts.end.last_words.clone().map(|words| ("Stderr", words)));
        items.extend(committed(facts).map(|commits| ("Commits", commits)));
        items.extend(facts.scm.iter().take(MAX_FAILURES).map(|task| ("SCM", scm_task(task))));
    }
    items.extend(unsent_notification_note(facts).map(|untold| ("Told", untold)));
    items.extend(unreadable_lines_note(facts).map(|damage| ("Journal", damage)));
    items.extend(next_step(facts, zone).map(|next| ("Next", next)));
    items.retain(|(name, value)| !(value.is_empty() && *name == "Asked"));
    items
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextPart<'a> {
    Text(&'a str),
    Command(&'a str),
}

/// Splits a value into text and commands. Backticks count only in text that is entirely ours.
pub(super) fn text_parts<'a>(name: &str, value: &'a str) -> Vec<TextPart<'a>> {
    if !matches!(name, "Next" | "Told") || !value.matches('`').count().is_multiple_of(2) {
        return vec![TextPart::Text(value)];
    }
    let parts = value.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    let piece = |(at, part): (usize, &'a str)| match at % 2 {
        0 => TextPart::Text(part),
        _ => TextPart::Command(part),
    };
    parts.map(piece).collect()
}

fn next_step(facts: &Summary, zone: &TimeZone) -> Option<String> {
    let limit_ends = facts.end.limit_ends_ms.map(|ms| format_time(ms, zone));
    if facts.end.outcome.is_none() && facts.activity.is_none() && is_readable(facts) {
        let limit = limit_ends.map(|time| format!("the limit ends at {time}; "));
        return Some(
            limit.unwrap_or_default()
                + &format!("`ralph resume {}` goes on with it", facts.info.run),
        );
    }
    let last = facts.iterations.last();
    let outcome = facts.end.outcome?;
    let ending = RunEnding {
        run: &facts.info.run,
        outcome,
        budget_used_up: facts.end.budget_used_up,
        iterations: last.map_or(0, |last| last.record.number),
        max_iterations: facts.info.max_iterations,
        cut_off: last.is_some_and(|last| last.record.cut_off || !last.record.ended),
        scm_done: last.map_or(&[], |last| &last.record.scm_done),
        limit_ends: limit_ends.as_deref(),
        setup: facts.info.setup.as_deref(),
    };
    let steps = ending.next_steps();
    let commands = steps.commands.iter().map(|command| format!("`{command}`"));
    let words: Vec<String> = steps.notes.into_iter().chain(commands).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The outcome with its exit code, or the current state.
fn outcome(facts: &Summary, zone: &TimeZone) -> String {
    if let Some(outcome) = facts.end.outcome {
        let words = end_message(facts, outcome);
        return match facts.end.exit_code {
            Some(code) => format!("{words} (exit code {code})"),
            None => words,
        };
    }
    if !is_readable(facts) {
        return "nothing is known of it: its journal is empty, or cannot be read".to_owned();
    }
    let open = facts.iterations.last().map(|last| match facts.open_iteration() {
        Some(number) => format!(", in iteration {number}"),
        None => format!(", after iteration {}", last.record.number),
    });
    let open = open.unwrap_or_default();
    match facts.activity {
        Some(RunActivity::Working) => {
            let since = started(facts, zone);
            match facts.iterations.last().filter(|last| !last.record.ended) {
                Some(last) => {
                    let (number, took) =
                        (last.record.number, text::format_duration(last.record.duration_ms));
                    format!("running since {since}, iteration {number} for {took}")
                }
                None => format!("running since {since}{open}"),
            }
        }
        Some(RunActivity::Waiting { until_ms }) => {
            format!("running, and waits until {}{open}", format_time(until_ms, zone))
        }
        Some(RunActivity::Paused { since_ms }) => {
            format!("paused since {}{open}", format_time(since_ms, zone))
        }
        None => {
            let last = facts.ended_ms.map_or_else(|| "-".to_owned(), |ms| format_time(ms, zone));
            format!("cut off{open}: killed, or the machine went down; last heard of {last}")
        }
    }
}

/// The end in ralph's words: text of an agent or the system is no outcome.
fn end_message(facts: &Summary, outcome: Outcome) -> String {
    let message = facts.end.message.as_str();
    let last = facts.iterations.last().and_then(|last| last.record.class);
    let what = match (outcome, last) {
        _ if message.is_empty() => return outcome_label(outcome).to_owned(),
        (Outcome::AgentFailed, Some(Class::RateLimited | Class::Overloaded)) => {
            "stopped by a limit of the agent's"
        }
        (Outcome::CredentialsRefused, _) => "the agent's credentials were refused",
        (Outcome::PromptMissing, _) => "failed before the agent was asked",
        (Outcome::InternalError, _) => "ralph could not go on",
        (Outcome::Interrupted, _) => {
            let by = facts.end.stopped_by.as_ref().map(|signal| format!(" by {signal}"));
            return format!("{message}{}", by.unwrap_or_default());
        }
        _ => return message.to_owned(),
    };
    format!("{what}: {message}")
}

fn is_readable(facts: &Summary) -> bool {
    facts.started_ms.is_some() || !facts.iterations.is_empty()
}

fn started(facts: &Summary, zone: &TimeZone) -> String {
    facts.started_ms.map_or_else(|| "an unknown time".to_owned(), |ms| format_time(ms, zone))
}

fn iterations(facts: &Summary) -> String {
    let done = facts.iterations.len();
    match (facts.info.max_iterations, done) {
        (0, 1) => "1 iteration".to_owned(),
        (0, _) => format!("{done} iterations"),
        // The limit may have been lowered.
        (max, _) if done > max as usize => format!("{done} iterations, now at most {max}"),
        (max, _) => format!("{done} of {max} iterations"),
    }
}

/// The cost; estimates are labelled.
fn cost_line(facts: &Summary) -> String {
    let cost = match (facts.usage.cost_usd, facts.estimated_cost_usd) {
        (None, None) => "no cost told".to_owned(),
        (Some(told), None) => text::format_dollars(told),
        (None, Some(guess)) => {
            format!("about {} by an estimate, no cost told", text::format_dollars(guess))
        }
        (Some(told), Some(guess)) => format!(
            "{} told, about {} with an estimate of what was not",
            text::format_dollars(told),
            text::format_dollars(guess)
        ),
    };
    match facts.usage.total_tokens() {
        0 => cost,
        tokens => format!("{cost}, {} tokens", text::format_count(tokens)),
    }
}

fn committed(facts: &Summary) -> Option<String> {
    let count = facts.commits().count();
    if count == 0 {
        return None;
    }
    if facts.repository_gone {
        return Some(format!("{count}, in a repository that is gone"));
    }
    let Some((from, to)) = facts.commit_range() else { return Some(count.to_string()) };
    let no_branch = facts.commits().any(|commit| commit.is_detached && commit.id == to);
    let keep = format!(", on no branch (`git branch NAME {}` keeps them)", short_commit_id(to));
    let is_gone = facts.commits().any(|commit| commit.is_unreachable && commit.id == to);
    let keep = match (no_branch, is_gone) {
        (true, _) => keep.as_str(),
        (false, true) => ", on no branch any more",
        (false, false) => "",
    };
    let log = format!("git log {}..{}{keep}", short_commit_id(from), short_commit_id(to));
    let Some(CommitRangeCounts { commits, own }) = facts.range_counts else {
        return Some(format!("{count}: {log}"));
    };
    // The named range is what the command shows.
    let others = match commits - own.min(commits) {
        0 => String::new(),
        n => format!(" ({n} of them not by the run)"),
    };
    let elsewhere = match count.saturating_sub(own as usize) {
        0 => String::new(),
        1 => "; 1 more by the run is not there any more, or on another branch".to_owned(),
        n => format!("; {n} more by the run are not there any more, or on another branch"),
    };
    Some(format!("{commits}: {log}{others}{elsewhere}"))
}

fn scm_task(task: &ScmTaskState) -> String {
    let ScmTaskState { task, failed_in: iterations, reason, recovered } = task;
    let count = iterations.len();
    let s = if count == 1 { "" } else { "s" };
    let last = iterations.last().copied().unwrap_or_default();
    let since = match recovered {
        true => format!("; it was done after iteration {last}"),
        false => ", and was not done since".to_owned(),
    };
    format!("{task} failed in {count} iteration{s}, the last time in {last}: {reason}{since}")
}

fn unsent_notification_note(facts: &Summary) -> Option<String> {
    let run = &facts.info.run;
    facts.end.notify_pending.then(|| {
        format!(
            "notify.command was not told of the end, for ralph was killed; `ralph resume {run}` tells it"
        )
    })
}

fn unreadable_lines_note(facts: &Summary) -> Option<String> {
    let words = journal::unreadable_message(facts.unreadable)?;
    Some(format!("{words}; there was more than is told here"))
}
