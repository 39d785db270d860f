//! The loop of a worker, which is the command of its window.

use std::ffi::OsString;

use clap::Parser;
use jiff::tz::TimeZone;

use super::{SpawnArgs, defaults, unusable};
use crate::cli::{Cli, Command};
use crate::config::Loaded;
use crate::launch::{self, Background, Start, prompt, rules};
use crate::project_dir;
use crate::workers::store::{Known, Worker, Workers};
use ralph_driver::resume::ResumeState;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_events::progress::{Pending, ResumePoint};
use ralph_process as process;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_store::project::Project;
use ralph_store::runs::RunDir;

/// What the terminal says of itself, and what workers do not share with whoever spawned them.
const OF_THE_WINDOW: [&str; 6] =
    ["TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "COLORTERM"];

/// # Errors
/// Whatever keeps the loop from starting. Whoever waits for it is told, too.
pub fn run_loop(name: &str) -> Result<u8, Error> {
    let worker = Workers::of_user()?.find(name)?;
    become_whoever_spawned(&worker)?;
    start(&worker).inspect_err(|error| worker.leave_failure(error))
}

/// Takes the environment over that was left for this process, by being started again in it.
fn become_whoever_spawned(worker: &Worker) -> Result<(), Error> {
    let Some(variables) = worker.take_environment() else { return Ok(()) };
    let mut env: Vec<(OsString, OsString)> = variables
        .into_iter()
        .filter(|(name, _)| !OF_THE_WINDOW.contains(&name.as_str()))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    for name in OF_THE_WINDOW {
        env.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let failed = |err: std::io::Error| {
        let error = Error::failed(format!("cannot start ralph again: {err}"));
        worker.leave_failure(&error);
        error
    };
    let program = std::env::current_exe().map_err(failed)?;
    Err(failed(process::exec(&program.into(), &args, Some(env))))
}

/// What was said to `ralph spawn`, as a run.
pub(super) fn spec(start: &Start<'_>, args: &SpawnArgs) -> Result<RunSpec, Error> {
    // Here a prompt that is not there is a command that could not be carried out.
    let prompt = prompt::source_or_empty(&args.prompt, &args.common, true)
        .map_err(|err| Error { kind: ralph_events::error::ErrorKind::Failed, ..err })?;
    let completion = rules::completion(&args.completion, || Ok(CompletionRule::Never))?;
    let mut spec = start.spec(prompt, completion)?;
    spec.agent.interactive = args.interactive;
    Ok(spec)
}

/// A worker that has not done anything yet.
fn new_state(worker: &Worker, spec: &RunSpec) -> WorkerState {
    WorkerState {
        worker_name: worker.name.clone(),
        prompt_file: match &spec.prompt {
            PromptSource::File(path) => path.to_string_lossy().into_owned(),
            _ => String::new(),
        },
        done_pattern: match &spec.completion {
            CompletionRule::Pattern(regex) => Some(regex.as_str().to_owned()),
            _ => None,
        },
        inactivity_timeout: spec.rules.inactivity_ms.unwrap_or(0) / 1000,
        directory: spec.directory.to_string_lossy().into_owned(),
        interactive: spec.agent.interactive,
        ..WorkerState::default()
    }
}

fn start(worker: &Worker) -> Result<u8, Error> {
    let launch = worker.launch()?;
    project_dir::refuse_link_out(&launch.directory)?;
    std::env::set_current_dir(&launch.directory).map_err(|err| {
        let path = launch.directory.display();
        Error::failed(format!("cannot enter the directory {path}: {err}"))
            .hint("restore it, or spawn the worker again from another directory")
    })?;
    let mut parsed = Cli::try_parse_from(&launch.args)
        .map_err(|err| Error::failed(format!("{}: {err}", worker.name)))?;
    project_dir::name_from_there(&parsed.place, &mut parsed.command);
    let Command::Spawn(mut args) = parsed.command else {
        return Err(Error::failed(format!("worker '{}' was not spawned", worker.name)));
    };
    // Where it was spawned, whose settings hold.
    let home = project_dir::project(&parsed.place)?;
    let project = match launch.worktree {
        Some(worktree) if worktree.directory.is_dir() => {
            project_dir::refuse_link_out(&worktree.directory)?;
            project_dir::opened(worktree.directory)
        }
        Some(worktree) => {
            let path = worktree.directory.display();
            return Err(Error::failed(format!("its worktree is gone: {path}")).hint(format!(
                "ralph kill {0}, then ralph rm {0}, and spawn it again",
                worker.name
            )));
        }
        None => home.clone(),
    };
    let _held = worker
        .become_it()
        .map_err(|_| Error::failed(format!("worker '{}' is running already", worker.name)))?;
    let door = worker.open_door().map_err(|err| unusable(worker, &err))?;
    let mut loaded: Loaded =
        launch::load_from(&home, &project, &args.common, Vec::new(), Vec::new())?;
    let before = match worker.known() {
        Known::State(before) => Some(before),
        Known::Nothing | Known::Broken(_) => None,
    };
    // A journal may have been removed with the rest of a work tree, or there never was one.
    let journal = |run: &String| project.runs_dir().join(run).join("events.jsonl").exists();
    let resume = before.as_ref().and_then(|before| before.run_id.clone()).filter(journal);
    let left = resume.as_ref().map(|run| left(&project, run));
    args.common.only_checks = left.as_ref().is_some_and(|it| it.progress.needs_only_checks());
    let start = Start {
        project: &project,
        origin: &home,
        args: &args.common,
        defaults: defaults(&args),
        loaded: &loaded,
    };
    let mut spec = spec(&start, &args)?;
    spec.rules.budget = launch.budget.or(spec.rules.budget);
    let mut state = new_state(worker, &spec);
    let damage = left.as_ref().and_then(|left| left.journal_warning(&spec.rules.budget));
    if let Some(before) = before {
        // Somebody may have changed the limit in the file.
        if before.max_iterations > 0 {
            spec.rules.max_iterations = before.max_iterations;
        }
        spec.progress = Some(match left.filter(|left| !left.is_lost) {
            Some(left) => left.progress,
            None => ResumePoint {
                iterations: before.current_iteration,
                failures: before.consecutive_failures,
                ..ResumePoint::default()
            },
        });
        state = WorkerState {
            status: WorkerStatus::Running,
            worker_name: state.worker_name,
            ..*before
        };
        state.directory = spec.directory.to_string_lossy().into_owned();
    }
    let follower = WorkerTracker::new(state, TimeZone::system());
    let interactive = args.interactive;
    let background = Background { worker: worker.clone(), follower, door, resume, interactive };
    loaded.warnings.extend(damage);
    let start = Start {
        project: &project,
        origin: &home,
        args: &args.common,
        defaults: defaults(&args),
        loaded: &loaded,
    };
    start.carry_out_as(spec, Some(background))
}

/// How far a run had come. Of a worker, an iteration that was cut off is used up as one that failed is.
fn left(project: &Project, run: &str) -> ResumeState {
    let dir = RunDir { id: run.to_owned(), path: project.runs_dir().join(run) };
    let mut left = ResumeState::load(&dir);
    let progress = &mut left.progress;
    if progress.pending == Pending::Nothing
        && let Some(open) = progress.open.take()
    {
        progress.iterations = progress.iterations.max(open.iteration);
    }
    left
}
