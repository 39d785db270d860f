//! The open files of a run: journal and raw agent output.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::private_files;
use super::runs::RunDir;
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
}

/// Unlocks explicitly, as [`super::lock::Lock`] does.
impl Drop for RunFiles {
    fn drop(&mut self) {
        let _ = self.journal.unlock();
    }
}

impl RunFiles {
    /// `max_raw` limits the agent output that is kept.
    pub fn create(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        dir.create()?;
        let mut options = private_files::private_open_options();
        let journal = options.read(true).append(true).create_new(true).open(dir.journal())?;
        lock_journal(&journal);
        let raw = RawLog { path: dir.raw(), file: None, size: 0, max_file: max_raw / 2 };
        let reserve = allocate_reserve(&dir.path);
        Ok(RunFiles { dir, journal, journal_size: 0, truncated_bytes: 0, raw, reserve })
    }

    /// Cuts off a partial last line. Fails if there is no journal.
    pub fn reopen(dir: RunDir, max_raw: u64) -> io::Result<RunFiles> {
        let journal = OpenOptions::new().read(true).append(true).open(dir.journal())?;
        private_files::restrict_file_access(&journal);
        private_files::restrict_access(&dir.raw());
        lock_journal(&journal);
        RunFiles::reopen_journal(dir, journal, max_raw)
    }

    /// Reopens a finished run to add an event. Fails with `WouldBlock` if it is in use.
    pub fn reopen_if_free(dir: RunDir) -> io::Result<RunFiles> {
        let journal = OpenOptions::new().read(true).append(true).open(dir.journal())?;
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
        Ok(RunFiles { dir, journal, journal_size, truncated_bytes: torn, raw, reserve })
    }

    pub fn journal_size(&self) -> u64 {
        self.journal_size
    }

    pub fn truncated_bytes(&self) -> u64 {
        self.truncated_bytes
    }

    pub fn read_journal(&self) -> io::Result<File> {
        File::open(self.dir.journal())
    }

    /// Whether an agent without a sandbox, or the user, removed the journal.
    pub fn is_removed(&self) -> bool {
        self.journal.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Appends complete lines, all or none: a torn line would corrupt the one written after it.
    pub fn append_journal(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.journal.write_all(lines);
        match &written {
            Ok(()) => self.journal_size += lines.len() as u64,
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
            none => {
                let mut options = private_files::private_open_options();
                none.insert(options.append(true).create(true).open(&self.path)?)
            }
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
    fn removed_journal_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let files = RunFiles::create(run(dir.path(), &new_id(0)), 100).unwrap();
        assert!(!files.is_removed());
        std::fs::remove_dir_all(&files.dir.path).unwrap();
        assert!(files.is_removed());
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
