//! What a repository notes about one worktree: the directory `worktrees/NAME`.
//!
//! `git worktree prune` removes the notes of all worktrees that it cannot find, and follows links when it does. Here one
//! entry is found and removed, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use ralph_store::dir_handle::{enter, open_dir, opened_up};

/// The longest path that `gitdir` may hold.
const MAX_PATH: u64 = 8 << 10;

/// Whether the repository has an entry for the worktree.
///
/// # Errors
/// The entries cannot be read.
pub fn exists(common_dir: &Path, worktree: &Path) -> io::Result<bool> {
    Ok(find(common_dir, worktree)?.is_some())
}

/// Removes the entry of a worktree that is gone. A locked one stays, as with `git worktree prune`.
///
/// # Errors
/// The entries cannot be read, or the entry cannot be removed.
pub fn remove(common_dir: &Path, worktree: &Path) -> io::Result<()> {
    let Some((worktrees, name)) = find(common_dir, worktree)? else { return Ok(()) };
    let entry = enter(&worktrees, &name)?;
    if rustix::fs::statat(&entry, "locked", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    remove_tree(&worktrees, &name)?;
    // Other entries keep it.
    let common_dir = open_dir(&common_dir.canonicalize()?)?;
    let _ = rustix::fs::unlinkat(&common_dir, "worktrees", AtFlags::REMOVEDIR);
    Ok(())
}

/// The directory `worktrees`, and the name of the entry in it whose `gitdir` names the worktree.
fn find(common_dir: &Path, worktree: &Path) -> io::Result<Option<(OwnedFd, OsString)>> {
    let path = common_dir.canonicalize()?.join("worktrees");
    let worktrees = match open_dir(&path) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(err) => return Err(entry_error(&path, err)),
    };
    let wanted = canonical_path(worktree).join(".git");
    for entry in list(&worktrees).map_err(|err| entry_error(&path, err))? {
        let Ok(dir) = enter(&worktrees, &entry) else { continue };
        let Some(gitdir) = read_gitdir(&dir) else { continue };
        // It may be relative to the entry.
        if normalize_path(&path.join(&entry).join(gitdir)) == wanted {
            return Ok(Some((worktrees, entry)));
        }
    }
    Ok(None)
}

fn entry_error(path: &Path, err: Errno) -> io::Error {
    let err = io::Error::from(err);
    io::Error::new(err.kind(), format!("{}: {err}", path.display()))
}

/// A path whose last part need not exist, without links.
fn canonical_path(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// A path without `.` and `..`.
fn normalize_path(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

fn read_gitdir(entry: &OwnedFd) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(entry, "gitdir", flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_PATH).read_to_end(&mut text).ok()?;
    Some(OsStr::from_bytes(text.trim_ascii_end()).into())
}

fn list(dir: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = opened_up(dir, || rustix::fs::openat(dir, ".", flags, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in Dir::new(opened)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Removes a directory with everything in it. A link is removed, and what it leads to stays.
fn remove_tree(dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let below = enter(dir, name)?;
    for entry in list(&below)? {
        match opened_up(&below, || rustix::fs::unlinkat(&below, &entry, AtFlags::empty())) {
            Err(Errno::ISDIR | Errno::PERM) => remove_tree(&below, &entry)?,
            other => other?,
        }
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn entry(common: &Path, name: &str, gitdir: &str) -> PathBuf {
        let entry = common.join("worktrees").join(name);
        fs::create_dir_all(entry.join("logs")).unwrap();
        fs::write(entry.join("gitdir"), gitdir).unwrap();
        entry
    }

    #[test]
    fn worktree_removal_deletes_only_its_own_entry() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let common = dir.join("project/.git");
        let tree = |name: &str| dir.join("trees").join(name);
        let own = entry(&common, "own", &format!("{}/.git\n", tree("own").display()));
        let relative = entry(&common, "relative", "../../../../trees/relative/.git\n");
        let other = entry(&common, "other", "/elsewhere/.git\n");
        fs::create_dir(dir.join("trees")).unwrap();
        fs::create_dir(dir.join("victim")).unwrap();
        fs::write(dir.join("victim/file"), "mine").unwrap();
        symlink(dir.join("victim"), own.join("logs/refs")).unwrap();
        symlink(dir.join("victim"), common.join("worktrees/link")).unwrap();
        for name in ["own", "relative"] {
            assert!(exists(&common, &tree(name)).unwrap(), "{name}");
            remove(&common, &tree(name)).unwrap();
            remove(&common, &tree(name)).unwrap();
        }
        assert!(!own.exists() && !relative.exists() && other.exists());
        assert_eq!(fs::read_to_string(dir.join("victim/file")).unwrap(), "mine");
        fs::write(other.join("locked"), "").unwrap();
        remove(&common, Path::new("/elsewhere")).unwrap();
        assert!(other.exists(), "a locked entry stays");
    }

    #[test]
    fn worktree_removal_refuses_link_in_place_of_entries() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let victim = entry(&dir.join("victim"), "w", "/trees/w/.git\n");
        fs::create_dir(dir.join("git")).unwrap();
        symlink(dir.join("victim/worktrees"), dir.join("git/worktrees")).unwrap();
        remove(&dir.join("git"), Path::new("/trees/w")).unwrap_err();
        assert!(victim.join("gitdir").exists());
    }
}
