//! The files of a run, and the restoration of a removed journal.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::journal_copies;
use super::private_files;
use super::runs::RunDir;
use super::safe_fs::{self, is_same_file};
use ralph_events::journal;

#[derive(Debug)]
pub struct RunFiles {
    pub dir: RunDir,
    journal: File,
    journal_size: u64,
    /// Size of the partial line that a killed run left.
    truncated_bytes: u64,
    raw: RawLog,
    /// Disk space for the last events.
    reserve: Option<File>,
    second: Option<SecondName>,
}

/// Unlocks explicitly, as [`super::lock::Lock`] does.
impl Drop for RunFiles {
    fn drop(&mut self) {
        let begun = self.second.as_ref().and_then(|second| second.begun.as_ref());
        for file in std::iter::once(&self.journal).chain(begun) {
            let _ = file.unlock();
        }
    }
}

/// The hard link to a journal outside the project.
#[derive(Debug)]
struct SecondName {
    path: PathBuf,
    /// False if `path` is on another file system.
    is_linked: bool,
    /// The start of the run, recorded where no link is possible.
    begun: Option<File>,
}

impl RunFiles {
    /// `max_raw` limits the agent output that is kept.
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

    /// Cuts off a partial last line. Fails if there is no journal.
    pub fn reopen(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        let journal =
            safe_fs::open_own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        private_files::restrict_file_access(&journal);
        private_files::restrict_access(&dir.raw());
        lock_journal(&journal);
        RunFiles::reopen_journal(dir, journal, max_raw)
    }

    /// Reopens a finished run to add an event. Fails with `WouldBlock` if it is in use.
    pub fn reopen_if_free(dir: RunDir) -> io::Result<RunFiles> {
        let journal =
            safe_fs::open_own(OpenOptions::new().read(true).append(true), &dir.journal())?;
        match journal.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // No locks on this file system.
            Ok(()) | Err(TryLockError::Error(_)) => RunFiles::reopen_journal(dir, journal, 0),
        }
    }

    fn reopen_journal(dir: RunDir, mut journal: File, max_raw: u64) -> io::Result<RunFiles> {
        let journal_size = journal::complete_lines_len(&mut journal)?;
        let metadata = journal.metadata()?;
        let torn = metadata.len().saturating_sub(journal_size);
        if torn > 0 {
            journal.set_len(journal_size)?;
            // The time tells when the run was last alive.
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

    /// Links the journal to `path` while the run lasts, if that is on the same file system.
    pub fn keep_also_at(&mut self, path: PathBuf) {
        // Some file systems do not count links, so a lost one would go unnoticed.
        let has_two_links = || self.journal.metadata().is_ok_and(|meta| meta.nlink() > 1);
        let is_linked = journal_copies::link(&self.dir.journal(), &path).is_ok() && has_two_links();
        let begun = self.second.take().and_then(|second| second.begun);
        self.second = Some(SecondName { path, is_linked, begun });
    }

    /// Removes the second name if the journal is in place, else makes sure that a copy survives.
    pub fn close(mut self) -> io::Result<()> {
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

    /// As on another file system.
    #[cfg(test)]
    pub(super) fn without_link(mut self) -> Self {
        if let Some(second) = &mut self.second {
            second.is_linked = false;
        }
        self
    }

    fn linked_at(&self) -> Option<PathBuf> {
        let second = self.second.as_ref().filter(|second| second.is_linked)?;
        is_same_file(&self.journal, &second.path).then(|| second.path.clone())
    }

    pub fn journal_size(&self) -> u64 {
        self.journal_size
    }

    pub fn truncated_bytes(&self) -> u64 {
        self.truncated_bytes
    }

    pub fn is_in_place(&self) -> bool {
        is_same_file(&self.journal, &self.dir.journal())
    }

    /// Restores a removed journal (`git clean -fdx`), also if an older copy has its name
    /// (`git stash pop`). Returns whether it was gone.
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

    /// Where the journal is kept if it cannot be restored.
    pub fn kept_at(&self) -> Option<&Path> {
        self.second.as_ref().map(|second| second.path.as_path())
    }

    pub fn read_journal(&self) -> io::Result<File> {
        safe_fs::open_file(&self.dir.journal()).or_else(|err| match self.linked_at() {
            Some(second) => safe_fs::open_file(&second),
            None => Err(err),
        })
    }

    /// Whether the journal lost a link. Called after every write, so it must be cheap. A moved
    /// journal is found by [`RunFiles::restore`].
    pub fn is_removed(&self) -> bool {
        let expected_links =
            1 + u64::from(self.second.as_ref().is_some_and(|second| second.is_linked));
        self.journal.metadata().is_ok_and(|meta| meta.nlink() < expected_links)
    }

    /// Like [`restore`](RunFiles::restore), while an agent in `root` may create links.
    pub fn put_back_beside_agent(&mut self, root: &Path) -> io::Result<bool> {
        let path = self.dir.journal();
        if self.is_in_place() {
            // Only the second name is lost.
            self.relink();
            return Ok(false);
        }
        match self.linked_at() {
            // A link needs no space and is atomic. If it fails, the second name remains.
            Some(second) => {
                safe_fs::make_link(root, &path, &second)?;
                self.rotate_raw();
            }
            None => self.copy_to(root)?,
        }
        Ok(true)
    }

    /// Continues in a copy, which gets the name when complete.
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
        self.relink();
        Ok(())
    }

    fn relink(&mut self) {
        if let Some(path) = self.second.as_ref().map(|second| second.path.clone()) {
            self.keep_also_at(path);
        }
    }

    /// Starts a new raw log; the old one is gone.
    fn rotate_raw(&mut self) {
        self.raw.file = None;
        self.raw.size = 0;
    }

    /// Appends complete lines, all or none: a torn line would corrupt the one written after it.
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

    /// Returns whether there was a reserve.
    pub fn release_reserve(&mut self) -> bool {
        self.reserve.take().is_some()
    }

    pub fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw.append(bytes)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.journal.sync_data()
    }

    /// For the thread that syncs it.
    pub fn journal_handle(&self) -> io::Result<File> {
        self.journal.try_clone()
    }
}

/// For the end of a run: its reason and usage.
const RESERVE: u64 = 64 * 1024;

/// An unnamed file that holds disk space until closed. `None` if the file system cannot.
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

/// Marks the run as active. Only waits for brief lock tests of readers.
fn lock_journal(journal: &File) {
    let _ = journal.lock();
}

/// The newest agent output. At half of the limit, the file is renamed over the previous one.
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
        // Time for an attempt that does not wait.
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
