//! Quarantines symbolic links that an agent put into the git directories of a project.
//!
//! git follows links in its own directories. `.git/logs/HEAD -> ~/.bashrc` makes it append to that
//! file, and `.git/worktrees -> DIR` makes `git worktree prune` delete the content of `DIR`. git
//! creates no links itself, except with `core.preferSymlinkRefs`. So new links are moved aside
//! before git is called outside the sandbox; so are pipes, sockets and devices, on which git could
//! block.
//!
//! The links at the start of a run are also in the project's record in `$RALPH_HOME`, with which
//! the next ralph compares if this one is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use ralph_process as process;
use ralph_store::dir_handle::{self, FROM_SANDBOX};
use ralph_store::home;
use ralph_store::project_record::{self, GitBaseline, GitDirs, ProjectHome};

use super::repository::read_git_file;

const MAX_DEPTH: usize = 64;

const MAX_NAMED: usize = 5;

/// The socket of `git fsmonitor--daemon`.
const FSMONITOR_SOCKET: &str = "fsmonitor--daemon.ipc";

#[derive(Debug, Clone, PartialEq, Eq)]
struct QuarantinedLink {
    path: PathBuf,
    /// Empty for a pipe, socket or device.
    target: PathBuf,
    to: PathBuf,
}

/// With targets. A pipe, socket or device has an empty target, which no link has.
type Links = BTreeMap<PathBuf, PathBuf>;

/// By the path that leads there: the `.git` of a work tree, or a git directory.
type Repositories = BTreeMap<PathBuf, GitDirs>;

#[derive(Debug, Clone, Copy)]
struct RepositoryPaths<'a> {
    /// Where git is called; without links.
    directory: &'a Path,
    /// Set by `--git-dir`.
    git_dir: Option<&'a Path>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RunBaseline {
    root: PathBuf,
    git: GitBaseline,
    /// For messages.
    record: Option<PathBuf>,
}

impl RunBaseline {
    /// Whether a link at `path` must be in the baseline.
    fn covers(&self, path: &Path) -> bool {
        let dirs = self.git.repositories.values();
        path.starts_with(&self.root)
            || self.git.repositories.contains_key(path)
            || dirs
                .flat_map(|dirs| [&dirs.git_dir, &dirs.common_dir])
                .any(|dir| path.starts_with(dir))
    }

    fn shares_repository(&self, repositories: &Repositories) -> bool {
        repositories.iter().any(|(at, dirs)| {
            [at, &dirs.git_dir, &dirs.common_dir].into_iter().any(|path| self.covers(path))
        })
    }

    fn is_new(&self, path: &Path, target: &Path) -> bool {
        self.covers(path) && self.git.links.get(path).is_none_or(|known| known != target)
    }
}

#[derive(Debug)]
pub struct LinkGuard {
    known: RunBaseline,
    /// `None` if the baseline could not be recorded.
    record: Option<ProjectHome>,
}

impl LinkGuard {
    /// Records the baseline of a run, after quarantining links of killed runs. Also returns
    /// warnings. Fails if a repository was replaced.
    pub fn start(home: Option<&Path>, root: &Path) -> io::Result<(LinkGuard, Vec<String>)> {
        let root = root.canonicalize()?;
        let paths = RepositoryPaths { directory: &root, git_dir: None };
        let known = open_records(home, &paths);
        let moved = quarantine_new_links(&paths, &known)?;
        let mut warnings: Vec<String> = warning(&moved).into_iter().collect();
        if let Some(home) = home {
            // If this fails, the next run compares again.
            known.iter().for_each(|known| drop(remove_killed_runs(home, known)));
        }
        let git = baseline(&root)?;
        let me = std::process::id();
        let record = home.map(|home| ProjectHome::new(home, &root));
        let recorded = record.as_ref().map_or(Ok(()), |record| {
            let updated = record.update(|record| {
                let mut open_runs = record.git.take().unwrap_or_default().open_runs;
                open_runs.retain(|pid| *pid != me && !process::has_exited(*pid));
                open_runs.push(me);
                record.git = Some(GitBaseline { open_runs, ..git.clone() });
            });
            updated.map(drop)
        });
        if let Err(err) = &recorded {
            warnings.push(format!(
                "cannot record the state of the git directories: {err}; if ralph is killed, links that the agent \
                 puts there are not noticed"
            ));
        }
        let record = record.filter(|_| recorded.is_ok());
        let file = record.as_ref().map(ProjectHome::file);
        Ok((LinkGuard { known: RunBaseline { root, git, record: file }, record }, warnings))
    }

    /// Quarantines new links and returns warnings. If it fails, git must not be called.
    pub fn check(&self) -> io::Result<Vec<String>> {
        let paths = RepositoryPaths { directory: &self.known.root, git_dir: None };
        let moved = quarantine_new_links(&paths, std::slice::from_ref(&self.known))?;
        Ok(warning(&moved).into_iter().collect())
    }

    /// Fails if an agent of another run works in the same repository: it could restore the links
    /// before git starts.
    pub fn refuse_other_agents(&self, home: Option<&Path>) -> io::Result<()> {
        let paths = RepositoryPaths { directory: &self.known.root, git_dir: None };
        find_conflicting_agent(&open_records(home, &paths))
            .map_or(Ok(()), |agent| Err(agent.error()))
    }

    /// The last check, after everything of the run has ended. Without it, the next ralph compares
    /// with the record.
    pub fn finish(self) -> io::Result<Vec<String>> {
        let warnings = self.check()?;
        if let Some(record) = self.record {
            let me = std::process::id();
            record.update(|record| {
                if let Some(git) = &mut record.git {
                    git.open_runs.retain(|pid| *pid != me);
                }
            })?;
        }
        Ok(warnings)
    }
}

/// Records of active or killed runs in the same repositories. Without such runs, links are the
/// user's.
fn open_records(home: Option<&Path>, paths: &RepositoryPaths<'_>) -> Vec<RunBaseline> {
    let records = home.map(project_record::all_records).unwrap_or_default();
    let known = records.into_iter().filter_map(|record| {
        let git = record.git.filter(|git| !git.open_runs.is_empty())?;
        let file = home.map(|home| ProjectHome::new(home, &record.root).file());
        Some(RunBaseline { git, root: record.root, record: file })
    });
    let mut known: Vec<RunBaseline> = known.collect();
    if !known.is_empty() {
        let repositories = paths.repositories();
        known.retain(|known| known.shares_repository(&repositories));
    }
    known
}

fn remove_killed_runs(home: &Path, known: &RunBaseline) -> io::Result<()> {
    if known.git.open_runs.iter().any(|pid| process::has_exited(*pid)) {
        ProjectHome::new(home, &known.root).update(|record| {
            if let Some(git) = &mut record.git {
                git.open_runs.retain(|pid| !process::has_exited(*pid));
            }
        })?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ConflictingAgent {
    root: PathBuf,
    pid: u32,
}

impl ConflictingAgent {
    fn error(&self) -> io::Error {
        let message = format!(
            "the agent of the run in {} (process {}) puts links into the git directory",
            display_path(&self.root),
            self.pid
        );
        let hint = "stop that run first: Ctrl+C in its terminal, or `ralph kill` for a worker";
        io::Error::other(LinkError { message, hint: hint.to_owned() })
    }
}

fn find_conflicting_agent(known: &[RunBaseline]) -> Option<ConflictingAgent> {
    let me = std::process::id();
    known.iter().find_map(|known| {
        let is_other = |pid: &&u32| **pid != me && !process::has_exited(**pid);
        let pid = *known.git.open_runs.iter().find(is_other)?;
        Some(ConflictingAgent { root: known.root.clone(), pid })
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitAccess {
    Read,
    Write,
}

/// How often this process quarantined each path.
static QUARANTINED: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

/// Checks before a git call outside a run. Queues warnings for [`take_warnings`].
///
/// A link that comes back was made by a live process, which could make it again after the check.
/// Then git must not write. Neither may it if any link was found while another run is active in the
/// repository.
pub(super) fn check_before_git(
    directory: &Path,
    git_dir: Option<&Path>,
    access: GitAccess,
) -> io::Result<()> {
    let home = home::ralph_home(|name| std::env::var_os(name));
    let directory = directory.canonicalize()?;
    let paths = RepositoryPaths { directory: &directory, git_dir };
    let known = open_records(home.as_deref(), &paths);
    let moved = quarantine_new_links(&paths, &known)?;
    record_quarantined(&moved);
    if access == GitAccess::Read {
        return Ok(());
    }
    let moved = QUARANTINED.lock().unwrap_or_else(PoisonError::into_inner);
    match (find_conflicting_agent(&known), moved.iter().find(|(_, times)| **times > 1)) {
        (Some(agent), _) if !moved.is_empty() => Err(agent.error()),
        (_, Some((path, _))) => Err(io::Error::other(LinkError {
            message: format!("{} was moved aside and came back", display_path(path)),
            hint: "find the process that makes it, and end it".to_owned(),
        })),
        _ => Ok(()),
    }
}

/// Checks again after git has written: new links may have been followed.
pub(super) fn check_after_write(directory: &Path, git_dir: Option<&Path>) {
    let home = home::ralph_home(|name| std::env::var_os(name));
    let Ok(directory) = directory.canonicalize() else { return };
    let paths = RepositoryPaths { directory: &directory, git_dir };
    let known = open_records(home.as_deref(), &paths);
    match quarantine_new_links(&paths, &known) {
        Ok(moved) if moved.is_empty() => {}
        Ok(moved) => {
            record_quarantined(&moved);
            let message = "links appeared in the git directory while git was writing to it; check the files that they \
                           lead to";
            queue_warnings(vec![message.to_owned()]);
        }
        Err(err) => {
            queue_warnings(vec![format!("the git directories could not be checked: {err}")]);
        }
    }
}

/// Counts the links. Warns once per path.
fn record_quarantined(moved: &[QuarantinedLink]) {
    let mut known = QUARANTINED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_first = |moved: &QuarantinedLink| {
        let times = known.entry(moved.path.clone()).or_default();
        *times += 1;
        *times == 1
    };
    let new: Vec<QuarantinedLink> = moved.iter().filter(|moved| is_first(moved)).cloned().collect();
    queue_warnings(warning(&new).into_iter().collect());
}

static PENDING_WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Queues each warning once.
pub fn queue_warnings(warnings: Vec<String>) {
    let mut pending = PENDING_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in warnings {
        if !pending.contains(&warning) {
            pending.push(warning);
        }
    }
}

pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *PENDING_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn baseline(root: &Path) -> io::Result<GitBaseline> {
    let repositories = RepositoryPaths { directory: root, git_dir: None }.repositories();
    let mut links = list_entry_links(&repositories);
    links.extend(list_links(&repositories)?);
    Ok(GitBaseline { repositories, links, open_runs: Vec::new() })
}

/// Links called `.git` come first: their targets are no git directories of this project and are not
/// searched.
fn quarantine_new_links(
    paths: &RepositoryPaths<'_>,
    known: &[RunBaseline],
) -> io::Result<Vec<QuarantinedLink>> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let mut moved = Vec::new();
    let mut quarantine = |repositories: &Repositories, links: Links| {
        let is_new = |(path, target): &(PathBuf, PathBuf)| {
            known.iter().any(|known| known.is_new(path, target))
        };
        for (path, target) in links.into_iter().filter(is_new) {
            let was = known.iter().find_map(|known| known.git.links.get(&path));
            let to = quarantine_link(repositories, &path, was).map_err(|err| {
                let why = dir_handle::describe(err);
                io::Error::other(format!("cannot move {} aside: {why}", describe(&path, &target)))
            })?;
            moved.push(QuarantinedLink { path, target, to });
        }
        io::Result::Ok(())
    };
    let repositories = paths.repositories();
    quarantine(&repositories, list_entry_links(&repositories))?;
    let repositories = paths.repositories();
    refuse_replaced(&repositories, known)?;
    quarantine(&repositories, list_links(&repositories)?)?;
    Ok(moved)
}

/// Fails if a `.git` leads to another directory than at the start of a run.
fn refuse_replaced(found: &Repositories, known: &[RunBaseline]) -> io::Result<()> {
    for (dot_git, now) in found {
        let is_in_place = now.git_dir == *dot_git && now.common_dir == *dot_git;
        for known in known {
            let was = known.git.repositories.get(dot_git);
            let is_same = match was {
                // A worktree may have been created again under another name.
                Some(was) => {
                    let worktrees = was.common_dir.join("worktrees");
                    let is_worktree = |dirs: &GitDirs| dirs.git_dir.starts_with(&worktrees);
                    now.common_dir == was.common_dir
                        && (now.git_dir == was.git_dir || (is_worktree(now) && is_worktree(was)))
                }
                None => is_in_place || !dot_git.starts_with(&known.root),
            };
            if !is_same {
                return Err(replaced_error(dot_git, was, now, known.record.as_deref()));
            }
        }
    }
    Ok(())
}

fn replaced_error(
    dot_git: &Path,
    was: Option<&GitDirs>,
    now: &GitDirs,
    record: Option<&Path>,
) -> io::Error {
    let was = was.map(|was| format!(", not to {} as before", display_path(&was.git_dir)));
    let message = format!(
        "{} was replaced since the run started: it leads to {} now{}",
        display_path(dot_git),
        display_path(&now.git_dir),
        was.unwrap_or_default()
    );
    let restore = "restore it if the agent replaced it".to_owned();
    let hint = record.map_or(restore.clone(), |record| {
        let record = display_path(record);
        format!("{restore}; if you did, remove the key \"git\" from {record}")
    });
    io::Error::other(LinkError { message, hint })
}

#[derive(Debug)]
struct LinkError {
    message: String,
    hint: String,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LinkError {}

pub fn hint(err: &io::Error) -> &str {
    let link_error = err.get_ref().and_then(|err| err.downcast_ref::<LinkError>());
    link_error
        .map_or("remove what is named there if it is not yours", |link_error| &link_error.hint)
}

fn display_path(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "?")
}

fn describe(path: &Path, target: &Path) -> String {
    match target.as_os_str().is_empty() {
        true => format!("{} (a pipe, socket or device)", display_path(path)),
        false => format!("{} -> {}", display_path(path), display_path(target)),
    }
}

fn warning(moved: &[QuarantinedLink]) -> Option<String> {
    if moved.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = moved
        .iter()
        .take(MAX_NAMED)
        .map(|QuarantinedLink { path, target, to }| {
            format!("{} (now {})", describe(path, target), display_path(to))
        })
        .collect();
    if moved.len() > MAX_NAMED {
        shown.push(format!("{} more", moved.len() - MAX_NAMED));
    }
    let is_special = |moved: &QuarantinedLink| moved.target.as_os_str().is_empty();
    let (kind, why) = if !moved.iter().any(is_special) {
        ("symbolic links", "would follow them")
    } else if moved.iter().all(is_special) {
        ("pipes, sockets or devices", "could wait for them forever")
    } else {
        ("links and special files", "would follow or wait for them")
    };
    Some(format!(
        "{kind} that were not there when the run started were moved out of the git directory, because git {why}: {}",
        shown.join(", ")
    ))
}

impl RepositoryPaths<'_> {
    /// git uses the first `.git` that it accepts, so all count.
    fn repositories(&self) -> Repositories {
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

fn list_entry_links(repositories: &Repositories) -> Links {
    let link = |path: &PathBuf| Some((path.clone(), std::fs::read_link(path).ok()?));
    repositories.keys().filter_map(link).collect()
}

fn list_links(repositories: &Repositories) -> io::Result<Links> {
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
    io::Error::other(format!("cannot look for links in {}: {why}", display_path(dir)))
}

/// Names only the first directories: the whole path can be very long.
fn too_deep(top: &Path, path: &Path) -> io::Error {
    let relative = path.strip_prefix(top).unwrap_or(path);
    let first: PathBuf = relative.components().take(3).collect();
    io::Error::other(format!(
        "{} is nested too deeply to be checked",
        display_path(&top.join(first))
    ))
}

/// Git directories that are in no other one.
fn top_dirs(repositories: &Repositories) -> Vec<&Path> {
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

/// Such as `objects/ab`.
fn is_object_dir(name: &OsStr) -> bool {
    name.len() == 2 && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn is_quarantined(name: &OsStr) -> bool {
    memchr::memmem::find(name.as_bytes(), FROM_SANDBOX.as_bytes()).is_some()
}

/// Moves a link to the top of its git directory, where git ignores such names; in `refs` or
/// `worktrees` it would follow any. Restores a changed link. Returns the new path.
fn quarantine_link(
    repositories: &Repositories,
    path: &Path,
    was: Option<&PathBuf>,
) -> Result<PathBuf, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let top = top_dirs(repositories).into_iter().find(|top| *top != path && path.starts_with(top));
    let top = top.unwrap_or(parent);
    let dir = dir_handle::open_dir(parent)?;
    let to_dir = dir_handle::open_dir(top)?;
    let to = dir_handle::move_aside_into(&dir, name, &to_dir)?;
    if let Some(was) = was.filter(|was| !was.as_os_str().is_empty()) {
        dir_handle::opened_up(&dir, || rustix::fs::symlinkat(was, &dir, name))?;
    }
    Ok(top.join(to))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Scene {
        _temp: tempfile::TempDir,
        home: PathBuf,
        root: PathBuf,
        git: PathBuf,
    }

    fn scene() -> Scene {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let git = dir.join("project/.git");
        for subdir in ["objects/info", "objects/ab", "refs/heads", "logs/refs", "modules/a/refs"] {
            fs::create_dir_all(git.join(subdir)).unwrap();
        }
        symlink("../elsewhere", git.join("kept")).unwrap();
        symlink("../elsewhere", git.join("logs/kept")).unwrap();
        Scene { home: dir.join("home"), root: dir.join("project"), git, _temp: temp }
    }

    impl Scene {
        fn start(&self) -> (LinkGuard, Vec<String>) {
            LinkGuard::start(Some(&self.home), &self.root).unwrap()
        }

        fn plant(&self, name: &str) -> PathBuf {
            symlink("/planted", self.git.join(name)).unwrap();
            self.git.join(name)
        }

        fn open_runs(&self) -> usize {
            project_record::all_records(&self.home)[0].git.as_ref().unwrap().open_runs.len()
        }
    }

    #[test]
    fn new_links_are_moved_to_top_of_git_directory() {
        let scene = scene();
        let (guard, warnings) = scene.start();
        assert!(warnings.is_empty());
        assert!(guard.check().unwrap().is_empty());
        let names = ["HEAD", "logs/HEAD", "objects/info/x", "refs/heads/main", "modules/a/refs/x"];
        let planted = names.map(|name| scene.plant(name));
        let object = scene.plant("objects/ab/cd");
        let warnings = guard.check().unwrap();
        assert_eq!(warnings.len(), 1, "one warning for all");
        assert!(warnings[0].contains("logs/HEAD -> /planted (now "), "{warnings:?}");
        assert!(planted.iter().all(|path| !path.is_symlink()));
        for name in ["HEAD", "HEAD.1", "x", "x.1", "main"] {
            let (name, number) = name.split_once('.').unwrap_or((name, ""));
            let dot = if number.is_empty() { "" } else { "." };
            let moved = scene.git.join(format!("{name}.from-sandbox{dot}{number}"));
            assert!(moved.is_symlink(), "{}", moved.display());
        }
        assert!(object.is_symlink(), "loose objects are replaced, not followed");
        assert!(guard.check().unwrap().is_empty(), "what was moved stays there");
        assert!(scene.git.join("kept").is_symlink() && scene.git.join("logs/kept").is_symlink());
    }

    #[test]
    fn link_in_log_of_branch_named_objects_is_moved() {
        let scene = scene();
        let dirs = ["logs/refs/heads/objects/ab", "lfs/objects/ab", "modules/a/logs/objects/ab"];
        dirs.iter().for_each(|dir| fs::create_dir_all(scene.git.join(dir)).unwrap());
        fs::write(scene.git.join("modules/a/logs/HEAD"), "").unwrap();
        let (guard, _) = scene.start();
        let planted = dirs.map(|dir| scene.plant(&format!("{dir}/x")));
        assert_eq!(guard.check().unwrap().len(), 1);
        assert!(planted.iter().all(|path| !path.is_symlink()));
    }

    #[test]
    fn new_pipes_and_sockets_are_moved_except_fsmonitor() {
        use std::os::unix::net::UnixListener;
        let scene = scene();
        let mkfifo = |path: &Path| {
            let mode = Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
        };
        mkfifo(&scene.git.join("own"));
        let (guard, _) = scene.start();
        let pipes = ["index", "logs/HEAD", "refs/heads/main"].map(|name| scene.git.join(name));
        pipes.iter().for_each(|path| mkfifo(path));
        let _sockets =
            ["socket", FSMONITOR_SOCKET].map(|name| UnixListener::bind(scene.git.join(name)));
        let warnings = guard.check().unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("pipes, sockets or devices that"), "{warnings:?}");
        assert!(pipes.iter().all(|path| path.symlink_metadata().is_err()));
        assert!(!scene.git.join("socket").exists() && scene.git.join(FSMONITOR_SOCKET).exists());
        assert!(scene.git.join("own").exists(), "it was there when the run started");
        assert!(guard.check().unwrap().is_empty());
    }

    #[test]
    fn links_of_git_and_editors_are_kept() {
        let scene = scene();
        fs::create_dir_all(scene.git.join("worktrees/w")).unwrap();
        fs::create_dir_all(scene.git.join("refs/remotes/origin")).unwrap();
        let (guard, _) = scene.start();
        for (name, target) in [
            ("HEAD", "refs/heads/main"),
            ("worktrees/w/HEAD", "refs/heads/w"),
            ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"),
            (".#config", "me@host.1234:5678"),
        ] {
            symlink(target, scene.git.join(name)).unwrap();
            assert!(guard.check().unwrap().is_empty(), "{name}");
        }
        for (name, target) in [
            ("refs/heads/a", "../../hooks/x"),
            ("refs/heads/b", "/planted"),
            ("logs/HEAD", "refs/heads/main"),
            ("worktrees/.#x", "/home/me@host"),
            ("worktrees/w/logs", "refs/heads"),
        ] {
            symlink(target, scene.git.join(name)).unwrap();
            assert_eq!(guard.check().unwrap().len(), 1, "{name}");
        }
    }

    #[test]
    fn too_deeply_nested_git_directory_is_named_in_error() {
        let scene = scene();
        let (guard, _) = scene.start();
        fs::create_dir_all(scene.git.join("x/y/z").join("d/".repeat(MAX_DEPTH))).unwrap();
        let error = guard.check().unwrap_err().to_string();
        let named = format!("{} is nested too deeply", scene.git.join("x/y/z").display());
        assert!(error.starts_with(&named), "{error}");
    }

    #[test]
    fn write_is_refused_while_other_agent_works() {
        let scene = scene();
        let (guard, _) = scene.start();
        guard.refuse_other_agents(Some(&scene.home)).unwrap();
        let record = ProjectHome::new(&scene.home, &scene.root);
        let parent = std::os::unix::process::parent_id();
        record.update(|record| record.git.as_mut().unwrap().open_runs.push(parent)).unwrap();
        let error = guard.refuse_other_agents(Some(&scene.home)).unwrap_err();
        assert!(error.to_string().contains(&format!("(process {parent})")), "{error}");
        assert!(hint(&error).contains("stop that run"), "{}", hint(&error));
    }

    #[test]
    fn changed_link_is_restored_and_removed_link_stays_gone() {
        let scene = scene();
        let (guard, _) = scene.start();
        fs::remove_file(scene.git.join("kept")).unwrap();
        assert!(guard.check().unwrap().is_empty());
        scene.plant("kept");
        assert_eq!(guard.check().unwrap().len(), 1);
        assert_eq!(fs::read_link(scene.git.join("kept")).unwrap(), Path::new("../elsewhere"));
    }

    #[test]
    fn links_of_killed_run_are_moved_and_user_links_are_kept() {
        let scene = scene();
        let (guard, _) = scene.start();
        drop(guard);
        assert_eq!(scene.open_runs(), 1);
        let planted = scene.plant("index");
        let (guard, warnings) = scene.start();
        assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
        assert!(guard.finish().unwrap().is_empty());
        assert_eq!(scene.open_runs(), 0);
        let own = scene.plant("index");
        let (_, warnings) = scene.start();
        assert!(warnings.is_empty() && own.is_symlink(), "{warnings:?}");
    }

    #[test]
    fn replaced_git_directory_is_error_and_not_searched() {
        let scene = scene();
        let (guard, _) = scene.start();
        let other = scene.root.join("other");
        fs::rename(&scene.git, &other).unwrap();
        fs::write(&scene.git, "gitdir: other\n").unwrap();
        let error = guard.check().unwrap_err();
        let record = ProjectHome::new(&scene.home, &scene.root).file();
        assert!(hint(&error).contains(record.to_str().unwrap()), "{}", hint(&error));
        let error = error.to_string();
        assert!(error.contains("was replaced since the run started"), "{error}");
        fs::remove_file(&scene.git).unwrap();
        symlink("other", &scene.git).unwrap();
        guard.check().unwrap();
        assert!(!scene.git.is_symlink() && scene.root.join(".git.from-sandbox").is_symlink());
        assert!(other.join("kept").is_symlink());
        fs::rename(&other, &scene.git).unwrap();
        assert!(guard.check().unwrap().is_empty());
    }

    #[test]
    fn links_in_common_directory_count_for_every_worktree() {
        let scene = scene();
        let tree = scene.root.with_file_name("tree");
        let own = scene.git.join("worktrees/tree");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let (guard, _) = LinkGuard::start(Some(&scene.home), &tree).unwrap();
        drop(guard);
        let check = |paths: &RepositoryPaths<'_>| {
            quarantine_new_links(paths, &open_records(Some(&scene.home), paths))
        };
        let planted = scene.plant("packed-refs");
        let paths = RepositoryPaths { directory: &scene.root, git_dir: None };
        assert_eq!(check(&paths).unwrap().len(), 1);
        assert!(!planted.is_symlink());
        let planted = scene.plant("packed-refs");
        let paths = RepositoryPaths { directory: Path::new("/"), git_dir: Some(&scene.git) };
        assert_eq!(check(&paths).unwrap().len(), 1);
        assert!(!planted.is_symlink());
        let record = ProjectHome::new(&scene.home, &tree);
        let gone = i32::MAX.unsigned_abs();
        record.update(|record| record.git.as_mut().unwrap().open_runs = vec![gone]).unwrap();
        let planted = scene.plant("packed-refs");
        let (guard, warnings) = scene.start();
        assert!(warnings.len() == 1 && !planted.is_symlink(), "{warnings:?}");
        guard.finish().unwrap();
        let own = scene.plant("packed-refs");
        assert!(
            check(&RepositoryPaths { directory: &scene.root, git_dir: None }).unwrap().is_empty()
        );
        assert!(own.is_symlink());
    }
}
