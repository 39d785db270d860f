//! The runs of a project: a directory each, under `.ralph/runs`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use crate::core::event::{Entry, Event, Outcome};

use super::check_logs;
use super::journal;
use super::kept;
use super::within;

/// The name of a run: when it began, and something that tells apart two that began together. Names
/// sort by time, to the millisecond: which run is the last one, and which are the oldest, is told by
/// them.
pub fn new_id(now_ms: i64) -> String {
    use std::hash::{BuildHasher, Hasher};
    /// So many names fit into each millisecond of four hexadecimal digits.
    const NAMES: u64 = 0x1_0000 / 1000;
    let time = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let millisecond = u64::try_from(time.as_millisecond().rem_euclid(1000)).unwrap_or_default();
    // The standard library's hasher is seeded at random: enough for a name.
    let random = std::hash::RandomState::new().build_hasher().finish() % NAMES;
    let suffix = millisecond * NAMES + random;
    format!("{}-{suffix:04x}", time.strftime("%Y%m%d-%H%M%S"))
}

/// Whether a word is the name of a run.
pub fn is_id(name: &str) -> bool {
    let shape = |c: char| match c {
        '0'..='9' => '0',
        'a'..='f' => 'a',
        other => other,
    };
    name.len() == 20
        && name.char_indices().all(|(i, c)| match i {
            8 | 15 => c == '-',
            0..15 => shape(c) == '0',
            _ => matches!(shape(c), '0' | 'a'),
        })
}

/// One run on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    pub id: String,
    pub path: PathBuf,
}

impl RunDir {
    pub fn journal(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    pub fn raw(&self) -> PathBuf {
        self.path.join("raw.ndjson")
    }

    /// How much of its journal is whole lines; nothing of one that cannot be read. It only ever grows, so that two
    /// who find the same have found the same run.
    pub fn journal_size(&self) -> u64 {
        within::open_file(&self.journal())
            .and_then(|mut file| whole_lines(&mut file))
            .unwrap_or_default()
    }

    /// Makes its directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)
    }

    /// Something of it is known, or was. What was cut off before its first word is no run.
    pub fn has_begun(&self) -> bool {
        let tells = |meta: std::fs::Metadata| !meta.is_file() || meta.len() > 0;
        self.journal().symlink_metadata().is_ok_and(tells) || self.has_spent() || self.is_running()
    }

    /// What an agent printed is there, or what a guardrail did: there was a journal before that, and it told more.
    pub fn has_spent(&self) -> bool {
        let tells = |name: &str| name.ends_with(".ndjson") || check_logs::iteration(name).is_some();
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(tells))
    }

    /// Notes that there was something, where nothing else tells it any more.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(super) fn note_spent(&self) -> io::Result<()> {
        own(OpenOptions::new().append(true).create(true), &self.raw()).map(drop)
    }

    /// Nothing has become of it, and nobody is about to begin it.
    fn never_began(&self) -> bool {
        let is_old = |path: &Path| {
            let age = path.metadata().and_then(|meta| meta.modified()).ok();
            age.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > BEGINS_WITHIN)
        };
        !self.has_begun() && is_old(&self.path)
    }

    /// It has begun, and its journal does not end with the end of a run whose work is complete.
    fn is_left(&self) -> bool {
        if !self.has_begun() {
            return false;
        }
        let tail = self.tail().unwrap_or_default();
        let mut is_left = true;
        for entry in journal::entries(&tail[..]) {
            match entry.event {
                Event::RunStarted { .. } => is_left = true,
                Event::RunEnded { outcome, .. } => {
                    is_left = !matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
                }
                _ => {}
            }
        }
        is_left
    }

    /// The end of the run, if somebody was to be told of it and that is not known to have been done.
    pub fn untold_end(&self) -> Option<Entry<'static>> {
        let tail = self.tail().ok()?;
        // Most have none, which is soon found out.
        memchr::memmem::find(&tail, br#","notify":true"#)?;
        let mut untold = None;
        for entry in journal::entries(&tail[..]) {
            match entry.event {
                Event::RunEnded { notify: true, .. } => untold = Some(entry),
                Event::RunStarted { .. } | Event::RunEnded { .. } | Event::Notified { .. } => {
                    untold = None;
                }
                _ => {}
            }
        }
        untold
    }

    /// The end of the journal.
    fn tail(&self) -> io::Result<Vec<u8>> {
        let mut file = within::open_file(&self.journal())?;
        let size = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(size.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What the journal begins with.
    pub fn first_words(&self) -> FirstWords {
        const BEGINNING: &[u8] = br#"{"time":""#;
        let mut file = match within::open_file(&self.journal()) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return FirstWords::None,
            Err(_) => return FirstWords::Other,
        };
        let mut bytes = Vec::new();
        if (&mut file).take(LONGEST_TORN + 1).read_to_end(&mut bytes).is_err() {
            return FirstWords::Other;
        }
        let shorter = bytes.len().min(BEGINNING.len());
        if bytes.trim_ascii().is_empty() {
            FirstWords::None
        } else if bytes[..shorter] == BEGINNING[..shorter]
            && bytes.len() as u64 <= LONGEST_TORN
            && !bytes.contains(&b'\n')
            && !bytes.contains(&0)
        {
            FirstWords::Torn
        } else {
            FirstWords::Other
        }
    }

    /// Whether a process is writing this run's journal.
    pub fn is_running(&self) -> bool {
        // A file system without locks tells nothing, and has nothing to protect by them.
        let held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        within::open_file(&self.journal()).is_ok_and(held)
    }
}

/// A first line that is longer is not one that was just being written.
const LONGEST_TORN: u64 = 256 * 1024;

/// How much of a journal is looked at for its end.
const TAIL: u64 = 8 * 1024;

/// A run that has written nothing after so long never will.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

/// What a journal begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstWords {
    /// There is none, or nothing in it.
    None,
    /// The beginning of the first line, and nothing else: whoever wrote it was cut off there.
    Torn,
    /// Lines, or something that cannot be read.
    Other,
}

/// All runs, the oldest first.
pub fn list(runs_dir: &Path) -> io::Result<Vec<RunDir>> {
    let mut runs = Vec::new();
    let entries = match std::fs::read_dir(runs_dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(runs),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().filter(|name| is_id(name)) {
            runs.push(RunDir { id: id.to_owned(), path: entry.path() });
        }
    }
    runs.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    Ok(runs)
}

/// Removes the oldest runs beyond `keep`, but none that is being written, not the one to `spare`, and not the last
/// one that somebody may want to go on with. What was cut off before it began goes, too.
pub fn prune(runs_dir: &Path, keep: usize, spare: Option<&str>) -> io::Result<()> {
    let is_spared = |run: &RunDir| spare == Some(run.id.as_str());
    let (mut runs, never): (Vec<RunDir>, Vec<RunDir>) =
        list(runs_dir)?.into_iter().partition(|run| is_spared(run) || !run.never_began());
    let newer = runs.split_off(runs.len().saturating_sub(keep));
    if let Some(last) = runs.iter().rposition(RunDir::is_left)
        && !newer.iter().any(|run| run.is_left() && !run.is_running())
    {
        runs.remove(last);
    }
    for run in runs.iter().chain(&never) {
        if !is_spared(run) && !run.is_running() {
            // One that cannot be removed must not keep the others.
            let _ = remove(run);
        }
    }
    Ok(())
}

/// Removes a run, with the links to its logs, or the file that has its name.
pub fn remove(run: &RunDir) -> io::Result<()> {
    if let Some(links) = run.path.parent().and_then(Path::parent) {
        for log in run.path.read_dir().into_iter().flatten().flatten() {
            if log.file_name().to_str().is_some_and(|name| check_logs::iteration(name).is_some()) {
                check_logs::remove(&log.path(), links);
            }
        }
    }
    std::fs::remove_dir_all(&run.path).or_else(|_| std::fs::remove_file(&run.path))
}

/// The files that a run writes.
#[derive(Debug)]
pub struct RunFiles {
    pub dir: RunDir,
    journal: File,
    journal_size: u64,
    /// What was half written when the run was left.
    torn: u64,
    raw: Raw,
    /// Room on the disk for the last words.
    reserve: Option<File>,
    second: Option<SecondName>,
}

/// Free at once, as a [`super::lock::Lock`] is.
impl Drop for RunFiles {
    fn drop(&mut self) {
        let begun = self.second.as_ref().and_then(|second| second.begun.as_ref());
        for file in std::iter::once(&self.journal).chain(begun) {
            let _ = file.unlock();
        }
    }
}

/// The name of a journal where no agent removes it.
#[derive(Debug)]
struct SecondName {
    path: PathBuf,
    /// It has that name; otherwise it would, were it on the same file system.
    is_linked: bool,
    /// There it is noted that it has begun, at least.
    begun: Option<File>,
}

impl RunFiles {
    /// Makes the files of a new run. `max_raw` is how many bytes of the agent's output are kept.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn create(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        dir.make()?;
        let journal = new_journal(&dir.journal())?;
        let raw = Raw { path: dir.raw(), file: None, size: 0, max_file: max_raw / 2 };
        let reserve = set_aside(&dir.path);
        Ok(RunFiles { dir, journal, journal_size: 0, torn: 0, raw, reserve, second: None })
    }

    /// Goes on with the files of a run that was left. What was half written is cut off.
    ///
    /// # Errors
    /// The journal is not there, or cannot be written.
    pub fn reopen(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        let journal = own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        hold(&journal);
        RunFiles::go_on(dir, journal, max_raw)
    }

    /// The same for a word that is added to a run that is over.
    ///
    /// # Errors
    /// As above, or somebody is at work on it, with `WouldBlock`.
    pub fn reopen_if_free(dir: RunDir) -> io::Result<RunFiles> {
        let journal = own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        match journal.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks.
            Ok(()) | Err(TryLockError::Error(_)) => RunFiles::go_on(dir, journal, 0),
        }
    }

    fn go_on(dir: RunDir, mut journal: File, max_raw: u64) -> io::Result<RunFiles> {
        let journal_size = whole_lines(&mut journal)?;
        let metadata = journal.metadata()?;
        let torn = metadata.len().saturating_sub(journal_size);
        if torn > 0 {
            journal.set_len(journal_size)?;
            // When the run was last there is told by this, too, should nothing more come of this start.
            let _ = metadata.modified().and_then(|time| journal.set_modified(time));
        }
        let size = dir.raw().metadata().map_or(0, |meta| meta.len());
        let raw = Raw { path: dir.raw(), file: None, size, max_file: max_raw / 2 };
        let reserve = set_aside(&dir.path);
        Ok(RunFiles { dir, journal, journal_size, torn, raw, reserve, second: None })
    }

    /// Gives the journal this name, too, as long as the run goes on. On another file system it cannot have one there.
    pub fn keep_also_at(&mut self, path: PathBuf) {
        // Where nobody counts names, nobody can tell that one was lost.
        let are_counted = || self.journal.metadata().is_ok_and(|meta| meta.nlink() > 1);
        let is_linked = kept::link(&self.dir.journal(), &path).is_ok() && are_counted();
        let begun = self.second.take().and_then(|second| second.begun);
        self.second = Some(SecondName { path, is_linked, begun });
    }

    /// Ends with the files: a journal that is in its place needs no other name, and one that is not is not lost.
    ///
    /// # Errors
    /// The journal cannot be kept.
    pub fn close(mut self) -> io::Result<()> {
        // The last word of a run is worth waiting for the disk.
        let _ = self.sync();
        let is_in_place = is_still_at(&self.journal, &self.dir.journal());
        let Some(SecondName { path, is_linked, begun }) = self.second.take() else { return Ok(()) };
        if is_in_place {
            kept::remove(&path);
        } else if !is_linked {
            kept::save(&mut self.journal, &path)?;
        }
        if begun.is_some() {
            kept::remove(&kept::begun(&path));
        }
        Ok(())
    }

    /// As it is where the second name would be on another file system.
    #[cfg(test)]
    pub(super) fn without_a_link(mut self) -> Self {
        if let Some(second) = &mut self.second {
            second.is_linked = false;
        }
        self
    }

    /// Where the journal has its second name, if it still has.
    fn linked_at(&self) -> Option<PathBuf> {
        let second = self.second.as_ref().filter(|second| second.is_linked)?;
        is_still_at(&self.journal, &second.path).then(|| second.path.clone())
    }

    /// How much the journal holds.
    pub fn journal_size(&self) -> u64 {
        self.journal_size
    }

    /// How much was half written when the run was left.
    pub fn torn_bytes(&self) -> u64 {
        self.torn
    }

    /// Puts the journal back where it was if an agent or a guardrail has removed it (`git clean -fdx`
    /// does), and tells whether it had to. A file that has its name by now is a copy of what it held before
    /// (`git stash pop`), or nothing to go by.
    ///
    /// # Errors
    /// It cannot be put back, or what has its name is no file.
    pub fn restore(&mut self) -> io::Result<bool> {
        let path = self.dir.journal();
        if is_still_at(&self.journal, &path) {
            return Ok(false);
        }
        std::fs::create_dir_all(&self.dir.path)?;
        if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            std::fs::remove_file(&path)?;
        }
        match self.linked_at() {
            Some(second) if std::fs::hard_link(&second, &path).is_ok() => self.begin_raw_anew(),
            _ => {
                let root = self.dir.path.clone();
                self.copy_to(&root)?;
            }
        }
        Ok(true)
    }

    /// Whether the journal has lost a name: it may be that in the project. Asked after every write, so that it has to cost nothing; one that
    /// was moved is found by [`RunFiles::restore`].
    pub fn is_removed(&self) -> bool {
        let names = 1 + u64::from(self.second.as_ref().is_some_and(|second| second.is_linked));
        self.journal.metadata().is_ok_and(|meta| meta.nlink() < names)
    }

    /// Puts the journal back while an agent is at work in `root`, who may put a link there at any moment, and tells
    /// whether it had to.
    ///
    /// # Errors
    /// It cannot be put back, or something else has its name.
    pub fn put_back_beside_agent(&mut self, root: &Path) -> io::Result<bool> {
        let path = self.dir.journal();
        if is_still_at(&self.journal, &path) {
            // It is the other name that it has lost.
            self.name_again();
            return Ok(false);
        }
        match self.linked_at() {
            // That takes no room, and is there at once. Where it does not succeed, the other name is there still.
            Some(second) => {
                within::make_link(root, &path, &second)?;
                self.begin_raw_anew();
            }
            None => self.copy_to(root)?,
        }
        Ok(true)
    }

    /// Goes on in a copy of the journal, which has its name, in `root`, only once it is whole.
    fn copy_to(&mut self, root: &Path) -> io::Result<()> {
        let journal = &mut self.journal;
        let copy = within::make_filled(root, &self.dir.journal(), |copy| {
            journal.rewind()?;
            io::copy(journal, copy)?;
            rustix::fs::fcntl_setfl(&*copy, rustix::fs::OFlags::APPEND)?;
            hold(copy);
            Ok(())
        })?;
        self.journal = copy;
        self.begin_raw_anew();
        self.name_again();
        Ok(())
    }

    fn name_again(&mut self) {
        if let Some(path) = self.second.as_ref().map(|second| second.path.clone()) {
            self.keep_also_at(path);
        }
    }

    /// The newest of the agent's bytes go to a new file; the older ones are gone.
    fn begin_raw_anew(&mut self) {
        self.raw.file = None;
        self.raw.size = 0;
    }

    /// Adds whole lines. If they do not all fit, none of them is kept: what is written later, once
    /// there is room again, must not become part of a torn line.
    pub fn append_journal(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.journal.write_all(lines);
        match &written {
            Ok(()) => {
                self.journal_size += lines.len() as u64;
                if let Some(second) = &mut self.second
                    && !second.is_linked
                    && second.begun.is_none()
                {
                    second.begun = kept::note_begun(&second.path, lines).ok();
                }
            }
            Err(_) => self.journal.set_len(self.journal_size)?,
        }
        written
    }

    /// Gives up what was set aside for the last words, on a disk that is full; says whether there was anything.
    pub fn make_room(&mut self) -> bool {
        self.reserve.take().is_some()
    }

    pub fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw.append(bytes)
    }

    /// Waits until the journal is safe from a power cut.
    pub fn sync(&self) -> io::Result<()> {
        self.journal.sync_data()
    }

    /// A second handle of the journal, for a thread that syncs it.
    pub fn journal_handle(&self) -> io::Result<File> {
        self.journal.try_clone()
    }
}

/// What is set aside for the last words of a run: why it ended, and what it had used.
const RESERVE: u64 = 64 * 1024;

/// A file without a name that takes up room, until it is closed or this process is gone. A file system that cannot
/// promise room, or has none, goes without.
fn set_aside(directory: &Path) -> Option<File> {
    let path = directory.join("reserve");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE).ok()?;
    Some(file)
}

/// Opens a file that is there, and is no link or pipe that an agent has put in its place.
fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// How much of a file is whole lines.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = [0; 8192];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let length = usize::try_from(end - start).unwrap_or(block.len());
        file.seek(io::SeekFrom::Start(start))?;
        file.read_exact(&mut block[..length])?;
        if let Some(newline) = memchr::memrchr(b'\n', &block[..length]) {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Whether a file that is open still has this name.
pub(super) fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => identity(&ours) == identity(&there),
        _ => false,
    }
}

fn new_journal(path: &Path) -> io::Result<File> {
    let journal = OpenOptions::new().read(true).append(true).create_new(true).open(path)?;
    hold(&journal);
    Ok(journal)
}

/// Others tell by this lock that the run is going on. The journal is new, so that whoever has it locked
/// is only looking whether it is, and done in an instant. A file system without locks is no reason not
/// to run.
fn hold(journal: &File) {
    let _ = journal.lock();
}

/// The agent's bytes as they came, the newest of them: when one file is half of what is allowed, it is
/// set aside and takes the place of the one that was set aside before.
#[derive(Debug)]
struct Raw {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    max_file: u64,
}

impl Raw {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.max_file == 0 {
            return Ok(());
        }
        if self.size >= self.max_file && self.file.take().is_some() {
            std::fs::rename(&self.path, self.path.with_extension("1.ndjson"))?;
            self.size = 0;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(own(OpenOptions::new().append(true).create(true), &self.path)?),
        };
        file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(runs_dir: &Path, id: &str) -> RunDir {
        RunDir { id: id.to_owned(), path: runs_dir.join(id) }
    }

    #[test]
    fn a_run_goes_on_after_its_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path(), &new_id(0));
        let mut files = RunFiles::create(run.clone(), 100).unwrap();
        files.append_journal(b"one\n").unwrap();
        files.append_journal(b"two").unwrap();
        drop(files);
        let mut files = RunFiles::reopen(run.clone(), 100).unwrap();
        assert_eq!(files.torn_bytes(), 3);
        files.append_journal(b"three\n").unwrap();
        assert_eq!(std::fs::read(run.journal()).unwrap(), b"one\nthree\n");
    }

    #[test]
    fn names_sort_by_the_millisecond_in_which_a_run_began() {
        for ms in [1_794_776_088_194, 1_794_776_088_998, 1_794_776_088_999] {
            let (this, next) = (new_id(ms), new_id(ms + 1));
            assert!(is_id(&this) && this < next, "{this} {next}");
        }
    }

    #[test]
    fn ids_sort_by_time_and_are_told_from_other_names() {
        let id = new_id(1_794_774_472_123);
        assert!(id.starts_with("20261115-202752-"), "{id}");
        assert!(is_id(&id));
        for other in ["", "20261115-202752", "20261115-202752-xyz1", "notes", ".."] {
            assert!(!is_id(other), "{other}");
        }
    }

    #[test]
    fn pruning_leaves_the_newest_the_running_and_the_spared() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..5).map(|n| new_id(1_000_000 * n)).collect();
        let mut files: Vec<RunFiles> =
            ids.iter().map(|id| RunFiles::create(run(dir.path(), id), 1000).unwrap()).collect();
        files.truncate(1);
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        prune(dir.path(), 2, Some(&ids[2])).unwrap();
        let left: Vec<String> = list(dir.path()).unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(left, [&ids[0], &ids[2], &ids[3], &ids[4]].map(Clone::clone));
        assert!(dir.path().join("mine").exists());
    }

    #[test]
    fn pruning_leaves_the_last_run_that_can_go_on_and_nothing_that_never_began() {
        let dir = tempfile::tempdir().unwrap();
        let ids: Vec<String> = (0..6).map(|n| new_id(1_000_000 * n)).collect();
        let started = r#"{"time":"2026-11-15T20:00:00.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"/p","pid":1,"agent":"a","prompt":"","completion":"","max_iterations":5}"#;
        let ended = |outcome: &str| {
            format!(
                r#"{{"time":"2026-11-15T20:10:00.000Z","iteration":0,"attempt":0,"event":"run_ended","outcome":"{outcome}","exit_code":0,"message":"","iterations":1,"duration_ms":1,"usage":{{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}},"tools":0,"tool_errors":0}}"#
            )
        };
        let write = |id: &str, lines: &[&str]| {
            let run = run(dir.path(), id);
            run.make().unwrap();
            std::fs::write(run.journal(), lines.join("\n") + "\n").unwrap();
        };
        let (complete, interrupted) = (ended("complete"), ended("interrupted"));
        write(&ids[0], &[started]);
        write(&ids[1], &[started, &complete, started, &interrupted]);
        for id in &ids[2..5] {
            write(id, &[started, &interrupted, started, &complete]);
        }
        let never = run(dir.path(), &ids[5]);
        never.make().unwrap();
        let left =
            || -> Vec<String> { list(dir.path()).unwrap().into_iter().map(|run| run.id).collect() };
        // It may be about to begin.
        prune(dir.path(), 5, None).unwrap();
        assert_eq!(left(), ids[1..]);
        let old = std::time::SystemTime::now() - 2 * BEGINS_WITHIN;
        File::open(&never.path).unwrap().set_modified(old).unwrap();
        prune(dir.path(), 2, None).unwrap();
        assert_eq!(left(), [&ids[1], &ids[3], &ids[4]].map(Clone::clone));
        write(&ids[5], &[started]);
        prune(dir.path(), 2, None).unwrap();
        assert_eq!(left(), ids[4..]);
    }

    #[test]
    fn somebody_who_looks_at_a_new_journal_does_not_keep_its_lock_from_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: String::new(), path: dir.path().to_owned() };
        let journal = File::create_new(run.journal()).unwrap();
        let prober = File::open(run.journal()).unwrap();
        prober.lock_shared().unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            hold(&journal);
            done.send(()).unwrap();
            journal
        });
        // Whoever does not wait for the lock is done by then; who does waits for what comes next.
        let _ = is_done.recv_timeout(std::time::Duration::from_millis(100));
        prober.unlock().unwrap();
        let _journal = holder.join().unwrap();
        assert!(run.is_running());
    }

    #[test]
    fn a_journal_that_was_removed_is_put_back_with_all_that_it_held() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = RunFiles::create(run(dir.path(), &new_id(0)), 100).unwrap();
        files.append_journal(b"one\n").unwrap();
        assert!(!files.restore().unwrap());
        std::fs::remove_dir_all(&files.dir.path).unwrap();
        files.append_journal(b"two\n").unwrap();
        files.append_raw(b"raw").unwrap_err();
        assert!(files.restore().unwrap());
        files.append_journal(b"three\n").unwrap();
        files.append_raw(b"raw").unwrap();
        assert_eq!(std::fs::read(files.dir.journal()).unwrap(), b"one\ntwo\nthree\n");
        assert!(files.dir.is_running(), "the lock moves along");
        // What somebody has put in its place is not the journal.
        std::fs::rename(files.dir.journal(), dir.path().join("moved")).unwrap();
        std::fs::write(files.dir.journal(), "one\n").unwrap();
        assert!(files.restore().unwrap());
        assert_eq!(std::fs::read(files.dir.journal()).unwrap(), b"one\ntwo\nthree\n");
        std::fs::remove_file(files.dir.journal()).unwrap();
        std::fs::create_dir(files.dir.journal()).unwrap();
        files.restore().unwrap_err();
    }

    #[test]
    fn a_journal_is_put_back_beside_an_agent_and_not_by_way_of_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let mut files = RunFiles::create(run(&root.join("runs"), &new_id(0)), 100).unwrap();
        files.append_journal(b"one\n").unwrap();
        assert!(!files.is_removed());
        std::fs::remove_dir_all(root.join("runs")).unwrap();
        files.append_journal(b"two\n").unwrap();
        assert!(files.is_removed());
        std::os::unix::fs::symlink(dir.path(), root.join("runs")).unwrap();
        files.put_back_beside_agent(&root).unwrap_err();
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        std::fs::remove_file(root.join("runs")).unwrap();
        files.put_back_beside_agent(&root).unwrap();
        files.journal.rewind().unwrap();
        files.append_journal(b"three\n").unwrap();
        files.append_raw(b"raw").unwrap();
        assert_eq!(std::fs::read(files.dir.journal()).unwrap(), b"one\ntwo\nthree\n");
        assert!(!files.is_removed() && !files.restore().unwrap() && files.dir.is_running());
    }

    #[test]
    fn the_newest_output_is_kept_within_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = RunFiles::create(run(dir.path(), &new_id(0)), 100).unwrap();
        for n in 0..100 {
            files.append_raw(format!("line {n:03}\n").as_bytes()).unwrap();
        }
        let raw = std::fs::read_to_string(files.dir.raw()).unwrap();
        let before = std::fs::read_to_string(files.dir.raw().with_extension("1.ndjson")).unwrap();
        assert!(raw.len() + before.len() <= 120, "{} + {}", raw.len(), before.len());
        assert!(raw.ends_with("line 099\n"));
        assert_eq!(before.lines().count() * 9, before.len(), "whole lines in a row");
    }
}
