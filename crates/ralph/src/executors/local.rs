//! This process.

use std::ffi::OsString;

use super::{Executor, Start};
use crate::cli::args::{BudgetArgs, ProjectArgs};
use crate::commands::resume::{self, ResumeArgs};
use crate::commands::worker;
use crate::launch::{LaunchAction, LaunchPlan, LoopCommand};
use crate::project_dir;
use crate::recover::recover_and_notify;
use crate::workers::registry::Workers;
use crate::workers::store::{StoredState, Worker};
use crate::workers::worktree::Worktree;
use ralph_events::error::Error;
use ralph_process::{self as process, Interrupts};

/// These describe the window's terminal, not the one of the process that opened the window.
const WINDOW_VARIABLES: [&str; 6] =
    ["TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "COLORTERM"];

#[derive(Debug, Clone, Copy)]
pub struct LocalExecutor;

impl Executor for LocalExecutor {
    /// Carries out the saved spec, and returns after the end of the run.
    fn start(&self, run: &Worker, _interrupts: Option<Interrupts>) -> Result<Start, Error> {
        let spec = run.spec()?;
        project_dir::refuse_link_out(&spec.directory)?;
        // tmux started this process elsewhere.
        std::env::set_current_dir(&spec.directory).map_err(|err| {
            let path = spec.directory.display();
            Error::failed(format!("cannot enter the directory {path}: {err}"))
                .hint("restore it, or spawn the worker again from another directory")
        })?;
        let project = project_dir::open_project(&ProjectArgs { project_dir: None })?;
        let code = match (spec.command, previous_run(run)) {
            (LoopCommand::Spawn, _) => worker::run_loop(run, &project, spec),
            (_, Some((id, max_iterations))) => {
                let limits = &spec.settings.settings.budget;
                let budget = BudgetArgs {
                    max_cost: limits.cost_usd,
                    max_tokens: limits.tokens,
                    max_time: limits.duration,
                };
                let args = ResumeArgs { max_iterations, budget, ..ResumeArgs::default() };
                resume::resume_run(&project, &id, &args, Some(run.clone()))
            }
            (_, None) => {
                let notify = spec.settings.settings.notify.command.clone();
                let recovery = recover_and_notify(&project, true, || notify)?;
                let mut plan = LaunchPlan::new(&project, spec, LaunchAction::Start, recovery);
                plan.window = Some(run.clone());
                resume::launch(plan)
            }
        };
        code.map(Start::Ended)
    }

    fn attach(&self, run: &Worker) -> Result<u8, Error> {
        let name = &run.name;
        Err(Error::failed(format!("run '{name}' is in a terminal, and has no window"))
            .hint(format!("ralph logs -f {name} shows what it does")))
    }

    fn close(&self, _run: &Worker) {}

    fn collect(&self, _run: &Worker) -> Option<Worktree> {
        None
    }
}

/// The run to resume, and its limit, which the user may have edited.
fn previous_run(run: &Worker) -> Option<(String, Option<u32>)> {
    let StoredState::State(state) = run.load_state() else { return None };
    let limit = Some(state.max_iterations).filter(|limit| *limit > 0);
    Some((state.run_id?, limit))
}

/// The command of a window. Tells the process that waits for the start if no run began.
pub fn run_in_window(name: &str) -> Result<u8, Error> {
    let run = Workers::open_user_dir()?.find(name)?;
    exec_with_spawner_env(&run)?;
    let ended = LocalExecutor.start(&run, None).map(|start| match start {
        Start::Ended(code) => code,
        Start::Begun(_) => 0,
    });
    let has_run = || matches!(run.load_state(), StoredState::State(state) if state.pid.is_some());
    if ended.is_err() || !has_run() {
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
        let error = Error::failed(format!("cannot start ralph again: {err}"));
        run.save_early_end(&Err(error.clone()));
        error
    };
    let program = std::env::current_exe().map_err(failed)?;
    Err(failed(process::exec(&program.into(), &args, Some(env))))
}
