//! The journals of runs that go on, under a second name: in ralph's own directory, where no `git clean` of an agent's
//! comes by. Should a run be killed after its journal was removed from the project, that is put back from there.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use ralph_events::event::Event;

use super::lock::{self, Holder};
use super::private_files;
use super::project::Project;
use super::runs::{self, RunDir, is_id};
use super::safe_fs;

/// In ralph's own directory.
const JOURNALS: &str = "journals";

/// What nobody comes back for, because its project is gone, is kept for so many runs.
const MOST: usize = 100;

/// How far into a journal it is told where its run began.
const BEGINNING: usize = 50;

/// The second name of a run's journal.
pub fn second_name(home: &Path, run: &str) -> PathBuf {
    home.join(JOURNALS).join(run).with_extension("jsonl")
}

/// Gives a journal its second name.
///
/// # Errors
/// What the file system said: another one cannot have it.
pub(super) fn link(journal: &Path, second: &Path) -> io::Result<()> {
    make_directory_of(second)?;
    match std::fs::remove_file(second) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => std::fs::hard_link(journal, second),
    }
}

/// Keeps a whole copy of a journal that has no name left in its project.
///
/// # Errors
/// What the file system said. Nothing is there then.
pub(super) fn save(journal: &mut File, second: &Path) -> io::Result<()> {
    make_directory_of(second)?;
    copy(journal, second)
}

/// What is beside the second name that a journal could not have.
pub(super) fn begun(second: &Path) -> PathBuf {
    second.with_extension("begun")
}

/// Notes that a run has begun, with its first words, and holds the note as long as the run goes on.
///
/// # Errors
/// What the file system said.
pub(super) fn note_begun(second: &Path, first_words: &[u8]) -> io::Result<File> {
    make_directory_of(second)?;
    let path = begun(second);
    let mut note = private_files::private_open_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    // A file system without locks is no reason not to run.
    let _ = note.lock();
    note.write_all(first_words).inspect_err(|_| remove(&path))?;
    Ok(note)
}

fn make_directory_of(second: &Path) -> io::Result<()> {
    // What agents print is nobody else's business.
    let directory = second.parent().unwrap_or(second);
    private_files::create_dir_all(directory)
}

/// Copies a journal, however large, all or nothing.
fn copy(journal: &mut File, to: &Path) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(to.parent().unwrap_or(to))?;
    journal.rewind()?;
    io::copy(journal, &mut file)?;
    file.as_file().sync_all()?;
    file.persist(to).map_err(|err| err.error)?;
    Ok(())
}

/// A run whose journal had been removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    PutBack(String),
    /// There is none to put back.
    Lost(String),
}

/// Puts back what was removed from a project of the journals of runs that were cut off then, with the note that tells
/// of such a run, and tells whose. What is where it belongs needs no second name any more.
pub fn put_back(project: &Project, home: &Path) -> Vec<Removed> {
    let mut put_back = Vec::new();
    let names = second_names(home, ".jsonl");
    let (many, mut left) = (names.len() > MOST, Vec::new());
    for (run, second) in names {
        let Ok(mut kept) = safe_fs::open_file(&second) else { continue };
        // Whoever writes it sees to it.
        if matches!(kept.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let started = starts(&second, &run).take(BEGINNING).find_map(|start| start);
        let Some((began_in, _)) = started else {
            // Killed before its first word.
            if kept.metadata().is_ok_and(|meta| meta.len() == 0) {
                remove(&second);
            } else {
                left.push(second);
            }
            continue;
        };
        if !is_same(&began_in, project.root()) {
            left.push(second);
            continue;
        }
        let dir = RunDir { path: project.runs_dir().join(&run), id: run };
        if is_in_place(&kept, &dir) {
            remove(&second);
            continue;
        }
        // Another run at work there may be about to remove what is made.
        let Ok(_idle) = lock::lock_briefly(project.root(), &project.lock_path()) else { continue };
        // What does not succeed on a disk that is full or may not be written is for the next one.
        if put_back_one(project, &mut kept, &second, &dir).is_ok() {
            if let Some((_, last)) = starts(&second, &dir.id).flatten().last() {
                leave_note(project, &last);
            }
            remove(&second);
            put_back.push(Removed::PutBack(dir.id));
        }
    }
    // Those that have been put back just now are not lost.
    let lost = second_names(home, ".begun")
        .into_iter()
        .filter_map(|(run, begun)| is_lost(project, &run, &begun).then_some(Removed::Lost(run)));
    put_back.extend(lost);
    let mut begun = second_names(home, ".begun");
    begun.truncate(begun.len().saturating_sub(MOST));
    begun.iter().for_each(|(_, begun)| remove(begun));
    if many {
        let surplus = left.len().saturating_sub(MOST);
        left.iter().take(surplus).for_each(|second| remove(second));
    }
    put_back
}

/// The oldest first.
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

/// Whether a run of this project had begun, was cut off, and has no journal. That is noted where whoever would go on
/// with it finds it: what it has used is not known, and is not nothing.
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

/// Whoever comes next ends what the run has left running.
fn leave_note(project: &Project, holder: &Holder) {
    let note = project.lock_path();
    if lock::read_holder(&note).is_none() {
        let _ = lock::leave_note(&note, holder);
    }
}

pub(super) fn remove(second: &Path) {
    // What stays takes up room and does no other harm.
    let _ = std::fs::remove_file(second);
}

/// What a journal tells of each start of its run, among its other entries: where, and by whom.
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

/// The journal is in the project, or somebody has put a copy there that tells as much: journals only grow.
fn is_in_place(kept: &File, dir: &RunDir) -> bool {
    let size = kept.metadata().map_or(0, |meta| meta.len());
    let is_whole = |meta: std::fs::Metadata| meta.is_file() && meta.len() >= size;
    safe_fs::is_same_file(kept, &dir.journal())
        || dir.journal().symlink_metadata().is_ok_and(is_whole)
}

fn put_back_one(project: &Project, kept: &mut File, second: &Path, dir: &RunDir) -> io::Result<()> {
    project.prepare()?;
    let journal = dir.journal();
    safe_fs::check_inside(project.root(), &journal)?;
    dir.create()?;
    if journal.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
        std::fs::remove_file(&journal)?;
    }
    // A link takes no room, and is there at once.
    std::fs::hard_link(second, &journal).or_else(|_| copy(kept, &journal))
}

#[cfg(test)]
mod tests {
    use super::super::run_files::RunFiles;
    use super::*;

    const RUN: &str = "20261115-202752-0a1b";

    /// A run that has begun in a project of its own, and was not cut off yet.
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
        let files = files.without_a_link();
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
        // And by it the other, in the same file.
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
        let mut files = files.without_a_link();
        files.append_journal(&line).unwrap();
        std::fs::remove_dir_all(project.ralph_dir()).unwrap();
        assert_eq!(put_back(&project, &home), [], "it goes on");
        drop(files);
        assert_eq!(put_back(&project, &home), [Removed::Lost(RUN.to_owned())]);
        assert!(run.has_spent() && run.has_started());
        assert_eq!(lock::read_holder(&project.lock_path()).unwrap().run, RUN);
        assert_eq!(put_back(&project, &home), [], "it is said once");
        // One whose journal is in its place is not.
        let dir = tempfile::tempdir().unwrap();
        let (project, home, files) = begun(dir.path());
        std::fs::remove_file(second_name(&home, RUN)).unwrap();
        let mut files = files.without_a_link();
        files.append_journal(&line).unwrap();
        drop(files);
        assert_eq!(put_back(&project, &home), []);
        let count = || std::fs::read_dir(home.join(JOURNALS)).unwrap().count();
        // The line was written in another project.
        assert_eq!(count(), 1);
        let mut files = RunFiles::reopen(run_of(&project), 100).unwrap();
        files.keep_also_at(second_name(&home, RUN));
        let mut files = files.without_a_link();
        files.append_journal(&line).unwrap();
        files.close().unwrap();
        assert_eq!(count(), 0);
    }

    fn run_of(project: &Project) -> RunDir {
        RunDir { id: RUN.to_owned(), path: project.runs_dir().join(RUN) }
    }
}
