//! Hashes of the index and work tree, to detect changes after staging.
//!
//! Once everything is staged, `git status` shows every later change: a file, the index, `HEAD`. No
//! file has to be read, and no lock is taken.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::status::{StatusRecord, parse_records};

/// Added to [`status::STATUS_ARGS`](super::status::STATUS_ARGS). Without renames, each file is one
/// field.
pub const STATUS_ARGS: &[&str] = &["--no-renames"];

/// The mode of a nested repository.
const GITLINK_MODE: &str = "160000";

const MAX_REPOSITORIES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSnapshot {
    /// What a commit would be: its parent, branch and content.
    commit: u64,
    /// Files that differ from the index.
    unstaged: u64,
    /// Nested repositories that are staged for the first time.
    repositories: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedChange {
    /// The commit would have other content or another parent or branch.
    Commit,
    /// Only files that are not part of the commit.
    Files,
}

impl StagedSnapshot {
    /// `None` if the output of `git status` is incomplete.
    pub fn parse(status: &str) -> Option<StagedSnapshot> {
        if !status.starts_with("# branch.oid ") || !status.ends_with('\0') {
            return None;
        }
        let (mut commit, mut unstaged) = (DefaultHasher::new(), DefaultHasher::new());
        let mut repositories = Vec::new();
        for StatusRecord { line, file } in parse_records(status) {
            // State, submodule state, modes (commit, index, work tree), objects (commit, index).
            let words: Vec<&str> = line.split(' ').take(8).collect();
            match (words.as_slice(), file) {
                (&["1", state, _, before, mode, _, _, object], Some(file)) => {
                    if !state.starts_with('.') {
                        (state.get(..1), mode, object, file).hash(&mut commit);
                    }
                    if mode == GITLINK_MODE && before != GITLINK_MODE {
                        repositories.push(file.to_owned());
                    }
                    if !state.ends_with('.') {
                        line.hash(&mut unstaged);
                    }
                }
                (["?", ..], _) => line.hash(&mut unstaged),
                _ => line.hash(&mut commit),
            }
        }
        repositories.truncate(MAX_REPOSITORIES);
        Some(StagedSnapshot { commit: commit.finish(), unstaged: unstaged.finish(), repositories })
    }

    /// Nested repositories to be committed for the first time, except submodules. A commit records
    /// only their commit id, which exists nowhere else.
    pub fn new_repositories<'a>(&'a self, gitmodules: &'a str) -> impl Iterator<Item = &'a str> {
        let path = |line: &'a str| Some(line.trim().strip_prefix("path")?.trim_start());
        let is_declared = move |name: &str| {
            let mut paths = gitmodules.lines().filter_map(path);
            paths.any(|line| line.strip_prefix('=').is_some_and(|path| path.trim() == name))
        };
        self.repositories.iter().map(String::as_str).filter(move |name| !is_declared(name))
    }

    pub fn commits_same(&self, other: &StagedSnapshot) -> bool {
        self.commit == other.commit
    }

    pub fn change_since(&self, before: &StagedSnapshot) -> Option<StagedChange> {
        if !self.commits_same(before) {
            Some(StagedChange::Commit)
        } else {
            (self.unstaged != before.unstaged).then_some(StagedChange::Files)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Option<StagedSnapshot> {
        StagedSnapshot::parse(&output.replace('|', "\0"))
    }

    const BEFORE: &str = "# branch.oid 1234567890|# branch.head main|\
        1 M. N... 100644 100644 100644 aa bb src/a b.rs|1 A. N... 000000 100644 100644 00 cc new|";

    #[test]
    fn changes_after_staging_are_of_commit_or_beside_it() {
        use StagedChange::{Commit, Files};
        let before = read(BEFORE).unwrap();
        let with_more = |more: &str| format!("{BEFORE}{more}");
        let other = |from: &str, to: &str| BEFORE.replace(from, to);
        for (after, expected) in [
            (BEFORE.to_owned(), None),
            (with_more("# stash 1|? .ralph/runs/x/events.jsonl|? .ralph/prompt_001.txt|"), None),
            (with_more("? some file|"), Some(Files)),
            (other("M. ", "MM "), Some(Files)),
            (other("A. ", "AD "), Some(Files)),
            (other("bb src", "dd src"), Some(Commit)),
            (other("1 A. N... 000000 100644 100644 00 cc new|", ""), Some(Commit)),
            ("# branch.oid 99999999aa|# branch.head main|".to_owned(), Some(Commit)),
            (other("head main", "head other"), Some(Commit)),
            (other("head main", "head (detached)") + "? x|", Some(Commit)),
        ] {
            assert_eq!(read(&after).unwrap().change_since(&before), expected, "{after}");
        }
    }

    #[test]
    fn new_nested_repository_is_detected_unless_submodule() {
        let output = "# branch.oid 12|# branch.head main|\
            1 A. S... 000000 160000 160000 00 cc an app|1 M. SC.. 160000 160000 160000 aa bb known|\
            1 T. S... 100644 160000 160000 aa bb was a file|1 A. S... 000000 160000 160000 00 cc sub|";
        let staged = read(output).unwrap();
        let modules = "[submodule \"x\"]\n\tpath = sub\n\turl = ../an app\n";
        let found: Vec<&str> = staged.new_repositories(modules).collect();
        assert_eq!(found, ["an app", "was a file"]);
    }

    #[test]
    fn truncated_git_status_is_rejected() {
        for output in ["", "1 M. N... 100644 100644 100644 aa bb a|", &BEFORE[..BEFORE.len() - 1]] {
            assert_eq!(read(output), None, "{output}");
        }
        assert!(read("# branch.oid (initial)|# branch.head main|").is_some());
    }
}
