//! What the model orders: requests to runs, other programs, and parts of a transcript.

use std::ffi::OsString;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;

use ralph_events::error::Error;
use ralph_monitor::{StartedRun, actions};
use ralph_process::{run_in_terminal, suspend_job};
use ralph_store::runs::RunDir;

use super::{App, now_ms};
use crate::model::{Effect, Message, Note, RequestKind};
use crate::source::ReadResult;
use crate::terminal::{self, AlternateScreen};

/// What a job has found or done.
pub(super) enum JobResult {
    Read(ReadResult),
    Resumed { run: String, result: Result<(), Error> },
    Started(Result<StartedRun, Error>),
    Attach(Result<Vec<OsString>, Error>),
    Report(Result<(), Error>),
}

impl App {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Quit => self.is_done = true,
            Effect::Suspend => {
                if let Err(err) = self.outside(suspend_job) {
                    self.fail(format!("cannot suspend: {err}"));
                }
            }
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
                self.jobs.run(move || JobResult::Started(launcher.start(&new)));
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
                self.model.pages.activity.top = found.map(|id| (id, 0));
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

    pub(super) fn job_done(&mut self, result: JobResult) {
        match result {
            JobResult::Read(result) => self.source.take_read(result),
            JobResult::Started(result) => {
                let new = self.source.update(now_ms());
                self.message(Message::NewItems(new));
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
        self.screen = Some(AlternateScreen::enter()?);
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

/// One line: what failed, and the first thing to do.
fn error_text(error: &Error) -> String {
    let hint = error.hints.first().map_or(String::new(), |hint| format!(" ({hint})"));
    format!("{}{hint}", error.message)
}
