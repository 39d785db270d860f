//! Saving a file so that a crash leaves either the old content or the new one, never a part.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::safe_fs;

/// Puts `bytes` in the place of the file at `path`, all or nothing.
///
/// The content goes to a temporary file in the same directory, which must exist, then to the disk,
/// and then takes the name. The permissions of a file that is replaced are kept. A symbolic link is
/// replaced, not followed: nobody can make us write outside of the directory by leaving a link there.
///
/// # Errors
/// What the file system said. The old file is then as it was and no temporary file is left.
pub fn save_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_as(path, bytes, FileAccessMode::KeepMode)
}

/// The same for what is nobody else's business, such as keys: only the user can read it, whoever could
/// read what was there before.
///
/// # Errors
/// As above.
pub fn save_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    save_as(path, bytes, FileAccessMode::UserOnly)
}

/// The same for what means nothing any more once the machine has gone down, such as a request to a process:
/// the disk is not waited for. Only the user can read it.
///
/// # Errors
/// As above.
pub fn save_without_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_temp(path, bytes, FileAccessMode::UserOnly)?
        .persist(path)
        .map_err(|error| error.error)?;
    Ok(())
}

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileAccessMode {
    /// Those who could read what is replaced, or, for a new file, whoever the umask lets.
    KeepMode,
    UserOnly,
}

fn save_as(path: &Path, bytes: &[u8], readers: FileAccessMode) -> io::Result<()> {
    let file = write_temp_beside(path, bytes, readers)?;
    file.persist(path).map_err(|error| error.error)?;
    sync_directory_of(path);
    Ok(())
}

/// The file that a path leads to by symbolic links, there or not: what to save where a link is the
/// user's own, and what it leads to is what they mean. The name of a link is not taken by a file then.
///
/// # Errors
/// The links go in a circle, or cannot be read.
pub fn resolve_link(path: &Path) -> io::Result<PathBuf> {
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = directory_of(&path).join(target),
            // Not a link, or nothing at all.
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

/// Removes what savings that were killed have left in a directory. One that is under way takes moments.
pub fn remove_stale_temp_files(directory: &Path) {
    const STALE_TEMP_AGE: std::time::Duration = std::time::Duration::from_secs(60);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes());
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours && age().is_some_and(|age| age > STALE_TEMP_AGE) {
            // What cannot be removed takes up room and does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What the names of contents begin with that have not got their own yet.
const TEMP_PREFIX: &str = ".ralph-save-";

/// A file that is to be saved together with others.
#[derive(Debug, Clone)]
pub struct PendingSave {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    /// It may take the place of one that is there.
    pub replace: bool,
}

/// Saves several files of a project, all of them or none, and none that a link leads out of it.
///
/// # Errors
/// As [`save_all`].
pub fn save_all_in_project(root: &Path, files: &[PendingSave]) -> Result<(), (PathBuf, io::Error)> {
    for file in files {
        safe_fs::check_inside(root, &file.path).map_err(|err| (file.path.clone(), err))?;
    }
    save_all(files)
}

/// Saves several files, all of them or none.
///
/// # Errors
/// What the file system said, and of which file. Nothing is then changed.
pub fn save_all(files: &[PendingSave]) -> Result<(), (PathBuf, io::Error)> {
    let mut made = Vec::new();
    let saved = save_each(files, &mut made);
    if saved.is_err() {
        for (undo, path) in made.into_iter().rev() {
            // What cannot be undone either is beyond us; what failed first is what is told.
            let _ = match undo {
                Undo::RemoveDirectory => fs::remove_dir(path),
                Undo::RemoveFile => fs::remove_file(path),
                Undo::Restore(bytes) => save_atomically(&path, &bytes),
            };
        }
    }
    saved
}

/// What would make something unmade that was done to a path.
enum Undo {
    RemoveDirectory,
    RemoveFile,
    Restore(Vec<u8>),
}

fn save_each(
    files: &[PendingSave],
    made: &mut Vec<(Undo, PathBuf)>,
) -> Result<(), (PathBuf, io::Error)> {
    let mut ready = Vec::new();
    for PendingSave { path, bytes, replace } in files {
        let failed = |error| (path.clone(), error);
        // From the outermost one on that is missing.
        let missing = path.ancestors().skip(1).take_while(|directory| !directory.exists());
        for directory in missing.collect::<Vec<_>>().into_iter().rev() {
            if directory.as_os_str().is_empty() {
                continue;
            }
            fs::create_dir(directory).map_err(failed)?;
            made.push((Undo::RemoveDirectory, directory.to_owned()));
        }
        ready.push((
            path,
            *replace,
            write_temp_beside(path, bytes, FileAccessMode::KeepMode).map_err(failed)?,
        ));
    }
    // All of it is on the disk by now; what is left is to give it its names.
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
        made.push((old.map_or(Undo::RemoveFile, Undo::Restore), path.clone()));
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

/// The content of a file beside it, on the disk, without its name.
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
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // What any new file gets; the process's umask still applies.
        let mode = if readers == FileAccessMode::UserOnly { 0o600 } else { 0o666 };
        builder.permissions(fs::Permissions::from_mode(mode));
    }
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
    // The name is in the directory, and it is lost in a power failure unless that is synced too.
    // Some file systems cannot do it, and the content is safe by now.
    if let Ok(directory) = File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
}

/// Makes the directory of `path` if that is what is missing: an agent that cleans up may have taken
/// it for rubbish.
///
/// # Errors
/// What kept it from being written.
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
        // The last one cannot be written: its name is that of a directory with something in it.
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
        // Readable by its owner at least, and never executable.
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
