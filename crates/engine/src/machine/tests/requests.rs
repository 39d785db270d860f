//! Stops, pauses, signals.

use super::*;

#[test]
fn first_stop_waits_for_agent_and_second_ends_it() {
    let stop = |now| Input::Stop { signal: "SIGINT", now };
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.give(Input::AgentStarted).give(stop(false));
    assert!(!run.asked(&Action::EndAgent(EndCause::Interrupt)));
    let mut patient = Loop { machine: run.machine.clone(), now: run.now, actions: Vec::new() };
    patient.give(Input::AgentEnded(Box::new(done())));
    assert_eq!(patient.outcome(), Some((Outcome::Interrupted, 130)), "guardrails did not pass");
    run.give(stop(true));
    assert!(run.asked(&Action::EndAgent(EndCause::Interrupt)));
    assert_eq!(run.outcome(), None, "not before the agent is gone");
    run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn second_stop_ends_scm_inspection() {
    let mut run = Loop::start(Rules { scm: vec![ScmTaskKind::Commit], ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn stop_ends_wait_immediately_but_lets_guardrail_finish() {
    let stop = |now| Input::Stop { signal: "SIGTERM", now };
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Failed)).give(stop(false));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));

    let mut run = Loop::start(Rules { guardrails: vec![None, None], ..rules() });
    run.agent(done()).give(stop(false));
    assert_eq!(run.outcome(), None);
    run.give(stop(true));
    assert!(run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: None });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn stop_during_retry_wait_is_interruption_not_failure() {
    for report in [failed(Class::Failed), limited(None)] {
        let mut this = Loop::start(rules());
        this.agent(report).give(Input::Stop { signal: "SIGINT", now: false });
        assert_eq!(this.outcome(), Some((Outcome::Interrupted, 130)));
        let ended = this.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::IterationEnded { class, .. }) => Some(*class),
            _ => None,
        });
        assert_eq!(ended, Some(Class::Interrupted));
    }
}

#[test]
fn stopped_attempt_is_judged_if_no_checks_are_needed() {
    let checked = || Rules { guardrails: vec![None], ..rules() };
    let committing = || Rules { scm: vec![ScmTaskKind::Other], ..rules() };
    let gated = || Rules { gates: true, ..rules() };
    let passed = || Input::GuardrailEnded { failed: None };
    let fails = || Input::GuardrailEnded { failed: Some(feedback("no")) };
    let complete = (Outcome::Complete, 0, false);
    let ended = (Outcome::Interrupted, 130, false);
    let cut_off = (Outcome::Interrupted, 130, true);
    let agent_ends = |report| Input::AgentEnded(Box::new(report));
    let table = [
        ("said done", rules(), vec![], vec![agent_ends(done())], complete),
        ("not done", rules(), vec![], vec![agent_ends(answered())], ended),
        ("failed", rules(), vec![], vec![agent_ends(failed(Class::Failed))], cut_off),
        ("limited", rules(), vec![], vec![agent_ends(failed(Class::Limited))], cut_off),
        ("unchecked", checked(), vec![], vec![agent_ends(done())], cut_off),
        ("uncommitted", committing(), vec![], vec![agent_ends(done())], cut_off),
        ("checked", checked(), vec![agent_ends(done())], vec![passed()], complete),
        ("no claim", checked(), vec![agent_ends(answered())], vec![passed()], ended),
        ("signal vetoed", checked(), vec![agent_ends(done())], vec![fails()], cut_off),
        (
            "a guardrail left",
            Rules { guardrails: vec![None, None], ..rules() },
            vec![agent_ends(done())],
            vec![passed()],
            cut_off,
        ),
        (
            "a commit left",
            Rules { guardrails: vec![None], ..committing() },
            vec![agent_ends(done())],
            vec![passed()],
            cut_off,
        ),
        (
            "the last task",
            committing(),
            vec![agent_ends(done())],
            vec![Input::ScmTaskEnded { ok: true, feedback: None }],
            complete,
        ),
        (
            "a gate agrees",
            gated(),
            vec![],
            vec![agent_ends(done()), Input::GatesChecked(GateVerdict::Neutral)],
            complete,
        ),
        ("a gate objects", gated(), vec![], vec![agent_ends(done()), veto(&["open"])], ended),
    ];
    for (name, rules, before, after, expected) in table {
        let mut run = Loop::start(rules);
        if run.asked(&Action::CollectBriefing) {
            run.give(Input::Briefed { feedback: Vec::new() });
        }
        run.give(Input::AgentStarted);
        for input in before {
            run.give(input);
        }
        run.give(Input::Stop { signal: "SIGINT", now: false });
        assert_eq!(run.outcome(), None, "{name}: finishes first");
        for input in after {
            run.give(input);
        }
        let end = run.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::RunEnded { outcome, exit_code, cut_off, .. }) => {
                Some((*outcome, *exit_code, *cut_off))
            }
            _ => None,
        });
        assert_eq!(end, Some(expected), "{name}");
        let iteration = run.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::IterationEnded { cut_off, .. }) => Some(*cut_off),
            _ => None,
        });
        assert_eq!(iteration, Some(expected.2), "{name}: cut off");
    }
}

#[test]
fn pause_waits_for_running_iteration_only() {
    let go_on = Input::Resume { max_iterations: None };
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.give(Input::AgentStarted).give(Input::Pause);
    assert_eq!(run.actions, [run.emit(Event::PauseRequested)]);
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.asked(&Action::RunGuardrail(0)), "an iteration is not left half done");
    run.give(Input::GuardrailEnded { failed: Some(feedback("red")) });
    assert!(run.emitted(&Event::Paused) && !run.starts_agent());
    assert_eq!((run.machine.deadline(), run.machine.iteration()), (None, 1));
    run.give(Input::Pause);
    assert_eq!(run.actions, [], "once is enough");
    run.give(go_on.clone());
    assert!(run.starts_agent());
    assert_eq!((run.machine.iteration(), run.machine.feedback().len()), (2, 1));
    run.give(go_on);
    assert_eq!(run.actions, [], "already running");
}

#[test]
fn pause_ends_backoff_immediately() {
    let retry = Retry { scope: RetryScope::NextIteration { failures: 5 }, ..rules().retry };
    for (rules, iteration) in [(rules(), 1), (Rules { retry, ..rules() }, 2)] {
        let mut run = Loop::start(rules);
        run.agent(failed(Class::Failed)).give(Input::Pause);
        assert!(run.machine.is_paused());
        run.after(1_000_000).give(Input::Resume { max_iterations: None });
        assert!(run.starts_agent());
        assert_eq!(run.machine.iteration(), iteration);
    }
}

#[test]
fn pause_uses_no_budget_time_and_resume_can_raise_limit() {
    let budget = Budget { duration_ms: Some(10_000), ..Budget::default() };
    let mut run = Loop::start(Rules { max_iterations: 2, budget, ..rules() });
    run.give(Input::Pause).agent(answered()).after(1_000_000);
    run.give(Input::Resume { max_iterations: Some(3) });
    assert!(run.starts_agent());
    run.agent(answered()).agent(answered());
    assert_eq!(
        (run.outcome().map(|(outcome, _)| outcome), run.machine.iteration()),
        (Some(Outcome::LimitReached), 3)
    );
}

#[test]
fn duration_of_run_stopped_while_paused_excludes_pause() {
    let mut run = Loop::start(rules());
    run.after(2_000).agent(failed(Class::Failed)).give(Input::Pause);
    assert!(run.machine.is_paused());
    run.after(1_000_000).give(Input::Stop { signal: "SIGTERM", now: false });
    let ended = run.actions.iter().find_map(|action| match action {
        Action::Emit(_, Event::RunEnded { duration_ms, .. }) => Some(*duration_ms),
        _ => None,
    });
    assert_eq!(ended, Some(2_000));
    let iteration = run.actions.iter().find_map(|action| match action {
        Action::Emit(_, Event::IterationEnded { duration_ms, .. }) => Some(*duration_ms),
        _ => None,
    });
    assert_eq!(iteration, Some(2_000));
}

#[test]
fn pause_can_be_cancelled_or_stopped() {
    let mut run = Loop::start(rules());
    run.give(Input::Pause).give(Input::Resume { max_iterations: None }).agent(answered());
    assert!(run.starts_agent());
    run.give(Input::Pause).agent(answered());
    run.give(Input::Stop { signal: "SIGTERM", now: false });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));

    let mut run = Loop::start(Rules { max_iterations: 1, ..rules() });
    run.give(Input::Pause).agent(answered());
    assert!(run.machine.is_finished(), "no iteration left to pause");
}

#[test]
fn signals_stop_after_job_then_at_once_then_kill() {
    let mut run = Loop::start(rules());
    let stop = |run: &Loop, now| run.emit(Event::StopRequested { signal: "SIGINT".into(), now });
    run.give(Input::AgentStarted).give(Input::Signal(StopSignal::Interrupt));
    assert_eq!(run.actions, [stop(&run, false)]);
    run.give(Input::Signal(StopSignal::Interrupt));
    assert_eq!(run.actions, [stop(&run, true), Action::EndAgent(EndCause::Interrupt)]);
    run.give(Input::Signal(StopSignal::Interrupt));
    assert_eq!(run.actions, [Action::KillJob, stop(&run, true)]);
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::Signal(StopSignal::HangUp));
    assert!(run.asked(&Action::EndAgent(EndCause::Interrupt)), "a hang-up sends no second signal");
}

#[test]
fn term_pauses_if_configured_and_second_one_ends() {
    let mut run = Loop::start(Rules { term_pauses: true, ..rules() });
    run.give(Input::AgentStarted).give(Input::Signal(StopSignal::Terminate));
    assert_eq!(run.actions, [run.emit(Event::PauseRequested)]);
    run.agent(answered());
    assert!(run.machine.is_paused() && run.machine.was_signalled());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.starts_agent() && !run.machine.was_signalled());
    run.give(Input::AgentStarted).give(Input::Signal(StopSignal::Terminate));
    run.give(Input::Signal(StopSignal::Terminate));
    assert!(run.asked(&Action::EndAgent(EndCause::Interrupt)));
}

#[test]
fn refused_hosts_are_reported_once_and_capped_per_iteration() {
    let refused = |n: usize| RefusedHost {
        host: format!("host{n}"),
        port: 443,
        reason: "x",
        allow_entry: String::new(),
    };
    let count = |run: &Loop| {
        let refused =
            |action: &&Action| matches!(action, Action::Emit(_, Event::NetworkRefused { .. }));
        let warning = |action: &&Action| matches!(action, Action::Emit(_, Event::Warning { .. }));
        let actions = run.actions.iter();
        (actions.clone().filter(refused).count(), actions.filter(warning).count())
    };
    let mut run = Loop::start(Rules { max_refusals: 3, ..rules() });
    run.give(Input::AgentStarted).give(Input::Refusals(vec![refused(1), refused(1), refused(2)]));
    assert_eq!(count(&run), (2, 0));
    run.give(Input::Refusals((1..9).map(refused).collect()));
    assert_eq!(count(&run), (1, 1));
    run.give(Input::Refusals(vec![refused(9)]));
    assert_eq!(count(&run), (0, 0));
    run.agent(answered()).give(Input::Refusals(vec![refused(1)]));
    assert_eq!(count(&run), (1, 0), "a new iteration reports them again");
}

#[test]
fn end_that_is_not_recorded_makes_run_broken() {
    let mut run = Loop::start(rules());
    run.agent(done());
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    run.give(Input::EndNotRecorded { message: "disk full".into() });
    assert_eq!(run.outcome(), Some((Outcome::InternalError, exit_code::USAGE)));
    run.give(Input::EndNotRecorded { message: "disk full".into() });
    assert_eq!(run.actions, [], "said once");
}
