//! Lists files that are in no commit, and nested repositories.

use std::path::Path;

use ralph_events::error::Error;
use ralph_events::text;
use ralph_store::project::is_run_time_file;

use super::git_call::{GIT_QUICK_TIMEOUT, run_git, run_git_within};
use super::hardening::GitPurpose;
use super::repository::is_repository;

/// Uncommitted files without ralph's run-time files. An untracked directory is one entry.
pub fn list_uncommitted(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=normal", &[])
}

/// Like [`list_uncommitted`], with every file in untracked directories.
pub fn list_uncommitted_recursive(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=all", &[])
}

pub(super) fn uncommitted(
    directory: &Path,
    untracked: &str,
    paths: &[String],
) -> Result<Vec<String>, Error> {
    // `-z` prevents quoting. git would use a submodule's configuration inside it.
    let args = ["status", "--porcelain", "-z", untracked, "--ignore-submodules=dirty", "--"];
    let words: Vec<&str> = args.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let status = run_git_within(GIT_QUICK_TIMEOUT, GitPurpose::ReadOnly, &words, directory)?;
    Ok(status_files(&status))
}

/// Parses `git status --porcelain -z`. Skips ralph's run-time files.
pub fn status_files(status: &str) -> Vec<String> {
    let mut fields = status.split('\0');
    let mut files = Vec::new();
    while let Some(field) = fields.next() {
        let Some((state, path)) = field.split_at_checked(3) else { continue };
        // A rename or copy is followed by its old name.
        if state.contains(['R', 'C']) {
            fields.next();
        }
        if !is_run_time_file(path) {
            files.push(path.to_owned());
        }
    }
    files
}

pub fn format_file_list<T: AsRef<str>>(files: &[T]) -> Option<String> {
    const MAX_NAMED_FILES: usize = 100;
    (!files.is_empty()).then(|| text::first_few(files, MAX_NAMED_FILES))
}

/// Checked-out submodules and nested repositories. git does not see files inside them.
pub fn submodules(directory: &Path) -> Result<Vec<String>, Error> {
    let files = run_git(&["ls-files", "--stage", "-z"], directory)?;
    Ok(parse_submodules(&files, directory))
}

/// Parses `git ls-files --stage -z`.
pub fn parse_submodules(files: &str, directory: &Path) -> Vec<String> {
    let submodules = files.split('\0').filter_map(|line| {
        let (state, path) = line.split_once('\t')?;
        (state.starts_with("160000 ") && directory.join(path).join(".git").exists())
            .then(|| path.to_owned())
    });
    submodules.collect()
}

pub fn is_tracked_candidate(directory: &Path, name: &str) -> bool {
    is_repository(directory) && run_git(&["check-ignore", "-q", "--", name], directory).is_err()
}
