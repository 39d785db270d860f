//! What is asked of the SCM, and what becomes of a run when that fails.

use super::*;

#[test]
fn scm_asks_for_a_message_only_when_there_is_something_to_commit() {
    let scm = vec![ScmTask::Commit, ScmTask::Other];
    let message = Report { has_message: true, ..answered() };
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    assert!(run.asked(&Action::LookAtScm));
    run.give(Input::ScmLooked(ScmLook::Dirty));
    assert!(run.asked(&Action::StartAgent(Purpose::CommitMessage)));
    run.agent(message);
    assert!(run.asked(&Action::RunScmTask(0)));
    run.give(Input::ScmTaskEnded { ok: true });
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true });
    assert!(run.starts_agent());
    run.agent(done()).give(Input::ScmLooked(ScmLook::Clean));
    assert!(run.asked(&Action::SkipScmTask(0, "nothing to commit")));
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn a_failed_scm_task_spoils_only_the_end() {
    let scm = vec![ScmTask::Other, ScmTask::Other];
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    run.give(Input::ScmTaskEnded { ok: false });
    assert!(run.starts_agent(), "the loop goes on");
    run.agent(done());
    run.give(Input::ScmTaskEnded { ok: false });
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn changes_that_cannot_be_staged_spoil_the_end_too() {
    let mut run = Loop::start(Rules { scm: vec![ScmTask::Commit], ..rules() });
    run.agent(done()).give(Input::ScmLooked(ScmLook::Failed));
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn conflicts_are_told_to_the_next_agent_and_nobody_is_asked_for_a_message() {
    let look = || Input::ScmLooked(ScmLook::Conflicts(feedback("conflict in a")));
    let scm = || Rules { scm: vec![ScmTask::Commit, ScmTask::Other], ..rules() };
    let told = [feedback("conflict in a")];
    let mut run = Loop::start(scm());
    run.agent(answered()).give(look());
    assert!(run.starts_agent() && !run.asked(&Action::StartAgent(Purpose::CommitMessage)));
    assert_eq!(run.machine.feedback(), told);
    // Once they are resolved, there is nothing to tell.
    run.agent(answered()).give(Input::ScmLooked(ScmLook::Clean));
    run.give(Input::ScmTaskEnded { ok: true });
    assert!(run.starts_agent() && run.machine.feedback().is_empty());

    // The gates have something to say, too.
    let mut run = Loop::start(Rules { gates: true, ..scm() });
    run.agent(answered()).give(look()).give(veto(&["open: US-2"]));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2"), feedback("conflict in a")]);

    // Whoever is done is told nothing.
    for gates in [false, true] {
        let mut run = Loop::start(Rules { gates, ..scm() });
        run.agent(done()).give(look());
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Stands));
        }
        assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
        assert!(run.machine.feedback().is_empty());
    }
}
