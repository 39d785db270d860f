//! This process.

use std::ffi::OsString;

use super::{Executor, Start};
use crate::cli::args::{BudgetArgs, ProjectArgs};
use crate::commands::resume;
use crate::launch::{LaunchAction, LaunchPlan, LoopCommand, ResumedRun, Window};
use crate::project_dir;
use crate::recover::recover_and_notify;
use crate::workers::registry::Workers;
use crate::workers::store::Worker;
use crate::workers::worktree::Worktree;
use ralph_driver::resume::ResumeState;
use ralph_events::error::Error;
use ralph_events::run_state::Pending;
use ralph_process::{self as process, Interrupts};
use ralph_report::worker_lines::WorkerState;
use ralph_store::project::Project;

/// These describe the window's terminal, not the one of the process that opened the window.
const WINDOW_VARIABLES: [&str; 6] =
    ["TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "COLORTERM"];

#[derive(Debug, Clone, Copy)]
pub struct LocalExecutor;

impl Executor for LocalExecutor {
    /// Carries out the saved spec, and returns after the end of the run.
    fn start(&self, run: &Worker, _interrupts: Option<Interrupts>) -> Result<Start, Error> {
        let mut spec = run.spec()?;
        if let (None, Some((project, dir))) = (&spec.worktree, run.run()) {
            spec.follow_move(&dir.id, project.root());
        }
        project_dir::refuse_link_out(&spec.directory)?;
        // tmux started this process elsewhere.
        std::env::set_current_dir(&spec.directory).map_err(|err| {
            let path = spec.directory.display();
            Error::failed(format!("cannot enter {path}: {err}"))
                .hint(format!("restore it, or run `ralph resume {}` from its new path", run.name))
        })?;
        let origin = project_dir::open_project(&ProjectArgs { project_dir: None })?;
        let project = match &spec.worktree {
            Some(worktree) => open_worktree(worktree, &run.name)?,
            None => origin.clone(),
        };
        let claim = run
            .claim()
            .map_err(|_| Error::failed(format!("run '{}' is already active", run.name)))?;
        let notify = spec.settings.settings.notify.command.clone();
        let recovery = recover_and_notify(&project, true, || notify)?;
        let previous = run.load_state().known();
        let mut resume = None;
        if let Some(previous) = &previous {
            spec.set_limits(run.edited_limit(), &BudgetArgs::default());
            resume = resumed_run(&project, spec.command, previous)?;
        }
        if resume.is_some() {
            spec.settings.warnings.extend(spec.changed_settings_warning(&run.spec_path()));
        }
        let mut plan = LaunchPlan::new(&project, spec, LaunchAction::Start, recovery);
        (plan.origin, plan.resume) = (&origin, resume);
        plan.window = Some(Window { worker: run.clone(), claim, previous });
        resume::launch(plan).map(Start::Ended)
    }

    fn attach(&self, run: &Worker) -> Result<u8, Error> {
        let name = &run.name;
        Err(Error::failed(format!(
            "run '{name}' is in a terminal: there is no window to attach to"
        ))
        .hint(format!("follow it with `ralph logs -f {name}`")))
    }

    fn close(&self, _run: &Worker) {}
}

fn open_worktree(worktree: &Worktree, name: &str) -> Result<Project, Error> {
    if !worktree.directory.is_dir() {
        let path = worktree.directory.display();
        return Err(Error::failed(format!("worktree is gone: {path}")).hint(format!(
            "remove the worker (ralph kill {name}, ralph rm {name}), then spawn it \
                           again"
        )));
    }
    project_dir::refuse_link_out(&worktree.directory)?;
    project_dir::declare_project(&worktree.directory)
}

/// A worker continues without its journal, and its interrupted iteration counts as used, like a
/// failed one.
fn resumed_run(
    project: &Project,
    command: LoopCommand,
    previous: &WorkerState,
) -> Result<Option<ResumedRun>, Error> {
    let Some(id) = &previous.run_id else { return Ok(None) };
    let dir = project.run_dir(id);
    let mut run = ResumedRun { state: ResumeState::load(&dir), dir };
    if command != LoopCommand::Spawn {
        run.refuse_lost()?;
        return Ok(Some(run));
    }
    if !run.dir.journal().exists() {
        return Ok(None);
    }
    let point = &mut run.state.run.resume;
    if point.pending == Pending::Nothing
        && let Some(open) = point.open.take()
    {
        point.iterations = point.iterations.max(open.iteration);
    }
    if run.state.is_lost {
        previous.add_progress_to(&mut run.state.run);
    }
    Ok(Some(run))
}

/// The command of a window. Tells the process that waits for the start if no run began.
pub fn run_in_window(name: &str) -> Result<u8, Error> {
    let run = Workers::open_user_dir()?.find(name)?;
    exec_with_spawner_env(&run)?;
    let ended = LocalExecutor.start(&run, None).map(|start| match start {
        Start::Ended(code) => code,
        Start::Begun(_) => 0,
    });
    let has_run = run.load_state().known().is_some_and(|state| state.pid.is_some());
    if ended.is_err() || !has_run {
        run.save_early_end(&ended);
    }
    ended
}

/// Restarts itself in the environment of the process that opened the window.
fn exec_with_spawner_env(run: &Worker) -> Result<(), Error> {
    let Some(variables) = run.take_environment() else { return Ok(()) };
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
        let error = Error::failed(format!("cannot restart ralph: {err}"));
        run.save_early_end(&Err(error.clone()));
        error
    };
    let program = std::env::current_exe().map_err(failed)?;
    Err(failed(process::exec(&program.into(), &args, Some(env))))
}
