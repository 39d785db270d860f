//! Finds the git directories of a project, and the links in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use ralph_store::dir_handle::{self, FROM_SANDBOX};
use ralph_store::project_record::GitDirs;

use super::messages::display_path;
use crate::repository::read_git_file;

pub(super) const MAX_DEPTH: usize = 64;

/// The socket of `git fsmonitor--daemon`.
pub(super) const FSMONITOR_SOCKET: &str = "fsmonitor--daemon.ipc";

/// With targets. A pipe, socket or device has an empty target, which no link has.
pub(super) type Links = BTreeMap<PathBuf, PathBuf>;

/// By the path that leads there: the `.git` of a work tree, or a git directory.
pub(super) type Repositories = BTreeMap<PathBuf, GitDirs>;

#[derive(Debug, Clone, Copy)]
pub(super) struct RepositoryPaths<'a> {
    /// Where git is called; without links.
    pub(super) directory: &'a Path,
    /// Set by `--git-dir`.
    pub(super) git_dir: Option<&'a Path>,
}

impl RepositoryPaths<'_> {
    /// git uses the first `.git` that it accepts, so all count.
    pub(super) fn repositories(&self) -> Repositories {
        let mut found = Repositories::new();
        let mut add = |at: PathBuf, git_dir: PathBuf| {
            let common = read_git_file(&git_dir.join("commondir"));
            let common = common.and_then(|path| git_dir.join(path.trim_end()).canonicalize().ok());
            let common_dir = common.unwrap_or_else(|| git_dir.clone());
            found.insert(at, GitDirs { git_dir, common_dir });
        };
        for top in self.directory.ancestors() {
            let dot_git = top.join(".git");
            let Ok(meta) = dot_git.symlink_metadata() else { continue };
            let git_dir =
                if meta.is_dir() { Some(dot_git.clone()) } else { git_dir_target(&dot_git, top) };
            // A dangling `.git` counts, too.
            let git_dir = git_dir.unwrap_or_else(|| dot_git.clone());
            add(dot_git, git_dir);
        }
        if let Some(git_dir) = self.git_dir.and_then(|git_dir| git_dir.canonicalize().ok()) {
            add(git_dir.clone(), git_dir);
        }
        found
    }
}

fn git_dir_target(dot_git: &Path, top: &Path) -> Option<PathBuf> {
    let real = dot_git.canonicalize().ok()?;
    if real.is_dir() {
        return Some(real);
    }
    let text = read_git_file(&real)?;
    top.join(text.trim_end().strip_prefix("gitdir: ")?).canonicalize().ok()
}

pub(super) fn list_entry_links(repositories: &Repositories) -> Links {
    let link = |path: &PathBuf| Some((path.clone(), std::fs::read_link(path).ok()?));
    repositories.keys().filter_map(link).collect()
}

pub(super) fn list_links(repositories: &Repositories) -> io::Result<Links> {
    let mut links = Links::new();
    for top in top_dirs(repositories) {
        match dir_handle::open_dir(top) {
            Ok(dir) => walk(&dir, top, top, &mut links)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(err) => return Err(unreadable(top, err)),
        }
    }
    Ok(links)
}

fn unreadable(dir: &Path, err: Errno) -> io::Error {
    let why = dir_handle::describe(err);
    io::Error::other(format!("cannot check {} for links: {why}", display_path(dir)))
}

/// Names only the first directories: the whole path can be very long.
fn too_deep(top: &Path, path: &Path) -> io::Error {
    let relative = path.strip_prefix(top).unwrap_or(path);
    let first: PathBuf = relative.components().take(3).collect();
    io::Error::other(format!(
        "cannot check {} for links: nested too deeply",
        display_path(&top.join(first))
    ))
}

/// Git directories that are in no other one.
pub(super) fn top_dirs(repositories: &Repositories) -> Vec<&Path> {
    let dirs: BTreeSet<&Path> =
        repositories.values().flat_map(|dirs| [dirs.git_dir.as_path(), &dirs.common_dir]).collect();
    let is_within = |dir: &Path| dirs.iter().any(|other| *other != dir && dir.starts_with(other));
    dirs.iter().copied().filter(|dir| !is_within(dir)).collect()
}

/// Collects links and special files in a directory tree, without following any.
fn walk(dir: &OwnedFd, path: &Path, top: &Path, links: &mut Links) -> io::Result<()> {
    let failed = |err: Errno| unreadable(path, err);
    if path.components().count() > top.components().count() + MAX_DEPTH {
        return Err(too_deep(top, path));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = dir_handle::opened_up(dir, || rustix::fs::openat(dir, ".", flags, Mode::empty()));
    let opened = match opened {
        Ok(opened) => opened,
        // git cannot follow links in a directory that it cannot enter.
        Err(Errno::ACCESS)
            if rustix::fs::accessat(dir, ".", rustix::fs::Access::EXEC_OK, AtFlags::empty())
                .is_err() =>
        {
            return Ok(());
        }
        Err(err) => return Err(failed(err)),
    };
    // Only the repository's own: a branch `objects/ab/x` has a log of that name.
    let is_objects = path == top.join("objects");
    for entry in Dir::new(opened).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(err) => return Err(failed(err)),
            },
            kind => kind,
        };
        match kind {
            FileType::RegularFile => {}
            // git replaces loose objects instead of writing through them.
            FileType::Directory if is_objects && is_object_dir(name) => {}
            FileType::Directory => match dir_handle::enter(dir, name) {
                Ok(subdir) => walk(&subdir, &path.join(name), top, links)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(err) => return Err(unreadable(&path.join(name), err)),
            },
            // git reads no such name at the top of a git directory.
            _ if path == top && is_quarantined(name) => {}
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => {
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    let link = path.join(name);
                    if !is_editor_lock(name, &target) && !is_symlink_ref(top, &link, &target) {
                        links.insert(link, target);
                    }
                }
                Err(Errno::NOENT | Errno::INVAL) => {}
                Err(err) => return Err(failed(err)),
            },
            FileType::Socket if name == FSMONITOR_SOCKET => {}
            _ => {
                links.insert(path.join(name), PathBuf::new());
            }
        }
    }
    Ok(())
}

/// Emacs: `.#NAME -> USER@HOST.PID`, which leads to no other directory.
fn is_editor_lock(name: &OsStr, target: &Path) -> bool {
    let target = target.as_os_str().as_bytes();
    name.as_bytes().starts_with(b".#") && target.contains(&b'@') && !target.contains(&b'/')
}

/// With `core.preferSymlinkRefs`, `HEAD` and links below `refs` lead below `refs` of the same git
/// directory. An agent can write there anyway.
fn is_symlink_ref(top: &Path, link: &Path, target: &Path) -> bool {
    let Some(parent) = link.parent() else { return false };
    let worktrees = top.join("worktrees");
    let worktree = link.ancestors().find(|above| above.parent() == Some(&worktrees));
    let git_dir = worktree.unwrap_or(top);
    let refs = git_dir.join("refs");
    let is_ref = link == git_dir.join("HEAD") || parent.starts_with(&refs);
    let is_plain = target.components().all(|part| matches!(part, Component::Normal(_)));
    is_ref && is_plain && parent.join(target).starts_with(&refs)
}

fn is_object_dir(name: &OsStr) -> bool {
    name.len() == 2 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn is_quarantined(name: &OsStr) -> bool {
    memchr::memmem::find(name.as_bytes(), FROM_SANDBOX.as_bytes()).is_some()
}
