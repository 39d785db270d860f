//! No process is left over, however a run ends while a tool is running.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{LONG, Project, Running, wait_until};
use crate::{Facts, for_agents};

const DONE: &str = "<response>DONE</response>";
const PROMPT: &str = "Say <response>DONE</response> when you are done.";

/// One command in its own session, one in the agent's.
const TOOL: &str = "setsid sleep 301 & sleep 300";

fn script(_: &Project) -> Value {
    // An agent that gets TERM may end its tool first and tell the model.
    let over = json!({"text": "It is over.", "usage": {}});
    json!({"sessions": [[{"text": "I wait.", "sh": TOOL}, over], [DONE]]})
}

fn start_in_tool(real: &RealAgent, facts: &Facts) -> Running {
    let running = real.run(&[&["-p", PROMPT, "-n", "1"], facts.args].concat()).start();
    wait_until(LONG, || {
        let processes = real.project.processes();
        let is_there = |line: &str| processes.iter().any(|p| p.command.trim() == line);
        is_there("sleep 300") && is_there("sleep 301")
    });
    running
}

for_agents!(second_stop_signal_ends_agent_and_tools: claude, codex, opencode, gemini, copilot, cline, qwen);

/// The signals are equivalent, so each agent gets one of them.
fn second_stop_signal_ends_agent_and_tools(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let signal = match facts.name {
        "claude" | "opencode" | "copilot" | "qwen" => Signal::INT,
        _ => Signal::TERM,
    };
    signal_twice(&real, facts, [signal, signal]);
    assert_eq!(real.project.processes(), []);
}

fn signal_twice(real: &RealAgent, facts: &Facts, [first, second]: [Signal; 2]) {
    let running = start_in_tool(real, facts);
    running.signal(first);
    wait_until(LONG, || running.stderr().contains("shutting down"));
    running.signal(second);
    running.wait().code(130);
    let events = real.project.events();
    assert_eq!(events.last("agent_ended")["class"], "interrupted", "whatever its exit code says");
    assert_eq!(events.last("run_ended")["outcome"], "interrupted");
}

/// By default, cline hands its work to a shared daemon, which would outlive the run with its tools.
#[test]
fn cline_runs_without_its_daemon() {
    let facts = Facts::of("cline");
    let with_another = |project: &Project| {
        let mut script = script(project);
        script["sessions"].as_array_mut().expect("a list").insert(0, json!(["Hello."]));
        script
    };
    let Some(real) = RealAgent::new(facts.name, with_another) else { return };
    real.without_ralph(&["--json", "--auto-approve", "true", "--", "Say hello."]).run().code(0);
    // The shell that the daemon runs at its start ends soon.
    wait_until(LONG, || real.project.processes().len() == 1);
    let daemon = real.project.processes();
    assert!(daemon.iter().all(|process| process.command.contains("hub-daemon")), "{daemon:?}");
    signal_twice(&real, facts, [Signal::INT, Signal::TERM]);
    assert_eq!(real.project.processes(), daemon, "the tool is gone, what was there before is not");
}

for_agents!(killed_run_is_cleaned_up_by_next_run: claude, codex, opencode, gemini, copilot, cline, qwen);

fn killed_run_is_cleaned_up_by_next_run(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    let running = start_in_tool(&real, facts);
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    let next = project.fake_agent(&json!([{"print": DONE}]));
    let output = project.ralph(["run", "-p", PROMPT, "--"]).args(next).run();
    output.code(0).stderr_has("was interrupted in iteration 1");
    assert_eq!(project.processes(), []);
}

for_agents!(hung_agent_is_ended_by_inactivity: claude, codex, opencode, gemini, copilot, cline, qwen);

fn hung_agent_is_ended_by_inactivity(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    project.settings(&json!({"retry": {"max": 0}}));
    // Silence at start-up depends on the machine: allows more if the agent was ended too early.
    for patience in [1, 2, 4, 8] {
        let silence = facts.silence_s * patience;
        let limit = silence.to_string();
        let args = ["-p", PROMPT, "-n", "1", "--inactivity-timeout", &limit];
        let ralph = real.run(&[&args, facts.args].concat());
        let ralph = ralph.deadline(LONG + 2 * Duration::from_secs(silence.into()));
        ralph.run().code(4).stdout_has("inactivity limit");
        assert_eq!(project.processes(), []);
        let events = project.events();
        let ended = events.last("agent_ended");
        assert_eq!(ended["ended_by"], "inactivity");
        assert_eq!(ended["class"], "timed_out", "whatever its exit code says");
        if real.has_answered() {
            let tokens = if facts.reports_usage_early { 120 } else { 0 };
            assert_eq!(ended["usage"]["input_tokens"], tokens, "{ended}");
            return;
        }
    }
    panic!("{} never came to do anything", facts.name);
}
