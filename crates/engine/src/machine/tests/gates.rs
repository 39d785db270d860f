//! What a gate is asked, and what its word counts.

use super::*;

/// What the gates are asked after guardrails that passed.
fn check_gates(claimed: bool) -> Action {
    Action::CheckGates { claimed, checks_passed: true }
}

#[test]
fn a_gate_can_veto() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done());
    assert!(run.asked(&check_gates(true)));
    run.give(veto(&["open: US-2"]));
    assert!(run.asked(&Action::Emit(Event::Vetoed { reason: "open".into() })));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2")]);
    run.agent(done()).give(Input::GatesChecked(GateVerdict::Neutral));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn there_is_nothing_to_veto_where_nothing_is_claimed() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered());
    assert!(run.asked(&check_gates(false)));
    run.give(veto(&[]));
    let vetoed = |action: &Action| matches!(action, Action::Emit(Event::Vetoed { .. }));
    assert!(!run.actions.iter().any(vetoed));
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Neutral));
    assert_eq!(run.outcome(), None);
}

#[test]
fn gates_are_asked_after_failed_guardrails_too_and_cannot_overrule_them() {
    for verdict in [veto(&["marked"]), Input::GatesChecked(GateVerdict::Complete)] {
        let adds = matches!(verdict, Input::GatesChecked(GateVerdict::Veto { .. }));
        let mut run = Loop::start(Rules { gates: true, guardrails: vec![None], ..rules() });
        run.agent(done()).give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
        assert!(run.asked(&Action::CheckGates { claimed: false, checks_passed: false }));
        run.give(verdict);
        assert_eq!(run.outcome(), None);
        let told =
            if adds { vec![feedback("lint"), feedback("marked")] } else { vec![feedback("lint")] };
        assert_eq!(run.machine.feedback(), told);
        let set = Action::Emit(Event::FeedbackSet { parts: told });
        assert!(run.asked(&set), "told of once, and whole");
    }
}

#[test]
fn every_attempt_is_briefed_anew() {
    let brief = |told: &str| Input::Briefed { feedback: vec![feedback(told)] };
    let mut run = Loop::start(Rules { gates: true, guardrails: vec![None], ..rules() });
    assert!(run.asked(&Action::CollectBriefing) && !run.starts_agent());
    run.give(brief("one"));
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("one")]);
    // The same iteration again, with what there is to say now and not what there was.
    run.agent(failed(Class::Failed)).until_deadline();
    assert!(run.asked(&Action::CollectBriefing));
    run.give(brief("two"));
    assert_eq!(run.machine.feedback(), [feedback("two")]);
    // What failed comes first and stays through a retry; the briefing is new each time.
    run.agent(answered()).give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
    run.give(Input::GatesChecked(GateVerdict::Neutral)).give(brief("three"));
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("three")]);
    run.agent(failed(Class::Failed)).until_deadline();
    run.give(Input::Briefed { feedback: Vec::new() });
    assert_eq!(run.machine.feedback(), [feedback("lint")]);
}

#[test]
fn a_briefing_is_given_beside_what_a_resumed_run_had_to_tell() {
    let progress = ResumePoint { feedback: vec![feedback("lint")], ..ResumePoint::default() };
    let machine = LoopMachine::resumed(Rules { gates: true, ..rules() }, progress);
    let mut run = Loop::of(machine);
    run.give(Input::Briefed { feedback: vec![feedback("gone")] });
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("gone")]);
}

/// A machine that has been asked to look whether there is anything to do.
fn opened(guardrails: usize) -> Loop {
    let rules = Rules {
        gates: true,
        guardrails: vec![None; guardrails],
        scm: vec![ScmTaskKind::Commit],
        ..rules()
    };
    Loop::of(LoopMachine::new(rules).with_initial_check())
}

#[test]
fn work_that_is_done_already_is_checked_and_nobody_is_asked_to_do_it() {
    let mut run = opened(1);
    assert!(run.asked(&Action::RunGuardrail(0)) && run.machine.is_initial_check());
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.asked(&check_gates(false)), "and nothing is committed: {:?}", run.actions);
    run.give(Input::GatesChecked(GateVerdict::Complete));
    assert!(run.asked(&Action::Finish { outcome: Outcome::Complete, exit_code: 0 }));
    assert_eq!(run.machine.iteration(), 0);
}

#[test]
fn work_that_turns_out_not_to_be_done_is_begun_with_what_was_found() {
    let mut run = opened(1);
    run.give(Input::GuardrailEnded { failed: Some(feedback("it fails")) });
    let told = vec![feedback("so look")];
    let reason = "a check failed".to_owned();
    run.give(Input::GatesChecked(GateVerdict::Veto { reason, feedback: told }));
    let vetoed = |action: &Action| matches!(action, Action::Emit(Event::Vetoed { .. }));
    assert!(run.actions.iter().any(vetoed), "{:?}", run.actions);
    assert_eq!(run.machine.iteration(), 1);
    assert_eq!(run.machine.feedback(), [feedback("it fails"), feedback("so look")]);
    assert!(!run.machine.is_initial_check());
}

#[test]
fn a_stop_while_the_work_is_checked_first_is_heeded() {
    let mut run = opened(1);
    run.give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: Some(feedback("ended")) });
    assert!(run.asked(&Action::Finish { outcome: Outcome::Interrupted, exit_code: 130 }));
}

#[test]
fn a_pause_while_the_gates_are_asked_is_one_before_the_attempt() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.give(Input::Pause).give(Input::Briefed { feedback: Vec::new() });
    assert!(run.machine.is_paused() && !run.starts_agent());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.asked(&Action::CollectBriefing));
    assert_eq!((run.machine.iteration(), run.machine.attempt()), (1, 1));
}

#[test]
fn a_stop_while_the_gates_are_asked_is_heeded() {
    let stop = || Input::Stop { signal: "SIGINT", now: false };
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.give(stop()).give(Input::Briefed { feedback: Vec::new() });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done()).give(stop()).give(veto(&["open"]));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGINT", now: true });
    run.give(Input::GatesChecked(GateVerdict::Complete));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn a_gate_can_know_better_than_an_agent_that_forgot_to_say_so() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Complete));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}
