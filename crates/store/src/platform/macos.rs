use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::safe_fs::open_stepwise;

/// Needs permission to read the directory: one that an agent made unreadable is an error.
pub(crate) const REACH: OFlags = OFlags::RDONLY;

pub(crate) fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchmod(dir, mode)
}

/// Fails with `PermissionDenied` if links lead out of `root`.
pub(crate) fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    open_stepwise(root, relative)
}
