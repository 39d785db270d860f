//! Users of a lock file, found in `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::super::LockUsers;

/// Its inode number is fixed.
const ROOT_PID_NAMESPACE: &str = "pid:[4026531836]";

const MAX_DEPTH: usize = 256;

const OVERLAY_MAGIC: i64 = 0x794c_7630;

/// ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs, eCryptfs.
const LOCAL_FILE_SYSTEMS: [i64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    OVERLAY_MAGIC,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0xf15f,
];

/// `None` if unknown, as without `/proc`.
pub(crate) fn find_visibility(file: &Path) -> Option<bool> {
    let kind = |path: &Path| {
        let kind = rustix::fs::statfs(path).ok()?.f_type;
        #[allow(
            clippy::unnecessary_cast,
            reason = "it is an i64 here and narrower on other processors"
        )]
        Some(kind as i64 & 0xffff_ffff)
    };
    if !LOCAL_FILE_SYSTEMS.contains(&kind(file)?) {
        return Some(false);
    }
    if Path::new("/proc/self/ns/pid").read_link().ok()?.as_os_str() == ROOT_PID_NAMESPACE {
        return Some(true);
    }
    // Mounts in a container may be shared with the host.
    let root = Path::new("/");
    let device = |path: &Path| path.symlink_metadata().ok().map(|meta| meta.dev());
    Some(kind(root)? == OVERLAY_MAGIC && device(root)? == device(file)?)
}

pub(crate) fn find_use(lock: &Path, users: &LockUsers<'_>) -> Option<bool> {
    if !find_visibility(lock)? {
        return Some(true);
    }
    let lock = lock.symlink_metadata().ok()?;
    // Other users' processes do not show their open files.
    if lock.uid() != rustix::process::geteuid().as_raw() {
        return Some(true);
    }
    let is_it = |file: &std::fs::Metadata| (file.dev(), file.ino()) == (lock.dev(), lock.ino());
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let process = process.path();
        if is_user(&process, users) {
            return Some(true);
        }
        let open = process.join("fd").read_dir().into_iter().flatten().flatten();
        if open.filter_map(|file| file.path().metadata().ok()).any(|file| is_it(&file)) {
            return Some(true);
        }
    }
    Some(false)
}

fn is_user(process: &Path, users: &LockUsers<'_>) -> bool {
    let read = |name: &str| std::fs::read(process.join(name)).unwrap_or_default();
    let name = read("comm");
    let rest = name.trim_ascii().strip_prefix(users.program.as_bytes());
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-")) {
        return false;
    }
    // A zombie has no command line.
    let line = read("cmdline");
    let mut words = line.split(|byte| *byte == 0);
    if line.is_empty()
        || words.any(|word| users.idle_programs.iter().any(|it| word == it.as_bytes()))
    {
        return false;
    }
    let variables = std::fs::read(process.join("environ")).ok();
    let Some((variables, is_inside)) =
        variables.zip(is_inside_dir(&process.join("cwd"), users.directories))
    else {
        // Unreadable counts as a user, unless it has exited.
        return !read("cmdline").is_empty();
    };
    let mut words = line.split(|byte| *byte == 0).chain(variables.split(|byte| *byte == 0));
    is_inside
        || words.any(|word| users.location_flags.iter().any(|it| word.starts_with(it.as_bytes())))
}

/// Compares by inode: paths differ in containers.
fn is_inside_dir(directory: &Path, dirs: &[PathBuf]) -> Option<bool> {
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let dirs: Vec<_> = dirs.iter().filter_map(|dir| identity(dir)).collect();
    let mut ancestor = directory.to_owned();
    let mut last = None;
    for _ in 0..MAX_DEPTH {
        let this = identity(&ancestor)?;
        if dirs.contains(&this) {
            return Some(true);
        }
        if last.replace(this) == Some(this) {
            return Some(false);
        }
        ancestor.push("..");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_containment_follows_links() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
        let dirs = |name: &str| vec![dir.path().join(name)];
        assert_eq!(is_inside_dir(&deep, &dirs("link")), Some(true));
        assert_eq!(is_inside_dir(&link.join("b"), &dirs("a")), Some(true));
        assert_eq!(is_inside_dir(&deep, &dirs("a/b/c")), Some(true));
        assert_eq!(is_inside_dir(&deep, &[dirs("a/b/c/d"), dirs("x")].concat()), Some(false));
        assert_eq!(is_inside_dir(&dir.path().join("gone"), &dirs("a")), None);
    }

    #[test]
    fn process_visibility_depends_on_file_system() {
        let all =
            Path::new("/proc/self/ns/pid").read_link().unwrap().as_os_str() == ROOT_PID_NAMESPACE;
        assert_eq!(find_visibility(Path::new("/dev/shm")), Some(all));
        assert_eq!(find_visibility(Path::new("/proc")), Some(false));
        assert_eq!(find_visibility(Path::new("/proc/none")), None);
    }

    #[test]
    fn lock_is_free_only_without_possible_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.lock");
        let nobody = LockUsers {
            program: "no-such-scm",
            directories: &[],
            location_flags: &[],
            idle_programs: &[],
        };
        let held = |users: &LockUsers<'_>| find_use(&path, users);
        assert_eq!(held(&nobody), None, "no such lock");
        let open = std::fs::File::create(&path).unwrap();
        if find_visibility(&path) == Some(false) {
            return assert_eq!(held(&nobody), Some(true), "unknown users");
        }
        assert_eq!(held(&nobody), Some(true), "open in this process");
        drop(open);
        assert_eq!(held(&nobody), Some(false));
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        let (cwd, first) = (std::env::current_dir().unwrap(), std::env::args().next().unwrap());
        let us = LockUsers { program: name.trim(), directories: &[cwd], ..nobody };
        assert_eq!(held(&us), Some(true));
        assert_eq!(held(&LockUsers { idle_programs: &[&first], ..us }), Some(false));
        let elsewhere = LockUsers { directories: &[dir.path().to_owned()], ..us };
        assert_eq!(held(&elsewhere), Some(false));
        assert_eq!(held(&LockUsers { location_flags: &["PATH="], ..elsewhere }), Some(true));
    }
}
