//! Files of a project, where an agent may have put a link, a pipe or a device in the place of anything.
//!
//! ralph is outside of every sandbox: what it follows and waits for is what an agent could not have. That holds
//! for every command, since a sandbox of today does not undo what the agent of a run before has left.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use super::save;

const LINK_LEADS_OUT: &str = "it is a link to something outside of the project";

/// Opens a file to read it, whatever has its name: what is no file (a pipe would never end) is not read.
///
/// # Errors
/// What the file system said; `InvalidInput` for what is no file, `IsADirectory` for a directory.
pub fn open_file(path: &Path) -> io::Result<File> {
    require_regular_file(
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?,
    )
}

/// The same for a path in `root`, from which no link leads out of it.
///
/// # Errors
/// As above; `PermissionDenied` for a link that leads out.
pub fn open_within(root: &Path, path: &Path) -> io::Result<File> {
    let Ok(below) = path.strip_prefix(root) else { return open_file(path) };
    require_regular_file(open_beneath(root, below)?)
}

/// Opens a file of ralph's own, which is no link, pipe or device that an agent has put in its place.
pub(super) fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    require_regular_file(options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?)
}

/// Reads a regular file that is no link, but no more than `most` bytes of it.
///
/// # Errors
/// What the file system said; `FileTooLarge` if there is more.
pub fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_limited(open_own(OpenOptions::new().read(true), path)?, most)
}

/// Whether a file that is open still has this name.
pub fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => identity(&ours) == identity(&there),
        _ => false,
    }
}

/// Reads a file in `root`, but no more than `most` bytes of it.
///
/// # Errors
/// As [`open`]; `FileTooLarge` if there is more.
pub fn read_within(root: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_limited(open_within(root, path)?, most)
}

/// What is in a file, if that is no more than `most` bytes.
///
/// # Errors
/// What the file system said; `FileTooLarge` if there is more.
pub fn read_limited(file: File, most: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let message =
            format!("it has {} MB, and more than {} are not read", size >> 20, most >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    };
    let size = file.metadata()?.len();
    if size > most {
        return too_large(size);
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { too_large(bytes.len() as u64) } else { Ok(bytes) }
}

/// Says no to writing at a path in `root` if the directory that it is in is elsewhere, by a link. (The last name of
/// the path is not looked at: what is saved there takes the place of a link.)
///
/// # Errors
/// `PermissionDenied` if it leads out of `root`, or what the file system said.
pub fn check_inside(root: &Path, path: &Path) -> io::Result<()> {
    // Somebody has named it.
    let Ok(below) = path.strip_prefix(root) else { return Ok(()) };
    // Asked after each iteration, when mostly there is no link at all.
    if is_link_free(root, below.parent().unwrap_or(Path::new(""))) {
        return Ok(());
    }
    let Some(there) = path.ancestors().skip(1).find(|directory| directory.exists()) else {
        return Ok(());
    };
    if there.canonicalize()?.starts_with(root.canonicalize()?) {
        return Ok(());
    }
    let message = format!("{} is a link to something outside of the project", there.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Whether nothing on the way from `root` is a link, as far as it is there.
fn is_link_free(root: &Path, below: &Path) -> bool {
    let mut place = root.to_owned();
    for part in below.components() {
        if !matches!(part, Component::Normal(_)) {
            return false;
        }
        place.push(part);
        match place.symlink_metadata() {
            Ok(meta) if !meta.is_symlink() => {}
            Err(err) if err.kind() == io::ErrorKind::NotFound => return true,
            _ => return false,
        }
    }
    true
}

/// The file that a path in `root` leads to by symbolic links, there or not, if that is in `root` as well. See
/// [`save::followed`].
///
/// # Errors
/// `PermissionDenied` if it leads out of `root`, or what the file system said.
pub fn resolve_within(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let end = save::resolve_link(path)?;
    let directory = end.parent().unwrap_or(root);
    if !path.starts_with(root) || directory.canonicalize()?.starts_with(root.canonicalize()?) {
        return Ok(end);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
}

/// Makes a new file of the user's only at a path in `root`, with the directories on the way to it. No link is followed, whoever puts
/// one there meanwhile.
///
/// # Errors
/// What the file system said: `AlreadyExists` if there is one.
pub fn make(root: &Path, path: &Path) -> io::Result<File> {
    Place::make(root, path)?.create(0o600)
}

/// The same for a file with this in it that others may read; there is none if not all of it fits.
///
/// # Errors
/// As above.
pub fn make_whole(root: &Path, path: &Path, text: &str) -> io::Result<()> {
    let place = Place::make(root, path)?;
    place.create(0o666)?.write_all(text.as_bytes()).inspect_err(|_| place.remove())
}

/// Gives a file a name in `root` in the same way, beside the one that it has elsewhere.
///
/// # Errors
/// As above, or they are not on the same file system.
pub fn make_link(root: &Path, path: &Path, file: &Path) -> io::Result<()> {
    let Place { directory, name } = Place::make(root, path)?;
    let flags = rustix::fs::AtFlags::empty();
    Ok(rustix::fs::linkat(rustix::fs::CWD, file, &directory, &*name, flags)?)
}

/// Makes a file in the same way that has its name, whoever had that before, only once it has been filled.
///
/// # Errors
/// As above, or what filling it came to. Nothing is changed then.
pub fn make_filled(
    root: &Path,
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<File> {
    let place = Place::make(root, path)?;
    let mut unnamed = OsString::from(".");
    unnamed.push(&place.name);
    unnamed.push(".new");
    let unnamed = Place { directory: place.directory.try_clone()?, name: unnamed };
    unnamed.remove();
    let mut file = unnamed.create(0o600)?;
    let filled = fill(&mut file).and_then(|()| {
        let (from, to) = (&unnamed, &place);
        Ok(rustix::fs::renameat(&from.directory, &*from.name, &to.directory, &*to.name)?)
    });
    filled.inspect_err(|_| unnamed.remove())?;
    Ok(file)
}

/// A name in a directory that is held open: whatever becomes of the way there, it is the same one.
struct Place {
    directory: File,
    name: OsString,
}

impl Place {
    /// Makes the directories on the way from `root`, by no link.
    fn make(root: &Path, path: &Path) -> io::Result<Place> {
        use rustix::fs::{Mode, OFlags};
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it is not in the project");
        let below = path.strip_prefix(root).map_err(|_| outside())?;
        let mut parts: Vec<_> = below.components().collect();
        if !parts.iter().all(|part| matches!(part, Component::Normal(_))) {
            return Err(outside());
        }
        let name = parts.pop().ok_or_else(outside)?.as_os_str().to_owned();
        let mut directory = File::open(root)?;
        for (depth, part) in parts.into_iter().enumerate() {
            // `.ralph` is shared by version control; what is below it is for the user only.
            let mode = Mode::from_raw_mode(if depth == 0 { 0o777 } else { 0o700 });
            match rustix::fs::mkdirat(&directory, part.as_os_str(), mode) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(err) => return Err(err.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            directory =
                rustix::fs::openat(&directory, part.as_os_str(), flags, Mode::empty())?.into();
        }
        Ok(Place { directory, name })
    }

    fn create(&self, mode: u32) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags};
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::openat(&self.directory, &*self.name, flags, mode)?.into())
    }

    fn remove(&self) {
        // What stays is what was there for a moment anyway.
        let _ = rustix::fs::unlinkat(&self.directory, &*self.name, rustix::fs::AtFlags::empty());
    }
}

fn require_regular_file(file: File) -> io::Result<File> {
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Where a path leads that is in `root`, by links that lead somewhere in there.
fn resolve_path(root: &Path, below: &Path) -> io::Result<PathBuf> {
    let root = root.canonicalize()?;
    let real = root.join(below).canonicalize()?;
    let below = real.strip_prefix(&root).map(Path::to_owned);
    below.map_err(|_| io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
}

#[cfg(target_os = "linux")]
fn open_beneath(root: &Path, below: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let directory = File::open(root)?;
    let open = |below: &Path| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&directory, below, flags, Mode::empty(), resolve)
    };
    match open(below) {
        Ok(file) => Ok(file.into()),
        // A kernel before 5.6, or a sandbox, ralph's own among them: an agent in there may use ralph, too.
        Err(rustix::io::Errno::NOSYS) => open_stepwise(root, below),
        // By way of a link that begins at the top of everything one can come back.
        Err(rustix::io::Errno::XDEV) => match open(&resolve_path(root, below)?) {
            Ok(file) => Ok(file.into()),
            Err(rustix::io::Errno::XDEV) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, LINK_LEADS_OUT))
            }
            Err(err) => Err(err.into()),
        },
        Err(err) => Err(err.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn beneath(root: &Path, below: &Path) -> io::Result<File> {
    open_stepwise(root, below)
}

/// Finds out where a path leads, and opens that, where the system cannot do both at once.
fn open_stepwise(root: &Path, below: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let path = root.canonicalize()?.join(resolve_path(root, below)?);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
    // Somebody may have put a link there in between.
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
        // What somebody names by another path is theirs.
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
    fn create_refuses_paths_through_links() {
        let (dir, root) = project_with_links();
        for name in ["file", "sub/file", "new/deep/file"] {
            make(&root, &root.join(name)).unwrap();
            assert!(root.join(name).is_file(), "{name}");
        }
        for name in ["file", "out/file", "in/new/file", "link", "", "../file", "file/x"] {
            make(&root, &root.join(name)).unwrap_err();
        }
        make(&root, Path::new("/elsewhere")).unwrap_err();
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
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
