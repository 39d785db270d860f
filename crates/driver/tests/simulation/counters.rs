//! Promises about what a run counts, in all its lives together.

use ralph_driver::driver::RunExit;
use ralph_driver::run_spec::RunSpec;
use ralph_events::event::{Class, Event, Outcome, Purpose, WaitReason};
use ralph_events::exit_code;

use crate::truth::Truth;

/// Only for a journal without holes.
pub(crate) fn check(spec: &RunSpec, truth: &Truth, end: Option<RunExit>) -> Result<(), String> {
    if let Some(end) = end {
        scm_failure(truth, end)?;
        every_failure(spec, truth, end)?;
    }
    failures(spec, truth)?;
    rate_limits(spec, truth)
}

fn events(truth: &Truth) -> impl DoubleEndedIterator<Item = &Event<'static>> {
    truth.entries.iter().map(|(_, entry)| &entry.event)
}

/// A run gives up after these, and counts from the beginning when it is resumed.
fn is_reset_by(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::AgentFailed | Outcome::CredentialsRefused | Outcome::Stalled)
}

/// Complete work exits with the code for SCM failures if the last task failed, and only then.
fn scm_failure(truth: &Truth, end: RunExit) -> Result<(), String> {
    let last = events(truth).rev().find_map(|event| match event {
        Event::ScmEnded { ok, .. } => Some(*ok),
        _ => None,
    });
    let expected = match last {
        Some(false) => (Outcome::CompleteScmFailed, exit_code::SCM_FAILED),
        _ => (Outcome::Complete, exit_code::SUCCESS),
    };
    let is_complete = matches!(end.outcome, Outcome::Complete | Outcome::CompleteScmFailed);
    if is_complete && (end.outcome, end.exit_code) != expected {
        return Err(format!("{end:?} after an SCM task that ended as {last:?}"));
    }
    Ok(())
}

/// The attempt did what its iteration needs.
fn is_success(spec: &RunSpec, class: Class) -> bool {
    match class {
        Class::Answered | Class::Limited => true,
        Class::Empty => !spec.rules.retry_empty,
        Class::TimedOut => !spec.rules.inactivity_fails,
        _ => false,
    }
}

fn work_ended(event: &Event<'_>) -> Option<Class> {
    match event {
        Event::AgentEnded { purpose: Purpose::Work, class, .. } => Some(*class),
        _ => None,
    }
}

/// A run in which an iteration succeeded does not say that all of them failed.
fn every_failure(spec: &RunSpec, truth: &Truth, end: RunExit) -> Result<(), String> {
    let is_said = matches!(
        events(truth).rev().find(|event| matches!(event, Event::RunEnded { .. })),
        Some(Event::RunEnded { message, .. }) if message.starts_with("every iteration failed")
    );
    let mut ends = events(truth).filter_map(work_ended);
    if end.outcome == Outcome::AgentFailed && is_said && ends.any(|class| is_success(spec, class)) {
        return Err("every iteration failed, but for one".to_owned());
    }
    Ok(())
}

/// Every failure in a row is counted.
fn failures(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    let mut before = Some(0);
    for event in events(truth) {
        match event {
            Event::Retrying { failures, .. } => {
                if before.is_some_and(|before| *failures != before + 1) {
                    return Err(format!("failure {failures} after {before:?}"));
                }
                before = Some(*failures);
            }
            // An iteration without budget may or may not end the row.
            Event::IterationEnded { class: Class::Limited, .. } => before = None,
            Event::RunEnded { outcome, .. } if is_reset_by(*outcome) => before = Some(0),
            _ if work_ended(event).is_some_and(|class| is_success(spec, class)) => before = Some(0),
            _ => {}
        }
    }
    Ok(())
}

/// Every rate limit in a row is waited for longer.
fn rate_limits(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    let mut limits = Some(0);
    for entry in truth.entries.iter().map(|(_, entry)| entry) {
        match &entry.event {
            Event::Waiting { reason: WaitReason::RateLimit, until_ms } => {
                let Some(limits) = &mut limits else { continue };
                *limits += 1;
                let expected = spec.rules.retry.backoff(*limits);
                let delay = until_ms - entry.at.time_ms;
                if delay != expected as i64 {
                    return Err(format!("wait for limit {limits}: {delay} ms, not {expected}"));
                }
            }
            Event::IterationEnded { class: Class::Limited, .. } => limits = None,
            Event::RunEnded { outcome, .. } if is_reset_by(*outcome) => limits = Some(0),
            event => {
                let is_limit = |class| matches!(class, Class::RateLimited | Class::Overloaded);
                if work_ended(event).is_some_and(|class| !is_limit(class)) {
                    limits = Some(0);
                }
            }
        }
    }
    Ok(())
}
