use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::save::save_atomically;
use super::{active_marker, lock, private_files, safe_fs};

/// Run-time files that do not belong in version control, unlike settings, prompts and plans.
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

/// Stories as they were before an agent removed them.
pub const REMOVED_STORIES_FILE: &str = "tasks.before.json";

/// Whether a repository-relative path is a run-time file, ignored by git or not.
pub fn is_run_time_file(path: &str) -> bool {
    if path.rsplit('/').next() == Some(active_marker::MARKER_FILE) {
        return true;
    }
    let relative = match path.strip_prefix(".ralph/") {
        Some(relative) => relative,
        None => match path.split_once("/.ralph/") {
            Some((_, relative)) => relative,
            None => return false,
        },
    };
    // git lists the directory itself if none of its files is tracked.
    if relative.is_empty() || relative == ".gitignore" {
        return true;
    }
    GITIGNORE.lines().filter_map(|line| line.strip_prefix('/')).any(|pattern| {
        match (pattern.strip_suffix('/'), pattern.split_once('*')) {
            (Some(directory), _) => {
                relative.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
            }
            (None, Some((start, end))) => relative.starts_with(start) && relative.ends_with(end),
            (None, None) => relative == pattern,
        }
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// `root` must be resolved already.
    pub fn new(root: PathBuf) -> Self {
        Project { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn ralph_dir(&self) -> PathBuf {
        self.root.join(".ralph")
    }

    pub fn runs_dir(&self) -> PathBuf {
        self.ralph_dir().join("runs")
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.ralph_dir().join("logs")
    }

    /// The plan that `ralph plan` writes and `ralph build` works through.
    pub const PLAN_FILE: &'static str = ".ralph/implementation_plan.md";

    pub fn lock_path(&self) -> PathBuf {
        self.ralph_dir().join("lock")
    }

    /// Creates all paths that a run writes to, so an agent cannot create them first.
    pub fn prepare_all(&self) -> io::Result<()> {
        self.prepare()?;
        for dir in [self.runs_dir(), self.logs_dir()] {
            private_files::create_in_project(&dir)?;
        }
        self.restrict_access();
        lock::open_note(&self.lock_path()).map(drop)
    }

    /// Older versions let other users read these files.
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

    pub fn prepare(&self) -> io::Result<()> {
        let ralph_dir = self.ralph_dir();
        for dir in [&ralph_dir, &self.runs_dir(), &self.logs_dir()] {
            safe_fs::check_inside(&self.root, &dir.join("file"))?;
        }
        std::fs::create_dir_all(&ralph_dir)?;
        let ignore = ralph_dir.join(".gitignore");
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&ignore) {
            Ok(mut file) => file.write_all(GITIGNORE.as_bytes()).inspect_err(|_| {
                // An empty file would look like the user's.
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

    /// Like [`prepare`](Project::prepare), while an agent may create links. A truncated file is
    /// completed later.
    pub fn prepare_beside_agent(&self) -> io::Result<()> {
        match safe_fs::make_whole(&self.root, &self.ralph_dir().join(".gitignore"), GITIGNORE) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// A cheap check for frequent calls. A shorter ignore file may be truncated.
    pub fn is_prepared(&self) -> bool {
        let ignore = self.ralph_dir().join(".gitignore").symlink_metadata();
        ignore.is_ok_and(|meta| !meta.is_file() || meta.len() >= GITIGNORE.len() as u64)
    }
}

/// Whether an ignore file is a proper prefix of ralph's: its writer was killed, or the disk was
/// full.
fn is_truncated_gitignore(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let max_bytes = GITIGNORE.len() as u64;
    let content =
        || safe_fs::open_file(path).and_then(|file| safe_fs::read_limited(file, max_bytes));
    is_file
        && content().is_ok_and(|bytes| {
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
        // A link of the user is kept, with its target.
        std::fs::remove_file(&ignore).unwrap();
        let theirs = dir.path().join("theirs");
        std::fs::write(&theirs, "").unwrap();
        std::os::unix::fs::symlink(&theirs, &ignore).unwrap();
        project.prepare().unwrap();
        assert!(ignore.is_symlink());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "");
    }
}
