//! The task list of a run.

use std::io;
use std::path::Path;

use ralph_report::story_view::StoryInput;
use ralph_tasks::Story;
use ralph_tasks::documents::Documents;
use ralph_tasks::order::{StoryStatus, story_statuses};

/// Why there are no stories to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoriesError {
    /// The project has no task list.
    None,
    /// The list cannot be read, or is none.
    Unreadable(String),
}

/// Reads the stories of the task list in a run's directory.
///
/// # Errors
/// There is no list, or it cannot be read.
pub fn read_stories(directory: &Path) -> Result<Vec<StoryInput>, StoriesError> {
    let bytes = match Documents::new(directory, None).read_tasks() {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Err(StoriesError::None),
        Err(err) => return Err(StoriesError::Unreadable(err.to_string())),
    };
    let list = ralph_tasks::parse(&bytes).map_err(|invalid| {
        let problem = invalid.problems.first().map(ToString::to_string);
        StoriesError::Unreadable(problem.unwrap_or_else(|| "not a task list".to_owned()))
    })?;
    let stories = list.stories.iter().zip(story_statuses(&list));
    Ok(stories.map(|(story, status)| input(story, &status)).collect())
}

fn input(story: &Story, status: &StoryStatus<'_>) -> StoryInput {
    let waits_for = match status {
        StoryStatus::Blocked(blockers) => blockers.iter().map(|&id| id.to_owned()).collect(),
        _ => Vec::new(),
    };
    StoryInput {
        id: story.id.clone(),
        title: story.title.clone(),
        criteria: story.acceptance_criteria.clone(),
        notes: story.notes.clone(),
        passes: story.passes,
        waits_for,
        is_next: *status == StoryStatus::Next,
    }
}
