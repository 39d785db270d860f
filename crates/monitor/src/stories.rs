//! The task list of a run.

use std::io;
use std::path::{Path, PathBuf};

use ralph_events::run_state::RunState;
use ralph_report::story_view::StoryInput;
use ralph_store::runs::RunDir;
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

/// Reads the stories that a run works on.
///
/// # Errors
/// The run has no task list, or it cannot be read.
pub fn run_stories(run: &RunDir, state: &RunState) -> Result<Vec<StoryInput>, StoriesError> {
    if state.tasks.is_none() {
        return Err(StoriesError::None);
    }
    let directory = Path::new(&state.info.directory);
    read_list(&Documents::new(directory, documents_dir(run).as_deref()))
}

/// The directory of the documents, if the run was started with another one than usual.
fn documents_dir(run: &RunDir) -> Option<PathBuf> {
    let spec: serde_json::Value = serde_json::from_slice(&run.read_spec().ok()??).ok()?;
    Some(spec.get("task_list")?.get("directory")?.as_str()?.into())
}

/// Reads the stories of the task list in a directory.
///
/// # Errors
/// There is no list, or it cannot be read.
pub fn read_stories(directory: &Path) -> Result<Vec<StoryInput>, StoriesError> {
    read_list(&Documents::new(directory, None))
}

fn read_list(documents: &Documents) -> Result<Vec<StoryInput>, StoriesError> {
    let bytes = match documents.read_tasks() {
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
