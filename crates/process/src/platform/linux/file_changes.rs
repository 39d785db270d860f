use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// One inotify instance; a user has 128 of them.
#[derive(Debug)]
pub(crate) struct FileChanges {
    inotify: OwnedFd,
}

impl FileChanges {
    pub(crate) fn new() -> io::Result<FileChanges> {
        Ok(FileChanges { inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    pub(crate) fn add_dir(&mut self, dir: &Path) -> io::Result<i32> {
        let events = WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        self.add(dir, events)
    }

    pub(crate) fn add_entries(&mut self, dir: &Path) -> io::Result<i32> {
        let events = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        self.add(dir, events)
    }

    pub(crate) fn add_file(&mut self, file: &Path) -> io::Result<i32> {
        self.add(file, WatchFlags::MODIFY)
    }

    fn add(&self, path: &Path, events: WatchFlags) -> io::Result<i32> {
        inotify::add_watch(&self.inotify, path, events).map_err(|err| match err {
            Errno::NOSPC => io::Error::new(
                io::ErrorKind::StorageFull,
                "too many watched files (fs.inotify.max_user_watches)",
            ),
            err => err.into(),
        })
    }

    pub(crate) fn remove(&mut self, id: i32) {
        // It may be gone with its file.
        let _ = inotify::remove_watch(&self.inotify, id);
    }

    /// `None` if changes were lost.
    pub(crate) fn take(&mut self) -> Option<Vec<i32>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let (mut changed, mut lost) = (Vec::new(), false);
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            changed.push(event.wd());
        }
        (!lost).then_some(changed)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
