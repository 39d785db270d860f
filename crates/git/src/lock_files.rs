//! The locks that git takes while it changes something, and what becomes of those that a killed git leaves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_process as process;
use ralph_process::LockUsers;

use super::read_git_file;

/// How old a lock is at least that was left behind. A program that is not git may hold one for a moment, too, and
/// has it not always open.
pub(super) const STALE_LOCK_AGE: Duration = Duration::from_secs(60);

/// Those of git that stay, and hold no lock meanwhile.
const GIT_DAEMONS: [&str; 3] = ["fsmonitor--daemon", "credential-cache--daemon", "daemon"];

/// Whether git failed only because another git was busy with the same repository. The names of its lock
/// files are the same in every language.
pub fn is_lock_error(said: &str) -> bool {
    let hopeless = ["Permission denied", "No space left", "Read-only"];
    let busy = [".lock'", "lock config file"];
    // A worktree that another git is just making is there before it can be read.
    let half_made = said.contains("worktrees/") && said.contains("commondir");
    (busy.iter().any(|words| said.contains(words)) || half_made)
        && !hopeless.iter().any(|words| said.contains(words))
}

/// The lock that git could not take, as it told: a file inside of a repository's own directory.
pub fn blocking_lock(said: &str) -> Option<PathBuf> {
    let end = said.find(".lock'")? + ".lock".len();
    let start = said.get(..end)?.rfind('\'')? + 1;
    let path = PathBuf::from(said.get(start..end)?);
    let is_gits = path.is_absolute() && path.iter().any(|name| name == ".git");
    (is_gits && is_lock_error(said)).then_some(path)
}

/// Whether a lock of git's was left behind by one that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStatus {
    /// Somebody may be using it, or nobody can tell.
    InUse,
    /// Nobody is to be seen who uses it, but it is so new that this may be chance, for so many milliseconds more.
    MaybeStale(u64),
    Stale,
}

/// The same of a lock of the repository that `project` is in: it has been there for a while, nobody has it open, and
/// no git is at work in the repository or in one of its work trees.
pub fn lock_status(lock: &Path, project: &Path) -> LockStatus {
    let Ok(meta) = lock.symlink_metadata() else { return LockStatus::InUse };
    let age = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
    let Some(age) = age.filter(|_| meta.is_file()) else { return LockStatus::InUse };
    match STALE_LOCK_AGE.saturating_sub(age).as_millis() {
        _ if may_be_used(lock, project) => LockStatus::InUse,
        0 => LockStatus::Stale,
        left => LockStatus::MaybeStale(u64::try_from(left).unwrap_or(u64::MAX)),
    }
}

fn may_be_used(lock: &Path, project: &Path) -> bool {
    // It was named by a program's words: nothing but a path without links is believed.
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
    let places: Vec<PathBuf> = std::iter::once(top).chain(linked).collect();
    if !places.iter().any(|place| project.starts_with(place)) {
        return true;
    }
    let told_by = &["GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=", "--git-dir", "--work-tree"];
    let users = LockUsers {
        program: "git",
        directories: &places,
        location_flags: told_by,
        idle_programs: &GIT_DAEMONS,
    };
    process::may_be_in_use(lock, &users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contended_git_lock_is_waited_for() {
        for (said, expected) in [
            ("fatal: Unable to create '/r/.git/index.lock': File exists.", true),
            ("error: could not lock config file .git/config: File exists", true),
            ("fatal: Konnte '/r/.git/HEAD.lock' nicht erstellen: Datei existiert bereits", true),
            ("fatal: failed to read .git/worktrees/a/commondir: Success", true),
            ("fatal: Unable to create '/r/.git/index.lock': Permission denied", false),
            ("fatal: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists", false),
            ("fatal: not a git repository", false),
        ] {
            assert_eq!(is_lock_error(said), expected, "{said}");
        }
    }

    #[test]
    fn git_lock_path_is_parsed_only_from_git_directory() {
        let found = |said: &str| blocking_lock(said).map(|path| path.display().to_string());
        let said = "fatal: cannot lock ref 'HEAD': Unable to create '/r/.git/HEAD.lock': File exists.\n\nAnother";
        assert_eq!(found(said).as_deref(), Some("/r/.git/HEAD.lock"));
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
            return assert_eq!(lock_status(&path, &project), LockStatus::InUse, "nobody can tell");
        }
        // While another test's git does not tell where it works, it might be here.
        let settled = || {
            let mut told = LockStatus::InUse;
            ralph_store::lock::holds_for(Duration::from_secs(60), || {
                told = lock_status(&path, &project);
                told == LockStatus::InUse
            });
            told
        };
        assert_eq!(settled(), LockStatus::Stale);
        aged(40);
        assert!(matches!(settled(), LockStatus::MaybeStale(1..=20_000)));
    }
}
