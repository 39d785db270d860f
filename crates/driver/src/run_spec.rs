//! What a run is to do. Every command that loops differs only in how it fills this in.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
use ralph_events::event::{FailAction, Purpose};
use ralph_events::redact;
use ralph_events::run_state::ResumePoint;
use ralph_git::ScmSpec;
use ralph_tasks::TaskList;
use ralph_tasks::ledger::Ledger;

/// One loop, described.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The command that was used: `run`, `build`, …
    pub command: &'static str,
    pub run_id: String,
    /// Where agent, guardrails and SCM work.
    pub directory: PathBuf,
    /// Where logs and prompt files go.
    pub ralph_dir: PathBuf,
    pub agent: AgentSpec,
    pub prompt: PromptSource,
    /// A prompt file may be empty.
    pub empty_prompt: bool,
    /// What the prompt names by `$NAME`, if anything.
    pub variables: Option<Variables>,
    /// What must be there before each attempt.
    pub required: Vec<RequiredFile>,
    /// What must be there at the end, if that is a good one.
    pub required_outputs: Vec<RequiredFile>,
    /// The files that its settings came from, present or not, each with the name to show for it.
    pub settings_files: Vec<(PathBuf, String)>,
    /// Begin each prompt with `Iteration X of Y, Z remaining.`
    pub show_iteration_in_prompt: bool,
    pub completion: CompletionRule,
    /// The warning that the prompt never asks for the signal that completes the run.
    pub missing_signal_warning: Option<String>,
    pub guardrails: Vec<GuardrailSpec>,
    /// How much of a failed guardrail's output goes into the next prompt.
    pub guardrail_output: OutputLimits,
    pub scm: Option<ScmSpec>,
    /// The task list that has a say in completion.
    pub tasks: Option<TasksSpec>,
    /// All but what follows from `guardrails`, `scm` and `agent`: see [`RunSpec::all_rules`].
    pub rules: Rules,
    /// `SIGTERM` is a request to pause; a second one ends the run.
    pub term_pauses: bool,
    /// What completes the run stands once it is said, though the agent then hangs or exits with an error.
    pub completion_is_final: bool,
    /// How far it had come when it was left.
    pub progress: Option<ResumePoint>,
    /// How much of what agents print is recorded, in bytes.
    pub journal_bytes: u64,
    /// A shell command that is told of waits for a limit and of the end.
    pub notify: Option<String>,
    /// A shell pipeline that makes of the agent's output what the terminal shows.
    pub display_filter: Option<String>,
}

impl RunSpec {
    /// What completes the run, in words.
    pub fn describe_completion(&self) -> String {
        match &self.tasks {
            Some(tasks) => format!("every story of {} passes", tasks.name),
            None => format!("it says {}", self.completion.describe()),
        }
    }

    /// The rules with what they have to know of guardrails, SCM tasks and the agent.
    pub fn all_rules(&self) -> Rules {
        Rules {
            // If it is unknown whether a tool is running, a silent one may be.
            silent_model_ms: self.rules.silent_model_ms.filter(|_| self.agent.reports_tools()),
            guardrails: self.guardrails.iter().map(|guardrail| guardrail.timeout_ms).collect(),
            scm: self.scm.as_ref().map(scm_kinds).unwrap_or_default(),
            ..self.rules.clone()
        }
    }
}

/// What stands in a prompt for something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variables {
    /// Those of a template: the run's own, and these. A name without a value is nothing.
    Template {
        /// The command, as `MODE`.
        mode: &'static str,
        /// What the run was given. It stays so if the run is left and goes on.
        given: BTreeMap<String, String>,
        /// For all that it was not given.
        environment: BTreeMap<String, String>,
    },
    /// The iteration's figures, under the names that the agent has in its environment. Every other name
    /// is only text.
    RunFigures,
}

impl Variables {
    /// The template with the values in their places, and the names of those that have none.
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

    /// The value of a name that is not the run's own.
    pub fn value(&self, name: &str) -> Option<&str> {
        match self {
            Variables::Template { given, environment, .. } => {
                given.get(name).or_else(|| environment.get(name)).map(String::as_str)
            }
            Variables::RunFigures => None,
        }
    }

    /// What the run was given.
    pub fn template_values(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Variables::Template { given, .. } => Some(given),
            Variables::RunFigures => None,
        }
    }

    /// What is said of names that have no value.
    ///
    /// Nothing if there are none.
    pub fn missing_values_warning(unknown: &[String]) -> Option<String> {
        const MAX_NAMED_VARIABLES: usize = 10;
        let mut names: Vec<String> =
            unknown.iter().take(MAX_NAMED_VARIABLES).map(|name| format!("${{{name}}}")).collect();
        let last = match unknown.len().saturating_sub(MAX_NAMED_VARIABLES) {
            0 => names.pop()?,
            more => format!("{more} more"),
        };
        Some(if names.is_empty() {
            format!("the prompt names {last}, which has no value, so that nothing stands there")
        } else {
            format!(
                "the prompt names {} and {last}, which have no value, so that nothing stands there",
                names.join(", ")
            )
        })
    }
}

/// What there is to say of a prompt that is not wholly text.
pub fn not_utf8_message(path: &Path) -> String {
    format!("{} is not UTF-8; what is not is sent as \u{fffd}", path.display())
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
    /// It is started inside a sandbox of ours.
    pub sandboxed: bool,
    /// Where git writes when it commits, as absolute paths.
    pub git_directories: Vec<PathBuf>,
    /// It asks our hook before it uses a tool: see [`AgentSpec::guard`].
    pub has_hook: bool,
    /// Files that its flags name, for as long as this is there.
    pub files: Vec<Arc<tempfile::TempPath>>,
    /// Ask for a machine-readable stream.
    pub stream: bool,
    pub prompt_via: Option<PromptVia>,
    pub keep_background: bool,
    /// Variables to set or to take away.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// All arguments, in place of the adapter's own and `flags`.
    pub args: Option<Vec<String>>,
    /// What finds the agent's words in its stream, in place of what the adapter knows.
    pub response_filter: Option<ResponseFilter>,
    /// What it prints on standard error is said, too, where it prints plain text.
    pub stderr_counts_as_output: bool,
    /// It has a screen of its own, and the prompt is typed there.
    pub interactive: bool,
}

/// What one process of the agent is for.
#[derive(Debug, Clone, Copy)]
pub struct AgentLaunch<'a> {
    pub purpose: Purpose,
    pub prompt: &'a str,
    /// Where the prompt is written when it goes by file.
    pub prompt_file: &'a Path,
    /// Where the agent may leave what it does not print.
    pub side_file: &'a Path,
}

impl AgentSpec {
    /// How to start it.
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
            let mut own: Vec<OsString> =
                self.adapter.interactive_autonomous_flags().iter().map(Into::into).collect();
            own.extend(self.adapter.writable_dir_flags(&self.git_directories));
            return AgentInvocation::for_terminal(&request, &own, self.args.as_deref());
        }
        let invocation = match &self.args {
            Some(args) => AgentInvocation::verbatim(&request, args),
            None => self.adapter.invocation(&request),
        };
        // What no adapter understands can be understood by its filter.
        let readable = self.adapter.name() != "text" || self.response_filter.is_some();
        AgentInvocation { structured: self.stream && readable, ..invocation }
    }

    /// A message for a commit is asked for in the usual way.
    pub fn is_on_terminal(&self, purpose: Purpose) -> bool {
        self.interactive && purpose == Purpose::Work
    }

    /// Its stream tells of the tools that it uses.
    pub fn reports_tools(&self) -> bool {
        self.adapter.name() != "text" && self.stream && !self.interactive
    }

    /// Reads what it prints; `structured` is what the invocation said.
    pub fn reader(&self, structured: bool) -> Box<dyn OutputReader> {
        match &self.args {
            // What an adapter knows of plain text is known of the arguments that it chooses itself.
            Some(_) if !structured => agents::plain_text_reader(),
            _ => self.adapter.reader(structured),
        }
    }

    /// What tells which of it the agent said, if not its reader.
    pub fn response_filter(&self, structured: bool) -> Option<FilteredReader> {
        let is_known = self.adapter.name() != "text";
        let filter = self.response_filter.as_ref().filter(|_| structured)?;
        Some(FilteredReader::new(!is_known, filter.expression()))
    }

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
    /// The same, with what is asked instead once it is gone or empty.
    FileOrDefault {
        path: PathBuf,
        otherwise: String,
    },
    /// One that ralph brings along.
    BuiltIn {
        name: &'static str,
        text: &'static str,
    },
    /// The one that ralph brings along for a task list, with the list's place in it.
    TaskList(String),
}

impl PromptSource {
    /// What ralph's own prompt for a task list is called.
    pub const TASK_PROMPT_NAME: &'static str = "the built-in task list prompt";
}

/// A file that a run cannot do without, and what is said when it is not there.
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
    /// The command as it is shown and recorded, without secrets.
    pub fn shown_command(&self) -> Cow<'_, str> {
        redact::redact_command(&self.command)
    }
}

/// A task list to be worked off.
#[derive(Debug, Clone, PartialEq)]
pub struct TasksSpec {
    pub path: PathBuf,
    /// The file as people and agents are told of it.
    pub name: String,
    /// What it held when the run began.
    pub list: TaskList,
    /// What is known of it, from runs before this one too.
    pub ledger: Ledger,
    /// The user took the list as it is, whatever earlier runs know of it.
    pub accepted: bool,
    /// Every story passes by now, so that the work is checked before anybody is asked to do any.
    pub check_first: bool,
    /// Where what is remembered of it is kept, by the run's id: nowhere that the agent works.
    pub snapshots: Option<PathBuf>,
}

/// The kind of each SCM task, as the machine needs to know it.
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
        assert!(told("$X $X").unwrap().starts_with("the prompt names ${X}, which has no value"));
        let two = told("$X $Y").unwrap();
        assert!(two.starts_with("the prompt names ${X} and ${Y}, which have no value"), "{two}");
        // Once more for each, and it took minutes when each was compared with all the others.
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
