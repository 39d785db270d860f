//! Where git keeps a project, and what of it is executed or leads elsewhere.
//!
//! git runs what `config` and `hooks` say, for whoever calls it: also for the user, outside, later. So
//! the agent may commit, but not change those.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::plan::{Disk, Found, Guard, Mount, Was};
use super::plan_builder::{Draft, Target};

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

impl Repository {
    /// Whether this is a repository of `dir` itself, with all that is git's in `dir`.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        self.top == dir && self.pointer.is_none() && self.git_dir.starts_with(dir)
    }
}

/// Finds the repository that `project` is in. One whose work tree holds the home (some keep their
/// dot files that way) is none: it would show what has to be hidden. Neither is one elsewhere that an agent could
/// have named, unless it points back to this work tree.
pub(super) fn repository(
    draft: &mut Draft<'_>,
    project: &Path,
    home: Option<&Path>,
) -> Option<Repository> {
    let disk = draft.disk;
    for top in project.ancestors() {
        let dot_git = top.join(".git");
        let Some(found) = disk.find(&dot_git) else { continue };
        if home.is_some_and(|home| home.starts_with(top)) {
            return None;
        }
        let top = top.to_owned();
        let leads_out = matches!(draft.target(&dot_git), Target::Outside { .. });
        let repository = if found.is_dir {
            let git_dir = found.real;
            Repository { top, pointer: None, common: git_dir.clone(), git_dir }
        } else if leads_out {
            // Only git directories are shown elsewhere, and this is a file.
            return None;
        } else {
            linked_repository(disk, top, found)?
        };
        let named_by_agent =
            leads_out || repository.pointer.is_some() && draft.trusted(&dot_git).is_none();
        let git_dir = &repository.git_dir;
        let is_shown = git_dir.starts_with(project) || draft.is_writable(git_dir);
        if named_by_agent && !is_shown && !points_back(disk, &repository) {
            let (dot_git, git_dir) = (dot_git.display(), git_dir.display());
            draft.notes.push(format!(
                "sandbox: skipped the git directory {git_dir}: {dot_git} leads to it, but it does not point back; \
                 if it is yours, add it to sandbox.writable"
            ));
            return None;
        }
        return Some(repository);
    }
    None
}

/// The repository that a `.git` file names.
fn linked_repository(disk: &dyn Disk, top: PathBuf, file: Found) -> Option<Repository> {
    let text = disk.read(&file.real)?;
    let git_dir = text.trim_end().strip_prefix("gitdir: ")?;
    let git_dir = disk.find(&top.join(git_dir)).filter(|found| found.is_dir)?.real;
    let common = match disk.read(&git_dir.join("commondir")) {
        Some(text) => disk.find(&git_dir.join(text.trim_end()))?.real,
        None => git_dir.clone(),
    };
    // git makes the directories of worktrees nowhere else. Another path would be an agent's.
    let is_worktree = git_dir.parent() == Some(&common.join("worktrees"));
    (git_dir == common || is_worktree).then_some(Repository {
        top,
        pointer: Some(file.real),
        git_dir,
        common,
    })
}

/// Whether a git directory names this work tree as its own: by `gitdir` in that of a worktree, or by `core.worktree`
/// in that of a submodule.
fn points_back(disk: &dyn Disk, repository: &Repository) -> bool {
    let Repository { top, git_dir, common, .. } = repository;
    let is_top = |path: &Path| {
        disk.find(&git_dir.join(path)).is_some_and(|found| found.is_dir && found.real == *top)
    };
    if git_dir != common {
        let text = disk.read(&git_dir.join("gitdir")).unwrap_or_default();
        let dot_git = Path::new(text.trim_end());
        return dot_git.file_name() == Some(OsStr::new(".git"))
            && dot_git.parent().is_some_and(is_top);
    }
    ["config", "config.worktree"].iter().any(|name| {
        let text = disk.read(&git_dir.join(name)).unwrap_or_default();
        core_worktree(&text).is_some_and(|path| is_top(Path::new(path)))
    })
}

/// The value of `core.worktree` in a configuration of git, as git itself writes it.
fn core_worktree(config: &str) -> Option<&str> {
    let mut in_core = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_core = line.eq_ignore_ascii_case("[core]");
        } else if in_core
            && let Some((key, value)) = line.split_once('=')
            && key.trim().eq_ignore_ascii_case("worktree")
        {
            return Some(value.trim().trim_matches('"'));
        }
    }
    None
}

/// The git directories of a project: its own, and the one that it shares with other worktrees.
pub(super) fn dirs(disk: &dyn Disk, project: &Path) -> Vec<PathBuf> {
    for top in project.ancestors() {
        let Some(found) = disk.find(&top.join(".git")) else { continue };
        if found.is_dir {
            return vec![found.real];
        }
        let repository = linked_repository(disk, top.to_owned(), found);
        return repository.map_or_else(Vec::new, |it| vec![it.git_dir, it.common]);
    }
    Vec::new()
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

/// Shows the repository's own directory, so that commits work, and protects what git executes.
pub(super) fn protect(repository: &Repository, draft: &mut Draft<'_>, guards: &mut Vec<Guard>) {
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
    if is_directory(draft.disk, &worktrees) {
        // The other worktrees are none of the agent's business.
        draft.mounts.push(read_only(&worktrees));
        guards.push(Guard { path: worktrees, was: Was::Directory });
    }
    if git_dir != common {
        let names = ["commondir", "gitdir", "config.worktree"].map(OsStr::new);
        draft.protect(git_dir, names.into_iter(), guards);
    }
    let modules = common.join("modules");
    if !is_directory(draft.disk, &modules) {
        return;
    }
    let mut found = Vec::new();
    if find_modules(draft.disk, &modules, 0, &mut found).is_none() {
        draft.mounts.push(read_only(&modules));
        draft.notes.push(format!(
            "{} holds too many submodules to protect each: nothing can be committed in them",
            modules.display()
        ));
        return;
    }
    for module in found {
        draft.protect(&module, EXECUTED.map(OsStr::new).into_iter(), guards);
    }
}

/// Whether this is a directory, and not a link to one: git makes no links here.
fn is_directory(disk: &dyn Disk, path: &Path) -> bool {
    disk.link(path).is_none() && disk.find(path).is_some_and(|found| found.is_dir)
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
