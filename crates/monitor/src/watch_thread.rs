//! A thread that waits for changes of files and the end of processes, and makes one descriptor readable.
//!
//! The descriptors of a [`FileWatcher`] and of any number of [`ExitWatch`]es cannot be one for `poll(2)` on every
//! system. The thread sleeps in `poll(2)`, without a timeout unless files have just changed.

use std::collections::HashSet;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ralph_process::{ExitWatch, FileWatcher, WatchId};
use rustix::event::{PollFd, PollFlags};

/// Changes of files within this time are taken together, so that a busy run is not slowed down by
/// its viewers.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct WatchThread {
    shared: Arc<Mutex<Shared>>,
    /// Wakes the thread.
    control: Option<PipeWriter>,
    notified: PipeReader,
    notifier: Notifier,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    watcher: FileWatcher,
    new_exits: Vec<(u32, ExitWatch)>,
    changes: WatchedChanges,
    /// Why a file that exists is not watched, such as a limit of the system.
    problem: Option<String>,
}

impl Shared {
    fn keep_problem(&mut self, watch: io::Result<WatchId>) -> Option<WatchId> {
        let failed = watch.as_ref().err().filter(|err| err.kind() != io::ErrorKind::NotFound);
        if let (None, Some(err)) = (&self.problem, failed) {
            self.problem = Some(err.to_string());
        }
        watch.ok()
    }
}

/// What has happened since the last look.
#[derive(Debug, Default)]
pub(crate) struct WatchedChanges {
    pub(crate) files: HashSet<WatchId>,
    /// Pids of processes that have ended.
    pub(crate) ended: Vec<u32>,
}

/// Makes the descriptor readable.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<PipeWriter>);

impl Notifier {
    pub(crate) fn notify(&self) {
        // A full pipe is readable already.
        let _ = (&*self.0).write(b"!");
    }
}

impl WatchThread {
    /// # Errors
    /// There are too many open files or watchers.
    pub(crate) fn start() -> io::Result<WatchThread> {
        let (control_reader, control) = io::pipe()?;
        let (notified, notifier) = io::pipe()?;
        for fd in [control_reader.as_fd(), notified.as_fd(), notifier.as_fd()] {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        let notifier = Notifier(Arc::new(notifier));
        let watcher = FileWatcher::new()?;
        let changed_fd = watcher.as_fd().try_clone_to_owned()?;
        let shared = Shared {
            watcher,
            new_exits: Vec::new(),
            changes: WatchedChanges::default(),
            problem: None,
        };
        let shared = Arc::new(Mutex::new(shared));
        let waiter = Waiter {
            shared: Arc::clone(&shared),
            changed_fd,
            control: control_reader,
            notifier: notifier.clone(),
            exits: Vec::new(),
            have_files_changed: false,
        };
        let thread =
            std::thread::Builder::new().name("watch".to_owned()).spawn(move || waiter.run())?;
        Ok(WatchThread { shared, control: Some(control), notified, notifier, thread: Some(thread) })
    }

    pub(crate) fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.notified.as_fd()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch_entries(&self, dir: &Path) -> Option<WatchId> {
        let mut shared = self.shared();
        let watch = shared.watcher.watch_entries(dir);
        shared.keep_problem(watch)
    }

    pub(crate) fn watch_file(&self, file: &Path) -> Option<WatchId> {
        let mut shared = self.shared();
        let watch = shared.watcher.watch_file(file);
        shared.keep_problem(watch)
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.shared().problem.clone()
    }

    pub(crate) fn unwatch(&self, id: WatchId) {
        self.shared().watcher.unwatch(id);
    }

    /// Returns whether the process exists.
    pub(crate) fn watch_exit(&self, pid: u32) -> bool {
        let Some(watch) = ExitWatch::new(pid) else { return false };
        self.shared().new_exits.push((pid, watch));
        if let Some(control) = &self.control {
            let _ = (&*control).write(b"!");
        }
        true
    }

    /// What has happened since the last call. The descriptor is readable again at the next change.
    pub(crate) fn take_changes(&self) -> WatchedChanges {
        drain(&self.notified);
        std::mem::take(&mut self.shared().changes)
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        // The thread ends when its control pipe closes.
        self.control = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns whether the other end is open.
fn drain(mut pipe: &PipeReader) -> bool {
    let mut bytes = [0; 64];
    loop {
        match pipe.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}

/// The thread's own part.
#[derive(Debug)]
struct Waiter {
    shared: Arc<Mutex<Shared>>,
    changed_fd: OwnedFd,
    control: PipeReader,
    notifier: Notifier,
    exits: Vec<(u32, ExitWatch)>,
    /// At the last look.
    have_files_changed: bool,
}

impl Waiter {
    fn run(mut self) {
        loop {
            self.wait();
            if !drain(&self.control) {
                return;
            }
            self.collect();
        }
    }

    fn wait(&self) {
        if self.have_files_changed && self.poll(None, Some(PAUSE)) {
            return;
        }
        self.poll(Some(self.changed_fd.as_fd()), None);
    }

    /// Returns whether a descriptor is readable.
    fn poll(&self, changed_fd: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|it| rustix::time::Timespec::try_from(it).ok());
        let exits = self.exits.iter().filter_map(|(_, exit)| exit.fd());
        let fds = [self.control.as_fd()].into_iter().chain(changed_fd).chain(exits);
        let mut polled: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn collect(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.exits.append(&mut shared.new_exits);
        let files = shared.watcher.take_changes();
        self.have_files_changed = !files.is_empty();
        let mut ended = Vec::new();
        self.exits.retain(|(pid, exit)| {
            let has_ended = exit.fd().is_none_or(is_readable);
            if has_ended {
                ended.push(*pid);
            }
            !has_ended
        });
        if !files.is_empty() || !ended.is_empty() {
            shared.changes.files.extend(files);
            shared.changes.ended.extend(ended);
            self.notifier.notify();
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}
