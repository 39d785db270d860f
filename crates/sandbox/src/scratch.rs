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
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::permissions::SavedModes;
use super::plan::{PathGuard, SandboxPlan};
use super::quarantine::restore_guards;
use super::{Backend, SandboxTrace};
use ralph_events::error::Error;
use ralph_store::home::require_ralph_home;
use ralph_store::relocation::{DirIdentity, Relocation};

const RECORD_FILE: &str = "sandbox.json";
/// What is put back as it was, where no mount protects it.
const RESTORE_FILE: &str = "kept.json";
/// The time after which a killed run is forgotten whose project is missing.
const MISSING_PROJECT_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What is written down of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchRecord {
    pub backend: String,
    pub project: PathBuf,
    pub pid: u32,
    /// What must be as it was.
    pub guards: Vec<PathGuard>,
    /// The permissions that are restored.
    #[serde(default)]
    pub modes: SavedModes,
    /// By which the project is found if it was moved.
    #[serde(default)]
    pub identity: Option<DirIdentity>,
}

impl ScratchRecord {
    pub(super) fn new(backend: Backend, project: &Path, plan: &SandboxPlan) -> ScratchRecord {
        ScratchRecord {
            backend: backend.name().to_owned(),
            project: project.to_owned(),
            pid: std::process::id(),
            guards: plan.guards.clone(),
            modes: SavedModes::for_plan(project, plan),
            identity: DirIdentity::read_at(project),
        }
    }

    /// Whether the project is not where it was: moved, removed, or on a file system that is not mounted.
    pub fn is_project_missing(&self) -> bool {
        !self.project.is_dir()
            || self.identity.is_some_and(|identity| identity.is_gone_from(&self.project))
    }

    /// Whether the project was moved to `dir`, or to a directory above it.
    fn relocation(&self, dir: &Path) -> Option<Relocation> {
        self.identity?.find_moved(&self.project, dir.ancestors())
    }

    /// The same note about the project at its present path.
    fn relocated(&self, moved: &Relocation) -> ScratchRecord {
        let guards = self.guards.iter();
        let guards =
            guards.map(|it| PathGuard { path: moved.apply(&it.path), was: it.was.clone() });
        ScratchRecord {
            project: moved.apply(&self.project),
            guards: guards.collect(),
            modes: self.modes.relocated(moved),
            ..self.clone()
        }
    }
}

/// The directory of a sandbox, until this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    record: File,
    /// Its note is still needed.
    is_unfinished: bool,
}

/// A sandbox that is or was there.
#[derive(Debug)]
pub struct ScratchEntry {
    pub path: PathBuf,
    pub note: Option<ScratchRecord>,
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
            .open(dir.path().join(RECORD_FILE))?;
        note.lock()?;
        Ok(Scratch { path: dir.keep(), record: note, is_unfinished: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where what is put back is written down.
    #[cfg(target_os = "linux")]
    pub(super) fn restore_file(&self) -> PathBuf {
        self.path.join(RESTORE_FILE)
    }

    /// # Errors
    /// What the file system said.
    pub fn write_record(&mut self, note: &ScratchRecord) -> io::Result<()> {
        self.record.write_all(&serde_json::to_vec(note)?)
    }

    /// Something that was planted could not be taken away: the next ralph has to know of it.
    pub(super) fn mark_unfinished(&mut self) {
        self.is_unfinished = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next one.
        let _ = if self.is_unfinished { remove_contents(&self.path) } else { remove(&self.path) };
    }
}

/// All sandboxes of this user.
pub fn list(base: &Path) -> Vec<ScratchEntry> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut listed: Vec<ScratchEntry> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .map(|path| {
            let file = File::open(path.join(RECORD_FILE));
            let in_use = file.as_ref().is_ok_and(|file| file.try_lock_shared().is_err());
            let note = file.ok().and_then(|file| {
                let mut text = String::new();
                file.take(1 << 20).read_to_string(&mut text).ok()?;
                serde_json::from_str(&text).ok()
            });
            ScratchEntry { path, note, in_use }
        })
        .collect();
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    listed
}

/// What was found of a sandbox that nobody uses any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleSandbox {
    pub project: PathBuf,
    pub trace: SandboxTrace,
}

/// Restores the permissions that agents of killed runs changed. To be called before a project is read: its root may
/// have become unreadable.
pub fn restore_modes(base: &Path) -> Vec<SandboxTrace> {
    let left = list(base).into_iter().filter(|listed| !listed.in_use);
    let notes = left.filter_map(|left| left.note).filter(|note| !note.is_project_missing());
    let traces = notes.flat_map(|mut note| note.modes.restore());
    // Whatever cannot be restored is reported by `sweep`.
    traces.filter(|trace| !trace.is_not_restored()).collect()
}

/// Puts right what killed ones left behind, and removes what is theirs. Whatever cannot be put right is found
/// again by the next one. So is what belongs to a project that is missing, unless it was moved and `project` is in it.
pub fn clean_stale(base: &Path, project: &Path) -> Vec<StaleSandbox> {
    let mut found = Vec::new();
    for left in list(base).into_iter().filter(|listed| !listed.in_use) {
        let moved = left.note.as_ref().and_then(|note| note.relocation(project));
        let is_missing = left.note.as_ref().is_some_and(ScratchRecord::is_project_missing);
        if is_missing && moved.is_none() && !is_old(&left.path.join(RECORD_FILE)) {
            // Only the note is needed.
            if !has_processes(&left.path) {
                let _ = remove_contents(&left.path);
            }
            continue;
        }
        let kept = left.path.join(RESTORE_FILE);
        let (project, traces) = match (&left.note, &moved) {
            (Some(note), Some(moved)) => {
                let note = note.relocated(moved);
                let traces = restore_project(&note, &kept, |path| moved.apply(path));
                (note.project, traces)
            }
            (Some(note), None) if !is_missing => {
                (note.project.clone(), restore_project(note, &kept, Path::to_owned))
            }
            (_, None) | (None, _) => (PathBuf::new(), Vec::new()),
        };
        let _ = if traces.iter().any(SandboxTrace::is_not_restored) {
            remove_contents(&left.path)
        } else if has_processes(&left.path) {
            // Whatever still runs there may go on planting.
            Ok(())
        } else {
            remove(&left.path)
        };
        found.extend(
            traces.into_iter().map(|trace| StaleSandbox { project: project.clone(), trace }),
        );
    }
    found
}

/// Whether a note was written too long ago to keep it.
fn is_old(note: &Path) -> bool {
    let modified = note.metadata().and_then(|meta| meta.modified()).ok();
    modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > MISSING_PROJECT_AGE)
}

/// Whether something still runs in a sandbox whose ralph is gone. With namespaces nothing can.
fn has_processes(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let environments =
        processes.filter_map(|process| fs::read(process.path().join("environ")).ok());
    // It is where their home is.
    environments.into_iter().any(|env| env.windows(path.len()).any(|part| part == path))
}

/// Puts a project right. `present` returns the present path of what was kept.
fn restore_project(
    note: &ScratchRecord,
    kept: &Path,
    present: impl Fn(&Path) -> PathBuf,
) -> Vec<SandboxTrace> {
    note.modes.clone().restore_around(|| {
        let traces = restore_guards(&note.guards);
        #[cfg(target_os = "linux")]
        let traces =
            traces.into_iter().chain(super::restore::restore_from_file(kept, present)).collect();
        #[cfg(not(target_os = "linux"))]
        let _ = (kept, present);
        traces
    })
}

/// Removes everything in the directory of a sandbox but what the next one has to know.
fn remove_contents(path: &Path) -> io::Result<()> {
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
            make_writable(path);
            fs::remove_dir_all(path)
        }
    }
}

/// Makes directories below `path` such that they can be emptied.
fn make_writable(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // Not through links: this is about the directory's own.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ExpectedEntry;

    #[test]
    fn sweep_cleans_up_after_killed_run_and_spares_others() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let planted = base.join("config");
        let note = ScratchRecord {
            backend: "bwrap".into(),
            project: base.clone(),
            pid: 1,
            guards: vec![PathGuard { path: planted.clone(), was: ExpectedEntry::Nothing }],
            modes: SavedModes::default(),
            identity: DirIdentity::read_at(&base),
        };
        let mut used = Scratch::create(&base).unwrap();
        used.write_record(&note).unwrap();
        let mut killed = Scratch::create(&base).unwrap();
        killed.write_record(&note).unwrap();
        let hard = killed.path().join("home/hard");
        fs::create_dir_all(&hard).unwrap();
        fs::write(hard.join("file"), "").unwrap();
        fs::set_permissions(&hard, fs::Permissions::from_mode(0o000)).unwrap();
        let left = killed.path().to_owned();
        // What a kill does: the lock is gone, the directory is not.
        let Scratch { record: file, .. } = &killed;
        file.unlock().unwrap();
        fs::write(&planted, "").unwrap();
        assert_eq!(list(&base).iter().filter(|listed| listed.in_use).count(), 1);
        let trace = SandboxTrace::Quarantined(base.join("config.from-sandbox"));
        assert_eq!(clean_stale(&base, &base), [StaleSandbox { project: base.clone(), trace }]);
        assert!(!left.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    /// The directory of a run in `project` that was killed.
    fn killed(base: &Path, project: &Path) -> PathBuf {
        let mut scratch = Scratch::create(base).unwrap();
        let guard = PathGuard { path: project.join("planted"), was: ExpectedEntry::Nothing };
        let note = ScratchRecord {
            backend: "landlock".into(),
            project: project.to_owned(),
            pid: 1,
            guards: vec![guard],
            modes: SavedModes::save([project.to_owned()]),
            identity: DirIdentity::read_at(project),
        };
        scratch.write_record(&note).unwrap();
        #[cfg(target_os = "linux")]
        {
            let kept = super::super::restore::RestorePoint::capture(&project.join("settings.json"))
                .unwrap();
            super::super::restore::save_restore_points(&[kept], &scratch.restore_file()).unwrap();
        }
        scratch.record.unlock().unwrap();
        std::mem::ManuallyDrop::new(scratch).path.clone()
    }

    /// A project with something planted in it after a run was killed.
    fn attacked(base: &Path) -> (PathBuf, PathBuf) {
        let project = base.join("project");
        fs::create_dir(&project).unwrap();
        fs::write(project.join("settings.json"), "mine").unwrap();
        let left = killed(&base.join("sandboxes"), &project);
        fs::write(project.join("planted"), "").unwrap();
        fs::write(project.join("settings.json"), "evil").unwrap();
        (project, left)
    }

    #[track_caller]
    fn assert_restored(project: &Path) {
        assert!(!project.join("planted").exists());
        assert!(project.join("planted.from-sandbox").exists());
        assert_eq!(fs::read_to_string(project.join("settings.json")).unwrap(), "mine");
    }

    #[test]
    fn sweep_keeps_note_while_project_is_missing() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let (sandboxes, unmounted) = (base.join("sandboxes"), base.join("unmounted"));
        let (project, left) = attacked(&base);
        fs::rename(&project, &unmounted).unwrap();
        assert_eq!(clean_stale(&sandboxes, &base), []);
        // Another directory in its place is not its project.
        fs::create_dir(&project).unwrap();
        fs::write(project.join("planted"), "by the user").unwrap();
        assert_eq!(clean_stale(&sandboxes, &project), []);
        assert!(left.exists() && project.join("planted").exists());
        fs::remove_dir_all(&project).unwrap();
        fs::rename(&unmounted, &project).unwrap();
        assert_eq!(clean_stale(&sandboxes, &base).len(), 2);
        assert_restored(&project);
        assert!(!left.exists());
    }

    #[test]
    fn sweep_restores_moved_project_at_new_path() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let (sandboxes, moved) = (base.join("sandboxes"), base.join("moved"));
        let (project, left) = attacked(&base);
        fs::rename(&project, &moved).unwrap();
        let found = clean_stale(&sandboxes, &moved.join("src"));
        assert!(found.iter().all(|found| found.project == moved), "{found:?}");
        assert_restored(&moved);
        assert!(!left.exists() && !project.exists());
    }

    #[test]
    fn sweep_forgets_project_missing_for_long() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let (project, left) = attacked(&base);
        fs::remove_dir_all(&project).unwrap();
        let note = File::options().write(true).open(left.join(RECORD_FILE)).unwrap();
        note.set_modified(std::time::SystemTime::now() - MISSING_PROJECT_AGE * 2).unwrap();
        assert_eq!(clean_stale(&base.join("sandboxes"), &base), []);
        assert!(!left.exists());
    }
}
