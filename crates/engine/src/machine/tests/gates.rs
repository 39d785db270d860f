use super::*;

fn check_gates(claimed: bool) -> Action {
    Action::CheckGates { claimed, checks_passed: true }
}

#[test]
fn gate_veto_continues_run_with_feedback() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done());
    assert!(run.asked(&check_gates(true)));
    run.give(veto(&["open: US-2"]));
    assert!(run.emitted(&Event::Vetoed { reason: "open".into() }));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2")]);
    run.agent(done()).give(Input::GatesChecked(GateVerdict::Neutral));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn gate_veto_is_not_reported_without_completion_claim() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered());
    assert!(run.asked(&check_gates(false)));
    run.give(veto(&[]));
    let vetoed = |action: &Action| matches!(action, Action::Emit(_, Event::Vetoed { .. }));
    assert!(!run.actions.iter().any(vetoed));
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Neutral));
    assert_eq!(run.outcome(), None);
}

#[test]
fn gates_run_after_failed_guardrail_without_overruling() {
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
        let set = Event::FeedbackSet { parts: told };
        assert!(run.emitted(&set), "all feedback in one event");
    }
}

#[test]
fn gate_briefing_is_renewed_for_each_attempt() {
    let brief = |told: &str| Input::Briefed { feedback: vec![feedback(told)] };
    let mut run = Loop::start(Rules { gates: true, guardrails: vec![None], ..rules() });
    assert!(run.asked(&Action::CollectBriefing) && !run.starts_agent());
    run.give(brief("one"));
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("one")]);
    run.agent(failed(Class::Failed)).until_deadline();
    assert!(run.asked(&Action::CollectBriefing));
    run.give(brief("two"));
    assert_eq!(run.machine.feedback(), [feedback("two")]);
    // Failures come first and survive a retry; the briefing is new each time.
    run.agent(answered()).give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
    run.give(Input::GatesChecked(GateVerdict::Neutral)).give(brief("three"));
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("three")]);
    run.agent(failed(Class::Failed)).until_deadline();
    run.give(Input::Briefed { feedback: Vec::new() });
    assert_eq!(run.machine.feedback(), [feedback("lint")]);
}

#[test]
fn gate_briefing_is_added_to_feedback_of_resumed_run() {
    let progress = ResumePoint { feedback: vec![feedback("lint")], ..ResumePoint::default() };
    let mut run = Loop::resume(Rules { gates: true, ..rules() }, progress);
    run.give(Input::Briefed { feedback: vec![feedback("gone")] });
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("gone")]);
}

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
fn finished_work_is_checked_without_starting_agent() {
    let mut run = opened(1);
    assert!(run.asked(&Action::RunGuardrail(0)) && run.machine.is_initial_check());
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.asked(&check_gates(false)), "and nothing is committed: {:?}", run.actions);
    run.give(Input::GatesChecked(GateVerdict::Complete));
    assert!(run.asked(&Action::Finish { outcome: Outcome::Complete, exit_code: 0 }));
    assert_eq!(run.machine.iteration(), 0);
}

#[test]
fn failed_opening_check_starts_iteration_with_feedback() {
    let mut run = opened(1);
    run.give(Input::GuardrailEnded { failed: Some(feedback("it fails")) });
    let told = vec![feedback("so look")];
    let reason = "a check failed".to_owned();
    run.give(Input::GatesChecked(GateVerdict::Veto { reason, feedback: told }));
    let vetoed = |action: &Action| matches!(action, Action::Emit(_, Event::Vetoed { .. }));
    assert!(run.actions.iter().any(vetoed), "{:?}", run.actions);
    assert_eq!(run.machine.iteration(), 1);
    assert_eq!(run.machine.feedback(), [feedback("it fails"), feedback("so look")]);
    assert!(!run.machine.is_initial_check());
}

#[test]
fn stop_during_opening_check_interrupts_run() {
    let mut run = opened(1);
    run.give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: Some(feedback("ended")) });
    assert!(run.asked(&Action::Finish { outcome: Outcome::Interrupted, exit_code: 130 }));
}

#[test]
fn pause_during_briefing_pauses_before_attempt() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.give(Input::Pause).give(Input::Briefed { feedback: Vec::new() });
    assert!(run.machine.is_paused() && !run.starts_agent());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.asked(&Action::CollectBriefing));
    run.give(Input::Briefed { feedback: Vec::new() });
    assert!(run.starts_agent());
    assert_eq!(run.position(), (1, 1));
}

#[test]
fn stop_during_gates_interrupts_run() {
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
fn gate_completes_run_without_agent_claim() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Complete));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}
