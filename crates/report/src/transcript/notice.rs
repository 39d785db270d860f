//! Events that are one line of text.

use super::Level;
use crate::run_table::continued_after_text;
use crate::state_word::StateWord;
use crate::terminal::{describe_class, describe_outcome};
use crate::warning_text::warning_text;
use ralph_events::event::{Event, Outcome};
use ralph_events::text;

pub(super) fn notice_text(event: &Event<'_>) -> Option<(Level, String)> {
    Some(match event {
        Event::RunContinued { after, cut_off, .. } => {
            let again =
                cut_off.map_or_else(String::new, |n| format!(": iteration {n} starts again"));
            (Level::Info, format!("Resumed after {}{again}", continued_after_text(*after)))
        }
        Event::Retrying { class, message, delay_ms, failures, max_failures } => {
            let cause = if message.is_empty() { describe_class(*class) } else { message };
            let when = delay_ms.map(|ms| format!("Retrying in {}", text::format_duration(ms)));
            let when = when.unwrap_or_else(|| "Failed".to_owned());
            (Level::Warning, format!("{when}: {cause} (failure {failures} of {max_failures})"))
        }
        Event::Vetoed { reason } => (Level::Warning, format!("Not done: {reason}")),
        Event::NetworkRefused { host, port, reason, .. } => {
            (Level::Warning, format!("Connection refused: {host}:{port} ({reason})"))
        }
        Event::Leftovers { processes, kept: false } if !processes.is_empty() => {
            let names: Vec<&str> = processes.iter().map(|it| it.command.as_str()).collect();
            (Level::Info, format!("The agent left running: {}. Ended.", names.join("; ")))
        }
        Event::DialogOpened { dialog } => {
            (Level::Warning, format!("A dialog waits on the agent's screen: {dialog}"))
        }
        Event::GuidanceCleared => (Level::Info, "You cleared your guidance".to_owned()),
        Event::PauseRequested => (Level::Info, "You asked the run to pause".to_owned()),
        Event::StopRequested { signal, .. } => (Level::Info, format!("Stop requested: {signal}")),
        Event::RunEnded { outcome, message, .. } => {
            let level = match StateWord::of_outcome(*outcome) {
                StateWord::Failed => Level::Failure,
                _ => Level::Info,
            };
            let words = describe_outcome(*outcome);
            match message.trim() {
                _ if *outcome == Outcome::Interrupted => (level, words.to_owned()),
                "" => (level, words.to_owned()),
                message => (level, format!("{words}: {message}")),
            }
        }
        other => (Level::Warning, warning_text(other)?.into_owned()),
    })
}
