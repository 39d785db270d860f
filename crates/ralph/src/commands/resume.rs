//! `ralph resume`: continues an interrupted run or a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Parser};

use crate::config;
use crate::workers::store::{StoredState, Workers};
use ralph_driver::notify_command;
use ralph_driver::resume;
use ralph_driver::session;
use ralph_events::error::Error;
use ralph_events::event::Outcome;
use ralph_events::exit_code;
use ralph_store::home;
use ralph_store::lock;
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};
use ralph_store::start_record::StartRecord;

use super::runs::{find_by_prefix, is_run_id_like, list_runs, no_runs_error};
use super::worker::{self, NewLimits, WorkerSelection};
use super::{build, plan, prompt, run, work};
use crate::cli::args::{BudgetArgs, LoopArgs, OutputMode, ProjectArgs, PromptArgs};
use crate::cli::{Cli, CliCommand, print};

pub const EXAMPLES: &str = "\
Examples:
  Go on with the last run of this project that did not complete:
    ralph resume

  Give a run that reached its limit ten more iterations than its first ten:
    ralph resume 20261115-2027 -n 20

  Give a run that used its budget up more of it:
    ralph resume --max-cost 25

  Have a paused worker go on, or one whose process is gone:
    ralph resume agent

  Give one that reached its limit more iterations:
    ralph resume agent -n 40

  The same for all of them, after a reboot for example:
    ralph resume --all

A run goes on with its settings, its count of iterations, what it has cost and what its agent was to be
told next. The iteration that was cut off is begun again, unless its agent had answered: then its work is
checked, and no agent is paid for it twice. A worker whose process is gone (a crash, a
reboot, the end of tmux), that was killed, that gave up or that reached its limit is started again at the
next iteration; -n, or `max_iterations` in its state.json, gives it another limit, and --max-cost,
--max-tokens and --max-time another budget.";

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run, or the beginning of its name, or one or more workers; the last run that did not complete
    /// if none is given.
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,

    /// All workers that are paused, or whose process is gone.
    #[arg(long, conflicts_with = "runs")]
    pub all: bool,

    /// Stop after this many iterations, those before included.
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

    /// Tell what ralph itself does, in lines that begin with `[ralph]`.
    #[arg(short = 'V', long)]
    pub verbose: bool,

    /// Print only warnings, errors and the outcome.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// How to show what happens.
    #[arg(long, value_name = "FORM", value_enum)]
    pub output: Option<OutputMode>,

    /// Show what would be run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone)]
pub struct ResumeRequest {
    pub run: String,
    pub state: resume::ResumeState,
    /// The template variables saved at the start, if any.
    pub variables: Option<BTreeMap<String, String>>,
    pub warnings: Vec<String>,
}

pub fn resume(place: &ProjectArgs, args: ResumeArgs) -> Result<u8, Error> {
    if args.all {
        return resume_workers(&WorkerSelection::all(), &args);
    }
    let several = args.runs.len() > 1;
    if several && let Some(run) = args.runs.iter().find(|name| !is_worker(name)) {
        return Err(Error::usage(format!("{run} is no worker, and runs go on one at a time"))
            .hint(format!("ralph resume {run}"))
            .hint("`ralph ls` lists workers, `ralph runs` lists runs"));
    }
    if several || args.runs.first().is_some_and(|name| is_worker(name)) {
        return resume_workers(&WorkerSelection { names: args.runs.clone(), all: false }, &args);
    }
    let project = crate::project_dir::open_project(place)?;
    if let Some(worker) = args.runs.first().and_then(|run| worker_elsewhere(&project, run)) {
        return resume_workers(&WorkerSelection::single(&worker), &args);
    }
    let has_runs = project.runs_dir().is_dir();
    let project = crate::project_dir::require_project(place, has_runs)?;
    if !args.dry_run {
        session::recover(&project, crate::cli::warn)?;
        notify_command::send_missed(&project, None, crate::cli::warn)?;
    }
    let Some(run) = select_run(&project, args.runs.first().map(String::as_str))? else {
        let names = resumable_workers(&project);
        return match names.first() {
            None => print("nothing to resume: every run of this project is complete\n"),
            Some(name) => print(&format!(
                "nothing to resume but workers ({}): ralph resume {name}\n",
                names.join(", ")
            )),
        };
    };
    let id = &run.dir.id;
    if is_running(&run.dir) {
        let pid = run.state.run.info.pid;
        return Err(Error::input(format!("run {id} is still going on (process {pid})"))
            .hint("wait for it to end, or stop it first"));
    }
    if run.is_complete() {
        return run.print_nothing_to_do();
    }
    if run.state.run.info.command == "spawn" {
        return match find_worker(id) {
            Some(name) => resume_workers(&WorkerSelection::single(&name), &args),
            None => Err(Error::input(format!("run {id} is that of a worker that is gone"))
                .hint("ralph spawn starts a new one")),
        };
    }
    run.refuse_lost()?;
    let record = run.start_record()?;
    let dir = run.dir.clone();
    restart(&project, run, &record, args).or_else(|err| {
        // Another process may have completed it while this one waited for the lock.
        let run = ResumableRun::read(dir);
        if run.is_complete() { run.print_nothing_to_do() } else { Err(err) }
    })
}

fn ralph_home() -> Option<PathBuf> {
    home::ralph_home(|name| std::env::var_os(name))
}

/// Retries: a run that was just killed may have left a child that still holds the lock.
fn is_running(dir: &RunDir) -> bool {
    lock::holds_for(session::LOCK_RETRY_FOR, || dir.is_running())
}

fn is_worker(name: &str) -> bool {
    Workers::open_user_dir().is_ok_and(|workers| workers.find(name).is_ok())
}

fn resume_workers(selection: &WorkerSelection, args: &ResumeArgs) -> Result<u8, Error> {
    let limits = NewLimits { iterations: args.max_iterations, budget: args.budget.budget() };
    if selection.all && (limits.iterations.is_some() || !limits.budget.is_none()) {
        return Err(Error::usage("--all is about workers, each of which has limits of its own")
            .hint("name those that are to have others: ralph resume agent -n 40"));
    }
    if args.dry_run {
        return Err(Error::usage("--dry-run is about runs, and a worker was named")
            .hint("`ralph status` tells how a worker was spawned"));
    }
    worker::resume(selection, limits)
}

fn resumable_workers(project: &Project) -> Vec<String> {
    let here = project.root().to_string_lossy();
    let workers = Workers::open_user_dir().and_then(|workers| workers.all()).unwrap_or_default();
    let resumable = workers.into_iter().filter(|worker| {
        matches!(worker.load_state(), StoredState::State(state)
            if state.directory == here && !state.is_complete())
            && !worker.is_alive()
    });
    resumable.map(|worker| worker.name).collect()
}

fn find_worker(run: &str) -> Option<String> {
    Workers::open_user_dir().ok()?.find_by_run(run).map(|(worker, _)| worker.name)
}

/// The worker of this run, if that is elsewhere, such as in a worktree.
fn worker_elsewhere(project: &Project, run: &str) -> Option<String> {
    let here = runs::list(&project.runs_dir()).unwrap_or_default();
    let is_here = here.iter().any(|it| it.id.starts_with(run));
    (is_run_id_like(run) && !is_here).then(|| find_worker(run)).flatten()
}

struct ResumableRun {
    dir: RunDir,
    state: resume::ResumeState,
}

impl ResumableRun {
    fn read(dir: RunDir) -> ResumableRun {
        let state = resume::ResumeState::load(&dir);
        ResumableRun { dir, state }
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
    fn refuse_lost(&self) -> Result<(), Error> {
        if !self.state.is_lost {
            return Ok(());
        }
        let (id, path) = (&self.dir.id, self.dir.journal());
        let message = format!(
            "run {id} cannot go on: it has begun, and nothing can be read of what it did ({})",
            path.display()
        );
        Err(Error::input(message)
            .hint("put the journal back from a backup if there is one: what the run has used is only there")
            .hint("or start the run again with the command that started it, which begins at nothing"))
    }

    fn start_record(&self) -> Result<StartRecord, Error> {
        let id = &self.dir.id;
        let start_again_hint = "start it again with the command that started it";
        match self.dir.read_start(ralph_home().as_deref()) {
            Ok(Some(record)) => Ok(record),
            Ok(None) if self.state.is_new => {
                Err(Error::input(format!("run {id} was cut off before it began"))
                    .hint(start_again_hint))
            }
            Ok(None) => {
                let message = format!("run {id} cannot go on: nothing tells how it was started");
                Err(Error::input(message).hint(start_again_hint))
            }
            Err(err) => {
                let path =
                    self.dir.settings_path(ralph_home().as_deref()).with_file_name("start.json");
                let message = format!("run {id} cannot go on: cannot read {}", path.display());
                Err(Error::input(format!("{message}: {err}")).hint(start_again_hint))
            }
        }
    }
}

fn select_run(project: &Project, wanted: Option<&str>) -> Result<Option<ResumableRun>, Error> {
    let runs = list_runs(project)?;
    if let Some(wanted) = wanted {
        let could_be_a_run = wanted.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if !could_be_a_run && !runs.iter().any(|run| run.id.starts_with(wanted)) {
            let message = format!("worker '{wanted}' not found, and no such run");
            return Err(Error::failed(message).hint("`ralph ls` and `ralph runs` list them"));
        }
        return find_by_prefix(runs, wanted).map(|dir| Some(ResumableRun::read(dir)));
    }
    // Skip runs that were killed before anything was recorded.
    let has_started = |dir: &RunDir| {
        dir.has_started() || matches!(dir.read_start(ralph_home().as_deref()), Ok(Some(_)))
    };
    let runs: Vec<RunDir> = runs.into_iter().filter(has_started).collect();
    if runs.is_empty() {
        return Err(no_runs_error());
    }
    let mut candidates = runs.into_iter().rev().map(ResumableRun::read);
    Ok(candidates.find(|run| !run.is_complete() && run.state.run.info.command != "spawn"))
}

fn restart(
    project: &Project,
    run: ResumableRun,
    record: &StartRecord,
    args: ResumeArgs,
) -> Result<u8, Error> {
    let ResumableRun { dir, state } = run;
    let id = dir.id.clone();
    let parsed = Cli::try_parse_from(record.args()).map_err(|err| {
        let message = err.to_string();
        let message = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::input(format!(
            "run {id} cannot go on: its command line is not understood: {message}"
        ))
        .hint("was it started by another version of ralph? start it again")
    })?;
    let (mut place, mut command) = (parsed.project, parsed.command);
    let mut directory = record.directory();
    let moved_from =
        state.original_directory().filter(|original| !is_same_dir(original, project.root()));
    if let Some(original) = moved_from {
        // The project was moved: use the same subdirectory here.
        let below = directory.strip_prefix(original).map(|below| project.root().join(below));
        directory = below.ok().filter(|it| it.is_dir()).unwrap_or(project.root().to_owned());
        place.project_dir = place.project_dir.map(|_| project.root().to_owned());
    }
    crate::project_dir::refuse_link_out(&directory)?;
    crate::project_dir::resolve_paths_from_project(&place, &mut command);
    let Some(mut saved) = SavedArgs::of(&mut command) else {
        let word = record.args().get(1).map(|word| word.to_string_lossy().into_owned());
        let word = word.unwrap_or_default();
        return Err(Error::input(format!(
            "run {id} is that of `ralph {word}`, which cannot go on"
        ))
        .hint(format!("start it again: ralph {word}")));
    };
    saved.restore_piped_prompt(record);
    // Limits are already part of the saved settings.
    saved.clear_limits();
    let mut warnings = changed_settings_warning(project, &dir, saved.common, saved.config.as_ref());
    if let Some(original) = moved_from {
        warnings.push(format!(
            "this project is not where run {id} began ({}): it goes on here, in {}",
            original.display(),
            project.root().display()
        ));
    }
    if state.is_new {
        warnings.push(format!("run {id} was cut off before it began, and begins now"));
    }
    let common = saved.common;
    common.settings = Some(dir.settings_path(ralph_home().as_deref()));
    common.max_iterations = args.max_iterations;
    common.budget = args.budget;
    common.dry_run = args.dry_run;
    if args.verbose || args.quiet {
        (common.verbose, common.quiet) = (args.verbose, args.quiet);
    }
    common.output = args.output.unwrap_or(common.output);
    common.only_checks = state.run.resume.needs_only_checks();
    common.resume =
        Some(ResumeRequest { run: id, state, variables: record.variables.clone(), warnings });
    // Paths are relative to the original directory; if it is gone, their users report it.
    let _ = std::env::set_current_dir(&directory);
    match command {
        CliCommand::Run(args) => run::run(project, &args, Vec::new()),
        CliCommand::Plan(args) => plan::plan(project, *args),
        CliCommand::Build(args) => build::build(project, *args),
        CliCommand::Prompt(args) => prompt::prompt(project, *args),
        CliCommand::Work(args) => work::work(project, &args),
        _ => Ok(exit_code::USAGE),
    }
}

fn is_same_dir(first: &Path, second: &Path) -> bool {
    first == second || first.canonicalize().is_ok_and(|first| first == second)
}

struct SavedArgs<'a> {
    common: &'a mut LoopArgs,
    prompt: &'a mut PromptArgs,
    config: Option<PathBuf>,
    pub file: Option<&'a mut Option<PathBuf>>,
    limit: Option<&'a mut Option<u32>>,
}

impl<'a> SavedArgs<'a> {
    fn of(command: &'a mut CliCommand) -> Option<SavedArgs<'a>> {
        Some(match command {
            CliCommand::Run(args) => SavedArgs {
                common: &mut args.common,
                prompt: &mut args.prompt,
                config: None,
                file: None,
                limit: None,
            },
            CliCommand::Plan(args) | CliCommand::Build(args) => SavedArgs {
                config: args.config.clone(),
                common: &mut args.common,
                prompt: &mut args.prompt,
                file: None,
                limit: Some(&mut args.limit),
            },
            CliCommand::Prompt(args) => SavedArgs {
                config: args.mode.config.clone(),
                common: &mut args.mode.common,
                prompt: &mut args.mode.prompt,
                file: Some(&mut args.file),
                limit: Some(&mut args.mode.limit),
            },
            CliCommand::Work(args) => SavedArgs {
                common: &mut args.common,
                prompt: &mut args.prompt,
                config: None,
                file: None,
                limit: None,
            },
            _ => return None,
        })
    }

    /// Takes a prompt that was piped in from the start record.
    fn restore_piped_prompt(&mut self, record: &StartRecord) {
        let Some(text) = &record.prompt else { return };
        let file = self.prompt.prompt_file.take();
        let file = file.or_else(|| self.file.as_mut().and_then(|file| file.take()));
        if file.is_some() {
            self.prompt.prompt = Some(text.clone());
        }
    }

    fn clear_limits(&mut self) {
        if let Some(limit) = &mut self.limit {
            **limit = None;
        }
    }
}

/// Warns about settings changed since the run started, which do not apply.
fn changed_settings_warning(
    project: &Project,
    dir: &RunDir,
    common: &LoopArgs,
    config: Option<&PathBuf>,
) -> Vec<String> {
    let time = |path: &PathBuf| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let Some(saved) = time(&dir.settings_path(ralph_home().as_deref())) else { return Vec::new() };
    // A missing file counts as changed.
    let gone = config.filter(|path| time(path).is_none()).cloned();
    let changed = |path: &PathBuf| {
        time(path).is_some_and(|changed| changed > saved) || gone.as_ref() == Some(path)
    };
    let changed =
        crate::launch::settings_files(project, common, config).into_iter().filter(changed);
    let names: Vec<String> = changed.map(|path| config::display_name(&path)).collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{} changed after this run had begun, which goes on with the settings that it began with; \
         a new run takes the new ones",
        names.join(" and ")
    )]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn parsed(words: &[&str]) -> CliCommand {
        let words = words.iter().map(OsString::from);
        Cli::try_parse_from(words).unwrap().command
    }

    #[test]
    fn resume_takes_piped_prompt_from_start_record() {
        let record = StartRecord::new([], "/".into(), Some("text".to_owned()), None);
        for words in [
            &["ralph", "run", "-f", "/dev/fd/63"][..],
            &["ralph", "prompt", "/dev/fd/63", "3"],
            &["ralph", "work", "-f", "/dev/stdin"],
            &["ralph", "plan", "-f", "/dev/stdin"],
        ] {
            let mut command = parsed(words);
            let mut saved = SavedArgs::of(&mut command).unwrap();
            saved.restore_piped_prompt(&record);
            assert_eq!(saved.prompt.prompt.as_deref(), Some("text"), "{words:?}");
            assert_eq!(saved.prompt.prompt_file, None);
            assert!(saved.file.is_none_or(|file| file.is_none()));
        }
        let mut command = parsed(&["ralph", "work"]);
        let mut saved = SavedArgs::of(&mut command).unwrap();
        saved.restore_piped_prompt(&record);
        assert_eq!(saved.prompt.prompt, None, "work has a prompt of its own");
        assert!(SavedArgs::of(&mut parsed(&["ralph", "demo"])).is_none());
    }
}
