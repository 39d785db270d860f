use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::kqueue::VnodeEvents;

use super::event_queue::EventQueue;

/// Needs an open file for each watch.
#[derive(Debug)]
pub(crate) struct FileChanges {
    events: EventQueue,
    files: HashMap<RawFd, File>,
}

impl FileChanges {
    pub(crate) fn new() -> io::Result<FileChanges> {
        Ok(FileChanges { events: EventQueue::new()?, files: HashMap::new() })
    }

    pub(crate) fn add_dir(&mut self, dir: &Path) -> io::Result<i32> {
        self.add(dir, VnodeEvents::WRITE | VnodeEvents::DELETE | VnodeEvents::RENAME)
    }

    /// A change of any entry is a write to the directory.
    pub(crate) fn add_entries(&mut self, dir: &Path) -> io::Result<i32> {
        self.add_dir(dir)
    }

    pub(crate) fn add_file(&mut self, file: &Path) -> io::Result<i32> {
        self.add(file, VnodeEvents::WRITE | VnodeEvents::EXTEND)
    }

    fn add(&mut self, path: &Path, events: VnodeEvents) -> io::Result<i32> {
        // Does not keep a volume from being unmounted.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_EVTONLY).open(path)?;
        let fd = file.as_raw_fd();
        self.events.watch_file(fd, events)?;
        self.files.insert(fd, file);
        Ok(fd)
    }

    pub(crate) fn remove(&mut self, id: i32) {
        self.files.remove(&id);
    }

    /// Never loses changes.
    pub(crate) fn take(&mut self) -> Option<Vec<i32>> {
        Some(self.events.take_changed_files())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }
}
