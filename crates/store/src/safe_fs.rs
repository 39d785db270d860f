//! Files in a project, where an agent may have replaced anything by a link, a pipe or a device.
//!
//! ralph runs outside the sandbox and would follow links that the agent could not. This holds for
//! every command: an earlier run may have left them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use super::{platform, save};

pub(super) const LINK_LEADS_OUT: &str = "it links out of the project";

/// Opens a regular file. `InvalidInput` for pipes and devices, `IsADirectory` for directories.
pub fn open_file(path: &Path) -> io::Result<File> {
    require_regular_file(
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?,
    )
}

/// Like [`open_file`]; `PermissionDenied` if links lead out of `root`.
pub fn open_within(root: &Path, path: &Path) -> io::Result<File> {
    let Ok(relative) = path.strip_prefix(root) else { return open_file(path) };
    require_regular_file(platform::open_beneath(root, relative)?)
}

/// Refuses links, pipes and devices in place of ralph's own files.
fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    require_regular_file(options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?)
}

/// Refuses links. `FileTooLarge` beyond `max_bytes`.
pub fn read_own(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_limited(open_own(OpenOptions::new().read(true), path)?, max_bytes)
}

/// Whether `path` still names the open file.
pub fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(current)) => identity(&ours) == identity(&current),
        _ => false,
    }
}

/// `FileTooLarge` beyond `max_bytes`.
pub fn read_within(root: &Path, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_limited(open_within(root, path)?, max_bytes)
}

/// `FileTooLarge` beyond `max_bytes`.
pub fn read_limited(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let message =
            format!("it is too large: {} MB, the limit is {} MB", size >> 20, max_bytes >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    };
    let size = file.metadata()?.len();
    if size > max_bytes {
        return too_large(size);
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { too_large(bytes.len() as u64) } else { Ok(bytes) }
}

/// Fails with `PermissionDenied` if a link leads the directory of `path` out of `root`. The last
/// component does not matter: a save replaces a link.
pub fn check_inside(root: &Path, path: &Path) -> io::Result<()> {
    // A path outside the project was named by the user.
    let Ok(relative) = path.strip_prefix(root) else { return Ok(()) };
    // Fast path, after each iteration.
    if is_link_free(root, relative.parent().unwrap_or(Path::new(""))) {
        return Ok(());
    }
    let Some(existing) = path.ancestors().skip(1).find(|directory| directory.exists()) else {
        return Ok(());
    };
    if existing.canonicalize()?.starts_with(root.canonicalize()?) {
        return Ok(());
    }
    let message = format!("{} links out of the project", existing.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Whether no existing component below `root` is a link.
fn is_link_free(root: &Path, relative: &Path) -> bool {
    let mut path = root.to_owned();
    for part in relative.components() {
        if !matches!(part, Component::Normal(_)) {
            return false;
        }
        path.push(part);
        match path.symlink_metadata() {
            Ok(meta) if !meta.is_symlink() => {}
            Err(err) if err.kind() == io::ErrorKind::NotFound => return true,
            _ => return false,
        }
    }
    true
}

/// Like [`save::resolve_link`]; `PermissionDenied` if that is outside `root`.
pub fn resolve_within(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let end = save::resolve_link(path)?;
    let directory = end.parent().unwrap_or(root);
    if !path.starts_with(root) || directory.canonicalize()?.starts_with(root.canonicalize()?) {
        return Ok(end);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
}

fn require_regular_file(file: File) -> io::Result<File> {
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

pub(super) fn resolve_path(root: &Path, relative: &Path) -> io::Result<PathBuf> {
    let root = root.canonicalize()?;
    let real = root.join(relative).canonicalize()?;
    let relative = real.strip_prefix(&root).map(Path::to_owned);
    relative.map_err(|_| io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
}

/// Resolves, then opens, for systems that cannot do both at once.
pub(super) fn open_stepwise(root: &Path, relative: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let path = root.canonicalize()?.join(resolve_path(root, relative)?);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
    // A link may have appeared in between.
    if path.canonicalize()? == path && is_same_file(&file, &path) {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    #[test]
    fn read_refuses_paths_outside_project_and_non_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("file"), "mine").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("file", root.join("within")).unwrap();
        symlink(root.join("file"), root.join("absolute")).unwrap();
        symlink("/dev/zero", root.join("endless")).unwrap();
        pipe(&root.join("pipe"));
        let kind = |name: &str| read_within(&root, &root.join(name), 100).map_err(|err| err.kind());
        let step_by_step = |name: &str| {
            let file = open_stepwise(&root, Path::new(name)).and_then(require_regular_file);
            file.and_then(|file| read_limited(file, 100)).map_err(|err| err.kind())
        };
        for name in ["file", "within", "absolute"] {
            assert_eq!(kind(name).unwrap(), b"mine", "{name}");
            assert_eq!(step_by_step(name).unwrap(), b"mine", "{name}");
        }
        for (name, expected) in [
            ("out", io::ErrorKind::PermissionDenied),
            ("up/secret", io::ErrorKind::PermissionDenied),
            ("endless", io::ErrorKind::PermissionDenied),
            ("pipe", io::ErrorKind::InvalidInput),
            ("sub", io::ErrorKind::IsADirectory),
            ("none", io::ErrorKind::NotFound),
        ] {
            assert_eq!(kind(name), Err(expected), "{name}");
            assert_eq!(step_by_step(name), Err(expected), "{name}, step by step");
        }
        assert!(open_file(&root.join("pipe")).is_err() && open_file(&root.join("file")).is_ok());
        let large = File::create(root.join("large")).unwrap();
        large.set_len(101).unwrap();
        assert_eq!(kind("large"), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(read_within(&root, &dir.path().join("secret"), 100).unwrap(), b"secret");
    }

    fn project_with_links() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        symlink("..", root.join("out")).unwrap();
        symlink("sub", root.join("in")).unwrap();
        symlink("../secret", root.join("link")).unwrap();
        (dir, root)
    }

    #[test]
    fn write_refuses_directory_outside_project() {
        let (_dir, root) = project_with_links();
        for name in ["file", "sub/file", "in/file", "new/deep/file", "link"] {
            assert!(check_inside(&root, &root.join(name)).is_ok(), "{name}");
        }
        for name in ["out/file", "out/new/file"] {
            let err = check_inside(&root, &root.join(name)).unwrap_err();
            assert_eq!(err.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert!(resolve_within(&root, &root.join("link")).is_err());
        symlink("in/new", root.join("good")).unwrap();
        assert_eq!(resolve_within(&root, &root.join("good")).unwrap(), root.join("in/new"));
    }
}
