//! One failure, from the service to the end of the run.

use serde_json::{Value, json};

use crate::Facts;
use crate::real::RealAgent;
use crate::support::{Events, Output, Project};

pub(crate) const DONE: &str = "<response>DONE</response>";
pub(crate) const PROMPT: &str =
    "--version: say <response>DONE</response> when you are done with it.";

pub(crate) struct Case {
    pub(crate) agent: &'static str,
    pub(crate) turns: Value,
    pub(crate) settings: Value,
    pub(crate) flags: &'static [&'static str],
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// Files in the agent's home that replace its usual ones.
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) classes: &'static [&'static str],
    pub(crate) exit: i32,
    pub(crate) says: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            agent: "",
            turns: json!([DONE]),
            settings: json!({"retry": {"max": 0, "backoffSeconds": 0.1}}),
            flags: &[],
            env: &[],
            files: &[],
            classes: &["answered"],
            exit: 0,
            says: "",
        }
    }
}

/// Claude retries ten times by default.
pub(crate) const NO_RETRIES: &[(&str, &str)] = &[("CLAUDE_CODE_MAX_RETRIES", "0")];

impl Case {
    pub(crate) fn check(self) -> Option<(RealAgent, Output, Events)> {
        let real = RealAgent::new(self.agent, |_: &Project| self.turns)?;
        for (name, text) in self.files {
            std::fs::write(real.project.home().join(name), text).expect("a file of the agent's");
        }
        let args = [&["-p", PROMPT, "-n", "2"], Facts::of(self.agent).args].concat();
        // As under a supervisor. An agent that inherited this standard input would wait for its
        // end.
        let mut ralph = real.run_from_settings(&self.settings, &args, self.flags).keep_stdin_open();
        for (name, value) in self.env {
            ralph = ralph.env(name, value);
        }
        let output = ralph.run();
        output.code(self.exit).stdout_has(self.says);
        let events = real.project.events();
        let classes: Vec<&Value> =
            events.all("agent_ended").iter().map(|event| &event["class"]).collect();
        assert_eq!(classes, self.classes, "{}", output.stdout);
        assert_eq!(events.last("run_ended")["iterations"], 1, "nothing of this counts");
        assert_eq!(real.project.processes(), []);
        Some((real, output, events))
    }
}
