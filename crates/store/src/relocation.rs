use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// The identity of a directory, which survives a move within its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirIdentity {
    device: u64,
    inode: u64,
    /// Nanoseconds since 1970, if known. Inode numbers are reused.
    #[serde(default)]
    created: Option<u64>,
}

impl DirIdentity {
    pub fn read_at(path: &Path) -> Option<DirIdentity> {
        DirIdentity::read(path).ok().flatten()
    }

    fn read(path: &Path) -> io::Result<Option<DirIdentity>> {
        let meta = fs::symlink_metadata(path)?;
        let created = meta.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created = created.and_then(|time| u64::try_from(time.as_nanos()).ok());
        let identity = DirIdentity { device: meta.dev(), inode: meta.ino(), created };
        Ok(meta.is_dir().then_some(identity))
    }

    /// Whether `path` is missing or certainly another directory. Device numbers change at a reboot
    /// and prove nothing.
    pub fn is_gone_from(&self, path: &Path) -> bool {
        match DirIdentity::read(path) {
            Ok(Some(now)) => now.device == self.device && now != *self,
            Ok(None) => true,
            Err(err) => {
                matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        }
    }

    /// Finds the directory among `candidates` if it is gone from `from`.
    pub fn find_moved<'p>(
        &self,
        from: &Path,
        candidates: impl IntoIterator<Item = &'p Path>,
    ) -> Option<Relocation> {
        if !self.is_gone_from(from) {
            return None;
        }
        let mut candidates = candidates.into_iter();
        let to = candidates.find(|path| DirIdentity::read_at(path).as_ref() == Some(self))?;
        Some(Relocation::new(from, to))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    from: PathBuf,
    to: PathBuf,
}

impl Relocation {
    /// Missing parents of `from` were moved with it.
    pub(super) fn new(mut from: &Path, mut to: &Path) -> Relocation {
        while from.file_name() == to.file_name()
            && let (Some(above), Some(now)) = (from.parent(), to.parent())
            && above.symlink_metadata().is_err()
        {
            (from, to) = (above, now);
        }
        Relocation { from: from.to_owned(), to: to.to_owned() }
    }

    pub fn apply(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.from) {
            Ok(below) => self.to.join(below).components().collect(),
            Err(_) => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_directory_is_found_with_its_surroundings() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let [repo, repo2] = ["repo", "repo2"].map(|name| base.join(name));
        let (project, moved) = (repo.join("a/app"), repo2.join("a/app"));
        fs::create_dir_all(&project).unwrap();
        fs::create_dir(repo.join("b")).unwrap();
        let identity = DirIdentity::read_at(&project).unwrap();
        let find = |to: &Path| identity.find_moved(&project, to.ancestors());
        assert_eq!(find(&project), None, "it has not moved");
        fs::rename(&repo, &repo2).unwrap();
        assert!(identity.is_gone_from(&project));
        assert_eq!(find(&repo2.join("b")), None);
        let found = find(&moved.join("src")).unwrap();
        assert_eq!(found.apply(&project.join("x")), moved.join("x"));
        assert_eq!(found.apply(&repo.join(".git")), repo2.join(".git"));
        assert_eq!(found.apply(&base.join("other")), base.join("other"));
        // Another directory in its place.
        fs::create_dir_all(&project).unwrap();
        assert!(identity.is_gone_from(&project));
        let found = find(&moved).unwrap();
        assert_eq!(found.apply(&project), moved);
        assert_eq!(found.apply(&repo.join(".git")), repo.join(".git"), "that one is still there");
    }
}
