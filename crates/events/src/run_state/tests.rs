//! What single events do to the state. `faces.rs` of the simulation checks whole journals.

mod resume;
mod resume_point;

use super::*;
use crate::event::{
    Class, Commit, Exit, FailAction, Failure, FailureKind, Feedback, Outcome, Stamp, Stream, Usage,
    WaitReason,
};

/// The state after these events, given with their seconds and iterations.
fn state(events: Vec<(i64, u32, Event<'static>)>) -> RunState {
    let mut state = RunState::default();
    events.into_iter().for_each(|event| apply(&mut state, event));
    state
}

fn apply(state: &mut RunState, (seconds, iteration, event): (i64, u32, Event<'static>)) {
    let at = Stamp { time_ms: seconds * 1_000, iteration, attempt: u32::from(iteration > 0) };
    state.apply(&Entry { at, event });
}

fn run_started() -> Event<'static> {
    Event::RunStarted {
        plain_text: false,
        setup: None,
        streams_text: false,
        name: None,
        run: "r".into(),
        version: "0".into(),
        command: "run".into(),
        directory: "/p".into(),
        pid: 1,
        agent: "claude".into(),
        prompt: "p".into(),
        completion: "c".into(),
        max_iterations: 5,
        branch: None,
    }
}

fn iteration_started() -> Event<'static> {
    Event::IterationStarted { max_iterations: 5 }
}

fn agent_started() -> Event<'static> {
    Event::AgentStarted { purpose: Purpose::Work, pid: 2, argv: Vec::new() }
}

fn agent_ended(class: Class, usage: Usage) -> Event<'static> {
    Event::AgentEnded {
        purpose: Purpose::Work,
        exit: Some(Exit::Code(0)),
        ended_by: None,
        class,
        failure: None,
        duration_ms: 1_000,
        usage,
        tools: 2,
        tool_errors: 1,
        denied: 0,
        repeats_prompt: false,
        filter_errors: 0,
        complete: Some(false),
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
        duration_ms: 4_000,
        usage: Usage::default(),
    }
}

fn run_ended(outcome: Outcome, message: &'static str) -> Event<'static> {
    Event::RunEnded {
        outcome,
        exit_code: 4,
        message: message.into(),
        iterations: 1,
        cut_off: true,
        duration_ms: 9_000,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: true,
        branch: None,
        last_failure: None,
        used_up: None,
    }
}

fn priced(cost_usd: f64, input_tokens: u64) -> Usage {
    Usage { cost_usd: Some(cost_usd), input_tokens, ..Usage::default() }
}

fn unpriced(input_tokens: u64) -> Usage {
    Usage { input_tokens, ..Usage::default() }
}

fn stderr(text: &'static str, joined: bool) -> Event<'static> {
    Event::Output { stream: Stream::Stderr, text: text.into(), joined }
}

#[test]
fn cost_includes_running_attempt_and_estimates_tokens_without_price() {
    let mut state = state(vec![
        (0, 0, run_started()),
        (1, 1, iteration_started()),
        (2, 1, agent_started()),
        (3, 1, Event::Usage(priced(1.0, 1_000_000))),
    ]);
    assert_eq!(state.cost(), Cost { reported: Some(1.0), estimated: None });
    apply(&mut state, (4, 1, agent_ended(Class::Answered, priced(2.0, 1_000_000))));
    apply(&mut state, (5, 1, agent_started()));
    apply(&mut state, (6, 1, Event::Usage(unpriced(500_000))));
    // Tokens without a price cost as much as those with one.
    assert_eq!(state.cost(), Cost { reported: Some(2.0), estimated: Some(3.0) });
    assert_eq!(state.usage().total_tokens(), 1_500_000);
    state.close();
    assert_eq!(state.cost(), Cost { reported: Some(2.0), estimated: Some(3.0) });
    let record = state.iterations.last().unwrap();
    assert_eq!(state.iteration_cost(record), state.cost());
    apply(&mut state, (7, 2, iteration_started()));
    apply(&mut state, (8, 2, agent_started()));
    apply(&mut state, (9, 2, agent_ended(Class::Answered, priced(1.0, 5))));
    let record = state.iterations.last().unwrap();
    assert_eq!(state.iteration_cost(record), Cost { reported: Some(1.0), estimated: None });
}

#[test]
fn usage_without_agent_is_ignored() {
    let state = state(vec![(0, 0, run_started()), (1, 1, Event::Usage(priced(1.0, 5)))]);
    assert_eq!(state.cost(), Cost::default());
}

#[test]
fn duration_leaves_out_pauses_and_time_between_processes() {
    let mut state = state(vec![
        (0, 0, run_started()),
        (10, 1, iteration_started()),
        (20, 1, Event::Paused),
        (50, 1, Event::Resumed { max_iterations: 7 }),
        (55, 1, agent_started()),
        // Killed here, resumed later.
        (1_000, 0, run_started()),
        (1_005, 2, iteration_started()),
    ]);
    assert_eq!(state.duration_ms(None), 30_000);
    assert_eq!(state.duration_ms(Some(1_007_000)), 32_000);
    assert_eq!(state.iterations.first().map(|first| first.duration_ms), Some(15_000));
    assert_eq!(state.clock.started_ms, Some(0));
    apply(&mut state, (1_010, 2, run_ended(Outcome::Interrupted, "interrupted")));
    assert_eq!(state.duration_ms(None), 9_000, "the run's own clock counts");
    apply(&mut state, (2_000, 2, Event::Notified { ok: true }));
    assert_eq!(state.clock.last_ms, 1_010_000);
    assert!(state.end.is_some_and(|end| !end.notify_pending));
}

#[test]
fn run_known_alive_later_than_journal_counts_that_time() {
    let mut state = state(vec![(0, 0, run_started()), (10, 1, agent_started())]);
    state.alive_at(25_000);
    assert_eq!((state.clock.last_ms, state.duration_ms(None)), (25_000, 25_000));
    apply(&mut state, (30, 1, run_ended(Outcome::InternalError, "no")));
    state.alive_at(90_000);
    assert_eq!((state.clock.last_ms, state.clock.active_ms), (30_000, 30_000));
}

#[test]
fn wait_ends_with_next_activity() {
    let wait =
        |seconds: i64| Event::Waiting { reason: WaitReason::RateLimit, until_ms: seconds * 1_000 };
    let mut state = state(vec![(1, 1, iteration_started()), (2, 1, wait(60))]);
    assert!(state.activity.is_waiting());
    assert_eq!(state.resume.limits.waiting, Some((2_000, 60_000)));
    let event = Event::GuardrailStarted { index: 0, command: "make".into() };
    apply(&mut state, (12, 1, event));
    assert!(!state.activity.is_waiting());
    assert_eq!(state.waits.last().and_then(|wait| wait.ended_ms), Some(12_000));
    assert_eq!(state.iterations.last().map(|last| last.waited_ms), Some(10_000));
    apply(&mut state, (13, 1, wait(70)));
    state.close();
    assert_eq!(state.waits.last().and_then(|wait| wait.ended_ms), None, "killed while waiting");
}

#[test]
fn iteration_results_count_last_start_of_each_iteration() {
    let ended = |class, guardrails_passed, cut_off| {
        let mut event = iteration_ended(class, cut_off);
        if let Event::IterationEnded { guardrails_passed: passed, .. } = &mut event {
            *passed = guardrails_passed;
        }
        event
    };
    let prompt = || Event::Prompt { bytes: 5, preview: "Work.".into(), feedback: false };
    let mut state = state(vec![
        (1, 1, iteration_started()),
        (1, 1, prompt()),
        (2, 1, ended(Class::Answered, Some(true), false)),
        (3, 2, iteration_started()),
        (3, 2, prompt()),
        (4, 2, ended(Class::Interrupted, None, true)),
    ]);
    let counts = |state: &RunState| {
        let IterationResults { successful, failed, interrupted, .. } = state.totals.results;
        assert_eq!(state.totals.results.total(), successful + failed + interrupted);
        (successful, failed, interrupted)
    };
    assert_eq!(counts(&state), (1, 0, 1));
    apply(&mut state, (5, 2, iteration_started()));
    apply(&mut state, (5, 2, prompt()));
    apply(&mut state, (6, 2, ended(Class::Answered, Some(false), false)));
    assert_eq!(counts(&state), (1, 1, 0));
}

#[test]
fn omitted_output_is_summed_over_agents() {
    let omitted = |bytes| Event::OutputOmitted { events: 1, bytes };
    let mut state = state(vec![
        (1, 1, agent_started()),
        (2, 1, omitted(10)),
        (3, 1, omitted(30)),
        (4, 1, agent_started()),
        (5, 1, omitted(5)),
    ]);
    state.close();
    assert_eq!(state.totals.omitted_bytes, 35);
}

fn guardrail_ended(passed: bool, cut_off: bool) -> Event<'static> {
    Event::GuardrailEnded {
        index: 0,
        command: "make".into(),
        exit: None,
        timed_out: false,
        cut_off,
        passed,
        fail_action: FailAction::Append,
        log: "".into(),
        duration_ms: 1,
    }
}

#[test]
fn guardrail_stopped_with_run_has_not_failed() {
    let state = state(vec![
        (1, 1, iteration_started()),
        (2, 1, guardrail_ended(true, false)),
        (3, 1, guardrail_ended(false, false)),
        (4, 1, guardrail_ended(false, true)),
    ]);
    let guardrails = &state.iterations.last().unwrap().guardrails;
    let failed: Vec<bool> = guardrails.iter().map(GuardrailResult::has_failed).collect();
    assert_eq!(failed, [false, true, false]);
}

#[test]
fn failed_scm_task_is_explained_by_its_error() {
    for (detail, reason) in [
        ("hint: a\nfatal: no remote\nhint: b", "fatal: no remote"),
        ("rejected\nhint: pull first\n", "rejected"),
        ("", "no reason given"),
    ] {
        let event = Event::ScmEnded {
            task: "push".into(),
            ok: false,
            detail: detail.into(),
            duration_ms: 1,
        };
        let state = state(vec![(1, 1, iteration_started()), (2, 1, event)]);
        assert_eq!(state.scm[0].reason, reason);
    }
}

#[test]
fn warnings_before_first_iteration_are_early() {
    let warning = |message: &'static str| Event::Warning { message: message.into() };
    let state = state(vec![
        (1, 0, warning("no sandbox")),
        (2, 1, iteration_started()),
        (3, 1, warning("odd output")),
    ]);
    let notices = &state.notices;
    assert_eq!((notices.warnings.total, notices.early_warnings), (2, 1));
}

#[test]
fn dialog_makes_agent_wait_for_person() {
    let mut state = state(vec![
        (1, 1, agent_started()),
        (2, 1, Event::DialogOpened { dialog: "trust".into() }),
    ]);
    assert!(state.activity.is_waiting());
    apply(&mut state, (3, 1, Event::DialogClosed));
    assert!(!state.activity.is_waiting());
}

#[test]
fn denied_tool_is_listed_with_its_call() {
    let ended = |id: &'static str| Event::ToolEnded {
        id: id.into(),
        name: "Bash".into(),
        failed: true,
        denied: true,
        lines: 0,
        chars: 0,
        preview: "".into(),
        subagent: false,
    };
    let tool = Event::ToolStarted {
        id: "1".into(),
        name: "Bash".into(),
        summary: "git push".into(),
        edit: None,
        subagent: false,
    };
    let state =
        state(vec![(1, 1, agent_started()), (2, 1, tool), (3, 1, ended("1")), (4, 1, ended("2"))]);
    let calls: Vec<_> = state.notices.denied.first.iter().map(|it| it.item.as_str()).collect();
    assert_eq!((calls, state.notices.denied.total), (vec!["Bash: git push", "Bash"], 2));
}

#[test]
fn last_words_skip_stack_trace_and_explain_failure() {
    let retrying = Event::Retrying {
        class: Class::Failed,
        message: "exit code 1".into(),
        delay_ms: None,
        failures: 1,
        max_failures: 3,
    };
    let mut state = state(vec![
        (1, 1, agent_started()),
        (2, 1, stderr("Error: no ", false)),
        (2, 1, stderr("network", true)),
        (2, 1, stderr("    at main.js:1", false)),
        (2, 1, stderr(":2", true)),
        (2, 1, stderr("}", false)),
        (3, 1, retrying),
    ]);
    assert_eq!(state.notices.last_words.line, "Error: nonetwork");
    let failures = state.iterations.last().map(|last| last.failures.clone());
    assert_eq!(failures, Some(vec!["exit code 1: Error: nonetwork".to_owned()]));
    apply(&mut state, (4, 1, agent_started()));
    assert_eq!(state.notices.last_words, LastWords::default());
}

fn commit(id: &str, replaces: Option<&str>) -> Commit {
    Commit {
        id: id.to_owned(),
        subject: "s".to_owned(),
        replaces: replaces.map(str::to_owned),
        since: None,
    }
}

#[test]
fn last_words_are_last_message_or_else_last_line() {
    let last_words = |lines: &[&'static str]| {
        let events = lines.iter().map(|line| (1, 1, stderr(line, false))).collect();
        state(events).notices.last_words.line
    };
    assert_eq!(
        last_words(&["Warning: old", "Error: no network", "    at main"]),
        "Error: no network"
    );
    assert_eq!(last_words(&["    at start", "    at main"]), "    at main");
}

#[test]
fn plan_has_open_items_only() {
    let item = |text: &str, status| TodoItem { text: text.to_owned(), status };
    let items = vec![
        item("read", TodoStatus::Completed),
        item("write", TodoStatus::InProgress),
        item("test", TodoStatus::Pending),
    ];
    let plan = state(vec![(1, 1, Event::Todo { items: items.clone() })]).plan;
    assert_eq!(plan, items[1..]);
}

#[test]
fn commit_by_others_belongs_to_no_iteration() {
    let repository = |by_others| Event::Repository {
        head: "b".into(),
        commits: vec![commit("b", None)],
        by_others,
    };
    for (by_others, in_iteration) in [(true, 0), (false, 1)] {
        let state = state(vec![(1, 1, iteration_started()), (2, 1, repository(by_others))]);
        let commits = state.iterations.last().map(|last| last.commits.len());
        assert_eq!(
            (commits, state.repository.by_others.len()),
            (Some(in_iteration), 1 - in_iteration)
        );
    }
}

#[test]
fn amended_commit_replaces_original_in_earlier_iteration() {
    let repository = |head: &'static str, commits| Event::Repository {
        head: head.into(),
        commits,
        by_others: false,
    };
    let state = state(vec![
        (0, 0, repository("a", Vec::new())),
        (1, 1, iteration_started()),
        (2, 1, repository("b", vec![commit("b", None)])),
        (3, 1, iteration_ended(Class::Answered, false)),
        (4, 2, iteration_started()),
        (5, 2, repository("c", vec![commit("c", Some("b"))])),
    ]);
    let commits: Vec<usize> = state.iterations.iter().map(|it| it.commits.len()).collect();
    assert_eq!(commits, [0, 1]);
    assert_eq!(state.repository.by_others, []);
    assert_eq!(state.repository.first_head.as_deref(), Some("a"));
    assert_eq!(state.iterations.last().and_then(|it| it.head.as_deref()), Some("c"));
}

#[test]
fn task_problem_becomes_one_warning_while_it_lasts() {
    let tasks = |problems: &[&str]| Event::Tasks {
        done: 1,
        total: 2,
        story: None,
        title: None,
        problems: problems.iter().map(|&problem| problem.to_owned()).collect(),
        unreadable: false,
        marked: vec![],
    };
    let state = state(vec![
        (1, 1, tasks(&["a"])),
        (2, 1, tasks(&["a", "b"])),
        (3, 1, tasks(&[])),
        (4, 1, tasks(&["a"])),
    ]);
    let warnings = &state.notices.warnings;
    let times: Vec<u32> = warnings.first.iter().map(|warning| warning.times).collect();
    assert_eq!((warnings.total, times), (3, vec![2, 1]));
}

#[test]
fn state_is_json() {
    let state = state(vec![
        (0, 0, run_started()),
        (1, 1, iteration_started()),
        (2, 1, agent_started()),
        (3, 1, Event::Usage(priced(0.25, 9))),
    ]);
    let json = serde_json::to_value(&state).unwrap();
    assert_eq!(json["activity"]["doing"], "agent");
    assert_eq!(json["iterations"][0]["number"], 1);
    assert_eq!(json["info"]["run"], "r");
    assert_eq!(json["notices"]["last_words"], "");
}
