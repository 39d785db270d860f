//! The last step inside a sandbox: ralph becomes the program, with the environment meant for it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ralph_process::trust;

const SETUP_FAILED: u8 = 125;

const CARRIED_PREFIX: &str = "__RALPH_ENV_";

/// Renames variables that would make the sandbox's own programs, which start unconfined, load an
/// agent's code. [`exec_inside`] restores them. So it does with those that macOS removes whenever it
/// starts a program of its own, such as `sandbox-exec`.
pub(super) fn carry_env(changes: &[(OsString, Option<OsString>)]) -> trust::EnvChanges {
    let mut env = changes.to_vec();
    let removed =
        trust::changed_env(changes).filter(|(name, _)| name.as_bytes().starts_with(b"DYLD_"));
    for (name, value) in trust::untrusted_env(changes).into_iter().chain(removed) {
        let mut renamed = OsString::from(CARRIED_PREFIX);
        renamed.push(&name);
        env.extend([(name, None), (renamed, Some(value))]);
    }
    env
}

/// Undoes [`carry_env`].
fn restore_carried_env(env: impl Iterator<Item = (OsString, OsString)>) -> trust::EnvChanges {
    let restored = env.filter_map(|(renamed, value)| {
        let name = renamed.as_bytes().strip_prefix(CARRIED_PREFIX.as_bytes())?;
        Some([(OsStr::from_bytes(name).to_owned(), Some(value)), (renamed, None)])
    });
    restored.flatten().collect()
}

/// Executes the program with its intended environment. Returns an exit code on failure.
pub(super) fn exec_inside(program: &OsStr, args: &[OsString]) -> u8 {
    exec_with(program, args, &restore_carried_env(std::env::vars_os()))
}

/// As [`exec_inside`], with these changes.
pub(super) fn exec_with(
    program: &OsStr,
    args: &[OsString],
    env: &[(OsString, Option<OsString>)],
) -> u8 {
    let err = exec_program(program, args, env);
    let _ = print_failure(&format!("cannot start {} in the sandbox: {err}", program.display()));
    if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn exec_program(
    program: &OsStr,
    args: &[OsString],
    env: &[(OsString, Option<OsString>)],
) -> io::Error {
    let exec = |mut command: Command| {
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(args).exec()
    };
    let err = exec(Command::new(program));
    if err.raw_os_error() == Some(libc::ENOEXEC) {
        // A script without `#!`; `execvp` does the same.
        let mut shell = Command::new("/bin/sh");
        shell.arg(program);
        return exec(shell);
    }
    err
}

pub(super) fn print_failure(message: &str) -> u8 {
    let _ = io::stderr().write_all(format!("ralph: sandbox: {message}\n").as_bytes());
    SETUP_FAILED
}

/// Starts a session with an inherited terminal. Only a session leader can take one, and
/// bubblewrap's session belongs to its own first process.
pub(super) fn acquire_terminal(terminal: i32) -> io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "a descriptor that was passed by its number has no other way to be used"
    )]
    // SAFETY: the terminal was inherited for this.
    let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
    // Fails for a session leader.
    let _ = rustix::process::setsid();
    rustix::process::ioctl_tiocsctty(terminal)?;
    rustix::stdio::dup2_stdin(terminal)?;
    rustix::stdio::dup2_stdout(terminal)?;
    rustix::stdio::dup2_stderr(terminal)?;
    Ok(())
}

/// Closes inherited descriptors, which may lead out of the sandbox.
pub(super) fn close_one_by_one() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    for fd in 3..limit.current.unwrap_or(4096).min(65_536) {
        #[expect(unsafe_code, reason = "there is no safe interface for descriptors without owners")]
        // SAFETY: descriptors above 2 are not used after this.
        unsafe {
            libc::close(fd as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_variables_arrive_under_original_names() {
        let changes = [
            ("LD_PRELOAD".into(), Some("lib/x.so".into())),
            ("LD_AUDIT".into(), Some("/usr/lib/x.so".into())),
            ("DYLD_LIBRARY_PATH".into(), Some("/usr/local/lib".into())),
        ];
        let carried = carry_env(&changes);
        let set = |env: &[(OsString, Option<OsString>)], name: &str| {
            let last = env.iter().rev().find(|(other, _)| other == name);
            last.and_then(|(_, value)| value.clone())
        };
        assert_eq!(set(&carried, "LD_PRELOAD"), None);
        assert_eq!(set(&carried, "LD_AUDIT"), Some("/usr/lib/x.so".into()));
        assert_eq!(set(&carried, "DYLD_LIBRARY_PATH"), None, "trusted, but lost on the way");
        let env = carried.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let arrived = restore_carried_env(env);
        assert_eq!(set(&arrived, "LD_PRELOAD"), Some("lib/x.so".into()));
        assert_eq!(set(&arrived, "DYLD_LIBRARY_PATH"), Some("/usr/local/lib".into()));
        assert!(arrived.contains(&("__RALPH_ENV_LD_PRELOAD".into(), None)), "{arrived:?}");
    }
}
