//! The loop of `ralph ui`, and its only file with effects.
//!
//! One `poll(2)` waits for keys, changes of runs, signals and jobs. Without any of them, the screen
//! wakes once a second while a run works, and else once a minute for its clock.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui_core::layout::Position;
use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::stdin;
use rustix::time::Timespec;

use ralph_events::error::Error;
use ralph_monitor::{Launcher, Monitor, actions};
use ralph_process::{TerminalSignals, run_in_terminal};
use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;
use ralph_store::runs::RunDir;

use crate::input::{Input, InputParser};
use crate::jobs::Jobs;
use crate::model::{Effect, Message, Model, Note, RequestKind};
use crate::source::{ReadResult, Source};
use crate::terminal::{self, AnsiBackend, Screen};
use crate::theme::{Capabilities, Theme};
use crate::view;

/// Terminals answer within a few milliseconds, or not at all.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(50);
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

/// What a job has found or done.
enum JobResult {
    Read(ReadResult),
    Resumed { run: String, result: Result<(), Error> },
    Started(Result<String, Error>),
    Attach(Result<Vec<OsString>, Error>),
    Report(Result<(), Error>),
}

struct App {
    options: Options,
    source: Source,
    model: Model,
    theme: Theme,
    screen: Option<Screen>,
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
        Some(wanted) => Some(source.find(wanted).ok_or_else(|| unknown_run(wanted))?),
        None => None,
    };
    terminal::restore_on_panic();
    let screen = Screen::enter().map_err(failed)?;
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

fn unknown_run(wanted: &str) -> Error {
    Error::usage(format!("no run has the name or id '{wanted}'")).hint("list them: ralph ls")
}

fn check_terminal() -> Result<Capabilities, Error> {
    let var = |name: &str| std::env::var(name).ok();
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::usage("ralph ui needs a terminal")
            .hint("for programs: ralph ls --json, or ralph status --json"));
    }
    match var("TERM").filter(|term| !term.is_empty()) {
        Some(term) if term != "dumb" => Ok(Capabilities::detect(var)),
        term => {
            let term = term.unwrap_or_default();
            Err(Error::usage(format!("ralph ui cannot draw on this terminal (TERM={term})"))
                .hint("without a screen: ralph ls --watch"))
        }
    }
}

/// Returns the background colour, and keys that were pressed meanwhile.
fn ask_background(input: &mut InputParser) -> io::Result<(Option<[u8; 3]>, Vec<Input>)> {
    Screen::query_background()?;
    let deadline = Instant::now() + BACKGROUND_TIMEOUT;
    let (mut background, mut keys) = (None, Vec::new());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_for_input(left)? {
            return Ok((background, keys));
        }
        for input in read_inputs(input)?.unwrap_or_default() {
            match input {
                Input::Background(color) => background = Some(color),
                // Every terminal answers this, after the colour.
                Input::DeviceAttributes => return Ok((background, keys)),
                input => keys.push(input),
            }
        }
    }
}

fn wait_for_input(timeout: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    Ok(rustix::io::retry_on_intr(|| poll(&mut polled, timeout.as_ref()))? > 0)
}

/// Reads once. `None` at the end of input.
fn read_inputs(parser: &mut InputParser) -> io::Result<Option<Vec<Input>>> {
    let mut bytes = [0; 16 * 1024];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut bytes))?;
    Ok((count > 0).then(|| parser.push(&bytes[..count])))
}

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

impl App {
    fn run(&mut self) -> io::Result<()> {
        while !self.is_done {
            self.draw()?;
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
        let deadlines = [self.model.next_deadline_ms(), self.source.next_read_ms(self.model.tab)];
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

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Quit => self.is_done = true,
            Effect::Tell { run, text, delivery } => {
                let request = RequestKind::Tell(text.clone());
                self.act(run, request, |dir| actions::tell(dir, &text, delivery).map(drop));
            }
            Effect::Answer { run, question, text } => {
                let request = RequestKind::Answer(question.clone());
                let state = self.source.monitor.state(&run);
                let asked = state.and_then(|state| state.steering.question(&question)).cloned();
                self.act(run, request, |dir| match &asked {
                    Some(asked) => actions::answer(dir, asked, &text).map(drop),
                    None => Err(Error::input("the question is gone")),
                });
            }
            Effect::Pause(run) => {
                self.act(run, RequestKind::Pause, |dir| actions::pause(dir).map(drop));
            }
            Effect::Stop { run, now } => {
                self.act(run, RequestKind::Stop { now }, |dir| actions::stop(dir, now).map(drop));
            }
            Effect::Resume(run) => self.resume(run),
            Effect::Start(new) => {
                let launcher = Arc::clone(&self.options.launcher);
                self.jobs.run(move || JobResult::Started(launcher.start(&new).map(|run| run.name)));
            }
            Effect::Attach(run) => {
                let launcher = Arc::clone(&self.options.launcher);
                self.jobs.run(move || JobResult::Attach(launcher.attach_command(&run)));
            }
            Effect::OpenReport(run) => {
                let open = Arc::clone(&self.options.open_report);
                self.jobs.run(move || JobResult::Report(open(&run)));
            }
            Effect::Copy(text) => {
                if let Err(err) = terminal::copy_to_clipboard(&text) {
                    self.fail(format!("cannot copy: {err}"));
                }
            }
            Effect::Edit(text) => {
                let edited = self.edit(&text).map_err(|err| format!("The editor failed: {err}"));
                self.message(Message::Edited(edited));
            }
            Effect::LoadOlderRuns => self.source.monitor.load_since(0),
            Effect::Search(text) => self.source.start_search(&text),
            Effect::LoadEarlier
            | Effect::LoadLater
            | Effect::GoToEnd
            | Effect::GoToStart
            | Effect::GoToItem(_)
            | Effect::GoToIteration(_) => self.move_window(&effect),
        }
    }

    /// Loads another part of the transcript.
    fn move_window(&mut self, effect: &Effect) {
        let Some(window) = self.source.window() else { return };
        let result = match effect {
            Effect::LoadEarlier => window.load_earlier().map(drop),
            Effect::LoadLater => window.load_later().map(drop),
            Effect::GoToEnd => window.go_to_end(),
            Effect::GoToStart => window.go_to_start(),
            Effect::GoToItem(id) => window.go_to(*id),
            Effect::GoToIteration(number) => window.go_to_iteration(*number).map(|found| {
                self.model.activity.top = found.map(|id| (id, 0));
            }),
            _ => Ok(()),
        };
        if let Err(err) = result {
            self.fail(format!("cannot read the journal: {err}"));
        }
    }

    fn fail(&mut self, text: String) {
        self.message(Message::Note(Note { text, is_failure: true }));
    }

    /// Sends a request to a run.
    fn act(
        &mut self,
        run: String,
        request: RequestKind,
        act: impl FnOnce(&RunDir) -> Result<(), Error>,
    ) {
        let result = match self.source.monitor.run_dir(&run) {
            Some(dir) => act(dir).map_err(|err| error_text(&err)),
            None => Err("The run is gone.".to_owned()),
        };
        self.message(Message::Done { request, run, result });
    }

    /// A dead run is started again, which takes longer than a frame.
    fn resume(&mut self, run: String) {
        if self.source.monitor.is_alive(&run) {
            let launcher = Arc::clone(&self.options.launcher);
            self.act(run, RequestKind::Resume, |dir| actions::resume(dir, &*launcher).map(drop));
            return;
        }
        let launcher = Arc::clone(&self.options.launcher);
        let id = run.clone();
        self.message(Message::Done { request: RequestKind::Resume, run, result: Ok(()) });
        self.jobs.run(move || JobResult::Resumed { result: launcher.resume(&id), run: id });
    }

    fn job_done(&mut self, result: JobResult) {
        match result {
            JobResult::Read(result) => self.source.take_read(result),
            JobResult::Started(result) => {
                self.message(Message::Started(result.map_err(|err| error_text(&err))));
            }
            JobResult::Resumed { run, result } => {
                let new = self.source.update(now_ms());
                self.message(Message::NewItems(new));
                // The command also succeeds if there is nothing to resume.
                let is_running = self.source.monitor.run_dir(&run).is_some_and(RunDir::is_running);
                let result = result.map(|()| is_running).map_err(|err| error_text(&err));
                self.message(Message::Resumed { run, result });
            }
            JobResult::Report(Ok(())) => {}
            JobResult::Report(Err(err)) | JobResult::Attach(Err(err)) => {
                self.fail(error_text(&err))
            }
            JobResult::Attach(Ok(command)) => {
                if let Err(err) = self.attach(&command) {
                    self.fail(format!("cannot attach: {err}"));
                }
            }
        }
    }

    fn attach(&mut self, command: &[OsString]) -> io::Result<()> {
        if command.iter().any(|word| word == "switch-client") {
            return run_in_terminal(command, &[]);
        }
        // tmux refuses nested clients.
        self.outside(|| run_in_terminal(command, &[("TMUX", None)]))
    }

    /// Gives the terminal to another program.
    fn outside<T>(&mut self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.screen = None;
        let result = work();
        self.screen = Some(Screen::enter()?);
        self.terminal.clear()?;
        result
    }

    fn edit(&mut self, text: &str) -> io::Result<String> {
        let mut file = tempfile::Builder::new().prefix("ralph-").suffix(".md").tempfile()?;
        file.write_all(text.as_bytes())?;
        if self.options.editor.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "set $EDITOR to one on the PATH"));
        }
        let mut command = self.options.editor.clone();
        command.push(file.path().into());
        self.outside(|| run_in_terminal(&command, &[]))?;
        // Editors replace the file: its path counts, not the open one.
        let mut edited = std::fs::File::open(file.path()).unwrap_or_else(|_| {
            let _ = file.rewind();
            file.into_file()
        });
        let mut bytes = Vec::new();
        edited.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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

/// One line: what failed, and the first thing to do.
fn error_text(error: &Error) -> String {
    let hint = error.hints.first().map_or(String::new(), |hint| format!(" ({hint})"));
    format!("{}{hint}", error.message)
}
