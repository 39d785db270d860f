//! Linux: `/proc`, pidfds, inotify, a subreaper and a parent-death signal.

mod file_changes;
mod lock_users;
mod process_table;
mod spawn;

pub(crate) use file_changes::FileChanges;
pub(crate) use lock_users::{find_use, find_visibility};
pub(crate) use process_table::{
    ProcessWatch, all_pids, become_reaper, command_line, environment, is_own, read_process,
    recent_pids, send_signal, start_of_child,
};
pub(crate) use spawn::{enlarge_pipe, memory_file, start};

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};

/// Signals that would by default end this process without its children.
pub(crate) const EXTRA_SIGNALS: &[c_int] = &[libc::SIGPWR, libc::SIGSTKFLT];

/// This program, even after it was replaced on disk.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let myself = Path::new("/proc/self/exe");
    if myself.exists() { Ok(myself.to_owned()) } else { std::env::current_exe() }
}
