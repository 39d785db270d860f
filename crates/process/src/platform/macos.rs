//! macOS: libproc, sysctl and kqueue. Written from documentation and type-checked, not run.
//!
//! Different from Linux:
//! - No subreaper. An orphan is found if it or its parent was seen, or by its environment.
//! - No parent-death signal. The next start ends what a killed ralph left behind.
//! - The environment of Apple's own programs is hidden.
//! - No pidfds. Between the check of an identity and the signal, a pid could in theory be reused.
//! - Users of a lock file are unknown, so that no lock is taken for stale.

mod event_queue;
mod file_changes;
mod process_table;
mod spawn;

pub(crate) use file_changes::FileChanges;
pub(crate) use process_table::{
    ProcessWatch, all_pids, become_reaper, command_line, environment, is_own, read_process,
    recent_pids, send_signal, start_of_child,
};
pub(crate) use spawn::{enlarge_pipe, memory_file, start};

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};

use super::super::LockUsers;

pub(crate) const EXTRA_SIGNALS: &[c_int] = &[];

pub(crate) fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

pub(crate) fn find_visibility(_file: &Path) -> Option<bool> {
    None
}

pub(crate) fn find_use(_lock: &Path, _users: &LockUsers<'_>) -> Option<bool> {
    None
}
