//! Becoming another program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes another program, under the same process number. `env` is all that is in its environment;
/// `None` leaves it as it is. Comes back only with what went wrong.
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

/// Kills a process that is known to be the one that is meant. It may have ended since.
pub fn kill(pid: u32) {
    if let Some(pid) = to_pid(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Whether there is no process of this number any more. One that has ended and was not waited for is still there.
pub fn has_exited(pid: u32) -> bool {
    let there = to_pid(pid).map(rustix::process::test_kill_process);
    matches!(there, None | Some(Err(rustix::io::Errno::SRCH)))
}

fn to_pid(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
}
