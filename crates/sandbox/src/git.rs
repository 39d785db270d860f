//! Finds a project's git directories and protects what git executes.
//!
//! git runs what `config` and `hooks` say, also for the user outside. The agent may commit, but not
//! change those.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::plan::{Disk, ExpectedEntry, Mount, PathGuard, PathInfo};
use super::plan_builder::{PathTarget, PlanBuilder};

/// What git executes. `commondir` moves configuration and hooks.
const EXECUTED_PATHS: [&str; 4] = ["config", "config.worktree", "hooks", "commondir"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectRepository {
    pub(super) top: PathBuf,
    /// The `.git` file of a worktree or submodule.
    pointer: Option<PathBuf>,
    git_dir: PathBuf,
    /// Shared by all worktrees.
    common: PathBuf,
}

impl ProjectRepository {
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        self.top == dir && self.pointer.is_none() && self.git_dir.starts_with(dir)
    }
}

/// Finds the project's repository. Ignores one whose work tree contains the home directory, which
/// must stay hidden, and one elsewhere that an agent could have named, unless it points back.
pub(super) fn find_repository(
    builder: &mut PlanBuilder<'_>,
    project: &Path,
    home: Option<&Path>,
) -> Option<ProjectRepository> {
    let disk = builder.disk;
    for top in project.ancestors() {
        let dot_git = top.join(".git");
        let Some(found) = disk.stat(&dot_git) else { continue };
        if home.is_some_and(|home| home.starts_with(top)) {
            return None;
        }
        let top = top.to_owned();
        let leads_out = matches!(builder.resolve_target(&dot_git), PathTarget::Outside { .. });
        let repository = if found.is_dir {
            let git_dir = found.real;
            ProjectRepository { top, pointer: None, common: git_dir.clone(), git_dir }
        } else if leads_out {
            return None;
        } else {
            linked_repository(disk, top, found)?
        };
        let named_by_agent =
            leads_out || repository.pointer.is_some() && builder.trusted_target(&dot_git).is_none();
        let git_dir = &repository.git_dir;
        let is_shown = git_dir.starts_with(project) || builder.is_writable(git_dir);
        if named_by_agent && !is_shown && !names_work_tree(disk, &repository) {
            let (dot_git, git_dir) = (dot_git.display(), git_dir.display());
            builder.notes.push(format!(
                "sandbox: skipped the git directory {git_dir}: {dot_git} points to it, but it \
                 does not point back; if it is yours, add it to sandbox.writable"
            ));
            return None;
        }
        return Some(repository);
    }
    None
}

/// Reads a `.git` file.
fn linked_repository(disk: &dyn Disk, top: PathBuf, file: PathInfo) -> Option<ProjectRepository> {
    let text = disk.read(&file.real)?;
    let git_dir = text.trim_end().strip_prefix("gitdir: ")?;
    let git_dir = disk.stat(&top.join(git_dir)).filter(|found| found.is_dir)?.real;
    let common = match disk.read(&git_dir.join("commondir")) {
        Some(text) => disk.stat(&git_dir.join(text.trim_end()))?.real,
        None => git_dir.clone(),
    };
    // git creates worktree directories only here. Another path would be an agent's.
    let is_worktree = git_dir.parent() == Some(&common.join("worktrees"));
    (git_dir == common || is_worktree).then_some(ProjectRepository {
        top,
        pointer: Some(file.real),
        git_dir,
        common,
    })
}

/// Whether a git directory points back to this work tree: by `gitdir` (worktree) or `core.worktree`
/// (submodule).
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

/// Handles only the form that git itself writes.
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

/// Protects `.git`. If there is none, the agent must not create one: git, run outside, would
/// execute its configuration.
pub(super) fn protect_git_entry(
    project: &Path,
    builder: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    let dot_git = builder.follow(&project.join(".git"), guards);
    match builder.disk.stat(&dot_git) {
        Some(found) if found.is_dir => {}
        Some(_) => builder.protect_one(&dot_git, guards),
        None if !builder.is_writable(&dot_git) => {}
        None => {
            guards.push(PathGuard { path: dot_git, was: ExpectedEntry::Nothing });
            // With `HEAD`, `objects` and `refs`, the project itself would be a repository.
            let head = project.join("HEAD");
            if builder.disk.stat(&head).is_none() && builder.disk.read_link(&head).is_none() {
                guards.push(PathGuard { path: head, was: ExpectedEntry::Nothing });
            }
        }
    }
}

pub(super) fn protect(
    repository: &ProjectRepository,
    builder: &mut PlanBuilder<'_>,
    guards: &mut Vec<PathGuard>,
) {
    let ProjectRepository { pointer, git_dir, common, .. } = repository;
    let read_only = |path: &Path| Mount::ReadOnly { from: path.to_owned(), at: path.to_owned() };
    let is_mounted = |path: &PathBuf| builder.mounts.contains(&read_only(path));
    if let Some(pointer) = pointer
        && !is_mounted(pointer)
    {
        builder.mounts.push(read_only(pointer));
    }
    builder.protect(common, EXECUTED_PATHS.map(OsStr::new).into_iter(), guards);
    let worktrees = common.join("worktrees");
    if is_directory(builder.disk, &worktrees) {
        builder.mounts.push(read_only(&worktrees));
        guards.push(PathGuard { path: worktrees, was: ExpectedEntry::Directory });
    }
    if git_dir != common {
        let names = ["commondir", "gitdir", "config.worktree"].map(OsStr::new);
        builder.protect(git_dir, names.into_iter(), guards);
    }
    let modules = common.join("modules");
    if !is_directory(builder.disk, &modules) {
        return;
    }
    let mut found = Vec::new();
    if find_modules(builder.disk, &modules, 0, &mut found).is_none() {
        builder.mounts.push(read_only(&modules));
        builder.notes.push(format!(
            "{} has too many submodules to protect individually; the agent cannot commit in them",
            modules.display()
        ));
        return;
    }
    for module in found {
        builder.protect(&module, EXECUTED_PATHS.map(OsStr::new).into_iter(), guards);
    }
}

/// git creates no links here.
fn is_directory(disk: &dyn Disk, path: &Path) -> bool {
    disk.read_link(path).is_none() && disk.stat(path).is_some_and(|found| found.is_dir)
}

/// `None` if there are too many.
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
            // Submodule names may contain slashes.
            path
        };
        if is_link {
            continue;
        }
        find_modules(disk, &below, depth + 1, found)?;
    }
    Some(())
}
