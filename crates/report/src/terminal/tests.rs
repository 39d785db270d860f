mod layout;

use super::speech::{MAX_TEXT, MAX_THINKING};
use super::*;
use crate::output::tests::Sink;
use crate::replay::replay;
use crate::sample_events;
use crate::worker_lines::KILL_REASON;
use ralph_events::event::{
    Class, Commit, Entry, Exit, FailAction, Failure, FailureKind, Feedback, Leftover, Outcome,
    Stream, TodoItem, TodoStatus, Usage, WaitReason,
};
use ralph_events::run_state::RunState;

const START: i64 = 1_794_774_472_000;

fn at(time_ms: i64) -> Stamp {
    Stamp { time_ms, iteration: 1, attempt: 1 }
}

fn emoji() -> Style {
    Style { emoji: true, ..Style::default() }
}

/// Returns standard output and standard error.
fn render(style: Style, events: &[Event<'_>]) -> (String, String) {
    let (out, err) = (Sink::default(), Sink::default());
    let screen = TerminalOutput::fake(out.output(), err.output(), false, None);
    let mut human = TerminalReporter::new(style, || TimeZone::UTC, screen);
    let mut run = RunState::live();
    for event in events {
        show(&mut human, &mut run, at(START), event);
    }
    human.finish();
    (out.text(), err.text())
}

fn show(human: &mut TerminalReporter, run: &mut RunState, at: Stamp, event: &Event<'_>) {
    run.apply_event(at, event);
    human.event(Recorded { at, event, line: b"", run });
}

fn out(style: Style, events: &[Event<'_>]) -> String {
    render(style, events).0
}

fn said(text: &str, joined: bool) -> Event<'_> {
    Event::Text { text: text.into(), joined, subagent: false }
}

fn tool_ended(failed: bool, denied: bool, preview: &str) -> Event<'_> {
    Event::ToolEnded {
        id: "1".into(),
        name: "Bash".into(),
        failed,
        denied,
        lines: preview.lines().count() as u64,
        chars: preview.chars().count() as u64,
        preview: preview.into(),
        subagent: false,
    }
}

fn seed() -> Vec<Event<'static>> {
    let item = |text: &str, status| TodoItem { text: text.to_owned(), status };
    vec![
        Event::ToolStarted {
            id: "1".into(),
            name: "Read".into(),
            summary: "/path/to/file.go".into(),
            edit: None,
            subagent: false,
        },
        Event::ToolEnded {
            id: "1".into(),
            name: "Read".into(),
            failed: false,
            denied: false,
            lines: 45,
            chars: 1234,
            preview: "package main\n".into(),
            subagent: false,
        },
        Event::Todo {
            items: vec![
                item("Read the file", TodoStatus::Completed),
                item("Edit the code", TodoStatus::InProgress),
                item("Run tests", TodoStatus::Pending),
            ],
        },
        Event::AgentEnded {
            purpose: Purpose::Work,
            exit: Some(Exit::Code(0)),
            ended_by: None,
            class: Class::Answered,
            failure: None,
            duration_ms: 367_000,
            usage: Usage {
                cost_usd: Some(5.76),
                input_tokens: 300_000,
                output_tokens: 45_000,
                cache_read_tokens: 850_000,
                cache_write_tokens: 50_000,
            },
            tools: 58,
            tool_errors: 4,
            denied: 0,
            repeats_prompt: false,
            filter_errors: 0,
            complete: None,
            found: None,
            commit_message: None,
        },
    ]
}

#[test]
fn report_with_emoji_matches_documented_example() {
    assert_eq!(
        out(emoji(), &seed()),
        "\
⏺ Read(/path/to/file.go)
✅ Result ← Read (45 lines, 1234 chars)
  ⎿  package main

📋 Todo List
  ✅ Read the file
  🔄 Edit the code ← ACTIVE
  ⏸️ Run tests
  📊 Progress: 1/3 (33%)

✅ Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"
    );
}

#[test]
fn report_in_plain_ascii_matches_documented_example() {
    assert_eq!(
        out(Style::default(), &seed()),
        "\
[TOOL] Read(/path/to/file.go)
[OK] Result <- Read (45 lines, 1234 chars)
  |  package main

[TODO] Todo List
  [x] Read the file
  [>] Edit the code <- ACTIVE
  [ ] Run tests
  Progress: 1/3 (33%)

[OK] Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"
    );
}

#[test]
fn text_pieces_are_joined_into_one_text() {
    let usage = Event::Usage(Usage::default());
    for (events, expected) in [
        (vec![said("a", false), said("b", true)], "ab\n"),
        (vec![said("a", false), said("b", false)], "a\nb\n"),
        (vec![said("a\n", false), said("b", false)], "a\nb\n"),
        (vec![said("a\n", false), said("b", true)], "a\nb\n"),
        // An event that shows nothing does not break a line.
        (vec![said("a", false), usage, said("b", true)], "ab\n"),
        // An empty line of plain output is an empty line.
        (vec![said("a", false), said("", false), said("b", false)], "a\n\nb\n"),
        // A sequence that is split over two pieces is still taken out.
        (vec![said("a\x1b[3", false), said("1mb", true)], "ab\n"),
        // A new text starts anew, whatever the one before left open.
        (vec![said("a\x1b]0;", false), said("b", false)], "a\nb\n"),
        (
            vec![said("a", false), tool_ended(false, false, "x"), said("b", true)],
            "a\n\n[OK] Result <- Bash (1 line, 1 char)\n  |  x\n\nb\n",
        ),
    ] {
        assert_eq!(out(Style::default(), &events), expected, "{events:?}");
    }
}

#[test]
fn long_text_is_truncated_with_count() {
    let long = "é".repeat(MAX_TEXT + 7);
    let shown = out(emoji(), &[said(&long, false), said("12\n3", true)]);
    assert_eq!(shown, format!("{} … [11 more characters]\n", "é".repeat(MAX_TEXT)));
    let thought = Event::Thinking {
        text: "x".repeat(MAX_THINKING + 1).into(),
        joined: false,
        subagent: false,
    };
    assert_eq!(
        out(Style::default(), &[thought]),
        format!("[THINK] {} ... [1 more characters]\n", "x".repeat(MAX_THINKING))
    );
}

#[test]
fn tool_output_is_truncated_by_lines_and_characters() {
    let style = |lines, chars| Style {
        max_output_lines: lines,
        max_output_chars: chars,
        ..Style::default()
    };
    let head = "[OK] Result <- Bash (4 lines, 15 chars)\n";
    let event = [tool_ended(false, false, "one\ntwo\n\nthree\n")];
    for (style, expected) in [
        (style(9, 99), "  |  one\n     two\n\n     three\n"),
        (style(2, 99), "  |  one\n     two\n     ... 2 more lines\n"),
        (style(9, 5), "  |  one\n     tw\n     ... 9 more characters\n"),
        (style(0, 99), ""),
        (style(9, 0), ""),
    ] {
        assert_eq!(out(style, &event), format!("{head}{expected}"));
    }
    assert_eq!(
        out(style(9, 99), &[tool_ended(false, false, "")]),
        "[OK] Result <- Bash (0 lines, 0 chars)\n"
    );
}

#[test]
fn failed_and_denied_tools_are_shown_differently() {
    assert_eq!(
        out(emoji(), &[tool_ended(true, false, "boom")]),
        "❌ Error ← Bash (1 line, 4 chars)\n  ⎿  boom\n"
    );
    assert_eq!(
        out(emoji(), &[tool_ended(true, true, "no")]),
        "⛔ Denied ← Bash (1 line, 2 chars)\n  ⎿  no\n"
    );
}

fn run_started(word: &str, max_iterations: u32) -> Event<'_> {
    Event::RunStarted {
        branch: None,
        streams_text: false,
        name: None,
        plain_text: false,
        setup: None,
        run: word.into(),
        version: word.into(),
        command: word.into(),
        directory: word.into(),
        pid: 1,
        agent: word.into(),
        prompt: word.into(),
        completion: word.into(),
        max_iterations,
    }
}

#[test]
fn feedback_mentions_next_iteration_only_if_one_follows() {
    // A resumed run that only checks an iteration has started none yet.
    let part = Feedback { action: FailAction::Append, message: "mend it".to_owned() };
    let told = |max_iterations| {
        let set = Event::FeedbackSet { parts: vec![part.clone()] };
        out(Style::default(), &[run_started("x", max_iterations), set])
    };
    let next = "Not done. The feedback goes into the next prompt.\n";
    assert!(told(2).contains(next), "{}", told(2));
    assert!(told(1).contains("Not done.\n"), "{}", told(1));
}

#[test]
fn agent_output_contains_no_terminal_controls() {
    let evil = "a\x1b[2J\x1b]0;t\x07b\rc\x08\u{9b}5n";
    let events = [
        said(evil, false),
        Event::Thinking { text: evil.into(), joined: false, subagent: true },
        Event::Output { stream: Stream::Stderr, text: evil.into(), joined: false },
        Event::ToolStarted {
            id: evil.into(),
            name: evil.into(),
            summary: evil.into(),
            edit: None,
            subagent: false,
        },
        tool_ended(true, false, evil),
        Event::Todo {
            items: vec![TodoItem { text: evil.to_owned(), status: TodoStatus::Pending }],
        },
        Event::Notice { text: evil.into() },
        Event::Warning { message: evil.into() },
        Event::Note { message: evil.into(), important: true },
        Event::Vetoed { reason: evil.into() },
        Event::RunContinued {
            after: None,
            iterations: 1,
            cut_off: Some(2),
            unchecked: None,
            usage: Usage::default(),
            duration_ms: 1,
        },
        Event::SandboxReady {
            backend: evil.into(),
            network: evil.into(),
            guardrails: false,
            limits: vec![evil.to_owned()],
        },
        Event::NetworkRefused {
            host: evil.into(),
            port: 1,
            reason: evil.into(),
            allow: evil.into(),
        },
        Event::CompletionChecked { complete: true, found: Some(evil.into()), scm_failed: false },
        Event::GuardrailStarted { index: 0, command: evil.into() },
        Event::ScmStarted { task: evil.into(), argv: vec![evil.to_owned()] },
        Event::ScmEnded { task: evil.into(), ok: false, detail: evil.into(), duration_ms: 1 },
        Event::Leftovers {
            processes: vec![Leftover { pid: 1, command: evil.to_owned(), survived: false }],
            kept: true,
        },
        Event::Session { id: Some(evil.into()), model: Some(evil.into()) },
        Event::Prompt { bytes: 1, preview: evil.into(), feedback: false },
        Event::StopRequested { signal: evil.into(), now: true },
        Event::Retrying {
            class: Class::Failed,
            message: evil.into(),
            delay_ms: Some(1),
            failures: 1,
            max_failures: 2,
        },
        Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: vec![evil.to_owned()] },
        run_started(evil, 1),
        sample_events::run_ended(Outcome::InternalError, 1, evil, 1),
    ];
    let style = Style { verbose: true, ..emoji() };
    let (out, err) = render(style, &events);
    for text in [out, err] {
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{text:?}");
    }
}

#[test]
fn rate_limit_wait_until_other_day_shows_date() {
    let waiting = |until_ms| Event::Waiting { reason: WaitReason::RateLimit, until_ms };
    assert_eq!(
        out(emoji(), &[waiting(START + 754_000)]),
        "Rate limit reached: resets at 20:40:26 (in 12m34s). \
         Waiting; this iteration is not counted.\n"
    );
    assert_eq!(
        out(emoji(), &[waiting(START + 36_000_000)]),
        "Rate limit reached: resets at 2026-11-16 06:27:52 (in 10h0m). \
         Waiting; this iteration is not counted.\n"
    );
}

fn run_ended(outcome: Outcome, message: &'static str, cut_off: bool) -> Event<'static> {
    Event::RunEnded {
        branch: None,
        last_failure: None,
        used_up: None,
        outcome,
        exit_code: 4,
        message: message.into(),
        iterations: 1,
        cut_off,
        duration_ms: 1000,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
    }
}

#[test]
fn cut_off_iteration_is_reported_as_checked_only_if_so() {
    let scm = |task: &'static str, ok| Event::ScmEnded {
        task: task.into(),
        ok,
        detail: "".into(),
        duration_ms: 1,
    };
    let unchecked = "The work of iteration 1 is in the work tree, unchecked and uncommitted.\n";
    let checked = "Iteration 1 passed its checks and was interrupted after: commit.\n";
    for (scm, said) in [
        (vec![], unchecked),
        (vec![scm("commit", false)], unchecked),
        (vec![scm("commit", true)], checked),
        (vec![scm("commit", true), scm("push", false)], checked),
    ] {
        let end = run_ended(Outcome::Budget, "it used $1.00 of $1.00", true);
        let told = out(Style::default(), &[scm, vec![end]].concat());
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn run_ended_by_rate_limit_shows_reset_time() {
    let events = |class, resets_at| {
        let mut ended = seed().pop().unwrap();
        if let Event::AgentEnded { class: its, failure, .. } = &mut ended {
            *its = class;
            let (kind, message) = (FailureKind::RateLimit, "limit".to_owned());
            *failure = Some(Failure { kind, message, resets_at });
        }
        let end = run_ended(Outcome::AgentFailed, "limit (not allowed)", true);
        out(Style::default(), &[ended, end])
    };
    let seconds = START / 1000 + 754;
    let told = events(Class::RateLimited, Some(seconds));
    assert!(told.contains("Stopped by the agent's rate limit in iteration 1"), "{told}");
    assert!(told.contains(": limit (not allowed)\n"), "{told}");
    assert!(told.contains("next       The rate limit ends at 20:40:26.\n"), "{told}");
    let told = events(Class::RateLimited, None);
    assert!(told.contains("the agent's rate limit") && !told.contains("limit ends"), "{told}");
    let told = events(Class::Failed, Some(seconds));
    assert!(told.contains("Failed") && !told.contains("limit ends"), "{told}");
}

#[test]
fn every_run_end_shows_next_step() {
    for outcome in [
        Outcome::CompleteScmFailed,
        Outcome::LimitReached,
        Outcome::Interrupted,
        Outcome::Budget,
        Outcome::Stalled,
        Outcome::AgentFailed,
        Outcome::CredentialsRefused,
        Outcome::PromptMissing,
        Outcome::InternalError,
    ] {
        let shown = out(Style::default(), &[run_ended(outcome, "why", false)]);
        let (first, next) = shown.split_once('\n').unwrap();
        assert!(first.contains(" after 1 iteration in 1.0s"), "{shown}");
        let obvious = matches!(
            outcome,
            Outcome::CompleteScmFailed | Outcome::LimitReached | Outcome::Interrupted
        );
        assert_eq!(first.ends_with(": why"), !obvious, "{shown}");
        assert!(next.contains("\n  next       "), "{shown}");
    }
}

#[test]
fn run_end_shows_last_commit_and_report() {
    let commit = Commit {
        id: "b91c7ad0123".to_owned(),
        subject: "fix: return None for empty input".to_owned(),
        replaces: None,
        since: None,
    };
    let made =
        Event::Repository { head: "b91c7ad".into(), commits: vec![commit], by_others: false };
    let end = run_ended(Outcome::Complete, "", false);
    let start = Event::IterationStarted { max_iterations: 3 };
    let shown = out(Style::default(), &[run_started("20261115-202752-a3f1", 3), start, made, end]);
    let expected = "\
Done after 1 iteration in 1.0s.
  1 commit   b91c7ad fix: return None for empty input
  report     ralph report a3f1
";
    assert!(shown.ends_with(expected), "{shown}");
}

#[test]
fn status_line_stays_below_text_and_is_removed() {
    let sink = Sink::default();
    let screen = TerminalOutput::fake(sink.output(), Sink::default().output(), true, Some(60));
    let mut human = TerminalReporter::new(Style::default(), || TimeZone::UTC, screen);
    // Of an agent whose texts come in pieces.
    human.streams_fragments = true;
    assert_eq!(human.next_tick(), None);
    let mut run = RunState::live();
    show(&mut human, &mut run, at(START), &Event::IterationStarted { max_iterations: 3 });
    human.flush();
    assert_eq!(sink.take(), ["=== Iteration 1/3 ===\niteration 1/3 | 0s | working\r"]);
    assert_eq!(human.next_tick(), Some(START + 1000));
    show(&mut human, &mut run, at(START + 100), &said("He", false));
    human.flush();
    show(&mut human, &mut run, at(START + 200), &said("llo", true));
    human.flush();
    assert_eq!(
        sink.take(),
        [
            "\r\x1b[J\nHe\niteration 1/3 | 0s | working\r",
            "\r\x1b[1A\x1b[JHello\niteration 1/3 | 0s | working\r",
        ]
    );
    human.redraw(Redraw::Tick { now_ms: START + 1200 });
    assert_eq!(sink.take(), ["\r\x1b[1A\x1b[JHello\niteration 1/3 | 1s | working\r"]);
    drop(human);
    assert_eq!(sink.take(), ["\r\x1b[1A\x1b[JHello\n"]);
}

#[test]
fn display_without_status_line_needs_no_tick() {
    let screen =
        TerminalOutput::fake(Sink::default().output(), Sink::default().output(), false, None);
    let mut human = TerminalReporter::new(emoji(), || TimeZone::UTC, screen);
    let mut run = RunState::live();
    show(&mut human, &mut run, at(START), &Event::IterationStarted { max_iterations: 3 });
    human.flush();
    assert_eq!(human.next_tick(), None);
}

/// A whole run in every style. `UPDATE_GOLDEN=1 cargo test golden` rewrites the files.
#[test]
fn run_output_matches_golden_files() {
    let journal = include_str!("../testdata/run.jsonl");
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata");
    let color = Style { color: true, color_errors: true, ..emoji() };
    for (name, style) in [
        ("emoji", emoji()),
        ("plain", Style::default()),
        ("color", color),
        ("verbose", Style { verbose: true, timestamps: true, ..emoji() }),
        ("quiet", Style { quiet: true, ..emoji() }),
        ("no_stream", Style { show_stream: false, ..emoji() }),
    ] {
        let sink = Sink::default();
        // Both outputs into one, as in a terminal.
        let screen = TerminalOutput::fake(sink.output(), sink.output(), false, None);
        let mut human = TerminalReporter::new(style, || TimeZone::UTC, screen);
        let entries =
            journal.lines().map(|line| serde_json::from_str::<Entry<'static>>(line).unwrap());
        replay(entries, &mut human);
        let shown = sink.text();
        let path = format!("{directory}/run.{name}.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shown == expected, "{path} differs; now:\n{shown}");
    }
}

#[test]
fn task_list_shows_next_story_and_problems_once() {
    let tasks = |done, problems: &[&str]| Event::Tasks {
        done,
        total: 2,
        story: Some("US-1".into()),
        title: Some("A \u{1b}[31mtitle".into()),
        problems: problems.iter().map(|&it| it.to_owned()).collect(),
        unreadable: problems.iter().any(|it| it.contains("JSON")),
        marked: vec![],
    };
    let begins = || Event::IterationStarted { max_iterations: 3 };
    let events = [
        begins(),
        tasks(0, &[]),
        tasks(0, &["t: US-2 is gone"]),
        begins(),
        tasks(0, &["t: US-2 is gone"]),
        tasks(1, &[]),
        tasks(1, &["t: US-2 is gone"]),
        begins(),
        tasks(1, &["t: is not valid JSON"]),
    ];
    let (out, err) = render(Style::default(), &events);
    let gone = "[WARN] t: US-2 is gone\n".repeat(2);
    assert_eq!(err, format!("{gone}[WARN] t: is not valid JSON\n"));
    let lines: Vec<&str> = out.lines().filter(|line| line.contains("[TODO]")).collect();
    let next = "[TODO] Stories: 0 of 2 pass, next US-1: A title";
    let still = format!("{next}; not done: t: US-2 is gone");
    assert_eq!(
        lines,
        [
            next,
            "[TODO] Stories: 0 of 2 pass",
            &still,
            "[TODO] Stories: 1 of 2 pass",
            "[TODO] Stories: 1 of 2 pass",
            "[TODO] Stories: unknown, the task list cannot be read"
        ]
    );
    let quiet = Style { quiet: true, ..Style::default() };
    let (out, err) = render(quiet, &events[..3]);
    assert_eq!((out.as_str(), err.as_str()), ("", "[WARN] t: US-2 is gone\n"));
}

#[test]
fn questions_and_guidance_are_shown_without_control_characters() {
    let text = "410 or \u{1b}[31m303?\n\nThe story\u{7} does not say.";
    let events = [
        Event::QuestionAsked { id: "q1".into(), text: text.into(), story: None },
        Event::Parked,
        Event::QuestionAnswered { id: "q1".into(), text: "410\nfor good".into() },
        Event::Unparked,
        Event::GuidanceReceived { id: 1, text: "Mind \u{1b}]0;x\u{7}the gap.".into(), every: true },
        Event::GuidanceDelivered { guidance: vec![1], answers: vec!["q1".into()] },
        Event::GuidanceCleared,
        Event::StopRequested { signal: KILL_REASON.into(), now: false },
    ];
    let (out, err) = render(Style::default(), &events);
    assert_eq!(
        err,
        "The agent asks: 410 or 303?\n  The story does not say.\n\
         Answer it: ralph answer q1 \"…\"\n\
         Waiting for your answer. Nothing runs until then.\n\
         You answered q1: 410 for good\nContinuing.\n\
         You said, for every prompt: Mind the gap.\nYour guidance was dropped.\n\
         Stopping after this iteration, as requested.\n"
    );
    assert_eq!(out.trim(), "The prompt carries your guidance and your answer.");
}

#[test]
fn stderr_of_known_agent_is_folded_after_few_lines() {
    let trace = |nth: usize| Event::Output {
        stream: Stream::Stderr,
        text: format!("at frame {nth}").into(),
        joined: false,
    };
    let shown = |is_plain, style| {
        let mut started = run_started("agent", 1);
        if let Event::RunStarted { plain_text, .. } = &mut started {
            *plain_text = is_plain;
        }
        let mut events = vec![started];
        events.extend((1..=9).map(trace));
        events.push(Event::Usage(Usage::default()));
        events.push(trace(10));
        events.push(said("Hello.", false));
        events.push(trace(11));
        out(style, &events)
    };
    let folded = shown(false, Style::default());
    assert!(folded.contains("at frame 5\n") && !folded.contains("at frame 6\n"), "{folded}");
    assert!(folded.contains("5 more lines on stderr (the journal has them)"), "{folded}");
    assert!(folded.contains("at frame 11\n"), "it counts anew after something else: {folded}");
    for whole in
        [shown(true, Style::default()), shown(false, Style { verbose: true, ..Style::default() })]
    {
        assert!(whole.contains("at frame 10\n") && !whole.contains("more line"), "{whole}");
    }
}
