//! `ralph spawn`: starts a worker, or undoes everything.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::{SpawnArgs, warn, worker_files_error};
use crate::cli::args::OutputMode;
use crate::executors::tmux::{SESSION_NAME, TmuxExecutor, check_window_free};
use crate::executors::{Executor, Start};
use crate::launch::{self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, prompt};
use crate::recover::{Recovery, recover};
use crate::workers::registry::Workers;
use crate::workers::store::{StoredState, Worker, read_state};
use crate::workers::worktree::Worktree;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_engine::completion::CompletionRule;
use ralph_events::error::{Error, ErrorKind};
use ralph_events::text;
use ralph_git as git;
use ralph_process::Interrupts;
use ralph_report::worker_lines::WorkerState;
use ralph_store::project::Project;
use ralph_store::runs::RunDir;
use serde_json::json;

const MANY_ITERATIONS: u32 = 50;

/// Leaves nothing behind on an error.
pub fn spawn(project: &Project, args: &SpawnArgs) -> Result<u8, Error> {
    let started = SystemTime::now();
    let subject = if args.ralph { "--ralph" } else { "spawn" };
    let required = |flag: &str| {
        Error::failed(format!("{subject} requires {flag}"))
            .hint("ralph spawn --name agent -f PROMPT.md -n 100 -- claude")
    };
    let prompt = &args.common.prompt;
    if !prompt.is_given() {
        return Err(required("--prompt-file"));
    }
    if let Some(path) = &prompt.prompt_file
        && (path == Path::new("-") || path.starts_with("/dev") || path.starts_with("/proc"))
    {
        let message = format!("a background run cannot read its prompt from {}", path.display());
        return Err(Error::failed(message)
            .hint("the prompt is reread in each iteration")
            .hint("write it to a file: -f PROMPT.md"));
    }
    let Some(max_iterations) = args.common.max_iterations else {
        return Err(required("--max-iterations"));
    };
    // Prints the warnings: this process writes no journal.
    drop(recover(project, &args.common)?);
    let spec = launch_spec(project, args)?;
    let plan = LaunchPlan::new(project, spec, args.common.action(), Recovery::default());
    // Report errors here, not in the window.
    let spec = plan.run_spec()?;
    match plan.action {
        LaunchAction::PrintPrompt => return plan.print_prompt(None),
        LaunchAction::DryRun => return plan.preflight(spec)?.start_or_show(),
        LaunchAction::Start | LaunchAction::StartInBackground => {}
    }
    if max_iterations > MANY_ITERATIONS {
        warn("high iteration count (>50) may consume significant resources");
    }
    if matches!(spec.completion, CompletionRule::Never) {
        warn_no_pattern(&spec.prompt);
    }
    let workers = Workers::open_user_dir()?;
    let (worker, held) = match &args.common.name {
        Some(name) => workers.reserve(name)?,
        None => workers.reserve_new()?,
    };
    workers.refuse_if_killed(started)?;
    check_window_free(&worker)?;
    if args.worktree {
        warn_uncommitted(project, &spec);
        warn_missing_copies(project, &plan.settings().worker.copy);
    } else {
        warn_shared_directory(&workers, project)?;
    }
    // From here on there is something to undo. If signals cannot be caught, they kill this process
    // as usual.
    let interrupts = Interrupts::install().ok();
    let branch = args.worktree.then_some(args.branch.as_deref());
    let started = start_in_window(project, &worker, plan.spec, branch, interrupts)?;
    let max_iterations = match started {
        Start::Begun(state) => state.max_iterations,
        Start::Ended(code) => return Ok(code),
    };
    let name = &worker.name;
    // Always iteration 1, even if a quick loop is already further.
    crate::cli::print(&format!(
        "spawned {name} (tmux: {SESSION_NAME}:{name}) [ralph mode: iteration 1/{max_iterations}]\n"
    ))?;
    drop(held);
    if args.wait { super::logs::wait_for(&worker, interrupts) } else { Ok(0) }
}

pub(crate) fn launch_spec(project: &Project, args: &SpawnArgs) -> Result<LaunchSpec, Error> {
    let (command, common) = (LoopCommand::Spawn, &args.common);
    let loaded = launch::load_settings(project, common, Vec::new(), Vec::new())?;
    // A missing prompt exits with 1 here.
    let prompt = prompt::prompt_source_or_empty(&common.prompt, true)
        .map_err(|err| Error { kind: ErrorKind::Failed, ..err })?;
    let spec = LaunchSpec::new(command, project, common, None, loaded, prompt)?;
    Ok(LaunchSpec { interactive: args.interactive, ..spec })
}

/// Opens a window for the run, or undoes everything. `Some(None)` makes a worktree with a new branch.
fn start_in_window(
    project: &Project,
    worker: &Worker,
    mut spec: LaunchSpec,
    branch: Option<Option<&str>>,
    interrupts: Option<Interrupts>,
) -> Result<Start, Error> {
    let failed = |err: io::Error| worker_files_error(worker, &err);
    let previous_files = worker.archive().map_err(failed)?;
    let mut start = || {
        if let Some(branch) = branch {
            warn_submodules(project);
            let copy = &spec.settings.settings.worker.copy;
            let made = Worktree::create(project.root(), &worker.name, branch, copy);
            spec.worktree = Some(made.map_err(|err| {
                let prefix = format!("cannot create a worktree for '{}'", worker.name);
                Error { message: format!("{prefix}: {}", err.message), ..err }
            })?);
        }
        worker.create().and_then(|()| worker.save_spec(&spec)).map_err(failed)?;
        TmuxExecutor.start(worker, interrupts)
    };
    let started = start();
    if let Ok(Start::Begun(_)) = started {
        previous_files.iter().for_each(|files| worker.discard(files));
        return started;
    }
    // Report only the first error.
    let _ = worker.remove();
    if let Some(worktree) = spec.worktree {
        worktree.undo();
    }
    if let Some(previous_files) = previous_files {
        let _ = std::fs::rename(previous_files, &worker.path);
    }
    started
}

/// `--background`: starts a run of another command in a window.
pub(crate) fn start_in_background(project: &Project, mut spec: LaunchSpec) -> Result<u8, Error> {
    let started = SystemTime::now();
    // `--json` is about this answer: people look at the window.
    let is_json = spec.view.output == OutputMode::Json;
    if is_json {
        spec.view.output = OutputMode::Human;
    }
    let workers = Workers::open_user_dir()?;
    let (worker, _held) = match &spec.name {
        Some(name) => workers.reserve_for_run(name)?,
        None => workers.reserve_default(project.root(), None)?,
    };
    workers.refuse_if_killed(started)?;
    check_window_free(&worker)?;
    let interrupts = Interrupts::install().ok();
    let name = &worker.name;
    match start_in_window(project, &worker, spec, None, interrupts)? {
        Start::Begun(state) if is_json => {
            let tmux = format!("{SESSION_NAME}:{name}");
            let started = json!({"name": name, "run_id": state.run_id, "tmux": tmux});
            crate::cli::print(&format!("{started}\n"))
        }
        Start::Begun(_) => crate::cli::print(&format!(
            "started {name} (tmux: {SESSION_NAME}:{name}). Follow it with `ralph logs -f {name}`\n"
        )),
        Start::Ended(code) => Ok(code),
    }
}

/// `resume --background`: moves a run of a terminal that is gone into a window.
pub(crate) fn resume_in_background(
    project: &Project,
    spec: &LaunchSpec,
    run: &RunDir,
) -> Result<u8, Error> {
    let started = SystemTime::now();
    let workers = Workers::open_user_dir()?;
    let last = workers.find_last_by_id(&run.id)?;
    let is_last = last.is_some();
    let (worker, _held) = match last {
        Some(worker) => (worker.clone(), workers.lock(&worker)?),
        None => workers.reserve_default(project.root(), Some(&run.id))?,
    };
    if worker.is_alive() {
        return Err(Error::input(format!("run {} is still active", run.id))
            .hint("wait for it to end, or stop it first"));
    }
    workers.refuse_if_killed(started)?;
    check_window_free(&worker)?;
    let failed = |err: io::Error| worker_files_error(&worker, &err);
    // The name may be that of another run by now.
    let other_files = if is_last { None } else { worker.archive().map_err(failed)? };
    let before = *read_state(&run.state_file()).known().unwrap_or_default();
    let state = WorkerState {
        run_id: Some(run.id.clone()),
        directory: project.root().to_string_lossy().into_owned(),
        command: spec.command.name().to_owned(),
        max_iterations: spec.settings.settings.maximum_iterations.unwrap_or(before.max_iterations),
        foreground: false,
        pid: None,
        ..before.clone()
    };
    let saved = worker.create().and_then(|()| worker.save_spec(spec)).map_err(failed);
    let resumed = saved
        .and_then(|()| worker.claim_and_save(&state))
        .and_then(|()| TmuxExecutor.start(&worker, Interrupts::install().ok()));
    match resumed {
        Ok(Start::Begun(_)) => {
            other_files.iter().for_each(|files| worker.discard(files));
            let name = &worker.name;
            return crate::cli::print(&format!("resumed ralph loop for {name}\n"));
        }
        _ if is_last => {
            // Only the first error is reported.
            let _ = worker.claim_and_save(&before);
        }
        _ => {
            let _ = worker.remove();
            if let Some(files) = other_files {
                let _ = std::fs::rename(files, &worker.path);
            }
        }
    }
    resumed.map(|start| match start {
        Start::Ended(code) => code,
        Start::Begun(_) => 0,
    })
}

fn warn_shared_directory(workers: &Workers, project: &Project) -> Result<(), Error> {
    let here = project.root().to_string_lossy();
    let others: Vec<String> = workers
        .all()?
        .into_iter()
        .filter(|other| {
            matches!(other.load_state(), StoredState::State(state) if state.directory == here)
                && other.is_alive()
        })
        .map(|other| other.name)
        .collect();
    if !others.is_empty() {
        warn(&format!(
            "{} {} in this directory, too, and would change the same files. Use --worktree to \
             separate them",
            others.join(", "),
            if others.len() == 1 { "works" } else { "work" }
        ));
    }
    Ok(())
}

/// The prompt may come from a loop that another command stops.
fn warn_no_pattern(prompt: &PromptSource) {
    let text = match prompt {
        PromptSource::File(path) => std::fs::read_to_string(path).unwrap_or_default(),
        PromptSource::Text(text) => text.clone(),
        _ => return,
    };
    if let Some(tag) = ["<response>", "<promise>"].into_iter().find(|tag| text.contains(tag)) {
        warn(&format!(
            "the prompt mentions {tag}, but `ralph spawn` stops early only with --done-pattern"
        ));
    }
}

/// git leaves submodule directories empty in a new worktree.
fn warn_submodules(project: &Project) {
    let submodules = git::submodules(project.root()).unwrap_or_default();
    if let Some(names) = git::format_file_list(&submodules) {
        warn(&format!(
            "submodules are empty in the worktree: {names}. If the agent needs them, run `git \
             submodule update --init` there"
        ));
    }
}

/// A worktree starts from HEAD, without uncommitted changes.
fn warn_uncommitted(project: &Project, spec: &RunSpec) {
    let prompt = match &spec.prompt {
        PromptSource::File(path) => path.strip_prefix(project.root()).ok().and_then(Path::to_str),
        _ => None,
    };
    let mut files = git::list_uncommitted(project.root()).unwrap_or_default();
    files.retain(|file| Some(file.as_str()) != prompt);
    if !files.is_empty() {
        let files = text::first_few(&files, 1);
        warn(&format!("the worktree starts from HEAD, without your uncommitted changes: {files}"));
    }
}

/// A missing file is a mistake, or a glob pattern, which is not supported.
fn warn_missing_copies(project: &Project, copy: &[String]) {
    let defaults = crate::config::Settings::default().worker.copy;
    for name in copy.iter().filter(|name| !defaults.contains(name)) {
        if project.root().join(name).symlink_metadata().is_err() {
            warn(&format!("worker.copy: {name:?} not found (patterns are not supported)"));
        }
    }
}
