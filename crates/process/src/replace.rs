//! Replacing this process, and single processes by pid.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::platform;

/// Replaces this process with another program. `env` is its whole environment; `None` keeps the
/// current one. Returns only on failure.
pub fn exec(
    program: &OsString,
    args: &[OsString],
    env: Option<Vec<(OsString, OsString)>>,
) -> io::Error {
    let mut command = Command::new(program);
    command.args(args);
    if let Some(env) = env {
        command.env_clear().envs(env);
    }
    command.exec()
}

/// The path of this program, for starting it again. On Linux that works even after it was replaced
/// on disk.
///
/// # Errors
/// The path is unknown.
pub fn own_program() -> io::Result<PathBuf> {
    platform::own_program()
}

/// Kills a process. The caller must know that the pid was not reused.
pub fn kill(pid: u32) {
    if let Some(pid) = to_pid(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Whether no process has this pid. A zombie has not exited in this sense.
pub fn has_exited(pid: u32) -> bool {
    let result = to_pid(pid).map(rustix::process::test_kill_process);
    matches!(result, None | Some(Err(rustix::io::Errno::SRCH)))
}

fn to_pid(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
}
