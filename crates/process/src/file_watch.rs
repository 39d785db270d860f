//! Wakes on changes of files and on the end of processes, without polling.
//!
//! inotify and pidfds on Linux, kqueue on macOS. Each has a descriptor for `poll(2)`.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Pid;

use super::platform;

/// A watched directory or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(i32);

/// Watches any number of directories and files. Systems limit the number of watchers: share one.
#[derive(Debug)]
pub struct FileWatcher {
    changes: platform::FileChanges,
    watched: HashSet<WatchId>,
}

impl FileWatcher {
    /// # Errors
    /// The user has too many watchers or open files.
    pub fn new() -> io::Result<FileWatcher> {
        Ok(FileWatcher { changes: platform::FileChanges::new()?, watched: HashSet::new() })
    }

    /// Reports when a file is renamed into the directory, as an atomic save does, and when the
    /// directory itself is moved or removed. Changes inside files are not reported; on macOS, other
    /// changes of entries are.
    ///
    /// # Errors
    /// The directory is missing or unreadable, or there are too many watches.
    pub fn watch_dir(&mut self, dir: &Path) -> io::Result<WatchId> {
        let id = WatchId(self.changes.add_dir(dir)?);
        self.watched.insert(id);
        Ok(id)
    }

    /// Reports when an entry is created in the directory, removed from it, or renamed there, and when the directory
    /// itself is moved or removed.
    ///
    /// # Errors
    /// As for [`FileWatcher::watch_dir`].
    pub fn watch_entries(&mut self, dir: &Path) -> io::Result<WatchId> {
        let id = WatchId(self.changes.add_entries(dir)?);
        self.watched.insert(id);
        Ok(id)
    }

    /// Reports writes to the file. Follows the file, not its name: watch it again after a save.
    ///
    /// # Errors
    /// As for [`FileWatcher::watch_dir`].
    pub fn watch_file(&mut self, file: &Path) -> io::Result<WatchId> {
        let id = WatchId(self.changes.add_file(file)?);
        self.watched.insert(id);
        Ok(id)
    }

    pub fn unwatch(&mut self, id: WatchId) {
        if self.watched.remove(&id) {
            self.changes.remove(id.0);
        }
    }

    /// What has changed since the last call: all of it if the system lost count.
    pub fn take_changes(&mut self) -> HashSet<WatchId> {
        match self.changes.take() {
            Some(changed) => {
                changed.into_iter().map(WatchId).filter(|id| self.watched.contains(id)).collect()
            }
            None => self.watched.clone(),
        }
    }
}

/// Readable if there are changes to take.
impl AsFd for FileWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.fd()
    }
}

/// Waits for the end of a process that is not a child.
#[derive(Debug)]
pub struct ExitWatch(platform::ProcessWatch);

impl ExitWatch {
    /// `None` if there is no such process. The caller must know that the pid was not reused.
    pub fn new(pid: u32) -> Option<ExitWatch> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        // kqueue takes an unknown process for one that has just ended.
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            return None;
        }
        let watch = platform::ProcessWatch::exits(&[pid]);
        watch.is_complete().then_some(ExitWatch(watch))
    }

    /// Readable once the process has ended.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fds().next()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;

    fn is_readable(fd: BorrowedFd<'_>, seconds: i64) -> bool {
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut polled, Some(&timeout)).unwrap() == 1
    }

    #[test]
    fn watcher_says_which_directory_or_file_changed() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(&second).unwrap();
        let log = dir.path().join("log");
        let mut file = std::fs::File::create(&log).unwrap();
        let mut watcher = FileWatcher::new().unwrap();
        let first_id = watcher.watch_dir(&first).unwrap();
        let second_id = watcher.watch_dir(&second).unwrap();
        let log_id = watcher.watch_file(&log).unwrap();
        assert!(!is_readable(watcher.as_fd(), 0) && watcher.take_changes().is_empty());

        let saved = dir.path().join("new");
        std::fs::write(&saved, "text").unwrap();
        std::fs::rename(&saved, second.join("state")).unwrap();
        assert!(is_readable(watcher.as_fd(), 30));
        assert_eq!(watcher.take_changes(), HashSet::from([second_id]));
        file.write_all(b"line").unwrap();
        assert!(is_readable(watcher.as_fd(), 30));
        assert_eq!(watcher.take_changes(), HashSet::from([log_id]));
        watcher.unwatch(log_id);
        file.write_all(b"line").unwrap();
        std::fs::remove_dir(&first).unwrap();
        assert!(is_readable(watcher.as_fd(), 30));
        assert_eq!(watcher.take_changes(), HashSet::from([first_id]));
        assert!(watcher.watch_dir(&first).is_err());
    }

    #[test]
    fn exit_watch_wakes_at_end_of_process() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let watch = ExitWatch::new(child.id()).unwrap();
        assert!(!is_readable(watch.fd().unwrap(), 0));
        drop(child.stdin.take());
        assert!(is_readable(watch.fd().unwrap(), 30));
        child.wait().unwrap();
    }
}
