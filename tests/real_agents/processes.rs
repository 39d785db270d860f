//! Nothing is left running, whatever ends a run while a tool of the agent is at work.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{LONG, Project, Running, wait_until};
use crate::{Facts, for_agents};

const DONE: &str = "<response>DONE</response>";
const PROMPT: &str = "Say <response>DONE</response> when you are done.";

/// One command in a session of its own, and one in whichever the agent gives it.
const TOOL: &str = "setsid sleep 301 & sleep 300";

fn script(_: &Project) -> Value {
    // An agent that is asked to end may end its tool first, and tell the model about it.
    let over = json!({"text": "It is over.", "usage": {}});
    json!({"sessions": [[{"text": "I wait.", "sh": TOOL}, over], [DONE]]})
}

/// Starts a run, and waits until both commands of the tool are there.
fn in_a_tool(real: &RealAgent, facts: &Facts) -> Running {
    let running = real.run(&[&["-p", PROMPT, "-n", "1"], facts.args].concat()).start();
    wait_until(LONG, || {
        let processes = real.project.processes();
        let is_there = |line: &str| processes.iter().any(|p| p.command.trim() == line);
        is_there("sleep 300") && is_there("sleep 301")
    });
    running
}

for_agents!(asked_twice: claude, codex, opencode, gemini, copilot, cline, qwen);

/// Once is for the end of the run after this iteration, twice is for its end at once; with which of
/// the signals that ask for it makes no difference.
fn asked_twice(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let running = in_a_tool(&real, facts);
    running.signal(Signal::INT);
    wait_until(LONG, || running.stderr().contains("shutting down"));
    running.signal(Signal::TERM);
    running.wait().code(130);
    assert_eq!(real.project.processes(), []);
    let events = real.project.events();
    assert_eq!(events.last("agent_ended")["class"], "interrupted", "whatever its exit code says");
    assert_eq!(events.last("run_ended")["outcome"], "interrupted");
}

for_agents!(killed: claude, codex, opencode, gemini, copilot, cline, qwen);

/// Nobody can clean up after itself when it is killed. The next start does it.
fn killed(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    let running = in_a_tool(&real, facts);
    running.signal(Signal::KILL);
    running.wait().ended_by(Signal::KILL);
    let next = project.fake_agent(&json!([{"print": DONE}]));
    let output = project.ralph(["run", "-p", PROMPT, "--"]).args(next).run();
    output.code(0).stderr_has("was cut off in iteration 1");
    assert_eq!(project.processes(), []);
}

for_agents!(hung: claude, codex, opencode, gemini, copilot, cline, qwen);

/// An agent that has gone silent is ended, what it used until then is paid for, and the iteration is
/// tried again.
fn hung(facts: &Facts) {
    let Some(real) = RealAgent::new(facts.name, script) else { return };
    let project = &real.project;
    project.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let limit = ["--inactivity-timeout", facts.silence];
    let output = real.run(&[&["-p", PROMPT, "-n", "1"], &limit[..], facts.args].concat()).run();
    output.code(0);
    assert_eq!(project.processes(), []);
    let events = project.events();
    let ended = events.all("agent_ended");
    let (last, others) = ended.split_last().expect("an agent");
    assert_eq!(last["class"], "answered");
    assert!(!others.is_empty() && others.iter().all(|event| event["class"] == "timed_out"));
    // On a slow machine it may have been ended before it had begun; the last one had.
    let hung = others.last().expect("an agent that hung");
    assert_eq!(hung["ended_by"], "inactivity");
    let known = if facts.tells_usage_early { 120 } else { 0 };
    assert_eq!(hung["usage"]["input_tokens"], known, "{hung}");
}
