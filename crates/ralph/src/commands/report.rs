//! `ralph report`: summarizes a run.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;

use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_events::journal;
use ralph_events::json_writer;
use ralph_events::run_state::RunState;
use ralph_monitor::read_summary_in;
use ralph_report::output::OutputStream;
use ralph_report::style::Capabilities;
use ralph_report::summary::answer::last_answer;
use ralph_report::summary::plain::{self, TextFormat};
use ralph_report::summary::{Summary, html, title};
use ralph_store::project::Project;
use ralph_store::runs::RunDir;
use ralph_store::{safe_fs, save};
use ralph_tasks::documents::Documents;

use super::runs::{locate_run, read_journal};
use crate::browser;
use crate::workers::registry::find_by_id;

/// The part of a journal that is searched for the agent's last words.
const TAIL_BYTES: u64 = 1 << 20;
/// The first prompt is among these.
const MAX_FIRST_ENTRIES: usize = 200;

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

    /// Open the report as a web page.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    open: bool,
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
    /// A web page in one file.
    Html,
    /// For programs.
    Json,
}

pub fn report(
    own: impl FnOnce() -> Result<Project, Error>,
    args: &ReportArgs,
) -> Result<u8, Error> {
    let (project, dir) = locate_run(own, args.run.as_deref())?;
    let facts = summarize(&project, &dir)?;
    let zone = TimeZone::system();
    if args.open {
        let path = save_page(&dir, &html::render(&facts, &zone))?;
        crate::cli::print(&format!("{}\n", path.display()))?;
        if let Err(reason) = browser::open(&path) {
            let _ = writeln!(io::stderr(), "hint: open the file in a browser ({reason})");
        }
        return Ok(0);
    }
    crate::cli::print(&match args.format() {
        ReportFormat::Text => {
            let (color, width) = (Capabilities::for_stdio().color, OutputStream::stdout().width());
            plain::render(&facts, &zone, TextFormat::Plain { color, width })
        }
        ReportFormat::Markdown => plain::render(&facts, &zone, TextFormat::Markdown),
        ReportFormat::Html => html::render(&facts, &zone),
        ReportFormat::Json => {
            let json = json_writer::pretty(&facts)
                .map_err(|err| Error::failed(format!("cannot write the report as JSON: {err}")))?;
            json + "\n"
        }
    })
}

/// Opens the report of a run in a browser.
pub(crate) fn open_in_browser(run_id: &str) -> Result<(), Error> {
    let unknown = || Error::input(format!("there is no run {run_id}"));
    let (project, dir) = find_by_id(run_id).ok_or_else(unknown)?;
    let facts = summarize(&project, &dir)?;
    let path = save_page(&dir, &html::render(&facts, &TimeZone::system()))?;
    browser::open(&path).map_err(|reason| {
        Error::failed(format!("cannot open a browser: {reason}"))
            .hint(format!("open {}", path.display()))
    })
}

fn summarize(project: &Project, dir: &RunDir) -> Result<Summary, Error> {
    let mut state = RunState::read(read_journal(dir)?);
    dir.add_last_alive(&mut state);
    let running_at = dir.is_running().then(|| jiff::Timestamp::now().as_millisecond());
    let mut facts = read_summary_in(project.root(), &state, running_at);
    if facts.info.run.is_empty() {
        facts.info.run.clone_from(&dir.id);
    }
    // Without them, the report is only shorter.
    let _ = add_texts(&mut facts, dir);
    add_list_title(&mut facts, project.root());
    Ok(facts)
}

/// Adds the agent's last words and the title from a prompt file, which are not part of the run's state. Only the ends of
/// the journal are read for them.
fn add_texts(facts: &mut Summary, dir: &RunDir) -> io::Result<()> {
    if facts.info.setup.as_ref().is_some_and(|setup| setup.rereads_prompt) {
        let first = dir.read_journal()?.take(MAX_FIRST_ENTRIES);
        let mut events = first.map(|entry| entry.event);
        if let Some(Event::Prompt { preview, .. }) =
            events.find(|event| matches!(event, Event::Prompt { .. }))
        {
            facts.title = title(&preview);
        }
    }
    let mut tail = safe_fs::open_file(&dir.journal())?;
    let start = tail.metadata()?.len().saturating_sub(TAIL_BYTES);
    tail.seek(SeekFrom::Start(start))?;
    facts.answer = last_answer(journal::entries(tail), &facts.info.completion);
    Ok(())
}

/// Takes the title from the task list, unless it is not the run's any more.
fn add_list_title(facts: &mut Summary, root: &Path) {
    let total = facts.remaining.stories.map(|(_, total)| total as usize);
    let list = Documents::new(root, None).read_tasks().ok();
    let list = list.and_then(|bytes| ralph_tasks::parse(&bytes).ok());
    if let Some(list) = list.filter(|list| Some(list.stories.len()) == total) {
        facts.title = title(&list.project);
    }
}

fn save_page(dir: &RunDir, page: &str) -> Result<PathBuf, Error> {
    let path = dir.path.join("report.html");
    save::save_privately(&path, page.as_bytes())
        .map_err(|err| Error::failed(format!("cannot write {}: {err}", path.display())))?;
    Ok(path)
}
