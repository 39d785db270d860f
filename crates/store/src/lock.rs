//! Locks that allow one run at a time in a directory.
//!
//! The lock is the kernel's, on the directory itself, so it ends with its process and no
//! `git clean` can remove it. A note in a file names the holder. A clean release empties the note:
//! a note without a lock belongs to a killed run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::private_files;
use super::safe_fs;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub run: String,
    pub command: String,
}

/// Released when dropped.
#[derive(Debug)]
pub struct Lock {
    /// The directory, or the note where the file system cannot lock directories.
    file: File,
    /// `None` for a shared lock, which has no single holder.
    holder_file: Option<File>,
}

#[derive(Debug)]
pub enum LockAttempt {
    /// `cut_off` is the previous holder if it never released the lock.
    Acquired { lock: Lock, cut_off: Option<Holder> },
    /// The holder, if its note can be read.
    Held(Option<Holder>),
}

impl Lock {
    /// Tries to lock `directory` without waiting, and names `me` in the file `note`.
    pub fn try_lock(directory: &Path, note: &Path, me: &Holder) -> io::Result<LockAttempt> {
        let mut note = open_note(note)?;
        let mut held = File::open(directory)?;
        let mut locked = held.try_lock();
        if let Err(TryLockError::Error(_)) = locked {
            held = note.try_clone()?;
            locked = held.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(LockAttempt::Held(read_note(&mut note))),
            Err(TryLockError::Error(err)) => return Err(err),
        }
        let cut_off = read_note(&mut note);
        let mut lock = Lock { file: held, holder_file: Some(note) };
        lock.write_note(Some(me))?;
        Ok(LockAttempt::Acquired { lock, cut_off })
    }

    pub fn try_lock_shared(directory: &Path, note: &Path) -> io::Result<LockAttempt> {
        let mut held = File::open(directory)?;
        let mut locked = held.try_lock_shared();
        if let Err(TryLockError::Error(_)) = locked {
            held = open_note(note)?;
            locked = held.try_lock_shared();
        }
        match locked {
            Ok(()) => Ok(LockAttempt::Acquired {
                lock: Lock { file: held, holder_file: None },
                cut_off: None,
            }),
            Err(TryLockError::WouldBlock) => Ok(LockAttempt::Held(read_holder(note))),
            Err(TryLockError::Error(err)) => Err(err),
        }
    }

    /// Empties the note, or leaves that of a killed run that has not been reported yet.
    pub fn release(mut self, cut_off: Option<&Holder>) -> io::Result<()> {
        self.write_note(cut_off)
    }

    fn write_note(&mut self, holder: Option<&Holder>) -> io::Result<()> {
        let text = holder.map(serde_json::to_string).transpose()?.unwrap_or_default();
        // Overwritten before it is truncated: on a full disk, the old note survives.
        let Some(note) = &mut self.holder_file else { return Ok(()) };
        note.rewind()?;
        note.write_all(text.as_bytes())?;
        note.set_len(text.len() as u64)
    }
}

/// Unlocks explicitly: a child between fork and exec has a copy of the descriptor.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Locks `directory` until the result is dropped; `TimedOut` after `timeout`.
pub fn lock_within(directory: &Path, timeout: Duration) -> io::Result<File> {
    // Does not block on a named pipe.
    let held = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(directory)?;
    // File systems without locks are accepted.
    let is_held = || matches!(held.try_lock(), Err(TryLockError::WouldBlock));
    if holds_for(timeout, is_held) {
        let message = "locked by another ralph command";
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    }
    Ok(held)
}

/// Polls `condition` until it is false; true after `timeout`. The kernel has no lock with a
/// timeout.
pub fn holds_for(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while condition() {
        if Instant::now() >= deadline {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Repeats `attempt` for `timeout` while `again` holds for its result.
pub fn retry<T>(
    timeout: Duration,
    mut attempt: impl FnMut() -> T,
    again: impl Fn(&T) -> bool,
) -> T {
    let mut result = attempt();
    holds_for(timeout, || {
        let repeats = again(&result);
        if repeats {
            result = attempt();
        }
        repeats
    });
    result
}

/// Locks `directory` without a note, for a short command. `Ok(None)` without lock support; the
/// error is the holder.
pub fn lock_briefly(directory: &Path, note: &Path) -> Result<Option<File>, Option<Holder>> {
    let Ok(held) = File::open(directory) else { return Ok(None) };
    match held.try_lock() {
        Ok(()) => Ok(Some(held)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(read_holder(note)),
    }
}

/// The holder named in the note, alive or killed.
pub fn read_holder(note: &Path) -> Option<Holder> {
    read_note(&mut safe_fs::open_file(note).ok()?)
}

fn open_note(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = private_files::private_open_options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

fn read_note(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.take(64 * 1024).read_to_string(&mut text).ok()?;
    // Bytes after the first value are the rest of an older, longer note.
    serde_json::Deserializer::from_str(&text).into_iter().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(run: &str) -> Holder {
        Holder { pid: 42, run: run.into(), command: "run".into() }
    }

    #[test]
    fn held_lock_names_holder_and_released_lock_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let LockAttempt::Acquired { lock, cut_off: None } =
            Lock::try_lock(dir.path(), &path, &holder("a")).unwrap()
        else {
            panic!("a new lock is free");
        };
        match Lock::try_lock(dir.path(), &path, &holder("b")).unwrap() {
            LockAttempt::Held(Some(who)) => assert_eq!(who, holder("a")),
            other => panic!("{other:?}"),
        }
        lock.release(None).unwrap();
        assert!(matches!(
            Lock::try_lock(dir.path(), &path, &holder("b")).unwrap(),
            LockAttempt::Acquired { cut_off: None, .. }
        ));
    }

    #[test]
    fn lock_reports_holder_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // A killed process drops the lock without releasing it.
        drop(Lock::try_lock(dir.path(), &path, &holder("a")).unwrap());
        match Lock::try_lock(dir.path(), &path, &holder("b")).unwrap() {
            LockAttempt::Acquired { cut_off: Some(who), .. } => assert_eq!(who, holder("a")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn removed_lock_note_does_not_free_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _lock = Lock::try_lock(dir.path(), &path, &holder("a")).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            Lock::try_lock(dir.path(), &path, &holder("b")).unwrap(),
            LockAttempt::Held(None)
        ));
    }

    #[test]
    fn shared_lock_excludes_exclusive_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let alone = || Lock::try_lock(dir.path(), &path, &holder("a")).unwrap();
        let share = || Lock::try_lock_shared(dir.path(), &path).unwrap();
        let (one, two) = (share(), share());
        assert!(matches!(
            (&one, &two),
            (LockAttempt::Acquired { .. }, LockAttempt::Acquired { .. })
        ));
        assert!(matches!(alone(), LockAttempt::Held(None)));
        drop((one, two));
        let LockAttempt::Acquired { lock, .. } = alone() else { panic!("the lock is free") };
        assert!(matches!(share(), LockAttempt::Held(Some(who)) if who == holder("a")));
        lock.release(None).unwrap();
        let LockAttempt::Acquired { lock, .. } = share() else { panic!("the lock is free") };
        lock.release(None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn corrupt_lock_note_does_not_block_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, b"\xff{half").unwrap();
        assert!(matches!(
            Lock::try_lock(dir.path(), &path, &holder("b")).unwrap(),
            LockAttempt::Acquired { cut_off: None, .. }
        ));
    }
}
