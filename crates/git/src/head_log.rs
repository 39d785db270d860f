//! Reads the commits made in a work tree from the reflog of `HEAD`.
//!
//! Every commit appends a line, on any branch, which stays when history is rewritten. Other work
//! trees have their own logs. So finding new commits takes no git process and no clock. A merge or
//! an emptied log yields one commit with the start of its range; readers can ask git for the rest.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ralph_events::event::Commit;
use ralph_events::text;
use ralph_store::dir_identity::{DirChange, DirHandle};
use ralph_store::safe_fs;

use super::repository::{git_dir, has_repository, head_commit, work_tree_root};

/// If more is new, only the end is read.
const MAX_LOG_BYTES: u64 = 1 << 20;
const MAX_SUBJECT: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommits {
    pub head: String,
    /// Oldest first.
    pub commits: Vec<Commit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPosition<'a> {
    Now,
    /// Before the first commit.
    Ever,
    /// This commit was checked out.
    Commit(&'a str),
}

#[derive(Debug, Default)]
pub struct HeadLog {
    root: PathBuf,
    log: Option<PathBuf>,
    read_bytes: u64,
    /// Finds the position again after git has truncated the log.
    last: Vec<u8>,
    head: Option<String>,
    /// Set if there was a repository at the start.
    top: Option<PathBuf>,
    is_missing: bool,
    /// Held open, so its inode is not reused.
    repository_dir: Option<(DirHandle, File)>,
}

impl HeadLog {
    /// Also returns the commits since `since`, if the log still has that position.
    pub fn open(root: &Path, since: LogPosition<'_>) -> (HeadLog, Option<NewCommits>) {
        let mut log = HeadLog { root: root.to_owned(), ..HeadLog::default() };
        log.find_log();
        log.top = work_tree_root(root).filter(|top| has_repository(top)).map(Path::to_owned);
        // In a linked work tree, `.git` is a file that git may rewrite.
        let own = log.top.as_ref().map(|top| top.join(".git")).filter(|own| own.is_dir());
        log.repository_dir =
            own.and_then(|own| Some((DirHandle::new(&own), File::open(&own).ok()?)));
        let chunk = log.log.as_deref().and_then(|log| read_from(log, 0).ok()).unwrap_or_default();
        log.read_bytes = chunk.len;
        log.remember(&chunk.bytes);
        let offset = match since {
            LogPosition::Now => None,
            LogPosition::Ever => Some(0).filter(|_| chunk.start == 0),
            LogPosition::Commit(id) => parse_entries(&chunk.bytes)
                .filter(|(_, line)| line.new == id)
                .last()
                .map(|(end, _)| end),
        };
        if let Some(end) = offset {
            log.last.clear();
            log.read_bytes = chunk.start + end as u64;
            log.remember(&chunk.bytes[..end]);
        }
        let moved = log.new_commits(true);
        log.head = head_commit(root);
        let unchanged = |head: &String| NewCommits { head: head.clone(), commits: Vec::new() };
        let moved = moved.or_else(|| log.head.as_ref().map(unchanged));
        (log, moved)
    }

    /// Cheap if nothing is new. If `thorough`, also finds a new repository, and one without a
    /// reflog.
    pub fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        let in_repository = !thorough || self.find_log();
        let size = |log: &PathBuf| std::fs::metadata(log).ok().map(|meta| meta.len());
        let size = self.log.as_ref().and_then(size);
        if thorough {
            let existing_log = self.log.as_ref().filter(|_| size.is_some());
            self.is_missing = self.top.as_ref().is_some_and(|top| {
                // A log in the work tree proves that its repository exists.
                !existing_log.is_some_and(|log| log.starts_with(top)) && !has_repository(top)
            });
        }
        if !in_repository {
            self.head = None;
            return None;
        }
        let commits = match size {
            Some(size) if size != self.read_bytes => self.read_new().unwrap_or_default(),
            Some(_) => return None,
            None if thorough => Vec::new(),
            None => return None,
        };
        let now = head_commit(&self.root);
        let moved = now != self.head;
        self.head.clone_from(&now);
        let head = now.filter(|_| moved || !commits.is_empty())?;
        Some(NewCommits { head, commits })
    }

    /// Existed at the start, and was gone at the last thorough check.
    pub fn missing_repository(&self) -> Option<PathBuf> {
        self.top.as_ref().filter(|_| self.is_missing).map(|top| top.join(".git"))
    }

    /// Another repository in place of the first.
    pub fn replaced_repository(&self) -> Option<&Path> {
        let (own, _) = self.repository_dir.as_ref()?;
        (own.change() == DirChange::Replaced).then(|| own.path())
    }

    /// Returns whether there is a repository.
    fn find_log(&mut self) -> bool {
        if self.log.is_some() {
            return true;
        }
        let Some(git) = git_dir(&self.root) else { return false };
        self.log = Some(git.join("logs/HEAD")).filter(|log| log.is_file());
        true
    }

    fn read_new(&mut self) -> io::Result<Vec<Commit>> {
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let last = self.last.len() as u64;
        let mut part = read_from(log, self.read_bytes.saturating_sub(last))?;
        let mut new = part.bytes.as_slice();
        let is_continued = part.start + last == self.read_bytes && new.starts_with(&self.last);
        if is_continued {
            new = &new[self.last.len()..];
        } else {
            // git expires old lines and rewrites the file.
            part = read_from(log, 0)?;
            new = &part.bytes;
            let offset = find_last(new, &self.last).map(|at| at + self.last.len());
            match offset.and_then(|end| new.get(end..)) {
                Some(rest) => new = rest,
                // Another repository: everything is new.
                None if new.iter().take_while(|byte| **byte == b'0').count() >= 40 => {}
                None => match self.head_offset(new) {
                    Some(offset) => new = &new[offset..],
                    // The log was emptied.
                    None => {
                        let end = complete_len(new);
                        self.last.clear();
                        self.read_bytes = part.len - (new.len() - end) as u64;
                        let complete = new[..end].to_vec();
                        self.remember(&complete);
                        return Ok(self.commits_since_head());
                    }
                },
            }
        }
        // A partial last line is read later.
        let (new, unread) = new.split_at(complete_len(new));
        let commits = parse_entries(new).filter_map(|(_, line)| line.commit()).collect();
        self.read_bytes = part.len - unread.len() as u64;
        self.remember(new);
        Ok(commits)
    }

    /// The offset of new lines, by the previous `HEAD`.
    fn head_offset(&self, bytes: &[u8]) -> Option<usize> {
        let head = self.head.as_deref()?;
        let to =
            parse_entries(bytes).filter(|(_, line)| line.new == head).last().map(|(end, _)| end);
        let from = || parse_entries(bytes).position(|(_, line)| line.old == head);
        to.or_else(|| match from()? {
            0 => Some(0),
            nth => parse_entries(bytes).nth(nth - 1).map(|(end, _)| end),
        })
    }

    fn commits_since_head(&self) -> Vec<Commit> {
        let new = head_commit(&self.root).filter(|new| self.head.as_ref() != Some(new));
        let commit = new.zip(self.head.clone()).map(|(id, since)| Commit {
            id,
            subject: "all commits up to this one (the reflog was emptied)".to_owned(),
            replaces: None,
            since: Some(since),
        });
        commit.into_iter().collect()
    }

    fn remember(&mut self, bytes: &[u8]) {
        if let Some(line) = bytes.split_inclusive(|byte| *byte == b'\n').next_back() {
            self.last = line.to_vec();
        }
    }
}

#[derive(Debug, Default)]
struct LogChunk {
    start: u64,
    len: u64,
    bytes: Vec<u8>,
}

fn read_from(path: &Path, from: u64) -> io::Result<LogChunk> {
    let mut file = safe_fs::open_file(path)?;
    let end = file.metadata()?.len();
    let start = from.max(end.saturating_sub(MAX_LOG_BYTES)).min(end);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(LogChunk { start, len: start + bytes.len() as u64, bytes })
}

/// The length up to the end of the last whole line.
fn complete_len(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1)
}

fn find_last(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    (!wanted.is_empty()).then(|| memchr::memmem::rfind(bytes, wanted)).flatten()
}

/// A line of the log: `OLD NEW NAME <MAIL> SECONDS ZONE\tMESSAGE`.
#[derive(Debug)]
struct ReflogEntry<'a> {
    old: &'a str,
    new: &'a str,
    message: Cow<'a, str>,
}

/// Valid lines, with the offset of their ends.
fn parse_entries(bytes: &[u8]) -> impl Iterator<Item = (usize, ReflogEntry<'_>)> {
    let mut end = 0;
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        end += line.len();
        let ids = line.split(|byte| *byte == b' ');
        let mut ids = ids.map(|id| std::str::from_utf8(id).ok()).take(2);
        let (old, new) = (ids.next()??, ids.next()??);
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len() - 1);
        let message = String::from_utf8_lossy(line[tab + 1..].trim_ascii_end());
        let is_id = |id: &str| {
            matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        (is_id(old) && is_id(new)).then_some((end, ReflogEntry { old, new, message }))
    })
}

impl ReflogEntry<'_> {
    fn commit(&self) -> Option<Commit> {
        let message = self.message.as_ref();
        let (action, subject) = message.split_once(": ").unwrap_or((message, ""));
        let has_step = |names: &[&str]| names.iter().any(|name| action.contains(name));
        let rewrites = has_step(&["(amend)", "(squash)", "(fixup)", "(reword)"]);
        let makes = ["commit", "cherry-pick", "revert", "am"]
            .iter()
            .any(|name| action == *name || action.starts_with(&format!("{name} (")))
            || rewrites
            || has_step(&["(pick)", "(edit)", "(continue)", "(merge)"]);
        let brings = subject.starts_with("Merge made by") || subject == "Fast-forward";
        let subject = match (makes, brings) {
            (true, _) => subject,
            (false, true) => message,
            (false, false) => return None,
        };
        Some(Commit {
            id: self.new.to_owned(),
            subject: text::truncate(subject, MAX_SUBJECT, "…").into_owned(),
            replaces: rewrites.then(|| self.old.to_owned()),
            // It may bring several commits, and the message is not theirs.
            since: (brings && !makes).then(|| self.old.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests;
