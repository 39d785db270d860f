//! Saving a file so that a crash leaves either the old content or the new one, never a part.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Puts `bytes` in the place of the file at `path`, all or nothing.
///
/// The content goes to a temporary file in the same directory, which must exist, then to the disk,
/// and then takes the name. The permissions of a file that is replaced are kept. A symbolic link is
/// replaced, not followed: nobody can make us write outside of the directory by leaving a link there.
///
/// # Errors
/// What the file system said. The old file is then as it was and no temporary file is left.
pub fn save_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ralph-save-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // What any new file gets; the process's umask still applies.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(bytes)?;
    if let Ok(old) = fs::symlink_metadata(path)
        && old.is_file()
    {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The name is in the directory, and it is lost in a power failure unless that is synced too.
    // Some file systems cannot do it, and the content is safe by now.
    if let Ok(directory) = File::open(directory) {
        let _ = directory.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn content_is_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        save_atomically(&path, b"one, and longer").unwrap();
        save_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn a_failure_leaves_the_directory_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(save_atomically(&path, b"x").is_err());
        assert_eq!(names(dir.path()), ["a"]);
        assert!(save_atomically(&dir.path().join("missing/b"), b"x").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_kept_and_a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        save_atomically(&path, b"1").unwrap();
        // Readable by its owner at least, and never executable.
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o711, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        save_atomically(&path, b"2").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        save_atomically(&link, b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::read(&link).unwrap(), b"3");
    }
}
