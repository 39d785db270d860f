//! Everything outside of the engine that the driver touches, behind one narrow interface.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::core::machine::Now;
use crate::process::{ChildId, Launch, Occurrence, System};
use crate::state::lock::{Holder, Lock, Taken};
use crate::state::project::Project;
use crate::state::runs::RunFiles;

/// A file that a run adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    Journal,
    /// The agent's bytes as they came.
    Raw,
    /// The log that was opened last.
    Log,
}

/// Processes, files, clock and signals, as the driver sees them.
pub trait World {
    fn now(&self) -> Now;
    /// Starts a child and tells its process id.
    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)>;
    /// Ends a child with everything that it started; with `at_once` nobody is asked first. Its end is
    /// still told by `wait`.
    fn end(&mut self, child: ChildId, at_once: bool);
    /// Waits for the next thing to happen, at most until `until_mono_ms`.
    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence;
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Begins a new log.
    fn open_log(&mut self, path: &Path) -> io::Result<()>;
    fn append(&mut self, record: Record, bytes: &[u8]) -> io::Result<()>;
    /// Sees to it that the journal is safe from a power cut, soon.
    fn sync(&mut self);
    /// Puts back what others may have removed of the run's own files, and tells whether the journal
    /// was among them.
    fn mend(&mut self) -> io::Result<bool>;
}

/// The world as it is.
#[derive(Debug)]
pub struct RealWorld {
    system: System,
    project: Project,
    lock: Lock,
    holder: Holder,
    files: RunFiles,
    log: Option<File>,
    syncer: Option<SyncSender<()>>,
}

impl RealWorld {
    /// `lock` is the project's, held by `holder`, which is this run.
    pub fn new(
        system: System,
        project: Project,
        lock: Lock,
        holder: Holder,
        files: RunFiles,
    ) -> Self {
        RealWorld { system, project, lock, holder, files, log: None, syncer: None }
    }

    /// Gives the project back. What happens without this is what the next start tells of.
    pub fn close(self) {
        let RealWorld { system, files, lock, .. } = self;
        drop((system, files));
        // If the note cannot be wiped, the next start says that this run was cut off: it ended with
        // a disk that cannot be written, so that is not far from the truth.
        let _ = lock.release();
    }

    /// A disk takes milliseconds to sync, an instant agent less than one to run. So another thread
    /// waits for the disk; it sleeps until there is something to do.
    fn start_syncer(&self) -> io::Result<SyncSender<()>> {
        let journal = self.files.journal_handle()?;
        let (sender, receiver) = sync_channel::<()>(1);
        std::thread::Builder::new().name("sync".into()).stack_size(64 * 1024).spawn(move || {
            while receiver.recv().is_ok() {
                // The next write tells of a disk that has failed.
                let _ = journal.sync_data();
            }
        })?;
        Ok(sender)
    }
}

impl World for RealWorld {
    fn now(&self) -> Now {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall_ms = wall.tv_sec.saturating_mul(1000).saturating_add(wall.tv_nsec / 1_000_000);
        Now { mono_ms: self.system.now_ms(), wall_ms }
    }

    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        self.system.start(launch)
    }

    fn end(&mut self, child: ChildId, at_once: bool) {
        if at_once {
            self.system.end_now(child);
        } else {
            self.system.end(child);
        }
    }

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.system.wait(until_mono_ms, buf)
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        std::fs::write(path, bytes)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn open_log(&mut self, path: &Path) -> io::Result<()> {
        self.log = None;
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        self.log = Some(file);
        Ok(())
    }

    fn append(&mut self, record: Record, bytes: &[u8]) -> io::Result<()> {
        match record {
            Record::Journal => self.files.append_journal(bytes),
            Record::Raw => self.files.append_raw(bytes),
            Record::Log => self.log.as_mut().map_or(Ok(()), |log| log.write_all(bytes)),
        }
    }

    fn sync(&mut self) {
        if self.syncer.is_none() {
            // Without a thread the journal is as safe as any other file.
            self.syncer = self.start_syncer().ok();
        }
        if let Some(syncer) = &self.syncer {
            // One that is under way is followed by one more; further ones add nothing.
            let _ = syncer.try_send(());
        }
    }

    fn mend(&mut self) -> io::Result<bool> {
        let gone = self.files.restore()?;
        // The next commit must not find run-time files that are not ignored any more.
        self.project.prepare()?;
        if gone {
            // It holds the file that was removed.
            self.syncer = None;
            // The lock was removed with it and is held by nobody who looks for it there. Whoever
            // was quicker has it now, and two runs are no worse than one that stops half-way.
            let path = self.project.lock_path();
            if let Ok(Taken::Free { lock, .. }) = Lock::take(&path, &self.holder) {
                self.lock = lock;
            }
        }
        Ok(gone)
    }
}
