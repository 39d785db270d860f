//! The files that a run writes, and how its journal outlives whoever removes it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::journal_copies;
use super::private_files;
use super::runs::RunDir;
use super::safe_fs::{self, is_same_file};
use ralph_events::journal;

/// The files that a run writes.
#[derive(Debug)]
pub struct RunFiles {
    pub dir: RunDir,
    journal: File,
    journal_size: u64,
    /// What was half written when the run was left.
    truncated_bytes: u64,
    raw: RawLog,
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
        dir.create()?;
        let journal = new_journal(&dir.journal())?;
        let raw = RawLog { path: dir.raw(), file: None, size: 0, max_file: max_raw / 2 };
        let reserve = allocate_reserve(&dir.path);
        Ok(RunFiles {
            dir,
            journal,
            journal_size: 0,
            truncated_bytes: 0,
            raw,
            reserve,
            second: None,
        })
    }

    /// Goes on with the files of a run that was left. What was half written is cut off.
    ///
    /// # Errors
    /// The journal is not there, or cannot be written.
    pub fn reopen(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        let journal =
            safe_fs::open_own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        private_files::restrict_file_access(&journal);
        private_files::restrict_access(&dir.raw());
        lock_journal(&journal);
        RunFiles::reopen_journal(dir, journal, max_raw)
    }

    /// The same for a word that is added to a run that is over.
    ///
    /// # Errors
    /// As above, or somebody is at work on it, with `WouldBlock`.
    pub fn reopen_if_free(dir: RunDir) -> io::Result<RunFiles> {
        let journal =
            safe_fs::open_own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        match journal.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks.
            Ok(()) | Err(TryLockError::Error(_)) => RunFiles::reopen_journal(dir, journal, 0),
        }
    }

    fn reopen_journal(dir: RunDir, mut journal: File, max_raw: u64) -> io::Result<RunFiles> {
        let journal_size = journal::complete_lines_len(&mut journal)?;
        let metadata = journal.metadata()?;
        let torn = metadata.len().saturating_sub(journal_size);
        if torn > 0 {
            journal.set_len(journal_size)?;
            // When the run was last there is told by this, too, should nothing more come of this start.
            let _ = metadata.modified().and_then(|time| journal.set_modified(time));
        }
        let size = dir.raw().metadata().map_or(0, |meta| meta.len());
        let raw = RawLog { path: dir.raw(), file: None, size, max_file: max_raw / 2 };
        let reserve = allocate_reserve(&dir.path);
        Ok(RunFiles {
            dir,
            journal,
            journal_size,
            truncated_bytes: torn,
            raw,
            reserve,
            second: None,
        })
    }

    /// Gives the journal this name, too, as long as the run goes on. On another file system it cannot have one there.
    pub fn keep_also_at(&mut self, path: PathBuf) {
        // Where nobody counts names, nobody can tell that one was lost.
        let are_counted = || self.journal.metadata().is_ok_and(|meta| meta.nlink() > 1);
        let is_linked = journal_copies::link(&self.dir.journal(), &path).is_ok() && are_counted();
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
        let is_in_place = self.is_in_place();
        let Some(SecondName { path, is_linked, begun }) = self.second.take() else { return Ok(()) };
        if is_in_place {
            journal_copies::remove(&path);
        } else if !is_linked {
            journal_copies::save(&mut self.journal, &path)?;
        }
        if begun.is_some() {
            journal_copies::remove(&journal_copies::begun(&path));
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
        is_same_file(&self.journal, &second.path).then(|| second.path.clone())
    }

    /// How much the journal holds.
    pub fn journal_size(&self) -> u64 {
        self.journal_size
    }

    /// How much was half written when the run was left.
    pub fn truncated_bytes(&self) -> u64 {
        self.truncated_bytes
    }

    /// Whether the journal is where it belongs.
    pub fn is_in_place(&self) -> bool {
        is_same_file(&self.journal, &self.dir.journal())
    }

    /// Puts the journal back where it was if an agent or a guardrail has removed it (`git clean -fdx`
    /// does), and tells whether it had to. A file that has its name by now is a copy of what it held before
    /// (`git stash pop`), or nothing to go by.
    ///
    /// # Errors
    /// It cannot be put back, or what has its name is no file.
    pub fn restore(&mut self) -> io::Result<bool> {
        let path = self.dir.journal();
        if self.is_in_place() {
            return Ok(false);
        }
        private_files::create_in_project(&self.dir.path)?;
        if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            std::fs::remove_file(&path)?;
        }
        match self.linked_at() {
            Some(second) if std::fs::hard_link(&second, &path).is_ok() => self.rotate_raw(),
            _ => {
                let root = self.dir.path.clone();
                self.copy_to(&root)?;
            }
        }
        Ok(true)
    }

    /// Where the journal is kept if it cannot be put back.
    pub fn kept_at(&self) -> Option<&Path> {
        self.second.as_ref().map(|second| second.path.as_path())
    }

    /// The journal to read from its beginning, wherever it is by now.
    ///
    /// # Errors
    /// What the file system said.
    pub fn read_journal(&self) -> io::Result<File> {
        safe_fs::open_file(&self.dir.journal()).or_else(|err| match self.linked_at() {
            Some(second) => safe_fs::open_file(&second),
            None => Err(err),
        })
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
        if self.is_in_place() {
            // It is the other name that it has lost.
            self.name_again();
            return Ok(false);
        }
        match self.linked_at() {
            // That takes no room, and is there at once. Where it does not succeed, the other name is there still.
            Some(second) => {
                safe_fs::make_link(root, &path, &second)?;
                self.rotate_raw();
            }
            None => self.copy_to(root)?,
        }
        Ok(true)
    }

    /// Goes on in a copy of the journal, which has its name, in `root`, only once it is whole.
    fn copy_to(&mut self, root: &Path) -> io::Result<()> {
        let journal = &mut self.journal;
        let copy = safe_fs::make_filled(root, &self.dir.journal(), |copy| {
            journal.rewind()?;
            io::copy(journal, copy)?;
            rustix::fs::fcntl_setfl(&*copy, rustix::fs::OFlags::APPEND)?;
            lock_journal(copy);
            Ok(())
        })?;
        self.journal = copy;
        self.rotate_raw();
        self.name_again();
        Ok(())
    }

    fn name_again(&mut self) {
        if let Some(path) = self.second.as_ref().map(|second| second.path.clone()) {
            self.keep_also_at(path);
        }
    }

    /// The newest of the agent's bytes go to a new file; the older ones are gone.
    fn rotate_raw(&mut self) {
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
                    second.begun = journal_copies::note_begun(&second.path, lines).ok();
                }
            }
            Err(_) => self.journal.set_len(self.journal_size)?,
        }
        written
    }

    /// Gives up what was set aside for the last words, on a disk that is full; says whether there was anything.
    pub fn release_reserve(&mut self) -> bool {
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
fn allocate_reserve(directory: &Path) -> Option<File> {
    let path = directory.join("reserve");
    let file =
        private_files::private_open_options().write(true).create_new(true).open(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RESERVE).ok()?;
    Some(file)
}

fn new_journal(path: &Path) -> io::Result<File> {
    let journal = private_files::private_open_options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(path)?;
    lock_journal(&journal);
    Ok(journal)
}

/// Others tell by this lock that the run is going on. The journal is new, so that whoever has it locked
/// is only looking whether it is, and done in an instant. A file system without locks is no reason not
/// to run.
fn lock_journal(journal: &File) {
    let _ = journal.lock();
}

/// The agent's bytes as they came, the newest of them: when one file is half of what is allowed, it is
/// set aside and takes the place of the one that was set aside before.
#[derive(Debug)]
struct RawLog {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    max_file: u64,
}

impl RawLog {
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
            none => none.insert(safe_fs::open_own(
                private_files::private_open_options().append(true).create(true),
                &self.path,
            )?),
        };
        file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs::new_id;
    use super::*;

    fn run(runs_dir: &Path, id: &str) -> RunDir {
        RunDir { id: id.to_owned(), path: runs_dir.join(id) }
    }

    #[test]
    fn reopened_journal_continues_after_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path(), &new_id(0));
        let mut files = RunFiles::create(run.clone(), 100).unwrap();
        files.append_journal(b"one\n").unwrap();
        files.append_journal(b"two").unwrap();
        drop(files);
        let mut files = RunFiles::reopen(run.clone(), 100).unwrap();
        assert_eq!(files.truncated_bytes(), 3);
        files.append_journal(b"three\n").unwrap();
        assert_eq!(std::fs::read(run.journal()).unwrap(), b"one\nthree\n");
    }

    #[test]
    fn journal_probe_does_not_take_lock_from_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir { id: String::new(), path: dir.path().to_owned() };
        let journal = File::create_new(run.journal()).unwrap();
        let prober = File::open(run.journal()).unwrap();
        prober.lock_shared().unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            lock_journal(&journal);
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
    fn removed_journal_is_restored_completely() {
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
    fn journal_restore_beside_agent_does_not_follow_links() {
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
    fn newest_raw_output_is_kept_within_limit() {
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
