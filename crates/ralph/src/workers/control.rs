//! Asking a worker's loop for something.
//!
//! A request is a file, so that it stays when nobody is there to take it; the last one counts, since
//! each says how things are to be. A pipe with a name wakes the loop, which is in its one wait.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::store::{StoredState, Worker};
use ralph_driver::world::{ControlRequest, ControlSource};
use ralph_process::create_named_pipe;
use ralph_report::worker_lines::WorkerState;
use ralph_store::save::save_without_sync;

/// What may be wanted of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerRequest {
    Pause,
    Resume,
    Kill,
}

#[derive(Debug, Serialize, Deserialize)]
struct RequestRecord {
    request: WorkerRequest,
}

impl Worker {
    fn request_path(&self) -> PathBuf {
        self.path.join("request.json")
    }

    fn wake_pipe_path(&self) -> PathBuf {
        self.path.join("wake")
    }

    /// Leaves a request and wakes the loop, if there is one.
    ///
    /// # Errors
    /// The request cannot be written.
    pub fn send_request(&self, wish: WorkerRequest) -> io::Result<()> {
        save_without_sync(
            &self.request_path(),
            &serde_json::to_vec(&RequestRecord { request: wish })?,
        )?;
        self.wake();
        Ok(())
    }

    /// Wakes the loop, if there is one.
    pub fn wake(&self) {
        let path = self.wake_pipe_path();
        // A plain file would take the byte and wake nobody; one to be afraid of is none of ours.
        if !is_pipe(&path) {
            return;
        }
        // Without a reader this fails at once: then nobody is to be woken.
        let door = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let _ = door.and_then(|mut door| door.write_all(b"!"));
    }

    /// Forgets what was asked of a loop that is gone.
    pub fn clear_requests(&self) {
        let _ = std::fs::remove_file(self.request_path());
    }

    /// The door at which others knock, made anew.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create_wake_pipe(&self) -> io::Result<OwnedFd> {
        let path = self.wake_pipe_path();
        if !is_pipe(&path) {
            let _ = std::fs::remove_file(&path);
            create_named_pipe(&path)?;
        }
        // Open for both, so that there is never an end of it.
        let door: File =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(door.into())
    }

    fn take_request(&self) -> Option<WorkerRequest> {
        // Taken by a new name first: one that comes meanwhile is not lost.
        let taken = self.path.join("request.taken");
        std::fs::rename(self.request_path(), &taken).ok()?;
        let text = std::fs::read(&taken);
        let _ = std::fs::remove_file(&taken);
        Some(serde_json::from_slice::<RequestRecord>(&text.ok()?).ok()?.request)
    }
}

/// What the loop wrote last, for whoever has to write it again.
pub type SharedState = Rc<RefCell<Option<WorkerState>>>;

/// The loop's side: it takes requests, and sees to it that whoever knocks finds a state.
#[derive(Debug)]
pub struct WorkerControl {
    pub worker: Worker,
    pub shared_state: SharedState,
    /// Its directory, as it was when the loop began.
    pub directory_id: Option<(u64, u64)>,
}

impl ControlSource for WorkerControl {
    fn take(&mut self) -> Vec<ControlRequest> {
        if self.obstacle().is_some() {
            return Vec::new();
        }
        if let Some(kept) = self.shared_state.borrow().as_ref() {
            // Somebody removed it, or wrote there what only the loop can know. What cannot be written is
            // tried again with every event.
            match self.worker.load_state() {
                StoredState::State(there)
                    if (there.status, there.pid) == (kept.status, kept.pid) => {}
                StoredState::State(there) => {
                    let max_iterations = there.max_iterations;
                    let _ = self.worker.save(&WorkerState { max_iterations, ..kept.clone() });
                }
                // Somebody may be about to write it: an editor that saves in place leaves half of it
                // there for a moment. Whoever needs it can wait, sets it aside and knocks.
                StoredState::Invalid(_) => {}
                StoredState::Missing => {
                    let _ = self.worker.save(kept);
                }
            }
        }
        self.worker.requests()
    }

    fn obstacle(&mut self) -> Option<String> {
        (self.worker.directory() != self.directory_id).then(|| {
            format!(
                "{} was removed, or is that of another worker now: nobody could ask this loop for \
                 anything any more",
                self.worker.path.display()
            )
        })
    }
}

impl Worker {
    fn requests(&self) -> Vec<ControlRequest> {
        let Some(wish) = self.take_request() else { return Vec::new() };
        vec![match wish {
            WorkerRequest::Pause => ControlRequest::Pause,
            WorkerRequest::Kill => ControlRequest::End,
            WorkerRequest::Resume => {
                // Somebody may have changed the limit in the file.
                let max_iterations = match self.load_state() {
                    StoredState::State(state) if state.max_iterations > 0 => {
                        Some(state.max_iterations)
                    }
                    _ => None,
                };
                ControlRequest::Resume { max_iterations }
            }
        }]
    }
}

fn is_pipe(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_report::worker_lines::WorkerStatus;

    #[test]
    fn last_worker_request_wins_and_is_kept_until_taken() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().to_owned() };
        worker.send_request(WorkerRequest::Pause).unwrap();
        worker.send_request(WorkerRequest::Kill).unwrap();
        assert_eq!(worker.requests(), [ControlRequest::End]);
        assert_eq!(worker.requests(), []);
        worker.send_request(WorkerRequest::Resume).unwrap();
        worker.save(&WorkerState { max_iterations: 70, ..WorkerState::default() }).unwrap();
        assert_eq!(worker.requests(), [ControlRequest::Resume { max_iterations: Some(70) }]);
        std::fs::write(worker.request_path(), "{half").unwrap();
        assert_eq!(worker.requests(), [], "nonsense is no request");
    }

    #[test]
    fn worker_loop_rewrites_damaged_state() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().to_owned() };
        let state = WorkerState { worker_name: "agent".into(), ..WorkerState::default() };
        let kept = Rc::new(RefCell::new(Some(state.clone())));
        let place = worker.directory();
        let mut control =
            WorkerControl { worker: worker.clone(), shared_state: kept, directory_id: place };
        for spoilt in ["", "{\"status\": \"run"] {
            std::fs::write(worker.state_path(), spoilt).unwrap();
            assert_eq!(control.take(), []);
            let there = std::fs::read_to_string(worker.state_path()).unwrap();
            assert_eq!(there, spoilt, "somebody may be writing it");
            worker.move_aside();
            assert_eq!(control.take(), []);
            assert!(matches!(worker.load_state(), StoredState::State(there) if *there == state));
        }
        let names = ["state.json.broken", "state.json.broken-2"];
        assert!(names.iter().all(|name| dir.path().join(name).exists()), "both are kept");
        // What only the loop knows is not for others to say; the limit is.
        let said = WorkerState { status: WorkerStatus::Failed, max_iterations: 9, ..state.clone() };
        worker.save(&said).unwrap();
        assert_eq!(control.take(), []);
        let expected = WorkerState { max_iterations: 9, ..state };
        assert!(matches!(worker.load_state(), StoredState::State(there) if *there == expected));
        assert_eq!(control.obstacle(), None);
    }

    #[test]
    fn worker_loop_detects_replaced_directory() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().join("agent") };
        worker.create().unwrap();
        let kept = Rc::new(RefCell::new(Some(WorkerState::default())));
        let place = worker.directory();
        let mut control =
            WorkerControl { worker: worker.clone(), shared_state: kept, directory_id: place };
        assert_eq!(control.obstacle(), None);
        // One that is made while the other is still there cannot be taken for it.
        std::fs::rename(&worker.path, dir.path().join("gone")).unwrap();
        assert!(control.obstacle().is_some());
        worker.create().unwrap();
        assert!(control.obstacle().is_some());
        assert_eq!(control.take(), []);
        assert!(matches!(worker.load_state(), StoredState::Missing), "nothing is written there");
    }

    #[test]
    fn worker_wakeup_is_received_and_never_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().to_owned() };
        std::fs::write(worker.wake_pipe_path(), "in the way").unwrap();
        let door = worker.create_wake_pipe().unwrap();
        let mut byte = [0; 8];
        assert!(rustix::io::read(&door, &mut byte).is_err(), "nobody has knocked");
        worker.send_request(WorkerRequest::Pause).unwrap();
        assert_eq!(rustix::io::read(&door, &mut byte), Ok(1));
        drop(door);
        worker.send_request(WorkerRequest::Pause).unwrap();
    }
}
