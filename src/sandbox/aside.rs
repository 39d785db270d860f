//! Puts what is guarded back as it was, once an agent is gone: what appeared is renamed, a link that was changed
//! is made again.
//!
//! The agent may have put anything in the way: links to what is the user's, directories that nothing can be
//! renamed in, files under the names that things would get. So no link is followed, a directory is opened up, and
//! what cannot be put right all the same is told.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Trace;
use super::plan::{Guard, Was};

/// A directory is only to be reached, which nobody can forbid its owner.
#[cfg(target_os = "linux")]
const REACH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const REACH: OFlags = OFlags::RDONLY;

/// What is added to the name of something that is moved aside.
pub(crate) const FROM_SANDBOX: &str = ".from-sandbox";

/// How many names in a row are tried before one is drawn by lot.
const MAX_COUNTED: u32 = 100;

/// Puts everything that is guarded back as it was, in this order. What there is to say of it.
pub fn set_aside(guards: &[Guard]) -> Vec<Trace> {
    let put = |guard: &Guard| match put_right(guard) {
        Ok(Some(to)) if guard.was == Was::Nothing && guard.path.ends_with(".git") => {
            Some(Trace::NoRepository(to))
        }
        Ok(to) => to.map(Trace::SetAside),
        Err(err) => Some(Trace::Stuck(guard.path.clone(), describe(err))),
    };
    guards.iter().filter_map(put).collect()
}

pub(crate) fn describe(err: Errno) -> String {
    std::io::Error::from(err).to_string()
}

/// What there is under a name.
enum Now {
    Nothing,
    Link(PathBuf),
    Directory,
    File,
    Other,
}

fn put_right(guard: &Guard) -> Result<Option<PathBuf>, Errno> {
    let (Some(parent), Some(name)) = (guard.path.parent(), guard.path.file_name()) else {
        return Ok(None);
    };
    let dir = match open_dir(parent) {
        Ok(dir) => dir,
        // Never through a link: what is behind it is the user's. One that the agent made in the place of a
        // directory has a guard of its own.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(err) => return Err(err),
    };
    let is_gone = match (&guard.was, look(&dir, name)?) {
        (Was::Nothing | Was::Directory | Was::File, Now::Nothing)
        | (Was::Directory, Now::Directory)
        | (Was::File, Now::File) => return Ok(None),
        (Was::Link(link), Now::Link(now)) if *link == now => return Ok(None),
        (Was::Link(_), Now::Nothing) => true,
        _ => false,
    };
    let to = if is_gone { None } else { Some(move_aside(&dir, &guard.path, name)?) };
    if let Was::Link(link) = &guard.was {
        opened_up(&dir, || rustix::fs::symlinkat(link, &dir, name))?;
    }
    Ok(to)
}

/// Opens a directory without following any link on the way.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
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
pub(crate) fn enter(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | REACH;
    opened_up(dir, || rustix::fs::openat(dir, name, flags, Mode::empty()))
}

fn look(dir: &OwnedFd, name: &OsStr) -> Result<Now, Errno> {
    let stat = match opened_up(dir, || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Now::Nothing),
        Err(err) => return Err(err),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(dir, name, Vec::new())?;
            let link = std::os::unix::ffi::OsStringExt::from_vec(link.into_bytes());
            Now::Link(OsString::into(link))
        }
        FileType::Directory => Now::Directory,
        FileType::RegularFile => Now::File,
        _ => Now::Other,
    })
}

/// Renames what is there. Where it is now.
pub(crate) fn move_aside(dir: &OwnedFd, path: &Path, name: &OsStr) -> Result<PathBuf, Errno> {
    move_aside_into(dir, name, dir).map(|to| path.with_file_name(to))
}

/// Moves `name` from `dir` to `to_dir`, where it is called `NAME.from-sandbox` or, if that is taken, something longer.
/// Returns the new name.
pub(crate) fn move_aside_into(
    dir: &OwnedFd,
    name: &OsStr,
    to_dir: &OwnedFd,
) -> Result<OsString, Errno> {
    let named = |end: &str| {
        let mut to = name.to_owned();
        to.push(FROM_SANDBOX);
        to.push(end);
        to
    };
    let counted = (1..MAX_COUNTED).map(|nth| named(&format!(".{nth}")));
    // Those can be taken, all of them; the agent cannot know what is drawn.
    let drawn =
        (0..10).map(|_| named(&format!(".{:016x}", RandomState::new().build_hasher().finish())));
    for to in [named("")].into_iter().chain(counted).chain(drawn) {
        if let Now::Nothing = look(to_dir, &to)? {
            opened_up(to_dir, || opened_up(dir, || rustix::fs::renameat(dir, name, to_dir, &to)))?;
            return Ok(to);
        }
    }
    Err(Errno::EXIST)
}

/// Does something in a directory; if that is forbidden, once more after the directory was made to allow it.
pub(crate) fn opened_up<T>(
    dir: &OwnedFd,
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match act() {
        Err(err @ (Errno::ACCESS | Errno::PERM)) => {
            let stat = rustix::fs::fstat(dir)?;
            let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RWXU;
            // Refused to all but its owner.
            change_mode(dir, mode).map_err(|_| err)?;
            act()
        }
        other => other,
    }
}

#[cfg(target_os = "linux")]
pub(super) fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // What is only reached cannot be changed but by this name of it, which is no link that anybody could exchange.
    let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
    rustix::fs::chmod(name, mode)
}

#[cfg(not(target_os = "linux"))]
fn change_mode(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::fchmod(dir, mode)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn guard(path: &Path, was: Was) -> Guard {
        Guard { path: path.to_owned(), was }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        (temp, dir)
    }

    /// Does something without the rights of an administrator over files. Only the thread that does it gives
    /// them up.
    fn as_an_ordinary_user<T: Send>(owned: &[&Path], act: impl FnOnce() -> T + Send) -> T {
        const STRANGER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            return act();
        }
        for path in owned {
            std::os::unix::fs::lchown(path, Some(STRANGER), None).unwrap();
        }
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                #[cfg(target_os = "linux")]
                #[expect(unsafe_code, reason = "there is no safe interface for one thread's user")]
                // SAFETY: it is about this thread's access to files, and the thread ends with the test.
                unsafe {
                    libc::setfsuid(STRANGER);
                }
                act()
            });
            done.join().unwrap()
        })
    }

    #[test]
    fn what_appears_where_nothing_was_is_put_aside() {
        let (_temp, dir) = place();
        let guards =
            [guard(&dir.join("hooks"), Was::Nothing), guard(&dir.join("absent"), Was::Nothing)];
        for nth in ["", ".1"] {
            fs::create_dir(dir.join("hooks")).unwrap();
            let put = dir.join(format!("hooks.from-sandbox{nth}"));
            assert_eq!(set_aside(&guards), [Trace::SetAside(put.clone())]);
            assert!(put.is_dir() && !dir.join("hooks").exists());
        }
        assert!(set_aside(&guards).is_empty());
    }

    #[test]
    fn no_name_that_is_taken_and_no_closed_directory_keeps_it_there() {
        let (_temp, dir) = place();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let parent = dir.join(".ralph");
        fs::create_dir(&parent).unwrap();
        let planted = parent.join("settings.json");
        for nth in 0..1000 {
            let end = if nth == 0 { String::new() } else { format!(".{nth}") };
            fs::write(parent.join(format!("settings.json.from-sandbox{end}")), "").unwrap();
        }
        for mode in [0o755, 0o555, 0o000] {
            fs::write(&planted, "evil").unwrap();
            fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
            let guards = [guard(&planted, Was::Nothing)];
            let traces = as_an_ordinary_user(&[&parent, &planted], || set_aside(&guards));
            assert!(matches!(traces.as_slice(), [Trace::SetAside(_)]), "{mode:o}: {traces:?}");
            assert!(!planted.exists(), "{mode:o}");
        }
    }

    #[test]
    fn what_cannot_be_moved_is_told() {
        let (_temp, dir) = place();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // The directory belongs to another.
        let parent = dir.join("theirs");
        fs::create_dir(&parent).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(parent.join("config"), "evil").unwrap();
        let guards = [guard(&parent.join("config"), Was::Nothing)];
        let traces = as_an_ordinary_user(&[], || set_aside(&guards));
        let [Trace::Stuck(path, why)] = traces.as_slice() else { panic!("{traces:?}") };
        assert_eq!(*path, parent.join("config"));
        assert!(why.contains("ermission denied"), "{why}");
    }

    #[test]
    fn a_link_that_was_changed_is_made_again() {
        let (_temp, dir) = place();
        let guards = [guard(&dir.join("hooks"), Was::Link("../theirs".into()))];
        let link = |to: &str| symlink(to, dir.join("hooks")).unwrap();
        link("../theirs");
        assert!(set_aside(&guards).is_empty());
        fs::remove_file(dir.join("hooks")).unwrap();
        link("elsewhere");
        assert_eq!(set_aside(&guards).len(), 1);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
        fs::remove_file(dir.join("hooks")).unwrap();
        set_aside(&guards);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
    }

    #[test]
    fn a_link_on_the_way_leads_nobody_to_the_users_own_files() {
        let (_temp, dir) = place();
        fs::create_dir(dir.join("home")).unwrap();
        fs::write(dir.join("home/settings.json"), "mine").unwrap();
        symlink(dir.join("home"), dir.join(".claude")).unwrap();
        let below = guard(&dir.join(".claude/settings.json"), Was::Nothing);
        assert!(set_aside(std::slice::from_ref(&below)).is_empty());
        assert_eq!(fs::read_to_string(dir.join("home/settings.json")).unwrap(), "mine");
        // Where no link was, it is the link that goes.
        let put = dir.join(".claude.from-sandbox");
        let guards = [guard(&dir.join(".claude"), Was::Directory), below];
        assert_eq!(set_aside(&guards), [Trace::SetAside(put.clone())]);
        assert_eq!(fs::read_link(put).unwrap(), dir.join("home"));
        assert_eq!(fs::read_to_string(dir.join("home/settings.json")).unwrap(), "mine");
        // A directory may be there.
        fs::create_dir(dir.join(".claude")).unwrap();
        fs::write(dir.join(".claude/settings.json"), "evil").unwrap();
        let put = dir.join(".claude/settings.json.from-sandbox");
        assert_eq!(set_aside(&guards), [Trace::SetAside(put)]);
    }
}
