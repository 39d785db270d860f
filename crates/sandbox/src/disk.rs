//! The real file system, for plans.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::plan::{Disk, PathInfo};

/// Larger files are not read.
const MAX_TEXT: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn stat(&self, path: &Path) -> Option<PathInfo> {
        let real = path.canonicalize().ok()?;
        let is_dir = real.metadata().ok()?.is_dir();
        Some(PathInfo { real, is_dir })
    }

    fn read_link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn read(&self, path: &Path) -> Option<String> {
        let mut text = String::new();
        ralph_store::safe_fs::open_file(path)
            .ok()?
            .take(MAX_TEXT)
            .read_to_string(&mut text)
            .ok()?;
        Some(text)
    }

    fn list_names(&self, directory: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn is_accessible(&self, path: &Path) -> bool {
        use rustix::fs::{Access, AtFlags, CWD};
        let may = |access| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
        may(Access::READ_OK) || may(Access::EXEC_OK)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let Ok(table) = std::fs::read("/proc/net/unix") else { return Vec::new() };
        sockets(&table).chain(open_pipes()).filter_map(|path| path.canonicalize().ok()).collect()
    }
}

/// Named pipes that this user's processes have open.
fn open_pipes() -> impl Iterator<Item = PathBuf> {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let processes = entries(Path::new("/proc")).map(|process| process.path().join("fd"));
    processes.flat_map(move |descriptors| entries(&descriptors)).filter_map(|descriptor| {
        let path = std::fs::read_link(descriptor.path()).ok()?;
        let is_named = path.is_absolute() && !path.starts_with("/dev");
        let is_pipe = || path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_fifo());
        (is_named && is_pipe()).then_some(path)
    })
}

/// The paths in `/proc/net/unix`, which has a header line.
fn sockets(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    const COLUMNS_BEFORE_PATH: usize = 7;
    table.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let mut rest = line;
        for _ in 0..COLUMNS_BEFORE_PATH {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ')?;
            rest = rest.get(end..)?;
        }
        let path = Path::new(OsStr::from_bytes(rest.get(1..)?));
        path.is_absolute().then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_parsed_from_kernel_table() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20537 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03   537\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20538 @/tmp/abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20539 relative\n";
        let found: Vec<PathBuf> = sockets(table).collect();
        assert_eq!(found, [Path::new("/run/a b.sock")]);
    }
}
