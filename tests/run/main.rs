//! `ralph run` as a user meets it: a project, an agent, a command line, and what comes of it.
//!
//! One program for all of it, because linking takes longer than running. Each module is a chapter.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod completion;
mod display;
mod endless_journal;
mod faces;
mod failures;
mod filters;
mod guardrails;
mod limits;
#[cfg(target_os = "linux")]
mod namespace;
mod private_files;
mod prompts;
mod scm;
mod settings;
mod terminal;
mod untrusted_path;

use serde_json::{Value, json};
use support::{Project, Ralph};

/// What completes a run unless it is told otherwise.
const DONE: &str = "<response>DONE</response>";

/// A prompt that asks for [`DONE`], and a check: nothing to warn about.
const ASKED: [&str; 4] = ["-p", "Say <response>DONE</response>.", "--check", "true"];

/// `ralph run ARGS -- robot`, where `robot` is an agent that no adapter knows and that does what
/// `script` says.
fn run(project: &Project, args: &[&str], script: &Value) -> Ralph {
    run_with("robot", project, args, script)
}

/// The same with an agent that has the name, and so the adapter, of a real one.
fn run_with(agent: &str, project: &Project, args: &[&str], script: &Value) -> Ralph {
    project.install_agent(agent, script);
    project.ralph(["run"]).args(args).args(["--", agent])
}

/// A script in which starts differ; the last one repeats.
fn sessions<const N: usize>(sessions: [Value; N]) -> Value {
    json!({"sessions": Vec::from(sessions)})
}

/// The steps of a script for one start, after the step that records how it was started.
fn recorded_steps(project: &Project, steps: &Value) -> Value {
    let steps = steps.as_array().expect("a list of steps");
    std::iter::once(project.record_step()).chain(steps.iter().cloned()).collect()
}

/// The name of the newest run.
fn run_id(project: &Project) -> String {
    let run = project.newest_run();
    run.file_name().expect("a name").to_str().expect("UTF-8").to_owned()
}

/// What the agent was asked, each time.
fn prompts(project: &Project) -> Vec<String> {
    let text = |record: Value| record["prompt"].as_str().unwrap_or_default().to_owned();
    project.agent_starts().into_iter().map(text).collect()
}

/// The arguments of the agent, each time, without its name.
fn argv(project: &Project) -> Vec<Vec<String>> {
    let words = |record: &Value| -> Vec<String> {
        serde_json::from_value(record["argv"].clone()).expect("a list of texts")
    };
    project.agent_starts().iter().map(|record| words(record)[1..].to_vec()).collect()
}

/// Trying again without waiting.
fn at_once() -> Value {
    json!({"retry": {"backoffSeconds": 0}})
}
