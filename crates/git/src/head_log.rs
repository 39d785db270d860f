//! Which commits are made in a work tree, read from the log that git itself keeps of `HEAD` there.
//!
//! Every commit is a line at the end of that file, in order, on whichever branch it was made, and it
//! stays there when history is written anew. It is this work tree's alone: what others commit in
//! theirs is in another file. So it takes no git process, and no guess by the clock, to tell what was
//! committed between two looks. What a merge brought, and what was there when somebody had emptied the log, is
//! told as one commit and since which: whoever reads it can ask git, which takes no part in a run.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ralph_events::event::Commit;
use ralph_events::text;
use ralph_store::dir_identity::{DirChange, DirHandle};
use ralph_store::safe_fs;

use super::{git_dir, has_repository, head_commit, work_tree_root};

/// How much is read of what is new; of more than that, the end.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// How long a subject may be.
const MAX_SUBJECT: usize = 200;

/// What came of the repository since it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommits {
    /// The commit that is checked out now.
    pub head: String,
    /// What was committed, first things first.
    pub commits: Vec<Commit>,
}

/// From when on something is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPosition<'a> {
    Now,
    /// There was no commit then.
    Ever,
    /// This one was checked out then.
    Commit(&'a str),
}

/// Looks at where `HEAD` goes.
#[derive(Debug, Default)]
pub struct HeadLog {
    root: PathBuf,
    /// The log, once there is one, and how much of it is known.
    log: Option<PathBuf>,
    read_bytes: u64,
    /// The last line that is known, by which the place is found again if git has cut the log short.
    last: Vec<u8>,
    head: Option<String>,
    /// Where the work tree begins whose repository was there at the beginning.
    top: Option<PathBuf>,
    is_missing: bool,
    /// The directory of that repository. While it is open, no other gets its number.
    repository_dir: Option<(DirHandle, File)>,
}

impl HeadLog {
    /// Where it stands now, with what was committed since then, if the log still tells when that was.
    pub fn open(root: &Path, since: LogPosition<'_>) -> (HeadLog, Option<NewCommits>) {
        let mut watch = HeadLog { root: root.to_owned(), ..HeadLog::default() };
        watch.find_log();
        watch.top = work_tree_root(root).filter(|top| has_repository(top)).map(Path::to_owned);
        // That of a linked work tree is a file, which git may write anew.
        let own = watch.top.as_ref().map(|top| top.join(".git")).filter(|own| own.is_dir());
        watch.repository_dir =
            own.and_then(|own| Some((DirHandle::new(&own), File::open(&own).ok()?)));
        let whole = watch.log.as_deref().and_then(|log| read_from(log, 0).ok()).unwrap_or_default();
        watch.read_bytes = whole.len;
        watch.remember(&whole.bytes);
        let place = match since {
            LogPosition::Now => None,
            LogPosition::Ever => Some(0).filter(|_| whole.start == 0),
            LogPosition::Commit(id) => parse_entries(&whole.bytes)
                .filter(|(_, line)| line.new == id)
                .last()
                .map(|(end, _)| end),
        };
        if let Some(end) = place {
            watch.last.clear();
            watch.read_bytes = whole.start + end as u64;
            watch.remember(&whole.bytes[..end]);
        }
        let moved = watch.new_commits(true);
        watch.head = head_commit(root);
        let here = |head: &String| NewCommits { head: head.clone(), commits: Vec::new() };
        let moved = moved.or_else(|| watch.head.as_ref().map(here));
        (watch, moved)
    }

    /// What is new. It costs next to nothing if nothing is, unless it is to be `thorough`: then a repository
    /// is found that was not there before, and one that keeps no such log is asked where it stands.
    pub fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        let found = !thorough || self.find_log();
        let size = |log: &PathBuf| std::fs::metadata(log).ok().map(|meta| meta.len());
        let size = self.log.as_ref().and_then(size);
        if thorough {
            let found = self.log.as_ref().filter(|_| size.is_some());
            self.is_missing = self.top.as_ref().is_some_and(|top| {
                // A log that is there is in a repository that is, unless it is elsewhere, as that of a linked work tree.
                !found.is_some_and(|log| log.starts_with(top)) && !has_repository(top)
            });
        }
        if !found {
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

    /// The repository that was there at the beginning and was not at the last thorough look.
    pub fn missing_repository(&self) -> Option<PathBuf> {
        self.top.as_ref().filter(|_| self.is_missing).map(|top| top.join(".git"))
    }

    /// The repository that is in the place of the one that was there at the beginning.
    pub fn replaced_repository(&self) -> Option<&Path> {
        let (own, _) = self.repository_dir.as_ref()?;
        (own.change() == DirChange::Replaced).then(|| own.path())
    }

    /// Looks for the log until there is one, and tells whether there is a repository at all.
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
        let goes_on = part.start + last == self.read_bytes && new.starts_with(&self.last);
        if goes_on {
            new = &new[self.last.len()..];
        } else {
            // Git forgets old lines now and then, and writes the file anew.
            part = read_from(log, 0)?;
            new = &part.bytes;
            let place = find_last(new, &self.last).map(|at| at + self.last.len());
            match place.and_then(|end| new.get(end..)) {
                Some(rest) => new = rest,
                // It is another repository than before, and all of it is new.
                None if new.iter().take_while(|byte| **byte == b'0').count() >= 40 => {}
                None => match self.head_offset(new) {
                    Some(place) => new = &new[place..],
                    // Somebody has emptied it. What follows is told by it again.
                    None => {
                        let end =
                            new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                        self.last.clear();
                        self.read_bytes = part.len - (new.len() - end) as u64;
                        let known = new[..end].to_vec();
                        self.remember(&known);
                        return Ok(self.commits_since_head());
                    }
                },
            }
        }
        // A line that is still being written is read when it is whole.
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let unread = new.len() - whole;
        let commits = parse_entries(&new[..whole]).filter_map(|(_, line)| line.commit()).collect();
        let (new, known) = (new[..whole].to_vec(), part.len - unread as u64);
        self.read_bytes = known;
        self.remember(&new);
        Ok(commits)
    }

    /// Where in the log what is new begins, by what was checked out before.
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

    /// All that is there now and was not where `HEAD` was before, as one.
    fn commits_since_head(&self) -> Vec<Commit> {
        let new = head_commit(&self.root).filter(|new| self.head.as_ref() != Some(new));
        let commit = new.zip(self.head.clone()).map(|(id, since)| Commit {
            id,
            subject: "all up to this one: git's own log of it was emptied".to_owned(),
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
    /// Where in the file it begins, and how long the file is.
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

fn find_last(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    bytes.windows(wanted.len()).rposition(|window| window == wanted)
}

/// A line of the log: `OLD NEW NAME <MAIL> SECONDS ZONE\tMESSAGE`.
#[derive(Debug)]
struct ReflogEntry<'a> {
    old: &'a str,
    new: &'a str,
    message: Cow<'a, str>,
}

/// The lines that can be read, and where each ends.
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
    /// The commit that was made or brought here by this move, if it was one that does.
    fn commit(&self) -> Option<Commit> {
        let message = self.message.as_ref();
        let (action, subject) = message.split_once(": ").unwrap_or((message, ""));
        let step = |names: &[&str]| names.iter().any(|name| action.contains(name));
        let rewrites = step(&["(amend)", "(squash)", "(fixup)", "(reword)"]);
        let makes = ["commit", "cherry-pick", "revert", "am"]
            .iter()
            .any(|name| action == *name || action.starts_with(&format!("{name} (")))
            || rewrites
            || step(&["(pick)", "(edit)", "(continue)", "(merge)"]);
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
            // The message is not the commit's, and there may be more of them.
            since: (brings && !makes).then(|| self.old.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests;
