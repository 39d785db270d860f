//! Whether what is committed is on a branch, read from git's own files.

use std::path::Path;

use super::{directory_of, read};

/// Why commits are on no branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoBranch {
    /// Somebody has checked out a commit, or a tag.
    Detached,
    /// A rebase is under way, of this branch if it is known.
    Rebase(Option<String>),
    Bisection,
}

impl NoBranch {
    /// What it means for a commit that was just made, and what to do about it.
    pub fn advice(&self) -> String {
        let (why, what) = match self {
            NoBranch::Detached => {
                ("HEAD is detached".to_owned(), "`git switch -c NAME` there makes a branch of it")
            }
            NoBranch::Rebase(branch) => (
                match branch {
                    Some(branch) => format!("a rebase of {branch} is under way"),
                    None => "a rebase is under way".to_owned(),
                },
                "`git rebase --continue` puts it on the branch, and `git rebase --abort` would drop it",
            ),
            NoBranch::Bisection => (
                "a bisection is under way".to_owned(),
                "`git switch -c NAME` there makes a branch of it, and `git bisect reset` would drop it",
            ),
        };
        format!("{why}, so what ralph commits is on no branch: {what}")
    }
}

/// Why commits in the work tree of a directory are on no branch; nothing if they are on one, or if the repository keeps
/// its names in another way.
pub(in crate::run) fn no_branch(directory: &Path) -> Option<NoBranch> {
    let git = directory_of(directory)?;
    if read(&git.join("HEAD"))?.starts_with("ref: ") {
        return None;
    }
    let rebase = ["rebase-merge", "rebase-apply"].map(|name| git.join(name));
    if let Some(state) = rebase.iter().find(|state| state.is_dir()) {
        let name = read(&state.join("head-name"));
        let name = name.and_then(|name| Some(name.trim().strip_prefix("refs/heads/")?.to_owned()));
        return Some(NoBranch::Rebase(name));
    }
    let is_bisected = git.join("BISECT_LOG").exists();
    Some(if is_bisected { NoBranch::Bisection } else { NoBranch::Detached })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_what_keeps_commits_from_a_branch() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(git.join(name).parent().unwrap()).unwrap();
            std::fs::write(git.join(name), text).unwrap();
        };
        assert_eq!(no_branch(dir.path()), None, "there is no repository");
        write("HEAD", "ref: refs/heads/main\n");
        write("rebase-apply/applying", "");
        assert_eq!(no_branch(dir.path()), None, "`git am` stays on its branch");
        std::fs::remove_dir_all(git.join("rebase-apply")).unwrap();
        write("HEAD", "0123456789012345678901234567890123456789\n");
        assert_eq!(no_branch(dir.path()), Some(NoBranch::Detached));
        write("BISECT_LOG", "");
        assert_eq!(no_branch(&dir.path().join("below")), Some(NoBranch::Bisection));
        write("rebase-merge/head-name", "refs/heads/a/b\n");
        let rebase = no_branch(dir.path());
        assert_eq!(rebase, Some(NoBranch::Rebase(Some("a/b".to_owned()))));
        let advice = rebase.map(|rebase| rebase.advice()).unwrap();
        assert!(advice.starts_with("a rebase of a/b is under way, so"), "{advice}");
        write("rebase-merge/head-name", "detached HEAD\n");
        assert_eq!(no_branch(dir.path()), Some(NoBranch::Rebase(None)));
    }
}
