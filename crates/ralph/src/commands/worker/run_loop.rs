//! A worker's loop: the command that its window runs.

use std::ffi::OsString;

use jiff::tz::TimeZone;

use super::worker_files_error;
use crate::cli::args::ProjectArgs;
use crate::launch::{BackgroundRun, LaunchAction, LaunchPlan, ResumedRun};
use crate::project_dir;
use crate::recover::recover_and_notify;
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
    let mut spec = worker.spec()?;
    project_dir::refuse_link_out(&spec.directory)?;
    // tmux started this process elsewhere.
    std::env::set_current_dir(&spec.directory).map_err(|err| {
        let path = spec.directory.display();
        Error::failed(format!("cannot enter the directory {path}: {err}"))
            .hint("restore it, or spawn the worker again from another directory")
    })?;
    // Its settings apply, also in a worktree.
    let home = project_dir::open_project(&ProjectArgs { project_dir: None })?;
    let project = match &spec.worktree {
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
    let notify_command = spec.settings.settings.notify.command.clone();
    let recovery = recover_and_notify(&project, true, || notify_command)?;
    let previous = match worker.load_state() {
        StoredState::State(previous) => Some(previous),
        StoredState::Missing | StoredState::Invalid(_) => None,
    };
    let resume = previous.as_ref().and_then(|previous| resumed_run(&project, previous));
    if resume.is_some() {
        spec.settings.warnings.extend(spec.changed_settings_warning(&worker.spec_path()));
    }
    let mut plan = LaunchPlan::new(&project, spec, LaunchAction::Start, recovery);
    (plan.origin, plan.resume) = (&home, resume);
    let mut spec = plan.run_spec()?;
    let mut state = initial_state(worker, &spec);
    if let Some(previous) = previous {
        // The user may have edited the limit.
        if previous.max_iterations > 0 {
            spec.rules.max_iterations = previous.max_iterations;
        }
        if spec.resumed.is_none() {
            set_progress(spec.resumed.insert(RunState::default()), &previous);
        }
        state = WorkerState {
            status: WorkerStatus::Running,
            worker_name: state.worker_name,
            ..*previous
        };
        state.directory = spec.directory.to_string_lossy().into_owned();
    }
    let tracker = WorkerTracker::new(state, TimeZone::system());
    let interactive = spec.agent.interactive;
    let background = BackgroundRun { worker: worker.clone(), tracker, wake_pipe, interactive };
    plan.preflight_background(spec, Some(background))?.start_or_show()
}

/// For a run whose journal is gone.
fn set_progress(run: &mut RunState, previous: &WorkerState) {
    run.resume.iterations = previous.current_iteration;
    run.resume.failures = previous.consecutive_failures;
}

/// An interrupted iteration counts as used, like a failed one.
fn resumed_run(project: &Project, previous: &WorkerState) -> Option<ResumedRun> {
    let id = previous.run_id.clone()?;
    let dir = project.run_dir(&id);
    if !dir.journal().exists() {
        return None;
    }
    let mut state = ResumeState::load(&dir);
    let point = &mut state.run.resume;
    if point.pending == Pending::Nothing
        && let Some(open) = point.open.take()
    {
        point.iterations = point.iterations.max(open.iteration);
    }
    if state.is_lost {
        set_progress(&mut state.run, previous);
    }
    Some(ResumedRun { id, state })
}
