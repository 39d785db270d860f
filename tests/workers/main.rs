//! Workers: runs in the background, in a private tmux server.

#[path = "../support/mod.rs"]
mod support;

mod control;
mod crash;
mod foreground;
mod interactive;
mod listing;
mod past_runs;
mod spawn;
mod worktree;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{LONG, Process, Project, Ralph, is_alive, wait_until};

/// A project with its own tmux server, killed on drop.
struct Workshop {
    project: Project,
}

impl std::ops::Deref for Workshop {
    type Target = Project;

    fn deref(&self) -> &Project {
        &self.project
    }
}

impl Workshop {
    fn new() -> Workshop {
        Workshop::named("project")
    }

    fn named(name: &str) -> Workshop {
        let workshop = Workshop { project: Project::named(name) };
        workshop.write("PROMPT.md", "Do the next thing.\n");
        workshop
    }

    fn socket(&self) -> PathBuf {
        self.sibling("tmux.sock")
    }

    fn ralph<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ralph {
        self.project.ralph(args).env("RALPH_TMUX_SOCKET", self.socket())
    }

    /// `ralph spawn --name agent -f PROMPT.md -n N … --`; the agent follows.
    fn spawn(&self, iterations: u32, more: &[&str]) -> Ralph {
        self.spawn_as("agent", iterations, more)
    }

    fn spawn_as(&self, name: &str, iterations: u32, more: &[&str]) -> Ralph {
        let n = iterations.to_string();
        self.ralph(["spawn", "--name", name, "-f", "PROMPT.md", "-n", &n]).args(more).arg("--")
    }

    fn waiting_agent(&self) -> Vec<String> {
        self.fake_agent(&json!([self.wait_step()]))
    }

    fn wait_step(&self) -> Value {
        json!({"wait_for": self.sibling("go")})
    }

    fn release(&self) {
        std::fs::write(self.sibling("go"), "").expect("a file beside the project");
    }

    #[track_caller]
    fn wait(&self) {
        self.ralph(["wait", "agent"]).run().code(0);
    }

    fn kill_loop(&self, name: &str) -> i32 {
        let state = std::fs::read(self.worker(name).join("state.json")).expect("a state");
        let state: Value = serde_json::from_slice(&state).expect("a state that can be read");
        let pid = state["pid"].as_i64().expect("a process number") as i32;
        Process { pid, command: String::new() }.signal(Signal::KILL);
        wait_until(LONG, || !is_alive(pid));
        pid
    }

    fn worker(&self, name: &str) -> PathBuf {
        self.home().join(".ralph/workers").join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.worker("agent").join(name)
    }

    fn state(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(self.file("state.json")).ok()?).ok()
    }

    #[track_caller]
    fn wait_for_state(&self, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(LONG, || {
            last = self.state().unwrap_or_default();
            is_it(&last)
        });
        last
    }

    #[track_caller]
    fn wait_for_status(&self, status: &str) -> Value {
        self.wait_for_state(|state| state["status"] == status)
    }

    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("iterations.log")).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
    }

    fn tmux<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").arg("-S").arg(self.socket()).args(args);
        let output = command.output().expect("tmux, which these tests need");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn windows(&self) -> Vec<String> {
        let text = self.tmux(["list-windows", "-a", "-F", "#{session_name}:#{window_name}"]);
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.tmux(["kill-server"]);
    }
}
