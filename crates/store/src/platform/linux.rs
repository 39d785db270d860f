use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::super::safe_fs::{LINK_LEADS_OUT, open_stepwise, resolve_path};

/// Opens a directory as a location only, which needs no permission on it.
pub(crate) const REACH: OFlags = OFlags::PATH;

pub(crate) fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    // `fchmod` refuses an `O_PATH` handle. This path names the open file itself, so it cannot be
    // swapped.
    let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
    rustix::fs::chmod(name, mode)
}

/// Fails with `PermissionDenied` if links lead out of `root`.
pub(crate) fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let directory = File::open(root)?;
    let open = |relative: &Path| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&directory, relative, flags, Mode::empty(), resolve)
    };
    match open(relative) {
        Ok(file) => Ok(file.into()),
        // A kernel before 5.6, or a sandbox: agents in ralph's own use ralph, too.
        Err(Errno::NOSYS) => open_stepwise(root, relative),
        // An absolute link may lead back into `root`.
        Err(Errno::XDEV) => match open(&resolve_path(root, relative)?) {
            Ok(file) => Ok(file.into()),
            Err(Errno::XDEV) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
            }
            Err(err) => Err(err.into()),
        },
        Err(err) => Err(err.into()),
    }
}
