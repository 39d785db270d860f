//! Writes the `state.json` of a run, into the directories of the run and of its name, and `iterations.log`.

use std::io::ErrorKind;

use super::control::SharedState;
use super::store::{Worker, save_state};
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_report::{Problem, Recorded, Redraw, Reporter};
use ralph_store::runs::RunDir;

/// Instant agents change the state more often than anybody looks. A change of the status is saved at
/// once, and so is every change in the background, where a run must not go on unseen.
const SAVE_INTERVAL_MS: i64 = 100;

#[derive(Debug)]
pub struct StateFiles {
    worker: Worker,
    run: RunDir,
    tracker: WorkerTracker,
    saved: WorkerState,
    saved_ms: i64,
    now_ms: i64,
    /// Something is not saved yet.
    is_pending: bool,
    lines: Vec<String>,
    problem: Option<Problem>,
    has_warned: bool,
    shared_state: SharedState,
    /// The directory's identity at the start.
    directory_id: Option<(u64, u64)>,
}

impl StateFiles {
    pub fn new(
        worker: Worker,
        run: RunDir,
        tracker: WorkerTracker,
        shared_state: SharedState,
    ) -> Self {
        let saved = WorkerState::default();
        StateFiles {
            shared_state,
            directory_id: worker.directory(),
            worker,
            run,
            tracker,
            saved,
            saved_ms: 0,
            now_ms: 0,
            is_pending: false,
            lines: Vec::new(),
            problem: None,
            has_warned: false,
        }
    }

    fn is_due(&self) -> bool {
        let (state, saved) = (&self.tracker.state, &self.saved);
        self.is_pending
            && (!state.foreground
                || state.status != saved.status
                || state.run_id != saved.run_id
                || state.exit_code != saved.exit_code
                || (self.now_ms - self.saved_ms).abs() >= SAVE_INTERVAL_MS)
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
            let state = &self.tracker.state;
            *self.shared_state.borrow_mut() = Some(state.clone());
            self.worker.save(state)?;
            match save_state(&self.run.path.join("state.json"), state) {
                // The project is gone; the driver reports it.
                Err(err) if err.kind() != ErrorKind::NotFound => return Err(err),
                _ => {}
            }
            self.saved = state.clone();
        }
        Ok(())
    }

    /// The user may edit the limit while the worker is paused; it applies on resume and must not be
    /// overwritten.
    fn merge_edited_limit(&mut self) {
        let state = &mut self.tracker.state;
        if state.status == WorkerStatus::Paused
            && self.saved.status == WorkerStatus::Paused
            && let Some(limit) = self.worker.edited_limit()
        {
            state.max_iterations = limit;
        }
    }
}

impl Reporter for StateFiles {
    fn event(&mut self, Recorded { at, event, run, .. }: Recorded<'_>) {
        self.lines.extend(self.tracker.apply(at, event, run).log_lines);
        self.now_ms = at.time_ms;
        self.is_pending = true;
    }

    fn flush(&mut self) {
        if self.is_due() {
            self.is_pending = false;
            self.saved_ms = self.now_ms;
            self.save_or_report();
        }
    }

    fn next_tick(&self) -> Option<i64> {
        self.is_pending.then_some(self.saved_ms + SAVE_INTERVAL_MS)
    }

    fn redraw(&mut self, cause: Redraw) {
        if let Redraw::Tick { now_ms } = cause {
            self.now_ms = now_ms;
            self.flush();
        }
    }

    fn take_problem(&mut self) -> Option<Problem> {
        self.problem.take()
    }

    fn finish(&mut self) {
        self.save_or_report();
        if self.worker.directory() == self.directory_id {
            self.worker.release();
        }
    }
}

impl StateFiles {
    fn save_or_report(&mut self) {
        let path = self.worker.path.display().to_string();
        if self.worker.directory() != self.directory_id {
            // The directory now belongs to another run.
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
        let state = &self.tracker.state;
        // The end of a run is in its journal, and the last line there.
        let is_recorded = state.foreground && state.exit_code.is_some();
        if is_saved || is_recorded || std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        let message = format!("cannot write the worker's state in {path}: {err}");
        self.problem = Some(if self.tracker.state.foreground {
            Problem::Warning(message)
        } else {
            Problem::Failure(format!("{message}; free space or permissions are needed to go on"))
        });
    }
}
