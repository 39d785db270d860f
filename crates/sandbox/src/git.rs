//! Where git keeps a project, and what of it is executed or leads elsewhere.
//!
//! git runs what `config` and `hooks` say, for whoever calls it: also for the user, outside, later. So
//! the agent may commit, but not change those.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::plan::{Disk, ExpectedEntry, Mount, PathGuard, PathInfo};
use super::plan_builder::{PathTarget, PlanBuilder};

/// What git executes, or what leads it to something else that it does. `commondir` in a repository would move its
/// configuration and hooks elsewhere.
const EXECUTED_PATHS: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];

/// The repository that a project is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectRepository {
    /// The top of the work tree.
    pub(super) top: PathBuf,
    /// The file `.git` of a worktree or a submodule.
    pointer: Option<PathBuf>,
    git_dir: PathBuf,
    /// What all worktrees share; the same as `git_dir` where there is only one.
    common: PathBuf,
}

impl ProjectRepository {
    /// Whether this is a repository of `dir` itself, with all that is git's in `dir`.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        self.top == dir && self.pointer.is_none() && self.git_dir.starts_with(dir)
    }
}

/// Finds the repository that `project` is in. One whose work tree holds the home (some keep their
/// dot files that way) is none: it would show what has to be hidden. Neither is one elsewhere that an agent could
/// have named, unless it points back to this work tree.
pub(super) fn find_repository(
    draft: &mut PlanBuilder<'_>,
    project: &Path,
    home: Option<&Path>,
) -> Option<ProjectRepository> {
    let disk = draft.disk;
    for top in project.ancestors() {
        let dot_git = top.join(".git");
        let Some(found) = disk.stat(&dot_git) else { continue };
        if home.is_some_and(|home| home.starts_with(top)) {
            return None;
        }
        let top = top.to_owned();
        let leads_out = matches!(draft.resolve_target(&dot_git), PathTarget::Outside { .. });
        let repository = if found.is_dir {
            let git_dir = found.real;
            ProjectRepository { top, pointer: None, common: git_dir.clone(), git_dir }
        } else if leads_out {
            // Only git directories are shown elsewhere, and this is a file.
            return None;
        } else {
            linked_repository(disk, top, found)?
        };
        let named_by_agent =
            leads_out || repository.pointer.is_some() && draft.trusted_target(&dot_git).is_none();
        let git_dir = &repository.git_dir;
        let is_shown = git_dir.starts_with(project) || draft.is_writable(git_dir);
        if named_by_agent && !is_shown && !names_work_tree(disk, &repository) {
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
fn linked_repository(disk: &dyn Disk, top: PathBuf, file: PathInfo) -> Option<ProjectRepository> {
    let text = disk.read(&file.real)?;
    let git_dir = text.trim_end().strip_prefix("gitdir: ")?;
    let git_dir = disk.stat(&top.join(git_dir)).filter(|found| found.is_dir)?.real;
    let common = match disk.read(&git_dir.join("commondir")) {
        Some(text) => disk.stat(&git_dir.join(text.trim_end()))?.real,
        None => git_dir.clone(),
    };
    // git makes the directories of worktrees nowhere else. Another path would be an agent's.
    let is_worktree = git_dir.parent() == Some(&common.join("worktrees"));
    (git_dir == common || is_worktree).then_some(ProjectRepository {
        top,
        pointer: Some(file.real),
        git_dir,
        common,
    })
}

/// Whether a git directory names this work tree as its own: by `gitdir` in that of a worktree, or by `core.worktree`
/// in that of a submodule.
fn names_work_tree(disk: &dyn Disk, repository: &ProjectRepository) -> bool {
    let ProjectRepository { top, git_dir, common, .. } = repository;
    let is_top = |path: &Path| {
        disk.stat(&git_dir.join(path)).is_some_and(|found| found.is_dir && found.real == *top)
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
pub(super) fn git_dirs(disk: &dyn Disk, project: &Path) -> Vec<PathBuf> {
    for top in project.ancestors() {
        let Some(found) = disk.stat(&top.join(".git")) else { continue };
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
pub(super) fn protect_git_entry(
    project: &Path,
    draft: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    let dot_git = draft.follow(&project.join(".git"), guards);
    match draft.disk.stat(&dot_git) {
        Some(found) if found.is_dir => {}
        Some(_) => draft.protect_one(&dot_git, guards),
        None if !draft.is_writable(&dot_git) => {}
        None => {
            guards.push(PathGuard { path: dot_git, was: ExpectedEntry::Nothing });
            // With this, and two directories, the project itself would be taken for a repository.
            let head = project.join("HEAD");
            if draft.disk.stat(&head).is_none() && draft.disk.read_link(&head).is_none() {
                guards.push(PathGuard { path: head, was: ExpectedEntry::Nothing });
            }
        }
    }
}

/// Shows the repository's own directory, so that commits work, and protects what git executes.
pub(super) fn protect(
    repository: &ProjectRepository,
    draft: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    let ProjectRepository { pointer, git_dir, common, .. } = repository;
    let read_only = |path: &Path| Mount::ReadOnly { from: path.to_owned(), at: path.to_owned() };
    let is_mounted = |path: &PathBuf| draft.mounts.contains(&read_only(path));
    if let Some(pointer) = pointer
        && !is_mounted(pointer)
    {
        draft.mounts.push(read_only(pointer));
    }
    draft.protect(common, EXECUTED_PATHS.map(OsStr::new).into_iter(), guards);
    let worktrees = common.join("worktrees");
    if is_directory(draft.disk, &worktrees) {
        // The other worktrees are none of the agent's business.
        draft.mounts.push(read_only(&worktrees));
        guards.push(PathGuard { path: worktrees, was: ExpectedEntry::Directory });
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
        draft.protect(&module, EXECUTED_PATHS.map(OsStr::new).into_iter(), guards);
    }
}

/// Whether this is a directory, and not a link to one: git makes no links here.
fn is_directory(disk: &dyn Disk, path: &Path) -> bool {
    disk.read_link(path).is_none() && disk.stat(path).is_some_and(|found| found.is_dir)
}

/// The repositories of submodules, and of theirs. `None` if they are too many.
fn find_modules(disk: &dyn Disk, dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Option<()> {
    const MAX_MODULES: usize = 200;
    let names: Vec<OsString> = disk.list_names(dir);
    for name in names {
        let path = dir.join(name);
        if !disk.stat(&path).is_some_and(|found| found.is_dir) {
            continue;
        }
        if found.len() >= MAX_MODULES || depth > 12 {
            return None;
        }
        let is_link = disk.read_link(&path).is_some();
        let below = if disk.stat(&path.join("HEAD")).is_some() {
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
