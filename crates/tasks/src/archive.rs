//! Setting the documents of finished work aside.

use std::io;
use std::path::{Path, PathBuf};

/// Where they go, in the project's root.
pub const DIRECTORY: &str = "ralph-archive";

/// A directory that is named `stem`, or if that is taken `stem-2` and so on, with these files in it.
/// It appears with all of them or not at all.
///
/// # Errors
/// It cannot be written.
pub fn create(root: &Path, stem: &str, files: &[(&str, Vec<u8>)]) -> io::Result<PathBuf> {
    let all = root.join(DIRECTORY);
    ralph_store::safe_fs::check_inside(root, &all.join(stem))?;
    let is_new = !all.exists();
    std::fs::create_dir_all(&all)?;
    let made = create_in(&all, stem, files);
    if made.is_err() && is_new {
        let _ = std::fs::remove_dir(&all);
    }
    made
}

fn create_in(all: &Path, stem: &str, files: &[(&str, Vec<u8>)]) -> io::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ralph-save-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // What any new directory gets; the process's umask still applies.
        builder.permissions(std::fs::Permissions::from_mode(0o777));
    }
    let staged = builder.tempdir_in(all)?;
    for (name, bytes) in files {
        ralph_store::save::save_atomically(&staged.path().join(name), bytes)?;
    }
    let place = create_unique_dir(all, stem)?;
    // The empty directory that holds the name is replaced in one step.
    if let Err(err) = std::fs::rename(staged.path(), &place) {
        let _ = std::fs::remove_dir(&place);
        return Err(err);
    }
    // It has another name now.
    let _ = staged.keep();
    Ok(place)
}

/// Makes the first directory of the name that is free, so that nobody else can have it.
fn create_unique_dir(all: &Path, stem: &str) -> io::Result<PathBuf> {
    for n in 1_u32.. {
        let name = if n == 1 { stem.to_owned() } else { format!("{stem}-{n}") };
        let place = all.join(name);
        match std::fs::create_dir(&place) {
            Ok(()) => return Ok(place),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
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
                let place = create(dir.path(), "2026-11-15-x", &files).unwrap();
                assert_eq!(std::fs::read(place.join("b")).unwrap(), [n]);
                place.file_name().unwrap().to_str().unwrap().to_owned()
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
