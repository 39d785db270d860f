//! What a run has beside itself when it is a worker.

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

/// A run that others know by name and may ask for something.
#[derive(Debug)]
pub(crate) struct BackgroundRun {
    pub(crate) worker: Worker,
    pub(crate) tracker: WorkerTracker,
    /// Where they knock.
    pub(crate) wake_pipe: OwnedFd,
    /// The run to go on with.
    pub(crate) resume: Option<String>,
    /// Its agent has the window to itself.
    pub(crate) interactive: bool,
}

impl BackgroundRun {
    /// Has the session heed what is asked of the worker, and tells who is shown its run.
    ///
    /// # Errors
    /// Nobody would be heard.
    pub(super) fn attach(
        self,
        session: &mut RunSession,
        form: OutputMode,
        style: Style,
    ) -> Result<Vec<Box<dyn Reporter>>, Error> {
        let BackgroundRun { worker, tracker: follower, wake_pipe: door, interactive, .. } = self;
        let path = worker.path.display().to_string();
        let kept = SharedState::default();
        let place = worker.directory();
        let control = WorkerControl {
            worker: worker.clone(),
            shared_state: kept.clone(),
            directory_id: place,
        };
        session
            .world
            .set_control(Box::new(control), door)
            .map_err(|err| Error::failed(format!("cannot listen for requests in {path}: {err}")))?;
        if interactive {
            // Without a standard input there is nobody to type.
            let _ = session.world.watch_keys();
        }
        let window: Box<dyn Reporter> = match form {
            _ if interactive => Box::new(PtyMirror::new(follower.clone())),
            OutputMode::Json => Box::new(JsonReporter::stdio(Backpressure::DropWhenSlow)),
            OutputMode::Human | OutputMode::Plain => Box::new(
                TerminalReporter::stdio(style, Backpressure::DropWhenSlow)
                    .for_worker(follower.clone()),
            ),
        };
        Ok(vec![window, Box::new(WorkerFiles::new(worker, follower, kept))])
    }
}
