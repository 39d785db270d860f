//! The `.ralph` directory of a project.

use std::io;
use std::path::{Path, PathBuf};

/// Run-time files that have no place in version control. Settings, prompts and plans are not here.
const GITIGNORE: &str = "\
# Written by ralph: run-time files and what is only for this machine.
/runs/
/logs/
/lock
/settings.local.json
/guardrail_*.log
/prompt_*.txt
/side_*.txt
";

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

    pub fn lock_path(&self) -> PathBuf {
        self.ralph_dir().join("lock")
    }

    /// Makes everything that a run will write to, so that nobody else can put something in its place.
    pub fn prepare_all(&self) -> io::Result<()> {
        self.prepare()?;
        for dir in [self.runs_dir(), self.ralph_dir().join("logs")] {
            std::fs::create_dir_all(dir)?;
        }
        let mut lock = std::fs::OpenOptions::new();
        lock.append(true).create(true).open(self.lock_path()).map(drop)
    }

    /// Makes the directory if it is missing, and keeps its run-time files out of version control.
    pub fn prepare(&self) -> io::Result<()> {
        let dir = self.ralph_dir();
        std::fs::create_dir_all(&dir)?;
        let ignore = dir.join(".gitignore");
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&ignore) {
            Ok(mut file) => io::Write::write_all(&mut file, GITIGNORE.as_bytes()),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(err) => Err(err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_ignore_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::new(dir.path().to_owned());
        project.prepare().unwrap();
        let ignore = project.ralph_dir().join(".gitignore");
        assert!(std::fs::read_to_string(&ignore).unwrap().contains("settings.local.json"));
        std::fs::write(&ignore, "mine").unwrap();
        project.prepare().unwrap();
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), "mine");
    }
}
