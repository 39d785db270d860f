//! What a person relies on who starts a run in the evening and goes to bed: that it can go on after
//! whatever happened to it, and that it says the truth about it.

#[path = "../support/mod.rs"]
mod support;

mod answered;
mod decided;
mod flood;
mod killed;
mod resume;
mod stall;

use serde_json::Value;
use support::Project;

const DONE: &str = "<response>DONE</response>";

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
