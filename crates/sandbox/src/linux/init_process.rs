//! ralph as the first process inside a sandbox, which then becomes the program.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ::landlock::{
    AccessFs, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};

use super::landlock;
use super::proxy;
use super::seccomp;
use ralph_process::trust;

/// The internal subcommand.
pub const COMMAND: &str = "__inside";

pub(super) const MAX_PORTS: usize = proxy::MAX_LISTENERS - 1;

pub const SETUP_FAILED: u8 = 125;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InitArgs {
    /// For the proxy's listener, then one per port.
    pub(super) socket: Option<i32>,
    /// Becomes the standard streams.
    pub(super) terminal: Option<i32>,
    pub(super) ports: Vec<u16>,
    pub(super) close: bool,
    pub(super) filter: bool,
    /// The number of writable paths that follow.
    pub(super) writable: Option<usize>,
}

impl InitArgs {
    pub(super) fn to_argument(&self) -> OsString {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    fn from_argument(text: &OsStr) -> Option<InitArgs> {
        serde_json::from_slice(text.as_bytes()).ok()
    }
}

/// Sets up the sandbox and executes the program. Returns only on failure.
pub fn main(args: &[OsString]) -> u8 {
    let [init_args, args @ ..] = args else {
        return print_failure("it is called by ralph itself, to set up a sandbox");
    };
    let Some(init_args) = InitArgs::from_argument(init_args) else {
        return print_failure("it was given orders that it does not know");
    };
    let Some((writable, [program, args @ ..])) =
        args.split_at_checked(init_args.writable.unwrap_or_default())
    else {
        return print_failure("it was given too few arguments");
    };
    match set_up(&init_args, writable) {
        Ok(()) => exec_inside(program, args),
        Err(message) => print_failure(&message),
    }
}

fn set_up(init_args: &InitArgs, writable: &[OsString]) -> Result<(), String> {
    if let Some(socket) = init_args.socket {
        send_listeners(socket, &init_args.ports)
            .map_err(|err| format!("the proxy cannot be set up: {err}"))?;
    }
    if let Some(terminal) = init_args.terminal {
        acquire_terminal(terminal).map_err(|err| format!("there is no terminal: {err}"))?;
    }
    if init_args.close {
        close_all();
    }
    reset_signals();
    if init_args.writable.is_some() {
        restrict_writes(writable).map_err(|err| format!("Landlock: {err}"))?;
    }
    if init_args.filter {
        seccomp::install(&seccomp::inside_namespaces())
            .map_err(|err| format!("system calls cannot be filtered: {err}"))?;
    }
    Ok(())
}

/// Restricts writing to these paths, for named pipes: read-only mounts do not stop writes to them.
/// Pipes on a read-only mount below one of the paths stay writable; only those in use are hidden.
///
/// Landlock forbids moving files between directories unless `Refer` is granted. On kernels without
/// it, nothing is restricted.
fn restrict_writes(paths: &[OsString]) -> Result<(), RulesetError> {
    if landlock::landlock_abi() < landlock::ABI_REFER {
        return Ok(());
    }
    let access = AccessFs::WriteFile;
    let mut ruleset = Ruleset::default()
        .handle_access(access | AccessFs::Refer)?
        .create()?
        .add_rules(path_beneath_rules(paths, access | AccessFs::Refer))?;
    // Programs reopen their streams, as `/dev/stderr`. Anonymous pipes and sockets are
    // unrestricted, and fail here.
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let _ = (&mut ruleset).add_rule(PathBeneath::new(stream, access));
    }
    ruleset.restrict_self()?;
    Ok(())
}

const CARRIED_PREFIX: &str = "__RALPH_ENV_";

/// Renames variables that would make the sandbox's own programs, which start unconfined, load an
/// agent's code. [`exec_inside`] restores them.
pub(super) fn carry_env(changes: &[(OsString, Option<OsString>)]) -> trust::EnvChanges {
    let mut env = changes.to_vec();
    for (name, value) in trust::untrusted_env(changes) {
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

pub(super) fn exec(program: &OsStr, args: &[OsString]) -> u8 {
    exec_with(program, args, &[])
}

fn exec_with(program: &OsStr, args: &[OsString], env: &[(OsString, Option<OsString>)]) -> u8 {
    let err = exec_program(program, args, env);
    let _ = print_failure(&format!("{} cannot be started inside: {err}", program.display()));
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
    let _ = io::stderr().write_all(format!("ralph: the sandbox: {message}\n").as_bytes());
    SETUP_FAILED
}

fn send_listeners(socket: i32, ports: &[u16]) -> io::Result<()> {
    let listen = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut listeners = vec![listen(proxy::PORT)?];
    for port in ports.iter().take(MAX_PORTS) {
        listeners.push(listen(*port)?);
    }
    let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(proxy::MAX_LISTENERS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    #[expect(
        unsafe_code,
        reason = "a descriptor that was passed by its number has no other way to be used"
    )]
    // SAFETY: the socket was inherited for this and is not closed here.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    rustix::net::sendmsg(socket, &[IoSlice::new(b"listeners")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Starts a session with an inherited terminal. Only a session leader can take one, and
/// bubblewrap's session belongs to its own first process.
fn acquire_terminal(terminal: i32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "as for the socket: a descriptor that was passed by its number")]
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
pub(super) fn close_all() {
    #[expect(unsafe_code, reason = "there is no safe interface for closing a range")]
    // SAFETY: descriptors above 2 are not used after this.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    if done == 0 {
        return;
    }
    // Before Linux 5.9.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    for fd in 3..limit.current.unwrap_or(4096).min(65_536) {
        #[expect(unsafe_code, reason = "as above, one by one")]
        // SAFETY: as above.
        unsafe {
            libc::close(fd as i32);
        }
    }
}

/// Resets TERM, which the outer processes ignore to outlive the agent.
fn reset_signals() {
    #[expect(unsafe_code, reason = "there is no safe interface for a default signal action")]
    // SAFETY: it only sets the default action.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
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
        ];
        let carried = carry_env(&changes);
        let set = |env: &[(OsString, Option<OsString>)], name: &str| {
            let last = env.iter().rev().find(|(other, _)| other == name);
            last.and_then(|(_, value)| value.clone())
        };
        assert_eq!(set(&carried, "LD_PRELOAD"), None);
        assert_eq!(set(&carried, "LD_AUDIT"), Some("/usr/lib/x.so".into()));
        let env = carried.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let arrived = restore_carried_env(env);
        assert_eq!(set(&arrived, "LD_PRELOAD"), Some("lib/x.so".into()));
        assert!(arrived.contains(&("__RALPH_ENV_LD_PRELOAD".into(), None)), "{arrived:?}");
    }

    #[test]
    fn init_orders_round_trip_through_argument() {
        for orders in [
            InitArgs {
                socket: Some(7),
                terminal: Some(8),
                ports: vec![80, 8080],
                close: true,
                filter: true,
                writable: Some(2),
            },
            InitArgs {
                socket: None,
                terminal: None,
                ports: Vec::new(),
                close: false,
                filter: false,
                writable: None,
            },
        ] {
            assert_eq!(InitArgs::from_argument(&orders.to_argument()), Some(orders));
        }
        for nonsense in ["x", "{}", r#"{"ports":[70000]}"#, r#"{"close":1}"#] {
            assert_eq!(InitArgs::from_argument(OsStr::new(nonsense)), None, "{nonsense}");
        }
    }
}
