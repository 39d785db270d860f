use super::*;
use crate::sample_events::{self, run_started};
use ralph_events::event::{Usage, WaitReason};

/// A tracker with the state of its run.
struct Follower {
    tracker: WorkerTracker,
    run: RunState,
}

impl Follower {
    fn apply(&mut self, at: Stamp, event: &Event<'_>) -> WorkerLines {
        self.run.apply_event(at, event);
        self.tracker.apply(at, event, &self.run)
    }
}

fn follower() -> Follower {
    let state = WorkerState {
        worker_name: "agent".into(),
        max_iterations: 100,
        done_pattern: Some("All done".into()),
        inactivity_timeout: 60,
        ..WorkerState::default()
    };
    Follower { tracker: WorkerTracker::new(state, TimeZone::UTC), run: RunState::live() }
}

fn at(iteration: u32) -> Stamp {
    Stamp { time_ms: 1_705_314_600_123, iteration, attempt: 1 }
}

fn agent_ended(exit: Exit, ended_by: Option<EndCause>, class: Class) -> Event<'static> {
    sample_events::agent_ended(Some(exit), ended_by, class, Usage::default())
}

fn iteration_ended(class: Class, duration_ms: u64) -> Event<'static> {
    ended(class, false, duration_ms)
}

fn ended(class: Class, cut_off: bool, duration_ms: u64) -> Event<'static> {
    Event::IterationEnded {
        class,
        guardrails_passed: Some(true),
        cut_off,
        complete: false,
        duration_ms,
        usage: Usage::default(),
    }
}

fn run_ended(outcome: Outcome, exit_code: u8, iterations: u32) -> Event<'static> {
    Event::RunEnded {
        branch: None,
        last_failure: None,
        used_up: None,
        outcome,
        exit_code,
        message: "the message".into(),
        iterations,
        cut_off: false,
        duration_ms: 0,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
    }
}

/// All messages about these events, and all log lines without their time.
fn tell(follower: &mut Follower, events: &[(u32, Event<'static>)]) -> (Vec<String>, Vec<String>) {
    let mut all = (Vec::new(), Vec::new());
    for (iteration, event) in events {
        let told = follower.apply(at(*iteration), event);
        all.0.extend(told.messages);
        all.1.extend(
            told.log_lines.iter().map(|line| {
                line.strip_prefix("2024-01-15T10:30:00 ").expect("the time").to_owned()
            }),
        );
    }
    all
}

fn retrying(failures: u32, delay_ms: impl Into<Option<u64>>) -> Event<'static> {
    let message = "".into();
    let delay_ms = delay_ms.into();
    Event::Retrying { class: Class::Failed, message, delay_ms, failures, max_failures: 5 }
}

#[test]
fn iteration_start_and_end_are_reported() {
    let mut follower = follower();
    let (said, logged) = tell(
        &mut follower,
        &[
            (4, Event::IterationStarted { max_iterations: 100 }),
            (4, agent_ended(Exit::Code(0), None, Class::Answered)),
            (4, iteration_ended(Class::Answered, 342_000)),
            (5, Event::IterationStarted { max_iterations: 100 }),
        ],
    );
    assert_eq!(
        said,
        [
            "[ralph] agent: starting iteration 4/100",
            "[ralph] agent: iteration 4 completed (exit: 0, duration: 5m 42s)",
            "[ralph] agent: starting iteration 5/100",
        ]
    );
    assert_eq!(
        logged,
        [
            "[START] iteration 4/100",
            "[END] iteration 4 exit=0 duration=5m42s",
            "[START] iteration 5/100",
        ]
    );
    assert_eq!(follower.tracker.state.current_iteration, 5);
    let started = follower.tracker.state.last_iteration_started.as_deref();
    assert_eq!(started, Some("2024-01-15T10:30:00.123000"));
}

#[test]
fn worker_stops_after_five_consecutive_failures() {
    let mut follower = follower();
    let failed = || agent_ended(Exit::Code(1), None, Class::Failed);
    let (said, _) = tell(
        &mut follower,
        &[
            (5, failed()),
            (5, retrying(3, 4_000)),
            (5, iteration_ended(Class::Failed, 1)),
            (5, Event::Waiting { reason: WaitReason::Backoff, until_ms: 0 }),
        ],
    );
    let expected = "[ralph] agent: iteration 5 failed (exit: 1), retrying in 4s (attempt 3/5)";
    assert_eq!(said, [expected]);
    let start = Event::IterationStarted { max_iterations: 6 };
    let (said, _) = tell(&mut follower, &[(6, start), (6, failed()), (6, retrying(4, None))]);
    let expected = "[ralph] agent: iteration 6 failed (exit: 1), not retrying (attempt 4/5)";
    assert_eq!(said[1], expected);
    let (said, logged) = tell(
        &mut follower,
        &[
            (7, Event::IterationStarted { max_iterations: 100 }),
            (7, failed()),
            (7, iteration_ended(Class::Failed, 1)),
            (7, run_ended(Outcome::AgentFailed, 1, 7)),
        ],
    );
    assert_eq!(said[1], "[ralph] agent: 5 consecutive failures, stopping loop");
    assert_eq!(logged[2], "[FAIL] 5 consecutive failures, stopping loop");
    let state = &follower.tracker.state;
    assert_eq!((state.consecutive_failures, state.total_failures), (5, 3));
    assert_eq!((state.status, state.exit_code), (WorkerStatus::Failed, Some(1)));
}

#[test]
fn success_resets_failures_and_inactivity_is_no_failure() {
    let mut follower = follower();
    tell(&mut follower, &[(1, retrying(1, 1_000)), (1, iteration_ended(Class::Failed, 1))]);
    assert_eq!(
        follower.tracker.state.consecutive_failures, 1,
        "the end of a failed one is no success"
    );
    let (said, _) = tell(
        &mut follower,
        &[
            (2, Event::IterationStarted { max_iterations: 9 }),
            (2, agent_ended(Exit::Signal(15), Some(EndCause::Inactivity), Class::TimedOut)),
            (2, iteration_ended(Class::TimedOut, 60_000)),
        ],
    );
    assert_eq!(said[1], "[ralph] agent: inactivity timeout (60s), restarting");
    assert_eq!(said.len(), 2);
    assert_eq!(
        (follower.tracker.state.consecutive_failures, follower.tracker.state.total_failures),
        (0, 1)
    );
}

fn continued(unchecked: Option<u32>) -> Event<'static> {
    Event::RunContinued {
        after: None,
        iterations: 1,
        cut_off: None,
        unchecked,
        usage: Usage::default(),
        duration_ms: 1,
    }
}

#[test]
fn iteration_checked_after_resume_ends_normally() {
    // Its loop was killed or stopped.
    for stopped in [false, true] {
        let mut follower = follower();
        let answered = agent_ended(Exit::Code(0), None, Class::Answered);
        tell(
            &mut follower,
            &[
                (1, run_started()),
                (1, Event::IterationStarted { max_iterations: 4 }),
                (1, answered),
            ],
        );
        if stopped {
            tell(&mut follower, &[(1, ended(Class::Answered, true, 65_000))]);
        }
        let (_, logged) = tell(&mut follower, &[(0, run_started()), (0, continued(Some(1)))]);
        assert_eq!(logged, ["[CHECK] checking the work of iteration 1"]);
        let state = &follower.tracker.state;
        assert_eq!((state.iteration_open, state.cut_off_iterations), (true, 0), "{stopped}");
        let (said, _) = tell(&mut follower, &[(1, iteration_ended(Class::Answered, 4_000))]);
        assert_eq!(said, ["[ralph] agent: iteration 1 completed (exit: 0, duration: 4s)"]);
        assert_eq!(follower.tracker.state.finished_iterations, 1);
    }
}

#[test]
fn cut_off_iteration_is_neither_success_nor_failure() {
    let start = || Event::IterationStarted { max_iterations: 4 };
    let mut follower = follower();
    tell(
        &mut follower,
        &[
            (1, run_started()),
            (1, start()),
            (1, agent_ended(Exit::Code(1), None, Class::Failed)),
            (1, retrying(1, 1_000)),
            (1, iteration_ended(Class::Failed, 4_000)),
        ],
    );
    let (said, logged) = tell(
        &mut follower,
        &[
            (2, start()),
            (2, agent_ended(Exit::Signal(15), Some(EndCause::Interrupt), Class::Interrupted)),
            (2, ended(Class::Interrupted, true, 65_000)),
        ],
    );
    assert_eq!(said[1], "[ralph] agent: iteration 2 was interrupted after 1m 5s");
    assert_eq!(logged, ["[START] iteration 2/4", "[CUT] iteration 2 was interrupted after 1m 5s"]);
    // A killed loop cannot report it: the resumed one does.
    tell(&mut follower, &[(0, run_started()), (0, continued(None)), (3, start())]);
    let (said, logged) = tell(&mut follower, &[(0, run_started()), (0, continued(None))]);
    assert_eq!(said, ["[ralph] agent: iteration 3 was interrupted"]);
    assert_eq!(logged, ["[CUT] iteration 3 was interrupted"]);
    let state = &follower.tracker.state;
    assert_eq!((state.finished_iterations, state.cut_off_iterations), (1, 2));
    assert_eq!((state.consecutive_failures, state.total_failures), (1, 1));
    assert_eq!((state.average_ms(), state.remaining_ms()), (Some(4_000), Some(4_000)));
    tell(&mut follower, &[(4, start())]);
    assert_eq!(
        follower.tracker.state.remaining_ms(),
        Some(4_000),
        "the one under way is still to come"
    );
    tell(&mut follower, &[(4, iteration_ended(Class::Answered, 1))]);
    assert_eq!(follower.tracker.state.remaining_ms(), Some(0));
    let (said, _) = tell(&mut follower, &[(4, run_ended(Outcome::LimitReached, 0, 4))]);
    assert_eq!(said, ["[ralph] agent: loop complete after 4 iterations, 2 interrupted"]);
}

#[test]
fn run_outcome_decides_worker_status() {
    let killed = || Event::StopRequested { signal: KILL_REASON.into(), now: true };
    let hung_up = || Event::StopRequested { signal: "SIGHUP".into(), now: true };
    for (before, outcome, status, words) in [
        (None, Outcome::LimitReached, WorkerStatus::Stopped, "loop complete after 3 iterations"),
        (None, Outcome::Complete, WorkerStatus::Stopped, "done pattern matched, stopping loop"),
        (Some(killed()), Outcome::Interrupted, WorkerStatus::Stopped, "killed"),
        (Some(hung_up()), Outcome::Interrupted, WorkerStatus::Paused, "the message"),
        (None, Outcome::PromptMissing, WorkerStatus::Failed, "the message"),
        (None, Outcome::Budget, WorkerStatus::Stopped, "the message"),
    ] {
        let mut follower = follower();
        tell(&mut follower, &before.map(|event| (3, event)).into_iter().collect::<Vec<_>>());
        let (said, _) = tell(&mut follower, &[(3, run_ended(outcome, 9, 3))]);
        assert_eq!(said, [format!("[ralph] agent: {words}")], "{outcome:?}");
        assert_eq!(follower.tracker.state.status, status, "{outcome:?}");
    }
}

#[test]
fn pause_shows_immediately_and_resume_sets_new_limit() {
    let mut follower = follower();
    tell(&mut follower, &[(1, Event::PauseRequested)]);
    assert_eq!(follower.tracker.state.status, WorkerStatus::Paused);
    tell(&mut follower, &[(1, Event::Resumed { max_iterations: 70 })]);
    assert_eq!(
        (follower.tracker.state.status, follower.tracker.state.max_iterations),
        (WorkerStatus::Running, 70)
    );
}

#[test]
fn worker_state_of_other_version_is_readable() {
    let state: WorkerState =
        serde_json::from_str(r#"{"worker_name":"a","status":"paused","later":1}"#).unwrap();
    assert_eq!((state.worker_name.as_str(), state.status), ("a", WorkerStatus::Paused));
    let json = serde_json::to_value(follower().tracker.state).unwrap();
    for key in ["prompt_file", "done_pattern", "last_iteration_started", "pid", "run_id"] {
        assert!(json.get(key).is_some(), "{key}");
    }
}

#[test]
fn worker_name_is_valid_for_tmux_git_and_files() {
    for name in ["agent", "a", "worker-1", "A_b", "1"] {
        assert!(is_valid_name(name), "{name}");
    }
    let long = "a".repeat(65);
    for name in ["", "-a", ".a", "a.b", "a:b", "a b", "../x", "ä", "a/b", "_a", "a\n", &long] {
        assert!(!is_valid_name(name), "{name:?}");
    }
}

#[test]
fn worker_elapsed_time_excludes_pauses() {
    let mut follower = follower();
    let mut at = |seconds: i64, event: &Event<'static>| {
        follower.apply(Stamp { time_ms: seconds * 1_000, iteration: 1, attempt: 1 }, event);
        let now = jiff::Timestamp::from_second(1_000).unwrap();
        follower.tracker.state.elapsed_ms(TimeZone::UTC.to_datetime(now)).unwrap() / 1_000
    };
    assert_eq!(at(0, &run_started()), 1_000);
    assert_eq!(at(5, &Event::PauseRequested), 1_000, "its agent still works");
    assert_eq!(at(10, &Event::Paused), 10);
    assert_eq!(at(110, &Event::Resumed { max_iterations: 5 }), 900);
    let mut end = run_ended(Outcome::LimitReached, 0, 1);
    if let Event::RunEnded { duration_ms, .. } = &mut end {
        *duration_ms = 20_000;
    }
    assert_eq!(at(120, &end), 20);
    assert_eq!(at(200, &run_started()), 820, "nor does the time after an end count");
}

#[test]
fn rate_limit_is_the_last_event_of_a_worker() {
    let mut follower = follower();
    let until_ms = at(1).time_ms + 3_600_000;
    let waiting = Event::Waiting { reason: WaitReason::RateLimit, until_ms };
    let (said, logged) = tell(&mut follower, &[(1, waiting)]);
    assert_eq!(said, [""; 0], "the terminal says it already");
    assert_eq!(logged, ["[WAIT] rate limit reached, waiting until 11:30"]);
    let last = follower.tracker.state.last_event.unwrap();
    assert_eq!(last, "rate limit reached, waiting until 11:30");
}

#[test]
fn word_of_the_state_file_is_that_of_the_journal() {
    let agent = || Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
    let asked = || Event::QuestionAsked { id: "q1".into(), text: "Why?".into(), story: None };
    let dialog = || Event::DialogOpened { dialog: "trust".into() };
    let waiting = || Event::Waiting { reason: WaitReason::RateLimit, until_ms: i64::MAX };
    let paused = || vec![Event::PauseRequested, Event::Paused];
    let mut cases = vec![
        vec![],
        vec![agent()],
        vec![agent(), asked()],
        vec![asked(), Event::Parked],
        vec![Event::Parked],
        vec![agent(), dialog()],
        vec![agent(), dialog(), Event::PauseRequested],
        vec![waiting()],
        vec![waiting(), asked()],
        vec![waiting(), Event::PauseRequested],
        vec![agent(), Event::PauseRequested],
        vec![agent(), Event::PauseRequested, asked()],
        paused(),
        [vec![asked()], paused()].concat(),
        [paused(), vec![Event::Resumed { max_iterations: 5 }]].concat(),
    ];
    use Outcome::*;
    for outcome in [Complete, CompleteScmFailed, LimitReached, Budget, Stalled, Interrupted] {
        cases.push(vec![agent(), asked(), run_ended(outcome, 0, 1)]);
    }
    for outcome in [AgentFailed, CredentialsRefused, PromptMissing, InternalError] {
        cases.push([paused(), vec![run_ended(outcome, 0, 1)]].concat());
    }
    let mut seen = Vec::new();
    for events in cases {
        let mut follower = follower();
        let start = [run_started(), Event::IterationStarted { max_iterations: 4 }];
        let events: Vec<_> = start.into_iter().chain(events).map(|event| (1, event)).collect();
        tell(&mut follower, &events);
        let file = serde_json::to_vec(&follower.tracker.state).unwrap();
        let state: WorkerState = serde_json::from_slice(&file).unwrap();
        let run = &follower.run;
        for is_alive in [true, false] {
            let word = StateWord::of(run, is_alive);
            assert_eq!(state.state_word(is_alive), word, "{is_alive} {events:?}");
            seen.push(word.as_str());
        }
        let is_paused = matches!(run.activity, Activity::Paused { .. });
        let is_pausing = run.end.is_none() && run.requests.pause && !is_paused;
        assert_eq!(state.is_pausing(true), is_pausing, "{events:?}");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 8, "every word: {seen:?}");
    // Files of version 0.1 have no word.
    for (file, word) in [
        (r#"{"status":"running"}"#, StateWord::Working),
        (r#"{"status":"paused"}"#, StateWord::Paused),
        (r#"{"status":"stopped","outcome":"complete"}"#, StateWord::Complete),
        (r#"{"status":"stopped","outcome":"stalled"}"#, StateWord::Failed),
        (r#"{"status":"stopped","outcome":"limit"}"#, StateWord::Ended),
        (r#"{"status":"failed","outcome":"failed"}"#, StateWord::Failed),
    ] {
        let state: WorkerState = serde_json::from_str(file).unwrap();
        assert_eq!(state.state_word(true), word, "{file}");
    }
}

#[test]
fn lists_have_the_same_words_for_every_end() {
    use Outcome::*;
    for (outcome, words) in [
        (Complete, "complete"),
        (CompleteScmFailed, "failed (SCM task failed)"),
        (LimitReached, "ended (iteration limit)"),
        (Budget, "ended (budget used up)"),
        (Interrupted, "ended (stopped by you)"),
        (Stalled, "failed (no progress)"),
        // The file of a worker has one outcome for several failures.
        (AgentFailed, "failed"),
        (CredentialsRefused, "failed"),
    ] {
        let exit_code = if outcome == CompleteScmFailed { exit_code::SCM_FAILED } else { 1 };
        let mut follower = follower();
        follower.apply(at(1), &run_ended(outcome, exit_code, 1));
        assert_eq!(follower.tracker.state.state_text(false), words);
        let (id, run) = ("r".to_owned(), follower.run.clone());
        let row = crate::run_table::RunRow { id, run, running: false };
        let table = crate::run_table::table(&[row], &TimeZone::UTC, 0, None);
        assert!(table.contains(words), "{words}: {table}");
        let text = follower.tracker.state.end_text();
        let message = if outcome == Interrupted { "stopped by you" } else { "the message" };
        assert!(text.ends_with(&format!("({message})")), "{text}");
    }
}
