//! `ralph serve`: the HTTP surface, and pages in a real browser.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod api;
mod browser;
mod hostile;
mod http;
mod limits;
mod start;

use serde_json::{Value, json};
use support::{Project, Running};

/// A run whose agent waits until the test lets it go on.
pub(crate) fn start_waiting_run(project: &Project) -> Running {
    let go = project.sibling("go");
    let agent = project.fake_agent(&json!([
        {"print": "hello from the agent"},
        {"wait_for": go},
        {"print": "<response>DONE</response>"},
    ]));
    project.ralph(["run", "--name", "waiting", "-n", "3", "-p", "do it", "--"]).args(agent).start()
}

pub(crate) fn let_it_end(project: &Project) {
    std::fs::write(project.sibling("go"), "").expect("the file that the agent waits for");
}

/// Is a line of the agent.
pub(crate) fn is_output(event: &Value, text: &str) -> bool {
    ["text", "output"].contains(&event["event"].as_str().unwrap_or_default())
        && event["text"].as_str().is_some_and(|it| it.contains(text))
}
