//! Ledger files: `$RALPH_HOME/projects/<project>/tasks/<list>/<run>.json`, where no agent can write.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ledger::Ledger;

use ralph_store::naming;
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::project_record::fnv64;
use ralph_store::runs::{self, is_id};
use ralph_store::safe_fs;
use ralph_store::save::save_atomically;

#[derive(Debug, Serialize)]
pub struct LedgerFileContent<'a> {
    pub list: Cow<'a, str>,
    /// Relative to the project's root, so it holds after a move.
    pub name: Cow<'a, str>,
    #[serde(flatten)]
    pub ledger: &'a Ledger,
}

#[derive(Debug, Clone)]
pub struct LedgerPaths {
    /// New ledgers go into the first.
    dirs: Vec<PathBuf>,
    project: Project,
    list: PathBuf,
}

impl LedgerPaths {
    pub fn new(project: &Project, list: &Path) -> LedgerPaths {
        let dirs = ledger_dirs(project, list);
        LedgerPaths { dirs, project: project.clone(), list: list.to_owned() }
    }

    pub fn dir(&self) -> &Path {
        &self.dirs[0]
    }

    pub fn read(&self, run: &str) -> io::Result<Ledger> {
        let mut paths = self.dirs.iter().map(|directory| path(directory, run));
        let path = paths.find(|path| path.exists()).ok_or(io::ErrorKind::NotFound)?;
        Ok(serde_json::from_value(read_value(&path)?)?)
    }

    /// Skips and reports unreadable files.
    pub fn load_last(&self) -> LastLedger {
        let mut unreadable = Vec::new();
        let last = self.files().into_iter().find_map(|(run, path)| match read_ledger(&path) {
            Ok(Some(ledger)) => Some(LastRun::Run(run, Box::new(ledger))),
            Ok(None) => Some(LastRun::Reset),
            Err(err) => {
                unreadable.push(format!("{}: {err}", path.display()));
                None
            }
        });
        LastLedger { last: last.unwrap_or(LastRun::Unknown), unreadable }
    }

    pub fn newest_file(&self) -> Option<PathBuf> {
        let holds_ledger = |path: &PathBuf| matches!(read_ledger(path), Ok(Some(_)));
        self.files().into_iter().map(|(_, path)| path).find(holds_ledger)
    }

    /// Newest first, by run.
    fn files(&self) -> Vec<(String, PathBuf)> {
        let stem = |path: PathBuf| {
            let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (run, path)
        };
        let mut all: Vec<_> = self.dirs.iter().flat_map(|dir| files(dir)).map(stem).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0));
        all
    }

    /// Saves a list that the user accepted, without a run.
    pub fn accept(&self, ledger: &Ledger) -> io::Result<()> {
        let name = self.list.strip_prefix(self.project.root()).unwrap_or(&self.list);
        let (list, name) = (self.list.to_string_lossy(), name.to_string_lossy());
        std::fs::create_dir_all(self.dir())?;
        let content = serde_json::to_vec(&LedgerFileContent { list, name, ledger })?;
        save_atomically(&new_path(self.dir()), &content)
    }

    /// Starts a new list: earlier ledgers no longer apply, but stay. Errors name the directory.
    pub fn reset(&self) -> io::Result<()> {
        for dir in &self.dirs {
            if dir == self.dir() || !files(dir).is_empty() {
                mark_reset(dir).map_err(|err| {
                    io::Error::new(err.kind(), format!("{}: {err}", dir.display()))
                })?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct LastLedger {
    pub last: LastRun,
    /// Path and reason.
    pub unreadable: Vec<String>,
}

#[derive(Debug)]
pub enum LastRun {
    Run(String, Box<Ledger>),
    Reset,
    Unknown,
}

/// `None` for a reset marker.
fn read_ledger(path: &Path) -> io::Result<Option<Ledger>> {
    let value = read_value(path)?;
    if value.is_null() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_value(value)?))
}

fn read_value(path: &Path) -> io::Result<serde_json::Value> {
    const MAX_BYTES: u64 = 256 << 20;
    let bytes = safe_fs::read_limited(safe_fs::open_file(path)?, MAX_BYTES)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The directory to lock while a list is worked on. Its own directory is locked for each edit, by
/// agents too.
pub fn lock_directory(home: &Path, list: &Path) -> PathBuf {
    home.join("in-use").join(hash(&real_path(list)))
}

/// The directory for new ledgers first.
fn ledger_dirs(project: &Project, list: &Path) -> Vec<PathBuf> {
    let root = project.root();
    let tasks = project.state_dir().join("tasks");
    let label = root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let label = naming::label(&label);
    // A path may have become a link since.
    let lists = [real_path(list), canonicalize_parent(list), list.to_owned()];
    // Relative to the project, so it holds after a move.
    let names = lists.each_ref().map(|list| list.strip_prefix(root).unwrap_or(list));
    let mut dirs: Vec<PathBuf> = names.iter().map(|name| tasks.join(hash(name))).collect();
    // Version 0.1 used the absolute path, and other directories.
    for list in &lists {
        dirs.push(tasks.join(hash(list)));
        dirs.push(project.ralph_home().join("tasks").join(format!("{label}-{}", hash(list))));
    }
    // The project was moved since.
    let others = std::fs::read_dir(&tasks).into_iter().flatten().flatten().map(|it| it.path());
    dirs.extend(others.filter(|dir| is_named(dir, names[0])));
    let mut seen = HashSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}

/// Whether the ledgers in `dir` are of the list `name`.
fn is_named(dir: &Path, name: &Path) -> bool {
    let found = files(dir).into_iter().rev().find_map(|path| {
        let value = read_value(&path).ok()?;
        value.get("name")?.as_str().map(PathBuf::from)
    });
    found.is_some_and(|found| found == name)
}

fn hash(path: &Path) -> String {
    format!("{:016x}", fnv64(path.as_os_str().as_encoded_bytes()))
}

/// Resolves links as far as the path exists.
fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| canonicalize_parent(path))
}

/// Resolves links in all but the last component.
fn canonicalize_parent(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(path.file_name()).map_or_else(|| path.to_owned(), |(parent, name)| parent.join(name))
}

pub fn path(directory: &Path, run: &str) -> PathBuf {
    directory.join(format!("{run}.json"))
}

/// For a ledger without a run.
fn new_path(directory: &Path) -> PathBuf {
    path(directory, &runs::new_id(jiff::Timestamp::now().as_millisecond()))
}

fn mark_reset(directory: &Path) -> io::Result<()> {
    private_files::create_dir_all(directory)?;
    save_atomically(&new_path(directory), b"null\n")
}

/// Makes room for one more of `keep` ledgers; never removes the last. Failures are harmless.
pub fn prune(directory: &Path, keep: usize) {
    for path in files(directory).iter().rev().skip(keep.saturating_sub(1).max(1)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Oldest first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_stem().and_then(|name| name.to_str());
            name.is_some_and(is_id) && path.extension().is_some_and(|extension| extension == "json")
        })
        .collect();
    // Names sort by time.
    paths.sort_unstable();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn snapshot_pruning_keeps_newest_and_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "20261112-202752-0a1b.json",
            "20261113-202752-0a1b.json",
            "20261114-202752-0a1b.json",
            "mine.json",
        ];
        for name in names {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let exists = || names.map(|name| dir.path().join(name).exists());
        prune(dir.path(), 3);
        assert_eq!(exists(), [false, true, true, true]);
        prune(dir.path(), 0);
        assert_eq!(
            exists(),
            [false, false, true, true],
            "the last is what the next run is judged by"
        );
        prune(&dir.path().join("none"), 2);
    }

    #[test]
    fn last_run_is_remembered_until_list_is_reset() {
        let home = tempfile::tempdir().unwrap();
        let list = Path::new("/p/it's mine/ralph/tasks.json");
        let project = Project::new(Path::new("/p/it's mine"), home.path());
        let paths = LedgerPaths::new(&project, list);
        let dir = paths.dir().to_owned();
        assert!(dir.starts_with(home.path().join("projects")));
        assert!(matches!(paths.load_last().last, LastRun::Unknown));
        paths.reset().unwrap();
        assert!(matches!(paths.load_last().last, LastRun::Reset), "also where nothing was known");
        std::fs::remove_dir_all(&dir).unwrap();
        let ledger = Ledger::new(
            &parse(br#"{"project": "", "branchName": "", "description": "", "userStories": []}"#)
                .unwrap(),
        );
        std::fs::create_dir_all(&dir).unwrap();
        let run = "20261113-202752-0a1b";
        let name = "ralph/tasks.json".into();
        let file = LedgerFileContent { list: list.to_string_lossy(), name, ledger: &ledger };
        let file = serde_json::to_vec(&file).unwrap();
        std::fs::write(dir.join(format!("{run}.json")), &file).unwrap();
        assert!(String::from_utf8(file).unwrap().contains("/p/it's mine/ralph/tasks.json"));
        assert!(matches!(paths.load_last().last, LastRun::Run(last, _) if last == run));
        paths.reset().unwrap();
        assert!(matches!(paths.load_last().last, LastRun::Reset));
        std::fs::write(dir.join("20991113-202752-0a1b.json"), "{").unwrap();
        let loaded = paths.load_last();
        assert!(matches!(loaded.last, LastRun::Reset), "the older one counts");
        assert!(loaded.unreadable[0].contains("20991113"), "{loaded:?}");
    }

    #[test]
    fn ledgers_of_moved_project_and_version_0_1_are_found() {
        let home = tempfile::tempdir().unwrap();
        let (root, list) = (Path::new("/p/app"), Path::new("/p/app/ralph/tasks.json"));
        let project = Project::new(root, home.path());
        let tasks = project.state_dir().join("tasks");
        let paths = || LedgerPaths::new(&project, list);
        assert_eq!(paths().dir(), tasks.join(hash(Path::new("ralph/tasks.json"))));
        let text = br#"{"project": "", "branchName": "", "description": "", "userStories": []}"#;
        let ledger = Ledger::new(&parse(text).unwrap());
        let save = |dir: PathBuf, name: &str, run: &str| {
            std::fs::create_dir_all(&dir).unwrap();
            let list = "/before/ralph/tasks.json".into();
            let file = LedgerFileContent { list, name: name.into(), ledger: &ledger };
            std::fs::write(path(&dir, run), serde_json::to_vec(&file).unwrap()).unwrap();
        };
        let last = || match paths().load_last().last {
            LastRun::Run(run, _) => run,
            LastRun::Reset | LastRun::Unknown => String::new(),
        };
        let [first, second, third] =
            ["0a1b", "0a1c", "0a1d"].map(|end| format!("20261113-202752-{end}"));
        save(
            home.path().join("tasks").join(format!("app-{}", hash(list))),
            "ralph/tasks.json",
            &first,
        );
        assert_eq!(last(), first, "of version 0.1");
        let moved = tasks.join(hash(Path::new("/before/ralph/tasks.json")));
        save(moved, "ralph/tasks.json", &second);
        save(tasks.join(hash(Path::new("other"))), "other/tasks.json", &third);
        assert_eq!(last(), second, "of the place before, and not of another list");
    }
}
