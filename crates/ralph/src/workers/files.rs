//! Writes a worker's `state.json` and `iterations.log`.

use super::control::SharedState;
use super::store::{StoredState, Worker};
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_report::{Problem, Recorded, Reporter};

#[derive(Debug)]
pub struct WorkerFiles {
    worker: Worker,
    tracker: WorkerTracker,
    saved: WorkerState,
    lines: Vec<String>,
    problem: Option<Problem>,
    has_warned: bool,
    shared_state: SharedState,
    /// The directory's identity at the start.
    directory_id: Option<(u64, u64)>,
}

impl WorkerFiles {
    pub fn new(worker: Worker, tracker: WorkerTracker, shared_state: SharedState) -> Self {
        let saved = WorkerState::default();
        WorkerFiles {
            shared_state,
            directory_id: worker.directory(),
            worker,
            tracker,
            saved,
            lines: Vec::new(),
            problem: None,
            has_warned: false,
        }
    }

    fn save(&mut self) -> std::io::Result<()> {
        if !self.lines.is_empty() {
            self.worker.append_log(&self.lines)?;
            self.lines.clear();
        }
        if self.tracker.state != self.saved {
            self.merge_edited_limit();
            if self.saved.run_id != self.tracker.state.run_id {
                self.worker.save_start_state(&self.tracker.state)?;
            }
            *self.shared_state.borrow_mut() = Some(self.tracker.state.clone());
            self.worker.save(&self.tracker.state)?;
            self.saved = self.tracker.state.clone();
        }
        Ok(())
    }

    /// The user may edit the limit while the worker is paused; it applies on resume and must not be
    /// overwritten.
    fn merge_edited_limit(&mut self) {
        let state = &mut self.tracker.state;
        if state.status == WorkerStatus::Paused
            && self.saved.status == WorkerStatus::Paused
            && let StoredState::State(found) = self.worker.load_state()
            && found.max_iterations > 0
        {
            state.max_iterations = found.max_iterations;
        }
    }
}

impl Reporter for WorkerFiles {
    fn event(&mut self, Recorded { at, event, run, .. }: Recorded<'_>) {
        self.lines.extend(self.tracker.apply(at, event, run).log_lines);
    }

    fn flush(&mut self) {
        let path = self.worker.path.display().to_string();
        if self.worker.directory() != self.directory_id {
            // The directory now belongs to another worker.
            if !std::mem::replace(&mut self.has_warned, true) {
                let message =
                    format!("the worker's state cannot be kept in {path}: it was removed");
                self.problem = Some(Problem::Warning(message));
            }
            return;
        }
        let Err(err) = self.save() else { return };
        // Use the reserved space for the final state.
        self.worker.release();
        let is_saved = self.save().is_ok() && self.tracker.state.status.has_ended();
        if !is_saved && !std::mem::replace(&mut self.has_warned, true) {
            self.problem = Some(Problem::Failure(format!(
                "cannot write the worker's state in {path}: {err}; free space or permissions are needed to go on"
            )));
        }
    }

    fn take_problem(&mut self) -> Option<Problem> {
        self.problem.take()
    }

    fn finish(&mut self) {
        self.flush();
        if self.worker.directory() == self.directory_id {
            self.worker.release();
        }
    }
}
