//! Whether anybody may still be at work on a file that is there only while somebody is.

use std::path::{Path, PathBuf};

/// Those who may be using a lock file though they do not have it open.
#[derive(Debug, Clone, Copy)]
pub struct Users<'a> {
    /// The name of their program, or what it begins with: `git`, `git-remote-https`.
    pub program: &'a str,
    /// Where they work. Those who were told by a flag or a variable that begins so may work anywhere.
    pub places: &'a [PathBuf],
    pub told_by: &'a [&'a str],
    /// A word of those who stay for ever and hold nothing.
    pub idle: &'a [&'a str],
}

/// Whether a living process may be using this lock file: one that has it open, or any of its `users`. Where
/// nobody can tell, yes.
pub fn may_be_held(lock: &Path, users: &Users<'_>) -> bool {
    #[cfg(target_os = "linux")]
    return linux::may_be_held(lock, users).unwrap_or(true);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (lock, users);
        true
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::Users;

    pub(super) fn may_be_held(lock: &Path, users: &Users<'_>) -> Option<bool> {
        let lock = lock.symlink_metadata().ok()?;
        // Somebody else's processes do not show what they have open.
        if lock.uid() != rustix::process::geteuid().as_raw() {
            return Some(true);
        }
        let is_it = |file: &std::fs::Metadata| (file.dev(), file.ino()) == (lock.dev(), lock.ino());
        for process in std::fs::read_dir("/proc").ok()?.flatten() {
            if !process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            let process = process.path();
            if is_at_work(&process, users) {
                return Some(true);
            }
            let open = process.join("fd").read_dir().into_iter().flatten().flatten();
            if open.filter_map(|file| file.path().metadata().ok()).any(|file| is_it(&file)) {
                return Some(true);
            }
        }
        Some(false)
    }

    fn is_at_work(process: &Path, users: &Users<'_>) -> bool {
        let read = |name: &str| std::fs::read(process.join(name)).unwrap_or_default();
        let name = read("comm");
        let rest = name.trim_ascii().strip_prefix(users.program.as_bytes());
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-")) {
            return false;
        }
        // What has ended and was not waited for has no command line any more.
        let line = read("cmdline");
        let mut words = line.split(|byte| *byte == 0);
        if line.is_empty() || words.any(|word| users.idle.iter().any(|it| word == it.as_bytes())) {
            return false;
        }
        let Ok(here) = process.join("cwd").read_link() else { return true };
        let Ok(variables) = std::fs::read(process.join("environ")) else { return true };
        let mut told = line.split(|byte| *byte == 0).chain(variables.split(|byte| *byte == 0));
        users.places.iter().any(|place| here.starts_with(place))
            || told.any(|word| users.told_by.iter().any(|it| word.starts_with(it.as_bytes())))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_lock_is_free_only_if_nobody_could_have_it() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("index.lock");
            let nobody = Users { program: "no-such-scm", places: &[], told_by: &[], idle: &[] };
            let held = |users: &Users<'_>| may_be_held(&path, users);
            assert_eq!(held(&nobody), None, "there is none");
            let open = std::fs::File::create(&path).unwrap();
            assert_eq!(held(&nobody), Some(true), "it is open in this very process");
            drop(open);
            assert_eq!(held(&nobody), Some(false));
            // A process of that name, which does not have it open.
            let name = std::fs::read_to_string("/proc/self/comm").unwrap();
            let (here, first) =
                (std::env::current_dir().unwrap(), std::env::args().next().unwrap());
            let us = Users { program: name.trim(), places: &[here], ..nobody };
            assert_eq!(held(&us), Some(true));
            assert_eq!(held(&Users { idle: &[&first], ..us }), Some(false));
            let elsewhere = Users { places: &[dir.path().to_owned()], ..us };
            assert_eq!(held(&elsewhere), Some(false));
            assert_eq!(held(&Users { told_by: &["PATH="], ..elsewhere }), Some(true));
        }
    }
}
