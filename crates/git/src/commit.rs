//! Commits single paths.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ralph_events::error::Error;

use super::git_call::{run_git, run_git_slow};
use super::repository::is_repository;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitResult {
    /// git ignores the files in `left_out`.
    Created {
        commit: String,
        left_out: Vec<PathBuf>,
    },
    NoRepository,
    Ignored,
}

/// Commits only these paths. Other staged changes stay staged.
pub fn commit_paths(
    directory: &Path,
    paths: &[&Path],
    message: &str,
) -> Result<CommitResult, Error> {
    if !is_repository(directory) {
        return Ok(CommitResult::NoRepository);
    }
    // A `*` in a name is literal.
    let literal = OsStr::new("--literal-pathspecs");
    let is_ignored = |path: &Path| {
        let words = [OsStr::new("check-ignore"), "-q".as_ref(), "--".as_ref(), path.as_ref()];
        run_git(&words, directory).is_ok()
    };
    let (left_out, paths): (Vec<&Path>, Vec<&Path>) =
        paths.iter().partition(|path| is_ignored(path));
    if paths.is_empty() {
        return Ok(CommitResult::Ignored);
    }
    let git_args = |words: &[&str], paths: &[&Path]| -> Vec<OsString> {
        let paths = paths.iter().map(|path| path.as_os_str());
        let words = words.iter().map(OsStr::new).chain([OsStr::new("--")]).chain(paths);
        std::iter::once(literal).chain(words).map(Into::into).collect()
    };
    // The commit must know new files by name. It takes their content itself, so the index is the
    // same afterwards, even on failure.
    let mut untracked = Vec::new();
    for path in &paths {
        if run_git(&git_args(&["ls-files"], &[path]), directory)?.is_empty() {
            untracked.push(*path);
        }
    }
    if !untracked.is_empty() {
        run_git(&git_args(&["add", "--intent-to-add"], &untracked), directory)?;
    }
    // An empty commit would look into every nested repository.
    let changed = git_args(&["status", "--porcelain", "--ignore-submodules=dirty"], &paths);
    if run_git(&changed, directory)?.is_empty() {
        return Err(Error::failed("git commit: no changes since the last commit"));
    }
    let commit = git_args(&["commit", "--quiet", "-m", message], &paths);
    if let Err(err) = run_git_slow(&commit, directory) {
        if !untracked.is_empty() {
            let _ = run_git(&git_args(&["reset", "--quiet"], &untracked), directory);
        }
        return Err(err);
    }
    let name = run_git(&["rev-parse", "--short", "HEAD"], directory)?;
    let left_out = left_out.into_iter().map(Path::to_owned).collect();
    Ok(CommitResult::Created { commit: name.trim().to_owned(), left_out })
}
