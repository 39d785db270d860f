//! Promises about the end of a run.

use ralph_driver::driver::RunExit;
use ralph_driver::run_spec::RunSpec;
use ralph_events::event::{Entry, Event, Outcome};
use ralph_events::exit_code;

use crate::truth::Truth;

/// Checks the end of a life that began after the first `before` bytes of the journal.
pub(crate) fn check(
    spec: &RunSpec,
    truth: &Truth,
    before: usize,
    end: RunExit,
) -> Result<(), String> {
    exit(truth, before, end)?;
    if truth.has_holes {
        return Ok(());
    }
    let life = || truth.entries.iter().filter(|(at, _)| *at > before).map(|(_, entry)| entry);
    uncommitted_work(truth, end, life().map(|entry| &entry.event))?;
    notification(spec, life().map(|entry| &entry.event))
}

/// A run exits with the outcome that its journal has, or as broken.
fn exit(truth: &Truth, before: usize, end: RunExit) -> Result<(), String> {
    let broken = RunExit { outcome: Outcome::InternalError, exit_code: exit_code::USAGE };
    let last = truth.entries.iter().rev().find(|(_, entry)| {
        matches!(entry.event, Event::RunStarted { .. } | Event::RunEnded { .. })
    });
    match last {
        Some((at, Entry { event: Event::RunEnded { outcome, exit_code, .. }, .. }))
            if *at > before && (*outcome, *exit_code) == (end.outcome, end.exit_code) =>
        {
            Ok(())
        }
        _ if end == broken => Ok(()),
        _ => Err(format!("it ended as {end:?}, which is not in the journal")),
    }
}

/// Only complete work is expected to be committed.
fn uncommitted_work<'e>(
    truth: &Truth,
    end: RunExit,
    mut life: impl Iterator<Item = &'e Event<'static>>,
) -> Result<(), String> {
    let is_complete = matches!(end.outcome, Outcome::Complete | Outcome::CompleteScmFailed);
    let is_reported = life.any(|event| {
        matches!(event, Event::Warning { message } if message.starts_with("complete, but not committed"))
    });
    if is_reported == (is_complete && truth.dirty) {
        Ok(())
    } else {
        Err(format!("uncommitted work was reported: {is_reported}, {:?}", end.outcome))
    }
}

/// The end says whether the user is notified, and is followed by the notification.
fn notification<'e>(
    spec: &RunSpec,
    life: impl Iterator<Item = &'e Event<'static>>,
) -> Result<(), String> {
    let mut due = false;
    for event in life {
        match event {
            Event::RunEnded { notify, .. } if *notify != spec.notify.is_some() => {
                return Err("the end does not say whether the user is notified".to_owned());
            }
            Event::RunEnded { notify, .. } => due = *notify,
            Event::Notified { .. } => due = false,
            _ => {}
        }
    }
    if due { Err("the user was not notified of the end".to_owned()) } else { Ok(()) }
}
