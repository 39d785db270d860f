//! Access to directories that an agent may have tampered with. Never follows links; adds missing
//! owner permissions.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::platform::{self, REACH};

pub const FROM_SANDBOX: &str = ".from-sandbox";

/// Numbered names to try before random ones.
const MAX_COUNTED: u32 = 100;

pub fn describe(err: Errno) -> String {
    std::io::Error::from(err).to_string()
}

#[derive(Debug)]
pub enum FileKind {
    Nothing,
    Link(PathBuf),
    Directory,
    File,
    Other,
}

/// Opens a directory; fails if a component is a link.
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

pub fn enter(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | REACH;
    opened_up(dir, || rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// Does not follow links. A missing entry is no error.
pub fn look(dir: &OwnedFd, name: &OsStr) -> Result<FileKind, Errno> {
    let stat = match opened_up(dir, || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(FileKind::Nothing),
        Err(err) => return Err(err),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(dir, name, Vec::new())?;
            let link = std::os::unix::ffi::OsStringExt::from_vec(link.into_bytes());
            FileKind::Link(OsString::into(link))
        }
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::File,
        _ => FileKind::Other,
    })
}

pub fn move_aside(dir: &OwnedFd, path: &Path, name: &OsStr) -> Result<PathBuf, Errno> {
    move_aside_into(dir, name, dir).map(|to| path.with_file_name(to))
}

/// Moves `name` to `to_dir` as `NAME.from-sandbox`, or a longer name if that is taken. Returns the
/// new name.
pub fn move_aside_into(dir: &OwnedFd, name: &OsStr, to_dir: &OwnedFd) -> Result<OsString, Errno> {
    let named = |end: &str| {
        let mut to = name.to_owned();
        to.push(FROM_SANDBOX);
        to.push(end);
        to
    };
    let counted = (1..MAX_COUNTED).map(|nth| named(&format!(".{nth}")));
    // An agent may have taken all numbered names, but cannot guess a random one.
    let drawn =
        (0..10).map(|_| named(&format!(".{:016x}", RandomState::new().build_hasher().finish())));
    for to in [named("")].into_iter().chain(counted).chain(drawn) {
        if let FileKind::Nothing = look(to_dir, &to)? {
            opened_up(to_dir, || opened_up(dir, || rustix::fs::renameat(dir, name, to_dir, &to)))?;
            return Ok(to);
        }
    }
    Err(Errno::EXIST)
}

/// Runs `act`. If permissions forbid it, adds the owner's to `dir` and retries.
pub fn opened_up<T>(dir: &OwnedFd, mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match act() {
        Err(err @ (Errno::ACCESS | Errno::PERM)) => {
            let stat = rustix::fs::fstat(dir)?;
            let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RWXU;
            change_mode(dir, mode).map_err(|_| err)?;
            act()
        }
        other => other,
    }
}

pub fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    platform::change_mode(dir, mode)
}
