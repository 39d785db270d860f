//! Commits and the checked-out commit, as far as the journal names them.

use std::collections::HashSet;

use serde::Serialize;

use super::IterationRecord;
use crate::event::Commit;

/// The repository, as far as the journal describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RepositoryState {
    /// The commit that was checked out at the start.
    pub first_head: Option<String>,
    /// The commit that is checked out now.
    pub head: Option<String>,
    /// Commits that appeared while the run was not working.
    pub by_others: Vec<CommitRecord>,
    /// The run's own commits; a live state forgets those of earlier iterations.
    #[serde(skip)]
    pub commit_count: u32,
    #[serde(skip)]
    pub last_commit: Option<CommitRecord>,
    /// Every commit listed so far. A merge lists commits a second time.
    #[serde(skip)]
    known: HashSet<String>,
}

/// A commit that appeared during the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitRecord {
    pub id: String,
    /// When ralph saw it.
    pub time_ms: i64,
    pub subject: String,
    /// It stands for all commits after this one, which git's reflog does not list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

impl CommitRecord {
    fn new(commit: &Commit, time_ms: i64) -> CommitRecord {
        let Commit { id, subject, since, .. } = commit.clone();
        CommitRecord { id, time_ms, subject, since }
    }
}

impl RepositoryState {
    /// Takes in a new checked-out commit and the commits made since the last one.
    pub(super) fn update(
        &mut self,
        time_ms: i64,
        head: &str,
        commits: &[Commit],
        by_others: bool,
        iterations: &mut [IterationRecord],
    ) {
        // If the first readable entry already has commits, the commit before them is unknown.
        if commits.is_empty() && self.first_head.is_none() && self.known.is_empty() {
            self.first_head = Some(head.to_owned());
        }
        let moved = self.head.as_deref() != Some(head);
        self.head = Some(head.to_owned());
        if by_others || iterations.is_empty() {
            for commit in commits {
                if self.known.insert(commit.id.clone()) {
                    self.by_others.push(CommitRecord::new(commit, time_ms));
                }
            }
            return;
        }
        for commit in commits {
            if let Some(amended) = &commit.replaces {
                remove_commit(amended, iterations);
                if self.known.remove(amended) {
                    self.commit_count = self.commit_count.saturating_sub(1);
                }
            }
            let new = self.known.insert(commit.id.clone());
            if let Some(current) = iterations.last_mut().filter(|_| new) {
                let record = CommitRecord::new(commit, time_ms);
                self.commit_count += 1;
                self.last_commit = Some(record.clone());
                current.commits.push(record);
            }
        }
        if let Some(current) = iterations.last_mut().filter(|last| last.since_ms.is_some()) {
            current.head = moved.then(|| head.to_owned());
        }
    }
}

fn remove_commit(id: &str, iterations: &mut [IterationRecord]) {
    for iteration in iterations.iter_mut().rev() {
        if let Some(position) = iteration.commits.iter().position(|commit| commit.id == id) {
            iteration.commits.remove(position);
            return;
        }
    }
}
