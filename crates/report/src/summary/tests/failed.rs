//! Why an agent or a run failed, and what to do about it.

use super::*;

/// An agent that failed; one that was turned away by a limit has done nothing before.
fn failed(class: Class, resets_at: Option<i64>) -> Event<'static> {
    let mut event = agent_ended(class, Usage::default());
    if let Event::AgentEnded { failure, tools, .. } = &mut event {
        *tools = u32::from(class != Class::RateLimited);
        let (kind, message) = (FailureKind::Other, String::new());
        *failure = resets_at.map(|at| Failure { kind, message, resets_at: Some(at) });
    }
    event
}

fn ended(outcome: Outcome, words: &'static str) -> Event<'static> {
    let mut event = run_ended(outcome, 1);
    if let Event::RunEnded { exit_code, message, .. } = &mut event {
        (*exit_code, *message) = (4, words.into());
    }
    event
}

/// The report of a run whose first iteration met a rate limit that resets after an hour.
fn turned_away(outcome: Outcome, words: &'static str) -> String {
    unwrapped(&read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, failed(Class::RateLimited, Some(3_600))),
            (4, 1, iteration_ended(Class::RateLimited, true)),
            (4, 1, ended(outcome, words)),
        ],
        None,
    ))
}

#[test]
fn summary_of_failed_run_shows_cause_and_next_step() {
    let output = |text: &'static str, joined| Event::Output {
        stream: event::Stream::Stderr,
        text: text.into(),
        joined,
    };
    let retrying = Event::Retrying {
        class: Class::Failed,
        message: "exit code 1".into(),
        delay_ms: Some(1),
        failures: 1,
        max_failures: 2,
    };
    let text = terminal(&read(
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
        " — failed ",
        "\nThe agent failed 2 times in a row, the last time: exit code 1.\n",
        "Stderr  ModuleNotFoundError: x\n",
        "2 attempts\n         failed: exit code 1\n         failed: exit code 1: ModuleNotFoundError: x\n",
        "\nNext\n  ralph resume ab12\n",
        "    The work of iteration 1 is in the work tree, unchecked",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn summary_shows_message_of_stack_trace_not_frames() {
    let output = |text: &'static str| Event::Output {
        stream: event::Stream::Stderr,
        text: text.into(),
        joined: false,
    };
    let mut refused = agent_ended(Class::Failed, Usage::default());
    if let Event::AgentEnded { failure, tools, .. } = &mut refused {
        let (kind, message) = (FailureKind::Usage, "no".to_owned());
        (*tools, *failure) = (0, Some(Failure { kind, message, resets_at: None }));
    }
    let text = terminal(&read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (1, 1, agent_started()),
            (2, 1, output("Error when talking to Gemini API: 401")),
            (2, 1, output("    at throwErrorIfNotOK (chunk.js:1:2) {")),
            (2, 1, output("  status: 401")),
            (2, 1, output("}")),
            (3, 1, refused),
            (4, 1, iteration_ended(Class::Failed, true)),
            (4, 1, ended(Outcome::AgentFailed, "the agent failed: no")),
        ],
        None,
    ));
    assert!(text.contains("Stderr  Error when talking to Gemini API: 401\n"), "{text}");
    assert!(!text.contains("is in the work tree"), "it used no tool: {text}");
}

#[test]
fn summary_of_rate_limited_run_shows_reset_time() {
    let text = turned_away(Outcome::AgentFailed, "limit (waiting is not allowed)");
    let next = "Next The rate limit ends at 1970-01-01 01:00:00. ralph resume ab12";
    assert!(text.ends_with(next), "{text}");
    assert!(!text.contains("failed: "), "{text}");
    assert!(text.contains(" Stopped by the agent's rate limit: limit (waiting"), "{text}");
    assert!(!text.contains("Worth a look"), "it was refused: {text}");
    assert!(text.contains("Ended 1970-01-01 00:00:04, exit code 4"), "{text}");
    // A wait that would have outlasted the run's time used none of it.
    for message in [
        "the limit ends at 01:00, in 1h, and the time of this run is used up in 40s",
        "the budget is used up: $1.00 of $1.00",
    ] {
        let text = turned_away(Outcome::Budget, message);
        assert!(text.ends_with(next), "{next} in {text}");
        assert!(text.contains(&format!("Stopped: {message}.")), "{text}");
    }
}

#[test]
fn summary_of_stopped_wait_shows_pending_reset_time() {
    // Stopped while it waited, after the limit had ended, and killed in its wait.
    for (resets_at, end, is_shown) in [(3_600, true, true), (3, true, false), (3_600, false, true)]
    {
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
        let text = unwrapped(&read(events, None));
        let limit = "Next The rate limit ends at 1970-01-01 01:00:00. ralph resume ab12";
        assert_eq!(text.contains(limit), is_shown, "{text}");
        let by = " — ended run ab12 Stopped by you (SIGTERM) in iteration 1.";
        assert_eq!(text.contains(by), end, "{text}");
    }
}

#[test]
fn summary_explains_outcome_before_agent_message() {
    for (outcome, expected) in [
        (Outcome::CredentialsRefused, "The agent's credentials were refused: why."),
        (Outcome::PromptMissing, "Failed before the agent started: why."),
        (Outcome::InternalError, "Internal error: why."),
        (Outcome::Stalled, "Stopped: why."),
    ] {
        let events = vec![(1, 0, run_started()), (4, 1, ended(outcome, "why"))];
        let text = terminal(&read(events, None));
        assert!(text.contains(" — failed ") && text.contains(&format!("\n{expected}\n")), "{text}");
    }
}

#[test]
fn summary_of_exhausted_budget_shows_how_to_continue() {
    let text = terminal(&read(
        vec![
            (1, 0, run_started()),
            (1, 2, iteration_started()),
            (4, 2, iteration_ended(Class::Limited, true)),
            (4, 2, ended(Outcome::Budget, "the budget is used up: $1.00 of $1.00")),
        ],
        None,
    ));
    assert!(text.ends_with("unchecked and uncommitted.\n  ralph resume ab12\n"), "{text}");
    assert_eq!(text.matches("unchecked").count(), 1, "{text}");
}

#[test]
fn summary_shows_end_cause_and_marks_estimated_cost() {
    let ended = |cause, kind: Option<FailureKind>| {
        let mut event = agent_ended(Class::Limited, Usage::default());
        if let Event::AgentEnded { ended_by, failure, .. } = &mut event {
            *ended_by = cause;
            *failure = kind.map(|kind| Failure { kind, message: String::new(), resets_at: None });
        }
        let facts = read(
            vec![
                (1, 1, iteration_started()),
                (2, 1, event),
                (3, 1, iteration_ended(Class::Limited, false)),
            ],
            None,
        );
        iteration::rows(&facts.iterations, 1, 1)[0].cells[1].clone()
    };
    assert_eq!(ended(Some(EndCause::Budget), None), "run budget");
    assert_eq!(ended(Some(EndCause::IterationBudget), None), "iteration budget");
    assert_eq!(ended(None, Some(FailureKind::TurnLimit)), "agent's turn limit");

    let tokens = Usage { output_tokens: 100_000, ..Usage::default() };
    let report = |second: Usage| {
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
    let all = report(Usage { cost_usd: Some(0.5), ..tokens });
    assert!(all.contains("Cost    $1.75, 200K tokens"), "{all}");
    let some = report(tokens);
    let words = "Cost    about $2.50 ($1.25 reported, the rest estimated), 200K tokens";
    assert!(some.contains(words) && some.contains("~$1.25"), "{some}");
}

#[test]
fn summary_of_failing_check_shows_end_of_its_output() {
    let output: String = (0..40).map(|n| format!("line {n}\n")).collect();
    let message = format!(
        "Guardrail \"make test\" failed with exit code 1.\nOutput file: g.log\nOutput (truncated):\n\
         begin... [truncated]\nEnd of output:\n{output}  assertion failed"
    );
    let parts = vec![
        Feedback { action: FailAction::Append, message },
        Feedback { action: FailAction::Append, message: "a <note>".to_owned() },
    ];
    let facts = read(
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, guardrail(false)),
            (2, 1, Event::FeedbackSet { parts }),
            (3, 1, iteration_ended(Class::Answered, false)),
            (3, 1, ended(Outcome::LimitReached, "")),
        ],
        None,
    );
    let text = terminal(&facts);
    let why = "  Why make test failed (exit code 1)\n    …\n    line 26\n";
    assert!(text.contains(why) && !text.contains("line 25"), "{text}");
    let end =
        "    line 39\n      assertion failed\n    (log: .ralph/guardrail_001_make_test.log)\n";
    assert!(text.contains(end), "{text}");
    assert!(text.contains("Checks  make test 0 of 1 passed, fails now\n"), "{text}");
    assert!(text.contains("  Left to do\n    Pending feedback: a <note>\n"), "{text}");
    let page = html::render(&facts, &TimeZone::UTC);
    assert!(page.contains("line 39\n  assertion failed\n(log: "), "{page}");
    assert!(page.contains("<rect class=\"f\""), "{page}");
}
