//! The private directory of one sandbox.
//!
//! A lock on its record shows that it is in use. The next ralph cleans up after a killed one.

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
use super::restore::restore_from_file;
use super::{Backend, SandboxTrace};
use ralph_events::error::Error;
use ralph_process::is_in_environment;
use ralph_store::home::require_ralph_home;
use ralph_store::relocation::{DirIdentity, Relocation};

const RECORD_FILE: &str = "sandbox.json";
const RESTORE_FILE: &str = "kept.json";
/// The age at which records of missing projects are removed.
const MISSING_PROJECT_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchRecord {
    pub backend: String,
    pub project: PathBuf,
    pub pid: u32,
    pub guards: Vec<PathGuard>,
    #[serde(default)]
    pub modes: SavedModes,
    /// Finds a moved project.
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

    /// Moved, removed, or on an unmounted file system.
    pub fn is_project_missing(&self) -> bool {
        !self.project.is_dir()
            || self.identity.is_some_and(|identity| identity.is_gone_from(&self.project))
    }

    /// The move of the project to `dir` or a parent of it.
    fn relocation(&self, dir: &Path) -> Option<Relocation> {
        self.identity?.find_moved(&self.project, dir.ancestors())
    }

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

/// Removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    record: File,
    is_unfinished: bool,
}

#[derive(Debug)]
pub struct ScratchEntry {
    pub path: PathBuf,
    pub note: Option<ScratchRecord>,
    pub in_use: bool,
}

/// The parent of all scratch directories.
///
/// # Errors
/// There is no home directory.
pub fn sandboxes() -> Result<PathBuf, Error> {
    Ok(require_ralph_home(|name| std::env::var_os(name))?.join("sandboxes"))
}

impl Scratch {
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

    pub(super) fn restore_file(&self) -> PathBuf {
        self.path.join(RESTORE_FILE)
    }

    pub fn write_record(&mut self, note: &ScratchRecord) -> io::Result<()> {
        self.record.write_all(&serde_json::to_vec(note)?)
    }

    /// Keeps the record for the next ralph.
    pub(super) fn mark_unfinished(&mut self) {
        self.is_unfinished = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = if self.is_unfinished { remove_contents(&self.path) } else { remove(&self.path) };
    }
}

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleSandbox {
    pub project: PathBuf,
    pub trace: SandboxTrace,
}

/// Restores modes that agents of killed runs changed. Call it before reading a project, whose root
/// may be unreadable.
pub fn restore_modes(base: &Path) -> Vec<SandboxTrace> {
    let stale = list(base).into_iter().filter(|listed| !listed.in_use);
    let notes = stale.filter_map(|stale| stale.note).filter(|note| !note.is_project_missing());
    let traces = notes.flat_map(|mut note| note.modes.restore());
    // `clean_stale` reports failures.
    traces.filter(|trace| !trace.is_not_restored()).collect()
}

/// Whether processes of the sandbox with this scratch directory outlived their ralph: their `HOME`
/// and other variables contain its path.
fn has_processes(path: &Path) -> bool {
    is_in_environment(path.as_os_str().as_bytes())
}

/// Cleans up after killed runs. Failures are retried next time, and so are missing projects, unless
/// `project` is inside the moved one.
pub fn clean_stale(base: &Path, project: &Path) -> Vec<StaleSandbox> {
    let mut found = Vec::new();
    for stale in list(base).into_iter().filter(|listed| !listed.in_use) {
        let moved = stale.note.as_ref().and_then(|note| note.relocation(project));
        let is_missing = stale.note.as_ref().is_some_and(ScratchRecord::is_project_missing);
        if is_missing && moved.is_none() && !is_old(&stale.path.join(RECORD_FILE)) {
            // Only the record is needed.
            if !has_processes(&stale.path) {
                let _ = remove_contents(&stale.path);
            }
            continue;
        }
        let restore_file = stale.path.join(RESTORE_FILE);
        let (project, traces) = match (&stale.note, &moved) {
            (Some(note), Some(moved)) => {
                let note = note.relocated(moved);
                let traces = restore_project(&note, &restore_file, |path| moved.apply(path));
                (note.project, traces)
            }
            (Some(note), None) if !is_missing => {
                (note.project.clone(), restore_project(note, &restore_file, Path::to_owned))
            }
            (_, None) | (None, _) => (PathBuf::new(), Vec::new()),
        };
        let _ = if traces.iter().any(SandboxTrace::is_not_restored) {
            remove_contents(&stale.path)
        } else if has_processes(&stale.path) {
            // What still runs may change more files.
            Ok(())
        } else {
            remove(&stale.path)
        };
        found.extend(
            traces.into_iter().map(|trace| StaleSandbox { project: project.clone(), trace }),
        );
    }
    found
}

fn is_old(note: &Path) -> bool {
    let modified = note.metadata().and_then(|meta| meta.modified()).ok();
    modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > MISSING_PROJECT_AGE)
}

/// `present` maps a saved path to its current one.
fn restore_project(
    note: &ScratchRecord,
    restore_file: &Path,
    present: impl Fn(&Path) -> PathBuf,
) -> Vec<SandboxTrace> {
    note.modes.clone().restore_around(|| {
        let mut traces = restore_guards(&note.guards);
        traces.extend(restore_from_file(restore_file, present));
        traces
    })
}

/// Keeps the record and restore points.
fn remove_contents(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a directory, read-only parts included.
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

fn make_writable(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // Never through links.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ExpectedEntry;
    use crate::restore::{RestorePoint, save_restore_points};

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
        // Like a kill: the lock is gone, the directory is not.
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
        let kept = RestorePoint::capture(&project.join("settings.json")).unwrap();
        save_restore_points(&[kept], &scratch.restore_file()).unwrap();
        scratch.record.unlock().unwrap();
        std::mem::ManuallyDrop::new(scratch).path.clone()
    }

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
        // Another directory in its place is not the project.
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
