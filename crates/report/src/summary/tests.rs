//! Reports of runs, made of events as a run would write them.

mod failed;
mod interrupted;
mod repository;

use jiff::tz::TimeZone;
use serde_json::Value;

use super::*;
use crate::sample_events;
use ralph_events::event::{
    self, Class, EndCause, Entry, Event, Exit, FailAction, Failure, FailureKind, Feedback, Purpose,
    Stamp, TodoItem, TodoStatus, WaitReason,
};
use ralph_events::run_state::{Repeated, RunState};

fn at(time_ms: i64, iteration: u32, event: Event<'static>) -> Entry<'static> {
    Entry { at: Stamp { time_ms, iteration, attempt: 1 }, event }
}

fn run_started() -> Event<'static> {
    Event::RunStarted {
        branch: None,
        streams_text: false,
        name: None,
        plain_text: false,
        setup: None,
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
    sample_events::run_ended(outcome, 0, "complete after 1 iteration", duration_ms)
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

/// The report of events at these seconds and in these iterations.
fn read(events: Vec<(i64, u32, Event<'static>)>, now_s: Option<i64>) -> Summary {
    let mut state = RunState::default();
    for (seconds, iteration, event) in events {
        state.apply(&at(seconds * 1000, iteration, event));
    }
    Summary::of(&state, now_s.map(|now| now * 1000))
}

fn terminal(facts: &Summary) -> String {
    let format = plain::TextFormat::Plain { color: false, width: Some(80) };
    plain::render(facts, &TimeZone::UTC, format)
}

/// The report on one line, for text that is wrapped.
fn unwrapped(facts: &Summary) -> String {
    terminal(facts).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A night: a red guardrail, a limit, a denied tool, and no end.
fn night() -> Summary {
    let feedback = Feedback { action: FailAction::Append, message: "tests <b>fail</b>".into() };
    let item = |text: &str, status| TodoItem { text: text.to_owned(), status };
    let mut state = RunState::default();
    for entry in [
        at(1_794_774_000_000, 0, run_started()),
        at(1_794_774_000_000, 0, repository("000base0", Vec::new(), false)),
        at(1_794_774_000_900, 1, iteration_started()),
        at(1_794_774_001_000, 1, agent_started()),
        at(
            1_794_774_002_000,
            1,
            Event::ToolStarted {
                id: "t1".into(),
                name: "Bash".into(),
                summary: "rm -rf /".into(),
                edit: None,
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
        state.apply(&entry);
    }
    Summary::of(&state, None)
}

#[test]
fn summary_assigns_facts_to_iterations() {
    let facts = night();
    assert_eq!(facts.iterations.len(), 3);
    assert_eq!((facts.usage.cost_usd, facts.end.outcome), (Some(0.75), None));
    assert_eq!(
        facts.denied,
        Listed { total: 1, first: vec![Repeated { item: "Bash: rm -rf /".to_owned(), times: 1 }] }
    );
    let commits = |nth: usize| facts.iterations[nth].commits.len();
    assert_eq!((commits(0), commits(1), commits(2)), (1, 1, 0));
    assert_eq!(facts.iterations[2].record.duration_ms, 9_000, "until the last thing that is known");
    assert_eq!(
        (facts.remaining.plan.as_slice(), facts.remaining.feedback.len()),
        (&["print".to_owned()][..], 0)
    );
    assert_eq!(facts.waits.len(), 1);
}

#[test]
fn summary_lists_warnings_before_work_last() {
    let warning = |words: &'static str| Event::Warning { message: words.into() };
    let facts = read(
        vec![(1, 0, warning("settings")), (1, 1, iteration_started()), (1, 1, warning("work"))],
        None,
    );
    let words: Vec<&str> = facts.warnings.first.iter().map(|it| it.item.as_str()).collect();
    assert_eq!(words, ["work", "settings"]);
}

#[test]
fn summary_of_complete_run_has_nothing_left() {
    let items = vec![TodoItem { text: "tick me".into(), status: TodoStatus::Pending }];
    let facts =
        read(vec![(1, 1, Event::Todo { items }), (2, 1, run_ended(Outcome::Complete, 1))], None);
    assert_eq!(facts.remaining, RemainingWork::default());
}

#[test]
fn summary_matches_expected_terminal_text() {
    assert_eq!(
        terminal(&night()),
        "\
Make *all* tests pass — interrupted                                     run ab12
Interrupted in iteration 3: ralph was killed, or the machine went down. Last
seen 2026-11-15 21:21:30. 2 commits.

  Took    1h1m, 3 of 10 iterations; waited 1h0m for rate limits
  Cost    $0.75, 2K tokens
  Checks  make test 1 of 2 passed, passed last

  Commits
    bbb2222 Fix <the> parser | and more (iteration 2)
    aaa1111 begin (iteration 1)

  Worth a look
    The work of iteration 3 is in the work tree, unchecked and uncommitted.
    denied: Bash: rm -rf /

  Left to do
    Open in the agent's plan: print

  Iterations
      #  outcome                  time      cost  tools
      1  check failed             1m0s     $0.25      3  1 commit
      2  answered                 1m0s     $0.50      3  1 commit, waited 1h0m
      3  interrupted              9.0s         -      0

  Checks by iteration (+ passed, - failed, ~ interrupted, . not run)
    -+. make test

  Details
    Run        20261115-2027-ab12
    Command    ralph run with claude
    Directory  /project
    Started    2026-11-15 20:20:00

Next
  git log --oneline 000base..bbb2222
  ralph resume ab12
"
    );
}

#[test]
fn summary_escapes_agent_text_in_markdown_and_html() {
    let markdown = plain::render(&night(), &TimeZone::UTC, plain::TextFormat::Markdown);
    assert!(markdown.starts_with("# Make \\*all\\* tests pass — interrupted\n"), "{markdown}");
    for line in [
        r"- bbb2222 Fix \<the\> parser \| and more (iteration 2)",
        r"| 2 | answered | 1m0s | \$0.50 | 3 | 1 commit<br>waited 1h0m |",
        "    ralph resume ab12",
    ] {
        assert!(markdown.contains(&format!("\n{line}\n")), "{line:?} in {markdown}");
    }
    let html = html::render(&night(), &TimeZone::UTC);
    assert!(html.contains("<title>Make *all* tests pass — interrupted · ralph</title>"), "{html}");
    assert!(html.contains("<code>bbb2222</code> Fix &lt;the&gt; parser | and more"), "{html}");
    assert_eq!(html.matches("<rect").count(), 3, "a bar for each iteration");
    assert!(!html.contains("://"), "nothing comes from elsewhere");
}

#[test]
fn summary_of_ten_thousand_iterations_stays_small() {
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
    assert!(text.contains("      …  iterations 6 to 9975: ralph report --json\n"), "{text}");
    assert!(text.contains("make test 8572 of 10000 passed, passes now"), "{text}");
    let html = html::render(&facts, &TimeZone::UTC);
    assert!(html.len() < 1 << 20, "{}", html.len());
    assert!(html.matches("<rect").count() <= 600);
}

#[test]
fn summary_escapes_hostile_text_in_every_format() {
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
    let html = html::render(&facts, &TimeZone::UTC);
    let markdown = plain::render(&facts, &TimeZone::UTC, plain::TextFormat::Markdown);
    for page in [&text, &html, &markdown] {
        assert!(
            !page.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{page}"
        );
        assert!(!page.contains("\nsecond"), "{page}");
    }
    assert!(!html.contains("<script"), "{html}");
    // Before anything that the policy is about.
    let head: Vec<&str> = html.lines().skip(2).take(3).collect();
    assert_eq!(
        head,
        [
            r#"<meta charset="utf-8">"#,
            r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">"#,
            r#"<meta name="referrer" content="no-referrer">"#,
        ]
    );
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
fn skimmed_journal_yields_same_summary_as_full_read() {
    let journal = include_str!("../testdata/run.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for end in 0..=lines.len() {
        // Cut off here, and gone on with from the beginning.
        for rest in [&lines[..0], &lines[..1], &lines[..]] {
            let text = [&lines[..end], rest].concat().concat();
            let mut state = RunState::default();
            for line in text.lines() {
                state.apply(&serde_json::from_str(line).unwrap());
            }
            let skimmed = RunState::read(ralph_events::journal::entries(text.as_bytes()));
            assert_eq!(skimmed, state, "{text}");
        }
    }
    // An iteration whose beginning is lost is one all the same.
    let lost: String =
        lines.iter().copied().filter(|line| !line.contains("iteration_started")).collect();
    let of = |text: &str| {
        let entries = ralph_events::journal::entries(text.as_bytes());
        Summary::of(&RunState::read(entries), None)
    };
    assert_eq!(of(&lost).iterations.len(), of(journal).iterations.len());
    let damaged = journal.replacen("\"event\":\"text\"", "\"event\":\"te\0xt\"", 1);
    let facts = of(&damaged);
    assert_eq!(facts.unreadable, 1);
    assert!(
        terminal(&facts)
            .contains("a line of the journal cannot be read: the run did more than this report")
    );
}
