//! `ralph runs` and `ralph replay`: past runs, read from their journals.

use std::fs::File;
use std::io::{self, Write};

use clap::Args;

use crate::workers::registry::{Workers, only_match};
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_events::journal::{self, Entries};
use ralph_report::output::OutputStream;
use ralph_report::run_table::{RunRow, damage_notes, json, table};
use ralph_report::style::Style;
use ralph_report::{Backpressure, replay};
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};

use crate::cli::args::OutputArgs;
use crate::launch::{capabilities, reporter};

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A run's name, id, beginning of the id, or last four characters of it [default: this project's last run].
    pub run: Option<String>,

    /// Also show what ralph itself did.
    #[arg(short = 'V', long)]
    pub verbose: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn runs(project: &Project, args: &RunsArgs) -> Result<u8, Error> {
    let rows: Vec<RunRow> =
        list_runs(project)?.iter().filter(|dir| dir.has_started()).map(run_row).collect();
    let now_ms = jiff::Timestamp::now().as_millisecond();
    if args.json {
        return crate::cli::print(&json(&rows, now_ms));
    }
    if rows.is_empty() {
        return crate::cli::print("no runs yet\n");
    }
    let zone = jiff::tz::TimeZone::system();
    crate::cli::print(&table(&rows, &zone, now_ms, OutputStream::stdout().width()))?;
    let _ = io::stderr().write_all(damage_notes(&rows).as_bytes());
    Ok(0)
}

pub(super) fn list_runs(project: &Project) -> Result<Vec<RunDir>, Error> {
    let dir = project.runs_dir();
    runs::list(&dir).map_err(|err| Error::input(format!("cannot read {}: {err}", dir.display())))
}

fn run_row(dir: &RunDir) -> RunRow {
    let run = dir.read_state().unwrap_or_default();
    RunRow { id: dir.id.clone(), run, running: dir.is_running() }
}

pub fn replay(
    own: impl FnOnce() -> Result<Project, Error>,
    args: &ReplayArgs,
) -> Result<u8, Error> {
    let (_, dir) = locate_run(own, args.run.as_deref())?;
    let mut entries = read_journal(&dir)?;
    let output = args.output.mode().unwrap_or_default();
    let style = Style { verbose: args.verbose, ..capabilities(output).style() };
    let mut reporter = reporter(output, style, Backpressure::WaitForReader);
    let mut ended = false;
    let watched =
        entries.by_ref().inspect(|entry| ended |= matches!(entry.event, Event::RunEnded { .. }));
    replay::replay(watched, &mut *reporter);
    if let Some(problem) = reporter.take_problem() {
        return Err(Error::failed(problem.into_message()));
    }
    if let Some(words) = journal::unreadable_message(entries.unreadable()) {
        let _ = writeln!(io::stderr(), "run {}: {words}; some of it is missing here", dir.id);
    }
    if !ended {
        let how = if dir.is_running() { "is still working" } else { "was interrupted here" };
        let _ = writeln!(io::stderr(), "run {} {how}", dir.id);
    }
    Ok(0)
}

/// Finds a run by name or id, here or elsewhere on this machine, and returns its project.
pub(super) fn locate_run(
    own: impl FnOnce() -> Result<Project, Error>,
    wanted: Option<&str>,
) -> Result<(Project, RunDir), Error> {
    let workers = Workers::open_user_dir();
    let named = |name| workers.as_ref().ok()?.find_by_name(name);
    if let Some(worker) = wanted.and_then(named) {
        return worker.run_with_journal();
    }
    let found = own().and_then(|project| {
        let dir = find_run(list_runs(&project)?, wanted)?;
        Ok((project, dir))
    });
    found.or_else(|err| {
        let (Some(wanted), Ok(workers)) = (wanted, workers) else { return Err(err) };
        let run = workers.search(wanted)?.map(|worker| worker.run_with_journal()).transpose()?;
        run.filter(|(_, run)| run.has_started()).ok_or(err)
    })
}

pub(super) fn read_journal(dir: &RunDir) -> Result<Entries<File>, Error> {
    dir.read_journal()
        .map_err(|err| Error::input(format!("cannot read {}: {err}", dir.journal().display())))
}

pub(super) fn find_run(all: Vec<RunDir>, wanted: Option<&str>) -> Result<RunDir, Error> {
    let Some(prefix) = wanted else {
        return all.into_iter().rev().find(RunDir::has_started).ok_or_else(no_runs_error);
    };
    let run = find_by_prefix(all, prefix)?;
    if run.has_started() {
        return Ok(run);
    }
    let id = run.id;
    Err(Error::input(format!("run {id} was interrupted before it started: nothing to show")))
}

pub(super) fn no_runs_error() -> Error {
    Error::input("this project has no runs yet")
        .hint("start one with `ralph run`, or try `ralph demo`")
}

pub(super) fn find_by_prefix(all: Vec<RunDir>, prefix: &str) -> Result<RunDir, Error> {
    let selected = all.into_iter().filter(|run| runs::is_selected(&run.id, prefix)).collect();
    only_match(selected, prefix, |run: &RunDir| &run.id)?.ok_or_else(|| {
        Error::input(format!("there is no run {prefix:?}")).hint("`ralph runs` lists them")
    })
}
