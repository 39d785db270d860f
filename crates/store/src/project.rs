use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::relocation::DirIdentity;
use super::runs::{self, RunDir};
use super::save::save_atomically;
use super::{active_marker, private_files, runs_link, safe_fs};
use super::{naming, project_record};

/// Run-time files that do not belong in version control, unlike settings, prompts and plans.
const GITIGNORE: &str = "\
# Written by ralph: run-time files and what is only for this machine.
/runs
/logs/
/lock
/settings.local.json
/guardrail_*.log
/tasks.before.json
/prompt_*.txt
/side_*.txt
/questions/
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
            // A directory of this name is one of version 0.1.
            (None, None) => relative
                .strip_prefix(pattern)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    })
}

/// A directory that agents work in, and where its runs are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
    ralph_home: PathBuf,
    state_dir: PathBuf,
}

impl Project {
    /// `root` must be resolved already. `ralph_home` is ralph's own directory.
    pub fn new(root: &Path, ralph_home: &Path) -> Self {
        let name = root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        let hash = project_record::fnv64(root.as_os_str().as_encoded_bytes());
        let state_dir = project_record::projects_dir(ralph_home)
            .join(format!("{}-{hash:016x}", naming::label(&name)));
        Project { root: root.to_owned(), ralph_home: ralph_home.to_owned(), state_dir }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn ralph_dir(&self) -> PathBuf {
        self.root().join(".ralph")
    }

    pub fn ralph_home(&self) -> &Path {
        &self.ralph_home
    }

    /// The directory of this project in ralph's home.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn runs_dir(&self) -> PathBuf {
        self.state_dir.join(project_record::RUNS)
    }

    pub fn run_dir(&self, id: &str) -> RunDir {
        RunDir { id: id.to_owned(), path: self.runs_dir().join(id) }
    }

    pub fn logs_dir(&self) -> PathBuf {
        self.ralph_dir().join("logs")
    }

    /// Where the agents of a run leave questions.
    pub fn questions_dir(&self, run: &str) -> PathBuf {
        self.ralph_dir().join("questions").join(run)
    }

    /// The plan that `ralph plan` writes and `ralph build` works through.
    pub const PLAN_FILE: &'static str = ".ralph/implementation_plan.md";

    pub fn lock_path(&self) -> PathBuf {
        self.state_dir().join("lock")
    }

    /// Creates all paths in the project that a run writes to, so an agent cannot create them first.
    pub fn prepare_all(&self) -> io::Result<()> {
        self.prepare()?;
        private_files::create_in_project(&self.logs_dir())?;
        self.restrict_access();
        Ok(())
    }

    /// Creates the directory for runs in ralph's home. [`prepare`](Project::prepare) links it.
    pub fn prepare_state(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.runs_dir())?;
        // A path that is not UTF-8 cannot be recorded. Then a move goes unnoticed.
        let _ = self.update_record(|record| record.identity = DirIdentity::read_at(self.root()));
        Ok(())
    }

    /// Like [`home::restore_access`](super::home::restore_access), for the runs of this project.
    pub fn restore_run_access(&self) -> Vec<PathBuf> {
        let runs = runs::list(&self.runs_dir()).unwrap_or_default();
        let mut restored: Vec<PathBuf> =
            runs.iter().filter_map(|run| private_files::restore_access(&run.path)).collect();
        // Only the last run can have been killed without a restoration.
        let last = runs.last().and_then(|run| run.path.read_dir().ok());
        let files = last.into_iter().flatten().flatten();
        restored.extend(files.filter_map(|file| private_files::restore_access(&file.path())));
        restored
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
        private_files::restrict_access(&self.logs_dir());
    }

    pub fn prepare(&self) -> io::Result<()> {
        let ralph_dir = self.ralph_dir();
        for dir in [&ralph_dir, &self.logs_dir()] {
            safe_fs::check_inside(self.root(), &dir.join("file"))?;
        }
        std::fs::create_dir_all(&ralph_dir)?;
        if self.runs_dir().is_dir() {
            // Only for people: a read-only project works without it.
            let _ = runs_link::create(self);
        }
        let ignore = ralph_dir.join(".gitignore");
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&ignore) {
            Ok(mut file) => file.write_all(GITIGNORE.as_bytes()).inspect_err(|_| {
                // An empty file would look like the user's.
                let _ = std::fs::remove_file(&ignore);
            }),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                updated_gitignore(&ignore).map_or(Ok(()), |text| save_atomically(&ignore, &text))
            }
            Err(err) => Err(err),
        }
    }

    /// A cheap check for frequent calls. A shorter ignore file may be truncated.
    pub fn is_prepared(&self) -> bool {
        let ignore = self.ralph_dir().join(".gitignore").symlink_metadata();
        ignore.is_ok_and(|meta| !meta.is_file() || meta.len() >= GITIGNORE.len() as u64)
    }
}

/// The new content of an ignore file that ralph wrote only in part (its writer was killed, or the
/// disk was full), or in version 0.1, in which `runs` was a directory.
fn updated_gitignore(path: &Path) -> Option<Vec<u8>> {
    const MAX_BYTES: u64 = 1 << 20;
    path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    let text = safe_fs::read_limited(safe_fs::open_file(path).ok()?, MAX_BYTES).ok()?;
    let text = String::from_utf8(text).ok()?;
    // The user may have added lines.
    let updated: String = text
        .split_inclusive('\n')
        .map(|line| if line.trim_end() == "/runs/" { "/runs\n" } else { line })
        .collect();
    let updated = if GITIGNORE.starts_with(&updated) { GITIGNORE.to_owned() } else { updated };
    (updated != text).then(|| updated.into_bytes())
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
            (".ralph/runs", true),
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
        let project = Project::new(dir.path(), &dir.path().join("home"));
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
        let project = Project::new(dir.path(), &dir.path().join("home"));
        project.prepare().unwrap();
        let ignore = project.ralph_dir().join(".gitignore");
        for torn in [0, 1, 70, GITIGNORE.len() - 1] {
            std::fs::write(&ignore, &GITIGNORE[..torn]).unwrap();
            assert!(!project.is_prepared(), "{torn}");
            project.prepare().unwrap();
            assert_eq!(std::fs::read_to_string(&ignore).unwrap(), GITIGNORE, "{torn}");
        }
        std::fs::write(&ignore, GITIGNORE.replace("/runs\n", "/runs/\n")).unwrap();
        project.prepare().unwrap();
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), GITIGNORE, "of version 0.1");
        std::fs::write(&ignore, "/runs/\n/mine\n").unwrap();
        project.prepare().unwrap();
        assert_eq!(std::fs::read_to_string(&ignore).unwrap(), "/runs\n/mine\n");
        std::fs::remove_file(&ignore).unwrap();
        assert!(!project.is_prepared());
        // A link of the user is kept, with its target.
        let theirs = dir.path().join("theirs");
        std::fs::write(&theirs, "").unwrap();
        std::os::unix::fs::symlink(&theirs, &ignore).unwrap();
        project.prepare().unwrap();
        assert!(ignore.is_symlink());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "");
    }
}
