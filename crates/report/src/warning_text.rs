//! Warnings in words.

use std::borrow::Cow;

use ralph_events::event::{Event, Leftover, StallReason};
use ralph_events::text;

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
    let names = |survived: bool| {
        let names = processes.iter().filter(|left| left.survived == survived);
        names.map(|left| format!("{} ({})", left.command, left.pid)).collect::<Vec<_>>().join(", ")
    };
    match (names(false), names(true)) {
        (ended, survived) if survived.is_empty() => {
            format!("ended what run {run} had left running: {ended}")
        }
        (ended, survived) if ended.is_empty() => {
            format!("run {run} had left running, and it could not be ended: {survived}")
        }
        (ended, survived) => format!(
            "ended what run {run} had left running: {ended}; could not be ended: {survived}"
        ),
    }
}

pub(crate) fn planted_warning(message: &str) -> String {
    format!("left by a run that was cut off: {message}")
}

/// The warning about an agent that is silent while none of its tools runs.
pub(crate) fn silence_warning(silent_ms: u64, limit_ms: u64) -> String {
    let (silent, limit) = (text::format_duration(silent_ms), text::format_duration(limit_ms));
    format!(
        "the agent has been silent for {silent} while none of its tools runs: its connection to the model \
         may be dead. It is ended after {limit} (silentModelMinutes)"
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
            format!("guardrails have failed in the same way {n} times in a row")
        }
    };
    match limit {
        Some(limit) => words.push_str(&format!("; {limit} in a row stop the run")),
        None => words.push_str("; `stall.iterations` in the settings would stop the run"),
    }
    words
}
