//! The entry of a worktree in its repository: `worktrees/NAME`.
//!
//! `git worktree prune` removes all entries without a worktree, and follows links. This module
//! removes one entry and follows none.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::repository::canonical_parent;
use ralph_store::dir_handle::{enter, open_dir, opened_up};

const MAX_PATH: u64 = 8 << 10;

pub fn exists(common_dir: &Path, worktree: &Path) -> io::Result<bool> {
    Ok(find(common_dir, worktree)?.is_some())
}

/// Keeps a locked entry, as `git worktree prune` does.
pub fn remove(common_dir: &Path, worktree: &Path) -> io::Result<()> {
    let Some((worktrees, name)) = find(common_dir, worktree)? else { return Ok(()) };
    let entry = enter(&worktrees, &name)?;
    if rustix::fs::statat(&entry, "locked", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    remove_tree(&worktrees, &name)?;
    // Fails while there are other entries.
    let common_dir = open_dir(&common_dir.canonicalize()?)?;
    let _ = rustix::fs::unlinkat(&common_dir, "worktrees", AtFlags::REMOVEDIR);
    Ok(())
}

/// The directory `worktrees` and the entry's name.
fn find(common_dir: &Path, worktree: &Path) -> io::Result<Option<(OwnedFd, OsString)>> {
    let path = common_dir.canonicalize()?.join("worktrees");
    let worktrees = match open_dir(&path) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(err) => return Err(entry_error(&path, err)),
    };
    let wanted = canonical_parent(worktree).join(".git");
    for entry in list(&worktrees).map_err(|err| entry_error(&path, err))? {
        let Ok(dir) = enter(&worktrees, &entry) else { continue };
        let Some(gitdir) = read_gitdir(&dir) else { continue };
        // May be relative to the entry.
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

fn normalize_path(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normalized.pop();
            }
            Component::CurDir => {}
            part => normalized.push(part),
        }
    }
    normalized
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

/// Removes a directory tree without following links.
fn remove_tree(dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let subdir = enter(dir, name)?;
    for entry in list(&subdir)? {
        match opened_up(&subdir, || rustix::fs::unlinkat(&subdir, &entry, AtFlags::empty())) {
            Err(Errno::ISDIR | Errno::PERM) => remove_tree(&subdir, &entry)?,
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
