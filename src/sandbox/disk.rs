//! The machine as it is, for plans.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::plan::{Disk, Found};

/// Files of text that matter here are small; others are not looked at.
const MAX_TEXT: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn find(&self, path: &Path) -> Option<Found> {
        let real = path.canonicalize().ok()?;
        let is_dir = real.metadata().ok()?.is_dir();
        Some(Found { real, is_dir })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn read(&self, path: &Path) -> Option<String> {
        let mut text = String::new();
        std::fs::File::open(path).ok()?.take(MAX_TEXT).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn names(&self, directory: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn is_open(&self, path: &Path) -> bool {
        use rustix::fs::{Access, AtFlags, CWD};
        let may = |access| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
        may(Access::READ_OK) || may(Access::EXEC_OK)
    }
}
