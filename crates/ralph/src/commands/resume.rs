//! `ralph resume`: continues an interrupted run or a worker.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::launch::{
    LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, ResumedRun, start_record_v1,
};
use crate::recover::{Recovery, recover_and_notify};
use crate::workers::registry::Workers;
use crate::workers::store::Worker;
use ralph_driver::resume;
use ralph_driver::session;
use ralph_events::error::Error;
use ralph_events::event::Outcome;
use ralph_events::exit_code;
use ralph_report::worker_lines::WorkerStatus;
use ralph_store::lock;
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};

use super::runs::{find_by_prefix, list_runs, no_runs_error};
use super::worker::{self, WorkerSelection};
use super::{mode, run, work};
use crate::cli::args::{BudgetArgs, OutputArgs, ProjectArgs};
use crate::cli::print;

#[derive(Debug, Default, Args)]
pub struct ResumeArgs {
    /// A run's name, id, beginning of the id, or last four characters of it; several names for several background
    /// runs [default: this project's last run that is not complete].
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,

    /// Resume every background run that is paused or was interrupted.
    #[arg(long, conflicts_with = "runs")]
    pub all: bool,

    /// The new iteration limit; earlier iterations count.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        short_alias = 'm',
        visible_alias = "maximum-iterations",
        allow_negative_numbers = true,
        value_parser = crate::cli::args::parse_iterations
    )]
    pub max_iterations: Option<u32>,

    #[command(flatten)]
    pub budget: BudgetArgs,

    /// Also show what ralph itself does, in lines that begin with `[ralph]`.
    #[arg(short = 'V', long)]
    pub verbose: bool,

    /// Print only warnings, errors and the outcome.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    /// Show what would run, without running it.
    #[arg(long)]
    pub dry_run: bool,

    /// Resume in the background, in a tmux window, even if the run was started in a terminal.
    #[arg(long, conflicts_with = "dry_run")]
    pub background: bool,
}

pub fn resume(place: &ProjectArgs, args: &ResumeArgs) -> Result<u8, Error> {
    // Finds the runs of a project that was moved here.
    let project = crate::project_dir::open_project(place);
    if args.all {
        return resume_workers(&WorkerSelection::all(), args);
    }
    if args.runs.len() > 1 {
        if let Some(run) = args.runs.iter().find(|name| !is_worker(name)) {
            return Err(Error::usage(format!(
                "{run} is not in the background; such runs are resumed one at a time"
            ))
            .hint(format!("ralph resume {run}"))
            .hint("`ralph ls` lists all runs"));
        }
        return resume_workers(&WorkerSelection { names: args.runs.clone(), all: false }, args);
    }
    let wanted = args.runs.first().map(String::as_str);
    if let (Some(wanted), Ok(workers)) = (wanted, Workers::open_user_dir()) {
        let is_here = project.as_ref().is_ok_and(|project| is_here(project, wanted));
        let named = workers.find_by_name(wanted);
        let found = if is_here { named } else { workers.search(wanted)? };
        if let Some(worker) = found {
            return resume_named(&worker, args);
        }
    }
    let has_runs = project?.runs_dir().is_dir();
    let project = crate::project_dir::require_project(place, has_runs)?;
    let recovery = recover_and_notify(&project, !args.dry_run, || None)?;
    let Some(run) = select_run(&project, wanted)? else {
        let names = resumable_workers(&project);
        return match names.first() {
            None => print("nothing to resume: every run of this project is complete\n"),
            Some(name) => print(&format!(
                "nothing to resume except background runs ({}): ralph resume {name}\n",
                names.join(", ")
            )),
        };
    };
    resume_run(&project, run, args, recovery)
}

fn resume_run(
    project: &Project,
    run: ResumedRun,
    args: &ResumeArgs,
    recovery: Recovery,
) -> Result<u8, Error> {
    let id = &run.dir.id;
    let last = Workers::open_user_dir().and_then(|workers| workers.find_last_by_id(id));
    let worker = last.ok().flatten();
    if is_running(&run.dir) {
        let pid = run.state.run.info.pid;
        return match worker.filter(is_paused) {
            Some(worker) => resume_workers(&WorkerSelection::single(&worker.name), args),
            None => Err(Error::input(format!("run {id} is still active (pid {pid})"))
                .hint("wait for it to end, or stop it first")),
        };
    }
    if run.is_complete() {
        return run.print_nothing_to_do();
    }
    if let Some(worker) = worker.filter(|worker| !worker.is_foreground()) {
        return resume_workers(&WorkerSelection::single(&worker.name), args);
    }
    if run.state.run.info.command == "spawn" {
        return Err(Error::input(format!("run {id} was in the background and was removed"))
            .hint("start a new one with `ralph spawn`"));
    }
    run.refuse_lost()?;
    let (mut spec, path) = run.spec(project)?;
    run.prepare(&mut spec, &path, project);
    spec.set_limits(args.max_iterations, &args.budget);
    let dir = run.dir.clone();
    restart(project, run, spec, args, recovery).or_else(|err| {
        // Another process may have completed it while this one waited for the lock.
        let run = ResumedRun::read(dir);
        if run.is_complete() { run.print_nothing_to_do() } else { Err(err) }
    })
}

/// Resumes a run by its name: in this terminal if it was in one and has ended, or if its name is
/// that of another run.
fn resume_named(worker: &Worker, args: &ResumeArgs) -> Result<u8, Error> {
    let needs_terminal = worker.is_past() || worker.is_foreground() && !worker.is_alive();
    match worker.run() {
        Some((project, run)) if needs_terminal => resume_elsewhere(&project, &run.id, args),
        _ => resume_workers(&WorkerSelection::single(&worker.name), args),
    }
}

fn resume_elsewhere(project: &Project, id: &str, args: &ResumeArgs) -> Result<u8, Error> {
    if !project.root().is_dir() {
        let path = project.root().display();
        return Err(Error::input(format!("project directory is gone: {path}"))
            .hint("restore it, or run `ralph resume` from its new path"));
    }
    crate::project_dir::refuse_link_out(project.root())?;
    let project = crate::project_dir::declare_project(project.root())?;
    let recovery = recover_and_notify(&project, !args.dry_run, || None)?;
    let run = ResumedRun::read(find_by_prefix(list_runs(&project)?, id)?);
    resume_run(&project, run, args, recovery)
}
/// Retries: a run that was just killed may have left a child that still holds the lock.
fn is_running(dir: &RunDir) -> bool {
    lock::holds_for(session::LOCK_RETRY_FOR, || dir.is_running())
}

/// Whether the run can be resumed without a terminal.
fn is_worker(name: &str) -> bool {
    let found = Workers::open_user_dir().and_then(|workers| workers.find(name));
    found.is_ok_and(|it| !it.is_past() && (it.is_alive() || !it.is_foreground()))
}

fn is_paused(worker: &Worker) -> bool {
    worker.load_state().known().is_some_and(|state| state.status == WorkerStatus::Paused)
}

fn resume_workers(selection: &WorkerSelection, args: &ResumeArgs) -> Result<u8, Error> {
    if selection.all && (args.max_iterations.is_some() || !args.budget.is_none()) {
        return Err(Error::usage("--all cannot be combined with limits: each run has its own")
            .hint("name the runs: ralph resume agent -n 40"));
    }
    if args.dry_run {
        return Err(Error::usage("--dry-run does not work with background runs")
            .hint("see its settings with `ralph status`"));
    }
    worker::resume(selection, args)
}

fn resumable_workers(project: &Project) -> Vec<String> {
    let here = project.root().to_string_lossy();
    let workers = Workers::open_user_dir().and_then(|workers| workers.all()).unwrap_or_default();
    let resumable = workers.into_iter().filter(|worker| {
        worker.load_state().known().is_some_and(|state| {
            state.directory == here && state.is_spawned() && !state.is_complete()
        }) && !worker.is_alive()
    });
    resumable.map(|worker| worker.name).collect()
}

fn is_here(project: &Project, wanted: &str) -> bool {
    let here = runs::list(&project.runs_dir()).unwrap_or_default();
    here.iter().any(|run| runs::is_selected(&run.id, wanted))
}

impl ResumedRun {
    fn read(dir: RunDir) -> ResumedRun {
        let state = resume::ResumeState::load(&dir);
        ResumedRun { dir, state }
    }

    fn is_complete(&self) -> bool {
        matches!(self.state.run.outcome(), Some(Outcome::Complete | Outcome::CompleteScmFailed))
    }

    fn print_nothing_to_do(&self) -> Result<u8, Error> {
        let end = self.state.run.end.as_ref();
        let message = end.map_or("", |end| end.message.as_str());
        print(&format!("run {} is done: {message}\n", self.dir.id))?;
        Ok(end.map_or(exit_code::SUCCESS, |end| end.exit_code))
    }

    /// Refuses a run that started but whose journal cannot be read.
    pub(crate) fn refuse_lost(&self) -> Result<(), Error> {
        if !self.state.is_lost {
            return Ok(());
        }
        let (id, path) = (&self.dir.id, self.dir.journal());
        let message =
            format!("cannot resume run {id}: no readable line in its journal ({})", path.display());
        Err(Error::input(message)
            .hint("restore the journal from a backup")
            .hint("or start over with the command that started the run"))
    }

    /// What the run was started with, and the file that tells it.
    fn spec(&self, project: &Project) -> Result<(LaunchSpec, PathBuf), Error> {
        let id = &self.dir.id;
        let refused = |message: String| {
            Error::input(message).hint("start over with the command that started it")
        };
        let path = self.dir.spec();
        let unreadable = |err: &dyn std::fmt::Display| {
            refused(format!("cannot resume run {id}: cannot read {}: {err}", path.display()))
        };
        if let Some(text) = self.dir.read_spec().map_err(|err| unreadable(&err))? {
            let spec = serde_json::from_slice(&text).map_err(|err| unreadable(&err))?;
            return Ok((spec, path));
        }
        match start_record_v1::run_spec(project, &self.dir, self.state.original_directory())? {
            Some(found) => Ok(found),
            None if self.state.is_new => {
                Err(refused(format!("run {id} was interrupted before it started")))
            }
            None => Err(refused(format!(
                "cannot resume run {id}: there is no record of how it was \
                                     started"
            ))),
        }
    }

    /// Warns about what has changed since the start, and follows a project that was moved.
    fn prepare(&self, spec: &mut LaunchSpec, spec_file: &Path, project: &Project) {
        let id = &self.dir.id;
        spec.follow_move(id, project.root());
        spec.settings.warnings.extend(spec.changed_settings_warning(spec_file));
        if self.state.is_new {
            let message = format!("run {id} was interrupted before it started, and starts now");
            spec.settings.warnings.push(message);
        }
    }
}

fn select_run(project: &Project, wanted: Option<&str>) -> Result<Option<ResumedRun>, Error> {
    let runs = list_runs(project)?;
    if let Some(wanted) = wanted {
        if !runs::is_id_part(wanted) {
            let message = format!("run '{wanted}' not found");
            return Err(Error::failed(message).hint("`ralph ls` lists all runs"));
        }
        return find_by_prefix(runs, wanted).map(|dir| Some(ResumedRun::read(dir)));
    }
    // Skip runs that were killed before anything was recorded.
    let has_started =
        |dir: &RunDir| dir.has_started() || dir.spec().exists() || start_record_v1::exists(dir);
    let runs: Vec<RunDir> = runs.into_iter().filter(has_started).collect();
    if runs.is_empty() {
        return Err(no_runs_error());
    }
    let mut candidates = runs.into_iter().rev().map(ResumedRun::read);
    Ok(candidates.find(|run| !run.is_complete() && run.state.run.info.command != "spawn"))
}

fn restart(
    project: &Project,
    run: ResumedRun,
    spec: LaunchSpec,
    args: &ResumeArgs,
    recovery: Recovery,
) -> Result<u8, Error> {
    let action = match args {
        ResumeArgs { dry_run: true, .. } => LaunchAction::DryRun,
        ResumeArgs { background: true, .. } => LaunchAction::StartInBackground,
        _ => LaunchAction::Start,
    };
    let mut plan = LaunchPlan::new(project, spec, action, recovery);
    if args.verbose || args.quiet {
        (plan.view.verbose, plan.view.quiet) = (args.verbose, args.quiet);
    }
    plan.view.output = args.output.mode().unwrap_or(plan.view.output);
    plan.resume = Some(run);
    launch(plan)
}

/// Carries out the plan of any loop command.
pub(crate) fn launch(plan: LaunchPlan<'_>) -> Result<u8, Error> {
    match plan.spec.command {
        LoopCommand::Run | LoopCommand::Spawn => run::launch(plan),
        LoopCommand::Plan | LoopCommand::Build | LoopCommand::Prompt => mode::launch(plan),
        LoopCommand::Work => work::launch(plan),
    }
}
