//! `ralph run`.
//!
//! One test program, because linking takes longer than running.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod completion;
mod display;
mod endless_journal;
mod failures;
mod filters;
mod guardrails;
mod limits;
mod namespace;
mod output_formats;
mod private_files;
mod prompts;
mod scm;
mod settings;
mod terminal;
mod untrusted_path;

use serde_json::{Value, json};
use support::{Project, Ralph};

const DONE: &str = "<response>DONE</response>";

/// A prompt that asks for [`DONE`], and a check: no warnings.
const ASKED: [&str; 4] = ["-p", "Say <response>DONE</response>.", "--check", "true"];

/// `ralph run ARGS -- robot`, where `robot` is scripted and has no adapter.
fn run(project: &Project, args: &[&str], script: &Value) -> Ralph {
    run_with("robot", project, args, script)
}

/// The same with the name, and so the adapter, of a real agent.
fn run_with(agent: &str, project: &Project, args: &[&str], script: &Value) -> Ralph {
    project.install_agent(agent, script);
    project.ralph(["run"]).args(args).args(["--", agent])
}

/// A script with one entry per start; the last one repeats.
fn sessions<const N: usize>(sessions: [Value; N]) -> Value {
    json!({"sessions": Vec::from(sessions)})
}

fn recorded_steps(project: &Project, steps: &Value) -> Value {
    let steps = steps.as_array().expect("a list of steps");
    std::iter::once(project.record_step()).chain(steps.iter().cloned()).collect()
}

fn run_id(project: &Project) -> String {
    let run = project.newest_run();
    run.file_name().expect("a name").to_str().expect("UTF-8").to_owned()
}

fn prompts(project: &Project) -> Vec<String> {
    let text = |record: Value| record["prompt"].as_str().unwrap_or_default().to_owned();
    project.agent_starts().into_iter().map(text).collect()
}

fn argv(project: &Project) -> Vec<Vec<String>> {
    let words = |record: &Value| -> Vec<String> {
        serde_json::from_value(record["argv"].clone()).expect("a list of texts")
    };
    project.agent_starts().iter().map(|record| words(record)[1..].to_vec()).collect()
}

fn no_backoff() -> Value {
    json!({"retry": {"backoffSeconds": 0}})
}
