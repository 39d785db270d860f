//! What runs remember of their task lists: a file for each, outside of every work tree.

use std::io;
use std::path::{Path, PathBuf};

use super::runs::is_id;

/// Where that of a run is.
pub fn path(directory: &Path, run: &str) -> PathBuf {
    directory.join(format!("{run}.json"))
}

/// What a run remembers.
///
/// # Errors
/// It is not there, or cannot be understood.
pub fn read<T: serde::de::DeserializeOwned>(directory: &Path, run: &str) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(path(directory, run))?)?)
}

/// Removes the oldest ones so that with one more there are no more than `keep`. What cannot be removed
/// takes up room and does no other harm.
pub fn prune(directory: &Path, keep: usize) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut ours: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_stem().and_then(|name| name.to_str());
            name.is_some_and(is_id) && path.extension().is_some_and(|it| it == "json")
        })
        .collect();
    // Their names tell when they began.
    ours.sort_unstable();
    for path in ours.iter().rev().skip(keep.saturating_sub(1)) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_what_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["20261113-202752-0a1b.json", "20261114-202752-0a1b.json", "mine.json"];
        for name in names {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        prune(dir.path(), 2);
        let there: Vec<bool> = names.iter().map(|name| dir.path().join(name).exists()).collect();
        assert_eq!(there, [false, true, true]);
        prune(&dir.path().join("none"), 2);
    }
}
