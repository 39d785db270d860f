//! The face of a run that is a worker: its `state.json` and its `iterations.log`.

use super::control::Kept;
use super::store::{Known, Worker};
use ralph_events::event::{Event, Stamp};
use ralph_report::Reporter;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};

/// Keeps the files of a worker in step with its run.
#[derive(Debug)]
pub struct WorkerFiles {
    worker: Worker,
    follower: WorkerTracker,
    /// What the file holds.
    saved: WorkerState,
    lines: Vec<String>,
    trouble: Option<String>,
    failure: Option<String>,
    is_in_trouble: bool,
    kept: Kept,
    /// The directory, as it was at the beginning.
    place: Option<(u64, u64)>,
}

impl WorkerFiles {
    /// What is written is kept in `kept`, too.
    pub fn new(worker: Worker, follower: WorkerTracker, kept: Kept) -> Self {
        let saved = WorkerState::default();
        WorkerFiles {
            kept,
            place: worker.place(),
            worker,
            follower,
            saved,
            lines: Vec::new(),
            trouble: None,
            failure: None,
            is_in_trouble: false,
        }
    }

    fn save(&mut self) -> std::io::Result<()> {
        if !self.lines.is_empty() {
            self.worker.append_log(&self.lines)?;
            self.lines.clear();
        }
        if self.follower.state != self.saved {
            self.keep_edited_limit();
            if self.saved.run_id != self.follower.state.run_id {
                self.worker.save_beginning(&self.follower.state)?;
            }
            *self.kept.borrow_mut() = Some(self.follower.state.clone());
            self.worker.save(&self.follower.state)?;
            self.saved = self.follower.state.clone();
        }
        Ok(())
    }

    /// The limit in the file may be changed by hand while the worker is paused, and counts when it is
    /// resumed. Until then it must not be written over.
    fn keep_edited_limit(&mut self) {
        let state = &mut self.follower.state;
        if state.status == WorkerStatus::Paused
            && self.saved.status == WorkerStatus::Paused
            && let Known::State(there) = self.worker.known()
            && there.max_iterations > 0
        {
            state.max_iterations = there.max_iterations;
        }
    }
}

impl Reporter for WorkerFiles {
    fn event(&mut self, at: Stamp, event: &Event<'_>) {
        self.lines.extend(self.follower.apply(at, event).log_lines);
    }

    fn flush(&mut self) {
        let path = self.worker.path.display().to_string();
        if self.worker.place() != self.place {
            // Whatever is there now belongs to another process.
            if !std::mem::replace(&mut self.is_in_trouble, true) {
                let message =
                    format!("the worker's state cannot be kept in {path}: it was removed");
                self.trouble = Some(message);
            }
            return;
        }
        let Err(err) = self.save() else { return };
        // Room was set aside for the last state, which says that the run ended for lack of it.
        self.worker.release();
        let is_saved = self.save().is_ok() && self.follower.state.status.has_ended();
        if !is_saved && !std::mem::replace(&mut self.is_in_trouble, true) {
            self.failure = Some(format!(
                "cannot write the worker's state in {path}: {err}; free space or permissions are needed to go on"
            ));
        }
    }

    fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    fn finish(&mut self) {
        self.flush();
        if self.worker.place() == self.place {
            self.worker.release();
        }
    }

    fn take_warning(&mut self) -> Option<String> {
        self.trouble.take()
    }
}
