//! git's lock files, and those that a killed git leaves behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_process as process;
use ralph_process::LockUsers;

use super::repository::read_git_file;

/// Programs other than git may hold a lock briefly, without keeping it open.
pub(super) const STALE_LOCK_AGE: Duration = Duration::from_secs(60);

/// Long-lived git processes that hold no lock.
const GIT_DAEMONS: [&str; 3] = ["fsmonitor--daemon", "credential-cache--daemon", "daemon"];

/// Whether another git uses the repository. Lock file names are the same in every language.
pub fn is_lock_error(stderr: &str) -> bool {
    let permanent = ["Permission denied", "No space left", "Read-only"];
    let busy = [".lock'", "lock config file"];
    // A worktree that is being created exists before it can be read.
    let is_half_made = stderr.contains("worktrees/") && stderr.contains("commondir");
    (busy.iter().any(|words| stderr.contains(words)) || is_half_made)
        && !permanent.iter().any(|words| stderr.contains(words))
}

/// The lock in git's error message, if inside a git directory.
pub fn blocking_lock(stderr: &str) -> Option<PathBuf> {
    let end = stderr.find(".lock'")? + ".lock".len();
    let start = stderr.get(..end)?.rfind('\'')? + 1;
    let path = PathBuf::from(stderr.get(start..end)?);
    let is_gits = path.is_absolute() && path.iter().any(|name| name == ".git");
    (is_gits && is_lock_error(stderr)).then_some(path)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStatus {
    /// In use, or unknown.
    InUse,
    /// Apparently unused, but too new for so many milliseconds.
    MaybeStale(u64),
    Stale,
}

/// Stale: old, not open, and no git works in the repository or its work trees.
pub fn lock_status(lock: &Path, project: &Path) -> LockStatus {
    let Ok(meta) = lock.symlink_metadata() else { return LockStatus::InUse };
    let age = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
    let Some(age) = age.filter(|_| meta.is_file()) else { return LockStatus::InUse };
    match STALE_LOCK_AGE.saturating_sub(age).as_millis() {
        _ if may_be_used(lock, project) => LockStatus::InUse,
        0 => LockStatus::Stale,
        remaining => LockStatus::MaybeStale(u64::try_from(remaining).unwrap_or(u64::MAX)),
    }
}

fn may_be_used(lock: &Path, project: &Path) -> bool {
    // The path comes from program output, so links are not trusted.
    if !lock.canonicalize().is_ok_and(|real| real == lock) {
        return true;
    }
    let Some(own) = lock.ancestors().find(|above| above.ends_with(".git")) else { return true };
    let Some(top) = own.parent().and_then(|top| top.canonicalize().ok()) else { return true };
    let linked = own.join("worktrees").read_dir().into_iter().flatten().flatten();
    let linked = linked.filter_map(|tree| {
        let file = read_git_file(&tree.path().join("gitdir"))?;
        Path::new(file.trim()).parent()?.canonicalize().ok()
    });
    let work_trees: Vec<PathBuf> = std::iter::once(top).chain(linked).collect();
    if !work_trees.iter().any(|tree| project.starts_with(tree)) {
        return true;
    }
    let location_flags =
        &["GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=", "--git-dir", "--work-tree"];
    let users = LockUsers {
        program: "git",
        directories: &work_trees,
        location_flags,
        idle_programs: &GIT_DAEMONS,
    };
    process::may_be_in_use(lock, &users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contended_git_lock_is_waited_for() {
        for (stderr, expected) in [
            ("fatal: Unable to create '/r/.git/index.lock': File exists.", true),
            ("error: could not lock config file .git/config: File exists", true),
            ("fatal: Konnte '/r/.git/HEAD.lock' nicht erstellen: Datei existiert bereits", true),
            ("fatal: failed to read .git/worktrees/a/commondir: Success", true),
            ("fatal: Unable to create '/r/.git/index.lock': Permission denied", false),
            ("fatal: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists", false),
            ("fatal: not a git repository", false),
        ] {
            assert_eq!(is_lock_error(stderr), expected, "{stderr}");
        }
    }

    #[test]
    fn git_lock_path_is_parsed_only_from_git_directory() {
        let found = |stderr: &str| blocking_lock(stderr).map(|path| path.display().to_string());
        let stderr = "fatal: cannot lock ref 'HEAD': Unable to create '/r/.git/HEAD.lock': File exists.\n\nAnother";
        assert_eq!(found(stderr).as_deref(), Some("/r/.git/HEAD.lock"));
        for other in [
            "fatal: Unable to create '/r/.git/index.lock': Permission denied",
            "fatal: Unable to create '/home/me/work.lock': File exists.",
            "fatal: Unable to create '.git/index.lock': File exists.",
            ".lock'",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn new_or_held_git_lock_is_not_abandoned() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let (path, project) = (dir.join(".git/index.lock"), dir.join("project"));
        std::fs::create_dir(dir.join(".git")).unwrap();
        let lock = std::fs::File::create(&path).unwrap();
        let aged = |seconds: u64| {
            let lock = std::fs::File::options().append(true).open(&path).unwrap();
            lock.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        assert_eq!(lock_status(&path, &project), LockStatus::InUse, "it is open and new");
        aged(3600);
        assert_eq!(lock_status(&path, &project), LockStatus::InUse, "it is open");
        drop(lock);
        let other = Path::new("/elsewhere");
        assert_eq!(lock_status(&path, other), LockStatus::InUse, "it is another repository's");
        std::os::unix::fs::symlink(&path, dir.join(".git/link.lock")).unwrap();
        assert_eq!(
            lock_status(&dir.join(".git/link.lock"), &project),
            LockStatus::InUse,
            "it is a link"
        );
        if !process::can_see_all_users(&path) {
            return assert_eq!(lock_status(&path, &project), LockStatus::InUse, "unknown");
        }
        // git processes of other tests may not reveal where they work.
        let settled = || {
            let mut status = LockStatus::InUse;
            ralph_store::lock::holds_for(Duration::from_secs(60), || {
                status = lock_status(&path, &project);
                status == LockStatus::InUse
            });
            status
        };
        assert_eq!(settled(), LockStatus::Stale);
        aged(40);
        assert!(matches!(settled(), LockStatus::MaybeStale(1..=20_000)));
    }
}
