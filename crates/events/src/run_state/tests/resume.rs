//! What a later process reads: the resume point, counts and the end.

use super::*;

#[test]
fn missing_iteration_start_follows_from_stamp() {
    let state = state(vec![
        (0, 0, run_started()),
        (5, 3, agent_started()),
        (9, 3, agent_ended(Class::Answered, priced(0.5, 7))),
    ]);
    assert_eq!((state.resume.iterations, state.totals.iteration), (2, 3));
    let open = OpenIteration { iteration: 3, attempts: 1, worked_ms: 1_000 };
    assert_eq!(state.resume.open, Some(open));
    let record = state.iterations.last().unwrap();
    assert_eq!((record.number, record.usage), (3, priced(0.5, 7)));
}

#[test]
fn attempt_without_end_is_settled_once() {
    let mut state = state(vec![
        (0, 0, run_started()),
        (1, 1, iteration_started()),
        (2, 1, agent_started()),
        (4, 1, Event::Usage(priced(1.0, 10))),
        (5, 1, iteration_ended(Class::Interrupted, true)),
    ]);
    apply(&mut state, (6, 1, run_ended(Outcome::Interrupted, "interrupted")));
    state.close();
    assert_eq!(state.usage(), priced(1.0, 10));
    assert_eq!(state.iterations.last().map(|last| last.usage), Some(priced(1.0, 10)));
    assert_eq!(state.resume.open.map(|open| open.worked_ms), Some(3_000));
}

#[test]
fn checks_turn_ended_agent_into_unchecked_work() {
    let mut state = state(vec![
        (1, 1, iteration_started()),
        (2, 1, agent_started()),
        (3, 1, agent_ended(Class::Limited, Usage::default())),
    ]);
    assert!(matches!(state.resume.pending, Pending::Ended(_)));
    let event = Event::GuardrailStarted { index: 0, command: "make".into() };
    apply(&mut state, (4, 1, event));
    assert!(matches!(&state.resume.pending, Pending::Unchecked(it) if it.class == Class::Limited));
    assert!(!state.resume.pending.is_an_answer());
    apply(&mut state, (5, 1, run_ended(Outcome::Interrupted, "interrupted")));
    assert!(matches!(state.resume.pending, Pending::Unchecked(_)), "the run was cut off");
}

#[test]
fn end_of_0_1_journal_yields_last_failure_and_used_up_budget() {
    let end = |outcome, message| {
        let state = state(vec![(1, 1, agent_started()), (2, 1, run_ended(outcome, message))]);
        state.end.unwrap()
    };
    let failed = "the agent failed 3 times in a row, the last time: exit code 1";
    assert_eq!(end(Outcome::AgentFailed, failed).last_failure.as_deref(), Some("exit code 1"));
    let budget = end(Outcome::Budget, "the budget is used up: $5.00 of $5.00");
    assert_eq!(budget.used_up.as_deref(), Some("$5.00 of $5.00"));
    let mut event = run_ended(Outcome::Budget, "the budget is used up: $5");
    if let Event::RunEnded { used_up, .. } = &mut event {
        *used_up = Some("$5.00 of $5.00".into());
    }
    let recorded = state(vec![(1, 1, event)]).end.and_then(|end| end.used_up);
    assert_eq!(recorded.as_deref(), Some("$5.00 of $5.00"), "the record counts");
    assert_eq!(end(Outcome::Budget, "a wait would outlast the time").used_up, None);
    // Other ends keep their words.
    assert_eq!(end(Outcome::InternalError, failed).last_failure, None);
}

#[test]
fn resume_after_giving_up_forgives_failures_even_if_it_is_killed() {
    for (outcome, failures) in [(Outcome::AgentFailed, 0), (Outcome::Interrupted, 2)] {
        let retrying = Event::Retrying {
            class: Class::Failed,
            message: "no".into(),
            delay_ms: None,
            failures: 2,
            max_failures: 3,
        };
        let mut state = state(vec![(1, 1, iteration_started()), (2, 1, retrying)]);
        apply(&mut state, (3, 1, run_ended(outcome, "no")));
        assert_eq!(state.resume.failures, 2, "shown until then");
        apply(&mut state, (4, 0, run_started()));
        assert_eq!(state.closed().resume.failures, failures, "{outcome:?}");
    }
}

#[test]
fn recorded_last_failure_needs_no_message() {
    let mut event = run_ended(Outcome::AgentFailed, "gave up");
    if let Event::RunEnded { last_failure, .. } = &mut event {
        *last_failure = Some("exit code 7".into());
    }
    let mut state = state(vec![(1, 1, iteration_started()), (2, 1, agent_started())]);
    apply(&mut state, (3, 1, agent_ended(Class::Failed, Usage::default())));
    apply(&mut state, (4, 1, event));
    assert_eq!(state.iterations.last().map(|last| last.failures.len()), Some(1));
    assert_eq!((state.totals.failures.total, state.totals.failures.consecutive), (1, 1));
    assert_eq!(state.outcome(), Some(Outcome::AgentFailed));
    assert_eq!(state.end.and_then(|end| end.last_failure).as_deref(), Some("exit code 7"));
}

#[test]
fn failure_that_was_retried_is_counted_once() {
    let retrying = Event::Retrying {
        class: Class::Failed,
        message: "exit code 1".into(),
        delay_ms: None,
        failures: 1,
        max_failures: 3,
    };
    for outcome in [Outcome::AgentFailed, Outcome::Interrupted] {
        let state = state(vec![
            (1, 1, iteration_started()),
            (2, 1, agent_started()),
            (3, 1, agent_ended(Class::Failed, Usage::default())),
            (4, 1, retrying.clone()),
            (5, 1, run_ended(outcome, "ended")),
        ]);
        assert_eq!((state.totals.failures.total, state.totals.failures.consecutive), (1, 1));
    }
}

#[test]
fn cut_off_iteration_is_counted_until_its_checks_continue() {
    let continued = |unchecked: Option<u32>| Event::RunContinued {
        after: None,
        iterations: 0,
        cut_off: None,
        unchecked,
        usage: Usage::default(),
        duration_ms: 0,
    };
    let mut state = state(vec![
        (1, 1, iteration_started()),
        (2, 1, guardrail_ended(false, true)),
        (2, 1, iteration_ended(Class::Interrupted, true)),
        (3, 1, run_ended(Outcome::Interrupted, "interrupted")),
        (9, 0, run_started()),
    ]);
    assert_eq!((state.totals.cut_off, state.totals.iteration_open), (1, false));
    apply(&mut state, (9, 0, continued(Some(1))));
    assert_eq!((state.totals.cut_off, state.totals.iteration_open), (0, true));
    let record = state.iterations.last().unwrap();
    assert_eq!((record.guardrails.len(), record.cut_off), (0, false), "its checks run again");
    apply(&mut state, (10, 1, iteration_ended(Class::Answered, false)));
    assert_eq!((state.totals.iterations_ended, state.totals.ended_ms), (1, 4_000));
    assert_eq!(state.iterations.len(), 1);
}

#[test]
fn restart_forgets_scm_tasks_of_earlier_start() {
    let argv = ["git", "commit", "-m", "Fix it"].map(str::to_owned).to_vec();
    let task = || "commit".into();
    let mut state = state(vec![
        (1, 1, iteration_started()),
        (2, 1, Event::ScmEnded { task: task(), ok: true, detail: "".into(), duration_ms: 1 }),
        (3, 1, Event::ScmStarted { task: task(), argv }),
    ]);
    assert_eq!(state.resume.pending_commit.as_deref(), Some("Fix it"));
    let repository = Event::Repository { head: "a".into(), commits: Vec::new(), by_others: false };
    apply(&mut state, (4, 1, repository));
    assert_eq!(state.resume.pending_commit, None, "the repository shows whether it was made");
    let done = |state: &RunState| state.iterations.last().map(|last| last.scm_done.len());
    assert_eq!(done(&state), Some(1));
    apply(&mut state, (9, 0, run_started()));
    apply(&mut state, (9, 1, iteration_started()));
    assert_eq!(done(&state), Some(0));
}

#[test]
fn live_state_keeps_only_current_iteration() {
    let mut state = RunState::live();
    for iteration in 1..=50 {
        apply(&mut state, (i64::from(iteration), iteration, iteration_started()));
        let until_ms = 0;
        let wait = Event::Waiting { reason: WaitReason::Backoff, until_ms };
        apply(&mut state, (i64::from(iteration), iteration, wait));
        let ended = iteration_ended(Class::Answered, false);
        apply(&mut state, (i64::from(iteration), iteration, ended));
    }
    assert_eq!((state.iterations.len(), state.waits.len()), (1, 1));
    assert_eq!((state.resume.iterations, state.totals.iterations_ended), (50, 50));
}

#[test]
fn rate_limit_end_is_known_until_next_agent() {
    let failure =
        Failure { kind: FailureKind::RateLimit, message: "limit".to_owned(), resets_at: Some(60) };
    let mut event = agent_ended(Class::RateLimited, Usage::default());
    if let Event::AgentEnded { failure: of_agent, .. } = &mut event {
        *of_agent = Some(failure);
    }
    let mut state = state(vec![(1, 1, agent_started()), (2, 1, event)]);
    assert_eq!(state.notices.limit_ends_ms, Some(60_000));
    apply(&mut state, (3, 1, agent_started()));
    assert_eq!(state.notices.limit_ends_ms, None);
}

#[test]
fn feedback_of_stopped_iteration_is_not_the_last_feedback() {
    let feedback = |message: &str| Event::FeedbackSet {
        parts: vec![Feedback { action: FailAction::Append, message: message.to_owned() }],
    };
    let state = state(vec![
        (1, 1, iteration_started()),
        (2, 1, feedback("first")),
        (3, 1, iteration_ended(Class::Answered, false)),
        (4, 2, iteration_started()),
        (5, 2, feedback("second")),
        (6, 2, iteration_ended(Class::Interrupted, true)),
    ]);
    let message = |parts: &[Feedback]| parts.first().map(|part| part.message.clone());
    assert_eq!(message(&state.resume.feedback).as_deref(), Some("second"));
    assert_eq!(message(&state.resume.last_feedback).as_deref(), Some("first"));
}
