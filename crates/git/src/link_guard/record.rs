//! The links at the start of a run, in memory and in the project's record.

use std::io;
use std::path::{Path, PathBuf};

use ralph_process as process;
use ralph_store::project::Project;
use ralph_store::project_record::{self, GitBaseline};

use super::messages::{LinkError, display_path};
use super::walk::{Repositories, RepositoryPaths, list_entry_links, list_links};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunBaseline {
    pub(super) root: PathBuf,
    pub(super) git: GitBaseline,
    pub(super) record: Option<PathBuf>,
}

impl RunBaseline {
    /// Whether a link at `path` must be in the baseline.
    pub(super) fn covers(&self, path: &Path) -> bool {
        let dirs = self.git.repositories.values();
        path.starts_with(&self.root)
            || self.git.repositories.contains_key(path)
            || dirs
                .flat_map(|dirs| [&dirs.git_dir, &dirs.common_dir])
                .any(|dir| path.starts_with(dir))
    }

    pub(super) fn shares_repository(&self, repositories: &Repositories) -> bool {
        repositories.iter().any(|(at, dirs)| {
            [at, &dirs.git_dir, &dirs.common_dir].into_iter().any(|path| self.covers(path))
        })
    }

    pub(super) fn is_new(&self, path: &Path, target: &Path) -> bool {
        self.covers(path) && self.git.links.get(path).is_none_or(|known| known != target)
    }
}

pub(super) fn baseline(root: &Path) -> io::Result<GitBaseline> {
    let repositories = RepositoryPaths { directory: root, git_dir: None }.repositories();
    let mut links = list_entry_links(&repositories);
    links.extend(list_links(&repositories)?);
    Ok(GitBaseline { repositories, links, open_runs: Vec::new() })
}

/// Records of active or killed runs in the same repositories. Without such runs, links are the
/// user's.
pub(super) fn open_records(home: Option<&Path>, paths: &RepositoryPaths<'_>) -> Vec<RunBaseline> {
    let records = home.map(project_record::all_records).unwrap_or_default();
    let known = records.into_iter().filter_map(|record| {
        let git = record.git.filter(|git| !git.open_runs.is_empty())?;
        let file = home.map(|home| Project::new(&record.root, home).record_file());
        Some(RunBaseline { git, root: record.root, record: file })
    });
    let mut known: Vec<RunBaseline> = known.collect();
    if !known.is_empty() {
        let repositories = paths.repositories();
        known.retain(|known| known.shares_repository(&repositories));
    }
    known
}

pub(super) fn remove_killed_runs(home: &Path, known: &RunBaseline) -> io::Result<()> {
    if known.git.open_runs.iter().any(|pid| process::has_exited(*pid)) {
        Project::new(&known.root, home).update_record(|record| {
            if let Some(git) = &mut record.git {
                git.open_runs.retain(|pid| !process::has_exited(*pid));
            }
        })?;
    }
    Ok(())
}

/// Fails if an agent of another run works in one of the repositories.
pub(super) fn refuse_other_agent(known: &[RunBaseline]) -> io::Result<()> {
    let me = std::process::id();
    let is_other = |pid: &&u32| **pid != me && !process::has_exited(**pid);
    for known in known {
        if let Some(pid) = known.git.open_runs.iter().find(is_other) {
            let root = display_path(&known.root);
            let message = format!(
                "the agent of the run in {root} (pid {pid}) creates links in the git directory"
            );
            let hint = "stop that run first: Ctrl+C in its terminal, or `ralph kill`";
            return Err(io::Error::other(LinkError { message, hint: hint.to_owned() }));
        }
    }
    Ok(())
}
