//! Atomic saves: after a crash, a file has either its old content or the new one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::safe_fs;

/// Replaces the file at `path` by a synced temporary file.
///
/// Keeps the mode of an existing file. Replaces a symbolic link instead of following it, so a
/// planted link cannot redirect the write.
pub fn save_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_as(path, bytes, FileAccessMode::KeepMode)
}

/// Readable by the user only, even if the old file was not.
pub fn save_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_as(path, bytes, FileAccessMode::UserOnly)
}

/// Like [`save_privately`], without a sync: for data that is worthless after a reboot.
pub fn save_without_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_temp(path, bytes, FileAccessMode::UserOnly)?.persist(path)?;
    Ok(())
}

/// Like [`save_privately`]; fails with `AlreadyExists` if there is such a file.
pub fn save_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = write_temp_beside(path, bytes, FileAccessMode::UserOnly)?;
    file.persist_noclobber(path)?;
    sync_directory_of(path);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileAccessMode {
    /// The mode of the replaced file, or that of the umask.
    KeepMode,
    UserOnly,
}

fn save_as(path: &Path, bytes: &[u8], readers: FileAccessMode) -> io::Result<()> {
    let file = write_temp_beside(path, bytes, readers)?;
    file.persist(path)?;
    sync_directory_of(path);
    Ok(())
}

/// Follows links to an existing or missing file, where a link of the user must not be replaced.
/// Fails on a cycle.
pub fn resolve_link(path: &Path) -> io::Result<PathBuf> {
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = directory_of(&path).join(target),
            Err(err)
                if matches!(err.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) =>
            {
                return Ok(path);
            }
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Removes temporary files of killed saves. A save takes moments.
pub fn remove_stale_temp_files(directory: &Path) {
    const STALE_TEMP_AGE: std::time::Duration = std::time::Duration::from_secs(60);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes());
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours && age().is_some_and(|age| age > STALE_TEMP_AGE) {
            // Harmless if it fails.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Prefix of temporary file names.
const TEMP_PREFIX: &str = ".ralph-save-";

#[derive(Debug, Clone)]
pub struct PendingSave {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    /// Whether an existing file may be replaced.
    pub replace: bool,
}

/// Like [`save_all`]; refuses links out of the project.
pub fn save_all_in_project(root: &Path, files: &[PendingSave]) -> Result<(), (PathBuf, io::Error)> {
    for file in files {
        safe_fs::check_inside(root, &file.path).map_err(|err| (file.path.clone(), err))?;
    }
    save_all(files)
}

/// Saves all files or none. The error names the file.
pub fn save_all(files: &[PendingSave]) -> Result<(), (PathBuf, io::Error)> {
    let mut undo_log = Vec::new();
    let result = save_each(files, &mut undo_log);
    if result.is_err() {
        for (undo, path) in undo_log.into_iter().rev() {
            // The first error is the one to report.
            let _ = match undo {
                Undo::RemoveDirectory => fs::remove_dir(path),
                Undo::RemoveFile => fs::remove_file(path),
                Undo::Restore(bytes) => save_atomically(&path, &bytes),
            };
        }
    }
    result
}

enum Undo {
    RemoveDirectory,
    RemoveFile,
    Restore(Vec<u8>),
}

fn save_each(
    files: &[PendingSave],
    undo_log: &mut Vec<(Undo, PathBuf)>,
) -> Result<(), (PathBuf, io::Error)> {
    let mut ready = Vec::new();
    for PendingSave { path, bytes, replace } in files {
        let failed = |error| (path.clone(), error);
        // Outermost first.
        let missing = path.ancestors().skip(1).take_while(|directory| !directory.exists());
        for directory in missing.collect::<Vec<_>>().into_iter().rev() {
            if directory.as_os_str().is_empty() {
                continue;
            }
            fs::create_dir(directory).map_err(failed)?;
            undo_log.push((Undo::RemoveDirectory, directory.to_owned()));
        }
        ready.push((
            path,
            *replace,
            write_temp_beside(path, bytes, FileAccessMode::KeepMode).map_err(failed)?,
        ));
    }
    // Only the renames remain.
    for (path, replace, file) in ready {
        let failed = |error| (path.clone(), error);
        let old =
            match safe_fs::open_file(path).and_then(|file| safe_fs::read_limited(file, u64::MAX)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(failed(error)),
            };
        let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
        named.map_err(|error| failed(error.error))?;
        undo_log.push((old.map_or(Undo::RemoveFile, Undo::Restore), path.clone()));
        sync_directory_of(path);
    }
    Ok(())
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn write_temp_beside(
    path: &Path,
    bytes: &[u8],
    readers: FileAccessMode,
) -> io::Result<tempfile::NamedTempFile> {
    let file = write_temp(path, bytes, readers)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn write_temp(
    path: &Path,
    bytes: &[u8],
    readers: FileAccessMode,
) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMP_PREFIX);
    // The umask still applies.
    let mode = if readers == FileAccessMode::UserOnly { 0o600 } else { 0o666 };
    builder.permissions(fs::Permissions::from_mode(mode));
    let mut file = builder.tempfile_in(directory_of(path))?;
    file.write_all(bytes)?;
    if readers == FileAccessMode::KeepMode
        && let Ok(old) = fs::symlink_metadata(path)
        && old.is_file()
    {
        file.as_file().set_permissions(old.permissions())?;
    }
    Ok(file)
}

fn sync_directory_of(path: &Path) {
    // Without this, a power failure can lose the name. Some file systems refuse it.
    if let Ok(directory) = File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
}

/// Creates a missing parent directory: agents that clean up remove it.
pub fn with_parent_dir<T>(path: &Path, write: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match (write(), path.parent()) {
        (Err(err), Some(parent)) if err.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(parent)?;
            write()
        }
        (written, _) => written,
    }
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
    fn atomic_save_replaces_content_without_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        save_atomically(&path, b"one, and longer").unwrap();
        save_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        save_without_sync(&path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn failed_save_leaves_directory_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(save_atomically(&path, b"x").is_err());
        assert_eq!(names(dir.path()), ["a"]);
        assert!(save_atomically(&dir.path().join("missing/b"), b"x").is_err());
    }

    #[test]
    fn save_all_writes_every_file_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let file = |name: &str, text: &str, replace| PendingSave {
            path: at(name),
            bytes: text.as_bytes().to_vec(),
            replace,
        };
        save_all(&[file("a", "1", false), file("b", "2", false)]).unwrap();
        // Fails: its name is that of a non-empty directory.
        fs::create_dir_all(at("d/full")).unwrap();
        for replace in [false, true] {
            let files = [
                file("new/deep/c", "3", false),
                file("a", "changed", replace),
                file("d", "4", true),
            ];
            let (path, _) = save_all(&files).unwrap_err();
            assert_eq!(path, if replace { at("d") } else { at("a") });
            assert_eq!(fs::read(at("a")).unwrap(), b"1");
            assert_eq!(names(dir.path()), ["a", "b", "d"]);
        }
        save_all(&[file("a", "changed", true), file("new/c", "3", false)]).unwrap();
        assert_eq!(fs::read(at("a")).unwrap(), b"changed");
        assert_eq!(names(dir.path()), ["a", "b", "d", "new"]);
    }

    #[cfg(unix)]
    #[test]
    fn save_keeps_permissions_and_does_not_follow_link() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        save_atomically(&path, b"1").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o711, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        save_atomically(&path, b"2").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);

        save_privately(&path, b"2").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        save_atomically(&link, b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::read(&link).unwrap(), b"3");
    }

    #[cfg(unix)]
    #[test]
    fn link_target_is_resolved_even_if_missing() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        symlink("d/link", at("link")).unwrap();
        symlink("file", at("d/link")).unwrap();
        for _ in 0..2 {
            assert_eq!(resolve_link(&at("link")).unwrap(), at("d/file"));
            fs::write(at("d/file"), "").unwrap();
        }
        assert_eq!(resolve_link(&at("none")).unwrap(), at("none"));
        symlink("circle", at("circle")).unwrap();
        assert!(resolve_link(&at("circle")).is_err());
    }
}
