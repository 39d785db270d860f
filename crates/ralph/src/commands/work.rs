//! `ralph work`: works through a task list.

use clap::Args;

use crate::config::{LoadedSettings, Settings};
use ralph_driver::run_spec::{GuardrailSpec, PromptSource, RunSpec, TasksSpec, Variables};
use ralph_events::error::Error;
use ralph_events::event::FailAction;
use ralph_store::project::Project;
use ralph_tasks::TaskList;
use ralph_tasks::documents::{Documents, PROMPT, TASKS};
use ralph_tasks::ledger::Ledger;
use ralph_tasks::ledger_store::{self, LedgerPaths};

use super::new::DocumentsArgs;
use super::tasks;
use crate::cli::args::{LoopArgs, PromptArgs};
use crate::launch::{
    self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, TaskListSpec, prompt, rules,
};
use crate::recover::recover;
use crate::task_memory::{ListHistory, TaskMemory};

#[derive(Debug, Default, Args)]
pub struct WorkArgs {
    #[command(flatten)]
    pub place: DocumentsArgs,

    /// Accept the list as it is now, even if stories or checks have disappeared since the last run.
    #[arg(long)]
    pub accept_list: bool,

    #[command(flatten)]
    pub common: LoopArgs,
}

pub fn work(project: &Project, args: &WorkArgs) -> Result<u8, Error> {
    let recovery = recover(project, &args.common)?;
    let loaded = launch::load_settings(project, &args.common, Vec::new(), Vec::new())?;
    let spec = launch_spec(project, args, loaded)?;
    launch(LaunchPlan::new(project, spec, args.common.action(), recovery))
}

pub(crate) fn launch_spec(
    project: &Project,
    args: &WorkArgs,
    loaded: LoadedSettings,
) -> Result<LaunchSpec, Error> {
    let documents = args.place.documents(project);
    let prompt = prompt_source(&documents, &args.common.prompt)?;
    let command = LoopCommand::Work;
    let mut spec = LaunchSpec::new(command, project, &args.common, None, loaded, prompt)?;
    let directory = documents.dir().to_owned();
    spec.task_list = Some(TaskListSpec { directory, accepted: args.accept_list });
    Ok(spec)
}

pub(super) fn launch(mut plan: LaunchPlan<'_>) -> Result<u8, Error> {
    if plan.action == LaunchAction::PrintPrompt {
        return plan.print_prompt(Some(&Variables::RunFigures));
    }
    let is_new = plan.resume.is_none();
    let state = ListState::load(&plan)?;
    let warnings = state.warnings(&plan);
    plan.spec.settings.warnings.extend(warnings);
    let guardrails = work_guardrails(plan.settings(), &state.memory.ledger);
    if guardrails.is_empty() {
        if is_new && state.needs_no_agent() {
            return state.print_nothing_to_do();
        }
        plan.spec.settings.warnings.push(format!(
            "nothing verifies the work: {} has no verifyCommands, and the settings have no \
             guardrails",
            state.name
        ));
    }
    let spec = plan.run_spec()?;
    if plan.action == LaunchAction::Start && is_new {
        ledger_store::prune(state.paths.dir(), plan.settings().runs.keep as usize);
    }
    let (tasks, variables) = (Some(state.into_spec()), Some(Variables::RunFigures));
    plan.preflight(RunSpec { guardrails, tasks, variables, ..spec })?.start_or_show()
}

/// The task list at the start of a run, and what earlier runs remember of it.
struct ListState {
    documents: Documents,
    name: String,
    paths: LedgerPaths,
    list: TaskList,
    memory: TaskMemory,
    /// By `--accept-list`.
    accepted: bool,
    complete: bool,
    is_clean: bool,
}

impl ListState {
    fn load(plan: &LaunchPlan<'_>) -> Result<ListState, Error> {
        let project = plan.project;
        let list = plan.spec.task_list.as_ref();
        let directory = list.map(|list| list.directory.as_path());
        let documents = Documents::new(project.root(), directory);
        let history = ListHistory { project, documents: &documents };
        let paths = history.ledger_paths();
        let resume = plan.resume.as_ref();
        // A run interrupted before its first iteration starts anew, with its own ledger if it saved
        // one.
        let is_first_start = resume.is_none_or(|resume| !resume.state.run.resume.has_started());
        let own_run = resume.filter(|it| !is_first_start || paths.read(&it.dir.id).is_ok());
        let has_guardrails = !plan.settings().guardrails.is_empty();
        let accepted = list.is_some_and(|list| list.accepted) && own_run.is_none();
        let loaded = match own_run {
            // Its ledger already includes what was accepted at the start.
            Some(resume) => history.load_run(&resume.dir.id, has_guardrails),
            None if accepted => tasks::read_valid(&documents).map(|list| {
                let memory = TaskMemory::from_list(&list);
                (list, memory)
            }),
            None => history.load(has_guardrails),
        };
        let (list, memory) = loaded.map_err(|err| {
            let saved = "the stories of the last run are in";
            let file = paths.newest_file().map(|path| format!("{saved} {}", path.display()));
            file.into_iter().fold(err, Error::hint)
        })?;
        // A run resumed in mid-iteration continues it even if the list is complete.
        let mut complete = is_first_start && list.is_complete();
        if complete && !memory.changes.losses().is_empty() {
            if resume.is_none() {
                return Err(list_shrunk_error(&documents, &memory));
            }
            complete = false;
        }
        let is_clean = memory.ledger.clone().review(&Ok(list.clone())).findings.is_empty();
        let name = documents.display_path(TASKS);
        Ok(ListState { documents, name, paths, list, memory, accepted, complete, is_clean })
    }

    fn warnings(&self, plan: &LaunchPlan<'_>) -> Vec<String> {
        // The checks of a pending answer run now and judge its marks.
        let resume = plan.resume.as_ref();
        let is_checked =
            resume.is_some_and(|resume| resume.state.run.resume.pending.is_an_answer());
        self.memory.warnings(&self.documents, self.is_clean, is_checked)
    }

    /// True if every story passes and nothing is in doubt.
    fn needs_no_agent(&self) -> bool {
        self.complete && self.is_clean && self.memory.changes.unverified.is_empty()
    }

    fn print_nothing_to_do(&self) -> Result<u8, Error> {
        let ListState { name, paths, list, memory, accepted, .. } = self;
        memory.ledger_problem.iter().for_each(|message| crate::cli::warn(message));
        if *accepted && let Err(err) = paths.accept(&memory.ledger) {
            crate::cli::warn(&format!("cannot save that {name} was accepted: {err}"));
        }
        let n = list.stories.len();
        crate::cli::print(&format!(
            "nothing to do: all {n} stories in {name} pass, and no command verifies them\n"
        ))
    }

    fn into_spec(self) -> TasksSpec {
        TasksSpec {
            path: self.documents.path(TASKS),
            snapshots: Some(self.paths.dir().to_owned()),
            name: self.name,
            list: self.list,
            ledger: self.memory.ledger,
            accepted: self.accepted,
            check_first: self.complete,
        }
    }
}

fn list_shrunk_error(documents: &Documents, memory: &TaskMemory) -> Error {
    let (name, source) = (documents.display_path(TASKS), memory.source());
    let losses = memory.changes.losses().join("; ");
    let accept = documents.command_line("ralph work --accept-list");
    Error::input(format!(
        "every story in {name} passes, but the list has changed since {source}: {losses}"
    ))
    .hint(format!("to accept the list: {accept}"))
    .hint("or restore what was removed, for example from git")
}

fn work_guardrails(settings: &Settings, ledger: &Ledger) -> Vec<GuardrailSpec> {
    let mut guardrails = rules::guardrail_specs(settings);
    for command in ledger.verify_commands() {
        if !guardrails.iter().any(|guardrail| guardrail.command == *command) {
            guardrails.push(GuardrailSpec {
                command: command.clone(),
                fail_action: FailAction::Append,
                hint: None,
                timeout_ms: None,
            });
        }
    }
    guardrails
}

fn prompt_source(documents: &Documents, args: &PromptArgs) -> Result<PromptSource, Error> {
    if args.is_given() {
        return prompt::prompt_source(args);
    }
    let path = documents.path(PROMPT);
    if path.symlink_metadata().is_err() {
        return Ok(PromptSource::TaskList(documents.prompt()));
    }
    // The agent can delete this file, which must not end the run.
    Ok(match prompt::prompt_file(&path)? {
        PromptSource::File(path) => {
            PromptSource::FileOrDefault { path, otherwise: documents.prompt() }
        }
        other => other,
    })
}
