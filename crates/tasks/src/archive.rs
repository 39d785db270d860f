//! Archives the documents of finished work.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub const DIRECTORY: &str = "ralph-archive";

/// Creates a directory `stem` (or `stem-2` and so on) with these files, atomically.
pub fn create(root: &Path, stem: &str, files: &[(&str, Vec<u8>)]) -> io::Result<PathBuf> {
    let archives = root.join(DIRECTORY);
    ralph_store::safe_fs::check_inside(root, &archives.join(stem))?;
    let is_new = !archives.exists();
    std::fs::create_dir_all(&archives)?;
    let result = create_in(&archives, stem, files);
    if result.is_err() && is_new {
        let _ = std::fs::remove_dir(&archives);
    }
    result
}

fn create_in(archives: &Path, stem: &str, files: &[(&str, Vec<u8>)]) -> io::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    // The umask still applies.
    builder.prefix(".ralph-save-").permissions(Permissions::from_mode(0o777));
    let staged = builder.tempdir_in(archives)?;
    for (name, bytes) in files {
        ralph_store::save::save_atomically(&staged.path().join(name), bytes)?;
    }
    let names = (1_u32..).map(|n| if n == 1 { stem.to_owned() } else { format!("{stem}-{n}") });
    let mut targets = names.map(|name| archives.join(name));
    let target = targets.find(|path| path.symlink_metadata().is_err());
    let target = target.ok_or(io::ErrorKind::AlreadyExists)?;
    std::fs::rename(staged.path(), &target)?;
    // It was renamed, so there is nothing to clean up.
    let _ = staged.keep();
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..3)
            .map(|n| {
                let files = [("a", vec![n]), ("b", vec![n])];
                let path = create(dir.path(), "2026-11-15-x", &files).unwrap();
                assert_eq!(std::fs::read(path.join("b")).unwrap(), [n]);
                path.file_name().unwrap().to_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(names, ["2026-11-15-x", "2026-11-15-x-2", "2026-11-15-x-3"]);
        assert_eq!(std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap().count(), 3);
    }

    #[test]
    fn failed_archive_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a", Vec::new()), ("no/such", Vec::new())];
        assert!(create(dir.path(), "x", &files).is_err());
        assert!(!dir.path().join(DIRECTORY).exists());
    }
}
