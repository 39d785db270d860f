use super::*;

#[test]
fn commits_are_own_only_while_job_that_may_commit_runs() {
    let by_others = |run: &Loop, job_runs| {
        let found = Input::CommitsFound { head: "a".into(), commits: vec![], job_runs };
        let actions = run.machine.clone().step(run.now, found);
        matches!(&actions[..], [Action::Emit(_, Event::Repository { by_others: true, .. })])
    };
    let mut run = Loop::start(Rules { scm: vec![ScmTaskKind::Commit], ..rules() });
    assert!(by_others(&run, false), "it is being started");
    assert!(!by_others(run.give(Input::AgentStarted), true));
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(by_others(&run, true), "staging");
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: true }));
    assert!(!by_others(&run, true), "the commit");
    assert!(by_others(&run, false), "waiting for a lock");
}

#[test]
fn commit_message_is_requested_only_for_dirty_tree() {
    let scm = vec![ScmTaskKind::Commit, ScmTaskKind::Other];
    let message = AgentReport { has_message: true, ..answered() };
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    assert!(run.asked(&Action::CheckScmStatus));
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    run.asked_for_message(message, CommitGuardResult::Same);
    assert!(run.asked(&Action::RunScmTask(0)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.starts_agent());
    run.agent(done()).give(Input::ScmStatus(ScmStatus::Clean));
    assert!(run.asked(&Action::SkipScmTask(0, "nothing to commit")));
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn changes_made_during_commit_message_are_not_committed() {
    let message = || AgentReport { has_message: true, ..answered() };
    let unseen =
        || UncheckedChange { reason: "a was changed".into(), feedback: feedback("look at a") };
    let vetoed = Event::Vetoed { reason: "a was changed".into() };
    let rules = |gates| Rules {
        scm: vec![ScmTaskKind::Commit, ScmTaskKind::Other],
        guardrails: vec![None],
        gates,
        ..rules()
    };
    let dirty = |run: &mut Loop, report: AgentReport| {
        run.agent(report).give(Input::GuardrailEnded { failed: None });
        run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    };
    for gates in [false, true] {
        let mut run = Loop::start(rules(gates));
        dirty(&mut run, done());
        run.asked_for_message(message(), CommitGuardResult::ChangedBeside(unseen()));
        assert_eq!(run.actions, [Action::RunScmTask(0)]);
        run.give(Input::ScmTaskEnded { ok: true, feedback: None })
            .give(Input::ScmTaskEnded { ok: true, feedback: None });
        assert!(run.emitted(&vetoed), "{:?}", run.actions);
        let is_noted =
            |action: &Action| matches!(action, Action::Emit(_, Event::CompletionChecked { .. }));
        assert!(
            !run.actions.iter().any(is_noted),
            "unchecked work must not be recorded as checked"
        );
        if gates {
            assert!(run.asked(&Action::CheckGates { claimed: false, checks_passed: false }));
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(
            (run.machine.iteration(), run.machine.feedback()),
            (2, vec![feedback("look at a")])
        );

        // An agent that always writes would never end, so it is not asked again.
        dirty(&mut run, done());
        assert!(!run.asked(&Action::StartAgent(Purpose::CommitMessage)), "{:?}", run.actions);
        assert!(run.asked(&Action::RunScmTask(0)), "{:?}", run.actions);

        let mut run = Loop::start(rules(gates));
        dirty(&mut run, done());
        run.asked_for_message(answered(), CommitGuardResult::Moved(unseen()));
        let is_task = |action: &Action| matches!(action, Action::RunScmTask(_));
        assert!(!run.actions.iter().any(is_task) && run.emitted(&vetoed), "{:?}", run.actions);
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(run.machine.feedback(), [feedback("look at a")]);
        run.agent(done()).give(Input::GuardrailEnded { failed: None });
        run.give(Input::ScmStatus(ScmStatus::Clean))
            .give(Input::ScmTaskEnded { ok: true, feedback: None });
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)), "nothing to commit is no failure");
    }
    let mut run = Loop::start(rules(false));
    dirty(&mut run, done());
    run.asked_for_message(failed(Class::Failed), CommitGuardResult::Same);
    assert!(run.asked(&Action::RunScmTask(0)));
    let mut run = Loop::start(rules(false));
    dirty(&mut run, done());
    run.agent(message()).give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::CommitGuardChecked(CommitGuardResult::Moved(unseen())));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn scm_failure_changes_only_final_outcome() {
    let scm = vec![ScmTaskKind::Other, ScmTaskKind::Other];
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert!(run.starts_agent(), "the loop continues");
    run.agent(done());
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn failed_commit_is_fed_back_and_its_message_reused() {
    let refused =
        || Input::ScmTaskEnded { ok: false, feedback: Some(feedback("the hook says no")) };
    let look = |has_message| Input::ScmStatus(ScmStatus::Dirty { has_message });
    let message = AgentReport { has_message: true, ..answered() };
    let mut run = Loop::start(Rules { scm: vec![ScmTaskKind::Commit], ..rules() });
    run.agent(answered())
        .give(look(false))
        .asked_for_message(message.clone(), CommitGuardResult::Same);
    run.give(refused());
    assert_eq!(run.machine.feedback(), [feedback("the hook says no")]);
    run.agent(answered()).give(look(true));
    assert_eq!(run.actions, [Action::RunScmTask(0)]);
    run.give(refused());
    assert_eq!(run.machine.feedback(), [feedback("the hook says no")]);
    run.agent(done()).give(look(false)).asked_for_message(message, CommitGuardResult::Same);
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn staging_failure_changes_final_outcome() {
    let mut run = Loop::start(Rules { scm: vec![ScmTaskKind::Commit], ..rules() });
    run.agent(done()).give(Input::ScmStatus(ScmStatus::Failed(None)));
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn merge_conflict_is_fed_back_without_commit_message() {
    let look = || Input::ScmStatus(ScmStatus::Failed(Some(feedback("conflict in a"))));
    let scm = || Rules { scm: vec![ScmTaskKind::Commit, ScmTaskKind::Other], ..rules() };
    let told = [feedback("conflict in a")];
    let mut run = Loop::start(scm());
    run.agent(answered()).give(look());
    assert!(run.starts_agent() && !run.asked(&Action::StartAgent(Purpose::CommitMessage)));
    assert_eq!(run.machine.feedback(), told);
    run.agent(answered()).give(Input::ScmStatus(ScmStatus::Clean));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.starts_agent() && run.machine.feedback().is_empty());

    let mut run = Loop::start(Rules { gates: true, ..scm() });
    run.agent(answered()).give(look()).give(veto(&["open: US-2"]));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2"), feedback("conflict in a")]);

    for gates in [false, true] {
        let mut run = Loop::start(Rules { gates, ..scm() });
        run.agent(done()).give(look());
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Neutral));
        }
        assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
        assert!(run.machine.feedback().is_empty());
    }
}

#[test]
fn scm_tasks_have_their_own_timeout() {
    let scm = vec![ScmTaskKind::Commit, ScmTaskKind::Other];
    let mut run = Loop::start(Rules { scm, scm_timeout_ms: Some(60_000), ..rules() });
    let ended = [Action::EndScmTask { timed_out: true }];
    let begun = run.now.mono_ms;
    run.agent(answered()).until_deadline();
    assert_eq!((&run.actions[..], run.now.mono_ms), (&ended[..], begun + 60_000), "staging");
    run.give(Input::ScmStatus(ScmStatus::Failed(Some(feedback("it hangs")))));
    assert_eq!(run.machine.feedback(), [feedback("it hangs")]);
    run.agent(answered()).give(Input::ScmStatus(ScmStatus::Clean)).until_deadline();
    assert_eq!(run.actions, ended, "a task");
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert!(run.starts_agent(), "the loop continues");
    run.agent(done()).give(Input::ScmStatus(ScmStatus::Clean)).until_deadline();
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}
