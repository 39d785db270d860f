//! Fingerprints of files, comparable within one process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ralph_store::{active_marker, safe_fs};

/// A larger file counts by size and time.
const MAX_CONTENT_BYTES: u64 = 1 << 20;

const IGNORED_DIRS: [&str; 5] = [".git", ".hg", ".jj", ".svn", ".ralph"];

/// Returns the fingerprint, also of a missing file, and the bytes read, at most `budget`.
pub fn file_fingerprint(path: &Path, budget: u64) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    let mut read = 0;
    match path.symlink_metadata() {
        Err(_) => 0_u8.hash(&mut hasher),
        Ok(meta) if meta.is_symlink() => std::fs::read_link(path).ok().hash(&mut hasher),
        Ok(meta) => {
            meta.mode().hash(&mut hasher);
            match content(path, meta.is_file(), meta.len(), budget) {
                Some(bytes) => {
                    read = bytes.len() as u64;
                    bytes.hash(&mut hasher);
                }
                None => (meta.len(), meta.mtime(), meta.mtime_nsec()).hash(&mut hasher),
            }
        }
    }
    (hasher.finish(), read)
}

fn content(path: &Path, is_file: bool, size: u64, budget: u64) -> Option<Vec<u8>> {
    if !is_file || size > MAX_CONTENT_BYTES.min(budget) {
        return None;
    }
    let mut bytes = Vec::new();
    safe_fs::open_file(path).ok()?.take(MAX_CONTENT_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// By names, sizes and times. `None` beyond `max_files`, or if unreadable.
pub fn tree_fingerprint(root: &Path, max_files: usize) -> Option<u64> {
    let (mut total, mut count) = (0_u64, 0);
    let mut queue = vec![root.to_owned()];
    while let Some(directory) = queue.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            // Removed meanwhile.
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(meta) = entry.metadata() else { continue };
            if name == active_marker::MARKER_FILE
                || IGNORED_DIRS.iter().any(|ignored| name == *ignored)
            {
                continue;
            }
            count += 1;
            if count > max_files {
                return None;
            }
            if meta.is_dir() {
                queue.push(entry.path());
            } else {
                let mut hasher = DefaultHasher::new();
                entry.path().hash(&mut hasher);
                (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.mode()).hash(&mut hasher);
                // A sum, because directories have no order.
                total = total.wrapping_add(hasher.finish());
            }
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_fingerprint_uses_content_within_size_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let fingerprint = || file_fingerprint(&path, 1 << 30);
        let gone = fingerprint().0;
        std::fs::write(&path, "one").unwrap();
        let one = fingerprint();
        assert_eq!(one.1, 3);
        std::fs::write(&path, "two").unwrap();
        let two = fingerprint();
        assert!(gone != one.0 && one.0 != two.0);
        std::fs::write(&path, "one").unwrap();
        assert_eq!(fingerprint(), one, "whenever it was written");
        assert_eq!(file_fingerprint(&path, 2).1, 0, "there is no more to spend");
    }

    #[test]
    fn tree_fingerprint_ignores_own_and_git_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        write("sub/a");
        let before = tree_fingerprint(dir.path(), 10).unwrap();
        write(".ralph/runs/x/events.jsonl");
        write(".ralph-active");
        write(".git/index");
        assert_eq!(tree_fingerprint(dir.path(), 10), Some(before));
        write("sub/b");
        assert_ne!(tree_fingerprint(dir.path(), 10), Some(before));
        assert_eq!(tree_fingerprint(dir.path(), 2), None);
    }
}
