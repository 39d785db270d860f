//! Warnings in words.

use std::borrow::Cow;

use crate::terminal::short_id;
use crate::width;
use ralph_events::event::{Event, Leftover, StallReason};
use ralph_events::text;

/// Says what the prompt of an attempt carries.
pub(crate) fn delivery_text(guidance: usize, answers: usize) -> String {
    let part = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(one.to_owned()),
        _ => Some(format!("{count} {many}")),
    };
    let parts = [
        part(guidance, "your guidance", "pieces of your guidance"),
        part(answers, "your answer", "of your answers"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("the prompt carries {}", parts.join(" and "))
}

/// Columns shown of a text that no prompt carried.
const MAX_UNDELIVERED: usize = 60;

/// Says of a run that has ended that it did not use a person's words.
pub(crate) fn undelivered_text(said: &str) -> String {
    format!("not delivered: \"{}\"", width::one_line(said, MAX_UNDELIVERED, "…"))
}

/// `None` if the event is no warning.
pub fn warning_text<'e>(event: &'e Event<'_>) -> Option<Cow<'e, str>> {
    Some(match event {
        Event::Warning { message } => Cow::Borrowed(message),
        Event::Recovered { run, processes } => recovered_warning(run, processes).into(),
        Event::Planted { message } => planted_warning(message).into(),
        Event::StallWarning { reason, iterations, limit } => {
            stall_warning(*reason, *iterations, *limit).into()
        }
        Event::ModelSilent { silent_ms, limit_ms } => silence_warning(*silent_ms, *limit_ms).into(),
        _ => return None,
    })
}

pub(crate) fn recovered_warning(run: &str, processes: &[Leftover]) -> String {
    let list = |survived: bool| {
        let matching = processes.iter().filter(|left| left.survived == survived);
        let names: Vec<String> =
            matching.map(|left| format!("pid {}, `{}`", left.pid, left.command)).collect();
        let verb = if survived { "could not kill" } else { "killed" };
        let what = if names.len() == 1 { "process" } else { "processes" };
        (!names.is_empty()).then(|| {
            let (count, names) = (names.len(), names.join("; "));
            format!("{verb} {count} {what} that run {} left behind ({names})", short_id(run))
        })
    };
    [list(false), list(true)].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

pub(crate) fn planted_warning(message: &str) -> String {
    format!("left by an interrupted run: {message}")
}

/// The warning about an agent that is silent while none of its tools runs.
pub(crate) fn silence_warning(silent_ms: u64, limit_ms: u64) -> String {
    let (silent, limit) = (text::format_duration(silent_ms), text::format_duration(limit_ms));
    format!(
        "no output from the agent for {silent}, and no tool is running: it may have lost its connection. \
         It will be stopped after {limit} (silentModelMinutes)"
    )
}

/// The warning about a loop that makes no progress.
pub(crate) fn stall_warning(reason: StallReason, iterations: u32, limit: Option<u32>) -> String {
    let mut words = match (reason, iterations) {
        (StallReason::Unchanged, 1) => {
            "the last iteration changed nothing in the repository".to_owned()
        }
        (StallReason::Unchanged, n) => {
            format!("the last {n} iterations changed nothing in the repository")
        }
        (StallReason::SameFailure, n) => {
            format!("checks failed the same way {n} times in a row")
        }
    };
    match limit {
        Some(limit) => words.push_str(&format!("; the run stops at {limit} in a row")),
        None => words.push_str("; set `stall.iterations` to stop such runs"),
    }
    words
}
