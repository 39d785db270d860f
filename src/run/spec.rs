//! What a run is to do. Every command that loops differs only in how it fills this in.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::agent::{Adapter, PromptVia};
use crate::core::completion::Rule;
use crate::core::event::FailAction;
use crate::core::rules::Rules;
use crate::core::tasks::TaskList;

/// One loop, described.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The command that was used: `run`, `build`, …
    pub command: &'static str,
    pub run_id: String,
    /// Where agent, guardrails and SCM work.
    pub directory: PathBuf,
    /// The agent is started inside a sandbox.
    pub sandboxed: bool,
    /// Where logs and prompt files go.
    pub ralph_dir: PathBuf,
    pub agent: AgentSpec,
    pub prompt: PromptSource,
    /// Begin each prompt with `Iteration X of Y, Z remaining.`
    pub iteration_line: bool,
    pub completion: Rule,
    pub guardrails: Vec<GuardrailSpec>,
    /// How many characters of a guardrail's output the agent is told.
    pub output_truncate_chars: usize,
    pub scm: Option<ScmSpec>,
    /// The task list that has a say in completion.
    pub tasks: Option<TasksSpec>,
    /// All but what follows from `guardrails` and `scm`: see [`RunSpec::all_rules`].
    pub rules: Rules,
    /// A shell command that is told of waits for a limit and of the end.
    pub notify: Option<String>,
}

impl RunSpec {
    /// What completes the run, in words.
    pub fn describe_completion(&self) -> String {
        match &self.tasks {
            Some(tasks) => format!("every story of {} passes", tasks.name),
            None => format!("it says {}", self.completion.describe()),
        }
    }

    /// The rules with what they have to know of guardrails and SCM tasks.
    pub fn all_rules(&self) -> Rules {
        Rules {
            guardrails: self.guardrails.iter().map(|guardrail| guardrail.timeout_ms).collect(),
            scm: self.scm.as_ref().map(ScmSpec::kinds).unwrap_or_default(),
            ..self.rules.clone()
        }
    }
}

/// The agent of a run.
#[derive(Debug, Clone)]
pub struct AgentSpec {
    pub adapter: &'static dyn Adapter,
    pub program: String,
    /// Single arguments.
    pub flags: Vec<String>,
    pub model: Option<String>,
    pub autonomous: bool,
    /// Ask for a machine-readable stream.
    pub stream: bool,
    pub prompt_via: Option<PromptVia>,
    pub keep_background: bool,
    /// Variables to set or to take away.
    pub env: Vec<(OsString, Option<OsString>)>,
}

impl AgentSpec {
    /// What people call it: the adapter's name, or that of a program that no adapter knows.
    pub fn shown_name(&self) -> &str {
        if self.adapter.name() != "text" {
            return self.adapter.name();
        }
        let name = std::path::Path::new(&self.program).file_name();
        name.and_then(std::ffi::OsStr::to_str).unwrap_or(&self.program)
    }
}

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptSource {
    Text(String),
    /// Read again for each attempt.
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardrailSpec {
    pub command: String,
    pub fail_action: FailAction,
    pub hint: Option<String>,
    pub timeout_ms: Option<u64>,
}

/// A task list to be worked off.
#[derive(Debug, Clone, PartialEq)]
pub struct TasksSpec {
    pub path: PathBuf,
    /// The file as people and agents are told of it.
    pub name: String,
    /// What it held when the run began.
    pub list: TaskList,
    /// Where what is remembered of it is kept, by the run's id: nowhere that the agent works.
    pub snapshots: Option<PathBuf>,
}

/// Version control after a passing iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScmSpec {
    /// The program, `git` for most.
    pub program: String,
    /// Each task as words: `["commit"]`, `["push", "origin", "main"]`.
    pub tasks: Vec<Vec<String>>,
}
