//! The task list: stories that an agent works off, and what counts as a list at all.
//!
//! An agent writes this file, so nothing in it is taken on trust. [`parse`] says what is wrong by
//! story and field; [`order`] tells what is next; [`ledger`] remembers what was there, so that a story
//! cannot be got rid of by leaving it out; [`changes`] tells what was changed between two runs; [`verdict`] says whether the work is done; [`edit`] changes a
//! value and leaves every other character of the file alone.

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

/// A list that has the shape of one.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskList {
    pub project: String,
    pub branch_name: String,
    pub description: String,
    /// Commands that must succeed before a story counts as passing.
    pub verify_commands: Vec<String>,
    pub stories: Vec<Story>,
}

/// One piece of work.
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
    /// Stories that this one stands for, so that they may leave the list.
    pub replaces: Vec<String>,
    /// All of it as it was written, with what only its author knows.
    pub source: Value,
}

/// Something that is wrong with a list: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProblem {
    /// The story, by its id if it has one, else by its place.
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

/// Why a text is no task list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTaskList {
    /// What is wrong, never nothing.
    pub problems: Vec<TaskProblem>,
    /// It ends too early, as a file does that is being written.
    pub is_truncated: bool,
}

impl TaskList {
    pub fn passing_count(&self) -> usize {
        self.stories.iter().filter(|story| story.passes).count()
    }

    /// Whether the work is done, by the list alone. A list without stories promises nothing.
    pub fn is_complete(&self) -> bool {
        !self.stories.is_empty() && self.stories.iter().all(|story| story.passes)
    }

    /// What a list of the right shape can still have wrong: stories that pass and do not say what was
    /// done, and dependencies that lead nowhere or in a circle.
    pub fn problems(&self) -> Vec<TaskProblem> {
        let undocumented = self.stories.iter().filter(|story| story.lacks_notes());
        let mut problems: Vec<TaskProblem> = undocumented
            .map(|story| {
                TaskProblem::for_story(
                    &story.id,
                    "notes",
                    "is empty, though passes is true; say in it what was done",
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

/// The first few of many problems, a line each: a list of thousands of stories can be wrong in
/// thousands of places for one reason.
pub fn first_problems(problems: &[TaskProblem]) -> Vec<String> {
    const MAX_PROBLEMS: usize = 10;
    let mut lines: Vec<String> =
        problems.iter().take(MAX_PROBLEMS).map(ToString::to_string).collect();
    if problems.len() > MAX_PROBLEMS {
        lines.push(format!("and {} more of this kind", problems.len() - MAX_PROBLEMS));
    }
    lines
}

#[cfg(test)]
mod tests;
