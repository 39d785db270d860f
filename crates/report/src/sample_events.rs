//! Events for the tests of several views.

use ralph_events::event::{Class, EndCause, Event, Exit, Outcome, Purpose, Usage};

pub(crate) fn run_started() -> Event<'static> {
    Event::RunStarted {
        run: "r".into(),
        version: "0.2.0".into(),
        command: "run".into(),
        directory: "/src/shop".into(),
        pid: 7,
        agent: "codex".into(),
        prompt: "p".into(),
        completion: "".into(),
        max_iterations: 4,
        branch: None,
        name: Some("night".into()),
        streams_text: false,
        plain_text: false,
        setup: None,
    }
}

pub(crate) fn agent_ended(
    exit: Option<Exit>,
    ended_by: Option<EndCause>,
    class: Class,
    usage: Usage,
) -> Event<'static> {
    Event::AgentEnded {
        purpose: Purpose::Work,
        exit,
        ended_by,
        class,
        failure: None,
        duration_ms: 0,
        usage,
        tools: 0,
        tool_errors: 0,
        denied: 0,
        repeats_prompt: false,
        filter_errors: 0,
        complete: None,
        found: None,
        commit_message: None,
    }
}

pub(crate) fn run_ended(
    outcome: Outcome,
    exit_code: u8,
    message: &str,
    duration_ms: u64,
) -> Event<'_> {
    Event::RunEnded {
        outcome,
        exit_code,
        message: message.into(),
        iterations: 1,
        cut_off: false,
        duration_ms,
        usage: Usage::default(),
        tools: 0,
        tool_errors: 0,
        notify: false,
        branch: None,
        last_failure: None,
        used_up: None,
    }
}
