//! `ralph report`: what a run came to.

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;

use crate::error::Error;
use crate::report::morning::{Reading, html, plain};
use crate::run::left;
use crate::run::scm::{self, lookup::look_up};
use crate::state::journal;
use crate::state::project::Project;
use crate::state::runs::RunDir;
use crate::worker::store::Workers;

use super::runs::{all, find};

pub(super) const EXAMPLES: &str = "\
Examples:
  The last run, in the terminal:
    ralph report

  A worker, wherever it works:
    ralph report agent

  A page to look at or to send:
    ralph report --format html > report.html";

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run, or the beginning of its name, or a worker, wherever that works; the last run of this project if none
    /// is given.
    pub run: Option<String>,

    /// How to tell it.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    pub format: ReportForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// For the terminal.
    Text,
    Markdown,
    /// A page that needs nothing else, with a chart of time and cost.
    Html,
    /// The facts, for programs.
    Json,
}

/// # Errors
/// There is no such run.
pub(super) fn report(
    own: impl FnOnce() -> Result<Project, Error>,
    args: &ReportArgs,
) -> Result<u8, Error> {
    let worker = args.run.as_deref().filter(|name| !looks_like_a_run(name)).and_then(of_worker);
    let (project, dir) = match worker {
        Some((project, run)) => (project, run?),
        None => {
            let project = own()?;
            let dir = find(all(&project)?, args.run.as_deref())?;
            (project, dir)
        }
    };
    let entries = journal::read(&dir.journal())
        .map_err(|err| Error::input(format!("cannot read {}: {err}", dir.journal().display())))?;
    let mut reading = Reading::of(entries);
    if let Some(time_ms) = left::last_sign(&dir, reading.last_ms()) {
        reading.was_there(time_ms);
    }
    let going_on = dir.is_running().then(|| jiff::Timestamp::now().as_millisecond());
    let mut facts = reading.facts(going_on);
    // Somebody may be about it right now.
    facts.untold &= going_on.is_none();
    if facts.run.is_empty() {
        facts.run.clone_from(&dir.id);
    }
    look_up(&mut facts, &mut |words| scm::git(words, project.root()).ok());
    let zone = TimeZone::system();
    super::print(&match args.format {
        ReportForm::Text => plain::draw(&facts, &zone, plain::Form::Terminal),
        ReportForm::Markdown => plain::draw(&facts, &zone, plain::Form::Markdown),
        ReportForm::Html => html::draw(&facts, &zone),
        ReportForm::Json => {
            let json = serde_json::to_string_pretty(&facts)
                .map_err(|err| Error::failed(format!("cannot tell it as JSON: {err}")))?;
            json + "\n"
        }
    })
}

/// A run is meant before a worker is.
fn looks_like_a_run(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Where a worker of this name works, and its run; nothing if there is no such worker.
fn of_worker(name: &str) -> Option<(Project, Result<RunDir, Error>)> {
    let worker = Workers::of_user().ok()?.find(name).ok()?;
    let state = worker.state().ok()?;
    let project = Project::new(state.directory.into());
    let run = state.run_id.map(|id| RunDir { path: project.runs_dir().join(&id), id });
    let nothing = || Error::failed(format!("worker '{name}' has not done anything yet"));
    Some((project, run.ok_or_else(nothing)))
}
