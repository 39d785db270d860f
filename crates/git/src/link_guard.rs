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

mod messages;
mod record;
mod walk;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use ralph_process as process;
use ralph_store::dir_handle;
use ralph_store::home;
use ralph_store::project::Project;
use ralph_store::project_record::{GitBaseline, GitDirs};

use messages::{LinkError, describe, display_path, replaced_error, warning};
pub use messages::{hint, queue_warnings, take_warnings};
use record::{RunBaseline, baseline, open_records, refuse_other_agent, remove_killed_runs};
use walk::{Links, Repositories, RepositoryPaths, list_entry_links, list_links, top_dirs};

#[derive(Debug, Clone, PartialEq, Eq)]
struct QuarantinedLink {
    path: PathBuf,
    /// Empty for a pipe, socket or device.
    target: PathBuf,
    to: PathBuf,
}

#[derive(Debug)]
pub struct LinkGuard {
    known: RunBaseline,
    /// `None` if the baseline could not be recorded.
    record: Option<Project>,
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
        let record = home.map(|home| Project::new(&root, home));
        let recorded = record.as_ref().map_or(Ok(()), |record| {
            let updated = record.update_record(|record| {
                let mut open_runs = record.git.take().unwrap_or_default().open_runs;
                open_runs.retain(|pid| *pid != me && !process::has_exited(*pid));
                open_runs.push(me);
                record.git = Some(GitBaseline { open_runs, ..git.clone() });
            });
            updated.map(drop)
        });
        if let Err(err) = &recorded {
            warnings.push(format!(
                "cannot record the state of the git directory: {err}. If ralph is killed, links \
                 that the agent creates there stay unnoticed"
            ));
        }
        let record = record.filter(|_| recorded.is_ok());
        let file = record.as_ref().map(Project::record_file);
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
        refuse_other_agent(&open_records(home, &paths))
    }

    /// The last check, after everything of the run has ended. Without it, the next ralph compares
    /// with the record.
    pub fn finish(self) -> io::Result<Vec<String>> {
        let warnings = self.check()?;
        if let Some(record) = self.record {
            let me = std::process::id();
            record.update_record(|record| {
                if let Some(git) = &mut record.git {
                    git.open_runs.retain(|pid| *pid != me);
                }
            })?;
        }
        Ok(warnings)
    }
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
    writes: bool,
) -> io::Result<()> {
    let (known, moved) = quarantine_for_git(directory, git_dir)?;
    record_quarantined(&moved);
    let moved = QUARANTINED.lock().unwrap_or_else(PoisonError::into_inner);
    if !writes || moved.is_empty() {
        return Ok(());
    }
    refuse_other_agent(&known)?;
    match moved.iter().find(|(_, times)| **times > 1) {
        Some((path, _)) => Err(io::Error::other(LinkError {
            message: format!("{} came back after ralph moved it away", display_path(path)),
            hint: "find the process that creates it, and kill it".to_owned(),
        })),
        None => Ok(()),
    }
}

/// Checks again after git has written: new links may have been followed.
pub(super) fn check_after_write(directory: &Path, git_dir: Option<&Path>) {
    if !directory.exists() {
        return;
    }
    match quarantine_for_git(directory, git_dir) {
        Ok((_, moved)) if moved.is_empty() => {}
        Ok((_, moved)) => {
            record_quarantined(&moved);
            let message = "links appeared in the git directory while git was writing; check the \
                           files they point to";
            queue_warnings(vec![message.to_owned()]);
        }
        Err(err) => {
            queue_warnings(vec![format!("cannot check the git directory: {err}")]);
        }
    }
}

fn quarantine_for_git(
    directory: &Path,
    git_dir: Option<&Path>,
) -> io::Result<(Vec<RunBaseline>, Vec<QuarantinedLink>)> {
    let home = home::ralph_home(|name| std::env::var_os(name));
    let directory = directory.canonicalize()?;
    let paths = RepositoryPaths { directory: &directory, git_dir };
    let known = open_records(home.as_deref(), &paths);
    let moved = quarantine_new_links(&paths, &known)?;
    Ok((known, moved))
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
                io::Error::other(format!("cannot move {} away: {why}", describe(&path, &target)))
            })?;
            moved.push(QuarantinedLink { path, target, to });
        }
        io::Result::Ok(())
    };
    let mut repositories = paths.repositories();
    let entry_links = list_entry_links(&repositories);
    if !entry_links.is_empty() {
        quarantine(&repositories, entry_links)?;
        repositories = paths.repositories();
    }
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
mod tests;
