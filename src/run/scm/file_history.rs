//! Earlier versions of one file, from git's history.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use crate::error::Error;

/// The number of commits that are looked at.
const MAX_COMMITS: &str = "--max-count=1000";

/// Reads the committed versions of a file that `keep_going` accepts, the newest first; the first one it refuses ends the
/// search. Each content is given once.
///
/// # Errors
/// The file is in no git work tree, or git failed.
pub fn file_versions(path: &Path, mut keep_going: impl FnMut(&str) -> bool) -> Result<(), Error> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let words = ["--literal-pathspecs", "log", MAX_COMMITS, "--format=", "--raw", "--no-abbrev"];
    let words = words.iter().map(OsStr::new).chain(["--no-renames".as_ref(), "--".as_ref(), name]);
    let log = super::git(&words.collect::<Vec<_>>(), directory)?;
    let mut seen = HashSet::new();
    for blob in log.lines().filter_map(new_blob).filter(|blob| seen.insert(*blob)) {
        // A blob that is missing from a partial clone ends what can be known.
        if !keep_going(&super::git(&["cat-file", "blob", blob], directory)?) {
            break;
        }
    }
    Ok(())
}

/// The new content in a line of `git log --raw`: `:100644 100644 OLD NEW M\tpath`. `None` for a deletion.
fn new_blob(line: &str) -> Option<&str> {
    let blob = line.strip_prefix(':')?.split(' ').nth(3)?;
    blob.bytes().any(|byte| byte != b'0').then_some(blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_blob_is_read_from_raw_lines() {
        for (line, blob) in [
            (":000000 100644 0000 abcd A\tralph/tasks.json", Some("abcd")),
            (":100644 000000 abcd 0000 D\tralph/tasks.json", None),
            ("", None),
            (":100644", None),
        ] {
            assert_eq!(new_blob(line), blob, "{line}");
        }
    }
}
