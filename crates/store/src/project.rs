//! The `.ralph` directory of a project.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::save::save_atomically;
use super::{active_marker, lock, private_files, safe_fs};

/// Run-time files that have no place in version control. Settings, prompts and plans are not here.
const GITIGNORE: &str = "\
# Written by ralph: run-time files and what is only for this machine.
/runs/
/logs/
/lock
/settings.local.json
/guardrail_*.log
/tasks.before.json
/prompt_*.txt
/side_*.txt
";

/// In the `.ralph` directory: the stories of a task list as they were before an agent lost them.
pub const REMOVED_STORIES_FILE: &str = "tasks.before.json";

/// Whether a path, relative to the repository, is that of a file which ralph writes for itself while it
/// runs: nobody's work, whether or not git was told to ignore it.
pub fn is_run_time_file(path: &str) -> bool {
    if path.rsplit('/').next() == Some(active_marker::MARKER_FILE) {
        return true;
    }
    let inside = match path.strip_prefix(".ralph/") {
        Some(inside) => inside,
        None => match path.split_once("/.ralph/") {
            Some((_, inside)) => inside,
            None => return false,
        },
    };
    // The whole directory, if nothing in it was ever committed.
    if inside.is_empty() || inside == ".gitignore" {
        return true;
    }
    GITIGNORE.lines().filter_map(|line| line.strip_prefix('/')).any(|pattern| {
        match (pattern.strip_suffix('/'), pattern.split_once('*')) {
            (Some(directory), _) => {
                inside.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
            }
            (None, Some((start, end))) => inside.starts_with(start) && inside.ends_with(end),
            (None, None) => inside == pattern,
        }
    })
}

/// A project that ralph works in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// `root` is taken as it is: resolve it first.
    pub fn new(root: PathBuf) -> Self {
        Project { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of everything that is ralph's.
    pub fn ralph_dir(&self) -> PathBuf {
        self.root.join(".ralph")
    }

    pub fn runs_dir(&self) -> PathBuf {
        self.ralph_dir().join("runs")
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.ralph_dir().join("logs")
    }

    /// The plan that `ralph plan` writes and `ralph build` works off, by its path in the project.
    pub const PLAN_FILE: &'static str = ".ralph/implementation_plan.md";

    pub fn lock_path(&self) -> PathBuf {
        self.ralph_dir().join("lock")
    }

    /// Makes everything that a run will write to, so that nobody else can put something in its place.
    pub fn prepare_all(&self) -> io::Result<()> {
        self.prepare()?;
        for dir in [self.runs_dir(), self.logs_dir()] {
            private_files::create_in_project(&dir)?;
        }
        self.restrict_access();
        lock::open_note(&self.lock_path()).map(drop)
    }

    /// Takes the access of other users away from what older versions let them read.
    pub fn restrict_access(&self) {
        let dir = self.ralph_dir();
        let files = std::fs::read_dir(&dir).into_iter().flatten().flatten().filter(|entry| {
            let name = entry.file_name();
            let is_own = |name: &str| {
                name != "settings.local.json" && is_run_time_file(&format!(".ralph/{name}"))
            };
            name != ".gitignore" && name.to_str().is_some_and(is_own)
        });
        files.for_each(|entry| private_files::restrict_access(&entry.path()));
        [self.runs_dir(), self.logs_dir()]
            .iter()
            .for_each(|dir| private_files::restrict_access(dir));
    }

    /// Makes the directory if it is missing, and keeps its run-time files out of version control.
    pub fn prepare(&self) -> io::Result<()> {
        let dir = self.ralph_dir();
        for place in [&dir, &self.runs_dir(), &self.logs_dir()] {
            safe_fs::check_inside(&self.root, &place.join("file"))?;
        }
        std::fs::create_dir_all(&dir)?;
        let ignore = dir.join(".gitignore");
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&ignore) {
            Ok(mut file) => file.write_all(GITIGNORE.as_bytes()).inspect_err(|_| {
                // One that says nothing would be taken for the user's. If it stays, the next start sees to it.
                let _ = std::fs::remove_file(&ignore);
            }),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                if is_truncated_gitignore(&ignore) {
                    save_atomically(&ignore, GITIGNORE.as_bytes())
                } else {
                    Ok(())
                }
            }
            Err(err) => Err(err),
        }
    }

    /// The same while an agent is at work, who may put a link there at any moment. What is half written then is
    /// whole once the agent has ended.
    pub fn prepare_beside_agent(&self) -> io::Result<()> {
        match safe_fs::make_whole(&self.root, &self.ralph_dir().join(".gitignore"), GITIGNORE) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Whether what was prepared is still there, by one look: for whoever has prepared it before and asks often. An
    /// ignore file that is shorter than ours may be torn, and is to be looked into.
    pub fn is_prepared(&self) -> bool {
        let ignore = self.ralph_dir().join(".gitignore").symlink_metadata();
        ignore.is_ok_and(|meta| !meta.is_file() || meta.len() >= GITIGNORE.len() as u64)
    }
}

/// Whether an ignore file is the beginning of ours, and no more: whoever wrote it was killed there, or the disk was
/// full. Nobody means to keep nothing, or the half of it, out of version control.
fn is_truncated_gitignore(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let most = GITIGNORE.len() as u64;
    let there = || safe_fs::open_file(path).and_then(|file| safe_fs::read_limited(file, most));
    is_file
        && there().is_ok_and(|bytes| {
            bytes.len() < GITIGNORE.len() && GITIGNORE.as_bytes().starts_with(&bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_files_are_distinguished_from_user_files() {
        for (path, expected) in [
            (".ralph-active", true),
            ("sub/.ralph-active", true),
            (".ralph/", true),
            (".ralph/.gitignore", true),
            (".ralph/runs/x/events.jsonl", true),
            (".ralph/runs/", true),
            (".ralph/lock", true),
            (".ralph/settings.local.json", true),
            (".ralph/guardrail_001_test.log", true),
            (".ralph/tasks.before.json", true),
            ("sub/.ralph/prompt_001.txt", true),
            (".ralph/settings.json", false),
            (".ralph/prompts/build.md", false),
            (".ralph/implementation_plan.md", false),
            (".ralph/lock.rs", false),
            (".ralph/runsheet", false),
            ("ralph/tasks.json", false),
            ("ralph/progress.txt", false),
            ("src/.ralph-active.rs", false),
            ("", false),
        ] {
            assert_eq!(is_run_time_file(path), expected, "{path}");
        }
    }

    #[test]
    fn user_gitignore_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new(dir.path().to_owned());
        project.prepare().unwrap();
        let ignore = project.ralph_dir().join(".gitignore");
        assert!(std::fs::read_to_string(&ignore).unwrap().contains("settings.local.json"));
        std::fs::write(&ignore, "mine").unwrap();
        project.prepare().unwrap();
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), "mine");
    }

    #[test]
    fn truncated_gitignore_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new(dir.path().to_owned());
        project.prepare().unwrap();
        let ignore = project.ralph_dir().join(".gitignore");
        for torn in [0, 1, 70, GITIGNORE.len() - 1] {
            std::fs::write(&ignore, &GITIGNORE[..torn]).unwrap();
            assert!(!project.is_prepared(), "{torn}");
            project.prepare_beside_agent().unwrap();
            project.prepare().unwrap();
            assert_eq!(std::fs::read_to_string(&ignore).unwrap(), GITIGNORE, "{torn}");
        }
        std::fs::remove_file(&ignore).unwrap();
        assert!(!project.is_prepared());
        project.prepare_beside_agent().unwrap();
        assert!(project.is_prepared());
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), GITIGNORE);
        // What somebody has put in its place, and what it leads to, is theirs.
        std::fs::remove_file(&ignore).unwrap();
        let theirs = dir.path().join("theirs");
        std::fs::write(&theirs, "").unwrap();
        std::os::unix::fs::symlink(&theirs, &ignore).unwrap();
        project.prepare().unwrap();
        assert!(ignore.is_symlink());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "");
    }
}
