//! Restores guarded paths after an agent has ended.
//!
//! The agent may have left links to the user's files, read-only directories, or files with the
//! names that renaming needs. No link is followed, and failures are reported.

use std::path::PathBuf;

use rustix::io::Errno;

use ralph_store::dir_handle::{FileKind, describe, look, move_aside, open_dir, opened_up};

use super::SandboxTrace;
use super::plan::{ExpectedEntry, PathGuard};

pub fn restore_guards(guards: &[PathGuard]) -> Vec<SandboxTrace> {
    let restore = |guard: &PathGuard| match restore_guard(guard) {
        Ok(Some(to)) if guard.was == ExpectedEntry::Nothing && guard.path.ends_with(".git") => {
            Some(SandboxTrace::RepositoryRemoved(to))
        }
        Ok(to) => to.map(SandboxTrace::Quarantined),
        Err(err) => Some(SandboxTrace::NotRestored(guard.path.clone(), describe(err))),
    };
    guards.iter().filter_map(restore).collect()
}

fn restore_guard(guard: &PathGuard) -> Result<Option<PathBuf>, Errno> {
    let (Some(parent), Some(name)) = (guard.path.parent(), guard.path.file_name()) else {
        return Ok(None);
    };
    let dir = match open_dir(parent) {
        Ok(dir) => dir,
        // What is behind a link is the user's. A directory replaced by a link has its own guard.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(err) => return Err(err),
    };
    let is_gone = match (&guard.was, look(&dir, name)?) {
        (
            ExpectedEntry::Nothing | ExpectedEntry::Directory | ExpectedEntry::File,
            FileKind::Nothing,
        )
        | (ExpectedEntry::Directory, FileKind::Directory)
        | (ExpectedEntry::File, FileKind::File) => return Ok(None),
        (ExpectedEntry::Link(link), FileKind::Link(now)) if *link == now => return Ok(None),
        (ExpectedEntry::Link(_), FileKind::Nothing) => true,
        _ => false,
    };
    let to = if is_gone { None } else { Some(move_aside(&dir, &guard.path, name)?) };
    if let ExpectedEntry::Link(link) = &guard.was {
        opened_up(&dir, || rustix::fs::symlinkat(link, &dir, name))?;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn guard(path: &Path, was: ExpectedEntry) -> PathGuard {
        PathGuard { path: path.to_owned(), was }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        (temp, dir)
    }

    /// Without root's rights over files.
    fn as_an_ordinary_user<T: Send>(owned: &[&Path], act: impl FnOnce() -> T + Send) -> T {
        const STRANGER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            return act();
        }
        for path in owned {
            std::os::unix::fs::lchown(path, Some(STRANGER), None).unwrap();
        }
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                crate::platform::become_file_user(STRANGER);
                act()
            });
            done.join().unwrap()
        })
    }

    #[test]
    fn new_file_at_guarded_path_is_quarantined() {
        let (_temp, dir) = place();
        let guards = [
            guard(&dir.join("hooks"), ExpectedEntry::Nothing),
            guard(&dir.join("absent"), ExpectedEntry::Nothing),
        ];
        for nth in ["", ".1"] {
            fs::create_dir(dir.join("hooks")).unwrap();
            let quarantined = dir.join(format!("hooks.from-sandbox{nth}"));
            assert_eq!(restore_guards(&guards), [SandboxTrace::Quarantined(quarantined.clone())]);
            assert!(quarantined.is_dir() && !dir.join("hooks").exists());
        }
        assert!(restore_guards(&guards).is_empty());
    }

    #[test]
    fn quarantine_works_with_taken_names_and_closed_directory() {
        let (_temp, dir) = place();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let parent = dir.join(".ralph");
        fs::create_dir(&parent).unwrap();
        let planted = parent.join("settings.json");
        for nth in 0..1000 {
            let end = if nth == 0 { String::new() } else { format!(".{nth}") };
            fs::write(parent.join(format!("settings.json.from-sandbox{end}")), "").unwrap();
        }
        for mode in [0o755, 0o555, 0o000] {
            fs::write(&planted, "evil").unwrap();
            fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
            let guards = [guard(&planted, ExpectedEntry::Nothing)];
            let traces = as_an_ordinary_user(&[&parent, &planted], || restore_guards(&guards));
            assert!(
                matches!(traces.as_slice(), [SandboxTrace::Quarantined(_)]),
                "{mode:o}: {traces:?}"
            );
            assert!(!planted.exists(), "{mode:o}");
        }
    }

    #[test]
    fn quarantine_failure_is_reported() {
        let (_temp, dir) = place();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let parent = dir.join("theirs");
        fs::create_dir(&parent).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(parent.join("config"), "evil").unwrap();
        let guards = [guard(&parent.join("config"), ExpectedEntry::Nothing)];
        let traces = as_an_ordinary_user(&[], || restore_guards(&guards));
        let [SandboxTrace::NotRestored(path, why)] = traces.as_slice() else {
            panic!("{traces:?}")
        };
        assert_eq!(*path, parent.join("config"));
        assert!(why.contains("ermission denied"), "{why}");
    }

    #[test]
    fn changed_guarded_link_is_restored() {
        let (_temp, dir) = place();
        let guards = [guard(&dir.join("hooks"), ExpectedEntry::Link("../theirs".into()))];
        let link = |to: &str| symlink(to, dir.join("hooks")).unwrap();
        link("../theirs");
        assert!(restore_guards(&guards).is_empty());
        fs::remove_file(dir.join("hooks")).unwrap();
        link("elsewhere");
        assert_eq!(restore_guards(&guards).len(), 1);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
        fs::remove_file(dir.join("hooks")).unwrap();
        restore_guards(&guards);
        assert_eq!(fs::read_link(dir.join("hooks")).unwrap(), Path::new("../theirs"));
    }

    #[test]
    fn quarantine_does_not_follow_links_to_user_files() {
        let (_temp, dir) = place();
        fs::create_dir(dir.join("home")).unwrap();
        fs::write(dir.join("home/settings.json"), "mine").unwrap();
        symlink(dir.join("home"), dir.join(".claude")).unwrap();
        let below = guard(&dir.join(".claude/settings.json"), ExpectedEntry::Nothing);
        assert!(restore_guards(std::slice::from_ref(&below)).is_empty());
        assert_eq!(fs::read_to_string(dir.join("home/settings.json")).unwrap(), "mine");
        // A new link is renamed itself.
        let quarantined = dir.join(".claude.from-sandbox");
        let guards = [guard(&dir.join(".claude"), ExpectedEntry::Directory), below];
        assert_eq!(restore_guards(&guards), [SandboxTrace::Quarantined(quarantined.clone())]);
        assert_eq!(fs::read_link(quarantined).unwrap(), dir.join("home"));
        assert_eq!(fs::read_to_string(dir.join("home/settings.json")).unwrap(), "mine");
        // A directory is allowed.
        fs::create_dir(dir.join(".claude")).unwrap();
        fs::write(dir.join(".claude/settings.json"), "evil").unwrap();
        let quarantined = dir.join(".claude/settings.json.from-sandbox");
        assert_eq!(restore_guards(&guards), [SandboxTrace::Quarantined(quarantined)]);
    }
}
