//! `ralph plan`, `ralph build` and `ralph prompt`.

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod config;
mod log;
mod loops;
mod preflight;
mod templates;

use serde_json::{Value, json};
use support::Project;

const COMPLETE: &str = "<promise>COMPLETE</promise>";

const PLAN: &str = ".ralph/implementation_plan.md";

/// A git repository with specifications, a plan, and the scripted agent `robot`.
fn project(script: &Value) -> Project {
    let project = Project::git();
    project.write("specs/thing.md", "There is a thing.\n").write(PLAN, "- [ ] Make the thing.\n");
    project.install_agent("robot", script);
    project.write(".ralph/config", "AGENT_CLI=robot\n");
    project.settings(&json!({"retry": {"backoffSeconds": 0}}));
    project
}

fn prompts(project: &Project) -> Vec<String> {
    let text = |record: Value| record["prompt"].as_str().unwrap_or_default().to_owned();
    project.agent_starts().into_iter().map(text).collect()
}

fn argv(project: &Project) -> Vec<String> {
    let words = |record: &Value| -> Vec<String> {
        serde_json::from_value(record["argv"].clone()).expect("a list of texts")
    };
    project.agent_starts().iter().map(|record| words(record)[1..].join(" ")).collect()
}

fn logs(project: &Project) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project.path().join(".ralph/logs")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// The only session log, with times and durations as `TIME`.
#[track_caller]
fn log(project: &Project) -> String {
    let names = logs(project);
    let [name] = names.as_slice() else { panic!("one log, not {names:?}") };
    let text = project.read(&format!(".ralph/logs/{name}"));
    let line = |line: &str| match line.split_once(": ") {
        Some((name @ ("Start Time" | "End Time" | "Duration" | "Total Duration"), _)) => {
            format!("{name}: TIME\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}
