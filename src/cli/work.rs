//! `ralph work`: works a task list off.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::Loaded;
use crate::config::settings::SandboxBackend;
use crate::core::completion::Rule;
use crate::core::event::FailAction;
use crate::core::tasks::TaskList;
use crate::core::tasks::ledger::Ledger;
use crate::core::tasks::since::{self, Since};
use crate::core::tasks::verdict;
use crate::error::Error;
use crate::run::spec::{GuardrailSpec, PromptSource, RunSpec, TasksSpec, Variables};
use crate::state::documents::{Documents, PROMPT, TASKS};
use crate::state::project::Project;
use crate::state::{home, snapshots};

use super::args::{CompletionArgs, LoopArgs, PromptArgs};
use super::launch::{self, Defaults, Start, prompt, rules};
use super::new::DocumentsArgs;
use super::tasks;

pub(super) const EXAMPLES: &str = "\
Examples:
  Work off the stories in ralph/tasks.json with claude, one an iteration:
    ralph work -n 20

  With another agent, and a list that is somewhere else:
    ralph work --ralph-dir loops/billing -- codex

It is done when every story passes and so does every command in verifyCommands, whether or not the agent
says so. A list that is done already is verified first.";

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

    /// Take the list as it is now, whatever the last run remembers of it.
    #[arg(long)]
    pub accept_list: bool,

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
    let mut loaded = launch::load(project, &args.common, Vec::new(), Vec::new())?;
    let documents = args.place.of(project);
    let prompt = prompt_source(&documents, args)?;
    if args.common.print_prompt {
        let start = Start {
            project,
            origin: project,
            args: &args.common,
            defaults: &DEFAULTS,
            loaded: &loaded,
        };
        return start.print_prompt(&prompt, Some(&Variables::Figures));
    }
    let name = documents.shown(TASKS);
    let home = home::ralph_home(|name| std::env::var_os(name));
    let places = home.map_or_else(Vec::new, |home| {
        snapshots::directories(&home, project.root(), &documents.path(TASKS))
    });
    let snapshots = places.first().cloned();
    let resume = args.common.resume.as_ref();
    // One that was left before its first iteration begins as if for the first time, by what it remembers, if it has
    // come to remember anything.
    let begins = resume.is_none_or(|resume| !resume.left.progress.has_begun());
    let own = resume.filter(|it| !begins || snapshots::read(&places, &it.run).is_ok());
    // What was accepted when the run began is part of what it remembers.
    let known = if args.accept_list && own.is_none() { &[][..] } else { &places[..] };
    let has_guardrails = !loaded.settings.guardrails.is_empty();
    let (list, memory) = match own {
        Some(resume) => recall_own(&documents, known, &resume.run, has_guardrails),
        None => recall(&documents, known, has_guardrails),
    }
    .map_err(|err| match snapshots::newest(&places) {
        Some(path) => err.hint(format!(
            "what its stories were when the last run saw them is in {}",
            path.display()
        )),
        None => err,
    })?;
    // A run that goes on in the middle has an iteration to do, whatever its list says.
    let mut complete = begins && list.is_complete();
    if complete && !memory.since.losses().is_empty() {
        if resume.is_none() {
            return Err(less_than_it_was(&documents, &memory));
        }
        complete = false;
    }
    let is_clean = memory.ledger.clone().review(&Ok(list.clone())).findings.is_empty();
    // What an agent marked that answered is judged by the checks of its answer, which are run now.
    let is_checked = resume.is_some_and(|resume| resume.left.progress.pending.is_an_answer());
    loaded.warnings.extend(memory.told(&documents, is_clean, is_checked));
    let Memory { ledger, since, .. } = memory;
    let guardrails = guardrails(&loaded, &ledger);
    let is_idle = complete && is_clean && since.doubtful.is_empty() && guardrails.is_empty();
    if is_idle && resume.is_none() {
        if let Some(err) = snapshots.as_deref().and_then(snapshots::unkeepable) {
            super::warn(&format!(
                "what runs remember of {name} cannot be kept ({err}): a story that an agent has dropped is not missed"
            ));
        }
        let n = list.stories.len();
        return super::print(&format!(
            "nothing to do: all stories of {name} pass ({n} of {n}), and there is no command that verifies it\n"
        ));
    }
    if guardrails.is_empty() {
        loaded.warnings.push(format!(
            "no command verifies the work: {name} has no verifyCommands and the settings have no \
             guardrails, so that the agent's word is all there is"
        ));
    }
    let usual = || Ok(Rule::Promise(PROMISE.to_owned()));
    let completion = rules::completion(&args.completion, usual)?;
    let start = Start {
        project,
        origin: project,
        args: &args.common,
        defaults: &DEFAULTS,
        loaded: &loaded,
    };
    let spec = start.spec(prompt, completion)?;
    let keep = loaded.settings.runs.keep as usize;
    if let Some(snapshots) = snapshots.as_ref().filter(|_| !args.common.dry_run && resume.is_none())
    {
        snapshots::prune(snapshots, keep);
    }
    let tasks = TasksSpec {
        path: documents.path(TASKS),
        name,
        list,
        ledger,
        check_first: complete,
        snapshots,
    };
    let variables = Some(Variables::Figures);
    start.carry_out(RunSpec { guardrails, tasks: Some(tasks), variables, ..spec })
}

/// Whether a story was in the list when a run last saw it.
pub(super) fn has_seen(project: &Project, documents: &Documents, id: &str) -> bool {
    remembered(project, documents).is_some_and(|(_, ledger)| ledger.has_seen(id))
}

/// What the last run knows of the list, and which run that is.
fn remembered(project: &Project, documents: &Documents) -> Option<(String, Ledger)> {
    let home = home::ralph_home(|name| std::env::var_os(name))?;
    let places = snapshots::directories(&home, project.root(), &documents.path(TASKS));
    snapshots::last(&places).ok()?
}

/// How many stories are gone from the list that it owes by what the last run knows.
pub(super) fn gone(project: &Project, documents: &Documents, list: &TaskList) -> usize {
    let Some((_, ledger)) = remembered(project, documents) else { return 0 };
    let review = ledger.after(list, true).0.review(&Ok(list.clone()));
    review.progress.map_or(0, |progress| progress.total - list.stories.len())
}

/// What the last run knows that speaks against a list of which every story is marked as passing.
pub(super) fn doubts(project: &Project, documents: &Documents, list: &TaskList) -> Option<String> {
    let (run, ledger) = remembered(project, documents)?;
    let (mut ledger, since) = ledger.after(list, true);
    let mut against = since.losses();
    let review = ledger.review(&Ok(list.clone()));
    let vetoes = review.findings.iter().filter(|it| it.vetoes()).map(ToString::to_string);
    against.extend(vetoes);
    if !review.unverified.is_empty() {
        against.push(format!("no check has passed on {}", since::few(&review.unverified)));
    }
    let few = verdict::first_few(&against);
    (!few.is_empty()).then(|| format!("by what run {run} knows, the work is not complete: {few}"))
}

/// What is known of a list when a run begins.
struct Memory {
    ledger: Ledger,
    since: Since,
    /// The run that knew it.
    run: Option<String>,
    /// What it knew cannot be read.
    lost: Option<String>,
}

/// Reads the list, and finds what the last run of it remembers, in `directories`. `has_guardrails`: those of
/// the settings prove something, too.
fn recall(
    documents: &Documents,
    directories: &[PathBuf],
    has_guardrails: bool,
) -> Result<(TaskList, Memory), Error> {
    let list = tasks::read_whole(documents)?;
    let memory = match snapshots::last(directories) {
        Ok(None) => Memory::fresh(&list),
        Ok(Some((run, ledger))) => Memory::of(run, ledger, &list, has_guardrails),
        Err(err) => {
            let lost = format!(
                "what the last run remembered of {} cannot be read, in {}: {err}",
                documents.shown(TASKS),
                directories.first().map_or(Path::new(""), PathBuf::as_path).display()
            );
            Memory::lost(&list, lost)
        }
    };
    Ok((list, memory))
}

/// The same for a run that goes on, by what it remembers itself. What is wrong with a list in the middle of
/// a run is told to its agent.
fn recall_own(
    documents: &Documents,
    directories: &[PathBuf],
    run: &str,
    has_guardrails: bool,
) -> Result<(TaskList, Memory), Error> {
    let Ok(ledger) = snapshots::read(directories, run) else {
        let list = tasks::read_whole(documents)?;
        let lost = format!(
            "what this run remembered of {} is gone, so that a story that its agent has dropped is not \
             missed",
            documents.shown(TASKS)
        );
        let memory = Memory::lost(&list, lost);
        return Ok((list, memory));
    };
    Ok(match tasks::read(documents) {
        Ok(list) => {
            let memory = Memory::of(run.to_owned(), ledger.reopened(), &list, has_guardrails);
            (list, memory)
        }
        Err(_) => {
            let list = ledger.list();
            (
                list,
                Memory { ledger, since: Since::default(), run: Some(run.to_owned()), lost: None },
            )
        }
    })
}

impl Memory {
    /// Nothing is known but the list.
    fn fresh(list: &TaskList) -> Memory {
        Memory { ledger: Ledger::new(list), since: Since::default(), run: None, lost: None }
    }

    /// What was known cannot be read, as this says.
    fn lost(list: &TaskList, message: String) -> Memory {
        let (ledger, since) = Ledger::doubting(list);
        Memory { ledger, since, run: None, lost: Some(message) }
    }

    /// What a run knew, and what became of the list since.
    fn of(run: String, ledger: Ledger, list: &TaskList, has_guardrails: bool) -> Memory {
        let has_checks = has_guardrails || !ledger.verify_commands().is_empty();
        let (ledger, since) = ledger.after(list, has_checks);
        Memory { ledger, since, run: Some(run), lost: None }
    }

    /// What there is to say of it before a run begins.
    fn told(&self, documents: &Documents, is_clean: bool, is_checked: bool) -> Vec<String> {
        let name = documents.shown(TASKS);
        let run = self.run.as_deref().unwrap_or_default();
        let judged = (!is_clean).then(|| {
            format!(
                "{name} is judged by what run {run} knew of it, and has lost some of that; `{}` takes it \
                 as it is",
                documents.command("ralph work --accept-list")
            )
        });
        let changed = self.since.told();
        let changed = (!changed.is_empty())
            .then(|| format!("{name} is not as run {run} left it: {}", changed.join("; ")));
        let doubtful = &self.since.doubtful;
        let doubtful = (!doubtful.is_empty() && !is_checked).then(|| {
            format!(
                "{name}: marked as passing by an iteration that nothing stands behind, so that the agent \
                 is asked to look again: {}",
                since::few(doubtful)
            )
        });
        self.lost.iter().cloned().chain(judged).chain(changed).chain(doubtful).collect()
    }
}

/// Every story passes, but the list has lost something since the last run.
fn less_than_it_was(documents: &Documents, memory: &Memory) -> Error {
    let run = memory.run.as_deref().unwrap_or_default();
    Error::input(format!(
        "every story of {} passes, but it is not as run {run} left it: {}",
        documents.shown(TASKS),
        memory.since.losses().join("; ")
    ))
    .hint(format!(
        "if that is what you mean, say so: {}",
        documents.command("ralph work --accept-list")
    ))
    .hint("if not, put back what is gone; git may have it")
}

/// The guardrails of the settings, and the commands that verify the stories.
fn guardrails(loaded: &Loaded, ledger: &Ledger) -> Vec<GuardrailSpec> {
    let mut guardrails = rules::guardrails(&loaded.settings);
    for command in ledger.verify_commands() {
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
    guardrails
}

/// What was said on the command line, or the prompt among the documents, or ralph's own.
fn prompt_source(documents: &Documents, args: &WorkArgs) -> Result<PromptSource, Error> {
    if args.prompt.prompt.is_some() || args.prompt.prompt_file.is_some() {
        return prompt::source(&args.prompt, &args.common);
    }
    let path = documents.path(PROMPT);
    if path.symlink_metadata().is_err() {
        return Ok(PromptSource::OfTasks(documents.prompt()));
    }
    // The agent can reach it, and must not be able to end the run by that.
    Ok(match prompt::file(&path, &args.common)? {
        PromptSource::File(path) => PromptSource::FileOr { path, otherwise: documents.prompt() },
        other => other,
    })
}
