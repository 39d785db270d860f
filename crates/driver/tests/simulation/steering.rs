//! Promises about signals and refused hosts.

use std::collections::HashSet;

use ralph_driver::run_spec::RunSpec;
use ralph_events::event::{Entry, Event};
use ralph_process::Signal;
use ralph_report::worker_lines::KILL_REASON;

use crate::truth::Truth;

/// Checks the entries that one life of a run has added after the first `before` bytes of the journal.
pub(crate) fn check(spec: &RunSpec, truth: &Truth, before: usize) -> Result<(), String> {
    let life = || truth.entries.iter().filter(|(end, _)| *end > before).map(|(_, entry)| entry);
    if truth.has_holes {
        return Ok(());
    }
    signals(spec, truth, life())?;
    stop_after_iteration(truth)?;
    refusals(spec, life())
}

/// A first signal lets the running job finish, later ones do not; SIGTERM may be a request to pause.
fn signals<'e>(
    spec: &RunSpec,
    truth: &Truth,
    life: impl Iterator<Item = &'e Entry<'static>>,
) -> Result<(), String> {
    let recorded: Vec<(&str, bool)> = life
        .filter_map(|entry| match &entry.event {
            Event::StopRequested { signal, now } if signal != KILL_REASON => {
                Some((&**signal, *now))
            }
            _ => None,
        })
        .collect();
    let pauses = |signal, nth| spec.rules.term_pauses && signal == Signal::Terminate && nth == 1;
    let expected: Vec<(&str, bool)> = truth
        .signals
        .iter()
        .filter(|(signal, nth)| !pauses(*signal, *nth))
        .filter_map(|(signal, nth)| match signal {
            Signal::Interrupt => Some(("SIGINT", *nth > 1)),
            Signal::Terminate => Some(("SIGTERM", *nth > 1)),
            Signal::HangUp => Some(("SIGHUP", true)),
            Signal::Quit | Signal::CpuLimit | Signal::Resize => None,
        })
        .collect();
    // The last ones may have come after the end.
    if expected.starts_with(&recorded) {
        Ok(())
    } else {
        Err(format!("stop requests {recorded:?}, not {expected:?}"))
    }
}

/// No iteration starts after such a request.
fn stop_after_iteration(truth: &Truth) -> Result<(), String> {
    let Some(asked) = truth.stop_after else { return Ok(()) };
    let later = truth.entries.iter().filter(|(end, _)| *end > asked).map(|(_, entry)| entry);
    let mut starts = later.filter(|entry| matches!(entry.event, Event::IterationStarted { .. }));
    match starts.next() {
        Some(start) => Err(format!("iteration {} after a request to stop", start.at.iteration)),
        None => Ok(()),
    }
}

/// Each refused host is reported once per iteration, and only so many of them.
fn refusals<'e>(
    spec: &RunSpec,
    life: impl Iterator<Item = &'e Entry<'static>>,
) -> Result<(), String> {
    let mut reported = HashSet::new();
    for entry in life {
        match &entry.event {
            Event::IterationStarted { .. } => reported.clear(),
            Event::NetworkRefused { host, .. } => {
                if !reported.insert(host.as_ref()) {
                    return Err(format!("{host} was reported twice"));
                }
                if reported.len() > spec.rules.max_refusals {
                    return Err(format!("{} refused hosts in one iteration", reported.len()));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
