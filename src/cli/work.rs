//! `ralph work`: works a task list off.

use std::path::Path;

use clap::Args;

use crate::config::settings::SandboxBackend;
use crate::core::completion::Rule;
use crate::core::event::FailAction;
use crate::core::tasks::ledger::Ledger;
use crate::error::Error;
use crate::run::spec::{GuardrailSpec, PromptSource, RunSpec, TasksSpec, Variables};
use crate::state::documents::{Documents, PROMPT, TASKS};
use crate::state::project::Project;
use crate::state::{home, snapshots};

use super::launch::{self, Defaults, Start, prompt, rules};
use super::new::DocumentsArgs;
use super::{CompletionArgs, LoopArgs, PromptArgs, tasks};

pub(super) const EXAMPLES: &str = "\
Examples:
  Work off the stories in ralph/tasks.json with claude, one an iteration:
    ralph work -n 20

  With another agent, and a list that is somewhere else:
    ralph work --ralph-dir loops/billing -- codex

It is done when every story passes, whether or not the agent says so.";

/// What the agent says when all is done.
const PROMISE: &str = "COMPLETE";

const DEFAULTS: Defaults = Defaults {
    command: "work",
    retry_empty: true,
    agent: Some("claude"),
    gates: true,
    sandbox: SandboxBackend::Auto,
    ..Defaults::RUN
};

#[derive(Debug, Default, Args)]
pub struct WorkArgs {
    #[command(flatten)]
    pub place: DocumentsArgs,

    #[command(flatten)]
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

/// # Errors
/// There is no list, something is wrong with it, or whatever else keeps the run from starting.
pub(super) fn work(project: &Project, args: &WorkArgs) -> Result<u8, Error> {
    let documents = args.place.of(project);
    let name = documents.shown(TASKS);
    let snapshots = home::ralph_home(|name| std::env::var_os(name)).map(|home| home.join("tasks"));
    let resume = args.common.resume.as_ref();
    let ledger = resume.and_then(|resume| remembered(snapshots.as_deref(), &resume.run));
    let list = match (&ledger, tasks::read(&documents)) {
        // What is wrong with a list in the middle of a run is told to its agent.
        (Some(ledger), list) => list.unwrap_or_else(|_| ledger.list()),
        (None, list) => list?,
    };
    if ledger.is_none() {
        let problems = list.problems();
        if !problems.is_empty() {
            return Err(tasks::wrong(&documents, &problems));
        }
    }
    // In the middle of a run nobody has checked that yet.
    if resume.is_none() && list.is_complete() {
        let n = list.stories.len();
        return super::print(&format!("nothing to do: all stories of {name} pass ({n} of {n})\n"));
    }
    let mut loaded = launch::load(project, &args.common, Vec::new(), Vec::new())?;
    if resume.is_some() && ledger.is_none() {
        loaded.warnings.push(format!(
            "what this run remembered of {name} is gone, so that a story that its agent has dropped \
             is not missed"
        ));
    }
    let prompt = prompt_source(&documents, &args.prompt)?;
    let usual = || Ok(Rule::Promise(PROMISE.to_owned()));
    let completion = rules::completion(&args.completion, usual)?;
    let start = Start { project, args: &args.common, defaults: &DEFAULTS, loaded: &loaded };
    if args.common.print_prompt {
        return start.print_prompt(&prompt, Some(&Variables::Figures));
    }
    let spec = start.spec(prompt, completion)?;
    let keep = loaded.settings.runs.keep as usize;
    if let Some(snapshots) = snapshots.as_ref().filter(|_| !args.common.dry_run && resume.is_none())
    {
        snapshots::prune(snapshots, keep);
    }
    let mut guardrails = spec.guardrails;
    let verify = ledger.as_ref().map_or(&list.verify_commands[..], Ledger::verify_commands);
    for command in verify {
        // Twice the same would only take twice as long.
        if !guardrails.iter().any(|guardrail| guardrail.command == *command) {
            guardrails.push(GuardrailSpec {
                command: command.clone(),
                fail_action: FailAction::Append,
                hint: None,
                timeout_ms: None,
            });
        }
    }
    let tasks = TasksSpec { path: documents.path(TASKS), name, list, ledger, snapshots };
    let variables = Some(Variables::Figures);
    start.carry_out(RunSpec { guardrails, tasks: Some(tasks), variables, ..spec })
}

/// What a run that goes on knows of its list.
fn remembered(snapshots: Option<&Path>, run: &str) -> Option<Ledger> {
    snapshots::read(snapshots?, run).ok()
}

/// What was said on the command line, or the prompt among the documents, or ralph's own.
fn prompt_source(documents: &Documents, args: &PromptArgs) -> Result<PromptSource, Error> {
    if args.prompt.is_some() || args.prompt_file.is_some() {
        return prompt::source(args);
    }
    let path = documents.path(PROMPT);
    if path.symlink_metadata().is_ok() {
        return prompt::source(&PromptArgs { prompt: None, prompt_file: Some(path) });
    }
    Ok(PromptSource::Text(documents.prompt()))
}
