//! Requests to a run, on the side of the run.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use super::files::SharedRecord;
use super::store::Worker;
use ralph_driver::world::ControlSource;
use ralph_process::create_named_pipe;
use ralph_store::requests::{self, Request, RequestQueue, SendError, is_pipe};
use ralph_store::runs::RunDir;
use ralph_store::save::save_without_sync;

impl Worker {
    /// The requests to the worker's last run.
    fn queue(&self) -> Option<RequestQueue> {
        // Living runs of version 0.1 have their directory elsewhere.
        let (_, run) = self.run().filter(|(_, run)| run.path.is_dir())?;
        Some(RequestQueue::of(&run))
    }

    pub fn send_request(&self, request: &Request) -> io::Result<()> {
        let old_pipe = self.old_pipe();
        if *request == Request::STOP && is_pipe(&old_pipe) {
            // Loops of version 0.1 take it from a file.
            save_without_sync(&self.path.join("request.json"), br#"{"request":"kill"}"#)?;
            requests::wake(&old_pipe);
        }
        match self.queue().map(|queue| queue.send(request)) {
            Some(Err(SendError::Io(err))) => Err(err),
            // Its state says that it has ended, or that it has not begun.
            Some(Ok(_) | Err(SendError::Ended)) | None => Ok(()),
        }
    }

    /// Has the loop look after its files.
    pub fn wake(&self) {
        if let Some(queue) = self.queue() {
            queue.wake();
        }
    }

    /// Drops requests to pause, resume or stop a loop that is gone.
    pub fn clear_requests(&self) {
        let _ = std::fs::remove_file(self.path.join("request.json"));
        if let Some(queue) = self.queue() {
            let _ = queue.drop_control();
        }
    }
}

/// Creates the pipe that announces requests.
fn create_wake_pipe(queue: &RequestQueue) -> io::Result<OwnedFd> {
    let path = queue.wake_pipe();
    queue.create_dir()?;
    if !is_pipe(&path) {
        let _ = std::fs::remove_file(&path);
        create_named_pipe(&path)?;
    }
    // Open for writing, too: otherwise the pipe ends with its last writer.
    let pipe: File =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    Ok(pipe.into())
}

/// Takes the requests to a run.
#[derive(Debug)]
pub struct RunControl {
    record: SharedRecord,
    queue: RequestQueue,
    /// The number of the last request that the run has taken.
    taken: u64,
    /// The list of requests after it was read.
    listed: Option<SystemTime>,
    /// The run could not be stopped from its terminal.
    needs_requests: bool,
    /// The lock of the name, held until the run's files are closed.
    _claim: File,
}

impl RunControl {
    /// Returns the control of a run and the pipe that announces requests. Starting a run is a later
    /// decision than any request from before to pause or stop it.
    pub fn open(
        record: SharedRecord,
        claim: File,
        run: &RunDir,
        needs_requests: bool,
    ) -> io::Result<(RunControl, OwnedFd)> {
        let queue = RequestQueue::of(run);
        let pipe = create_wake_pipe(&queue)?;
        queue.drop_control()?;
        let control =
            RunControl { record, queue, taken: 0, listed: None, needs_requests, _claim: claim };
        Ok((control, pipe))
    }

    /// The user may have edited the limit.
    fn with_limit(&self, request: Request) -> Request {
        match request {
            Request::Resume { max_iterations: None } => {
                Request::Resume { max_iterations: self.record.borrow().worker.edited_limit() }
            }
            request => request,
        }
    }
}

impl Drop for RunControl {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.queue.wake_pipe());
    }
}

impl ControlSource for RunControl {
    /// Called after every agent, so it must be cheap.
    fn take(&mut self) -> Vec<(u64, Request)> {
        let is_in_place = self.record.borrow_mut().repair();
        let listed = self.queue.version();
        if !is_in_place && self.needs_requests || listed.is_some() && listed == self.listed {
            return Vec::new();
        }
        self.listed = listed;
        let pending = self.queue.pending(self.taken).unwrap_or_default();
        if let Some((last, _)) = pending.last() {
            self.taken = *last;
        }
        let known = pending.into_iter().filter_map(|(number, request)| Some((number, request?)));
        known.map(|(number, request)| (number, self.with_limit(request))).collect()
    }

    fn acknowledge(&mut self) {
        // If it fails, they are taken again after the next start, which does no harm.
        let _ = self.queue.acknowledge(self.taken);
    }

    fn obstacle(&mut self) -> Option<String> {
        let record = self.record.borrow();
        let is_lost = self.needs_requests && !record.is_in_place();
        is_lost.then(|| {
            format!(
                "{} was removed or belongs to another worker now, so this loop cannot be \
                 controlled any more",
                record.worker.path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::RunRecord;
    use super::super::store::StoredState;
    use super::*;
    use ralph_report::worker_lines::{WorkerState, WorkerStatus};

    struct Scene {
        _dir: tempfile::TempDir,
        worker: Worker,
        run: RunDir,
    }

    fn begun() -> WorkerState {
        WorkerState { pid: Some(1), ..WorkerState::default() }
    }

    impl Scene {
        fn new() -> Scene {
            let dir = tempfile::tempdir().unwrap();
            let worker = Worker::at("agent", dir.path().join("agent"));
            worker.create().unwrap();
            let run = RunDir { id: "run".into(), path: dir.path().join("run") };
            run.create().unwrap();
            Scene { _dir: dir, worker, run }
        }

        fn control(&self, state: WorkerState) -> (RunControl, OwnedFd) {
            let record = RunRecord::shared(self.worker.clone(), self.run.clone());
            record.borrow_mut().saved = state;
            let claim = self.worker.claim().unwrap();
            RunControl::open(record, claim, &self.run, true).unwrap()
        }
    }

    #[test]
    fn requests_are_taken_once_in_order_and_acknowledged() {
        let scene = Scene::new();
        let state = WorkerState { max_iterations: 70, ..begun() };
        let queue = RequestQueue::of(&scene.run);
        queue.send(&Request::STOP).unwrap();
        let (mut control, pipe) = scene.control(state);
        assert_eq!(control.take(), [], "the start comes after the stop");
        for max_iterations in [None, Some(5)] {
            queue.send(&Request::Pause).unwrap();
            queue.send(&Request::Resume { max_iterations }).unwrap();
        }
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&pipe, &mut bytes), Ok(4), "each wakes the run");
        let resume = |limit| Request::Resume { max_iterations: Some(limit) };
        let expected = [Request::Pause, resume(70), Request::Pause, resume(5)];
        let expected: Vec<(u64, Request)> = (2..).zip(expected).collect();
        assert_eq!(control.take(), expected, "the state has the limit");
        assert_eq!(control.take(), []);
        assert_eq!(queue.pending(0).unwrap().len(), 4, "they survive a crash until then");
        control.acknowledge();
        assert!(queue.pending(0).unwrap().is_empty());
    }

    #[test]
    fn loop_of_older_version_gets_request_in_its_file() {
        let scene = Scene::new();
        create_named_pipe(&scene.worker.path.join("wake")).unwrap();
        scene.worker.send_request(&Request::STOP).unwrap();
        let text = std::fs::read_to_string(scene.worker.path.join("request.json")).unwrap();
        assert_eq!(text, r#"{"request":"kill"}"#);
    }

    #[test]
    fn worker_loop_rewrites_damaged_state() {
        let scene = Scene::new();
        let worker = &scene.worker;
        let state = WorkerState { worker_name: "agent".into(), ..begun() };
        let (mut control, _pipe) = scene.control(state.clone());
        for damaged in ["", "{\"status\": \"run"] {
            std::fs::write(worker.state_path(), damaged).unwrap();
            assert_eq!(control.take(), []);
            let found = std::fs::read_to_string(worker.state_path()).unwrap();
            assert_eq!(found, damaged, "a writer may exist");
            worker.move_aside();
            assert_eq!(control.take(), []);
            assert!(matches!(worker.load_state(), StoredState::State(found) if *found == state));
        }
        let names = ["state.json.broken", "state.json.broken-2"];
        assert!(names.iter().all(|name| worker.path.join(name).exists()), "both are kept");
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
        let scene = Scene::new();
        let worker = &scene.worker;
        let (mut control, _pipe) = scene.control(begun());
        assert_eq!(control.obstacle(), None);
        std::fs::rename(&worker.path, worker.path.with_file_name("gone")).unwrap();
        assert!(control.obstacle().is_some());
        worker.create().unwrap();
        assert!(control.obstacle().is_some());
        assert_eq!(control.take(), []);
        assert!(matches!(worker.load_state(), StoredState::Missing), "nothing is written there");
    }

    #[test]
    fn wake_pipe_replaces_file_and_survives_its_writers() {
        let scene = Scene::new();
        let queue = RequestQueue::of(&scene.run);
        queue.create_dir().unwrap();
        std::fs::write(queue.wake_pipe(), "in the way").unwrap();
        let pipe = create_wake_pipe(&queue).unwrap();
        let mut byte = [0; 8];
        assert!(rustix::io::read(&pipe, &mut byte).is_err(), "no request yet");
        for _ in 0..2 {
            queue.wake();
            assert_eq!(rustix::io::read(&pipe, &mut byte), Ok(1));
        }
        drop(pipe);
        queue.wake();
    }
}
