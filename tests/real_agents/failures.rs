//! Refused keys, silence and broken connections, as real agents report them.

use std::time::Duration;

use serde_json::json;

use crate::case::{Case, DONE, NO_RETRIES, PROMPT};
use crate::real::RealAgent;
use crate::support::{LONG, Output, Project};
use crate::{Facts, for_agents};

for_agents!(refused_credentials_end_run: claude, codex, opencode, gemini, copilot, cline, qwen);

/// Retrying does not help, so the run ends with advice, although claude would retry for three
/// minutes. The prompt is an argument that starts with a dash.
fn refused_credentials_end_run(facts: &Facts) {
    let says = match facts.name {
        "claude" => "check the API key",
        "codex" => "401",
        "opencode" => "opencode auth login",
        "gemini" => "GEMINI_API_KEY",
        "copilot" => "COPILOT_PROVIDER_API_KEY",
        "cline" => "cline auth",
        _ => "OPENAI_API_KEY",
    };
    let case = Case {
        agent: facts.name,
        turns: json!([{"fail": 401, "times": -1}]),
        settings: json!({"retry": {"max": 0}, "agent": {"promptVia": "argument"}}),
        classes: &["credentials"],
        exit: 4,
        says,
        ..Case::default()
    };
    let Some((real, output, events)) = case.check() else { return };
    let first = real.first_requests().first().expect("a request")["body"].to_string();
    assert!(first.contains("--version: say <response>"), "the prompt did not arrive");
    let argv = events.find("agent_started")["argv"].to_string();
    assert!(argv.contains("<prompt>") || argv.contains("--prompt="), "it is no argument: {argv}");
    output.stdout_has("Sign in with the agent's own program");
    assert_eq!(events.last("run_ended")["outcome"], "credentials_refused");
    if facts.name == "claude" {
        assert_eq!(events.find("agent_ended")["ended_by"], "refused");
    }
}

#[test]
fn claude_explains_invalid_key() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 401, "times": -1}]),
        env: NO_RETRIES,
        classes: &["credentials"],
        exit: 4,
        says: "Invalid API key",
        ..Case::default()
    };
    case.check();
}

#[test]
fn claude_survives_briefly_refused_key() {
    let case = Case {
        agent: "claude",
        turns: json!([{"fail": 401, "times": 2}, DONE]),
        ..Case::default()
    };
    case.check();
}

// The others are silent for longer while they start; see
// `processes::hung_agent_is_ended_by_inactivity`.
for_agents!(silent_service_is_ended_and_retried: claude, codex);

/// The service goes silent during the work; agents would wait for minutes. Tokens known by then are
/// journaled and shown.
fn silent_service_is_ended_and_retried(facts: &Facts) {
    let work = json!({"sh": "true", "usage": {"in": 7_000, "out": 3}});
    let script =
        json!({"sessions": [[work, {"fail": "hang"}], [{"text": DONE, "usage": {"in": 500}}]]});
    // Silence at start-up depends on the machine: allows more if the agent was ended too early.
    for seconds in [4, 8, 16, 32] {
        let script = script.clone();
        let Some(real) = RealAgent::new(facts.name, |_: &Project| script) else { return };
        real.project.settings(&json!({"retry": {"backoffSeconds": 0}}));
        let limit = seconds.to_string();
        let args = ["-p", PROMPT, "-n", "1", "--inactivity-timeout", &limit];
        let ralph = real.run(&[&args, facts.args].concat());
        let output = ralph.deadline(LONG + Duration::from_secs(4 * seconds)).run();
        let events = real.project.events();
        let worked = events.all("tool_started").first().is_some_and(|tool| tool["attempt"] == 1);
        if worked && events.all("agent_ended").len() == 2 {
            return check_silent_service(facts, &real, &output);
        }
        assert_eq!(events.find("agent_ended")["ended_by"], "inactivity");
    }
    panic!("{}: it never came to its work", facts.name);
}

for_agents!(dead_connection_is_ended_and_slow_tool_is_not: codex, opencode, copilot);

fn dead_connection_is_ended_and_slow_tool_is_not(facts: &Facts) {
    for limit in [1, 2, 4].map(|times| times * facts.silence_s) {
        let script = json!([{"sh": format!("sleep {}", limit + 1)}, {"fail": "hang"}]);
        let Some(real) = RealAgent::new(facts.name, |_: &Project| script) else { return };
        real.project
            .settings(&json!({"silentModelMinutes": f64::from(limit) / 60.0, "retry": {"max": 0}}));
        let args = ["-p", PROMPT, "-n", "1"];
        let output = real.run(&[&args, facts.args].concat()).run();
        output.code(4).stdout_has("no running tool");
        assert_eq!(real.project.processes(), []);
        let events = real.project.events();
        assert_eq!(events.find("agent_ended")["ended_by"], "silent_model");
        assert_eq!(events.find("agent_ended")["class"], "failed");
        assert_eq!(events.all("model_silent").len(), 1);
        if real.has_answered() {
            assert_eq!(events.find("tool_ended")["failed"], false, "it was let finish");
            return;
        }
    }
    panic!("{}: it never came to its work", facts.name);
}

fn check_silent_service(facts: &Facts, real: &RealAgent, output: &Output) {
    output.code(0).stdout_has("The agent timed out");
    let events = real.project.events();
    let hung = events.find("agent_ended");
    assert_eq!(hung["class"], "timed_out");
    assert_eq!(events.last("agent_ended")["class"], "answered", "it was tried again");
    // codex reports tokens only at the end of a turn.
    let (tokens, attempt) = match facts.reports_usage_early {
        true => (7_000, "(tokens: 7K in"),
        false => (0, "(tools: 1, time:"),
    };
    assert_eq!(hung["usage"]["input_tokens"], tokens, "{hung}");
    assert_eq!(events.last("run_ended")["usage"]["input_tokens"], tokens + 500);
    let line =
        |words: &str| output.stdout.lines().find(|line| line.contains(words)).expect("a line");
    assert!(line("The agent timed out").contains(attempt), "{}", line("The agent timed out"));
    assert!(line("Done after").contains("about $"), "{}", line("Done after"));
    assert_eq!(real.project.processes(), []);
}

for_agents!(cut_stream_is_retried: claude, codex, opencode, gemini, copilot, cline, qwen);

fn cut_stream_is_retried(facts: &Facts) {
    // gemini retries after a reset, but gives up after this.
    let how = if facts.name == "gemini" { "close" } else { "cut" };
    let turns = json!([{"fail": how, "text": format!("{DONE} or rather not."), "after": 5}, DONE]);
    let Some(real) = RealAgent::new(facts.name, |_: &Project| turns) else { return };
    real.project.settings(&json!({"retry": {"max": 1, "backoffSeconds": 0}}));
    real.run(&[&["-p", PROMPT, "-n", "2"], facts.args].concat()).run().code(0);
    let events = real.project.events();
    assert_eq!(events.last("run_ended")["iterations"], 1);
    let requests = real.requests().iter().filter(|request| request["kind"] == "main").count();
    assert_eq!(requests, 2, "the answer that counts came after the cut");
    assert_eq!(real.project.processes(), []);
}
