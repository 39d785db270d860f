//! Creates the mounts of a plan, in place of bubblewrap.
//!
//! Bubblewrap rereads the list of all mounts for each new one, which dominates its startup.
//! [`main`] creates them in its own namespaces and then becomes bubblewrap. This is also a second
//! barrier: nothing inside can remove mounts made outside bubblewrap's namespaces.
//!
//! Where this fails (before Linux 5.12, or if only bubblewrap may create namespaces), bubblewrap
//! creates the mounts.

use std::ffi::{CString, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

use crate::inner_exec;
use crate::plan::{IsolationLayers, Mount, SandboxPlan};

/// The internal subcommand.
pub const COMMAND: &str = "__mounts";

const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// `terminal` is a descriptor to show inside.
pub(super) fn arguments(plan: &SandboxPlan, terminal: Option<i32>) -> Vec<OsString> {
    let IsolationLayers { users, files, .. } = plan.isolation;
    let mut words: Vec<OsString> = Vec::new();
    for (wall, name) in [(users, "users"), (files, "files")] {
        words.extend(wall.then(|| name.into()));
    }
    let terminal = terminal.map(|terminal| terminal.to_string().into());
    words.extend(terminal.into_iter().flat_map(|number| ["terminal".into(), number]));
    for mount in &plan.mounts {
        match mount {
            Mount::ReadOnly { from, at } => words.extend(["read".into(), from.into(), at.into()]),
            Mount::Writable { from, at } => words.extend(["write".into(), from.into(), at.into()]),
            Mount::EmptyDir { at } => words.extend(["directory".into(), at.into()]),
            Mount::EmptyFile { at } => words.extend(["file".into(), at.into()]),
        }
    }
    words.extend(plan.closed_dirs().flat_map(|at| ["close".into(), at.into()]));
    words.push("--".into());
    words
}

#[derive(Debug, Default, PartialEq, Eq)]
struct MountArgs {
    users: bool,
    files: bool,
    terminal: Option<String>,
    mounts: Vec<Mount>,
    closed: Vec<PathBuf>,
}

impl MountArgs {
    fn parse(words: &[OsString]) -> Option<(MountArgs, &[OsString])> {
        let mut parsed = MountArgs::default();
        let mut words = words.iter();
        loop {
            let word = words.next()?.to_str()?;
            let mut path = || words.next().map(PathBuf::from);
            match word {
                "--" => return Some((parsed, words.as_slice())),
                "users" => parsed.users = true,
                "files" => parsed.files = true,
                "terminal" => parsed.terminal = Some(words.next()?.to_str()?.to_owned()),
                "read" => parsed.mounts.push(Mount::ReadOnly { from: path()?, at: path()? }),
                "write" => parsed.mounts.push(Mount::Writable { from: path()?, at: path()? }),
                "directory" => parsed.mounts.push(Mount::EmptyDir { at: path()? }),
                "file" => parsed.mounts.push(Mount::EmptyFile { at: path()? }),
                "close" => parsed.closed.push(path()?),
                _ => return None,
            }
        }
    }
}

/// Sets up the mounts and executes the program. Returns only on failure.
pub fn main(args: &[OsString]) -> u8 {
    let Some((mount_args, [program, args @ ..])) = MountArgs::parse(args) else {
        return inner_exec::print_failure("internal command of ralph, to set up a sandbox");
    };
    match apply_mounts(&mount_args) {
        Ok(()) => inner_exec::exec_with(program, args, &[]),
        Err((context, err)) => inner_exec::print_failure(&format!("{context}: {err}")),
    }
}

type MountError = (String, io::Error);

fn mount_error<E: Into<io::Error>>(context: impl Into<String>) -> impl FnOnce(E) -> MountError {
    let context = context.into();
    move |err| (context, err.into())
}

fn apply_mounts(mount_args: &MountArgs) -> Result<(), MountError> {
    unshare(mount_args.users).map_err(mount_error("cannot create namespaces"))?;
    // Later mounts of the machine would be writable here.
    let private = MountAttributes { propagation: libc::MS_PRIVATE, ..MountAttributes::default() };
    set_attributes(CWD, Path::new("/"), RECURSIVE, &private).map_err(mount_error("/"))?;
    // Open all sources before a mount covers them.
    let sources = mount_args.mounts.iter().map(open_source).collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<(PathBuf, OwnedFd)> = DEVICES
        .iter()
        .map(PathBuf::from)
        .filter_map(|device| Some((device.clone(), clone_mount(&device).ok()?)))
        .chain(mount_args.terminal.as_deref().and_then(find_terminal))
        .collect();
    let mut all = MountAttributes::READ_ONLY_ATTRIBUTES;
    if !mount_args.files {
        all.set &= !READ_ONLY;
    }
    set_attributes(CWD, Path::new("/"), RECURSIVE, &all).map_err(mount_error("/"))?;
    // Bubblewrap writes to `/proc`, and can mount a new one only if this one is not more
    // restricted.
    let open = MountAttributes { clear: READ_ONLY, ..MountAttributes::default() };
    set_attributes(CWD, Path::new("/proc"), 0, &open).map_err(mount_error("/proc"))?;
    for (mount, source) in mount_args.mounts.iter().zip(sources) {
        let at = mount.at();
        attach(mount, source).map_err(mount_error(format!("cannot mount {}", at.display())))?;
    }
    for at in &mount_args.closed {
        let closed = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
        set_attributes(CWD, at, 0, &closed).map_err(mount_error(at.display().to_string()))?;
    }
    make_devices(devices).map_err(mount_error("/dev"))
}

/// Without a user namespace, only root may leave the mount namespace.
fn unshare(users: bool) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let flags = if users { UnshareFlags::NEWUSER } else { UnshareFlags::empty() };
    #[expect(unsafe_code, reason = "it would be a danger to threads, of which there is one")]
    // SAFETY: descriptors stay shared, and there is one thread.
    unsafe {
        rustix::thread::unshare_unsafe(flags | UnshareFlags::NEWNS)?;
    }
    if users {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    Ok(())
}

/// Opens an absolute path without links: an agent may have put one there since the sandbox was
/// planned.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` for a link.
pub(super) fn open_unlinked(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open("/", dir_flags, Mode::empty())?;
    let mut parts = path.components().filter(|part| *part != Component::RootDir).peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let is_last = parts.peek().is_none();
        let flags = if is_last { flags | OFlags::NOFOLLOW | OFlags::CLOEXEC } else { dir_flags };
        dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
    }
    // `O_PATH` opens a final link instead of failing.
    if FileType::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode) == FileType::Symlink {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    Ok(dir)
}

pub(super) fn is_unlinked(path: &Path) -> bool {
    open_unlinked(path, OFlags::PATH).is_ok()
}

fn clone_mount(path: &Path) -> io::Result<OwnedFd> {
    let source = open_unlinked(path, OFlags::PATH)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(source, "", flags)?)
}

fn open_source(mount: &Mount) -> Result<Option<OwnedFd>, MountError> {
    let from = match mount {
        Mount::ReadOnly { from, .. } | Mount::Writable { from, .. } => from,
        Mount::EmptyFile { .. } => Path::new("/dev/null"),
        Mount::EmptyDir { .. } => return Ok(None),
    };
    clone_mount(from)
        .map(Some)
        .map_err(mount_error(format!("cannot mount {} in the sandbox", from.display())))
}

fn attach(mount: &Mount, source: Option<OwnedFd>) -> io::Result<()> {
    let Some(source) = source else {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        return Ok(rustix::mount::mount("tmpfs", mount.at(), "tmpfs", flags, c"mode=0755")?);
    };
    let mut attributes = MountAttributes::READ_ONLY_ATTRIBUTES;
    if let Mount::Writable { .. } = mount {
        attributes.set &= !READ_ONLY;
    }
    set_attributes(source.as_fd(), Path::new(""), RECURSIVE | EMPTY_PATH, &attributes)?;
    attach_at(&source, mount.at())
}

/// Mounts at a path, creating it if missing. A link is not followed: its target was not planned.
fn attach_at(source: &OwnedFd, at: &Path) -> io::Result<()> {
    if fs::symlink_metadata(at).is_err() {
        let mut directories = fs::DirBuilder::new();
        directories.recursive(true).mode(0o755);
        let is_dir = rustix::fs::fstat(source)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if is_dir {
            directories.create(at)?;
        } else {
            if let Some(parent) = at.parent() {
                directories.create(parent)?;
            }
            make_file(at)?;
        }
    }
    Ok(rustix::mount::move_mount(source, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn make_file(at: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(at).map(drop)
}

fn find_terminal(terminal: &str) -> Option<(PathBuf, OwnedFd)> {
    let name = fs::read_link(Path::new("/proc/self/fd").join(terminal)).ok()?;
    Some((PathBuf::from("/dev/console"), clone_mount(&name).ok()?))
}

fn make_devices(devices: Vec<(PathBuf, OwnedFd)>) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", "/dev", "tmpfs", flags, c"mode=0755")?;
    for (at, device) in devices {
        attach_at(&device, &at)?;
    }
    for (dir, mode) in [("/dev/pts", 0o755), ("/dev/shm", 0o755)] {
        fs::DirBuilder::new().mode(mode).create(dir)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    rustix::mount::mount("devpts", "/dev/pts", "devpts", flags, options)?;
    for (to, link) in [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("/proc/kcore", "core"),
    ] {
        symlink(to, Path::new("/dev").join(link))?;
    }
    Ok(())
}

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const RECURSIVE: u32 = libc::AT_RECURSIVE as u32;
const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;

/// The kernel's `mount_attr`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

impl MountAttributes {
    const READ_ONLY_ATTRIBUTES: MountAttributes = MountAttributes {
        set: READ_ONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
}

fn set_attributes(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: u32,
    attributes: &MountAttributes,
) -> io::Result<()> {
    let path = CString::new(path.as_os_str().to_owned().into_vec())?;
    #[expect(unsafe_code, reason = "there is no safe interface to `mount_setattr`")]
    // SAFETY: the path is NUL-terminated, and the size is that of the attributes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            attributes,
            size_of::<MountAttributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn mount_orders_round_trip_through_arguments() {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let mounts = vec![
            Mount::EmptyDir { at: path(b"/run") },
            Mount::EmptyFile { at: path(b"/etc/shadow") },
            Mount::Writable { from: path(b"/no \xff utf8"), at: path(b"--") },
            Mount::ReadOnly { from: path(b"/ralph"), at: path(b"/run/ralph") },
        ];
        let plan = SandboxPlan {
            mounts: mounts.clone(),
            kernel: Vec::new(),
            copies: Vec::new(),
            files: Vec::new(),
            dirs: Vec::new(),
            guards: Vec::new(),
            env: Vec::new(),
            withheld: Vec::new(),
            network: crate::plan::NetworkMode::None,
            user: (0, 0),
            isolation: IsolationLayers { users: false, ..IsolationLayers::ALL },
            notes: Vec::new(),
            project: PathBuf::new(),
            replaceable_sources: Default::default(),
        };
        let mut words = arguments(&plan, Some(7));
        words.extend(["bwrap".into(), "--proc".into()]);
        let (users, files, closed) = (false, true, vec![path(b"/run")]);
        let terminal = Some("7".to_owned());
        let mount_args = MountArgs { users, files, terminal, mounts, closed };
        let rest = ["bwrap".into(), "--proc".into()];
        assert_eq!(MountArgs::parse(&words), Some((mount_args, rest.as_slice())));
        for nonsense in [&["read", "/a"][..], &["x", "--"], &["close"], &[]] {
            let words: Vec<OsString> = nonsense.iter().map(OsString::from).collect();
            assert_eq!(MountArgs::parse(&words), None, "{nonsense:?}");
        }
    }
}
