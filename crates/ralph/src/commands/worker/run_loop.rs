//! A worker's loop: the command that its window runs.

use std::ffi::OsString;

use clap::Parser;
use jiff::tz::TimeZone;

use super::{SpawnArgs, defaults, worker_files_error};
use crate::cli::{Cli, CliCommand};
use crate::launch::{self, BackgroundRun, LaunchPlan, prompt, rules};
use crate::project_dir;
use crate::recover::recover_worktree;
use crate::workers::store::{StoredState, Worker, Workers};
use ralph_driver::resume::ResumeState;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_events::run_state::{Pending, RunState};
use ralph_process as process;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_store::project::Project;

/// These describe the window's terminal, not the spawner's.
const WINDOW_VARIABLES: [&str; 6] =
    ["TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "COLORTERM"];

/// Saves a failure for the process that waits for the start.
pub fn run_loop(name: &str) -> Result<u8, Error> {
    let worker = Workers::open_user_dir()?.find(name)?;
    exec_with_spawner_env(&worker)?;
    start(&worker).inspect_err(|error| worker.save_failure(error))
}

/// Restarts itself in the environment that `spawn` saved.
fn exec_with_spawner_env(worker: &Worker) -> Result<(), Error> {
    let Some(variables) = worker.take_environment() else { return Ok(()) };
    let mut env: Vec<(OsString, OsString)> = variables
        .into_iter()
        .filter(|(name, _)| !WINDOW_VARIABLES.contains(&name.as_str()))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    for name in WINDOW_VARIABLES {
        env.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let failed = |err: std::io::Error| {
        let error = Error::failed(format!("cannot start ralph again: {err}"));
        worker.save_failure(&error);
        error
    };
    let program = std::env::current_exe().map_err(failed)?;
    Err(failed(process::exec(&program.into(), &args, Some(env))))
}

pub(super) fn run_spec(plan: &LaunchPlan<'_>, args: &SpawnArgs) -> Result<RunSpec, Error> {
    // A missing prompt exits with 1 here.
    let prompt = prompt::prompt_source_or_empty(&args.prompt, &args.common, true)
        .map_err(|err| Error { kind: ralph_events::error::ErrorKind::Failed, ..err })?;
    let completion = rules::completion_rule(&args.completion, || Ok(CompletionRule::Never))?;
    let mut spec = plan.spec(prompt, completion)?;
    spec.agent.interactive = args.interactive;
    Ok(spec)
}

fn initial_state(worker: &Worker, spec: &RunSpec) -> WorkerState {
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
    project_dir::resolve_paths_from_project(&parsed.project, &mut parsed.command);
    let CliCommand::Spawn(mut args) = parsed.command else {
        return Err(Error::failed(format!("worker '{}' was not spawned", worker.name)));
    };
    // Its settings apply, also in a worktree.
    let home = project_dir::open_project(&parsed.project)?;
    let project = match launch.worktree {
        Some(worktree) if worktree.directory.is_dir() => {
            project_dir::refuse_link_out(&worktree.directory)?;
            project_dir::declare_project(&worktree.directory)?
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
        .claim()
        .map_err(|_| Error::failed(format!("worker '{}' is running already", worker.name)))?;
    let wake_pipe = worker.create_wake_pipe().map_err(|err| worker_files_error(worker, &err))?;
    let recovery = recover_worktree(&project, &home, &args.common)?;
    let loaded = launch::load_settings(&home, &args.common, Vec::new(), Vec::new())?;
    let previous = match worker.load_state() {
        StoredState::State(previous) => Some(previous),
        StoredState::Missing | StoredState::Invalid(_) => None,
    };
    let journal = |run: &String| project.run_dir(run).journal().exists();
    let resume = previous.as_ref().and_then(|previous| previous.run_id.clone()).filter(journal);
    let resume_state = resume.as_ref().map(|run| load_resume_state(&project, run));
    args.common.only_checks =
        resume_state.as_ref().is_some_and(|it| it.run.resume.needs_only_checks());
    let mut plan = LaunchPlan::new(&project, &args.common, defaults(&args), loaded, recovery)
        .with_origin(&home);
    let mut spec = run_spec(&plan, &args)?;
    spec.rules.budget = launch.budget.or(spec.rules.budget);
    let mut state = initial_state(worker, &spec);
    let damage = resume_state
        .as_ref()
        .and_then(|resume_state| resume_state.journal_warning(&spec.rules.budget));
    if let Some(previous) = previous {
        // The user may have edited the limit.
        if previous.max_iterations > 0 {
            spec.rules.max_iterations = previous.max_iterations;
        }
        spec.resumed = Some(match resume_state.filter(|resume_state| !resume_state.is_lost) {
            Some(resume_state) => resume_state.run,
            None => {
                let mut state = RunState::default();
                state.resume.iterations = previous.current_iteration;
                state.resume.failures = previous.consecutive_failures;
                state
            }
        });
        state = WorkerState {
            status: WorkerStatus::Running,
            worker_name: state.worker_name,
            ..*previous
        };
        state.directory = spec.directory.to_string_lossy().into_owned();
    }
    let tracker = WorkerTracker::new(state, TimeZone::system());
    let interactive = args.interactive;
    let background =
        BackgroundRun { worker: worker.clone(), tracker, wake_pipe, resume, interactive };
    plan.settings.warnings.extend(damage);
    plan.preflight_background(spec, Some(background))?.start_or_show()
}

/// An interrupted iteration counts as used, like a failed one.
fn load_resume_state(project: &Project, run: &str) -> ResumeState {
    let mut state = ResumeState::load(&project.run_dir(run));
    let point = &mut state.run.resume;
    if point.pending == Pending::Nothing
        && let Some(open) = point.open.take()
    {
        point.iterations = point.iterations.max(open.iteration);
    }
    state
}
