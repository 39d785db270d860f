//! Where git keeps a project, and what of it is executed or leads elsewhere.
//!
//! git runs what `config` and `hooks` say, for whoever calls it: also for the user, outside, later. So
//! the agent may commit, but not change those.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::plan::{Disk, Draft, Guard, Mount};

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

/// Shows the repository's own directory, so that commits work, and protects what git executes.
pub(super) fn protect(repository: &Repository, draft: &mut Draft<'_>, guards: &mut Vec<Guard>) {
    let Repository { pointer, git_dir, common, .. } = repository;
    let read_only = |path: &Path| Mount::ReadOnly { from: path.to_owned(), at: path.to_owned() };
    if let Some(pointer) = pointer {
        draft.mounts.push(read_only(pointer));
    }
    // `commondir` in a repository would move its configuration and hooks elsewhere.
    let names = ["config", "config.worktree", "hooks", "commondir"].map(OsStr::new);
    draft.protect(common, names.into_iter(), guards);
    let worktrees = common.join("worktrees");
    if draft.disk.find(&worktrees).is_some() {
        // The other worktrees are none of the agent's business.
        draft.mounts.push(read_only(&worktrees));
    }
    if git_dir != common {
        let names = ["commondir", "gitdir", "config.worktree"].map(OsStr::new);
        draft.protect(git_dir, names.into_iter(), guards);
    }
    let mut modules = Vec::new();
    find_modules(draft.disk, &common.join("modules"), 0, &mut modules);
    for module in modules {
        let names = ["config", "config.worktree", "hooks", "commondir"].map(OsStr::new);
        draft.protect(&module, names.into_iter(), guards);
    }
}

/// The repositories of submodules, and of theirs.
fn find_modules(disk: &dyn Disk, dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    const MAX: usize = 200;
    if depth > 6 {
        return;
    }
    let names: Vec<OsString> = disk.names(dir);
    for name in names {
        let path = dir.join(name);
        if found.len() >= MAX || !disk.find(&path).is_some_and(|found| found.is_dir) {
            continue;
        }
        if disk.find(&path.join("HEAD")).is_some() {
            found.push(path.clone());
            find_modules(disk, &path.join("modules"), depth + 1, found);
        } else {
            // The name of a submodule may hold slashes.
            find_modules(disk, &path, depth + 1, found);
        }
    }
}
