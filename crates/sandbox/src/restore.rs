//! Restores files where the backend cannot protect them.
//!
//! Restore points are saved to disk, for the next ralph if this one is killed. No link is followed:
//! the agent may have replaced a directory by one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::places::RALPH_STATE_PATHS;
use super::plan::{Mount, PathGuard, SandboxPlan};
use super::quarantine::restore_guards;
use super::{SandboxTrace, platform};
use ralph_store::dir_handle::{describe, enter, move_aside, open_dir, opened_up};
use ralph_store::safe_fs;
use ralph_store::save::save_without_sync;

const MAX_ENTRIES: usize = 500;
const MAX_BYTES: usize = 8 << 20;

/// A file, or a directory with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RestorePoint {
    path: PathBuf,
    /// By relative path; parents come first.
    things: BTreeMap<PathBuf, SavedEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SavedEntry {
    Directory { mode: u32 },
    Link(PathBuf),
    Text { mode: u32, text: String },
    Bytes { mode: u32, bytes: Vec<u8> },
}

impl RestorePoint {
    /// `None` if it is too large or unreadable.
    pub(super) fn capture(path: &Path) -> Option<RestorePoint> {
        let mut point = RestorePoint { path: path.to_owned(), things: BTreeMap::new() };
        point.collect(Path::new(""), &mut 0)?;
        Some(point)
    }

    fn collect(&mut self, below: &Path, bytes: &mut usize) -> Option<()> {
        let path = if below == Path::new("") { self.path.clone() } else { self.path.join(below) };
        let meta = fs::symlink_metadata(&path).ok()?;
        let mode = meta.permissions().mode() & 0o7777;
        let entry = if meta.is_dir() {
            SavedEntry::Directory { mode }
        } else if meta.is_symlink() {
            SavedEntry::Link(fs::read_link(&path).ok()?)
        } else if meta.is_file() {
            let mut content = Vec::new();
            let file = safe_fs::open_file(&path).ok()?;
            file.take(MAX_BYTES as u64 + 1).read_to_end(&mut content).ok()?;
            *bytes += content.len();
            match String::from_utf8(content) {
                Ok(text) => SavedEntry::Text { mode, text },
                Err(err) => SavedEntry::Bytes { mode, bytes: err.into_bytes() },
            }
        } else {
            return None;
        };
        self.things.insert(below.to_owned(), entry);
        if self.things.len() > MAX_ENTRIES || *bytes > MAX_BYTES {
            return None;
        }
        if meta.is_dir() {
            for entry in fs::read_dir(&path).ok()? {
                self.collect(&below.join(entry.ok()?.file_name()), bytes)?;
            }
        }
        Some(())
    }

    pub(super) fn restore(&self) -> Option<SandboxTrace> {
        match self.restore_entries() {
            Ok(trace) => trace,
            Err(err) => Some(SandboxTrace::NotRestored(self.path.clone(), describe(err))),
        }
    }

    fn restore_entries(&self) -> Result<Option<SandboxTrace>, Errno> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(None);
        };
        let dir = create_dir(parent)?;
        if RestorePoint::capture(&self.path).is_some_and(|now| now == *self) {
            return Ok(None);
        }
        let trace = match move_aside(&dir, &self.path, name) {
            Ok(to) => SandboxTrace::Quarantined(to),
            Err(Errno::NOENT) => SandboxTrace::Restored(self.path.clone()),
            Err(err) => return Err(err),
        };
        for (below, entry) in &self.things {
            let mut dir = rustix::io::fcntl_dupfd_cloexec(&dir, 0)?;
            let mut name = name;
            for part in below.components() {
                dir = enter(&dir, name)?;
                name = part.as_os_str();
            }
            opened_up(&dir, || create_entry(&dir, name, entry))?;
        }
        Ok(Some(trace))
    }
}

fn create_entry(dir: &OwnedFd, name: &OsStr, entry: &SavedEntry) -> Result<(), Errno> {
    let (mode, content) = match entry {
        SavedEntry::Directory { mode } => {
            return rustix::fs::mkdirat(dir, name, platform::mode_from(*mode | 0o700));
        }
        SavedEntry::Link(to) => return rustix::fs::symlinkat(to, dir, name),
        SavedEntry::Text { mode, text } => (mode, text.as_bytes()),
        SavedEntry::Bytes { mode, bytes } => (mode, bytes.as_slice()),
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(file);
    let written = file.write_all(content);
    written.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::IO))?;
    rustix::fs::fchmod(&file, platform::mode_from(*mode))
}

/// Follows no links; creates missing parts.
fn create_dir(path: &Path) -> Result<OwnedFd, Errno> {
    match open_dir(path) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let mut dir = open_dir(Path::new("/"))?;
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        dir = match enter(&dir, name) {
            Err(Errno::NOENT) => {
                opened_up(&dir, || rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)))?;
                enter(&dir, name)?
            }
            other => other?,
        };
    }
    Ok(dir)
}

/// A directory with protected content, identified by its inode.
#[derive(Debug)]
struct SavedDir {
    path: PathBuf,
    identity: (u64, u64),
}

impl SavedDir {
    fn of(path: &Path) -> Option<SavedDir> {
        let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
        Some(SavedDir { path: path.to_owned(), identity: (meta.dev(), meta.ino()) })
    }

    pub(super) fn restore(&self) -> Option<SandboxTrace> {
        let (parent, name) = (self.path.parent()?, self.path.file_name()?);
        let dir = open_dir(parent).ok()?;
        if fs::symlink_metadata(&self.path).is_ok() {
            return None;
        }
        let mut others = fs::read_dir(parent).ok()?.flatten().map(|entry| entry.path());
        let now = others
            .find(|other| SavedDir::of(other).is_some_and(|now| now.identity == self.identity))?;
        opened_up(&dir, || {
            rustix::fs::renameat(&dir, now.file_name().unwrap_or_default(), &dir, name)
        })
        .ok()?;
        Some(SandboxTrace::Restored(self.path.clone()))
    }
}

/// Protected paths as they were before an agent ran, for backends that may fail to protect them.
#[derive(Debug)]
pub(super) struct SavedPaths {
    points: Vec<RestorePoint>,
    dirs: Vec<SavedDir>,
}

impl SavedPaths {
    /// Saves them also to `file`. The second value lists what is too large.
    pub(super) fn capture(
        plan: &SandboxPlan,
        file: &Path,
    ) -> io::Result<(SavedPaths, Vec<PathBuf>)> {
        let (points, too_large) = save_protected(plan, &plan.project);
        save_restore_points(&points, file)?;
        let dirs = plan.guards.iter().filter_map(|guard| SavedDir::of(&guard.path)).collect();
        Ok((SavedPaths { points, dirs }, too_large))
    }

    pub(super) fn restore(&self, guards: &[PathGuard]) -> Vec<SandboxTrace> {
        let mut traces = restore_guards(guards);
        traces.extend(self.dirs.iter().filter_map(SavedDir::restore));
        // Again, for what has just come back.
        for trace in restore_guards(guards) {
            if !traces.contains(&trace) {
                traces.push(trace);
            }
        }
        traces.extend(self.points.iter().filter_map(RestorePoint::restore));
        traces
    }
}

/// The second list is too large to save.
fn save_protected(plan: &SandboxPlan, project: &Path) -> (Vec<RestorePoint>, Vec<PathBuf>) {
    // ralph's own files change during a run.
    let is_protected = |path: &&Path| !RALPH_STATE_PATHS.iter().any(|state| path.ends_with(state));
    let (mut saved, mut too_large) = (Vec::new(), Vec::new());
    for path in plan.protected(project).filter(is_protected) {
        // A worktree's own directory is among those of the others.
        let is_open = |path: &Path| {
            let inside =
                |mount: &Mount| matches!(mount, Mount::Writable { at, .. } if at.starts_with(path));
            plan.mounts.iter().any(inside)
        };
        let parts = if is_open(path) {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|part| !is_open(part)).collect()
        } else {
            vec![path.to_owned()]
        };
        for part in parts {
            match RestorePoint::capture(&part) {
                Some(part) => saved.push(part),
                None => too_large.push(part),
            }
        }
    }
    (saved, too_large)
}

pub(super) fn save_restore_points(points: &[RestorePoint], path: &Path) -> io::Result<()> {
    save_without_sync(path, &serde_json::to_vec(points)?)
}

/// `present` maps a saved path to its current one.
pub(super) fn restore_from_file(
    path: &Path,
    present: impl Fn(&Path) -> PathBuf,
) -> Vec<SandboxTrace> {
    let points = fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Vec<RestorePoint>>(&bytes).ok());
    let points = points.into_iter().flatten();
    points
        .filter_map(|point| RestorePoint { path: present(&point.path), ..point }.restore())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn saved_dir() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        (temp, dir)
    }

    #[test]
    fn changed_protected_files_are_restored() {
        let (_temp, dir) = saved_dir();
        let hooks = dir.join("hooks");
        fs::create_dir_all(hooks.join("more")).unwrap();
        fs::write(hooks.join("more/mine"), "as it was").unwrap();
        fs::set_permissions(hooks.join("more/mine"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("../shared/pre-push", hooks.join("pre-push")).unwrap();
        fs::write(dir.join("config"), b"as it was\xff").unwrap();
        let saved = [
            RestorePoint::capture(&hooks).unwrap(),
            RestorePoint::capture(&dir.join("config")).unwrap(),
        ];
        assert!(saved.iter().all(|saved| saved.restore().is_none()));
        fs::write(hooks.join("pre-commit"), "evil").unwrap();
        fs::write(dir.join("config"), "evil").unwrap();
        let aside =
            |name: &str| Some(SandboxTrace::Quarantined(dir.join(format!("{name}.from-sandbox"))));
        assert_eq!(saved[0].restore(), aside("hooks"));
        save_restore_points(&saved, &dir.join("kept.json")).unwrap();
        assert_eq!(
            restore_from_file(&dir.join("kept.json"), Path::to_owned),
            [aside("config").unwrap()]
        );
        assert_eq!(fs::read(dir.join("config")).unwrap(), b"as it was\xff");
        assert_eq!(fs::read_to_string(hooks.join("more/mine")).unwrap(), "as it was");
        assert!(!hooks.join("pre-commit").exists());
        assert_eq!(fs::read_link(hooks.join("pre-push")).unwrap(), Path::new("../shared/pre-push"));
        assert_eq!(RestorePoint::capture(&hooks).as_ref(), Some(&saved[0]), "modes and all");
        fs::remove_dir_all(&hooks).unwrap();
        assert_eq!(saved[0].restore(), Some(SandboxTrace::Restored(hooks.clone())));
        assert!(hooks.join("more/mine").exists());
    }

    #[test]
    fn restore_does_not_write_through_link() {
        let (_temp, dir) = saved_dir();
        fs::create_dir(dir.join(".git")).unwrap();
        fs::write(dir.join(".git/config"), "as it was").unwrap();
        let saved = RestorePoint::capture(&dir.join(".git/config")).unwrap();
        let saved_dir = SavedDir::of(&dir.join(".git")).unwrap();
        fs::create_dir(dir.join("users")).unwrap();
        fs::write(dir.join("users/config"), "mine").unwrap();
        fs::rename(dir.join(".git"), dir.join("old")).unwrap();
        symlink(dir.join("users"), dir.join(".git")).unwrap();
        assert!(saved.restore().is_some_and(|trace| trace.is_not_restored()));
        assert_eq!(fs::read_to_string(dir.join("users/config")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.join("users")).unwrap().count(), 1);
        // Without the link, the directory is found or created again.
        fs::remove_file(dir.join(".git")).unwrap();
        assert_eq!(saved_dir.restore(), Some(SandboxTrace::Restored(dir.join(".git"))));
        assert_eq!(saved_dir.restore(), None);
        assert_eq!(saved.restore(), None);
        fs::remove_dir_all(dir.join(".git")).unwrap();
        assert_eq!(saved_dir.restore(), None);
        assert_eq!(saved.restore(), Some(SandboxTrace::Restored(dir.join(".git/config"))));
        assert_eq!(fs::read_to_string(dir.join(".git/config")).unwrap(), "as it was");
    }

    #[test]
    fn oversized_file_is_not_saved_for_restore() {
        let (_temp, dir) = saved_dir();
        fs::write(dir.join("large"), vec![b'x'; MAX_BYTES + 1]).unwrap();
        assert_eq!(RestorePoint::capture(&dir.join("large")), None);
        assert_eq!(RestorePoint::capture(&dir.join("absent")), None);
    }
}
