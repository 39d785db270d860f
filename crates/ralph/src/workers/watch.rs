//! Waiting for something to change about a worker, without looking again and again.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::store::{StoredState, Worker};
use ralph_process::Interrupts;

/// However quiet it is, one looks again after this long: a file system may not tell of changes that
/// another machine made.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The same where the system cannot tell of changes at all.
const POLL_INTERVAL_UNWATCHED: Duration = Duration::from_millis(20);

/// Tells of every change of a worker's files, and of the end of its loop.
#[derive(Debug)]
pub struct WorkerWatcher<'w> {
    worker: &'w Worker,
    changes: Option<OwnedFd>,
    /// The end of the loop's process.
    end: Option<OwnedFd>,
    interrupts: Option<Interrupts>,
}

/// What became of looking for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchResult<T> {
    Found(T),
    /// Not within the time that was given.
    Nothing,
    /// Somebody does not want to wait any longer.
    Interrupted,
}

impl<'w> WorkerWatcher<'w> {
    /// From now on: what is looked at after this is not missed.
    pub fn new(worker: &'w Worker) -> Self {
        let changes = system::watch_files(&worker.path);
        WorkerWatcher { worker, changes, end: None, interrupts: None }
    }

    /// Heeds what this process is asked, too.
    #[must_use]
    pub fn with_interrupts(mut self, interrupts: Option<Interrupts>) -> Self {
        self.interrupts = interrupts;
        self
    }

    /// Tells of what is written to this file, too.
    #[must_use]
    pub fn also_watch(mut self, file: &Path) -> Self {
        let heard = self.changes.as_ref().is_some_and(|changes| system::add_path(changes, file));
        if !heard {
            self.changes = None;
        }
        self
    }

    /// Looks now, after every change and at least every `interval`, until there is an answer.
    pub fn wait_for<T>(
        &mut self,
        patience: Option<Duration>,
        interval: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> WatchResult<T> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(found) = look() {
                return WatchResult::Found(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return WatchResult::Nothing;
            }
            let most = if self.changes.is_some() {
                interval.min(POLL_INTERVAL)
            } else {
                POLL_INTERVAL_UNWATCHED
            };
            self.wait(left.map_or(most, |left| left.min(most)));
            if self.interrupts.is_some_and(Interrupts::take_interrupt) {
                return WatchResult::Interrupted;
            }
        }
    }

    /// As [`Watch::look_for`], with nobody to interrupt it.
    pub fn wait_for_within<T>(
        &mut self,
        patience: Duration,
        look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        match self.wait_for(Some(patience), POLL_INTERVAL, look) {
            WatchResult::Found(found) => Some(found),
            WatchResult::Nothing | WatchResult::Interrupted => None,
        }
    }

    /// Waits for something to happen.
    pub fn wait(&mut self, most: Duration) {
        if self.end.is_none() && !self.track_process() {
            // It ended just now.
            return;
        }
        let signals = self.interrupts.map(Interrupts::fd);
        let fds = [&self.changes, &self.end].into_iter().flatten().map(AsFd::as_fd).chain(signals);
        let mut polled: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = rustix::time::Timespec::try_from(most).ok();
        // Interrupted or not: whoever waits looks again.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        let ended = self.end.is_some()
            && polled
                .get(usize::from(self.changes.is_some()))
                .is_some_and(|end| !end.revents().is_empty());
        if ended {
            self.end = None;
        }
        if let Some(changes) = &self.changes {
            let mut told = [0; 4096];
            while matches!(rustix::io::read(changes, &mut told), Ok(1..)) {}
        }
    }

    /// Takes note of the loop's process, if it can be known. Says no if there was one and is none now.
    fn track_process(&mut self) -> bool {
        let StoredState::State(state) = self.worker.load_state() else { return true };
        if !self.worker.is_alive() {
            return true;
        }
        self.end = state.pid.and_then(system::watch_process);
        // The number is its own only while it holds its lock.
        self.worker.is_alive()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use rustix::process::{Pid, PidfdFlags};

    /// What is saved in a directory is moved into its place.
    pub(super) fn watch_files(directory: &Path) -> Option<OwnedFd> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let of = WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&changes, directory, of).ok()?;
        Some(changes)
    }

    pub(super) fn add_path(changes: &OwnedFd, file: &Path) -> bool {
        inotify::add_watch(changes, file, WatchFlags::MODIFY).is_ok()
    }

    pub(super) fn watch_process(pid: u32) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    pub(super) fn changes_of(_directory: &Path) -> Option<OwnedFd> {
        None
    }

    pub(super) fn also(_changes: &OwnedFd, _file: &Path) -> bool {
        false
    }

    pub(super) fn end_of(_pid: u32) -> Option<OwnedFd> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use ralph_report::worker_lines::WorkerState;

    #[test]
    fn worker_watch_wakes_on_change_without_polling() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker { name: "agent".into(), path: dir.path().to_owned() };
        let mut watch = WorkerWatcher::new(&worker);
        let (mut looks, begun) = (0, Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| worker.save(&WorkerState::default()).unwrap());
            let found = watch.wait_for_within(Duration::from_secs(60), || {
                looks += 1;
                matches!(worker.load_state(), StoredState::State(_)).then_some(())
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
