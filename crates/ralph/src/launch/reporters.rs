//! The reporters of a run.

use jiff::tz::TimeZone;

use crate::cli::args::OutputMode;
use crate::config::{self, Settings};
use ralph_driver::session::{self, Retention};
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_report::json::JsonReporter;
use ralph_report::session_log::SessionLog;
use ralph_report::style::{Capabilities, Style};
use ralph_report::terminal::TerminalReporter;
use ralph_report::{Backpressure, Reporter};
use ralph_store::log_files;
use ralph_store::project::Project;
use ralph_store::runs::RunDir;

use super::View;

impl View {
    pub(super) fn shows_agent(self, settings: &Settings) -> bool {
        self.output != OutputMode::Json && settings.stream_agent_output && !self.quiet
    }
}

pub(crate) fn capabilities(output: OutputMode) -> Capabilities {
    match output {
        OutputMode::Human => Capabilities::for_stdio(),
        OutputMode::Plain | OutputMode::Json => Capabilities::NONE,
    }
}

pub(crate) fn style(view: View, settings: &Settings) -> Style {
    let display = &settings.display;
    let base = capabilities(view.output);
    let human = view.output == OutputMode::Human;
    Style {
        emoji: if human { display.emoji.unwrap_or(base.emoji) } else { false },
        color: if human { display.color.unwrap_or(base.color) } else { false },
        color_errors: if human { display.color.unwrap_or(base.color_errors) } else { false },
        timestamps: display.timestamps,
        max_output_lines: display.max_output_lines as usize,
        max_output_chars: display.max_output_chars as usize,
        verbose: view.verbose,
        quiet: view.quiet,
        show_stream: settings.stream_agent_output,
        status: base.status,
    }
}

pub(crate) fn reporter(form: OutputMode, style: Style, pace: Backpressure) -> Box<dyn Reporter> {
    match form {
        OutputMode::Json => Box::new(JsonReporter::stdio(pace)),
        OutputMode::Human | OutputMode::Plain => Box::new(TerminalReporter::stdio(style, pace)),
    }
}

pub(super) fn session_log(
    project: &Project,
    keep: Retention,
    run: &RunDir,
) -> Result<(Box<dyn Reporter>, Event<'static>), Error> {
    let dir = project.logs_dir();
    let zone = TimeZone::system();
    let now = zone.to_datetime(jiff::Timestamp::now());
    let (log, link) = log_files::create_session_log(project, run, now)
        .map_err(|err| session::not_writable_error(&dir, &err))?;
    // Old logs that stay are harmless.
    let _ = log_files::prune(&dir, keep.runs.max(1));
    let message = format!("Session log: {}", config::display_name(&link));
    let log = SessionLog::new(log, zone, keep.log_bytes());
    Ok((Box::new(log), Event::Note { message: message.into(), important: false }))
}
