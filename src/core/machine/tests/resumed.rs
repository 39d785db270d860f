//! Going on with what a run knew when it was cut off.

use super::*;
use crate::core::progress::{Open, Pending};
use crate::core::stall::Seen;

fn resumed(rules: Rules, progress: Progress) -> Loop {
    let now = Now { mono_ms: 5_000, wall_ms: 1_000_000_000 };
    let mut this =
        Loop { machine: LoopMachine::resumed(rules, progress), now, actions: Vec::new() };
    this.give(Input::Start);
    this
}

/// In its second iteration, at whose first attempt an agent has worked for a second.
fn cut_off(pending: Pending) -> Progress {
    let open = Some(Open { iteration: 2, attempts: 1, worked_ms: 1_000 });
    Progress { iterations: 1, open, pending, ..Progress::default() }
}

fn ended(report: Report) -> Pending {
    Pending::Ended(Box::new(report))
}

fn checked(complete: bool) -> Pending {
    Pending::Checked { class: Class::Answered, complete, found: None }
}

fn is_told(run: &Loop, iteration_complete: bool) -> bool {
    run.actions.iter().any(|action| {
        matches!(action, Action::Emit(Event::IterationEnded { complete, cut_off: false, .. })
            if *complete == iteration_complete)
    })
}

#[test]
fn what_was_decided_needs_no_agent() {
    let failed_twice = Progress { failures: 2, ..cut_off(ended(failed(Class::Failed))) };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let complete = Progress { iterations: 2, pending: Pending::Complete, ..Progress::default() };
    let spent_all = {
        let mut progress = cut_off(Pending::Nothing);
        progress.spending.attempt_ends(&spent(1.0));
        progress
    };
    for (progress, rules, outcome) in [
        (complete.clone(), rules(), (Outcome::Complete, 0)),
        // Even at its limit, and with its budget used up.
        (complete.clone(), Rules { max_iterations: 2, ..rules() }, (Outcome::Complete, 0)),
        (
            Progress { scm_failed: true, ..complete },
            Rules { budget: Budget { tokens: Some(0), ..Budget::default() }, ..rules() },
            (Outcome::CompleteScmFailed, exit::SCM),
        ),
        (cut_off(checked(true)), rules(), (Outcome::Complete, 0)),
        (
            Progress { scm_failed: true, ..cut_off(checked(true)) },
            rules(),
            (Outcome::CompleteScmFailed, exit::SCM),
        ),
        (
            cut_off(checked(false)),
            Rules { max_iterations: 2, ..rules() },
            (Outcome::LimitReached, 1),
        ),
        (failed_twice, rules(), (Outcome::AgentFailed, exit::AGENT)),
        (
            cut_off(ended(failed(Class::Credentials))),
            rules(),
            (Outcome::CredentialsRefused, exit::AGENT),
        ),
        (spent_all, Rules { budget, ..rules() }, (Outcome::Budget, exit::BUDGET)),
        (Progress { iterations: 3, ..Progress::default() }, rules(), (Outcome::LimitReached, 1)),
    ] {
        let told = format!("{progress:?}");
        let run = resumed(rules, progress);
        assert_eq!(run.outcome(), Some(outcome), "{told}");
        assert!(!run.starts_agent());
    }
}

#[test]
fn the_gates_are_asked_once_more_and_not_the_agent() {
    let gated = || Rules { gates: true, ..rules() };
    let mut run = resumed(gated(), cut_off(checked(true)));
    assert!(run.asked(&Action::CheckGates { claimed: true, checks_passed: true }));
    assert_eq!(run.machine.place(), (2, 1));
    run.give(Input::GatesChecked(GateVerdict::Stands));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    assert!(is_told(&run, true));
    let mut run = resumed(gated(), cut_off(checked(true)));
    run.give(Input::GatesChecked(GateVerdict::Veto {
        reason: "open".into(),
        feedback: Vec::new(),
    }));
    assert!(is_told(&run, false) && run.asked(&Action::Brief));
    assert_eq!(run.machine.iteration(), 3);
}

#[test]
fn a_failure_is_counted_and_a_limit_waited_for_as_if_nothing_had_happened() {
    let mut run = resumed(rules(), cut_off(ended(failed(Class::Failed))));
    assert!(run.asked_to_retry(1) && !run.starts_agent());
    run.until_deadline();
    assert!(run.starts_agent());
    assert_eq!(run.machine.place(), (2, 2));
    let in_an_hour = Some(1_003_600);
    let limits = Limits { count: 1, waited_ms: 10_000, waiting: None };
    let progress = Progress { limits, ..cut_off(ended(limited(in_an_hour))) };
    // What was waited before counts, so that a run cannot wait for ever by being cut off.
    assert_eq!(resumed(rules(), progress.clone()).outcome(), Some((Outcome::AgentFailed, 4)));
    let patient = RateLimit { wait: true, max_wait_ms: 3_700_000 };
    let run = resumed(Rules { rate_limit: patient, ..rules() }, progress.clone());
    assert!(run.outcome().is_none() && !run.starts_agent());
    // A person who goes on with a run that had given up has done something about it.
    let again = Progress { outcome: Some(Outcome::AgentFailed), ..progress };
    let again = Progress { pending: Pending::Nothing, ..again };
    assert!(resumed(rules(), again).starts_agent());
}

#[test]
fn a_wait_that_was_cut_off_counts_as_long_as_it_lasted() {
    let limits = |until_ms| Limits {
        count: 1,
        waited_ms: 0,
        waiting: Some((1_000_000_000 - 1_000_000, until_ms)),
    };
    for (until_ms, waited_ms) in [(999_500_000, 500_000), (2_000_000_000, 1_000_000)] {
        let progress = Progress { limits: limits(until_ms), ..cut_off(Pending::Nothing) };
        assert_eq!(resumed(rules(), progress).machine.limits.waited_ms, waited_ms);
    }
}

#[test]
fn an_iteration_that_is_begun_again_has_no_second_budget() {
    let mut progress = cut_off(Pending::Nothing);
    progress.spending.attempt_ends(&spent(0.75));
    let within = |budget| Rules { iteration_budget: budget, ..rules() };
    let money = |cost| within(Budget { cost_usd: Some(cost), ..Budget::default() });
    let time = |ms| within(Budget { duration_ms: Some(ms), ..Budget::default() });
    // What is left is left.
    let mut run = resumed(money(1.0), progress.clone());
    assert!(run.starts_agent());
    run.give(Input::AgentStarted).give(Input::Used(spent(0.25)));
    assert!(run.asked(&Action::EndAgent(EndCause::IterationBudget)));
    let mut run = resumed(time(1_500), progress.clone());
    assert!(run.starts_agent());
    run.give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 500));
    // Nothing is left: what was done is checked, and the next iteration has a budget of its own.
    for rules in [money(0.5), time(1_000)] {
        let checks = Rules { guardrails: vec![None], ..rules };
        let mut run = resumed(checks, progress.clone());
        assert!(run.asked(&Action::RunGuardrail(0)) && !run.starts_agent());
        run.give(Input::GuardrailEnded { failed: None });
        assert!(is_told(&run, false) && run.starts_agent());
        assert_eq!(run.machine.iteration(), 3);
        run.give(Input::AgentStarted).give(Input::Used(spent(0.25)));
        assert!(run.actions.is_empty());
    }
}

#[test]
fn a_loop_that_was_to_be_stopped_for_getting_nowhere_is() {
    let rules = Rules { stall: StallRule::stopping_after(2), ..rules() };
    let seen = Seen { fingerprint: Some(7), unchanged: 2, same_failures: 0 };
    let progress = Progress { iterations: 2, seen, looked: true, ..Progress::default() };
    let mut run = resumed(rules.clone(), progress.clone());
    assert!(run.asked(&Action::LookAtRepository));
    run.give(Input::RepositoryLooked { fingerprint: Some(7) });
    assert_eq!(run.outcome(), Some((Outcome::Stalled, exit::BUDGET)));
    let said = |action: &Action| matches!(action, Action::Emit(Event::RunEnded { message, .. }) if message.starts_with("2 iterations"));
    assert!(run.actions.iter().any(said), "{:?}", run.actions);
    // Somebody has done something about it.
    let mut run = resumed(rules, progress);
    run.give(Input::RepositoryLooked { fingerprint: Some(8) });
    assert!(run.starts_agent());
}
