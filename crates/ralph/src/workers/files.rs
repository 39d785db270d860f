//! Writes the `state.json` of a run, into the directories of the run and of its name, and `iterations.log`.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::SystemTime;

use super::store::{StoredState, Worker, save_state};
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_report::{Problem, Recorded, Redraw, Reporter};
use ralph_store::runs::RunDir;

/// Instant agents change the state more often than needed. A change of the status is saved at
/// once, and so is every change in the background, where a run must stay visible.
const SAVE_INTERVAL_MS: i64 = 100;

/// How often a run without a terminal wakes up to leave a sign of life. With one, it does so at each tick.
const TOUCH_INTERVAL_MS: i64 = 60_000;

/// The files of a living run: [`StateFiles`] writes them, the control of the run repairs them.
#[derive(Debug)]
pub struct RunRecord {
    pub(super) worker: Worker,
    run: RunDir,
    /// The worker's directory at the start.
    directory_id: Option<(u64, u64)>,
    /// The state in the files; the default before the first one.
    pub(super) saved: WorkerState,
    /// The state file, as it was when it was last found right.
    checked: Option<CheckedState>,
}

/// Inode and modification time of a state file, and the status that it should have.
type CheckedState = (u64, SystemTime, WorkerStatus);

pub type SharedRecord = Rc<RefCell<RunRecord>>;

impl RunRecord {
    pub fn shared(worker: Worker, run: RunDir) -> SharedRecord {
        let (directory_id, saved) = (worker.directory(), WorkerState::default());
        Rc::new(RefCell::new(RunRecord { worker, run, directory_id, saved, checked: None }))
    }

    /// Otherwise the directory was removed, or belongs to another run now.
    pub(super) fn is_in_place(&self) -> bool {
        self.worker.directory() == self.directory_id
    }

    fn save(&mut self, state: &mut WorkerState) -> io::Result<()> {
        if *state == self.saved {
            return Ok(());
        }
        // The user may edit the limit while the worker is paused; it applies on resume and must not
        // be overwritten.
        if state.status == WorkerStatus::Paused
            && self.saved.status == WorkerStatus::Paused
            && let Some(limit) = self.worker.edited_limit()
        {
            state.max_iterations = limit;
        }
        if self.saved.run_id != state.run_id {
            self.worker.save_start_state(state)?;
        }
        self.worker.save(state)?;
        match save_state(&self.run.state_file(), state) {
            // The project is gone; the driver reports it.
            Err(err) if err.kind() != ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        self.saved = state.clone();
        Ok(())
    }

    /// Writes a state file again that was removed or edited. Returns whether the record is in
    /// place. Write errors are retried at the next event.
    pub(super) fn repair(&mut self) -> bool {
        if !self.is_in_place() {
            return false;
        }
        let state = &self.saved;
        let file = self.worker.state_path().metadata().ok();
        let current = file.and_then(|it| Some((it.ino(), it.modified().ok()?, state.status)));
        if state.pid.is_none() || current.is_some() && current == self.checked {
            return true;
        }
        match self.worker.load_state() {
            StoredState::State(found) if (found.status, found.pid) == (state.status, state.pid) => {
                self.checked = current;
            }
            StoredState::State(found) => {
                let max_iterations = found.max_iterations;
                let _ = self.worker.save(&WorkerState { max_iterations, ..state.clone() });
            }
            // An editor may be saving it in place. Commands that need it wait, move it aside
            // and wake the loop.
            StoredState::Invalid(_) => {}
            StoredState::Missing => {
                let _ = self.worker.save(state);
            }
        }
        true
    }
}

#[derive(Debug)]
pub struct StateFiles {
    record: SharedRecord,
    tracker: WorkerTracker,
    saved_ms: i64,
    /// The last sign of life.
    touched_ms: i64,
    now_ms: i64,
    /// Something is not saved yet.
    is_pending: bool,
    lines: Vec<String>,
    problem: Option<Problem>,
    has_warned: bool,
}

impl StateFiles {
    pub fn new(record: SharedRecord, tracker: WorkerTracker) -> Self {
        StateFiles {
            record,
            tracker,
            saved_ms: 0,
            touched_ms: 0,
            now_ms: 0,
            is_pending: false,
            lines: Vec::new(),
            problem: None,
            has_warned: false,
        }
    }

    fn is_due(&self) -> bool {
        let (state, saved) = (&self.tracker.state, &self.record.borrow().saved);
        self.is_pending
            && (!state.foreground
                || state.status != saved.status
                || state.word != saved.word
                || state.run_id != saved.run_id
                || state.exit_code != saved.exit_code
                || (self.now_ms - self.saved_ms).abs() >= SAVE_INTERVAL_MS)
    }

    fn save(&mut self) -> io::Result<()> {
        let mut record = self.record.borrow_mut();
        if !self.lines.is_empty() {
            record.worker.append_log(&self.lines)?;
            self.lines.clear();
        }
        record.save(&mut self.tracker.state)
    }

    fn save_or_report(&mut self) {
        let worker = self.record.borrow().worker.clone();
        let path = worker.path.display();
        if !self.record.borrow().is_in_place() {
            if !std::mem::replace(&mut self.has_warned, true) {
                let message = format!("cannot save the run's state in {path}: it was removed");
                self.problem = Some(Problem::Warning(message));
            }
            return;
        }
        let Err(err) = self.save() else { return };
        // Use the reserved space for the final state.
        worker.release();
        let is_saved = self.save().is_ok() && self.tracker.state.status.has_ended();
        let state = &self.tracker.state;
        // The end of a run is in its journal, and the last line there.
        let is_recorded = state.foreground && state.exit_code.is_some();
        if is_saved || is_recorded || std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        let message = format!("cannot save the run's state in {path}: {err}");
        self.problem = Some(if state.foreground {
            Problem::Warning(message)
        } else {
            Problem::Failure(format!(
                "{message}; free some space or fix its permissions to \
                                      continue"
            ))
        });
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
            (self.saved_ms, self.touched_ms) = (self.now_ms, self.now_ms);
            self.save_or_report();
        }
    }

    fn next_tick(&self) -> Option<i64> {
        Some(match self.is_pending {
            true => self.saved_ms + SAVE_INTERVAL_MS,
            false => self.touched_ms + TOUCH_INTERVAL_MS,
        })
    }

    fn redraw(&mut self, cause: Redraw) {
        if let Redraw::Tick { now_ms } = cause {
            (self.now_ms, self.touched_ms) = (now_ms, now_ms);
            self.flush();
            self.record.borrow().run.touch();
        }
    }

    fn take_problem(&mut self) -> Option<Problem> {
        self.problem.take()
    }

    fn finish(&mut self) {
        self.save_or_report();
        let record = self.record.borrow();
        if record.is_in_place() {
            record.worker.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tick_leaves_a_sign_of_life() {
        let home = tempfile::tempdir().unwrap();
        let run = RunDir { id: "r".to_owned(), path: home.path().join("r") };
        run.create().unwrap();
        let worker = Worker::at("agent", home.path().join("workers/agent"));
        let tracker = WorkerTracker::new(WorkerState::default(), jiff::tz::TimeZone::UTC);
        let mut files = StateFiles::new(RunRecord::shared(worker, run.clone()), tracker);
        let file = std::fs::File::create(run.state_file()).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        files.redraw(Redraw::Tick { now_ms: 7 });
        assert_ne!(file.metadata().unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
        assert_eq!(files.next_tick(), Some(7 + TOUCH_INTERVAL_MS));
    }
}
