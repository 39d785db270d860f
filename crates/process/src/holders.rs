//! Checks whether a lock file may still be in use.

use std::path::{Path, PathBuf};

use super::platform;

/// Processes that may use a lock file without having it open.
#[derive(Debug, Clone, Copy)]
pub struct LockUsers<'a> {
    /// Also a first part: `git` matches `git-remote-https`.
    pub program: &'a str,
    /// With a flag or variable in `location_flags`, they may work anywhere.
    pub directories: &'a [PathBuf],
    pub location_flags: &'a [&'a str],
    /// Arguments of long-lived processes that hold no lock.
    pub idle_programs: &'a [&'a str],
}

/// Whether all possible users of `file` are visible. Needs Linux, a file system that no other
/// machine shares, and in a container a file of its own.
pub fn can_see_all_users(file: &Path) -> bool {
    platform::find_visibility(file).unwrap_or(false)
}

/// Whether a live process has the lock file open or is one of `users`. `true` if unknown.
pub fn may_be_in_use(lock: &Path, users: &LockUsers<'_>) -> bool {
    platform::find_use(lock, users).unwrap_or(true)
}
