//! Requests to a worker's loop.
//!
//! A request is a file: it survives without a reader; the last one counts. A named pipe wakes the
//! loop.

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

    pub fn send_request(&self, request: WorkerRequest) -> io::Result<()> {
        save_without_sync(&self.request_path(), &serde_json::to_vec(&RequestRecord { request })?)?;
        self.wake();
        Ok(())
    }

    pub fn wake(&self) {
        let path = self.wake_pipe_path();
        // Never write to a regular file here.
        if !is_pipe(&path) {
            return;
        }
        // Fails at once without a reader.
        let pipe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let _ = pipe.and_then(|mut pipe| pipe.write_all(b"!"));
    }

    pub fn clear_requests(&self) {
        let _ = std::fs::remove_file(self.request_path());
    }

    pub fn create_wake_pipe(&self) -> io::Result<OwnedFd> {
        let path = self.wake_pipe_path();
        if !is_pipe(&path) {
            let _ = std::fs::remove_file(&path);
            create_named_pipe(&path)?;
        }
        // Open for writing, too: otherwise the pipe ends with its last writer.
        let pipe: File =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(pipe.into())
    }

    fn take_request(&self) -> Option<WorkerRequest> {
        // Renamed first, to not lose a request that arrives now.
        let taken = self.path.join("request.taken");
        std::fs::rename(self.request_path(), &taken).ok()?;
        let text = std::fs::read(&taken);
        let _ = std::fs::remove_file(&taken);
        Some(serde_json::from_slice::<RequestRecord>(&text.ok()?).ok()?.request)
    }
}

pub type SharedState = Rc<RefCell<Option<WorkerState>>>;

/// Takes requests for the loop and repairs its state file.
#[derive(Debug)]
pub struct WorkerControl {
    pub worker: Worker,
    pub shared_state: SharedState,
    /// At the start.
    pub directory_id: Option<(u64, u64)>,
}

impl ControlSource for WorkerControl {
    fn take(&mut self) -> Vec<ControlRequest> {
        if self.obstacle().is_some() {
            return Vec::new();
        }
        if let Some(state) = self.shared_state.borrow().as_ref() {
            // The file was removed or edited. Write errors are retried at the next event.
            match self.worker.load_state() {
                StoredState::State(found)
                    if (found.status, found.pid) == (state.status, state.pid) => {}
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
        let Some(request) = self.take_request() else { return Vec::new() };
        vec![match request {
            WorkerRequest::Pause => ControlRequest::Pause,
            WorkerRequest::Kill => ControlRequest::End,
            WorkerRequest::Resume => {
                // The user may have edited the limit.
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
        let shared_state = Rc::new(RefCell::new(Some(state.clone())));
        let directory_id = worker.directory();
        let mut control = WorkerControl { worker: worker.clone(), shared_state, directory_id };
        for damaged in ["", "{\"status\": \"run"] {
            std::fs::write(worker.state_path(), damaged).unwrap();
            assert_eq!(control.take(), []);
            let found = std::fs::read_to_string(worker.state_path()).unwrap();
            assert_eq!(found, damaged, "somebody may be writing it");
            worker.move_aside();
            assert_eq!(control.take(), []);
            assert!(matches!(worker.load_state(), StoredState::State(found) if *found == state));
        }
        let names = ["state.json.broken", "state.json.broken-2"];
        assert!(names.iter().all(|name| dir.path().join(name).exists()), "both are kept");
        // Only the limit may be edited.
        let edited =
            WorkerState { status: WorkerStatus::Failed, max_iterations: 9, ..state.clone() };
        worker.save(&edited).unwrap();
        assert_eq!(control.take(), []);
        let expected = WorkerState { max_iterations: 9, ..state };
        assert!(matches!(worker.load_state(), StoredState::State(found) if *found == expected));
        assert_eq!(control.obstacle(), None);
    }

    #[test]
    fn worker_loop_detects_replaced_directory() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().join("agent") };
        worker.create().unwrap();
        let shared_state = Rc::new(RefCell::new(Some(WorkerState::default())));
        let directory_id = worker.directory();
        let mut control = WorkerControl { worker: worker.clone(), shared_state, directory_id };
        assert_eq!(control.obstacle(), None);
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
        let pipe = worker.create_wake_pipe().unwrap();
        let mut byte = [0; 8];
        assert!(rustix::io::read(&pipe, &mut byte).is_err(), "nobody has knocked");
        worker.send_request(WorkerRequest::Pause).unwrap();
        assert_eq!(rustix::io::read(&pipe, &mut byte), Ok(1));
        drop(pipe);
        worker.send_request(WorkerRequest::Pause).unwrap();
    }
}
