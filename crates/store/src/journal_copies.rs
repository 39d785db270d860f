//! Second names (hard links) of open journals in ralph's home, out of reach of an agent's
//! `git clean`. They restore the journal of a run that was killed after its journal had been removed.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use ralph_events::event::Event;

use super::lock::{self, Holder};
use super::private_files;
use super::project::Project;
use super::runs::{self, RunDir, is_id};
use super::safe_fs;

const JOURNALS: &str = "journals";

/// Limit of copies whose project is gone.
const MAX_COPIES: usize = 100;

/// Number of journal entries in which `RunStarted` must appear.
const MAX_ENTRIES_BEFORE_START: usize = 50;

pub fn second_name(home: &Path, run: &str) -> PathBuf {
    home.join(JOURNALS).join(run).with_extension("jsonl")
}

/// Fails across file systems.
pub(super) fn link(journal: &Path, second: &Path) -> io::Result<()> {
    make_directory_of(second)?;
    match std::fs::remove_file(second) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => std::fs::hard_link(journal, second),
    }
}

/// Copies a journal that was removed from its project.
pub(super) fn save(journal: &mut File, second: &Path) -> io::Result<()> {
    make_directory_of(second)?;
    copy(journal, second)
}

/// Records the start of a run whose journal could not be linked.
pub(super) fn begun(second: &Path) -> PathBuf {
    second.with_extension("begun")
}

/// Writes the first journal lines to the start file, and locks it while the run lasts.
pub(super) fn note_begun(second: &Path, first_words: &[u8]) -> io::Result<File> {
    make_directory_of(second)?;
    let path = begun(second);
    let mut note = private_files::private_open_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    // Not all file systems have locks.
    let _ = note.lock();
    note.write_all(first_words).inspect_err(|_| remove(&path))?;
    Ok(note)
}

fn make_directory_of(second: &Path) -> io::Result<()> {
    // Agent output is private.
    let directory = second.parent().unwrap_or(second);
    private_files::create_dir_all(directory)
}

fn copy(journal: &mut File, to: &Path) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(to.parent().unwrap_or(to))?;
    journal.rewind()?;
    io::copy(journal, &mut file)?;
    file.as_file().sync_all()?;
    file.persist(to).map_err(|err| err.error)?;
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    PutBack(String),
    /// No copy is left.
    Lost(String),
}

/// Restores removed journals of killed runs, and their lock notes. Removes copies that are no
/// longer needed.
pub fn put_back(project: &Project, home: &Path) -> Vec<Removed> {
    let mut put_back = Vec::new();
    let names = second_names(home, ".jsonl");
    let (is_over_limit, mut unclaimed) = (names.len() > MAX_COPIES, Vec::new());
    for (run, second) in names {
        let Ok(mut journal) = safe_fs::open_file(&second) else { continue };
        // Its writer restores it.
        if matches!(journal.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let started = starts(&second, &run).take(MAX_ENTRIES_BEFORE_START).find_map(|start| start);
        let Some((began_in, _)) = started else {
            // Killed before its first line.
            if journal.metadata().is_ok_and(|meta| meta.len() == 0) {
                remove(&second);
            } else {
                unclaimed.push(second);
            }
            continue;
        };
        if !is_same(&began_in, project.root()) {
            unclaimed.push(second);
            continue;
        }
        let dir = RunDir { path: project.runs_dir().join(&run), id: run };
        if is_in_place(&journal, &dir) {
            remove(&second);
            continue;
        }
        // An active run might remove it again.
        let Ok(_idle) = lock::lock_briefly(project.root(), &project.lock_path()) else { continue };
        // If the disk is full, the next start tries again.
        if restore_journal(project, &mut journal, &second, &dir).is_ok() {
            if let Some((_, last)) = starts(&second, &dir.id).flatten().last() {
                leave_note(project, &last);
            }
            remove(&second);
            put_back.push(Removed::PutBack(dir.id));
        }
    }
    let lost = second_names(home, ".begun")
        .into_iter()
        .filter_map(|(run, begun)| is_lost(project, &run, &begun).then_some(Removed::Lost(run)));
    put_back.extend(lost);
    let mut begun = second_names(home, ".begun");
    begun.truncate(begun.len().saturating_sub(MAX_COPIES));
    begun.iter().for_each(|(_, begun)| remove(begun));
    if is_over_limit {
        let surplus = unclaimed.len().saturating_sub(MAX_COPIES);
        unclaimed.iter().take(surplus).for_each(|second| remove(second));
    }
    put_back
}

/// Oldest first.
fn second_names(home: &Path, ending: &str) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(home.join(JOURNALS)).into_iter().flatten().flatten();
    let mut names: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let run = entry.file_name().to_str()?.strip_suffix(ending)?.to_owned();
            is_id(&run).then(|| (run, entry.path()))
        })
        .collect();
    names.sort_unstable();
    names
}

/// Whether a run of this project was killed and has no journal. Marks its directory, since resume
/// must not assume that it used nothing.
fn is_lost(project: &Project, run: &str, begun: &Path) -> bool {
    let Ok(note) = safe_fs::open_file(begun) else { return false };
    if matches!(note.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return false;
    }
    let Some((began_in, holder)) = starts(begun, run).flatten().last() else { return false };
    let dir = RunDir { id: run.to_owned(), path: project.runs_dir().join(run) };
    if !is_same(&began_in, project.root()) || begun.with_extension("jsonl").exists() {
        return false;
    }
    if dir.journal_size() > 0 {
        remove(begun);
        return false;
    }
    let Ok(_idle) = lock::lock_briefly(project.root(), &project.lock_path()) else { return false };
    let noted = project.prepare().and_then(|()| {
        safe_fs::check_inside(project.root(), &dir.journal())?;
        dir.create()?;
        dir.note_spent()
    });
    if noted.is_ok() {
        leave_note(project, &holder);
        remove(begun);
    }
    noted.is_ok()
}

/// The next start kills what the run left running.
fn leave_note(project: &Project, holder: &Holder) {
    let note = project.lock_path();
    if lock::read_holder(&note).is_none() {
        let _ = lock::leave_note(&note, holder);
    }
}

pub(super) fn remove(second: &Path) {
    // Harmless if it fails.
    let _ = std::fs::remove_file(second);
}

/// Directory and holder of each `RunStarted`; `None` for other entries.
fn starts(journal: &Path, run: &str) -> impl Iterator<Item = Option<(PathBuf, Holder)>> {
    let entries = runs::read_journal(journal).into_iter().flatten();
    entries.map(move |entry| match entry.event {
        Event::RunStarted { directory, pid, command, .. } => {
            let holder = Holder { pid, run: run.to_owned(), command: command.into_owned() };
            Some((PathBuf::from(directory.as_ref()), holder))
        }
        _ => None,
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| one == other)
}

/// Journals only grow, so a copy at least as long is complete.
fn is_in_place(journal: &File, dir: &RunDir) -> bool {
    let size = journal.metadata().map_or(0, |meta| meta.len());
    let is_complete = |meta: std::fs::Metadata| meta.is_file() && meta.len() >= size;
    safe_fs::is_same_file(journal, &dir.journal())
        || dir.journal().symlink_metadata().is_ok_and(is_complete)
}

fn restore_journal(
    project: &Project,
    journal: &mut File,
    second: &Path,
    dir: &RunDir,
) -> io::Result<()> {
    project.prepare()?;
    let target = dir.journal();
    safe_fs::check_inside(project.root(), &target)?;
    dir.create()?;
    if target.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
        std::fs::remove_file(&target)?;
    }
    std::fs::hard_link(second, &target).or_else(|_| copy(journal, &target))
}

#[cfg(test)]
mod tests {
    use super::super::run_files::RunFiles;
    use super::*;

    const RUN: &str = "20261115-202752-0a1b";

    fn begun(dir: &Path) -> (Project, PathBuf, RunFiles) {
        let (root, home) = (dir.join("project"), dir.join("home"));
        let project = Project::new(root.clone());
        std::fs::create_dir(&root).unwrap();
        project.prepare().unwrap();
        let run = RunDir { id: RUN.to_owned(), path: project.runs_dir().join(RUN) };
        let mut files = RunFiles::create(run, 100).unwrap();
        files.keep_also_at(second_name(&home, RUN));
        let line = format!(
            r#"{{"time":"2026-11-15T20:00:00.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"{}","pid":7,"agent":"a","prompt":"","completion":"","max_iterations":5}}"#,
            root.display()
        );
        files.append_journal(format!("{line}\n").as_bytes()).unwrap();
        (project, home, files)
    }

    fn kept(home: &Path) -> usize {
        second_names(home, ".jsonl").len()
    }

    #[test]
    fn removed_journal_is_restored_after_kill() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        let journal = files.dir.journal();
        let text = std::fs::read(&journal).unwrap();
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        assert!(put_back(&project, &home).is_empty() && !journal.exists(), "it goes on");
        drop(files);
        let elsewhere = Project::new(dir.path().to_owned());
        assert!(put_back(&elsewhere, &home).is_empty());
        assert_eq!(put_back(&project, &home), [Removed::PutBack(RUN.to_owned())]);
        assert_eq!(std::fs::read(&journal).unwrap(), text);
        let holder = Holder { pid: 7, run: RUN.to_owned(), command: "run".to_owned() };
        assert_eq!(lock::read_holder(&project.lock_path()), Some(holder));
        assert!(project.ralph_dir().join(".gitignore").exists());
        assert_eq!((kept(&home), put_back(&project, &home)), (0, Vec::new()));
    }

    #[test]
    fn truncated_journal_is_replaced_by_backup() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        let journal = files.dir.journal();
        let text = std::fs::read(&journal).unwrap();
        drop(files);
        std::fs::remove_file(&journal).unwrap();
        std::fs::write(&journal, "").unwrap();
        assert_eq!(put_back(&project, &home), [Removed::PutBack(RUN.to_owned())]);
        assert_eq!(std::fs::read(&journal).unwrap(), text);
    }

    #[test]
    fn journal_backup_is_removed_when_not_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        assert_eq!(kept(&home), 1);
        drop(files);
        assert_eq!((put_back(&project, &home), kept(&home)), (Vec::new(), 0));
        let dir = tempfile::tempdir().unwrap();
        let (_, home, files) = begun(dir.path());
        files.close().unwrap();
        assert_eq!(kept(&home), 0);
    }

    #[test]
    fn unrestorable_journal_is_kept_in_home_at_end() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        let journal = files.dir.journal();
        let text = std::fs::read(&journal).unwrap();
        // As on another file system.
        std::fs::remove_file(second_name(&home, RUN)).unwrap();
        let files = files.without_link();
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        files.close().unwrap();
        assert_eq!(put_back(&project, &home), [Removed::PutBack(RUN.to_owned())]);
        assert_eq!(std::fs::read(&journal).unwrap(), text);
    }

    #[test]
    fn missing_journal_backup_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, mut files) = begun(dir.path());
        std::fs::remove_file(second_name(&home, RUN)).unwrap();
        assert!(files.is_removed());
        assert!(!files.put_back_beside_agent(project.root()).unwrap());
        assert!(!files.is_removed() && kept(&home) == 1);
        // The second name restores the first, as the same file.
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        assert!(files.put_back_beside_agent(project.root()).unwrap() && !files.is_removed());
        files.append_journal(b"more\n").unwrap();
        assert!(std::fs::read(files.dir.journal()).unwrap().ends_with(b"more\n"));
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        assert!(files.restore().unwrap() && !files.restore().unwrap() && !files.is_removed());
    }

    #[test]
    fn started_run_without_journal_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        let run = files.dir.clone();
        let line = std::fs::read(run.journal()).unwrap();
        // As on another file system.
        std::fs::remove_file(second_name(&home, RUN)).unwrap();
        let mut files = files.without_link();
        files.append_journal(&line).unwrap();
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        assert_eq!(put_back(&project, &home), [], "it goes on");
        drop(files);
        assert_eq!(put_back(&project, &home), [Removed::Lost(RUN.to_owned())]);
        assert!(run.has_spent() && run.has_started());
        assert_eq!(lock::read_holder(&project.lock_path()).unwrap().run, RUN);
        assert_eq!(put_back(&project, &home), [], "it is said once");
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        std::fs::remove_file(second_name(&home, RUN)).unwrap();
        let mut files = files.without_link();
        files.append_journal(&line).unwrap();
        drop(files);
        assert_eq!(put_back(&project, &home), []);
        let count = || std::fs::read_dir(home.join(JOURNALS)).unwrap().count();
        // The line names another project.
        assert_eq!(count(), 1);
        let mut files = RunFiles::reopen(run_of(&project), 100).unwrap();
        files.keep_also_at(second_name(&home, RUN));
        let mut files = files.without_link();
        files.append_journal(&line).unwrap();
        files.close().unwrap();
        assert_eq!(count(), 0);
    }

    fn run_of(project: &Project) -> RunDir {
        RunDir { id: RUN.to_owned(), path: project.runs_dir().join(RUN) }
    }
}
