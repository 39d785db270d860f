//! Waits for changes of a worker without busy polling.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::store::{StoredState, Worker};
use ralph_events::error::{Error, ErrorKind};
use ralph_process::{self as process, ExitWatch, FileWatcher, Interrupts};

/// Network file systems may not report changes from other machines.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where the system reports no changes at all.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_millis(20);

/// How long a run that is asked to end may take before it is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a killed process may take to disappear.
const KILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports changes of a worker's files and the end of its loop.
#[derive(Debug)]
pub struct WorkerWatcher<'w> {
    worker: &'w Worker,
    changes: Option<FileWatcher>,
    /// The end of the loop's process.
    end: Option<ExitWatch>,
    interrupts: Option<Interrupts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchResult<T> {
    Found(T),
    Nothing,
    Interrupted,
}

impl<'w> WorkerWatcher<'w> {
    /// Later changes are not missed.
    pub fn new(worker: &'w Worker) -> Self {
        let mut changes = FileWatcher::new().ok();
        // Files are saved by renaming.
        changes.take_if(|changes| changes.watch_dir(&worker.path).is_err());
        WorkerWatcher { worker, changes, end: None, interrupts: None }
    }

    #[must_use]
    pub fn with_interrupts(mut self, interrupts: Option<Interrupts>) -> Self {
        self.interrupts = interrupts;
        self
    }

    #[must_use]
    pub fn also_watch(mut self, file: &Path) -> Self {
        self.changes.take_if(|changes| changes.watch_file(file).is_err());
        self
    }

    /// Calls `check` now, after every change and at least every `interval`.
    pub fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        interval: Duration,
        mut check: impl FnMut() -> Option<T>,
    ) -> WatchResult<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(found) = check() {
                return WatchResult::Found(found);
            }
            let remaining =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return WatchResult::Nothing;
            }
            let longest = if self.changes.is_some() {
                interval.min(POLL_INTERVAL)
            } else {
                POLL_INTERVAL_UNWATCHED
            };
            self.wait(remaining.map_or(longest, |remaining| remaining.min(longest)));
            if self.interrupts.is_some_and(Interrupts::take_interrupt) {
                return WatchResult::Interrupted;
            }
        }
    }

    pub fn wait_for_within<T>(
        &mut self,
        timeout: Duration,
        check: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        match self.wait_for(Some(timeout), POLL_INTERVAL, check) {
            WatchResult::Found(found) => Some(found),
            WatchResult::Nothing | WatchResult::Interrupted => None,
        }
    }

    pub fn wait(&mut self, longest: Duration) {
        if self.end.is_none() && !self.track_process() {
            return;
        }
        let signals = self.interrupts.map(Interrupts::fd);
        let changes = self.changes.as_ref().map(AsFd::as_fd);
        let end = self.end.as_ref().and_then(ExitWatch::fd);
        let fds = changes.into_iter().chain(end).chain(signals);
        let mut polled: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = rustix::time::Timespec::try_from(longest).ok();
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        let ended = self.end.is_some()
            && polled
                .get(usize::from(self.changes.is_some()))
                .is_some_and(|end| !end.revents().is_empty());
        if ended {
            self.end = None;
        }
        if let Some(changes) = &mut self.changes {
            changes.take_changes();
        }
    }

    /// Returns false if it has just ended.
    fn track_process(&mut self) -> bool {
        let StoredState::State(state) = self.worker.load_state() else { return true };
        if !self.worker.is_alive() {
            return true;
        }
        self.end = state.pid.and_then(ExitWatch::new);
        // The pid is valid only while the loop holds its lock.
        self.worker.is_alive()
    }
}

impl Worker {
    /// Waits for the end of the run, and returns its exit code and last line. Interrupts end only
    /// the wait.
    pub fn wait_for_end(
        &self,
        interrupts: Option<Interrupts>,
    ) -> Result<(u8, Option<String>), Error> {
        let (name, label) = (self.handle(), self.label());
        let mut watch = WorkerWatcher::new(self).with_interrupts(interrupts);
        let ended = watch.wait_for(None, POLL_INTERVAL, || {
            // Asked first: the final state is still read.
            let alive = self.is_alive();
            let state = match self.state() {
                Ok(state) => state,
                Err(error) => return Some(Err(error)),
            };
            if state.status.has_ended() && !alive {
                return Some(Ok((state.exit_code.unwrap_or(1), state.last_event)));
            }
            (!alive).then(|| {
                let status = state.status.as_str();
                Err(Error::failed(format!("{label} is {status}, and its process is gone"))
                    .hint(format!("to continue it: ralph resume {name}")))
            })
        });
        match ended {
            WatchResult::Found(ended) => ended,
            WatchResult::Nothing | WatchResult::Interrupted => {
                let message = format!("stopped waiting for {label}");
                Err(Error::new(ErrorKind::Interrupted, message)
                    .hint(format!("it is still running: ralph status {name}, ralph kill {name}")))
            }
        }
    }

    /// Waits for a loop that was asked to end, then kills it. Returns whether it is gone.
    pub fn wait_or_kill(&self) -> bool {
        let mut watch = WorkerWatcher::new(self);
        let gone = || (!self.is_alive()).then_some(());
        if watch.wait_for_within(KILL_TIMEOUT, gone).is_some() {
            return true;
        }
        // It holds its lock, so the pid is still its own.
        if let StoredState::State(state) = self.load_state()
            && let Some(pid) = state.pid
        {
            process::kill(pid);
        }
        watch.wait_for_within(KILLED_TIMEOUT, gone).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_report::worker_lines::WorkerState;

    #[test]
    fn worker_watch_wakes_on_change_without_polling() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker::at("agent", dir.path().to_owned());
        let mut watch = WorkerWatcher::new(&worker);
        let (mut looks, begun) = (0, Instant::now());
        std::thread::scope(|scope| {
            let (look, looked) = std::sync::mpsc::channel();
            let saved = &worker;
            scope.spawn(move || {
                // Otherwise the change would be reported to the second wait.
                looked.recv().unwrap();
                saved.save(&WorkerState::default()).unwrap();
            });
            let found = watch.wait_for_within(Duration::from_secs(60), || {
                looks += 1;
                let found = matches!(worker.load_state(), StoredState::State(_)).then_some(());
                let _ = look.send(());
                found
            });
            assert_eq!(found, Some(()));
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(looks < 30, "{looks} looks");
        let mut looks = 0;
        let found = watch.wait_for_within(Duration::from_millis(300), || {
            looks += 1;
            worker.is_alive().then_some(())
        });
        assert_eq!((found, looks), (None, 2), "once now and once at the end");
    }
}
