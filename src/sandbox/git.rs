//! Where git keeps a project, and what of it is executed or leads elsewhere.
//!
//! git runs what `config` and `hooks` say, for whoever calls it: also for the user, outside, later. So
//! the agent may commit, but not change those.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::plan::{Disk, Guard, Mount, Was};

/// What git executes, or what leads it to something else that it does. `commondir` in a repository would move its
/// configuration and hooks elsewhere.
const EXECUTED: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];

/// The repository that a project is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// The top of the work tree.
    pub(super) top: PathBuf,
    /// The file `.git` of a worktree or a submodule.
    pointer: Option<PathBuf>,
    git_dir: PathBuf,
    /// What all worktrees share; the same as `git_dir` where there is only one.
    common: PathBuf,
}

/// Finds the repository that `project` is in. One whose work tree holds the home (some keep their
/// dot files that way) is none: it would show what has to be hidden.
pub(super) fn repository(
    disk: &dyn Disk,
    project: &Path,
    home: Option<&Path>,
) -> Option<Repository> {
    for top in project.ancestors() {
        let dot_git = top.join(".git");
        let Some(found) = disk.find(&dot_git) else { continue };
        if home.is_some_and(|home| home.starts_with(top)) {
            return None;
        }
        let top = top.to_owned();
        if found.is_dir {
            let git_dir = found.real;
            return Some(Repository { top, pointer: None, common: git_dir.clone(), git_dir });
        }
        let text = disk.read(&found.real)?;
        let git_dir = text.trim_end().strip_prefix("gitdir: ")?;
        let git_dir = disk.find(&top.join(git_dir)).filter(|found| found.is_dir)?.real;
        let common = match disk.read(&git_dir.join("commondir")) {
            Some(text) => disk.find(&git_dir.join(text.trim_end()))?.real,
            None => git_dir.clone(),
        };
        return Some(Repository { top, pointer: Some(found.real), git_dir, common });
    }
    None
}

/// The git directories of a project: its own, and the one that it shares with other worktrees.
pub(super) fn dirs(disk: &dyn Disk, project: &Path) -> Vec<PathBuf> {
    let repository = repository(disk, project, None);
    repository.map_or_else(Vec::new, |repository| vec![repository.git_dir, repository.common])
}

/// Protects the name by which git finds the repository of a project. Where there is none, the agent must not
/// make one: whoever calls git there, outside, would execute what its configuration says.
pub(super) fn protect_name(project: &Path, draft: &mut Draft<'_>, guards: &mut Vec<Guard>) {
    let dot_git = draft.follow(&project.join(".git"), guards);
    match draft.disk.find(&dot_git) {
        Some(found) if found.is_dir => {}
        Some(_) => draft.protect_one(&dot_git, guards),
        None if !draft.is_writable(&dot_git) => {}
        None => {
            guards.push(Guard { path: dot_git, was: Was::Nothing });
            // With this, and two directories, the project itself would be taken for a repository.
            let head = project.join("HEAD");
            if draft.disk.find(&head).is_none() && draft.disk.link(&head).is_none() {
                guards.push(Guard { path: head, was: Was::Nothing });
            }
        }
    }
}

/// Shows the repository's own directory, so that commits work, and protects what git executes. What the user
/// should know of it.
pub(super) fn protect(
    repository: &Repository,
    draft: &mut Draft<'_>,
    guards: &mut Vec<Guard>,
) -> Option<String> {
    let Repository { pointer, git_dir, common, .. } = repository;
    let read_only = |path: &Path| Mount::ReadOnly { from: path.to_owned(), at: path.to_owned() };
    let is_mounted = |path: &PathBuf| draft.mounts.contains(&read_only(path));
    if let Some(pointer) = pointer
        && !is_mounted(pointer)
    {
        draft.mounts.push(read_only(pointer));
    }
    draft.protect(common, EXECUTED.map(OsStr::new).into_iter(), guards);
    let worktrees = common.join("worktrees");
    if draft.disk.find(&worktrees).is_some() {
        // The other worktrees are none of the agent's business.
        draft.mounts.push(read_only(&worktrees));
        guards.push(Guard { path: worktrees, was: Was::Directory });
    }
    if git_dir != common {
        let names = ["commondir", "gitdir", "config.worktree"].map(OsStr::new);
        draft.protect(git_dir, names.into_iter(), guards);
    }
    let modules = common.join("modules");
    let mut found = Vec::new();
    if find_modules(draft.disk, &modules, 0, &mut found).is_none() {
        draft.mounts.push(read_only(&modules));
        return Some(format!(
            "{} holds too many submodules to protect each: nothing can be committed in them",
            modules.display()
        ));
    }
    for module in found {
        draft.protect(&module, EXECUTED.map(OsStr::new).into_iter(), guards);
    }
    None
}

/// The repositories of submodules, and of theirs. `None` if they are too many.
fn find_modules(disk: &dyn Disk, dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Option<()> {
    const MAX: usize = 200;
    let names: Vec<OsString> = disk.names(dir);
    for name in names {
        let path = dir.join(name);
        if !disk.find(&path).is_some_and(|found| found.is_dir) {
            continue;
        }
        if found.len() >= MAX || depth > 12 {
            return None;
        }
        let is_link = disk.link(&path).is_some();
        let below = if disk.find(&path.join("HEAD")).is_some() {
            found.push(path.clone());
            path.join("modules")
        } else {
            // The name of a submodule may hold slashes.
            path
        };
        if is_link {
            continue;
        }
        find_modules(disk, &below, depth + 1, found)?;
    }
    Some(())
}
