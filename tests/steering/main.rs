//! Steering: guidance for a run, and questions of its agents.

#[path = "../support/mod.rs"]
mod support;

mod guidance;
mod questions;

use std::ffi::OsStr;

use serde_json::{Value, json};
use support::{LONG, Output, Project, Ralph, Running, wait_until};

const DONE: &str = "<response>DONE</response>";

/// A project whose agents wait for the test at the end of each session.
struct Scene {
    project: Project,
}

impl std::ops::Deref for Scene {
    type Target = Project;

    fn deref(&self) -> &Project {
        &self.project
    }
}

impl Scene {
    fn new() -> Scene {
        let project = Project::named("docs");
        project.write("PROMPT.md", "Do the next thing.\n");
        Scene { project }
    }

    /// `ralph run` with sessions that are recorded.
    fn run(&self, more: &[&str], sessions: &[Value]) -> Ralph {
        let sessions = self.record_sessions(sessions);
        let agent = self.fake_agent(&json!({"sessions": sessions}));
        self.ralph(["run", "-f", "PROMPT.md", "-n", "9"]).args(more).arg("--").args(agent)
    }

    /// Steps of a session that waits for [`Scene::release`] with this name.
    fn until(&self, name: &str) -> Value {
        json!([{"print": "at work"}, {"wait_for": self.sibling(name)}])
    }

    fn done(&self) -> Value {
        json!([{"print": DONE}])
    }

    fn release(&self, name: &str) {
        std::fs::write(self.sibling(name), "").expect("a file beside the project");
    }

    /// From another directory.
    fn there<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.ralph(args).current_dir(self.home()).run()
    }

    fn prompts(&self) -> Vec<String> {
        let text = |start: Value| start["prompt"].as_str().unwrap_or_default().to_owned();
        self.agent_starts().into_iter().map(text).collect()
    }

    #[track_caller]
    fn wait_for_starts(&self, count: usize) {
        wait_until(LONG, || self.agent_starts().len() >= count);
    }

    #[track_caller]
    fn wait_for_events(&self, kind: &str, count: usize) {
        wait_until(LONG, || self.events().all(kind).len() >= count);
    }

    fn kill(run: Running) {
        run.signal(rustix::process::Signal::KILL);
        run.wait();
    }

    /// The names of the texts that each prompt carries.
    fn carried(&self, texts: &[&str]) -> Vec<Vec<String>> {
        let in_prompt = |prompt: &String| {
            let mut found: Vec<(usize, &str)> =
                texts.iter().filter_map(|text| Some((prompt.find(text)?, *text))).collect();
            found.sort_unstable();
            found.into_iter().map(|(_, text)| text.to_owned()).collect()
        };
        self.prompts().iter().map(in_prompt).collect()
    }
}
