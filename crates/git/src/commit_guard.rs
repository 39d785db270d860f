//! What is staged and what is in the work tree besides, so that one can tell later whether it is still the same.
//!
//! Once everything is staged, git itself tells of every change: of a file that was changed again, of a new one, of an
//! index that is another, of a `HEAD` that moved. No file has to be read for that, and no lock is taken.

use std::hash::{DefaultHasher, Hash, Hasher};

use ralph_store::project::is_run_time_file;

/// What git is asked besides [`status::WORDS`](super::status::WORDS). A file that was renamed is one that is gone and
/// one that is new: so each is told in one field.
pub const STATUS_ARGS: &[&str] = &["--no-renames"];

/// The mode of what is a repository of its own.
const GITLINK_MODE: &str = "160000";

/// How many files are named.
const MAX_NAMED_FILES: usize = 5;

/// What there was at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedSnapshot {
    /// The commit that is checked out, and the branch.
    head: String,
    branch: String,
    /// All that is staged, as a number.
    index: u64,
    /// The files that differ from that, as a number, and the first of them.
    unstaged: u64,
    differing_files: Vec<String>,
    has_more_files: bool,
    /// Repositories that are part of what is staged and were not before, the first of them.
    repositories: Vec<String>,
}

/// How something differs from what was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedChange {
    /// What changed, in words.
    pub description: String,
    /// What would be committed now is not what was staged, or not in the place where it was to be.
    pub commit_changed: bool,
}

impl StagedSnapshot {
    /// The repositories inside of this one that are to be committed for the first time, but for those that are declared
    /// in these `.gitmodules`: only which commit they are at is committed, and nobody could find it.
    pub fn new_repositories<'a>(&'a self, gitmodules: &'a str) -> impl Iterator<Item = &'a str> {
        let path = |line: &'a str| Some(line.trim().strip_prefix("path")?.trim_start());
        let is_declared = move |name: &str| {
            let mut paths = gitmodules.lines().filter_map(path);
            paths.any(|line| line.strip_prefix('=').is_some_and(|path| path.trim() == name))
        };
        self.repositories.iter().map(String::as_str).filter(move |name| !is_declared(name))
    }

    /// Whether the same would be committed in the same place.
    pub fn commits_same(&self, other: &StagedSnapshot) -> bool {
        (&self.head, &self.branch, self.index) == (&other.head, &other.branch, other.index)
    }

    /// What is another than it was before.
    pub fn changes_since(&self, before: &StagedSnapshot) -> Option<StagedChange> {
        let mut what = Vec::new();
        if self.branch != before.branch {
            what.push(match self.branch.as_str() {
                "(detached)" => "HEAD is on no branch any more".to_owned(),
                branch => format!("{branch} was checked out"),
            });
        }
        if self.head != before.head {
            what.push(format!("HEAD moved to {}", self.head.get(..8).unwrap_or(&self.head)));
        }
        // What is committed is staged no more, which goes without saying.
        if self.index != before.index && what.is_empty() {
            what.push("what is staged was changed".to_owned());
        }
        let moved = !what.is_empty();
        if self.unstaged != before.unstaged {
            let new =
                self.differing_files.iter().filter(|file| !before.differing_files.contains(file));
            let files: Vec<&str> = new.map(String::as_str).collect();
            let more = if self.has_more_files { " and more" } else { "" };
            what.push(match files.as_slice() {
                [] => "files were changed".to_owned(),
                [file] if !self.has_more_files => format!("{file} was changed"),
                files => format!("{}{more} were changed", files.join(", ")),
            });
        }
        (!what.is_empty())
            .then(|| StagedChange { description: what.join(" and "), commit_changed: moved })
    }
}

/// Reads what git says, however much it is.
#[derive(Debug, Default)]
pub struct StagedStatusReader {
    staged: StagedSnapshot,
    index: DefaultHasher,
    unstaged: DefaultHasher,
    /// The beginning of a field.
    partial_field: Vec<u8>,
}

impl StagedStatusReader {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(0, bytes) {
            self.partial_field.extend_from_slice(&bytes[..end]);
            let field = std::mem::take(&mut self.partial_field);
            self.field(&String::from_utf8_lossy(&field));
            bytes = &bytes[end + 1..];
        }
        self.partial_field.extend_from_slice(bytes);
    }

    /// All that it said; nothing if it told of no commit and no branch, so that it was not to its end.
    pub fn end(self) -> Option<StagedSnapshot> {
        let StagedStatusReader { staged, index, unstaged: beside, partial_field: rest } = self;
        let is_whole = rest.is_empty() && !staged.head.is_empty();
        is_whole.then(|| StagedSnapshot {
            index: index.finish(),
            unstaged: beside.finish(),
            ..staged
        })
    }

    fn field(&mut self, field: &str) {
        let (kind, told) = field.split_once(' ').unwrap_or_default();
        match kind {
            "#" => match told.split_once(' ') {
                Some(("branch.oid", id)) => id.clone_into(&mut self.staged.head),
                Some(("branch.head", name)) => name.clone_into(&mut self.staged.branch),
                _ => {}
            },
            // The state in the index and in the work tree, a word on submodules, the modes in the commit, in the
            // index and in the work tree, the objects of the first two.
            "1" => {
                let words: Vec<&str> = told.splitn(8, ' ').collect();
                let &[state, _, before, mode, _, _, object, file] = words.as_slice() else {
                    return;
                };
                if is_run_time_file(file) {
                    return;
                }
                if !state.starts_with('.') {
                    (state.get(..1), mode, object, file).hash(&mut self.index);
                }
                let named = &mut self.staged.repositories;
                if mode == GITLINK_MODE && before != GITLINK_MODE && named.len() < MAX_NAMED_FILES {
                    named.push(file.to_owned());
                }
                if !state.ends_with('.') {
                    field.hash(&mut self.unstaged);
                    self.differs(file);
                }
            }
            "u" => field.hash(&mut self.index),
            "?" if !is_run_time_file(told) => {
                told.hash(&mut self.unstaged);
                self.differs(told);
            }
            _ => {}
        }
    }

    fn differs(&mut self, file: &str) {
        let staged = &mut self.staged;
        staged.has_more_files = staged.differing_files.len() >= MAX_NAMED_FILES;
        if !staged.has_more_files {
            staged.differing_files.push(file.replace(char::is_control, "?"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(told: &str) -> Option<StagedSnapshot> {
        let mut reader = StagedStatusReader::default();
        // In pieces, as a pipe hands them over.
        for piece in told.replace('|', "\0").as_bytes().chunks(7) {
            reader.feed(piece);
        }
        reader.end()
    }

    const BEFORE: &str = "# branch.oid 1234567890|# branch.head main|\
        1 M. N... 100644 100644 100644 aa bb src/a b.rs|1 A. N... 000000 100644 100644 00 cc new|";

    #[test]
    fn changes_after_staging_are_described_with_moved_head() {
        let before = read(BEFORE).unwrap();
        let beside = |more: &str| format!("{BEFORE}{more}");
        let other = |from: &str, to: &str| BEFORE.replace(from, to);
        let many: String = (0..9).map(|n| format!("? f{n}|")).collect();
        for (after, expected) in [
            (BEFORE.to_owned(), None),
            // What the agent's `git status` does to the index, and what ralph itself writes.
            (beside("# stash 1|? .ralph/runs/x/events.jsonl|? .ralph/prompt_001.txt|"), None),
            (beside("? sneaked|"), Some(("sneaked was changed", false))),
            (other("M. ", "MM "), Some(("src/a b.rs was changed", false))),
            (other("A. ", "AD "), Some(("new was changed", false))),
            (beside(&many), Some(("f0, f1, f2, f3, f4 and more were changed", false))),
            (other("bb src", "dd src"), Some(("what is staged was changed", true))),
            (other("1 A. N... 000000 100644 100644 00 cc new|", ""), {
                Some(("what is staged was changed", true))
            }),
            ("# branch.oid 99999999aa|# branch.head main|".to_owned(), {
                Some(("HEAD moved to 99999999", true))
            }),
            (other("head main", "head other"), Some(("other was checked out", true))),
            (other("head main", "head (detached)") + "? x|", {
                Some(("HEAD is on no branch any more and x was changed", true))
            }),
        ] {
            let change = read(&after).unwrap().changes_since(&before);
            let told =
                change.as_ref().map(|change| (change.description.as_str(), change.commit_changed));
            assert_eq!(told, expected, "{after}");
        }
    }

    #[test]
    fn new_nested_repository_is_detected_unless_submodule() {
        let told = "# branch.oid 12|# branch.head main|\
            1 A. S... 000000 160000 160000 00 cc an app|1 M. SC.. 160000 160000 160000 aa bb known|\
            1 T. S... 100644 160000 160000 aa bb was a file|1 A. S... 000000 160000 160000 00 cc sub|";
        let staged = read(told).unwrap();
        let modules = "[submodule \"x\"]\n\tpath = sub\n\turl = ../an app\n";
        let found: Vec<&str> = staged.new_repositories(modules).collect();
        assert_eq!(found, ["an app", "was a file"]);
    }

    #[test]
    fn truncated_git_status_is_rejected() {
        for told in ["", "1 M. N... 100644 100644 100644 aa bb a|", &BEFORE[..BEFORE.len() - 1]] {
            assert_eq!(read(told), None, "{told}");
        }
        assert!(read("# branch.oid (initial)|# branch.head main|").is_some());
    }
}
