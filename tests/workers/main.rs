//! Workers: loops in the background, in a tmux server that belongs to one test.

#[path = "../support/mod.rs"]
mod support;

mod control;
mod crash;
mod interactive;
mod look;
mod spawn;
mod worktree;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use support::{LONG, Project, Ralph, wait_until};

/// A project whose workers have a tmux server of their own, which goes with it.
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
        let workshop = Workshop { project: Project::new() };
        workshop.write("PROMPT.md", "Do the next thing.\n");
        workshop
    }

    fn socket(&self) -> PathBuf {
        self.beside("tmux.sock")
    }

    /// ralph, with that tmux server for its workers.
    fn ralph<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ralph {
        self.project.ralph(args).env("RALPH_TMUX_SOCKET", self.socket())
    }

    /// `ralph spawn --name agent -f PROMPT.md -n N`, to be followed by `--` and an agent.
    fn spawn(&self, iterations: u32, more: &[&str]) -> Ralph {
        let n = iterations.to_string();
        self.ralph(["spawn", "--name", "agent", "-f", "PROMPT.md", "-n", &n]).args(more).arg("--")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home().join(".ralph/workers/agent").join(name)
    }

    /// The worker's state, if it can be read.
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

    /// What `iterations.log` says, without the times.
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
