use jiff::tz::TimeZone;
use serde_json::Value;

use super::*;
use crate::core::event::{
    self, Entry, Event, FailAction, Failure, Feedback, Purpose, Stamp, TodoItem, TodoStatus,
};

fn at(time_ms: i64, iteration: u32, event: Event<'static>) -> Entry<'static> {
    Entry { at: Stamp { time_ms, iteration, attempt: 1 }, event }
}

fn run_started() -> Event<'static> {
    Event::RunStarted {
        run: "20261115-2027-ab12".into(),
        version: "0.1.0".into(),
        command: "run".into(),
        directory: "/project".into(),
        pid: 7,
        agent: "claude".into(),
        prompt: "Make *all* tests pass".into(),
        completion: "<response>DONE</response>".into(),
        max_iterations: 10,
    }
}

fn agent_started() -> Event<'static> {
    Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() }
}

fn agent_ended(class: Class, usage: Usage) -> Event<'static> {
    Event::AgentEnded {
        purpose: Purpose::Work,
        exit: Some(Exit::Code(0)),
        ended_by: None,
        class,
        failure: None,
        duration_ms: 5,
        usage,
        tools: 3,
        tool_errors: 1,
        denied: 1,
        repeats_prompt: false,
        filter_errors: 0,
        complete: None,
        found: None,
        commit_message: None,
    }
}

fn guardrail(passed: bool) -> Event<'static> {
    Event::GuardrailEnded {
        index: 0,
        command: "make test".into(),
        exit: Some(Exit::Code(i32::from(!passed))),
        timed_out: false,
        cut_off: false,
        passed,
        fail_action: FailAction::Append,
        log: ".ralph/guardrail_001_make_test.log".into(),
        duration_ms: 5,
    }
}

fn iteration_ended(class: Class, cut_off: bool) -> Event<'static> {
    Event::IterationEnded {
        class,
        guardrails_passed: None,
        complete: false,
        cut_off,
        duration_ms: 60_000,
        usage: Usage::default(),
    }
}

fn iteration_started() -> Event<'static> {
    Event::IterationStarted { max_iterations: 10 }
}

fn run_ended(outcome: Outcome, duration_ms: u64) -> Event<'static> {
    Event::RunEnded {
        outcome,
        exit_code: 0,
        message: "complete after 1 iteration".into(),
        iterations: 1,
        cut_off: false,
        duration_ms,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
    }
}

fn committed(id: &str, subject: &str, replaces: Option<&str>) -> event::Commit {
    let (id, subject) = (id.to_owned(), subject.to_owned());
    event::Commit { id, subject, replaces: replaces.map(str::to_owned), since: None }
}

fn repository(head: &str, commits: Vec<event::Commit>, by_others: bool) -> Event<'static> {
    Event::Repository { head: head.to_owned().into(), commits, by_others }
}

fn dollars(cost: f64) -> Usage {
    Usage { cost_usd: Some(cost), output_tokens: 1000, ..Usage::default() }
}

/// What is told of events at these seconds and in these iterations.
fn read(events: Vec<(i64, u32, Event<'static>)>, now_s: Option<i64>) -> Facts {
    let mut reading = Reading::default();
    for (seconds, iteration, event) in events {
        reading.fold(&at(seconds * 1000, iteration, event));
    }
    reading.facts(now_s.map(|now| now * 1000))
}

fn terminal(facts: &Facts) -> String {
    plain::draw(facts, &TimeZone::UTC, plain::Form::Terminal)
}

/// A night: a red guardrail, a limit, a denied tool, and no end.
fn night() -> Facts {
    let feedback = Feedback { action: FailAction::Append, message: "tests <b>fail</b>".into() };
    let item = |text: &str, status| TodoItem { text: text.to_owned(), status };
    let mut reading = Reading::default();
    for entry in [
        at(1_794_774_000_000, 0, run_started()),
        at(1_794_774_000_000, 0, repository("000base0", Vec::new(), false)),
        at(1_794_774_000_900, 1, iteration_started()),
        at(
            1_794_774_002_000,
            1,
            Event::ToolStarted {
                id: "t1".into(),
                name: "Bash".into(),
                summary: "rm -rf /".into(),
                subagent: false,
            },
        ),
        at(
            1_794_774_003_000,
            1,
            Event::ToolEnded {
                id: "t1".into(),
                name: "Bash".into(),
                failed: true,
                denied: true,
                lines: 1,
                chars: 1,
                preview: "no".into(),
                subagent: false,
            },
        ),
        at(
            1_794_774_049_000,
            1,
            repository("aaa1111", vec![committed("aaa1111", "begin", None)], false),
        ),
        at(1_794_774_050_000, 1, agent_ended(Class::Answered, dollars(0.25))),
        at(1_794_774_060_000, 1, guardrail(false)),
        at(1_794_774_060_000, 1, Event::FeedbackSet { parts: vec![feedback] }),
        at(1_794_774_061_000, 1, iteration_ended(Class::Answered, false)),
        at(1_794_774_061_000, 2, iteration_started()),
        at(
            1_794_774_062_000,
            2,
            Event::Waiting { reason: WaitReason::RateLimit, until_ms: 1_794_777_662_000 },
        ),
        at(1_794_777_662_000, 2, agent_started()),
        at(1_794_777_670_000, 2, agent_ended(Class::Answered, dollars(0.5))),
        at(1_794_777_680_000, 2, guardrail(true)),
        at(
            1_794_777_680_500,
            2,
            repository(
                "bbb2222",
                vec![committed("bbb2222", "Fix <the> parser | and more", None)],
                false,
            ),
        ),
        at(1_794_777_680_000, 2, Event::FeedbackSet { parts: Vec::new() }),
        at(1_794_777_681_000, 2, iteration_ended(Class::Answered, false)),
        at(1_794_777_681_000, 3, iteration_started()),
        at(
            1_794_777_690_000,
            3,
            Event::Todo {
                items: vec![
                    item("parse", TodoStatus::Completed),
                    item("print", TodoStatus::InProgress),
                ],
            },
        ),
    ] {
        reading.fold(&entry);
    }
    reading.facts(None)
}

#[test]
fn every_fact_is_where_it_happened() {
    let facts = night();
    assert_eq!(facts.iterations.len(), 3);
    assert_eq!((facts.usage.cost_usd, facts.outcome), (Some(0.75), None));
    assert_eq!(
        facts.denied,
        Listed { total: 1, first: vec![Told { text: "Bash: rm -rf /".to_owned(), times: 1 }] }
    );
    let commits = |nth: usize| facts.iterations[nth].commits.len();
    assert_eq!((commits(0), commits(1), commits(2)), (1, 1, 0));
    assert_eq!(facts.iterations[2].duration_ms, 9_000, "until the last thing that is known");
    assert_eq!(
        (facts.left.plan.as_slice(), facts.left.feedback.len()),
        (&["print".to_owned()][..], 0)
    );
    assert_eq!(facts.waits.len(), 1);
}

#[test]
fn what_was_warned_of_before_any_work_comes_last() {
    let warning = |words: &'static str| Event::Warning { message: words.into() };
    let facts = read(
        vec![(1, 0, warning("settings")), (1, 1, iteration_started()), (1, 1, warning("work"))],
        None,
    );
    let words: Vec<&str> = facts.warnings.first.iter().map(|told| told.text.as_str()).collect();
    assert_eq!(words, ["work", "settings"]);
}

#[test]
fn a_run_that_is_complete_has_nothing_left() {
    let items = vec![TodoItem { text: "tick me".into(), status: TodoStatus::Pending }];
    let facts =
        read(vec![(1, 1, Event::Todo { items }), (2, 1, run_ended(Outcome::Complete, 1))], None);
    assert_eq!(facts.left, Left::default());
}

#[test]
fn the_terminal_is_told() {
    assert_eq!(
        terminal(&night()),
        "\
Run 20261115-2027-ab12

Asked:     Make *all* tests pass
Outcome:   cut off, in iteration 3: killed, or the machine went down; last heard of 2026-11-15 21:21:30
Command:   ralph run with claude
Directory: /project
Started:   2026-11-15 20:20:00
Took:      1h1m, 3 of 10 iterations
Used:      $0.75, 2K tokens
Commits:   2: git log 000base0..bbb2222
Next:      `ralph resume 20261115-2027-ab12` goes on with it

Iterations
    1  guardrail failed         1m0s     $0.25     3 tools
       aaa1111 begin
    2  answered                 1m0s     $0.50     3 tools
       bbb2222 Fix <the> parser | and more
       waited 1h0m
    3  not ended                9.0s         -     0 tools

Guardrails, from the first iteration to the last
  -+. make test
  (+ passed, - failed, ~ interrupted, . not run)

Limits waited for (1h0m in all)
  iteration 2: from 2026-11-15 20:21:02 for 1h0m

Denied to the agent (1)
  Bash: rm -rf /

Left to do
  what iteration 3 did lies in the work tree, unchecked and not committed by ralph
  open in the agent's plan: print
"
    );
}

#[test]
fn what_an_agent_said_is_text_and_nothing_else() {
    let markdown = plain::draw(&night(), &TimeZone::UTC, plain::Form::Markdown);
    assert!(markdown.contains(r"- **Asked:** Make \*all\* tests pass"), "{markdown}");
    assert!(
        markdown.contains(r"| bbb2222 Fix \<the\> parser \| and more<br>waited 1h0m |"),
        "{markdown}"
    );
    let html = html::draw(&night(), &TimeZone::UTC);
    assert!(html.contains("Fix &lt;the&gt; parser | and more"), "{html}");
    assert_eq!(html.matches("<rect").count(), 6, "two bars for each iteration");
    assert!(!html.contains("http"), "nothing comes from elsewhere");
}

#[test]
fn commits_are_of_whoever_made_them() {
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 0, repository("base", Vec::new(), false)),
            (1, 1, iteration_started()),
            (
                2,
                1,
                repository(
                    "two",
                    vec![
                        committed("one", "first try", None),
                        committed("two", "made well", Some("one")),
                    ],
                    false,
                ),
            ),
            (3, 1, iteration_ended(Class::Answered, false)),
            (3, 1, repository("people", vec![committed("people", "by a person", None)], true)),
            (3, 2, iteration_started()),
            (4, 2, repository("elsewhere", Vec::new(), false)),
            (5, 2, repository("three", vec![committed("three", "lost", None)], false)),
            // A branch that is merged brings what was told before.
            (6, 2, repository("two", vec![committed("two", "made well", None)], false)),
        ],
        None,
    );
    let subjects = |commits: &[Commit]| -> Vec<String> {
        commits.iter().map(|commit| commit.subject.clone()).collect()
    };
    assert_eq!(subjects(&facts.iterations[0].commits), ["made well"], "what was amended is gone");
    assert_eq!(subjects(&facts.iterations[1].commits), ["lost"]);
    assert_eq!(subjects(&facts.others), ["by a person"]);
    let mut facts = facts;
    facts.note_gone(&HashSet::from(["three"]));
    let told = terminal(&facts);
    assert!(told.contains("Commits:   2: git log base..two\n"), "{told}");
    facts.note_shown(&HashSet::from(["two", "people", "merged"]));
    let told = terminal(&facts);
    let words =
        "Commits:   3: git log base..two (2 of them not by the run); 1 more by the run is not";
    assert!(told.contains(words), "{told}");
    assert!(told.contains("three lost (on no branch any more)"), "{told}");
    assert!(told.contains("not at work (1)\n  people by a person"), "{told}");
}

#[test]
fn what_was_not_committed_or_pushed_is_told_in_every_form() {
    let scm = |task: &'static str, ok, detail: &'static str| Event::ScmEnded {
        task: task.into(),
        ok,
        detail: detail.into(),
        duration_ms: 1,
    };
    let rejected = "To /remote\n ! [rejected] main -> main\nerror: failed to push some refs\n\
                    hint: Updates were rejected\nhint: See the note";
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, scm("commit -m x", false, "lint: 3 problems\nhook says no\n")),
            (3, 1, iteration_ended(Class::Answered, false)),
            (3, 2, iteration_started()),
            (4, 2, scm("commit -m x", true, "")),
            (4, 2, scm("push", false, rejected)),
            (5, 2, iteration_ended(Class::Answered, false)),
            (5, 3, iteration_started()),
            (6, 3, scm("push", false, "fatal: no way\n\nPlease make sure")),
            (7, 3, iteration_ended(Class::Answered, false)),
            (7, 3, run_ended(Outcome::CompleteScmFailed, 6_000)),
        ],
        None,
    );
    let told = terminal(&facts);
    for line in [
        "SCM:       commit -m x failed in 1 iteration, the last time in 1: hook says no; it was \
         done after iteration 1\n",
        "SCM:       push failed in 2 iterations, the last time in 3: fatal: no way, and was not \
         done since\n",
        "       SCM task failed: push: error: failed to push some refs\n",
        "\nLeft to do\n  SCM task not done: push: fatal: no way\n",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    let markdown = plain::draw(&facts, &TimeZone::UTC, plain::Form::Markdown);
    let json = serde_json::to_string(&facts).unwrap();
    for page in [markdown, html::draw(&facts, &TimeZone::UTC), json] {
        assert!(page.contains("hook says no") && page.contains("fatal: no way"), "{page}");
    }
}

#[test]
fn what_was_cut_off_says_how_far_it_had_come() {
    let begun = || {
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, agent_started()),
            (3, 1, agent_ended(Class::Answered, Usage::default())),
        ]
    };
    let commit = |detail: &'static str| Event::ScmEnded {
        task: "commit".into(),
        ok: true,
        detail: detail.into(),
        duration_ms: 1,
    };
    let lies_there = "what iteration 1 did lies in the work tree, unchecked";
    let committed =
        "iteration 1 passed its checks, and was cut off after these SCM tasks: commit\n";
    let goes_on = |outcome, unchecked| {
        let (after, cut_off, usage) = (outcome, None, Usage::default());
        Event::RunContinued { after, iterations: 0, cut_off, unchecked, usage, duration_ms: 1 }
    };
    let over = || run_ended(Outcome::LimitReached, 1);
    let again = || vec![(5, 0, run_started()), (5, 0, goes_on(None, Some(1)))];
    for (more, said) in [
        (vec![], Some(lies_there)),
        (vec![(4, 1, commit(""))], Some(committed)),
        // Killed once more while it was checked again.
        ([vec![(4, 1, commit(""))], again()].concat(), Some(committed)),
        // Not begun again, by a limit or because a worker counts it.
        (
            vec![(5, 0, run_started()), (5, 0, goes_on(None, None)), (6, 0, over())],
            Some(lies_there),
        ),
        (vec![(4, 1, iteration_ended(Class::Answered, false)), (6, 1, over())], None),
        (vec![(6, 1, run_ended(Outcome::Complete, 1))], None),
    ] {
        let told = terminal(&read([begun(), more].concat(), None));
        match said {
            Some(said) => assert_eq!(told.matches(said).count(), 1, "{said:?} in {told}"),
            None => assert!(!told.contains("Left to do"), "{told}"),
        }
        assert!(!(told.contains(committed) && told.contains(lies_there)), "{told}");
    }
    let mut lowered = read(begun(), None);
    lowered.iterations.extend(lowered.iterations.clone());
    lowered.max_iterations = 1;
    assert!(terminal(&lowered).contains("2 iterations, now at most 1\n"), "{lowered:?}");
}

#[test]
fn an_iteration_that_was_begun_again_is_one_line_with_all_of_its_time_and_cost() {
    let half = Usage { cost_usd: Some(0.5), ..Usage::default() };
    let facts = read(
        vec![
            (0, 0, run_started()),
            (10, 1, iteration_started()),
            (10, 1, agent_started()),
            (20, 1, agent_ended(Class::Answered, half)),
            (30, 1, guardrail(false)),
            // Killed here, and gone on with an hour later; killed again while the agent works.
            (4_000, 0, run_started()),
            (4_000, 1, iteration_started()),
            (4_000, 1, agent_started()),
            (4_010, 1, Event::Usage(half)),
            (8_000, 0, run_started()),
            (8_000, 1, iteration_started()),
            (8_000, 1, agent_started()),
            (8_020, 1, agent_ended(Class::Answered, half)),
            (8_030, 1, guardrail(true)),
            (8_060, 1, iteration_ended(Class::Answered, false)),
            (8_060, 1, run_ended(Outcome::Complete, 100_000)),
        ],
        None,
    );
    let only = &facts.iterations[0];
    assert_eq!((only.duration_ms, only.usage.cost_usd), (20_000 + 10_000 + 60_000, Some(1.5)));
    assert_eq!((only.begun, only.attempts, facts.duration_ms), (3, 3, 100_000));
    let told = terminal(&facts);
    assert!(
        told.contains("  1  answered                1m30s     $1.50     6 tools, begun 3 times")
    );
    assert!(told.contains("  + make test"), "what its checks said last: {told}");
}

#[test]
fn an_iteration_that_was_checked_later_is_what_its_last_checks_said() {
    for stopped in [false, true] {
        let mut events = vec![
            (0, 0, run_started()),
            (10, 1, iteration_started()),
            (10, 1, agent_started()),
            (20, 1, agent_ended(Class::Answered, dollars(0.5))),
            (30, 1, guardrail(false)),
        ];
        if stopped {
            events.push((30, 1, iteration_ended(Class::Answered, true)));
            events.push((30, 1, run_ended(Outcome::Interrupted, 30_000)));
        }
        let after = stopped.then_some(Outcome::Interrupted);
        let continued = Event::RunContinued {
            after,
            iterations: 0,
            cut_off: None,
            unchecked: Some(1),
            usage: dollars(0.5),
            duration_ms: 30_000,
        };
        events.extend([
            (4_000, 0, run_started()),
            (4_000, 0, continued),
            (4_010, 1, guardrail(true)),
            (4_010, 1, iteration_ended(Class::Answered, false)),
            (4_010, 1, run_ended(Outcome::Complete, 40_000)),
        ]);
        let facts = read(events, None);
        let only = &facts.iterations[0];
        assert_eq!((only.begun, only.attempts, only.usage.cost_usd), (1, 1, Some(0.5)));
        assert!(only.ended && !only.cut_off);
        let told = terminal(&facts);
        assert!(told.contains("  1  answered "), "{told}");
        assert!(told.contains("  + make test"), "{told}");
        assert!(told.contains("; what the agent of iteration 1 had done was checked"), "{told}");
        assert!(!told.contains("unchecked"), "{told}");
    }
}

#[test]
fn a_wait_is_as_long_as_it_was() {
    let wait =
        |until_s: i64| Event::Waiting { reason: WaitReason::RateLimit, until_ms: until_s * 1000 };
    let stop = || Event::StopRequested { signal: "SIGINT".into(), now: false };
    let begin = || vec![(1, 0, run_started()), (1, 1, iteration_started())];
    for (events, now, expected) in [
        (vec![(10, 1, wait(70)), (71, 1, agent_started())], None, "00:00:10 for 1m1s\n"),
        (
            vec![(10, 1, wait(70)), (20, 1, stop())],
            None,
            "for 10.0s of 1m0s, then it was stopped\n",
        ),
        (vec![(10, 1, wait(70))], None, "for 1m0s, but the run was cut off meanwhile\n"),
        (
            vec![(10, 1, wait(70)), (500, 0, run_started()), (501, 1, agent_started())],
            None,
            "for 1m0s, but the run was cut off meanwhile\n",
        ),
        (vec![(10, 1, wait(70))], Some(20), "until 1970-01-01 00:01:10\n"),
    ] {
        let facts = read(begin().into_iter().chain(events).collect(), now);
        let told = terminal(&facts);
        assert!(told.contains(expected), "{expected:?} in {told}");
    }
}

#[test]
fn a_run_that_was_killed_in_a_wait_and_goes_on_does_not_wait() {
    let wait = Event::Waiting { reason: WaitReason::RateLimit, until_ms: 70_000 };
    let events = vec![
        (1, 0, run_started()),
        (1, 1, iteration_started()),
        (2, 1, wait),
        (30, 0, run_started()),
        (30, 1, iteration_started()),
        (31, 1, agent_started()),
    ];
    assert_eq!(read(events, Some(40)).doing, Some(Doing::Working));
}

#[test]
fn a_run_that_failed_says_of_what_and_what_to_do() {
    let failed = |class, resets_at: Option<i64>| {
        let mut event = agent_ended(class, Usage::default());
        if let Event::AgentEnded { failure, tools, .. } = &mut event {
            *tools = u32::from(class != Class::RateLimited);
            let (kind, message) = (FailureKind::Other, String::new());
            *failure = resets_at.map(|at| Failure { kind, message, resets_at: Some(at) });
        }
        event
    };
    let output = |text: &'static str, joined| Event::Output {
        stream: event::Stream::Stderr,
        text: text.into(),
        joined,
    };
    let ended = |outcome, message: &'static str| match run_ended(outcome, 1) {
        Event::RunEnded { iterations, cut_off, duration_ms, usage, tools, tool_errors, .. } => {
            let (exit_code, message) = (4, message.into());
            Event::RunEnded {
                outcome,
                exit_code,
                message,
                iterations,
                cut_off,
                duration_ms,
                usage,
                tools,
                tool_errors,
                notify: false,
            }
        }
        other => other,
    };
    let retrying = Event::Retrying {
        class: Class::Failed,
        message: "exit code 1".into(),
        delay_ms: 1,
        failures: 1,
        max_failures: 2,
    };
    let told = terminal(&read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (1, 1, agent_started()),
            (2, 1, failed(Class::Failed, None)),
            (2, 1, retrying),
            (2, 1, agent_started()),
            (3, 1, output("Traceback", false)),
            (3, 1, output("ModuleNotFound", false)),
            (3, 1, output("Error: x", true)),
            (3, 1, output("\n", false)),
            (3, 1, failed(Class::Failed, None)),
            (4, 1, iteration_ended(Class::Failed, true)),
            (
                4,
                1,
                ended(
                    Outcome::AgentFailed,
                    "the agent failed 2 times in a row, the last time: exit code 1",
                ),
            ),
        ],
        None,
    ));
    for line in [
        "Stderr:    ModuleNotFoundError: x\n",
        "2 attempts\n       failed: exit code 1\n       failed: exit code 1: ModuleNotFoundError: x\n",
        "Next:      `ralph replay 20261115-2027-ab12` shows what happened; then `ralph resume ",
        "  what iteration 1 did lies in the work tree, unchecked",
    ] {
        assert!(told.contains(line), "{line:?} in {told}");
    }
    let told = terminal(&read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, failed(Class::RateLimited, Some(3_600))),
            (4, 1, iteration_ended(Class::RateLimited, true)),
            (4, 1, ended(Outcome::AgentFailed, "limit (waiting is not allowed)")),
        ],
        None,
    ));
    assert!(
        told.contains("Next:      the limit ends at 1970-01-01 01:00:00; then `ralph"),
        "{told}"
    );
    assert!(!told.contains("failed: "), "{told}");
    assert!(
        told.contains("Outcome:   stopped by a limit of the agent's: limit (waiting"),
        "{told}"
    );
    assert!(!told.contains("Left to do"), "it was turned away: {told}");
    assert!(told.contains("Ended:     1970-01-01 00:00:04\n"), "{told}");
    // A wait that would have outlasted the run's time was not begun, which is no use of that time.
    for (message, next) in [
        ("the limit ends at 01:00, in 1h, and the time of this run is used up in 40s", "then `"),
        (
            "the budget is used up: $1.00 of $1.00",
            "`ralph resume 20261115-2027-ab12` with a larger",
        ),
    ] {
        let told = terminal(&read(
            vec![
                (1, 0, run_started()),
                (1, 1, iteration_started()),
                (2, 1, failed(Class::RateLimited, Some(3_600))),
                (4, 1, iteration_ended(Class::RateLimited, true)),
                (4, 1, ended(Outcome::Budget, message)),
            ],
            None,
        ));
        let next = format!("Next:      the limit ends at 1970-01-01 01:00:00; {next}");
        assert!(told.contains(&next), "{next} in {told}");
    }
    // Stopped while it waited, after the limit had ended, and cut off in its wait.
    for (resets_at, end, is_told) in [(3_600, true, true), (3, true, false), (3_600, false, true)] {
        let mut events = vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, failed(Class::RateLimited, Some(resets_at))),
        ];
        if end {
            let signal = "SIGTERM".into();
            events.extend([
                (4, 1, Event::StopRequested { signal, now: false }),
                (4, 1, iteration_ended(Class::Interrupted, true)),
                (4, 1, ended(Outcome::Interrupted, "interrupted")),
            ]);
        }
        let told = terminal(&read(events, None));
        let limit = "Next:      the limit ends at 1970-01-01 01:00:00; `ralph resume 20261115";
        assert_eq!(told.contains(limit), is_told, "{told}");
        let by = "Outcome:   interrupted by SIGTERM (exit code 4)";
        assert_eq!(told.contains(by), end, "{told}");
    }
    // What the agent or the system said is no outcome by itself.
    for (outcome, expected) in [
        (Outcome::CredentialsRefused, "the agent's credentials were refused: why"),
        (Outcome::PromptLost, "failed before the agent was asked: why"),
        (Outcome::Broken, "ralph could not go on: why"),
        (Outcome::Stalled, "why"),
    ] {
        let events = vec![(1, 0, run_started()), (4, 1, ended(outcome, "why"))];
        let told = terminal(&read(events, None));
        assert!(told.contains(&format!("Outcome:   {expected} (exit")), "{told}");
    }
    let told = terminal(&read(
        vec![
            (1, 0, run_started()),
            (1, 2, iteration_started()),
            (4, 2, iteration_ended(Class::Limited, true)),
            (4, 2, ended(Outcome::Budget, "the budget is used up: $1.00 of $1.00")),
        ],
        None,
    ));
    assert!(
        told.contains(
            "goes on; `ralph report 20261115-2027-ab12` tells what was done; what iteration 2 did"
        ),
        "{told}"
    );
    assert_eq!(told.matches("unchecked").count(), 1, "{told}");
}

#[test]
fn a_run_that_has_not_ended_says_how_it_stands() {
    let begin = || vec![(1, 0, run_started()), (5, 1, iteration_started())];
    let with = |event: Event<'static>| begin().into_iter().chain([(7, 1, event)]).collect();
    let wait = Event::Waiting { reason: WaitReason::RateLimit, until_ms: 70_000 };
    for (events, now, expected) in [
        (begin(), Some(65), "running since 1970-01-01 00:00:01, iteration 1 for 1m0s"),
        (with(wait), Some(9), "running, and waits until 1970-01-01 00:01:10, in iteration 1"),
        (with(Event::Paused), Some(9), "paused since 1970-01-01 00:00:07, in iteration 1"),
        (begin(), None, "cut off, in iteration 1: killed, or the machine went down; last heard of"),
        (Vec::new(), None, "nothing is known of it: its journal is empty, or cannot be read"),
    ] {
        let told = terminal(&read(events, now));
        assert!(told.contains(&format!("Outcome:   {expected}")), "{expected} in {told}");
    }
    let live = terminal(&read(begin(), Some(65)));
    assert!(live.contains("So far:    1m4s, 1 of 10 iterations\n"), "{live}");
    assert!(live.contains("    1  under way                1m0s "), "{live}");
    // A command can be taken as it is.
    let cut_off = read(begin(), None);
    let markdown = plain::draw(&cut_off, &TimeZone::UTC, plain::Form::Markdown);
    assert!(
        markdown.contains("\n- **Next:** `ralph resume 20261115-2027-ab12` goes on"),
        "{markdown}"
    );
    let page = html::draw(&cut_off, &TimeZone::UTC);
    assert!(page.contains("<dd><code>ralph resume 20261115-2027-ab12</code> goes on"), "{page}");
    let unknown = read(Vec::new(), None);
    assert!(!terminal(&unknown).contains("1970"), "nobody knows when");
    let json = serde_json::to_value(&unknown).unwrap();
    assert_eq!((&json["started_ms"], &json["ended_ms"]), (&Value::Null, &Value::Null));
    // A journal whose beginning is lost.
    let commit = || vec![committed("one", "first that is known", None)];
    let lost =
        vec![(5, 1, repository("one", commit(), false)), (6, 1, repository("x", vec![], false))];
    let told = terminal(&read(lost, None));
    assert!(told.contains("\nCommits:   1\n"), "no range that hides it: {told}");
    let told = terminal(&read(begin().split_off(1), None));
    assert!(told.contains("Started:   an unknown time\nTook:      0ms, 1 of 10"), "{told}");
    assert!(told.contains("cut off, in iteration 1") && !told.contains("Command"), "{told}");
}

#[test]
fn what_ended_an_agent_is_told_and_a_guess_is_called_one() {
    let ended = |cause, kind: Option<FailureKind>| {
        let mut event = agent_ended(Class::Limited, Usage::default());
        if let Event::AgentEnded { ended_by, failure, .. } = &mut event {
            *ended_by = cause;
            *failure = kind.map(|kind| Failure { kind, message: String::new(), resets_at: None });
        }
        let mut facts = read(
            vec![
                (1, 1, iteration_started()),
                (2, 1, event),
                (3, 1, iteration_ended(Class::Limited, false)),
            ],
            None,
        );
        words::state(&facts.iterations.remove(0))
    };
    assert_eq!(ended(Some(EndCause::Budget), None), "run's budget");
    assert_eq!(ended(Some(EndCause::IterationBudget), None), "iteration's budget");
    assert_eq!(ended(None, Some(FailureKind::TurnLimit)), "agent's turn limit");

    let tokens = Usage { output_tokens: 100_000, ..Usage::default() };
    let told = |second: Usage| {
        terminal(&read(
            vec![
                (1, 0, run_started()),
                (1, 1, iteration_started()),
                (2, 1, agent_ended(Class::Answered, Usage { cost_usd: Some(1.25), ..tokens })),
                (3, 1, iteration_ended(Class::Answered, false)),
                (3, 2, iteration_started()),
                (4, 2, agent_ended(Class::Limited, second)),
                (5, 2, iteration_ended(Class::Limited, false)),
            ],
            None,
        ))
    };
    let all = told(Usage { cost_usd: Some(0.5), ..tokens });
    assert!(all.contains("Used:      $1.75, 200K tokens"), "{all}");
    let some = told(tokens);
    let words = "$1.25 told, about $2.50 with an estimate of what was not, 200K tokens";
    assert!(some.contains(words) && some.contains("~$1.25"), "{some}");
}

#[test]
fn a_run_of_ten_thousand_iterations_can_be_read() {
    let mut events = vec![(1, 0, run_started())];
    for n in 1..=10_000 {
        let (s, subject) = (i64::from(n) * 10, "x".repeat(5_000));
        events.extend([
            (s, n, iteration_started()),
            (
                s + 1,
                n,
                repository("h", vec![committed(&format!("{n:040}"), &subject, None)], false),
            ),
            (s + 2, n, agent_ended(Class::Answered, dollars(0.001))),
            (s + 2, n, guardrail(n % 7 > 0)),
            (s + 3, n, Event::Warning { message: format!("{n}{subject}").into() }),
            (s + 4, n, iteration_ended(Class::Answered, false)),
        ]);
    }
    let facts = read(events, None);
    let text = terminal(&facts);
    assert!(text.lines().count() < 200, "{}", text.lines().count());
    assert!(
        text.contains(
            "    …  11 to 9960: 8529 answered, 1421 guardrail failed; 165h50m, $9.95, 9950"
        )
    );
    assert!(text.lines().any(|line| line.ends_with("(failed 1428 times) make test")));
    let html = html::draw(&facts, &TimeZone::UTC);
    assert!(html.len() < 1 << 20, "{}", html.len());
    assert!(html.matches("<rect").count() <= 600);
}

#[test]
fn nothing_that_others_wrote_gets_out_of_its_place() {
    let nasty = "</td><script>alert(1)</script> & \"q\" 'q' \x1b[31mred\x1b[0m\x07\u{202e}txt\u{9b}2J\r\nsecond | `x` [l](http://e) @me $m$ ~~s~~ www.e.org";
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, repository("h", vec![committed("h", nasty, None)], false)),
            (2, 1, Event::Vetoed { reason: nasty.into() }),
            (2, 1, Event::Warning { message: format!("- {nasty}").into() }),
            (2, 1, Event::Warning { message: "1. list".into() }),
            (2, 1, iteration_ended(Class::Answered, false)),
        ],
        None,
    );
    let text = terminal(&facts);
    let html = html::draw(&facts, &TimeZone::UTC);
    let markdown = plain::draw(&facts, &TimeZone::UTC, plain::Form::Markdown);
    for page in [&text, &html, &markdown] {
        assert!(
            !page.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{page}"
        );
        assert!(!page.contains("\nsecond"), "{page}");
    }
    assert!(!html.contains("<script"), "{html}");
    let quiet = r"\<script\>alert(1)\</script\> \& ";
    assert!(markdown.contains(quiet), "{markdown}");
    let rest = r"second \| \`x\` \[l\](http\://e) \@me \$m\$ \~\~s\~\~ www\.e.org";
    assert!(markdown.contains(rest), "{markdown}");
    assert!(
        markdown.contains("\n- \\- \\</td") && markdown.contains("\n- 1\\. list"),
        "{markdown}"
    );
}

#[test]
fn what_is_skimmed_tells_the_same_as_what_is_read() {
    let journal = include_str!("../testdata/run.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for end in 0..=lines.len() {
        // Cut off here, and gone on with from the beginning.
        for rest in [&lines[..0], &lines[..1], &lines[..]] {
            let text = [&lines[..end], rest].concat().concat();
            let mut reading = Reading::default();
            for line in text.lines() {
                reading.fold(&serde_json::from_str(line).unwrap());
            }
            let skimmed = Reading::of(crate::state::journal::entries(text.as_bytes()));
            assert_eq!(skimmed.facts(None), reading.facts(None), "{text}");
        }
    }
    // An iteration whose beginning is lost is one all the same.
    let lost: String =
        lines.iter().copied().filter(|line| !line.contains("iteration_started")).collect();
    let of = |text: &str| Reading::of(crate::state::journal::entries(text.as_bytes())).facts(None);
    assert_eq!(of(&lost).iterations.len(), of(journal).iterations.len());
    let damaged = journal.replacen("\"event\":\"text\"", "\"event\":\"te\0xt\"", 1);
    let facts = of(&damaged);
    assert_eq!(facts.unreadable, 1);
    assert!(
        terminal(&facts)
            .contains("Journal:   a line of the journal cannot be read; there was more")
    );
}
