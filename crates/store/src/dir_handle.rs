//! Access to directories that an agent may have tampered with: links are never followed, and a directory without the
//! needed permissions gets them first.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Opens a directory only as a location, for which its owner needs no permission on it.
#[cfg(target_os = "linux")]
const REACH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const REACH: OFlags = OFlags::RDONLY;

/// The suffix of a file that was moved aside.
pub const FROM_SANDBOX: &str = ".from-sandbox";

/// How many numbered names are tried before random ones.
const MAX_COUNTED: u32 = 100;

/// The message of a system error.
pub fn describe(err: Errno) -> String {
    std::io::Error::from(err).to_string()
}

/// The kind of file behind a name.
#[derive(Debug)]
pub enum Entry {
    Nothing,
    Link(PathBuf),
    Directory,
    File,
    Other,
}

/// Opens a directory without following any link on the way.
///
/// # Errors
/// A component is a link or no directory, or the system refused it.
pub fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let mut dir =
        rustix::fs::open("/", OFlags::DIRECTORY | OFlags::CLOEXEC | REACH, Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            dir = enter(&dir, name)?;
        }
    }
    Ok(dir)
}

/// Opens a directory in a directory, unless it is a link.
///
/// # Errors
/// As above.
pub fn enter(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | REACH;
    opened_up(dir, || rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// Finds out what is behind a name in a directory, without following a link.
///
/// # Errors
/// The system refused it. A name that does not exist is no error.
pub fn look(dir: &OwnedFd, name: &OsStr) -> Result<Entry, Errno> {
    let stat = match opened_up(dir, || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Entry::Nothing),
        Err(err) => return Err(err),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(dir, name, Vec::new())?;
            let link = std::os::unix::ffi::OsStringExt::from_vec(link.into_bytes());
            Entry::Link(OsString::into(link))
        }
        FileType::Directory => Entry::Directory,
        FileType::RegularFile => Entry::File,
        _ => Entry::Other,
    })
}

/// Renames `name`, whose path is `path`, in its directory. Returns the new path.
///
/// # Errors
/// As for [`move_aside_into`].
pub fn move_aside(dir: &OwnedFd, path: &Path, name: &OsStr) -> Result<PathBuf, Errno> {
    move_aside_into(dir, name, dir).map(|to| path.with_file_name(to))
}

/// Moves `name` from `dir` to `to_dir`, where it is called `NAME.from-sandbox` or, if that is taken, something longer.
/// Returns the new name.
///
/// # Errors
/// No name is free, or the system refused it.
pub fn move_aside_into(dir: &OwnedFd, name: &OsStr, to_dir: &OwnedFd) -> Result<OsString, Errno> {
    let named = |end: &str| {
        let mut to = name.to_owned();
        to.push(FROM_SANDBOX);
        to.push(end);
        to
    };
    let counted = (1..MAX_COUNTED).map(|nth| named(&format!(".{nth}")));
    // An agent may have taken all numbered names, but it cannot guess a random one.
    let drawn =
        (0..10).map(|_| named(&format!(".{:016x}", RandomState::new().build_hasher().finish())));
    for to in [named("")].into_iter().chain(counted).chain(drawn) {
        if let Entry::Nothing = look(to_dir, &to)? {
            opened_up(to_dir, || opened_up(dir, || rustix::fs::renameat(dir, name, to_dir, &to)))?;
            return Ok(to);
        }
    }
    Err(Errno::EXIST)
}

/// Runs `act`. If the directory's permissions forbid it, adds those of the owner and tries again.
///
/// # Errors
/// The error of `act`.
pub fn opened_up<T>(dir: &OwnedFd, mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match act() {
        Err(err @ (Errno::ACCESS | Errno::PERM)) => {
            let stat = rustix::fs::fstat(dir)?;
            let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RWXU;
            // Only the owner may do this.
            change_mode(dir, mode).map_err(|_| err)?;
            act()
        }
        other => other,
    }
}

/// Sets the mode of an open directory or file.
///
/// # Errors
/// The system refused it.
#[cfg(target_os = "linux")]
pub fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // `fchmod` refuses a handle that is only a location. This path names the open file itself, so nobody can exchange it.
    let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
    rustix::fs::chmod(name, mode)
}

/// Sets the mode of an open directory or file.
///
/// # Errors
/// The system refused it.
#[cfg(not(target_os = "linux"))]
pub fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchmod(dir, mode)
}
