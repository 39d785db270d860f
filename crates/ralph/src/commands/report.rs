//! `ralph report`: summarizes a run.

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;

use ralph_driver::commit_lookup::annotate_commits;
use ralph_driver::resume;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_events::run_state::RunState;
use ralph_git as git;
use ralph_report::summary::{Summary, html, plain};
use ralph_store::project::Project;

use super::runs::{locate_run, read_journal};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A run's name, id, beginning of the id, or last four characters of it [default: this project's last run].
    pub run: Option<String>,

    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// The form of the report.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    format: ReportFormat,
}

impl ReportArgs {
    fn format(&self) -> ReportFormat {
        if self.json { ReportFormat::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For the terminal.
    Text,
    Markdown,
    /// A web page in one file, with a chart of time and cost.
    Html,
    /// For programs.
    Json,
}

pub fn report(
    own: impl FnOnce() -> Result<Project, Error>,
    args: &ReportArgs,
) -> Result<u8, Error> {
    let (project, dir) = locate_run(own, args.run.as_deref())?;
    let mut state = RunState::read(read_journal(&dir)?);
    if let Some(time_ms) = resume::last_alive_ms(&dir, state.clock.last_ms) {
        state.alive_at(time_ms);
    }
    let running_at = dir.is_running().then(|| jiff::Timestamp::now().as_millisecond());
    let mut facts = Summary::of(&state, running_at);
    // A run in progress may be about to send the notification.
    facts.end.notify_pending &= running_at.is_none();
    if facts.info.run.is_empty() {
        facts.info.run.clone_from(&dir.id);
    }
    annotate_commits(&mut facts, project.root(), &mut |words| {
        git::run_git(words, project.root()).ok()
    });
    let zone = TimeZone::system();
    crate::cli::print(&match args.format() {
        ReportFormat::Text => plain::render(&facts, &zone, plain::TextFormat::Plain),
        ReportFormat::Markdown => plain::render(&facts, &zone, plain::TextFormat::Markdown),
        ReportFormat::Html => html::render(&facts, &zone),
        ReportFormat::Json => {
            let json = json_writer::pretty(&facts)
                .map_err(|err| Error::failed(format!("cannot tell it as JSON: {err}")))?;
            json + "\n"
        }
    })
}
