//! The extra parts of a background run.

use std::os::fd::OwnedFd;

use crate::cli::args::OutputMode;
use crate::workers::control::{SharedState, WorkerControl};
use crate::workers::files::WorkerFiles;
use crate::workers::store::Worker;
use ralph_driver::session::RunSession;
use ralph_events::error::Error;
use ralph_report::json::JsonReporter;
use ralph_report::mirror::PtyMirror;
use ralph_report::style::Style;
use ralph_report::terminal::TerminalReporter;
use ralph_report::worker_lines::WorkerTracker;
use ralph_report::{Backpressure, Reporter};

/// A run that other processes control by name.
#[derive(Debug)]
pub(crate) struct BackgroundRun {
    pub(crate) worker: Worker,
    pub(crate) tracker: WorkerTracker,
    /// Wakes the run for control requests.
    pub(crate) wake_pipe: OwnedFd,
    /// The agent has a screen of its own in the window.
    pub(crate) interactive: bool,
}

impl BackgroundRun {
    pub(super) fn attach(
        self,
        session: &mut RunSession,
        form: OutputMode,
        style: Style,
    ) -> Result<Vec<Box<dyn Reporter>>, Error> {
        let BackgroundRun { worker, tracker, wake_pipe, interactive, .. } = self;
        let path = worker.path.display().to_string();
        let shared_state = SharedState::default();
        let directory_id = worker.directory();
        let control = WorkerControl {
            worker: worker.clone(),
            shared_state: shared_state.clone(),
            directory_id,
        };
        session
            .world
            .set_control(Box::new(control), wake_pipe)
            .map_err(|err| Error::failed(format!("cannot listen for requests in {path}: {err}")))?;
        if interactive {
            // Without standard input there are no keys.
            let _ = session.world.watch_keys();
        }
        let window: Box<dyn Reporter> = match form {
            _ if interactive => Box::new(PtyMirror::new(tracker.clone())),
            OutputMode::Json => Box::new(JsonReporter::stdio(Backpressure::DropWhenSlow)),
            OutputMode::Human | OutputMode::Plain => Box::new(
                TerminalReporter::stdio(style, Backpressure::DropWhenSlow)
                    .for_worker(tracker.clone()),
            ),
        };
        Ok(vec![window, Box::new(WorkerFiles::new(worker, tracker, shared_state))])
    }
}
