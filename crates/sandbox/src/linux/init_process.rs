//! ralph as the first process inside a sandbox, which then becomes the program.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use ::landlock::{
    AccessFs, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};

use super::{landlock, seccomp};
use crate::inner_exec::{self, acquire_terminal, exec_inside, print_failure};
use crate::proxy;

/// The internal subcommand.
pub const COMMAND: &str = "__inside";

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
        return print_failure("internal command of ralph, to set up a sandbox");
    };
    let Some(init_args) = InitArgs::from_argument(init_args) else {
        return print_failure("invalid arguments");
    };
    let Some((writable, [program, args @ ..])) =
        args.split_at_checked(init_args.writable.unwrap_or_default())
    else {
        return print_failure("too few arguments");
    };
    match set_up(&init_args, writable) {
        Ok(()) => exec_inside(program, args),
        Err(message) => print_failure(&message),
    }
}

fn set_up(init_args: &InitArgs, writable: &[OsString]) -> Result<(), String> {
    if let Some(socket) = init_args.socket {
        send_listeners(socket, &init_args.ports)
            .map_err(|err| format!("cannot set up the proxy: {err}"))?;
    }
    if let Some(terminal) = init_args.terminal {
        acquire_terminal(terminal).map_err(|err| format!("cannot use the terminal: {err}"))?;
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
            .map_err(|err| format!("cannot filter system calls: {err}"))?;
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

fn send_listeners(socket: i32, ports: &[u16]) -> io::Result<()> {
    let listen = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut listeners = vec![listen(proxy::PORT)?];
    for port in ports.iter().take(proxy::MAX_LOCAL_PORTS) {
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

/// Closes inherited descriptors, which may lead out of the sandbox.
pub(super) fn close_all() {
    #[expect(unsafe_code, reason = "there is no safe interface for closing a range")]
    // SAFETY: descriptors above 2 are not used after this.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    if done == 0 {
        return;
    }
    // Before Linux 5.9.
    inner_exec::close_one_by_one();
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
