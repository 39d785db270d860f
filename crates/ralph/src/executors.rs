//! Where runs work: in this process, or in a window of tmux.
//!
//! The place changes no rule of a run. Every run has a name, a state file and a queue of requests;
//! an executor starts one, and reaches one that another process started.

pub mod local;
pub mod tmux;

use std::io;
use std::path::PathBuf;

use crate::workers::store::Worker;
use crate::workers::worktree::Worktree;
use local::LocalExecutor;
use ralph_events::error::Error;
use ralph_process::Interrupts;
use ralph_report::worker_lines::WorkerState;
use ralph_store::requests::Request;
use tmux::TmuxExecutor;

/// How far a start got.
#[derive(Debug)]
pub enum Start {
    /// The run continues without this process.
    Begun(Box<WorkerState>),
    /// The run has ended, or there was nothing to run.
    Ended(u8),
}

/// A place for runs.
pub trait Executor {
    /// Starts or resumes the run of a launch record.
    fn start(&self, run: &Worker, interrupts: Option<Interrupts>) -> Result<Start, Error>;

    /// Shows the screen of a run in this terminal.
    fn attach(&self, run: &Worker) -> Result<u8, Error>;

    /// Closes what a run that is gone has left open.
    fn close(&self, run: &Worker);

    /// The worktree that holds the run's commits, if it does not work in the project itself.
    fn collect(&self, run: &Worker) -> Option<Worktree> {
        run.worktree()
    }

    /// Adds a request to the queue of a run, and wakes the run.
    fn request(&self, run: &Worker, request: &Request) -> io::Result<()> {
        run.send_request(request)
    }

    /// The journal, which grows as long as the run lives.
    fn events(&self, run: &Worker) -> Result<PathBuf, Error> {
        run.run_with_journal().map(|(_, dir)| dir.journal())
    }

    /// Waits for the end of a run, and returns its exit code and last line. Interrupts end only the
    /// wait.
    fn wait(
        &self,
        run: &Worker,
        interrupts: Option<Interrupts>,
    ) -> Result<(u8, Option<String>), Error> {
        run.wait_for_end(interrupts)
    }
}

/// The executor of a run.
pub fn executor_of(run: &Worker) -> &'static dyn Executor {
    if run.is_foreground() { &LocalExecutor } else { &TmuxExecutor }
}
