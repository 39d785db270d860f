//! Unattended runs: they resume after any interruption and report it truthfully.

#[path = "../support/mod.rs"]
mod support;

mod flood;
mod interrupted_checks;
mod late_crashes;
mod random_kills;
mod resume;
mod stall;

use serde_json::Value;
use support::Project;

const DONE: &str = "<response>DONE</response>";

fn run_id(project: &Project) -> String {
    let run = project.newest_run();
    run.file_name().expect("a name").to_str().expect("UTF-8").to_owned()
}

fn prompts(project: &Project) -> Vec<String> {
    let text = |record: Value| record["prompt"].as_str().unwrap_or_default().to_owned();
    project.agent_starts().into_iter().map(text).collect()
}
