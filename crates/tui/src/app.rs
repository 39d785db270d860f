//! The loop of `ralph ui`. Only this module has effects.
//!
//! One `poll(2)` waits for keys, changes of runs, signals and jobs. Without any of them, the screen
//! wakes once a second while a run works, and else once a minute for its clock.

mod effects;
mod startup;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui_core::layout::Position;
use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::stdin;
use rustix::time::Timespec;

use ralph_events::error::Error;
use ralph_monitor::{Launcher, Monitor};
use ralph_process::TerminalSignals;
use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;

use crate::input::{Input, InputParser};
use crate::jobs::Jobs;
use crate::model::{Message, Model};
use crate::source::Source;
use crate::terminal::{self, AlternateScreen, AnsiBackend};
use crate::theme::Theme;
use crate::view;
use effects::JobResult;
use startup::{ask_background, check_terminal, read_inputs, wait_for_input};

/// The rest of a key's bytes comes at once, even from far away.
const KEY_TIMEOUT: Duration = Duration::from_millis(10);
const CHART_DAYS: i64 = 14;
const DAY_MS: i64 = 24 * 3600 * 1000;

pub type OpenReport = Arc<dyn Fn(&str) -> Result<(), Error> + Send + Sync>;

/// What the program hands in.
pub struct Options {
    /// `RALPH_HOME`.
    pub home: PathBuf,
    /// For new runs.
    pub directory: PathBuf,
    /// A name, an id, or the beginning of one.
    pub run: Option<String>,
    pub launcher: Arc<dyn Launcher>,
    /// Opens the report of a run in a browser.
    pub open_report: OpenReport,
    /// The command line of the editor.
    pub editor: Vec<OsString>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("home", &self.home).field("run", &self.run).finish()
    }
}

struct App {
    options: Options,
    source: Source,
    model: Model,
    theme: Theme,
    screen: Option<AlternateScreen>,
    terminal: Terminal<AnsiBackend>,
    input: InputParser,
    signals: TerminalSignals,
    jobs: Jobs<JobResult>,
    has_loaded_days: bool,
    is_done: bool,
}

/// Shows every run until the user leaves.
///
/// # Errors
/// There is no terminal, or the named run.
pub fn run(options: Options) -> Result<u8, Error> {
    let capabilities = check_terminal()?;
    let failed = |err: io::Error| Error::failed(format!("cannot use the terminal: {err}"));
    let signals = TerminalSignals::install().map_err(failed)?;
    let now_ms = now_ms();
    let monitor = Monitor::open(&options.home, TimeZone::system(), now_ms)
        .map_err(|err| Error::failed(format!("cannot watch the runs: {err}")))?;
    let source = Source::new(monitor, now_ms);
    let run = match &options.run {
        Some(wanted) => Some(source.find(wanted)?),
        None => None,
    };
    terminal::restore_on_panic();
    let screen = AlternateScreen::enter().map_err(failed)?;
    let mut input = InputParser::default();
    let (background, early) = match capabilities.uses_background() {
        true => ask_background(&mut input).map_err(failed)?,
        false => (None, Vec::new()),
    };
    let mut app = App {
        model: Model::new(options.directory.clone(), run),
        source,
        theme: Theme::new(capabilities, background),
        screen: Some(screen),
        terminal: Terminal::new(AnsiBackend::default()).map_err(failed)?,
        input,
        signals,
        jobs: Jobs::start().map_err(failed)?,
        has_loaded_days: false,
        is_done: false,
        options,
    };
    app.message(Message::DataChanged);
    app.take_inputs(early);
    let result = app.run();
    // A terminal that is gone is no failure of the program.
    drop(app);
    result.or_else(|err| match err.raw_os_error() {
        Some(_) => Ok(()),
        None => Err(failed(err)),
    })?;
    Ok(0)
}

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

impl App {
    fn run(&mut self) -> io::Result<()> {
        while !self.is_done {
            self.draw()?;
            if let Some(hits) = self.model.take_page_hits() {
                self.message(Message::Hits { hits, is_running: false });
                self.draw()?;
            }
            self.wait()?;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        if let Some(job) = self.source.prepare(&self.model) {
            self.jobs.run(move || JobResult::Read(job.run()));
        }
        let (model, source, theme) = (&self.model, &self.source, self.theme);
        let mut layout = None;
        self.terminal.draw(|frame| {
            let (drawn, cursor) = view::draw(model, &source.data(), theme, frame.buffer_mut());
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
            layout = Some(drawn);
        })?;
        if let Some(layout) = layout {
            self.model.layout = layout;
        }
        if self.model.layout.is_wide && !std::mem::replace(&mut self.has_loaded_days, true) {
            self.source.monitor.load_since(now_ms() - CHART_DAYS * DAY_MS);
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let timeout = Timespec::try_from(self.timeout()).unwrap_or_default();
        let flags = PollFlags::IN;
        let [ends, resizes] = self.signals.fds();
        let mut polled = [
            PollFd::from_borrowed_fd(stdin(), flags),
            PollFd::from_borrowed_fd(self.source.monitor.fd(), flags),
            PollFd::from_borrowed_fd(ends, flags),
            PollFd::from_borrowed_fd(resizes, flags),
            PollFd::from_borrowed_fd(self.jobs.fd(), flags),
        ];
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
        let ready = polled.each_ref().map(|fd| !fd.revents().is_empty());
        let [has_input, has_changes, ends, resizes, has_jobs] = ready;
        // After a resize, the next frame has the new size.
        if ends || resizes {
            self.is_done |= self.signals.take();
        }
        if has_input {
            self.read_input()?;
        }
        if has_changes {
            let new = self.source.update(now_ms());
            self.message(Message::NewItems(new));
        } else {
            self.source.set_time(now_ms());
            self.message(Message::DataChanged);
        }
        if has_jobs {
            for result in self.jobs.take() {
                self.job_done(result);
            }
        }
        if self.source.is_searching() {
            match self.model.search {
                Some(_) => {
                    if let Some((hits, is_running)) = self.source.search_on() {
                        self.message(Message::Hits { hits, is_running });
                    }
                }
                None => self.source.end_search(),
            }
        }
        Ok(())
    }

    /// How long nothing on the screen changes by itself.
    fn timeout(&self) -> Duration {
        if self.source.is_searching() {
            return Duration::ZERO;
        }
        let data = self.source.data();
        let now = data.now_ms;
        let mut cards = data.overview.cards().filter(|card| card.is_alive);
        let is_reading = data.overview.cards().any(|card| card.reading.is_some());
        let step = if is_reading || cards.any(is_ticking) { 1000 } else { 60_000 };
        let clock = step - now.rem_euclid(step);
        let deadlines = [
            self.model.next_deadline_ms(),
            self.source.next_read_ms(self.model.tab),
            self.source.reading_due_ms(),
        ];
        let deadlines = deadlines.into_iter().flatten().map(|at| at - now).filter(|left| *left > 0);
        let left = deadlines.fold(clock, i64::min);
        Duration::from_millis(u64::try_from(left).unwrap_or(0).max(1))
    }

    fn message(&mut self, message: Message) {
        let effects = self.model.update(message, &self.source.data());
        for effect in effects {
            self.perform(effect);
        }
    }

    fn read_input(&mut self) -> io::Result<()> {
        let Some(inputs) = read_inputs(&mut self.input)? else {
            self.is_done = true;
            return Ok(());
        };
        self.take_inputs(inputs);
        while self.input.is_incomplete() {
            if !wait_for_input(KEY_TIMEOUT)? {
                let last = self.input.end_of_burst();
                self.take_inputs(last);
                break;
            }
            match read_inputs(&mut self.input)? {
                Some(inputs) => self.take_inputs(inputs),
                None => break,
            }
        }
        Ok(())
    }

    fn take_inputs(&mut self, inputs: impl IntoIterator<Item = Input>) {
        for input in inputs {
            // Dialogs compare times.
            self.source.set_time(now_ms());
            match input {
                Input::Key(key) => self.message(Message::Key(key)),
                Input::Paste(text) => self.message(Message::Paste(text)),
                Input::Mouse { action, column, row } => {
                    self.message(Message::Mouse { action, at: Position { x: column, y: row } });
                }
                // Too late.
                Input::Background(_) | Input::DeviceAttributes => {}
            }
        }
    }
}

/// The seconds of "now" change.
fn is_ticking(card: &RunCard) -> bool {
    match card.state {
        StateWord::Working => true,
        StateWord::Asks => !card.now.time.is_empty() && !card.now.text().starts_with("waits"),
        _ => false,
    }
}
