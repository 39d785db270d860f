//! Detects that the directory at a path was moved away or replaced.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory and its inode. Keep it open as well, else the inode number may be reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirHandle {
    path: PathBuf,
    /// Device and inode, if known.
    id: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirChange {
    Unchanged,
    Gone,
    /// Another directory has its name.
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
            // Permission or network errors do not mean that it is gone.
            _ => DirChange::Unchanged,
        }
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
        let handle = DirHandle::new(&path);
        std::fs::write(path.join("file"), "").unwrap();
        assert_eq!(handle.change(), DirChange::Unchanged);
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        assert_eq!(handle.change(), DirChange::Gone);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(handle.change(), DirChange::Replaced);
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(dir.path().join("moved"), &path).unwrap();
        assert_eq!(handle.change(), DirChange::Unchanged);
        // A directory that could not be read never counts as changed.
        let unknown = DirHandle::new(&dir.path().join("nowhere"));
        assert_eq!(unknown.change(), DirChange::Unchanged);
    }
}
