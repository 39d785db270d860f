//! Why an agent or a run came to its end, and what to do about it.

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
    terminal(&read(
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
    let told = terminal(&read(
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
    assert!(told.contains("Stderr:    Error when talking to Gemini API: 401\n"), "{told}");
    assert!(!told.contains("lies in the work tree"), "it used no tool: {told}");
}

#[test]
fn summary_of_rate_limited_run_shows_reset_time() {
    let told = turned_away(Outcome::AgentFailed, "limit (waiting is not allowed)");
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
        let told = turned_away(Outcome::Budget, message);
        let next = format!("Next:      the limit ends at 1970-01-01 01:00:00; {next}");
        assert!(told.contains(&next), "{next} in {told}");
    }
}

#[test]
fn summary_of_stopped_wait_shows_pending_reset_time() {
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
}

#[test]
fn summary_explains_outcome_before_agent_message() {
    for (outcome, expected) in [
        (Outcome::CredentialsRefused, "the agent's credentials were refused: why"),
        (Outcome::PromptMissing, "failed before the agent was asked: why"),
        (Outcome::InternalError, "ralph could not go on: why"),
        (Outcome::Stalled, "why"),
    ] {
        let events = vec![(1, 0, run_started()), (4, 1, ended(outcome, "why"))];
        let told = terminal(&read(events, None));
        assert!(told.contains(&format!("Outcome:   {expected} (exit")), "{told}");
    }
}

#[test]
fn summary_of_exhausted_budget_shows_how_to_continue() {
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
fn summary_shows_end_cause_and_marks_estimated_cost() {
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
        iteration::state_label(&facts.iterations.remove(0))
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
