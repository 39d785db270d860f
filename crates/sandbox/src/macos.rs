//! macOS: Seatbelt.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, RecvFlags, SocketType};

use crate::docker::DockerSandbox;
use crate::plan::HostSystem;
use crate::seatbelt::{self, SeatbeltSandbox};
use crate::{Backend, BackendError, Sandbox, SandboxRequest};
use ralph_store::dir_handle::open_dir;

/// Best first.
pub(crate) const BACKENDS: &[Backend] = &[Backend::Seatbelt, Backend::Docker];

pub(crate) const HOST_SYSTEM: HostSystem = HostSystem::MacOs;

pub(crate) const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

pub(crate) fn prepare(
    backend: Backend,
    request: &SandboxRequest<'_>,
) -> Result<Box<dyn Sandbox>, BackendError> {
    match backend {
        Backend::Seatbelt => {
            Ok(Box::new(SeatbeltSandbox::prepare(request, Path::new(seatbelt::SANDBOX_EXEC))?))
        }
        Backend::Docker => Ok(Box::new(DockerSandbox::prepare(request)?)),
        Backend::Bwrap | Backend::Landlock => Err(backend.not_on_this_system()),
    }
}

/// Runs an internal subcommand; `None` if there is no such command.
pub(crate) fn inner_main(command: &str, args: &[OsString]) -> Option<u8> {
    (command == seatbelt::COMMAND).then(|| seatbelt::exec_main(args))
}

/// Fails if the path has links.
pub(crate) fn open_unlinked_file(path: &Path) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(open_dir(parent)?, name, flags, Mode::empty())?;
    Ok(File::from(file))
}

/// Changes the mode of an entry if `differs` says so about the present one. Returns whether it did.
pub(crate) fn restore_mode(
    dir: &OwnedFd,
    name: &OsStr,
    mode: Mode,
    differs: impl Fn(u32) -> bool,
) -> Result<bool, Errno> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        stat => stat?,
    };
    let differs = differs(stat.st_mode.into());
    if differs {
        rustix::fs::chmodat(dir, name, mode, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(differs)
}

pub(crate) fn mode_from(bits: u32) -> Mode {
    // The mode bits are the lower twelve.
    Mode::from_raw_mode(u16::try_from(bits & 0o7777).unwrap_or_default())
}

/// Does not block.
pub(crate) fn new_socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    set_up(rustix::net::socket(family, kind, None)?)
}

/// The new socket does not block.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    set_up(rustix::net::accept(listener)?)
}

/// A child that starts meanwhile inherits the socket; [`seatbelt::exec_main`] closes it.
fn set_up(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    let flags = rustix::fs::fcntl_getfl(socket.as_fd())?;
    rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
    Ok(socket)
}

/// Does nothing: there is no such call.
#[cfg(test)]
pub(crate) fn become_file_user(_user: u32) {}
