//! `ralph report`: the facts of a run, taken from its [`RunState`](ralph_events::run_state::RunState).
//!
//! [`Summary`] is plain data and serializes to JSON. [`sections`] puts it into words once; [`plain`] renders them as
//! text and Markdown, [`html`] as a page.

pub mod answer;
pub mod commit_lookup;
mod from_state;
pub mod html;
mod iteration;
mod overview;
pub mod plain;
pub mod sections;
mod words;

use std::collections::HashSet;

use serde::Serialize;

pub use from_state::title;

use crate::run_table::is_zero;
use crate::state_word::StateWord;

use ralph_events::event::{Outcome, Usage, WaitReason};
use ralph_events::run_state::{
    Continuation, IterationRecord, Listed, RunInfo, ScmTaskState, Steering, Wait,
};

/// The facts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The task list's name, or the prompt's first words.
    pub title: String,
    pub state: StateWord,
    #[serde(flatten)]
    pub info: RunInfo,
    /// `None` if the start cannot be read.
    pub started_ms: Option<i64>,
    /// The last time the run was alive.
    pub ended_ms: Option<i64>,
    pub duration_ms: u64,
    /// The commit that was checked out at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// `None` if the run has ended or its process is gone.
    #[serde(rename = "doing", skip_serializing_if = "Option::is_none")]
    pub activity: Option<RunActivity>,
    #[serde(flatten)]
    pub end: EndSummary,
    /// As reported by agents.
    #[serde(flatten)]
    pub usage: Usage,
    /// With an estimate of what they did not report; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    pub iterations: Vec<IterationSummary>,
    /// What the agent said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `None` if git cannot say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_stat: Option<DiffStat>,
    /// The branch to merge the run's branch into; `None` if there is nothing to merge, or git cannot say.
    #[serde(skip)]
    pub default_branch: Option<String>,
    /// Commits that `git log` shows for the run; `None` if git cannot say.
    #[serde(rename = "shown", skip_serializing_if = "Option::is_none")]
    pub range_counts: Option<CommitRangeCounts>,
    /// The repository is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repository_gone: bool,
    /// Commits that appeared while the run was not working.
    #[serde(rename = "others")]
    pub commits_by_others: Vec<CommitSummary>,
    pub continued: Vec<Continuation>,
    pub waits: Vec<Wait>,
    /// Refused tool calls and connections.
    pub denied: Listed<String>,
    pub warnings: Listed<String>,
    /// Questions of the agent and guidance of the user.
    #[serde(flatten)]
    pub steering: Steering,
    /// SCM tasks that have failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm: Vec<ScmTaskState>,
    #[serde(rename = "left")]
    pub remaining: RemainingWork,
    /// Lines of the journal that cannot be read.
    #[serde(skip_serializing_if = "is_zero")]
    pub unreadable: u64,
}

/// How a run ended; without values while it is active, or if it was killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EndSummary {
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub message: String,
    /// The run ended because a budget was used up, not because a wait would outlast it.
    #[serde(skip)]
    pub budget_used_up: bool,
    /// The last line on standard error, if the agent's failure ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_words: Option<String>,
    /// The signal or command that interrupted the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// The end of a rate limit that the run did not wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ends_ms: Option<i64>,
    /// `notify.command` has not been run for this end.
    #[serde(rename = "untold", skip_serializing_if = "std::ops::Not::not")]
    pub notify_pending: bool,
}

/// The current activity of a live run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunActivity {
    Working,
    Waiting {
        until_ms: i64,
        reason: WaitReason,
    },
    Paused {
        since_ms: i64,
    },
    /// Until a question is answered.
    Parked {
        since_ms: i64,
    },
}

/// An iteration, with what the report knows beyond its record.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct IterationSummary {
    #[serde(flatten)]
    pub record: IterationRecord,
    /// It is the current iteration of a live run.
    #[serde(rename = "under_way", skip_serializing_if = "std::ops::Not::not")]
    pub is_current: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    pub commits: Vec<CommitSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitSummary {
    pub id: String,
    /// When ralph saw it.
    pub time_ms: i64,
    pub subject: String,
    /// It stands for all commits after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// No branch has it any more: history was rewritten.
    #[serde(rename = "gone", skip_serializing_if = "std::ops::Not::not")]
    pub is_unreachable: bool,
    /// Only a detached `HEAD` has it.
    #[serde(rename = "no_branch", skip_serializing_if = "std::ops::Not::not")]
    pub is_detached: bool,
}

/// Commits in the range of the run, and those of them that iterations made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommitRangeCounts {
    pub commits: u32,
    pub own: u32,
}

/// The size of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiffStat {
    pub files: u32,
    pub added: u32,
    pub removed: u32,
}

impl DiffStat {
    /// Parses `git diff --numstat -z`. `None` if nothing was changed but files that are not the agent's work.
    fn parse(text: &str, is_own_file: fn(&str) -> bool) -> Option<DiffStat> {
        let mut stat = DiffStat::default();
        for line in text.split('\0') {
            let mut fields = line.splitn(3, '\t');
            let (Some(added), Some(removed), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if !is_own_file(path) {
                // Binary files have no lines.
                let lines = |field: &str| field.parse::<u32>().unwrap_or(0);
                stat.files += 1;
                stat.added = stat.added.saturating_add(lines(added));
                stat.removed = stat.removed.saturating_add(lines(removed));
            }
        }
        (stat.files > 0).then_some(stat)
    }
}

/// The work that is left.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RemainingWork {
    /// Feedback for the next prompt.
    pub feedback: Vec<String>,
    /// Open items of the agent's own plan.
    pub plan: Vec<String>,
    /// Stories done, and all stories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<(u32, u32)>,
    /// Problems of the task list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The next story.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
}

impl Summary {
    /// Returns the commits of the run in order.
    pub fn commits(&self) -> impl DoubleEndedIterator<Item = &CommitSummary> {
        self.iterations.iter().flat_map(|iteration| &iteration.commits)
    }

    /// Replaces commits that stand for others with those commits. `ask` lists the commits between two.
    pub fn expand_commits(
        &mut self,
        mut ask: impl FnMut(&str, &str) -> Option<Vec<(String, String)>>,
    ) {
        let own = self.iterations.iter_mut().map(|iteration| &mut iteration.commits);
        let mut lists: Vec<&mut Vec<CommitSummary>> =
            own.chain([&mut self.commits_by_others]).collect();
        let alone = lists.iter().flat_map(|list| list.iter()).filter(|it| it.since.is_none());
        let mut known: HashSet<String> = alone.map(|commit| commit.id.clone()).collect();
        for list in &mut lists {
            for commit in std::mem::take(*list) {
                let since = commit.since.as_deref();
                let Some(came) = since.and_then(|since| ask(since, &commit.id)) else {
                    list.push(commit);
                    continue;
                };
                for (id, subject) in came {
                    if known.insert(id.clone()) {
                        list.push(CommitSummary { id, subject, since: None, ..commit });
                    }
                }
            }
        }
    }

    fn all_commits_mut(&mut self) -> impl Iterator<Item = &mut CommitSummary> {
        let own = self.iterations.iter_mut().flat_map(|iteration| &mut iteration.commits);
        own.chain(&mut self.commits_by_others)
    }

    /// Marks commits that no branch has any more.
    pub fn mark_unreachable(&mut self, gone: &HashSet<&str>) {
        for commit in self.all_commits_mut() {
            commit.is_unreachable = gone.contains(commit.id.as_str());
        }
    }

    /// Marks commits that only `HEAD` has.
    pub fn mark_detached(&mut self, unnamed: &HashSet<&str>) {
        for commit in self.all_commits_mut() {
            commit.is_detached = !commit.is_unreachable && unnamed.contains(commit.id.as_str());
        }
    }

    /// Returns the first and last commit of a range that shows the work.
    pub fn commit_range(&self) -> Option<(&str, &str)> {
        let last = self.commits().rfind(|commit| !commit.is_unreachable);
        let last = last.or_else(|| self.commits().next_back())?;
        Some((self.head.as_deref()?, &last.id))
    }

    /// Counts the commits in that range.
    pub fn count_range(&mut self, ids: &HashSet<&str>) {
        let own = self.commits().filter(|commit| ids.contains(commit.id.as_str())).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.range_counts = Some(CommitRangeCounts { commits: count(ids.len()), own: count(own) });
    }

    /// Returns the branch that the run worked on last.
    pub fn branch(&self) -> Option<&str> {
        self.info.last_branch.as_deref().or(self.info.branch.as_deref())
    }

    /// Returns the current iteration, or the one in which the run was killed.
    fn open_iteration(&self) -> Option<&IterationRecord> {
        self.iterations.last().map(|last| &last.record).filter(|last| !last.ended)
    }
}

#[cfg(test)]
mod tests;
