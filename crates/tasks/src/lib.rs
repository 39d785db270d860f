//! Task lists: parsing, order, changes between runs, proof of completion, archive and templates.
//!
//! Agents write this file, so nothing in it is trusted. [`ledger`] remembers every story, so none
//! can be dropped silently, and [`verdict`] decides whether the work is done. [`edit`] changes
//! values and keeps the rest of the file as it is.
//!
//! The crate knows nothing of agents, git or the loop.

#![forbid(unsafe_code)]

pub mod archive;
pub mod changes;
pub mod documents;
pub mod edit;
pub mod ledger;
pub mod ledger_store;
pub mod order;
mod parse;
pub mod summary;
pub mod verdict;

use serde_json::Value;

pub use parse::{is_truncated, parse};

/// A valid task list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskList {
    pub project: String,
    pub branch_name: String,
    pub description: String,
    /// Must succeed before a story counts as passing.
    pub verify_commands: Vec<String>,
    pub stories: Vec<Story>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    pub id: String,
    pub title: String,
    pub description: String,
    pub acceptance_criteria: Vec<String>,
    /// The smallest comes first.
    pub priority: f64,
    pub passes: bool,
    pub notes: String,
    pub depends_on: Vec<String>,
    /// Stories that this one replaces, which may therefore leave the list.
    pub replaces: Vec<String>,
    /// The story as written, with unknown keys.
    pub source: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProblem {
    /// The story's id, or its index if it has none.
    pub story: Option<String>,
    pub field: Option<&'static str>,
    pub message: String,
}

impl TaskProblem {
    fn for_story(
        story: impl Into<String>,
        field: &'static str,
        message: impl Into<String>,
    ) -> Self {
        TaskProblem { story: Some(story.into()), field: Some(field), message: message.into() }
    }
}

impl std::fmt::Display for TaskProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in [self.story.as_deref(), self.field].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTaskList {
    /// Never empty.
    pub problems: Vec<TaskProblem>,
}

impl TaskList {
    pub fn passing_count(&self) -> usize {
        self.stories.iter().filter(|story| story.passes).count()
    }

    /// An empty list is not complete.
    pub fn is_complete(&self) -> bool {
        !self.stories.is_empty() && self.stories.iter().all(|story| story.passes)
    }

    /// Passing stories without notes, and bad dependencies.
    pub fn problems(&self) -> Vec<TaskProblem> {
        let undocumented = self.stories.iter().filter(|story| story.lacks_notes());
        let mut problems: Vec<TaskProblem> = undocumented
            .map(|story| {
                TaskProblem::for_story(
                    &story.id,
                    "notes",
                    "empty, but passes is true; describe what was done",
                )
            })
            .collect();
        problems.extend(order::dependency_problems(self));
        problems
    }
}

impl Story {
    pub fn lacks_notes(&self) -> bool {
        self.passes && self.notes.trim().is_empty()
    }
}

/// One mistake can affect thousands of stories.
pub fn first_problems(problems: &[TaskProblem]) -> Vec<String> {
    const MAX_PROBLEMS: usize = 10;
    let mut lines: Vec<String> =
        problems.iter().take(MAX_PROBLEMS).map(ToString::to_string).collect();
    if problems.len() > MAX_PROBLEMS {
        lines.push(format!("and {} more problems", problems.len() - MAX_PROBLEMS));
    }
    lines
}

#[cfg(test)]
mod tests;
