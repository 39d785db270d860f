//! The directory of one sandbox, outside of the project: its home, its temporary files, and a note of
//! what must not appear in the project.
//!
//! A lock on the note tells whether the sandbox is still in use. What a killed ralph left behind is
//! cleaned up by the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::aside::set_aside;
use super::permissions::SavedModes;
use super::plan::{Guard, Plan};
use super::{Backend, Trace};
use crate::error::Error;
use crate::state::home::require_ralph_home;

const NOTE: &str = "sandbox.json";
/// What is put back as it was, where no mount protects it.
const KEPT: &str = "kept.json";

/// What is written down of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub backend: String,
    pub project: PathBuf,
    pub pid: u32,
    /// What must be as it was.
    pub guards: Vec<Guard>,
    /// The permissions that are restored.
    #[serde(default)]
    pub modes: SavedModes,
}

impl Note {
    pub(super) fn new(backend: Backend, project: &Path, plan: &Plan) -> Note {
        Note {
            backend: backend.name().to_owned(),
            project: project.to_owned(),
            pid: std::process::id(),
            guards: plan.guards.clone(),
            modes: SavedModes::of_plan(project, plan),
        }
    }
}

/// The directory of a sandbox, until this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    note: File,
    /// Its note is still needed.
    unfinished: bool,
}

/// A sandbox that is or was there.
#[derive(Debug)]
pub struct Listed {
    pub path: PathBuf,
    pub note: Option<Note>,
    /// Whoever made it is still there.
    pub in_use: bool,
}

/// The directory that holds the directories of all sandboxes.
///
/// # Errors
/// The user has no home.
pub fn sandboxes() -> Result<PathBuf, Error> {
    Ok(require_ralph_home(|name| std::env::var_os(name))?.join("sandboxes"))
}

impl Scratch {
    /// Makes a directory that only this user can enter.
    ///
    /// # Errors
    /// What the file system said.
    pub fn create(base: &Path) -> io::Result<Scratch> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
        let base = base.canonicalize()?;
        let dir = tempfile::Builder::new()
            .prefix("run-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(base)?;
        let mut options = OpenOptions::new();
        let note = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.path().join(NOTE))?;
        note.lock()?;
        Ok(Scratch { path: dir.keep(), note, unfinished: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where what is put back is written down.
    #[cfg(target_os = "linux")]
    pub(super) fn kept(&self) -> PathBuf {
        self.path.join(KEPT)
    }

    /// # Errors
    /// What the file system said.
    pub fn write_note(&mut self, note: &Note) -> io::Result<()> {
        self.note.write_all(&serde_json::to_vec(note)?)
    }

    /// Something that was planted could not be taken away: the next ralph has to know of it.
    pub(super) fn leave_unfinished(&mut self) {
        self.unfinished = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next one.
        let _ = if self.unfinished { empty(&self.path) } else { remove(&self.path) };
    }
}

/// All sandboxes of this user.
pub fn list(base: &Path) -> Vec<Listed> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut listed: Vec<Listed> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .map(|path| {
            let file = File::open(path.join(NOTE));
            let in_use = file.as_ref().is_ok_and(|file| file.try_lock_shared().is_err());
            let note = file.ok().and_then(|file| {
                let mut text = String::new();
                file.take(1 << 20).read_to_string(&mut text).ok()?;
                serde_json::from_str(&text).ok()
            });
            Listed { path, note, in_use }
        })
        .collect();
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    listed
}

/// What was found of a sandbox that nobody uses any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub project: PathBuf,
    pub trace: Trace,
}

/// Restores the permissions that agents of killed runs changed. To be called before a project is read: its root may
/// have become unreadable.
pub fn restore_modes(base: &Path) -> Vec<Trace> {
    let left = list(base).into_iter().filter(|listed| !listed.in_use);
    let traces = left.filter_map(|left| left.note).flat_map(|mut note| note.modes.restore());
    // Whatever cannot be restored is reported by `sweep`.
    traces.filter(|trace| !trace.is_stuck()).collect()
}

/// Puts right what killed ones left behind, and removes what is theirs. Whatever cannot be put right is found
/// again by the next one.
pub fn sweep(base: &Path) -> Vec<Left> {
    let mut found = Vec::new();
    for left in list(base).into_iter().filter(|listed| !listed.in_use) {
        let (project, traces) = match &left.note {
            Some(note) => (note.project.clone(), put_right(note, &left.path.join(KEPT))),
            None => (PathBuf::new(), Vec::new()),
        };
        let _ = if traces.iter().any(Trace::is_stuck) {
            empty(&left.path)
        } else if is_inhabited(&left.path) {
            // Whatever still runs there may go on planting.
            Ok(())
        } else {
            remove(&left.path)
        };
        found.extend(traces.into_iter().map(|trace| Left { project: project.clone(), trace }));
    }
    found
}

/// Whether something still runs in a sandbox whose ralph is gone. With namespaces nothing can.
fn is_inhabited(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let environments =
        processes.filter_map(|process| fs::read(process.path().join("environ")).ok());
    // It is where their home is.
    environments.into_iter().any(|env| env.windows(path.len()).any(|part| part == path))
}

/// Puts a project right, if it is still there.
fn put_right(note: &Note, kept: &Path) -> Vec<Trace> {
    if !note.project.is_dir() {
        return Vec::new();
    }
    note.modes.clone().restore_around(|| {
        let traces = set_aside(&note.guards);
        #[cfg(target_os = "linux")]
        let traces = traces.into_iter().chain(super::keep::restore_saved(kept)).collect();
        #[cfg(not(target_os = "linux"))]
        let _ = kept;
        traces
    })
}

/// Removes everything in the directory of a sandbox but what the next one has to know.
fn empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a directory, also if what is in it was made hard to remove.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(path);
            fs::remove_dir_all(path)
        }
    }
}

/// Makes directories below `path` such that they can be emptied.
fn open_up(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // Not through links: this is about the directory's own.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::plan::Was;

    #[test]
    fn what_a_killed_one_left_is_swept_and_what_is_in_use_stays() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let planted = base.join("config");
        let note = Note {
            backend: "bwrap".into(),
            project: base.clone(),
            pid: 1,
            guards: vec![Guard { path: planted.clone(), was: Was::Nothing }],
            modes: SavedModes::default(),
        };
        let mut used = Scratch::create(&base).unwrap();
        used.write_note(&note).unwrap();
        let mut killed = Scratch::create(&base).unwrap();
        killed.write_note(&note).unwrap();
        let hard = killed.path().join("home/hard");
        fs::create_dir_all(&hard).unwrap();
        fs::write(hard.join("file"), "").unwrap();
        fs::set_permissions(&hard, fs::Permissions::from_mode(0o000)).unwrap();
        let left = killed.path().to_owned();
        // What a kill does: the lock is gone, the directory is not.
        let Scratch { note: file, .. } = &killed;
        file.unlock().unwrap();
        fs::write(&planted, "").unwrap();
        assert_eq!(list(&base).iter().filter(|listed| listed.in_use).count(), 1);
        let trace = Trace::SetAside(base.join("config.from-sandbox"));
        assert_eq!(sweep(&base), [Left { project: base.clone(), trace }]);
        assert!(!left.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
