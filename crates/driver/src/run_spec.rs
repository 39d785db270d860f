//! The description of a run. Loop commands differ only in how they fill it in.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use ralph_agents as agents;
use ralph_agents::filter::FilteredReader;
use ralph_agents::{
    Adapter, AgentInvocation, AgentRequest, OutputReader, PromptVia, ResponseFilter,
};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_engine::rules::{Rules, ScmTaskKind};
use ralph_engine::template;
use ralph_events::env_names;
use ralph_events::event::{FailAction, Isolation, Purpose, RunSetup};
use ralph_events::redact;
use ralph_events::run_state::RunState;
use ralph_git::ScmSpec;
use ralph_store::saved_path;
use ralph_tasks::TaskList;
use ralph_tasks::ledger::Ledger;

#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The command that was used: `run`, `build`, …
    pub command: &'static str,
    pub run_id: String,
    /// The name by which other processes find the run.
    pub name: Option<String>,
    /// Working directory of agent, guardrails and SCM.
    pub directory: PathBuf,
    /// Directory of logs and prompt files.
    pub ralph_dir: PathBuf,
    pub agent: AgentSpec,
    pub isolation: Isolation,
    pub prompt: PromptSource,
    /// A prompt file may be empty.
    pub empty_prompt: bool,
    /// Values for `$NAME` in the prompt.
    pub variables: Option<Variables>,
    /// Files that must exist before each attempt.
    pub required: Vec<RequiredFile>,
    /// Files that must exist at a successful end.
    pub required_outputs: Vec<RequiredFile>,
    /// Candidate settings files, each with its display name.
    pub settings_files: Vec<(PathBuf, String)>,
    /// Begin each prompt with `Iteration X of Y, Z remaining.`
    pub show_iteration_in_prompt: bool,
    pub completion: CompletionRule,
    /// Warning that the prompt never asks for the completion signal.
    pub missing_signal_warning: Option<String>,
    pub guardrails: Vec<GuardrailSpec>,
    /// How much guardrail output goes into the next prompt.
    pub guardrail_output: OutputLimits,
    pub scm: Option<ScmSpec>,
    /// The task list that gates completion.
    pub tasks: Option<TasksSpec>,
    /// Without the parts that follow from `guardrails`, `scm` and `agent`: see [`RunSpec::all_rules`].
    pub rules: Rules,
    /// The completion signal counts even if the agent hangs or fails afterwards.
    pub completion_is_final: bool,
    /// The state of an interrupted run that is resumed.
    pub resumed: Option<RunState>,
    /// Bytes of agent output to record.
    pub journal_bytes: u64,
    /// Shell command for notifications of rate-limit waits and the end.
    pub notify: Option<String>,
    /// Where `ralph ask` leaves questions, if the run takes any.
    pub questions_dir: Option<PathBuf>,
    /// Shell pipeline that formats the agent's output for the terminal.
    pub display_filter: Option<String>,
}

impl RunSpec {
    pub fn setup(&self) -> RunSetup {
        let budget = &self.rules.budget;
        RunSetup {
            agent_version: self.agent.version.clone(),
            checks: self.guardrails.iter().map(|it| it.shown_command().into()).collect(),
            max_cost_usd: budget.cost_usd,
            max_tokens: budget.tokens,
            max_duration_ms: budget.duration_ms,
            isolation: self.isolation.clone(),
            rereads_prompt: matches!(
                self.prompt,
                PromptSource::File(_) | PromptSource::FileOrDefault { .. }
            ),
        }
    }

    pub fn describe_completion(&self) -> String {
        match &self.tasks {
            Some(tasks) => format!("every story of {} passes", tasks.name),
            None => format!("it says {}", self.completion.describe()),
        }
    }

    /// All rules, including those that follow from guardrails, SCM tasks and the agent.
    pub fn all_rules(&self) -> Rules {
        Rules {
            // Without reports of tools, silence may be a running tool.
            silent_model_ms: self.rules.silent_model_ms.filter(|_| self.agent.reports_tools()),
            guardrails: self.guardrails.iter().map(|guardrail| guardrail.timeout_ms).collect(),
            scm: self.scm.as_ref().map(scm_kinds).unwrap_or_default(),
            check_done_ms: self
                .rules
                .check_done_ms
                .filter(|_| self.completion_is_final && self.agent.is_plain_text()),
            notify: self.notify.is_some(),
            ..self.rules.clone()
        }
    }
}

/// Placeholders in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variables {
    /// A template's variables. An unknown name expands to nothing.
    Template {
        /// The command, as `MODE`.
        mode: &'static str,
        /// Values given to the run; a resumed run keeps them.
        given: BTreeMap<String, String>,
        /// Fallback values.
        environment: BTreeMap<String, String>,
    },
    /// The iteration's figures, named as in the agent's environment. Other names stay as they are.
    RunFigures,
}

impl Variables {
    /// Returns the expanded template, and the names without a value.
    pub fn expand(&self, template: &str, iteration: u32, max: u32) -> (String, Vec<String>) {
        let (iteration, max) = (iteration.to_string(), max.to_string());
        let mode = match self {
            Variables::Template { mode, .. } => *mode,
            Variables::RunFigures => {
                let value = |name: &str| match name {
                    env_names::ITERATION => Some(iteration.as_str()),
                    env_names::MAX_ITERATIONS => Some(max.as_str()),
                    _ => None,
                };
                return (template::substitute_known(template, value), Vec::new());
            }
        };
        let own = [("MODE", mode), ("ITERATION", &iteration), ("MAX_ITERATIONS", &max)];
        let mut unknown: Vec<String> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let filled = template::substitute(template, |name| {
            let own = own.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let value = own.or_else(|| self.value(name));
            if value.is_none() && !seen.contains(name) {
                seen.insert(name.to_owned());
                unknown.push(name.to_owned());
            }
            value
        });
        (filled, unknown)
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        match self {
            Variables::Template { given, environment, .. } => {
                given.get(name).or_else(|| environment.get(name)).map(String::as_str)
            }
            Variables::RunFigures => None,
        }
    }

    pub fn missing_values_warning(unknown: &[String]) -> Option<String> {
        const MAX_NAMED_VARIABLES: usize = 10;
        let mut names: Vec<String> =
            unknown.iter().take(MAX_NAMED_VARIABLES).map(|name| format!("${{{name}}}")).collect();
        let last = match unknown.len().saturating_sub(MAX_NAMED_VARIABLES) {
            0 => names.pop()?,
            more => format!("{more} more"),
        };
        Some(if names.is_empty() {
            format!("the prompt uses {last}, which has no value and is left empty")
        } else {
            format!(
                "the prompt uses {} and {last}, which have no value and are left empty",
                names.join(", ")
            )
        })
    }
}

pub fn not_utf8_message(path: &Path) -> String {
    format!("{} is not UTF-8; invalid bytes are sent as \u{fffd}", path.display())
}

#[derive(Debug, Clone)]
pub struct AgentSpec {
    pub adapter: &'static dyn Adapter,
    pub program: String,
    /// Read from the installation, without running it.
    pub version: Option<String>,
    /// Single arguments.
    pub flags: Vec<String>,
    pub model: Option<String>,
    pub autonomous: bool,
    /// Runs inside a sandbox.
    pub sandboxed: bool,
    /// Absolute paths that git writes to when it commits.
    pub git_directories: Vec<PathBuf>,
    /// Calls our hook before each tool: see [`AgentSpec::guard`].
    pub has_hook: bool,
    /// Temporary files that the flags name.
    pub files: Vec<Arc<tempfile::TempPath>>,
    pub stream: bool,
    pub prompt_via: Option<PromptVia>,
    pub keep_background: bool,
    /// Variables to set, or to remove.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Replaces the adapter's arguments and `flags`.
    pub args: Option<Vec<String>>,
    /// Extracts the agent's words from its stream, instead of the adapter.
    pub response_filter: Option<ResponseFilter>,
    /// For plain-text agents, standard error counts as output.
    pub stderr_counts_as_output: bool,
    /// The agent has a screen; the prompt is typed there.
    pub interactive: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct AgentLaunch<'a> {
    pub purpose: Purpose,
    pub prompt: &'a str,
    /// Path for a prompt that is passed by file.
    pub prompt_file: &'a Path,
    /// File for results that the agent does not print.
    pub side_file: &'a Path,
}

impl AgentSpec {
    pub fn invocation(&self, errand: AgentLaunch<'_>) -> AgentInvocation {
        let request = AgentRequest {
            program: &self.program,
            flags: &self.flags,
            model: self.model.as_deref(),
            purpose: errand.purpose,
            stream: self.stream,
            autonomous: self.autonomous,
            sandboxed: self.sandboxed,
            git_directories: &self.git_directories,
            prompt_via: self.prompt_via,
            prompt: errand.prompt,
            prompt_file: errand.prompt_file,
            side_file: errand.side_file,
        };
        if self.is_on_terminal(errand.purpose) {
            let flags = self.adapter.profile().interactive_autonomous_flags;
            let mut own: Vec<OsString> = flags.iter().map(Into::into).collect();
            own.extend(self.adapter.writable_dir_flags(&self.git_directories));
            return AgentInvocation::for_terminal(&request, &own, self.args.as_deref());
        }
        let invocation = match &self.args {
            Some(args) => AgentInvocation::verbatim(&request, args),
            None => self.adapter.invocation(&request),
        };
        AgentInvocation { structured: self.is_structured(), ..invocation }
    }

    /// A response filter can read formats that no adapter knows.
    fn is_structured(&self) -> bool {
        self.stream && (self.adapter.name() != "text" || self.response_filter.is_some())
    }

    /// Its work is printed line by line, without a result at the end.
    pub fn is_plain_text(&self) -> bool {
        !self.is_structured() && !self.interactive
    }

    /// Commit messages are requested without a terminal.
    pub fn is_on_terminal(&self, purpose: Purpose) -> bool {
        self.interactive && purpose == Purpose::Work
    }

    pub fn reports_tools(&self) -> bool {
        self.adapter.name() != "text" && self.stream && !self.interactive
    }

    /// Returns a reader for the output; `structured` comes from the invocation.
    pub fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        match &self.args {
            // The adapter knows plain text only for its own arguments.
            Some(_) if !structured => agents::plain_text_reader(),
            _ => self.adapter.reader(structured),
        }
    }

    pub fn response_filter(&self, structured: bool) -> Option<FilteredReader> {
        let is_known = self.adapter.name() != "text";
        let filter = self.response_filter.as_ref().filter(|_| structured)?;
        Some(FilteredReader::new(!is_known, filter.expression()))
    }

    /// Adapter name, or program name for unknown agents.
    pub fn shown_name(&self) -> &str {
        if self.adapter.name() != "text" {
            return self.adapter.name();
        }
        let name = std::path::Path::new(&self.program).file_name();
        name.and_then(std::ffi::OsStr::to_str).unwrap_or(&self.program)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSource {
    Text(String),
    /// Read for each attempt.
    File(#[serde(with = "saved_path")] PathBuf),
    /// Read for each attempt, with a default for a missing or empty file.
    FileOrDefault {
        #[serde(with = "saved_path")]
        path: PathBuf,
        otherwise: String,
    },
    BuiltIn {
        name: Cow<'static, str>,
        text: Cow<'static, str>,
    },
    /// The built-in prompt for a task list, with the list's path.
    TaskList(String),
}

impl PromptSource {
    pub const TASK_PROMPT_NAME: &'static str = "the built-in task list prompt";
}

/// A required file, and the message if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredFile {
    pub file: PathBuf,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardrailSpec {
    pub command: String,
    pub fail_action: FailAction,
    pub hint: Option<String>,
    pub timeout_ms: Option<u64>,
}

impl GuardrailSpec {
    /// The command without secrets.
    pub fn shown_command(&self) -> Cow<'_, str> {
        redact::redact_command(&self.command)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TasksSpec {
    pub path: PathBuf,
    /// Display name of the file.
    pub name: String,
    /// The list at the start of the run.
    pub list: TaskList,
    /// Knowledge of this list, including earlier runs.
    pub ledger: Ledger,
    /// The user accepted the list as it is.
    pub accepted: bool,
    /// Every story passes already: check before starting an agent.
    pub check_first: bool,
    /// Directory of ledgers, outside the agent's reach.
    pub snapshots: Option<PathBuf>,
}

pub fn scm_kinds(scm: &ScmSpec) -> Vec<ScmTaskKind> {
    let kind = |task: &Vec<String>| match task.first().map(String::as_str) {
        Some("commit") => ScmTaskKind::Commit,
        _ => ScmTaskKind::Other,
    };
    scm.tasks.iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_template_variables_are_warned_about_once() {
        let variables = Variables::Template {
            mode: "plan",
            given: BTreeMap::from([("A".to_owned(), "a".to_owned())]),
            environment: BTreeMap::new(),
        };
        let told =
            |template: &str| Variables::missing_values_warning(&variables.expand(template, 1, 2).1);
        assert_eq!(told("$A"), None);
        assert!(told("$X $X").unwrap().starts_with("the prompt uses ${X}, which has no value"));
        let two = told("$X $Y").unwrap();
        assert!(two.starts_with("the prompt uses ${X} and ${Y}, which have no value"), "{two}");
        // Comparing each name with all others took minutes.
        let many: String = (0..200_000).map(|n| format!("$X{n} ")).collect();
        let many = told(&many.repeat(2)).unwrap();
        assert!(many.contains("${X9} and 199990 more, which have no value"), "{many}");
    }

    #[test]
    fn scm_task_kinds_distinguish_commit_from_others() {
        let tasks = ["commit", "push"].map(|word| vec![word.to_owned()]).to_vec();
        let scm = ScmSpec { program: "git".to_owned(), tasks, paths: Vec::new() };
        assert_eq!(scm_kinds(&scm), [ScmTaskKind::Commit, ScmTaskKind::Other]);
    }
}
