//! Properties that hold after every life of a run.

use std::cell::RefCell;
use std::rc::Rc;

use ralph_driver::driver::RunExit;
use ralph_driver::run_spec::RunSpec;
use ralph_events::event::{Class, Entry, Event, Outcome, Purpose};

use crate::counters;
use crate::ending;
use crate::guidance;
use crate::steering;
use crate::truth::{Fact, Truth, facts};
use crate::world::SimWorld;

pub(crate) fn check(
    spec: &RunSpec,
    truth: &Rc<RefCell<Truth>>,
    world: &SimWorld,
    before: usize,
    finish: Option<RunExit>,
) -> Result<(), String> {
    let mut truth = truth.borrow_mut();
    if let Some(violation) = truth.violation.take() {
        return Err(violation);
    }
    let whole = truth.read();
    if truth.journal.len() < before || whole < before {
        return Err("the journal lost entries".to_owned());
    }
    let facts = facts(&truth.entries);
    if let Some(finish) = finish {
        if !world.is_idle() {
            return Err("a job is still running at the end".to_owned());
        }
        if matches!(finish.outcome, Outcome::Complete | Outcome::CompleteScmFailed) {
            completion(spec, &truth)?;
        }
        if finish.outcome == Outcome::Complete && spec.scm.is_some() && truth.dirty {
            return Err("complete with uncommitted work".to_owned());
        }
        if finish.outcome == Outcome::Stalled {
            stall(spec, &truth)?;
        }
        let said = facts.iter().rev().find_map(|(_, fact)| match fact {
            Fact::RunEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        if said != Some(finish.outcome) && !truth.refused {
            return Err(format!("it ended as {:?}, but the journal has {said:?}", finish.outcome));
        }
    }
    if let Some(finish) = finish {
        ending::check(spec, &truth, before, finish)?;
    }
    order(spec, &facts, truth.has_holes)?;
    room(spec, &truth)?;
    if !truth.has_holes {
        decided(spec, &facts)?;
        counters::check(spec, &truth, finish)?;
    }
    steering::check(spec, &truth, before)?;
    if !truth.has_holes {
        guidance::check(spec, &truth)?;
    }
    stamps(&truth)?;
    commits(&truth)?;
    paid_once(&truth, &facts)?;
    feedback(&truth, &facts)
}

fn completion(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    if truth.unseen {
        return Err("complete with unchecked work".to_owned());
    }
    let all_pass = |index| truth.checks.contains(&(index, true));
    if !(0..spec.guardrails.len()).all(all_pass) || truth.checks.iter().any(|(_, passed)| !passed) {
        return Err(format!("complete with guardrails {:?}", truth.checks));
    }
    match &spec.tasks {
        Some(_) if !truth.stories.iter().all(|passes| *passes) => {
            Err("complete with a story that does not pass".to_owned())
        }
        None if !truth.claimed => Err("complete without a completion signal".to_owned()),
        _ => Ok(()),
    }
}

fn stall(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    let Some(limit) = spec.rules.stall.stop_after else {
        return Err("stalled without stall detection".to_owned());
    };
    let looks = truth.looks.iter().rev().take(limit as usize + 1);
    let changed = looks.clone().any(|look| Some(look) != truth.looks.last());
    if changed && spec.guardrails.is_empty() {
        return Err(format!("stalled with changes: {:?}", truth.looks));
    }
    Ok(())
}

/// Iterations are in order and within the limit, one agent runs at a time, and none starts without
/// budget. On a full disk, ends may be missing.
fn order(spec: &RunSpec, facts: &[(usize, Fact)], has_holes: bool) -> Result<(), String> {
    let (mut iteration, mut next, mut ended, mut open) = (0, 1, 0, false);
    let (mut cost, mut tokens) = (0.0, 0_u64);
    let mut running: Option<(f64, u64)> = None;
    // An interrupted iteration may be finished by another attempt.
    let (mut cut, mut left_open) = (false, false);
    let budget = &spec.rules.budget;
    for (_, fact) in facts {
        match fact {
            Fact::RunStarted => {
                if let Some((more, used)) = running.take() {
                    (cost, tokens) = (cost + more, tokens + used);
                }
                // A resumed run restarts the open iteration.
                left_open |= open || cut;
                (open, cut, next) = (false, false, ended + 1);
            }
            Fact::IterationStarted { number, most } => {
                // An iteration that could not be recorded shows in the next one's number.
                let follows = *number == next || (has_holes && *number > next);
                if !follows || (open && !has_holes) {
                    return Err(format!("iteration {number}, not {next}, or one in another"));
                }
                next = number + 1;
                if number > most || *most != spec.rules.max_iterations {
                    return Err(format!("iteration {number} of {most}"));
                }
                if std::mem::take(&mut cut) {
                    return Err(format!(
                        "iteration {iteration} was cut off, but the run continued"
                    ));
                }
                (iteration, open, left_open) = (*number, true, false);
            }
            Fact::AgentStarted { .. } => {
                if running.is_some() || !(open || left_open) {
                    return Err("two agents at once, or one outside an iteration".to_owned());
                }
                let used_up = budget.cost_usd.is_some_and(|most| cost >= most)
                    || budget.tokens.is_some_and(|most| tokens >= most);
                if used_up {
                    return Err(format!("an agent after ${cost} and {tokens} tokens: {budget:?}"));
                }
                running = Some((0.0, 0));
            }
            Fact::Used { cost, tokens } => running = running.map(|_| (*cost, *tokens)),
            Fact::AgentEnded { cost: more, tokens: used, .. } => {
                (cost, tokens) = (cost + more, tokens + used);
                running = None;
            }
            Fact::IterationEnded { cut_off, .. } => {
                (open, cut, left_open) = (false, *cut_off, false);
                if !cut_off {
                    (ended, next) = (iteration, iteration + 1);
                }
            }
            // An interrupted iteration does not always restart.
            Fact::RunEnded { iterations, .. } => {
                let odd = ![iteration, ended].contains(iterations) || open;
                if odd && !has_holes {
                    return Err(format!("it ended after {iterations} iterations, not {ended}"));
                }
            }
            Fact::GuardrailEnded { .. } | Fact::Feedback { .. } | Fact::Retrying { .. } => {}
        }
    }
    Ok(())
}

/// Every event bears the iteration and the attempt it belongs to.
fn stamps(truth: &Truth) -> Result<(), String> {
    let (mut iteration, mut attempt, mut open) = (0, 0, false);
    for Entry { at, event } in truth.entries.iter().map(|(_, entry)| entry) {
        match event {
            Event::RunStarted { .. } => (attempt, open) = (0, false),
            Event::IterationStarted { .. } => {
                (iteration, attempt, open) = (at.iteration, 0, true);
            }
            _ => {}
        }
        let outside = (at.iteration, at.attempt) == (0, 0) && !open;
        if !outside && (at.iteration != iteration || at.attempt < attempt) && !truth.has_holes {
            return Err(format!("{event:?} at {at:?} in iteration {iteration}.{attempt}"));
        }
        attempt = attempt.max(at.attempt);
        open &= !matches!(event, Event::IterationEnded { .. });
    }
    Ok(())
}

/// A commit is the run's own if one of its jobs could have made it.
fn commits(truth: &Truth) -> Result<(), String> {
    for (_, entry) in &truth.entries {
        let Event::Repository { commits, by_others, .. } = &entry.event else { continue };
        if commits.iter().any(|commit| truth.by_others.get(&commit.id) != Some(by_others)) {
            return Err(format!("commits by others, {by_others}: {commits:?}"));
        }
    }
    Ok(())
}

/// Agents get a share of the journal per iteration, as much for the report, and the end of omitted
/// output.
fn room(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    const LEAST: u64 = 4 * 1024;
    const TAIL: u64 = 16 * 1024;
    // For an agent without room: its usage, and that output was omitted.
    const FIGURES: u64 = 2 * 1024;
    let (mut lives, mut agents, mut iterations, mut said, mut start) = (0, 0, 0, 0, 0);
    for (end, entry) in &truth.entries {
        let length = (end - std::mem::replace(&mut start, *end)) as u64;
        match entry.event {
            Event::RunStarted { .. } => lives += 1,
            Event::IterationStarted { .. } => iterations += 1,
            Event::AgentStarted { .. } => agents += 1,
            Event::Text { .. }
            | Event::ToolEnded { .. }
            | Event::Output { .. }
            | Event::Usage(_)
            | Event::Result { .. }
            | Event::Session { .. } => said += length,
            _ => {}
        }
    }
    if spec.journal_bytes == u64::MAX {
        return Ok(());
    }
    // Here each life gets the whole quota, not the rest.
    let share = (spec.journal_bytes / 4).max(LEAST);
    let most =
        spec.journal_bytes * lives + iterations * 2 * LEAST + agents * (TAIL.min(share) + FIGURES);
    if said > most {
        return Err(format!("{said} bytes of {agents} agents in {iterations} iterations: {most}"));
    }
    Ok(())
}

/// Once the end is decided, no agent is started, however often the run is interrupted before it
/// ends.
fn decided(spec: &RunSpec, facts: &[(usize, Fact)]) -> Result<(), String> {
    let rules = &spec.rules;
    let is_failure = |class: Class| match class {
        Class::Failed | Class::ContextExhausted => true,
        Class::Empty => rules.retry_empty,
        Class::TimedOut => rules.inactivity_fails,
        _ => false,
    };
    // Counted failures, and the decision of the last end.
    let (mut failures, mut counted, mut over) = (0, false, None);
    for (_, fact) in facts {
        match fact {
            Fact::AgentStarted { .. } => {
                counted = false;
                if let Some(over) = over {
                    return Err(format!("an agent was started though {over}"));
                }
            }
            Fact::AgentEnded { purpose: Purpose::Work, class, .. } => match class {
                Class::Credentials => over = Some("its credentials were refused"),
                class if is_failure(*class) && failures + 1 >= rules.retry.max_failures() => {
                    over = Some("the last one had failed for good");
                }
                Class::Answered => failures = 0,
                _ => {}
            },
            Fact::Retrying { failures: by_now } => (failures, counted) = (*by_now, true),
            Fact::IterationEnded { complete: true, .. } => over = Some("the work was complete"),
            Fact::IterationEnded { cut_off: false, .. } if !counted => failures = 0,
            Fact::RunEnded { outcome, .. } => {
                if over == Some("the work was complete")
                    && !matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed)
                {
                    return Err(format!("the work was complete, and it ended as {outcome:?}"));
                }
                over = None;
                if *outcome != Outcome::Interrupted {
                    failures = 0;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// An answer or a commit message is paid for once: no agent is started before its checks have
/// ended.
fn paid_once(truth: &Truth, facts: &[(usize, Fact)]) -> Result<(), String> {
    for start in &truth.starts {
        let (mut iteration, mut is_answered, mut has_message) = (0, false, false);
        for (_, fact) in facts.iter().take_while(|(end, _)| *end <= start.journal) {
            match fact {
                // On a full disk, the previous end may be missing.
                Fact::IterationStarted { number, .. } if *number > iteration => {
                    (iteration, is_answered, has_message) = (*number, false, false);
                }
                Fact::AgentEnded { purpose: Purpose::Work, class, .. } => {
                    (is_answered, has_message) = (*class == Class::Answered, false);
                }
                Fact::AgentEnded { has_message: given, .. } => has_message = *given,
                Fact::IterationEnded { cut_off: false, .. } => {
                    (is_answered, has_message) = (false, false);
                }
                _ => {}
            }
        }
        match start.purpose {
            Purpose::Work if is_answered => {
                return Err("an agent was started before the last answer was checked".to_owned());
            }
            Purpose::CommitMessage if has_message => {
                return Err(
                    "an agent was asked for a commit message that already exists".to_owned()
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every agent gets exactly the last feedback of the guardrails.
fn feedback(truth: &Truth, facts: &[(usize, Fact)]) -> Result<(), String> {
    for start in truth.starts.iter().filter(|start| start.purpose == Purpose::Work) {
        let mut last: &[u64] = &[];
        for (_, fact) in facts.iter().take_while(|(end, _)| *end <= start.journal) {
            if let Fact::Feedback { failures, .. } = fact {
                last = failures;
            }
        }
        let (mut told, mut expected) = (start.told.clone(), last.to_vec());
        told.sort_unstable();
        expected.sort_unstable();
        if told != expected {
            return Err(format!("an agent got feedback {told:?}, not {expected:?}"));
        }
    }
    // An iteration ends with its guardrails' results. On a full disk it may restart.
    if truth.has_holes {
        return Ok(());
    }
    let (mut failed, mut last) = (0, 0);
    for (_, fact) in facts {
        match fact {
            Fact::AgentEnded { purpose: Purpose::Work, .. } | Fact::RunStarted => failed = 0,
            Fact::GuardrailEnded { passed } => failed += usize::from(!passed),
            Fact::Feedback { parts, .. } => last = *parts,
            Fact::IterationEnded { .. } if failed > last => {
                return Err(format!("{failed} guardrails failed, but feedback has {last}"));
            }
            _ => {}
        }
    }
    Ok(())
}
