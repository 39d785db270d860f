//! A snapshot of the index and work tree, to detect changes after staging.
//!
//! Once everything is staged, `git status` shows every later change: a file, the index, `HEAD`. No
//! file has to be read, and no lock is taken.

use std::hash::{DefaultHasher, Hash, Hasher};

use ralph_store::project::is_run_time_file;

/// Added to [`status::STATUS_ARGS`](super::status::STATUS_ARGS). Without renames, each file is one
/// field.
pub const STATUS_ARGS: &[&str] = &["--no-renames"];

/// The mode of a nested repository.
const GITLINK_MODE: &str = "160000";

const MAX_NAMED_FILES: usize = 5;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedSnapshot {
    head: String,
    branch: String,
    /// Hash of the index.
    index: u64,
    /// Hash and first names of files that differ from the index.
    unstaged: u64,
    differing_files: Vec<String>,
    has_more_files: bool,
    /// Nested repositories that are staged for the first time.
    repositories: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedChange {
    pub description: String,
    /// The commit would have other content or another parent or branch.
    pub commit_changed: bool,
}

impl StagedSnapshot {
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
        (&self.head, &self.branch, self.index) == (&other.head, &other.branch, other.index)
    }

    pub fn changes_since(&self, before: &StagedSnapshot) -> Option<StagedChange> {
        let mut changes = Vec::new();
        if self.branch != before.branch {
            changes.push(match self.branch.as_str() {
                "(detached)" => "HEAD is on no branch any more".to_owned(),
                branch => format!("{branch} was checked out"),
            });
        }
        if self.head != before.head {
            changes.push(format!("HEAD moved to {}", self.head.get(..8).unwrap_or(&self.head)));
        }
        // A commit changes the index anyway.
        if self.index != before.index && changes.is_empty() {
            changes.push("what is staged was changed".to_owned());
        }
        let moved = !changes.is_empty();
        if self.unstaged != before.unstaged {
            let new =
                self.differing_files.iter().filter(|file| !before.differing_files.contains(file));
            let files: Vec<&str> = new.map(String::as_str).collect();
            let more = if self.has_more_files { " and more" } else { "" };
            changes.push(match files.as_slice() {
                [] => "files were changed".to_owned(),
                [file] if !self.has_more_files => format!("{file} was changed"),
                files => format!("{}{more} were changed", files.join(", ")),
            });
        }
        (!changes.is_empty())
            .then(|| StagedChange { description: changes.join(" and "), commit_changed: moved })
    }
}

#[derive(Debug, Default)]
pub struct StagedStatusReader {
    staged: StagedSnapshot,
    index: DefaultHasher,
    unstaged: DefaultHasher,
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

    /// `None` if the output is incomplete.
    pub fn end(self) -> Option<StagedSnapshot> {
        let StagedStatusReader { staged, index, unstaged, partial_field } = self;
        let is_complete = partial_field.is_empty() && !staged.head.is_empty();
        is_complete.then(|| StagedSnapshot {
            index: index.finish(),
            unstaged: unstaged.finish(),
            ..staged
        })
    }

    fn field(&mut self, field: &str) {
        let (kind, rest) = field.split_once(' ').unwrap_or_default();
        match kind {
            "#" => match rest.split_once(' ') {
                Some(("branch.oid", id)) => id.clone_into(&mut self.staged.head),
                Some(("branch.head", name)) => name.clone_into(&mut self.staged.branch),
                _ => {}
            },
            // State, submodule state, modes (commit, index, work tree), objects (commit, index),
            // path.
            "1" => {
                let words: Vec<&str> = rest.splitn(8, ' ').collect();
                let &[state, _, before, mode, _, _, object, file] = words.as_slice() else {
                    return;
                };
                if is_run_time_file(file) {
                    return;
                }
                if !state.starts_with('.') {
                    (state.get(..1), mode, object, file).hash(&mut self.index);
                }
                let repositories = &mut self.staged.repositories;
                if mode == GITLINK_MODE
                    && before != GITLINK_MODE
                    && repositories.len() < MAX_NAMED_FILES
                {
                    repositories.push(file.to_owned());
                }
                if !state.ends_with('.') {
                    field.hash(&mut self.unstaged);
                    self.differs(file);
                }
            }
            "u" => field.hash(&mut self.index),
            "?" if !is_run_time_file(rest) => {
                rest.hash(&mut self.unstaged);
                self.differs(rest);
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

    fn read(output: &str) -> Option<StagedSnapshot> {
        let mut reader = StagedStatusReader::default();
        for piece in output.replace('|', "\0").as_bytes().chunks(7) {
            reader.feed(piece);
        }
        reader.end()
    }

    const BEFORE: &str = "# branch.oid 1234567890|# branch.head main|\
        1 M. N... 100644 100644 100644 aa bb src/a b.rs|1 A. N... 000000 100644 100644 00 cc new|";

    #[test]
    fn changes_after_staging_are_described_with_moved_head() {
        let before = read(BEFORE).unwrap();
        let with_more = |more: &str| format!("{BEFORE}{more}");
        let other = |from: &str, to: &str| BEFORE.replace(from, to);
        let many: String = (0..9).map(|n| format!("? f{n}|")).collect();
        for (after, expected) in [
            (BEFORE.to_owned(), None),
            // Effects of an agent's `git status`, and ralph's own files.
            (with_more("# stash 1|? .ralph/runs/x/events.jsonl|? .ralph/prompt_001.txt|"), None),
            (with_more("? sneaked|"), Some(("sneaked was changed", false))),
            (other("M. ", "MM "), Some(("src/a b.rs was changed", false))),
            (other("A. ", "AD "), Some(("new was changed", false))),
            (with_more(&many), Some(("f0, f1, f2, f3, f4 and more were changed", false))),
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
            let actual =
                change.as_ref().map(|change| (change.description.as_str(), change.commit_changed));
            assert_eq!(actual, expected, "{after}");
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
