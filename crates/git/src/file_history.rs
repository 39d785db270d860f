//! Earlier versions of a file from git's history.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use ralph_events::error::Error;

use super::git_call::run_git;
use super::repository::{is_repository, work_tree_root};

const MAX_COMMITS: &str = "--max-count=1000";

/// With commits that merges dropped, and under earlier names.
const HISTORY_ARGS: [&[&str]; 2] = [&["--full-history", "-m", "--no-renames"], &["--follow", "-m"]];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryExtent {
    /// Up to the first version, or where the caller stopped.
    Complete,
    /// Cut off by a shallow clone.
    Truncated,
}

/// Passes committed versions to `keep_going`, newest first and without duplicates, until it returns
/// false.
pub fn file_versions(
    path: &Path,
    mut keep_going: impl FnMut(&str) -> bool,
) -> Result<HistoryExtent, Error> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(HistoryExtent::Complete);
    };
    if work_tree_root(directory).is_none() || is_empty_repository(directory) {
        return Ok(HistoryExtent::Complete);
    }
    let (mut seen, mut last) = (HashSet::new(), None);
    for history in HISTORY_ARGS {
        let words =
            ["--literal-pathspecs", "log", MAX_COMMITS, "--format=", "--raw", "--no-abbrev"];
        let words = words.iter().chain(history).map(OsStr::new).chain(["--".as_ref(), name]);
        let log = run_git(&words.collect::<Vec<_>>(), directory)?;
        for blob in log.lines().filter_map(new_blob) {
            if last.as_deref() == Some(blob) {
                break;
            }
            if seen.insert(blob.to_owned())
                && !keep_going(&run_git(&["cat-file", "blob", blob], directory)?)
            {
                last = Some(blob.to_owned());
                break;
            }
        }
    }
    let is_shallow = run_git(&["rev-parse", "--is-shallow-repository"], directory)?;
    Ok(if is_shallow.trim() == "true" && last.is_none() {
        HistoryExtent::Truncated
    } else {
        HistoryExtent::Complete
    })
}

fn is_empty_repository(directory: &Path) -> bool {
    is_repository(directory)
        && run_git(&["rev-parse", "--verify", "--quiet", "HEAD"], directory).is_err()
}

/// From a line of `git log --raw`: `:100644 100644 OLD NEW M\tpath`. `None` for a deletion.
fn new_blob(line: &str) -> Option<&str> {
    let blob = line.strip_prefix(':')?.split(' ').nth(3)?;
    blob.bytes().any(|byte| byte != b'0').then_some(blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_blob_is_parsed_from_raw_diff_lines() {
        for (line, blob) in [
            (":000000 100644 0000 abcd A\tralph/tasks.json", Some("abcd")),
            (":100644 100644 abcd dcba R090\tralph/tasks.json\tloops/tasks.json", Some("dcba")),
            (":100644 000000 abcd 0000 D\tralph/tasks.json", None),
            ("", None),
            (":100644", None),
        ] {
            assert_eq!(new_blob(line), blob, "{line}");
        }
    }
}
