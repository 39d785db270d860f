//! Data about a project outside the agent's reach:
//! `$RALPH_HOME/projects/<label>-<hash of the path>`, with `project.json` and its runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock;
use super::private_files;
use super::project::Project;
use super::relocation::{DirIdentity, Relocation};
use super::save::save_privately;
use super::saved_path;

const FILE: &str = "project.json";
const LOCK: &str = "record.lock";
pub(super) const RUNS: &str = "runs";

impl ProjectRecord {
    /// Whether the project is no longer at its path.
    fn is_gone(&self) -> bool {
        match &self.identity {
            Some(identity) => identity.is_gone_from(&self.root),
            None => !self.root.exists(),
        }
    }

    fn relocated(&self, moved: &Relocation) -> ProjectRecord {
        let path = |path: &PathBuf| moved.apply(path);
        let git = self.git.as_ref().map(|git| GitBaseline {
            repositories: git
                .repositories
                .iter()
                .map(|(at, dirs)| {
                    let GitDirs { git_dir, common_dir } = dirs;
                    (path(at), GitDirs { git_dir: path(git_dir), common_dir: path(common_dir) })
                })
                .collect(),
            // Link targets did not change.
            links: git.links.iter().map(|(at, target)| (path(at), target.clone())).collect(),
            open_runs: git.open_runs.clone(),
        });
        ProjectRecord {
            root: path(&self.root),
            agent_writable: self.agent_writable.iter().map(path).collect(),
            git,
            ..self.clone()
        }
    }
}

/// The content of `project.json`. Unknown keys of newer versions are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// The project's path without links.
    #[serde(with = "saved_path")]
    pub root: PathBuf,
    /// The sandbox backend of the last sandboxed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Directories outside `root` that an agent of this project could write.
    #[serde(default, with = "saved_path::list", skip_serializing_if = "Vec::is_empty")]
    pub agent_writable: Vec<PathBuf>,
    /// The git directories at the start of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitBaseline>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<DirIdentity>,
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Git directories at the start of a run, by paths without links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitBaseline {
    /// Targets of each `.git` in the project's directory and its parents.
    #[serde(default, with = "saved_path::map")]
    pub repositories: BTreeMap<PathBuf, GitDirs>,
    /// Symbolic links in these directories, with targets.
    #[serde(default, with = "saved_path::pairs")]
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Processes of runs that have not yet checked these directories at their end: active or
    /// killed.
    #[serde(default)]
    pub open_runs: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDirs {
    #[serde(with = "saved_path")]
    pub git_dir: PathBuf,
    /// Shared by all worktrees; the same as `git_dir` without worktrees.
    #[serde(with = "saved_path")]
    pub common_dir: PathBuf,
}

impl Project {
    pub fn record_file(&self) -> PathBuf {
        self.state_dir().join(FILE)
    }

    /// Empty if there is none. Errors name the file.
    pub fn load_record(&self) -> io::Result<ProjectRecord> {
        let empty = ProjectRecord { root: self.root().to_owned(), ..ProjectRecord::default() };
        Ok(read_record(&self.record_file())?.unwrap_or(empty))
    }

    /// Locks the record. Writes only if it changed.
    pub fn update_record(
        &self,
        change: impl FnOnce(&mut ProjectRecord),
    ) -> io::Result<ProjectRecord> {
        private_files::create_dir_all(self.state_dir())?;
        let mut options = private_files::private_open_options();
        let lock =
            options.write(true).create(true).truncate(false).open(self.state_dir().join(LOCK))?;
        lock.lock()?;
        let before = self.load_record()?;
        let mut record = before.clone();
        change(&mut record);
        if record != before || !self.record_file().exists() {
            save_privately(&self.record_file(), &serde_json::to_vec_pretty(&record)?)?;
        }
        Ok(record)
    }
}

/// Skips unreadable ones.
pub fn all_records(home: &Path) -> Vec<ProjectRecord> {
    all_projects(home).into_iter().map(|(_, record)| record).collect()
}

/// State directories with their records.
fn all_projects(home: &Path) -> Vec<(PathBuf, ProjectRecord)> {
    let dirs = fs::read_dir(projects_dir(home)).into_iter().flatten().flatten();
    let records = dirs.filter_map(|entry| {
        let record = read_record(&entry.path().join(FILE)).ok().flatten()?;
        Some((entry.path(), record))
    });
    records.collect()
}

/// A project as ralph's home has it.
#[derive(Debug)]
pub struct StoredProject {
    pub dir: PathBuf,
    /// `None` without a record.
    pub root: io::Result<Option<PathBuf>>,
}

impl StoredProject {
    pub fn runs_dir(&self) -> PathBuf {
        self.dir.join(RUNS)
    }
}

/// All projects in ralph's home, with those whose record cannot be read. Fails if they cannot be listed.
pub fn stored_projects(home: &Path) -> io::Result<Vec<StoredProject>> {
    let entries = match fs::read_dir(projects_dir(home)) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let dirs = entries.flatten().filter(|entry| is_project_dir(&entry.file_name()));
    let stored = dirs.map(|entry| {
        let root = read_record(&entry.path().join(FILE)).map(|record| Some(record?.root));
        StoredProject { dir: entry.path(), root }
    });
    Ok(stored.collect())
}

/// Run data of a project that no longer exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedRuns {
    pub root: PathBuf,
    pub dir: PathBuf,
    pub bytes: u64,
}

pub fn orphaned_runs(home: &Path) -> Vec<OrphanedRuns> {
    let projects = all_projects(home).into_iter();
    let orphaned =
        projects.filter(|(dir, record)| !record.root.exists() && dir.join(RUNS).is_dir());
    let described =
        orphaned.map(|(dir, record)| OrphanedRuns { root: record.root, bytes: size_of(&dir), dir });
    described.collect()
}

fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// If the project at `root`, or one around it, was moved there, transfers its data and that of the
/// projects inside it. Returns where it was. Fails with `ResourceBusy` while a run is active in it.
pub fn adopt_moved_project(home: &Path, root: &Path) -> io::Result<Option<PathBuf>> {
    let projects = all_projects(home);
    let moved = projects.iter().find_map(|(dir, record)| {
        let moved = record.identity.as_ref()?.find_moved(&record.root, root.ancestors())?;
        Some((dir, moved))
    });
    let Some((dir, moved)) = moved else { return Ok(None) };
    let _idle = lock_moved(root, dir)?;
    let mut from = None;
    for (dir, record) in &projects {
        let to = moved.apply(&record.root);
        if to == record.root || !record.is_gone() {
            continue;
        }
        transfer(home, dir, record, &moved)?;
        from = if to == root { Some(record.root.clone()) } else { from };
    }
    Ok(from)
}

/// Transfers the data in `dir` of a project that was moved from `from` to `to`.
pub(super) fn take_over(home: &Path, dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
    let _idle = lock_moved(to, dir)?;
    let record = Project::new(from, home).load_record()?;
    transfer(home, dir, &record, &Relocation::new(from, to))
}

/// A run may be active in a directory that was moved under it; it still writes to `dir`.
fn lock_moved(root: &Path, dir: &Path) -> io::Result<Option<fs::File>> {
    lock::lock_briefly(root, &dir.join("lock")).map_err(|holder| {
        let pid = holder.map_or_else(String::new, |it| format!(" (pid {})", it.pid));
        io::Error::new(io::ErrorKind::ResourceBusy, format!("a run is active in it{pid}"))
    })
}

/// Every step can be repeated. The old record goes last: it tells what is left to do.
fn transfer(home: &Path, dir: &Path, record: &ProjectRecord, moved: &Relocation) -> io::Result<()> {
    let mut relocated = record.relocated(moved);
    let new = Project::new(&relocated.root, home);
    set_aside(&new)?;
    new.update_record(|there| {
        relocated.agent_writable.append(&mut there.agent_writable);
        relocated.agent_writable.sort();
        relocated.agent_writable.dedup();
        *there = relocated.clone();
    })?;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != FILE && name != LOCK && name != RUNS {
            merge_into(&dir.join(&name), &new.state_dir().join(&name))?;
        }
    }
    if dir.join(RUNS).is_dir() {
        merge_into(&dir.join(RUNS), &new.runs_dir())?;
    }
    fs::remove_dir_all(dir)
}

/// Another project was at this path before, and was moved as well. It takes its data along when it
/// is used next.
fn set_aside(project: &Project) -> io::Result<()> {
    let record = project.load_record()?;
    let Some(identity) = record.identity.filter(|_| record.is_gone()) else { return Ok(()) };
    let hash = fnv64(format!("{} {identity:?}", project.root().display()).as_bytes());
    let name = project.state_dir().file_name().unwrap_or_default().to_string_lossy();
    let label = name.rsplit_once('-').map_or("project", |(label, _)| label);
    fs::rename(
        project.state_dir(),
        project.state_dir().with_file_name(format!("{label}-{hash:016x}")),
    )
}

/// Moves a file or directory. What exists in both places stays as it is at `to`.
fn merge_into(from: &Path, to: &Path) -> io::Result<()> {
    if to.symlink_metadata().is_err() {
        return fs::rename(from, to);
    }
    if from.is_dir() && to.is_dir() {
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            merge_into(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}

/// Whether `name` is one of a project's directory.
pub(super) fn is_project_dir(name: &OsStr) -> bool {
    let hash = name.to_str().and_then(|name| name.rsplit_once('-'));
    hash.is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The path of the project whose data is in `dir`.
pub(super) fn root_of(dir: &Path) -> Option<PathBuf> {
    read_record(&dir.join(FILE)).ok().flatten().map(|record| record.root)
}

/// Present paths of moved projects that contain one of `dirs`.
pub fn moved_roots(records: &[ProjectRecord], dirs: &[PathBuf]) -> Vec<PathBuf> {
    let found = records.iter().filter_map(|record| {
        let above = dirs.iter().flat_map(|dir| dir.ancestors());
        let moved = record.identity.as_ref()?.find_moved(&record.root, above)?;
        Some(moved.apply(&record.root))
    });
    found.collect()
}

pub fn projects_dir(home: &Path) -> PathBuf {
    home.join("projects")
}

fn read_record(path: &Path) -> io::Result<Option<ProjectRecord>> {
    let named = |err: io::Error| io::Error::new(err.kind(), format!("{}: {err}", path.display()));
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|err| named(err.into())),
        // A home that is no directory has no records.
        Err(err)
            if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(err) => Err(named(err)),
    }
}

/// FNV-1a, which is the same in every version of this program.
pub fn fnv64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_record_round_trips_and_keeps_unknown_keys() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::new(Path::new("/work/a b"), home.path());
        assert_eq!(project.load_record().unwrap().root, Path::new("/work/a b"));
        assert!(!project.state_dir().exists(), "loading writes nothing");
        project.update_record(|record| record.sandbox = Some("bwrap".to_owned())).unwrap();
        let path = project.state_dir().join(FILE);
        let text = fs::read_to_string(&path).unwrap().replace('{', "{\"newer\": 1,");
        fs::write(&path, text).unwrap();
        project.update_record(|record| record.agent_writable.push("/cache".into())).unwrap();
        let record = project.load_record().unwrap();
        assert_eq!(record.sandbox.as_deref(), Some("bwrap"));
        assert_eq!(record.other["newer"], 1);
        assert_eq!(all_records(home.path()), [record]);
    }

    #[test]
    fn damaged_project_record_is_error_naming_file() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::new(Path::new("/work/a"), home.path());
        project.update_record(|_| {}).unwrap();
        fs::write(project.state_dir().join(FILE), "{").unwrap();
        let error = project.load_record().unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
        assert!(project.update_record(|_| {}).is_err(), "a damaged record is not overwritten");
        assert_eq!(all_records(home.path()), []);
    }

    #[test]
    fn moved_project_keeps_its_record() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let [home, old, new] = ["home", "old", "new"].map(|name| base.join(name));
        let (nested, nested_now) = (old.join("packages/app"), new.join("packages/app"));
        fs::create_dir_all(&nested).unwrap();
        for root in [&old, &nested] {
            let update = |record: &mut ProjectRecord| {
                let dirs = GitDirs { git_dir: old.join(".git"), common_dir: old.join(".git") };
                record.identity = DirIdentity::read_at(root);
                record.sandbox = Some("bwrap".to_owned());
                record.git = Some(GitBaseline {
                    repositories: [(old.join(".git"), dirs)].into(),
                    links: [(old.join(".git/x"), old.join("y"))].into(),
                    open_runs: vec![1],
                });
            };
            Project::new(root, &home).update_record(update).unwrap();
        }
        adopt_moved_project(&home, &old).unwrap();
        assert_eq!(all_records(&home).len(), 2, "nothing was moved");
        fs::rename(&old, &new).unwrap();
        let roots = |dir: &str| moved_roots(&all_records(&home), &[base.join(dir)]);
        assert_eq!(roots("new/bin"), std::slice::from_ref(&new));
        assert!(roots("other").is_empty());
        adopt_moved_project(&home, &new).unwrap();
        for root in [&new, &nested_now] {
            let record = Project::new(root, &home).load_record().unwrap();
            assert_eq!(record.root, *root);
            assert_eq!(record.sandbox.as_deref(), Some("bwrap"));
            let git = record.git.unwrap();
            assert_eq!(git.repositories[&new.join(".git")].common_dir, new.join(".git"));
            assert_eq!(git.links[&new.join(".git/x")], old.join("y"));
            assert_eq!(git.open_runs, [1]);
        }
        fs::rename(&new, &old).unwrap();
        Project::new(&new, &home).update_record(|record| record.sandbox = None).unwrap();
        adopt_moved_project(&home, &nested).unwrap();
        let record = Project::new(&old, &home).load_record().unwrap();
        assert_eq!((record.sandbox, record.identity), (None, DirIdentity::read_at(&old)));
    }

    #[test]
    fn run_data_of_removed_projects_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home");
        for name in ["gone", "here", "without-runs"] {
            let project = Project::new(&temp.path().join(name), &home);
            project.update_record(|_| {}).unwrap();
            if name != "without-runs" {
                fs::create_dir_all(project.runs_dir().join("r")).unwrap();
                fs::write(project.runs_dir().join("r/events.jsonl"), "12345").unwrap();
            }
        }
        fs::create_dir(temp.path().join("here")).unwrap();
        let [found] = &orphaned_runs(&home)[..] else { panic!("one is gone") };
        assert_eq!(found.root, temp.path().join("gone"));
        assert!(found.bytes > 5 && found.dir.is_dir(), "{found:?}");
    }

    #[test]
    fn swapped_projects_keep_their_runs() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let [home, one, two, between] = ["home", "one", "two", "x"].map(|name| base.join(name));
        for (root, run) in [(&one, "run-of-one"), (&two, "run-of-two")] {
            fs::create_dir(root).unwrap();
            let project = Project::new(root, &home);
            project.prepare_state().unwrap();
            fs::create_dir(project.runs_dir().join(run)).unwrap();
        }
        fs::rename(&one, &between).unwrap();
        fs::rename(&two, &one).unwrap();
        fs::rename(&between, &two).unwrap();
        for (root, from, run) in [(&one, &two, "run-of-two"), (&two, &one, "run-of-one")] {
            assert_eq!(adopt_moved_project(&home, root).unwrap().as_ref(), Some(from));
            let runs = fs::read_dir(Project::new(root, &home).runs_dir()).unwrap();
            let runs: Vec<_> = runs.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(runs, [run]);
        }
        assert_eq!(fs::read_dir(projects_dir(&home)).unwrap().count(), 2);
    }

    #[test]
    fn projects_of_same_name_have_different_directories() {
        let home = Path::new("/h");
        let (a, b) = ("/x/app", "/y/app");
        let [a, b] = [a, b].map(|root| Project::new(Path::new(root), home));
        assert_ne!(a.state_dir(), b.state_dir());
        assert!(a.state_dir().starts_with("/h/projects"));
        assert_eq!(a, Project::new(Path::new("/x/app"), home));
    }
}
