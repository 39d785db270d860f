//! The resume point of whole journals.

use super::super::*;
use crate::event::{
    Class, Exit, FailAction, Failure, FailureKind, Feedback, Outcome, Stamp, Usage, WaitReason,
};

fn fold(events: Vec<(i64, u32, u32, Event<'static>)>) -> ResumePoint {
    closed(events).resume
}

fn closed(events: Vec<(i64, u32, u32, Event<'static>)>) -> RunState {
    let mut state = RunState::default();
    for (time_ms, iteration, attempt, event) in events {
        state.apply(&Entry { at: Stamp { time_ms, iteration, attempt }, event });
    }
    state.closed()
}

fn run_started() -> Event<'static> {
    Event::RunStarted {
        branch: None,
        streams_text: false,
        name: None,
        plain_text: false,
        setup: None,
        run: "r".into(),
        version: "0".into(),
        command: "run".into(),
        directory: "/p".into(),
        pid: 1,
        agent: "claude".into(),
        prompt: "p".into(),
        completion: "c".into(),
        max_iterations: 5,
    }
}

fn agent_started() -> Event<'static> {
    Event::AgentStarted { purpose: Purpose::Work, pid: 2, argv: Vec::new() }
}

fn usage(tokens: u64) -> Usage {
    Usage { input_tokens: tokens, cost_usd: Some(0.5), ..Usage::default() }
}

fn agent_ended(class: Class, tokens: u64) -> Event<'static> {
    Event::AgentEnded {
        purpose: Purpose::Work,
        exit: None,
        ended_by: None,
        class,
        failure: None,
        duration_ms: 1,
        usage: usage(tokens),
        tools: 2,
        tool_errors: 1,
        denied: 0,
        repeats_prompt: false,
        filter_errors: 0,
        complete: None,
        found: None,
        commit_message: None,
    }
}

fn iteration_ended(class: Class, cut_off: bool) -> Event<'static> {
    Event::IterationEnded {
        class,
        guardrails_passed: None,
        complete: false,
        cut_off,
        duration_ms: 1,
        usage: Usage::default(),
    }
}

fn iteration_used(tokens: u64) -> Event<'static> {
    Event::IterationEnded {
        class: Class::Answered,
        guardrails_passed: None,
        complete: false,
        cut_off: false,
        duration_ms: 1,
        usage: usage(tokens),
    }
}

fn run_ended(cut_off: bool) -> Event<'static> {
    Event::RunEnded {
        branch: None,
        last_failure: None,
        used_up: None,
        outcome: Outcome::Interrupted,
        exit_code: 130,
        message: "interrupted".into(),
        iterations: 1,
        cut_off,
        duration_ms: 1,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
    }
}

fn retrying(failures: u32) -> Event<'static> {
    let message = "exit 1".into();
    Event::Retrying { class: Class::Failed, message, delay_ms: Some(1), failures, max_failures: 4 }
}

#[test]
fn progress_keeps_cut_off_iteration_open_and_its_usage() {
    let part = Feedback { action: FailAction::Append, message: "red".into() };
    let parts = vec![part.clone()];
    let state = closed(vec![
        (0, 0, 0, run_started()),
        (10, 1, 0, Event::IterationStarted { max_iterations: 5 }),
        (20, 1, 1, agent_started()),
        (30, 1, 1, agent_ended(Class::Answered, 100)),
        (35, 1, 1, Event::FeedbackSet { parts: parts.clone() }),
        (40, 1, 1, iteration_ended(Class::Answered, false)),
        (50, 2, 0, Event::IterationStarted { max_iterations: 5 }),
        (60, 2, 1, agent_started()),
        (70, 2, 1, Event::Usage(usage(7))),
    ]);
    assert_eq!(state.resume.iterations, 1);
    assert_eq!(state.resume.open, Some(OpenIteration { iteration: 2, attempts: 1, worked_ms: 10 }));
    assert_eq!(state.resume.feedback, parts);
    assert_eq!(state.totals.spending.reported().input_tokens, 107);
    assert_eq!((state.totals.tools, state.totals.tool_errors), (2, 1));
    assert_eq!((state.clock.active_ms, state.outcome()), (70, None));
}

#[test]
fn progress_counts_consecutive_failures() {
    let mut events = vec![
        (0, 0, 0, run_started()),
        (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
        (2, 1, 1, agent_started()),
        (3, 1, 1, agent_ended(Class::Failed, 0)),
        (4, 1, 1, retrying(1)),
        (5, 1, 2, agent_started()),
        (6, 1, 2, agent_ended(Class::Failed, 0)),
        (7, 1, 2, retrying(2)),
    ];
    assert_eq!(fold(events.clone()).failures, 2);
    let mut silent = events.clone();
    events.push((8, 1, 3, agent_started()));
    events.push((9, 1, 3, agent_ended(Class::Answered, 0)));
    assert_eq!(fold(events).failures, 0);
    // Where a failure uses its iteration up, and silence is none.
    silent.push((8, 1, 2, iteration_ended(Class::Failed, false)));
    assert_eq!(fold(silent.clone()).failures, 2);
    silent.push((9, 2, 1, agent_started()));
    silent.push((10, 2, 1, agent_ended(Class::TimedOut, 0)));
    assert_eq!(fold(silent.clone()).failures, 2, "not decided yet");
    silent.push((11, 2, 1, iteration_ended(Class::TimedOut, false)));
    assert_eq!(fold(silent).failures, 0);
}

#[test]
fn progress_counts_rate_limits_until_another_result() {
    let wait = |until_ms| Event::Waiting { reason: WaitReason::RateLimit, until_ms };
    let mut events = vec![
        (0, 1, 1, agent_started()),
        (10, 1, 1, agent_ended(Class::RateLimited, 0)),
        (10, 1, 1, wait(60)),
        (60, 1, 2, agent_started()),
        (70, 1, 2, agent_ended(Class::Overloaded, 0)),
        (70, 1, 2, wait(90)),
        (90, 1, 3, agent_started()),
    ];
    assert_eq!(fold(events.clone()).limits, RateLimits { count: 2, waited_ms: 70, waiting: None });
    events.push((95, 1, 3, agent_ended(Class::Failed, 0)));
    assert_eq!(fold(events).limits, RateLimits::default());
}

#[test]
fn progress_remembers_failed_scm_task_until_one_succeeds() {
    let ended = |ok| {
        (1, 1, 1, Event::ScmEnded { task: "commit".into(), ok, detail: "".into(), duration_ms: 1 })
    };
    assert!(fold(vec![ended(false)]).scm_failed);
    assert!(!fold(vec![ended(false), ended(true)]).scm_failed);
}

#[test]
fn run_has_started_with_its_first_iteration() {
    let start = Event::IterationStarted { max_iterations: 5 };
    let mut events = vec![(0, 0, 0, run_started())];
    assert!(!fold(events.clone()).has_started());
    events.push((1, 1, 0, start));
    assert!(fold(events.clone()).has_started());
    events.push((2, 1, 0, iteration_ended(Class::Answered, false)));
    assert!(fold(events).has_started());
}

#[test]
fn progress_reopens_iteration_that_was_cut_off() {
    for class in [Class::Interrupted, Class::Answered, Class::Failed, Class::Credentials] {
        let ends = |cut_off| {
            fold(vec![
                (0, 0, 0, run_started()),
                (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
                (2, 1, 1, agent_started()),
                (3, 1, 1, agent_ended(class, 0)),
                (4, 1, 1, iteration_ended(class, cut_off)),
            ])
        };
        let (cut, whole) = (ends(true), ends(false));
        assert_eq!(cut.iterations, 0, "{class:?}");
        assert_eq!(cut.open, Some(OpenIteration { iteration: 1, attempts: 1, worked_ms: 1 }));
        // One that failed is used up where the next iteration is the next attempt.
        assert_eq!((whole.iterations, whole.open), (1, None), "{class:?}");
    }
}

#[test]
fn progress_counts_usage_of_result_before_agent_ends() {
    let told = Event::Result { failure: None, usage: Some(usage(9)), turns: None };
    let state = closed(vec![(0, 1, 1, agent_started()), (1, 1, 1, told)]);
    assert_eq!(state.totals.spending.reported(), usage(9));
}

#[test]
fn progress_recovers_lost_entries_from_later_totals() {
    let whole = vec![
        (0, 0, 0, run_started()),
        (10, 1, 0, Event::IterationStarted { max_iterations: 5 }),
        (20, 1, 1, agent_started()),
        (30, 1, 1, agent_ended(Class::Answered, 100)),
        (40, 1, 1, iteration_used(100)),
        (50, 2, 0, Event::IterationStarted { max_iterations: 5 }),
        (60, 2, 1, agent_started()),
    ];
    let all = fold(whole.clone());
    for lost in 0..whole.len() - 1 {
        let mut damaged = whole.clone();
        damaged.remove(lost);
        let state = closed(damaged);
        assert_eq!(state.resume.iterations, all.iterations, "without {lost}");
        assert_eq!(state.resume.open.map(|open| open.iteration), Some(2), "without {lost}");
        // The end of an agent, or that of its iteration: each tells.
        assert_eq!(state.totals.spending.reported(), usage(100), "without {lost}");
    }
    let continued = Event::RunContinued {
        after: None,
        iterations: 7,
        cut_off: None,
        unchecked: None,
        usage: usage(500),
        duration_ms: 9_000,
    };
    let state = closed(vec![(0, 0, 0, run_started()), (1, 0, 0, continued)]);
    assert_eq!((state.resume.iterations, state.clock.active_ms), (7, 9_001));
    assert_eq!(state.totals.spending.reported(), usage(500));
}

#[test]
fn progress_records_pending_decision() {
    let complete = Event::IterationEnded {
        class: Class::Answered,
        guardrails_passed: Some(true),
        complete: true,
        cut_off: false,
        duration_ms: 1,
        usage: Usage::default(),
    };
    let checked = Event::CompletionChecked { complete: true, found: None, scm_failed: true };
    let started = Event::GuardrailStarted { index: 0, command: "true".into() };
    let begun = || {
        vec![
            (0, 0, 0, run_started()),
            (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
            (2, 1, 1, agent_started()),
        ]
    };
    let after = |more: Vec<Event<'static>>| {
        let mut events = begun();
        events.extend(more.into_iter().map(|event| (3, 1, 1, event)));
        // However often it is started again and killed at once.
        events.push((4, 0, 0, run_started()));
        fold(events)
    };
    let answered = || agent_ended(Class::Answered, 0);
    // By a version that did not note whether it completes the run.
    assert_eq!(after(vec![answered()]).pending, Pending::Nothing);
    assert_eq!(after(vec![answered(), started.clone()]).pending, Pending::Nothing);
    let failed = || agent_ended(Class::Failed, 0);
    assert!(matches!(after(vec![failed()]).pending, Pending::Ended(_)));
    let cut = iteration_ended(Class::Failed, true);
    assert!(matches!(after(vec![failed(), cut]).pending, Pending::Ended(_)));
    assert_eq!(after(vec![failed(), retrying(1)]).pending, Pending::Nothing);
    assert_eq!(after(vec![failed(), run_ended(true)]).pending, Pending::Nothing);
    let limited = || agent_ended(Class::Limited, 0);
    assert!(matches!(after(vec![limited()]).pending, Pending::Ended(_)));
    // That an agent was stopped by the budget of the run says nothing once there is more of it.
    assert_eq!(after(vec![limited(), run_ended(true)]).pending, Pending::Nothing);
    let progress = after(vec![limited(), started, run_ended(true)]);
    assert!(matches!(progress.pending, Pending::Unchecked(_)), "its work was being checked");
    assert!(!progress.pending.is_an_answer());
    let progress = after(vec![answered(), checked.clone()]);
    assert!(matches!(progress.pending, Pending::Checked { complete: true, .. }));
    assert!(progress.scm_failed);
    let stopped = after(vec![answered(), checked.clone(), run_ended(true)]);
    assert!(matches!(stopped.pending, Pending::Checked { complete: true, .. }));
    assert_eq!(after(vec![answered(), checked, complete]).pending, Pending::Complete);
}

#[test]
fn progress_keeps_why_agent_failed() {
    let limit = Failure {
        kind: FailureKind::RateLimit,
        message: "limit".to_owned(),
        resets_at: Some(3_600),
    };
    let mut event = agent_ended(Class::RateLimited, 0);
    if let Event::AgentEnded { exit, failure, repeats_prompt, .. } = &mut event {
        (*exit, *failure) = (Some(Exit::Code(7)), Some(limit.clone()));
        *repeats_prompt = true;
    }
    let Pending::Ended(report) = fold(vec![(0, 1, 1, agent_started()), (1, 1, 1, event)]).pending
    else {
        panic!("the end of the agent is pending");
    };
    let expected = AgentReport {
        failure: Some(limit),
        exit: Exit::Code(7).to_string(),
        repeats_prompt: true,
        ..AgentReport::of(Class::RateLimited)
    };
    assert_eq!(*report, expected);
}

#[test]
fn progress_keeps_answer_pending_until_checks_end() {
    let answered = || {
        let mut event = agent_ended(Class::Answered, 9);
        if let Event::AgentEnded { complete, found, .. } = &mut event {
            (*complete, *found) = (Some(true), Some("DONE".into()));
        }
        event
    };
    let asked = Event::AgentStarted { purpose: Purpose::CommitMessage, pid: 3, argv: Vec::new() };
    let mut message = agent_ended(Class::Answered, 1);
    if let Event::AgentEnded { purpose, commit_message, .. } = &mut message {
        (*purpose, *commit_message) = (Purpose::CommitMessage, Some("Do it".into()));
    }
    let part = Feedback { action: FailAction::Append, message: "red".into() };
    let events = vec![
        answered(),
        Event::GuardrailStarted { index: 0, command: "true".into() },
        Event::FeedbackSet { parts: Vec::new() },
        Event::ScmStarted { task: "commit".into(), argv: Vec::new() },
        asked,
        message,
        Event::ScmEnded { task: "commit".into(), ok: true, detail: "".into(), duration_ms: 1 },
        // The user stopped it here.
        Event::FeedbackSet { parts: vec![part.clone()] },
        iteration_ended(Class::Answered, true),
        run_ended(true),
        run_started(),
        Event::GuardrailStarted { index: 0, command: "true".into() },
    ];
    let after = |events: &[Event<'static>]| {
        let begun = vec![
            (0, 0, 0, run_started()),
            (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
            (2, 1, 1, agent_started()),
        ];
        let events = events.iter().cloned().map(|event| (3, 1, 1, event));
        fold(begun.into_iter().chain(events).collect())
    };
    for told in 1..=events.len() {
        let progress = after(&events[..told]);
        let Pending::Unchecked(report) = &progress.pending else {
            panic!("{:?} after {:?}", progress.pending, events[told - 1]);
        };
        assert_eq!((report.complete, report.found.as_deref()), (true, Some("DONE")));
        assert!(progress.pending.is_an_answer());
        assert_eq!(progress.open.map(|open| (open.iteration, open.attempts)), Some((1, 1)));
        // What was said of half of it is not what was said of the iteration before.
        assert_eq!(progress.last_feedback, [], "after {told}");
        // A message is paid for as well.
        let is_given = told >= 6;
        assert_eq!(progress.commit_message.is_some(), is_given, "after {told}");
    }
    for over in [
        iteration_ended(Class::Answered, false),
        run_ended(false),
        Event::IterationStarted { max_iterations: 5 },
        agent_started(),
    ] {
        let progress = after(&[&events[..], &[over]].concat());
        assert_eq!(progress.pending, Pending::Nothing);
    }
}

#[test]
fn progress_excludes_pauses_and_downtime_from_active_time() {
    let state = closed(vec![
        (1_000, 0, 0, run_started()),
        (2_000, 1, 0, Event::IterationStarted { max_iterations: 5 }),
        (3_000, 1, 1, iteration_ended(Class::Answered, false)),
        (3_000, 1, 1, Event::Paused),
        (9_000, 1, 1, Event::Resumed { max_iterations: 5 }),
        (10_000, 2, 0, Event::IterationStarted { max_iterations: 5 }),
        // Cut off, and resumed a day later.
        (90_000_000, 0, 0, run_started()),
        (90_001_000, 2, 0, Event::IterationStarted { max_iterations: 5 }),
    ]);
    assert_eq!(state.clock.active_ms, 4_000);
}

#[test]
fn progress_records_commit_started_but_not_finished() {
    let scm = |words: &[&str]| Event::ScmStarted {
        task: "t".into(),
        argv: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    let ended =
        || Event::ScmEnded { task: "t".into(), ok: true, detail: "".into(), duration_ms: 1 };
    let begun = || (1, 1, 1, scm(&["git", "commit", "-m", "mine"]));
    let repository =
        || Event::Repository { head: "h".into(), commits: Vec::new(), by_others: false };
    for (events, message) in [
        (vec![begun()], Some("mine")),
        (vec![begun(), (2, 1, 1, run_started())], Some("mine")),
        (vec![begun(), (2, 1, 1, ended())], None),
        (vec![begun(), (2, 1, 1, repository())], None),
        (vec![begun(), (2, 1, 1, scm(&["git", "push"]))], None),
    ] {
        assert_eq!(fold(events).pending_commit.as_deref(), message);
    }
}
