//! Finds the runs of a project that was moved, copied, or last used by version 0.1.
//!
//! Version 0.1 stored runs in `.ralph/runs`, in reach of the agent. It kept second names of open
//! journals in `$RALPH_HOME/journals`, and trusted copies of start records in `$RALPH_HOME/starts`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_events::error::Error;
use ralph_events::event::Event;

use super::lock;
use super::private_files;
use super::project::Project;
use super::project_record;
use super::runs::{self, RunDir};
use super::runs_link;
use super::save::save_privately;

/// What happened to a project since its last run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectChange {
    Moved { from: PathBuf },
    CopyOf(PathBuf),
    Migrated { runs: usize },
}

/// How long to wait for another command that migrates the project.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Moves the runs of a moved project, or of version 0.1, to where they belong. A copy starts with
/// none. Call this before anything reads the project's runs.
///
/// # Errors
/// A run of version 0.1 is active, or ralph's home is not writable.
pub fn find_runs(project: &Project) -> Result<Option<ProjectChange>, Error> {
    let failed = |err: io::Error| {
        let path = project.state_dir().display();
        let hint = match err.kind() {
            io::ErrorKind::ResourceBusy => "wait for it to end, or stop it",
            _ => "make it writable, or set RALPH_HOME to a directory that is",
        };
        Error::input(format!("cannot move this project's runs to {path}: {err}")).hint(hint)
    };
    let moved = project_record::adopt_moved_project(project.ralph_home(), project.root())
        .map_err(failed)?;
    if let Some(from) = moved {
        let _ = runs_link::create(project);
        return Ok(Some(ProjectChange::Moved { from }));
    }
    if project.runs_dir().is_dir() {
        return Ok(None);
    }
    if let Some(other) = runs_link::other_project(project)
        && let Some(from) = project_record::root_of(&other)
    {
        let is_copy = from.exists();
        if is_copy {
            project.prepare_state().map_err(failed)?;
            let _ = runs_link::create(project);
            return Ok(Some(ProjectChange::CopyOf(from)));
        }
        let home = project.ralph_home();
        project_record::take_over(home, &other, &from, project.root()).map_err(failed)?;
        let _ = runs_link::create(project);
        return Ok(Some(ProjectChange::Moved { from }));
    }
    let migration = Migration::new(project);
    if !migration.is_due() {
        return Ok(None);
    }
    let _idle = lock_idle(project)?;
    // Another command may have done it meanwhile.
    if !migration.is_due() {
        return Ok(None);
    }
    let runs = migration.finish().map_err(failed)?;
    Ok(Some(ProjectChange::Migrated { runs }))
}

/// Blocks runs of both versions, which lock the same directory.
fn lock_idle(project: &Project) -> Result<Option<File>, Error> {
    let note = project.ralph_dir().join("lock");
    let attempt = || lock::lock_briefly(project.root(), &note);
    lock::retry(LOCK_TIMEOUT, attempt, Result::is_err).map_err(|holder| {
        let pid = holder.map(|holder| holder.pid).or_else(|| running_pid(project));
        let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        Error::input(format!("a run of an earlier version of ralph is active here{pid}"))
            .hint("wait for it to end, or stop it; then ralph can move the runs to its home")
    })
}

/// Workers share the lock and leave no note, but their journals name them.
fn running_pid(project: &Project) -> Option<u32> {
    let runs = runs::list(&project.ralph_dir().join("runs")).ok()?;
    let running = runs.into_iter().find(RunDir::is_running)?;
    started_by(&running.journal()).map(|(_, pid)| pid)
}

/// Directory and process of the last start in a journal.
fn started_by(journal: &Path) -> Option<(PathBuf, u32)> {
    let entries = runs::read_journal(journal).ok()?;
    let starts = entries.filter_map(|entry| match entry.event {
        Event::RunStarted { directory, pid, .. } => Some((PathBuf::from(directory.as_ref()), pid)),
        _ => None,
    });
    starts.last()
}

/// Every step can be repeated: a killed migration is finished by the next start.
struct Migration<'a> {
    project: &'a Project,
    /// Runs of this project that had lost their journal, with its second name.
    journals: Vec<(String, PathBuf)>,
    starts: PathBuf,
    /// Complete, but not yet checked.
    incoming: PathBuf,
}

impl<'a> Migration<'a> {
    fn new(project: &'a Project) -> Migration<'a> {
        let ralph_home = project.ralph_home();
        let entries = fs::read_dir(ralph_home.join("journals")).into_iter().flatten().flatten();
        let journals = entries.filter_map(|entry| {
            let run = entry.file_name().to_str()?.strip_suffix(".jsonl")?.to_owned();
            let (directory, _) = started_by(&entry.path()).filter(|_| runs::is_id(&run))?;
            let is_here = directory == project.root()
                || directory.canonicalize().is_ok_and(|it| it == project.root());
            is_here.then(|| (run, entry.path()))
        });
        Migration {
            project,
            journals: journals.collect(),
            starts: ralph_home.join("starts"),
            incoming: project.state_dir().join("runs.incoming"),
        }
    }

    fn is_due(&self) -> bool {
        !self.project.runs_dir().exists()
            && (runs_link::is_directory(self.project)
                || self.incoming.is_dir()
                || !self.journals.is_empty())
    }

    /// Returns the number of runs.
    fn finish(&self) -> io::Result<usize> {
        private_files::create_dir_all(self.project.state_dir())?;
        self.take_lock_note()?;
        if runs_link::is_directory(self.project) {
            let old = self.project.ralph_dir().join("runs");
            if fs::rename(&old, &self.incoming).is_err() {
                // Another file system, or the rest of a copy that was cut off.
                copy_tree(&old, &self.incoming)?;
                fs::remove_dir_all(&old)?;
            }
        }
        private_files::create_dir_all(&self.incoming)?;
        remove_links(&self.incoming)?;
        self.take_journals()?;
        self.take_start_records()?;
        let count = runs::list(&self.incoming)?.len();
        fs::rename(&self.incoming, self.project.runs_dir())?;
        for (_, second) in &self.journals {
            let _ = fs::remove_file(second);
        }
        // The link must not be committed.
        let _ = self.project.prepare();
        Ok(count)
    }

    /// The note names a run that was killed.
    fn take_lock_note(&self) -> io::Result<()> {
        let old = self.project.ralph_dir().join("lock");
        if !old.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            return Ok(());
        }
        if !self.project.lock_path().exists() {
            save_privately(&self.project.lock_path(), &fs::read(&old)?)?;
        }
        fs::remove_file(&old)
    }

    /// Journals only grow, so the longer one is complete.
    fn take_journals(&self) -> io::Result<()> {
        for (run, second) in &self.journals {
            let dir = RunDir { id: run.clone(), path: self.incoming.join(run) };
            let size = |path: &Path| path.metadata().map_or(0, |meta| meta.len());
            if size(second) > size(&dir.journal()) {
                dir.create()?;
                save_privately(&dir.journal(), &fs::read(second)?)?;
            }
        }
        Ok(())
    }

    /// An agent may have written the records in the project.
    fn take_start_records(&self) -> io::Result<()> {
        for run in runs::list(&self.incoming)? {
            // Version 0.1 wrote none.
            if run.spec().exists() {
                fs::remove_file(run.spec())?;
            }
            for name in ["start.json", "settings.json"] {
                let record = run.path.join(name);
                match fs::read(self.starts.join(&run.id).join(name)) {
                    Ok(bytes) => save_privately(&record, &bytes)?,
                    Err(_) if record.exists() => fs::remove_file(&record)?,
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Copies files and directories, and syncs them. Skips everything else.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    private_files::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &to)?;
        } else if kind.is_file() {
            let size = fs::copy(entry.path(), &to)?;
            let file = File::open(&to)?;
            file.sync_all()?;
            if size != entry.metadata()?.len() {
                return Err(io::Error::other(format!("{} changed", entry.path().display())));
            }
            let modified = entry.metadata()?.modified()?;
            // Some file systems have no times.
            let _ = file.set_modified(modified);
        }
    }
    File::open(to)?.sync_all()
}

/// Removes links and special files, and gives every file a single name: an agent could change what
/// it has another name of.
fn remove_links(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let meta = path.symlink_metadata()?;
        if meta.is_dir() {
            remove_links(&path)?;
        } else if !meta.is_file() {
            fs::remove_file(&path)?;
        } else if meta.nlink() > 1 {
            let copy = tempfile::NamedTempFile::new_in(directory)?;
            fs::copy(&path, copy.path())?;
            copy.as_file().set_modified(meta.modified()?)?;
            copy.persist(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::lock::{Holder, Lock};
    use crate::run_files::RunFiles;

    const RUN: &str = "20261115-202752-0a1b";

    struct Place {
        temp: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Place {
            let place = Place { temp: tempfile::tempdir().unwrap() };
            fs::create_dir(place.path("app")).unwrap();
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.temp.path().canonicalize().unwrap().join(name)
        }

        fn project(&self, name: &str) -> Project {
            Project::new(&self.path(name), &self.path("home"))
        }

        fn open(&self, name: &str) -> Result<Option<ProjectChange>, Error> {
            find_runs(&self.project(name))
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn runs(&self, name: &str) -> Vec<String> {
            let runs = runs::list(&self.project(name).runs_dir()).unwrap();
            runs.into_iter().map(|run| run.id).collect()
        }

        fn started_line(&self, name: &str) -> String {
            let directory = self.path(name);
            format!(
                r#"{{"time":"2026-11-15T20:00:00.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"{}","pid":7,"agent":"a","prompt":"","completion":"","max_iterations":5}}"#,
                directory.display()
            ) + "\n"
        }

        /// A project as version 0.1 left it.
        fn old_project(&self) -> String {
            let line = self.started_line("app");
            self.write(&format!("app/.ralph/runs/{RUN}/events.jsonl"), &line);
            self.write(&format!("app/.ralph/runs/{RUN}/start.json"), "forged");
            self.write(&format!("app/.ralph/runs/{RUN}/spec.json"), "forged");
            self.write(&format!("home/starts/{RUN}/start.json"), "trusted");
            self.write("app/.ralph/lock", r#"{"pid":7,"run":"r","command":"run"}"#);
            line
        }

        fn assert_migrated(&self, line: &str) {
            let run = self.project("app").run_dir(RUN);
            assert_eq!(fs::read_to_string(run.journal()).unwrap(), line);
            assert_eq!(fs::read_to_string(run.path.join("start.json")).unwrap(), "trusted");
            assert!(!run.spec().exists());
            let holder = lock::read_holder(&self.project("app").lock_path()).unwrap();
            assert_eq!(holder.pid, 7);
            let link = self.path("app/.ralph/runs").read_link().unwrap();
            assert_eq!(link, self.project("app").runs_dir());
            assert!(!self.path("app/.ralph/lock").exists());
        }
    }

    #[test]
    fn runs_of_version_0_1_are_migrated_once() {
        let place = Place::new();
        let line = place.old_project();
        assert_eq!(place.open("app").unwrap(), Some(ProjectChange::Migrated { runs: 1 }));
        place.assert_migrated(&line);
        assert_eq!(place.open("app").unwrap(), None);
        // What an agent plants later is not taken over.
        fs::remove_file(place.path("app/.ralph/runs")).unwrap();
        place.write("app/.ralph/runs/20991231-000000-ffff/events.jsonl", &line);
        assert_eq!(place.open("app").unwrap(), None);
        assert_eq!(place.runs("app"), [RUN]);
    }

    #[test]
    fn interrupted_migration_is_finished() {
        // Killed after the move, in the middle of a copy, and while the original was removed.
        for cut in ["moved", "copying", "removing"] {
            let place = Place::new();
            let line = place.old_project();
            let incoming = place.project("app").state_dir().join("runs.incoming");
            match cut {
                "moved" => {
                    fs::create_dir_all(incoming.parent().unwrap()).unwrap();
                    fs::rename(place.path("app/.ralph/runs"), &incoming).unwrap();
                }
                "copying" => {
                    fs::create_dir_all(incoming.join(RUN)).unwrap();
                    fs::write(incoming.join(RUN).join("events.jsonl"), "{\"ti").unwrap();
                }
                _ => {
                    copy_tree(&place.path("app/.ralph/runs"), &incoming).unwrap();
                    fs::remove_file(place.path(&format!("app/.ralph/runs/{RUN}/events.jsonl")))
                        .unwrap();
                }
            }
            let change = place.open("app").unwrap();
            assert_eq!(change, Some(ProjectChange::Migrated { runs: 1 }), "{cut}");
            place.assert_migrated(&line);
        }
    }

    #[test]
    fn links_of_agents_are_not_migrated() {
        let place = Place::new();
        let line = place.old_project();
        place.write("secret", "secret");
        let run = place.path(&format!("app/.ralph/runs/{RUN}"));
        symlink(place.path("secret"), run.join("settings.json")).unwrap();
        symlink(place.path("home"), place.path("app/.ralph/runs/20261115-202752-0a1c")).unwrap();
        fs::hard_link(run.join("events.jsonl"), place.path("app/other-name")).unwrap();
        place.open("app").unwrap();
        fs::write(place.path("app/other-name"), "changed").unwrap();
        place.assert_migrated(&line);
        assert_eq!(place.runs("app"), [RUN]);
        assert!(!place.project("app").run_dir(RUN).path.join("settings.json").exists());
    }

    #[test]
    fn removed_journal_of_version_0_1_is_taken_from_home() {
        let place = Place::new();
        let (line, other) = (place.started_line("app"), place.started_line("elsewhere"));
        place.write(&format!("home/journals/{RUN}.jsonl"), &line);
        place.write("home/journals/20261115-202752-0a1c.jsonl", &other);
        assert_eq!(place.open("app").unwrap(), Some(ProjectChange::Migrated { runs: 1 }));
        let journal = place.project("app").run_dir(RUN).journal();
        assert_eq!(fs::read_to_string(journal).unwrap(), line);
        assert_eq!(fs::read_dir(place.path("home/journals")).unwrap().count(), 1);
    }

    #[test]
    fn active_run_of_version_0_1_blocks_migration_and_is_named() {
        let place = Place::new();
        place.old_project();
        let holder = Holder { pid: 4711, run: RUN.into(), command: "run".into() };
        let note = place.path("app/.ralph/lock");
        let held = Lock::try_lock(&place.path("app"), &note, &holder).unwrap();
        let err = place.open("app").unwrap_err();
        assert!(err.message.contains("pid 4711"), "{err}");
        drop(held);
        // A worker leaves no note.
        fs::write(&note, "").unwrap();
        let held = Lock::try_lock_shared(&place.path("app"), &note).unwrap();
        let run = RunDir { id: RUN.into(), path: place.path("app/.ralph/runs").join(RUN) };
        let files = RunFiles::reopen(run, 100).unwrap();
        let err = place.open("app").unwrap_err();
        assert!(err.message.contains("pid 7"), "{err}");
        drop((held, files));
        assert!(place.open("app").unwrap().is_some());
    }

    #[test]
    fn moved_project_keeps_its_runs() {
        let place = Place::new();
        let start = |name: &str| {
            place.project(name).prepare().unwrap();
            place.project(name).prepare_state().unwrap();
            place.project(name).run_dir(RUN).create().unwrap();
        };
        start("app");
        fs::rename(place.path("app"), place.path("moved")).unwrap();
        let from = place.path("app");
        assert_eq!(place.open("moved").unwrap(), Some(ProjectChange::Moved { from }));
        assert_eq!((place.runs("moved"), place.open("moved").unwrap()), (vec![RUN.into()], None));
        assert!(!place.project("app").state_dir().exists());
        // Across file systems it is copied, then removed: another directory with the same link.
        fs::create_dir_all(place.path("far/.ralph")).unwrap();
        symlink(place.project("moved").runs_dir(), place.path("far/.ralph/runs")).unwrap();
        fs::remove_dir_all(place.path("moved")).unwrap();
        let from = place.path("moved");
        assert_eq!(place.open("far").unwrap(), Some(ProjectChange::Moved { from }));
        assert_eq!(place.runs("far"), [RUN]);
        assert_eq!(
            place.path("far/.ralph/runs").read_link().unwrap(),
            place.project("far").runs_dir()
        );
    }

    #[test]
    fn runs_stay_while_run_is_active_in_moved_project() {
        let place = Place::new();
        place.project("app").prepare_state().unwrap();
        place.project("app").run_dir(RUN).create().unwrap();
        let holder = Holder { pid: 7, run: RUN.into(), command: "run".into() };
        let lock = place.project("app").lock_path();
        let held = Lock::try_lock(&place.path("app"), &lock, &holder).unwrap();
        fs::rename(place.path("app"), place.path("moved")).unwrap();
        let err = place.open("moved").unwrap_err();
        assert!(err.message.contains("a run is active in it (pid 7)"), "{err}");
        assert_eq!(place.runs("app").len(), 1);
        drop(held);
        assert!(place.open("moved").unwrap().is_some());
        assert_eq!(place.runs("moved"), [RUN]);
    }

    #[test]
    fn copy_starts_own_list_and_names_original() {
        let place = Place::new();
        let original = place.project("app");
        original.prepare().unwrap();
        original.prepare_state().unwrap();
        original.run_dir(RUN).create().unwrap();
        fs::create_dir_all(place.path("copy/.ralph")).unwrap();
        symlink(original.runs_dir(), place.path("copy/.ralph/runs")).unwrap();
        let change = place.open("copy").unwrap();
        assert_eq!(change, Some(ProjectChange::CopyOf(place.path("app"))));
        assert_eq!(place.open("copy").unwrap(), None, "said once");
        assert_eq!((place.runs("copy").len(), place.runs("app").len()), (0, 1));
    }

    #[test]
    fn link_to_anything_else_is_ignored() {
        let place = Place::new();
        let name = "x-0123456789abcdef";
        place.write(&format!("home/projects/{name}/project.json"), r#"{"root": "/gone"}"#);
        fs::create_dir_all(place.path(&format!("home/projects/{name}/runs"))).unwrap();
        fs::create_dir_all(place.path("app/.ralph")).unwrap();
        let link = place.path("app/.ralph/runs");
        for target in [
            place.path("home/projects"),
            place.path(&format!("home/projects/{name}")),
            place.path(&format!("home/projects/../projects/{name}/runs")),
            place.path(&format!("elsewhere/projects/{name}/runs")),
            place.path("home/projects/x/runs"),
        ] {
            symlink(&target, &link).unwrap();
            assert_eq!(place.open("app").unwrap(), None, "{}", target.display());
            fs::remove_file(&link).unwrap();
        }
    }
}
