//! Which directory is at a path: one that was moved away, or removed and made again, is not there any more.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory as it was found, to tell later whether it is still where it was. Whoever holds it open sees to it that
/// no other gets its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirHandle {
    path: PathBuf,
    /// Nothing if nobody could tell.
    id: Option<(u64, u64)>,
}

/// What became of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirChange {
    Unchanged,
    Gone,
    /// Another has its name.
    Replaced,
}

impl DirHandle {
    pub fn new(path: &Path) -> DirHandle {
        DirHandle { path: path.to_owned(), id: dir_id(path).ok() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn change(&self) -> DirChange {
        match (self.id, dir_id(&self.path)) {
            (Some(before), Ok(now)) if before != now => DirChange::Replaced,
            (Some(_), Err(err))
                if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                DirChange::Gone
            }
            // What may not be looked at, or what a network does not tell now, is not gone for that.
            _ => DirChange::Unchanged,
        }
    }

    pub fn is_unchanged(&self) -> bool {
        self.change() == DirChange::Unchanged
    }
}

fn dir_id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_identity_survives_rename() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("project");
        std::fs::create_dir(&path).unwrap();
        let place = DirHandle::new(&path);
        std::fs::write(path.join("file"), "").unwrap();
        assert_eq!(place.change(), DirChange::Unchanged);
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        assert_eq!(place.change(), DirChange::Gone);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(place.change(), DirChange::Replaced);
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(dir.path().join("moved"), &path).unwrap();
        assert!(place.is_unchanged());
        // What was not there, or could not be looked at, tells nothing later.
        assert!(DirHandle::new(&dir.path().join("nowhere")).is_unchanged());
    }
}
