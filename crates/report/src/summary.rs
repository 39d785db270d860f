//! `ralph report`: what a night of work came to, folded from a run's journal.
//!
//! [`Facts`] are everything that there is to tell, as plain data and as JSON; [`plain`] draws them for
//! the terminal and as Markdown, [`html`] as a page that needs nothing else.

mod from_state;
pub mod html;
mod iteration;
mod overview;
pub mod plain;
mod sections;
mod words;

use std::collections::HashSet;

use serde::Serialize;

use ralph_events::event::{Class, EndCause, Exit, FailureKind, Outcome, Usage, WaitReason};

/// Entries of a list that a person still reads; how many there were is told beside it.
const MAX_LISTED: usize = 50;

/// What is told of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    pub run: String,
    pub command: String,
    pub directory: String,
    pub agent: String,
    /// What was asked: the beginning of the prompt, or its file.
    pub asked: String,
    /// What completes the run, in words.
    pub completion: String,
    /// Nothing if that cannot be read.
    pub started_ms: Option<i64>,
    /// The last that was heard of it.
    pub ended_ms: Option<i64>,
    pub duration_ms: u64,
    /// The commit that was checked out when it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The branch at the start, and the one at the end if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_branch: Option<String>,
    /// What a run that has not ended is about; nothing if nobody is at it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<RunActivity>,
    /// `None` for a run that goes on, or that was cut off.
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub message: String,
    /// The run ended because a budget was used up, not because a wait would outlast it.
    #[serde(skip)]
    pub budget_used_up: bool,
    /// What the agent printed last on its standard error, if the run ended because it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_words: Option<String>,
    /// What asked an interrupted run to stop: a signal, or `ralph kill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// When the limit ends that the run did not wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ends_ms: Option<i64>,
    pub max_iterations: u32,
    /// What agents told.
    #[serde(flatten)]
    pub usage: Usage,
    /// With what they did not tell, as budgets count it; nothing if they told all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    pub iterations: Vec<IterationSummary>,
    /// What `git log` shows from the commit at the beginning to the last; nothing if nobody could ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<CommitRangeCounts>,
    /// There is no repository any more in which one could look at the commits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repository_gone: bool,
    /// What was committed where the run works while nothing of it was at work.
    pub others: Vec<CommitSummary>,
    /// When it went on after it had been left.
    pub continued: Vec<ContinuationSummary>,
    pub waits: Vec<Wait>,
    /// What the agent was not allowed to do.
    pub denied: CappedList,
    pub warnings: CappedList,
    /// The SCM tasks that have failed, in whichever iteration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm: Vec<ScmTaskSummary>,
    pub left: RemainingWork,
    /// `notify.command` was to be told of the end, and is not known to have been.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untold: bool,
    /// Lines of the journal that nobody can read any more.
    #[serde(skip_serializing_if = "is_zero")]
    pub unreadable: u64,
}

/// What a run does that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunActivity {
    Working,
    /// Until then.
    Waiting {
        until_ms: i64,
    },
    /// Since then.
    Paused {
        since_ms: i64,
    },
}

/// The first entries of a list that differ, and how many there were in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CappedList {
    pub total: u32,
    pub first: Vec<CountedText>,
}

/// Something that was told, once or more often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountedText {
    pub text: String,
    pub times: u32,
}

impl CappedList {
    fn push(&mut self, text: String) {
        self.total = self.total.saturating_add(1);
        if let Some(known) = self.first.iter_mut().find(|known| known.text == text) {
            known.times = known.times.saturating_add(1);
        } else if self.first.len() < MAX_LISTED {
            self.first.push(CountedText { text, times: 1 });
        }
    }

    /// How many are in no entry of the list.
    pub fn omitted_count(&self) -> u32 {
        let listed = self.first.iter().fold(0_u32, |sum, told| sum.saturating_add(told.times));
        self.total.saturating_sub(listed)
    }
}

/// One iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct IterationSummary {
    pub number: u32,
    pub started_ms: i64,
    pub duration_ms: u64,
    /// How much of that was waited, for a limit or before another attempt.
    pub waited_ms: u64,
    /// How often it was begun: once more after each time that it was cut off.
    pub begun: u32,
    /// It has come to an end, if only to that of the run.
    pub ended: bool,
    /// It is being worked on, waited for or paused right now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Its work was not checked to the end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// How its last attempt ended; `None` if it did not.
    pub class: Option<Class>,
    /// By what the agent was ended there, if it was, and what it told of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// All that was said there was the prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeats_prompt: bool,
    /// All of them, whenever it was begun.
    pub attempts: u32,
    #[serde(flatten)]
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    pub tools: u32,
    pub tool_errors: u32,
    pub denied: u32,
    pub guardrails: Vec<GuardrailSummary>,
    /// Why a completion did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vetoed: Option<String>,
    /// The SCM tasks that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm_failed: Vec<ScmFailureSummary>,
    /// Those that were done since its agent last ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm_done: Vec<String>,
    /// Why attempts failed.
    pub failures: Vec<String>,
    pub commits: Vec<CommitSummary>,
    /// What was checked out afterwards, if that was something else than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

/// A guardrail and what it said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuardrailSummary {
    pub command: String,
    pub passed: bool,
    /// It was ended with the run, and says nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    pub exit: Option<Exit>,
    pub log: String,
}

impl GuardrailSummary {
    /// It found something wrong.
    pub fn failed(&self) -> bool {
        !self.passed && !self.cut_off
    }
}

/// An SCM task that failed, and what was said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScmFailureSummary {
    pub task: String,
    pub why: String,
}

/// What became of an SCM task that has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScmTaskSummary {
    pub task: String,
    /// The iterations in which it failed.
    pub iterations: Vec<u32>,
    /// Why it failed the last time.
    pub why: String,
    /// It has succeeded since, with what was left then.
    pub made_good: bool,
}

/// A run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ContinuationSummary {
    pub time_ms: i64,
    /// How it had ended; `None` if it was cut off.
    pub after: Option<Outcome>,
    /// The iteration that was begun again.
    pub cut_off: Option<u32>,
    /// The iteration whose work was there and had only to be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<u32>,
}

/// A time without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub iteration: u32,
    pub reason: WaitReason,
    pub from_ms: i64,
    /// Until when it was to be.
    pub until_ms: i64,
    /// Until when it was; nothing while it lasts, or if nobody knows because the run was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
}

/// A commit, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitSummary {
    pub id: String,
    /// When it was seen.
    pub time_ms: i64,
    pub subject: String,
    /// It came with all that is between that commit and this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// No branch has it any more: history was written anew.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// It is checked out, or came before what is, and no branch, no tag and no remote has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_branch: bool,
}

/// How many commits are in the range that somebody would look at, and how many of them iterations made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommitRangeCounts {
    pub commits: u32,
    pub own: u32,
}

/// What is left to do, as far as anybody said.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RemainingWork {
    /// What the next prompt would carry.
    pub feedback: Vec<String>,
    /// What is open in the plan that the agent keeps for itself.
    pub plan: Vec<String>,
    /// Stories that pass, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<(u32, u32)>,
    /// What is wrong with the list, so that the work is not complete whatever passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The story that is next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
}

impl Summary {
    /// The commits of the run, first things first.
    pub fn commits(&self) -> impl DoubleEndedIterator<Item = &CommitSummary> {
        self.iterations.iter().flat_map(|iteration| &iteration.commits)
    }

    /// Puts commits in the place of those that came with others, as `ask` tells of what is in the second and not
    /// in the first; whatever was told by itself is not told again.
    pub fn expand_commits(
        &mut self,
        mut ask: impl FnMut(&str, &str) -> Option<Vec<(String, String)>>,
    ) {
        let own = self.iterations.iter_mut().map(|iteration| &mut iteration.commits);
        let mut lists: Vec<&mut Vec<CommitSummary>> = own.chain([&mut self.others]).collect();
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

    /// Notes which commits no branch has any more.
    pub fn mark_unreachable(&mut self, gone: &HashSet<&str>) {
        let own = self.iterations.iter_mut().flat_map(|iteration| &mut iteration.commits);
        for commit in own.chain(&mut self.others) {
            commit.gone = gone.contains(commit.id.as_str());
        }
    }

    /// Notes which commits are only where `HEAD` is.
    pub fn mark_detached(&mut self, unnamed: &HashSet<&str>) {
        let own = self.iterations.iter_mut().flat_map(|iteration| &mut iteration.commits);
        for commit in own.chain(&mut self.others) {
            commit.no_branch = !commit.gone && unnamed.contains(commit.id.as_str());
        }
    }

    /// From which commit to which one would look to see what was done.
    pub fn commit_range(&self) -> Option<(&str, &str)> {
        let last = self.commits().rfind(|commit| !commit.gone);
        let last = last.or_else(|| self.commits().next_back())?;
        Some((self.head.as_deref()?, &last.id))
    }

    /// Notes which commits are in that range.
    pub fn count_range(&mut self, ids: &HashSet<&str>) {
        let own = self.commits().filter(|commit| ids.contains(commit.id.as_str())).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.shown = Some(CommitRangeCounts { commits: count(ids.len()), own: count(own) });
    }

    /// The iteration that is under way, or was when the run was cut off.
    fn open_iteration(&self) -> Option<u32> {
        self.iterations.last().filter(|last| !last.ended).map(|last| last.number)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests;
