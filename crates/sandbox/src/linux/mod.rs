//! Linux: bubblewrap, and Landlock where namespaces are forbidden.

mod bwrap;
pub mod bwrap_args;
mod grants;
pub mod init_process;
pub mod landlock;
pub mod mounts;
mod seccomp;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::docker::DockerSandbox;
use crate::plan::HostSystem;
use crate::{Backend, BackendError, Sandbox, SandboxRequest};
use ralph_store::dir_handle::change_mode;

/// Best first.
pub(crate) const BACKENDS: &[Backend] = &[Backend::Bwrap, Backend::Docker, Backend::Landlock];

pub(crate) const HOST_SYSTEM: HostSystem = HostSystem::Linux;

/// The running program, not its path: an agent that works on ralph may have replaced that file.
const SELF_EXE: &str = "/proc/self/exe";

pub(crate) const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;

pub(crate) fn prepare(
    backend: Backend,
    request: &SandboxRequest<'_>,
) -> Result<Box<dyn Sandbox>, BackendError> {
    match backend {
        Backend::Bwrap => Ok(Box::new(bwrap::BwrapSandbox::prepare(request)?)),
        Backend::Landlock => Ok(Box::new(landlock::LandlockSandbox::prepare(request)?)),
        Backend::Docker => Ok(Box::new(DockerSandbox::prepare(request)?)),
        Backend::Seatbelt => Err(backend.not_on_this_system()),
    }
}

/// Runs an internal subcommand; `None` if there is no such command.
pub(crate) fn inner_main(command: &str, args: &[OsString]) -> Option<u8> {
    match command {
        init_process::COMMAND => Some(init_process::main(args)),
        mounts::COMMAND => Some(mounts::main(args)),
        landlock::COMMAND => Some(landlock::exec_main(args)),
        _ => None,
    }
}

/// Fails if the path has links.
pub(crate) fn open_unlinked_file(path: &Path) -> io::Result<File> {
    mounts::open_unlinked(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
}

/// Changes the mode of an entry if `differs` says so about the present one. Returns whether it did.
pub(crate) fn restore_mode(
    dir: &OwnedFd,
    name: &OsStr,
    mode: Mode,
    differs: impl Fn(u32) -> bool,
) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        file => file?,
    };
    let differs = differs(rustix::fs::fstat(&file)?.st_mode);
    if differs {
        change_mode(&file, mode)?;
    }
    Ok(differs)
}

pub(crate) fn mode_from(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Does not block.
pub(crate) fn new_socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, kind, SOCKET_FLAGS, None)
}

/// The new socket does not block.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SOCKET_FLAGS)
}

/// Gives up the rights of root over files, in this thread.
#[cfg(test)]
pub(crate) fn become_file_user(user: u32) {
    #[expect(unsafe_code, reason = "there is no safe interface for one thread's user")]
    // SAFETY: it changes only this thread's file access; the thread ends with the test.
    unsafe {
        libc::setfsuid(user);
    }
}
