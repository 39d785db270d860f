//! One run at a time in a directory.
//!
//! The lock is the operating system's: it ends with the process that holds it, however that process
//! ends. What the file holds is only a note of who has it. The note is wiped at a proper end, so that
//! a note without a lock tells of a run that was cut off.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

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
    file: File,
}

/// What became of an attempt to take a lock.
#[derive(Debug)]
pub enum Taken {
    /// It is ours. `cut_off` held it before and never gave it back.
    Free { lock: Lock, cut_off: Option<Holder> },
    /// Somebody else has it, and may have said who they are.
    Held(Option<Holder>),
}

impl Lock {
    /// Tries to take the lock at `path` without waiting.
    pub fn take(path: &Path, me: &Holder) -> io::Result<Taken> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Taken::Held(read_note(&mut file))),
            Err(TryLockError::Error(err)) => return Err(err),
        }
        let cut_off = read_note(&mut file);
        let mut lock = Lock { file };
        lock.note(Some(me))?;
        Ok(Taken::Free { lock, cut_off })
    }

    /// Gives the lock back: with a note that all is well, or with the note of a run that was cut off
    /// earlier and that nobody has been told of yet.
    pub fn give_back(mut self, cut_off: Option<&Holder>) -> io::Result<()> {
        self.note(cut_off)
    }

    /// Takes the lock again if its file was removed, so that nobody else can; tells whether it had to.
    /// If somebody else was quicker, the lock is theirs, and the error says so.
    ///
    /// # Errors
    /// The lock is somebody else's now, or its file cannot be made.
    pub fn restore(&mut self, path: &Path, me: &Holder) -> io::Result<bool> {
        if super::runs::is_still_at(&self.file, path) {
            return Ok(false);
        }
        match Lock::take(path, me)? {
            Taken::Free { lock, .. } => {
                *self = lock;
                Ok(true)
            }
            Taken::Held(_) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    fn note(&mut self, holder: Option<&Holder>) -> io::Result<()> {
        let text = holder.map(serde_json::to_string).transpose()?.unwrap_or_default();
        // Overwritten first and cut to its length then: on a full disk the old note stays, rather
        // than none.
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
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
    fn a_held_lock_names_its_holder_and_a_released_one_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let Taken::Free { lock, cut_off: None } = Lock::take(&path, &holder("a")).unwrap() else {
            panic!("a new lock is free");
        };
        match Lock::take(&path, &holder("b")).unwrap() {
            Taken::Held(Some(who)) => assert_eq!(who, holder("a")),
            other => panic!("{other:?}"),
        }
        lock.give_back(None).unwrap();
        assert!(matches!(
            Lock::take(&path, &holder("b")).unwrap(),
            Taken::Free { cut_off: None, .. }
        ));
    }

    #[test]
    fn a_holder_that_died_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // Dropping without a release is what a kill does.
        drop(Lock::take(&path, &holder("a")).unwrap());
        match Lock::take(&path, &holder("b")).unwrap() {
            Taken::Free { cut_off: Some(who), .. } => assert_eq!(who, holder("a")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_note_that_makes_no_sense_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, b"\xff{half").unwrap();
        assert!(matches!(
            Lock::take(&path, &holder("b")).unwrap(),
            Taken::Free { cut_off: None, .. }
        ));
    }
}
