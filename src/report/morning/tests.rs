use jiff::tz::TimeZone;

use super::*;
use crate::core::event::{FailAction, Feedback, Stamp};

fn at(time_ms: i64, iteration: u32, event: Event<'static>) -> Entry<'static> {
    Entry { at: Stamp { time_ms, iteration, attempt: 1 }, event }
}

/// A night: a red guardrail, a limit, a denied tool, and no end.
fn night() -> Facts {
    let agent_ended = |cost| Event::AgentEnded {
        purpose: Purpose::Work,
        exit: Some(Exit::Code(0)),
        ended_by: None,
        class: Class::Answered,
        failure: None,
        duration_ms: 5,
        usage: Usage { cost_usd: Some(cost), output_tokens: 1000, ..Usage::default() },
        tools: 3,
        tool_errors: 1,
        denied: 1,
        repeats_prompt: false,
        filter_errors: 0,
    };
    let guardrail = |passed: bool| Event::GuardrailEnded {
        index: 0,
        command: "make test".into(),
        exit: Some(Exit::Code(i32::from(!passed))),
        timed_out: false,
        cut_off: false,
        passed,
        fail_action: FailAction::Append,
        log: ".ralph/guardrail_001_make_test.log".into(),
        duration_ms: 5,
    };
    let iteration_ended = |passed| Event::IterationEnded {
        class: Class::Answered,
        guardrails_passed: Some(passed),
        complete: false,
        cut_off: false,
        duration_ms: 60_000,
        usage: Usage::default(),
    };
    let feedback = Feedback { action: FailAction::Append, message: "tests <b>fail</b>".into() };
    let item = |text: &str, status| TodoItem { text: text.to_owned(), status };
    let mut reading = Reading::default();
    for entry in [
        at(
            1_794_774_000_000,
            0,
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
            },
        ),
        at(1_794_774_000_900, 1, Event::IterationStarted { max_iterations: 10 }),
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
        at(1_794_774_050_000, 1, agent_ended(0.25)),
        at(1_794_774_060_000, 1, guardrail(false)),
        at(1_794_774_060_000, 1, Event::FeedbackSet { parts: vec![feedback] }),
        at(1_794_774_061_000, 1, iteration_ended(false)),
        at(1_794_774_061_000, 2, Event::IterationStarted { max_iterations: 10 }),
        at(
            1_794_774_062_000,
            2,
            Event::Waiting { reason: WaitReason::RateLimit, until_ms: 1_794_777_662_000 },
        ),
        at(1_794_777_670_000, 2, agent_ended(0.5)),
        at(1_794_777_680_000, 2, guardrail(true)),
        at(1_794_777_680_000, 2, Event::FeedbackSet { parts: Vec::new() }),
        at(1_794_777_681_000, 2, iteration_ended(true)),
        at(1_794_777_681_000, 3, Event::IterationStarted { max_iterations: 10 }),
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
    let mut facts = reading.facts(None);
    let commit = |id: &str, time_ms, subject: &str| Commit {
        id: id.to_owned(),
        time_ms,
        subject: subject.to_owned(),
    };
    facts.place_commits(vec![
        commit("aaa1111", 1_794_774_000_000, "before the first iteration's second was over"),
        commit("bbb2222", 1_794_777_675_000, "Fix <the> parser | and more"),
    ]);
    facts
}

#[test]
fn every_fact_is_where_it_happened() {
    let facts = night();
    assert_eq!(facts.iterations.len(), 3);
    assert_eq!((facts.usage.cost_usd, facts.outcome), (Some(0.75), None));
    assert_eq!(facts.denied, Listed { total: 1, first: vec!["Bash: rm -rf /".to_owned()] });
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
fn a_run_that_is_complete_has_nothing_left() {
    let mut reading = Reading::default();
    let items = vec![TodoItem { text: "tick me".into(), status: TodoStatus::Pending }];
    reading.fold(&at(1, 1, Event::Todo { items }));
    reading.fold(&at(
        2,
        1,
        Event::RunEnded {
            outcome: Outcome::Complete,
            exit_code: 0,
            message: "complete after 1 iteration".into(),
            iterations: 1,
            cut_off: false,
            duration_ms: 1,
            usage: Usage::default(),
            tools: 0,
            tool_errors: 0,
        },
    ));
    assert_eq!(reading.facts(None).left, Left::default());
}

#[test]
fn the_terminal_is_told() {
    assert_eq!(
        plain::draw(&night(), &TimeZone::UTC, plain::Form::Terminal),
        "\
Run 20261115-2027-ab12

Asked:     Make *all* tests pass
Outcome:   it has not ended, or was cut off before it could say so
Command:   ralph run with claude
Directory: /project
Started:   2026-11-15 20:20:00
Took:      1h1m, 3 of 10 iterations
Used:      $0.75, 2K tokens

Iterations
    1  guardrail failed         1m0s     $0.25     3 tools
       aaa1111 before the first iteration's second was over
    2  answered                 1m0s     $0.50     3 tools
       bbb2222 Fix <the> parser | and more
    3  not ended                9.0s         -     0 tools

Guardrails, from the first iteration to the last
  -+. make test
  (+ passed, - failed, ~ interrupted, . not run)

Limits waited for
  iteration 2: from 2026-11-15 20:21:02 for 1h0m

Denied to the agent (1)
  Bash: rm -rf /

Left to do
  open in the agent's plan: print
"
    );
}

#[test]
fn what_an_agent_said_is_text_and_nothing_else() {
    let markdown = plain::draw(&night(), &TimeZone::UTC, plain::Form::Markdown);
    assert!(markdown.contains(r"- **Asked:** Make \*all\* tests pass"), "{markdown}");
    assert!(markdown.contains(r"| `bbb2222` Fix \<the\> parser \| and more |"), "{markdown}");
    let html = html::draw(&night(), &TimeZone::UTC);
    assert!(html.contains("Fix &lt;the&gt; parser | and more"), "{html}");
    assert_eq!(html.matches("<rect").count(), 6, "two bars for each iteration");
    assert!(!html.contains("http"), "nothing comes from elsewhere");
}
