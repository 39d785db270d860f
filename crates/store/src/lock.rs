//! One run at a time in a directory.
//!
//! The lock is the operating system's, on the directory itself: it ends with the process that holds
//! it, however that process ends, and no `git clean` can remove it. A file holds a note of who has it.
//! The note is wiped at a proper end, so that a note without a lock tells of a run that was cut off.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::private_files;
use super::safe_fs;

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub run: String,
    pub command: String,
}

/// A held lock. It is released when this is dropped.
#[derive(Debug)]
pub struct Lock {
    /// What is locked: the directory, or the note where a file system has no locks for directories.
    file: File,
    /// Those who share a lock leave no note: none of them could say who was there last.
    holder_file: Option<File>,
}

/// What became of an attempt to take a lock.
#[derive(Debug)]
pub enum LockAttempt {
    /// It is ours. `cut_off` held it before and never gave it back.
    Acquired { lock: Lock, cut_off: Option<Holder> },
    /// Somebody else has it, and may have said who they are.
    Held(Option<Holder>),
}

impl Lock {
    /// Tries to take the lock of `directory` without waiting. `note` is the file that says who has it.
    ///
    /// # Errors
    /// The note cannot be written, or nothing can be locked.
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

    /// Tries to take a share of the lock of `directory`: others may have one, too, but nobody can have
    /// it alone meanwhile.
    ///
    /// # Errors
    /// Nothing can be locked.
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

    /// Gives the lock back: with a note that all is well, or with the note of a run that was cut off
    /// earlier and that nobody has been told of yet.
    pub fn release(mut self, cut_off: Option<&Holder>) -> io::Result<()> {
        self.write_note(cut_off)
    }

    /// Whether the note is there, if there is to be one.
    pub fn is_noted_at(&self, note: &Path) -> bool {
        self.holder_file.as_ref().is_none_or(|ours| safe_fs::is_same_file(ours, note))
    }

    /// Writes the note again if its file was removed, and tells whether it had to.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn restore(&mut self, note: &Path, me: &Holder) -> io::Result<bool> {
        if self.is_noted_at(note) {
            return Ok(false);
        }
        self.holder_file = Some(open_note(note)?);
        self.write_note(Some(me))?;
        Ok(true)
    }

    /// The same while an agent is at work in `root`, who may put a link there at any moment.
    ///
    /// # Errors
    /// As above.
    pub fn restore_beside_agent(
        &mut self,
        root: &Path,
        note: &Path,
        me: &Holder,
    ) -> io::Result<()> {
        let is_removed = |file: &File| file.metadata().is_ok_and(|meta| meta.nlink() == 0);
        if self.holder_file.as_ref().is_some_and(is_removed) {
            self.holder_file = Some(safe_fs::make(root, note)?);
            self.write_note(Some(me))?;
        }
        Ok(())
    }

    fn write_note(&mut self, holder: Option<&Holder>) -> io::Result<()> {
        let text = holder.map(serde_json::to_string).transpose()?.unwrap_or_default();
        // Overwritten first and cut to its length then: on a full disk the old note stays, rather
        // than none.
        let Some(note) = &mut self.holder_file else { return Ok(()) };
        note.rewind()?;
        note.write_all(text.as_bytes())?;
        note.set_len(text.len() as u64)
    }
}

/// Free at once: a program that is just being started has a copy of what is open here until it is that program.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Waits until nobody else holds `directory`, for `patience` at most, and holds it until the answer is
/// dropped: for a change of a moment.
///
/// # Errors
/// It is held for longer than that, or is not there.
pub fn lock_within(directory: &Path, patience: Duration) -> io::Result<File> {
    // A pipe of that name is not waited for.
    let held = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(directory)?;
    // A file system without locks is no reason not to work.
    let is_held = || matches!(held.try_lock(), Err(TryLockError::WouldBlock));
    if holds_for(patience, is_held) {
        let message = "another command holds its lock";
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    }
    Ok(held)
}

/// Whether something is so for as long as that. It is asked again and again: nobody tells when a lock is
/// let go, unless one waits for it without an end.
pub fn holds_for(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + patience;
    while is_so() {
        if Instant::now() >= until {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Takes the lock of `directory` without a note, for a command that is over in a moment and leaves
/// nothing that anybody would have to be told of. `None` where there are no locks.
///
/// # Errors
/// Somebody else has it, and may have said who they are in `note`.
pub fn lock_briefly(directory: &Path, note: &Path) -> Result<Option<File>, Option<Holder>> {
    let Ok(held) = File::open(directory) else { return Ok(None) };
    match held.try_lock() {
        Ok(()) => Ok(Some(held)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(read_holder(note)),
    }
}

/// Who the note says has the lock, or had it and was cut off.
pub fn read_holder(note: &Path) -> Option<Holder> {
    read_note(&mut safe_fs::open_file(note).ok()?)
}

/// Notes that a run had the lock and was cut off, where the note was removed: for whoever keeps the project idle.
///
/// # Errors
/// It cannot be written.
pub(super) fn leave_note(note: &Path, cut_off: &Holder) -> io::Result<()> {
    let mut file = open_note(note)?;
    file.set_len(0)?;
    file.write_all(serde_json::to_string(cut_off)?.as_bytes())
}

/// Opens the note, or makes it. What an agent may have put in its place, a link or a pipe, is taken away.
pub(super) fn open_note(path: &Path) -> io::Result<File> {
    if path.symlink_metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        std::fs::remove_file(path)?;
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = private_files::private_open_options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

fn read_note(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.take(64 * 1024).read_to_string(&mut text).ok()?;
    // What follows the first value is the end of an older note.
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
        // Dropping without a release is what a kill does.
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
        let LockAttempt::Acquired { mut lock, .. } =
            Lock::try_lock(dir.path(), &path, &holder("a")).unwrap()
        else {
            panic!("a new lock is free");
        };
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            Lock::try_lock(dir.path(), &path, &holder("b")).unwrap(),
            LockAttempt::Held(None)
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(lock.restore(&path, &holder("a")).unwrap());
        match Lock::try_lock(dir.path(), &path, &holder("b")).unwrap() {
            LockAttempt::Held(Some(who)) => assert_eq!(who, holder("a")),
            other => panic!("{other:?}"),
        }
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
        let LockAttempt::Acquired { lock, .. } = alone() else { panic!("nobody is left") };
        assert!(matches!(share(), LockAttempt::Held(Some(who)) if who == holder("a")));
        lock.release(None).unwrap();
        let LockAttempt::Acquired { lock, .. } = share() else { panic!("nobody is left") };
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
