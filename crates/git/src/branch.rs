//! Detects that commits are on no branch, from git's files.

use std::path::Path;

use ralph_store::safe_fs;

use super::repository::{git_dir, read_git_file};

const MAX_TODO_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetachedReason {
    /// A commit or tag was checked out.
    Detached,
    Rebase {
        branch: Option<String>,
        /// The todo list executes nothing.
        is_safe: bool,
    },
    Bisection,
}

impl DetachedReason {
    pub fn advice(&self) -> String {
        let (why, advice) = match self {
            DetachedReason::Detached => {
                ("HEAD is detached".to_owned(), "create one with `git switch -c NAME`")
            }
            DetachedReason::Rebase { branch, is_safe } => (
                match branch {
                    Some(branch) => format!("a rebase of {branch} is in progress"),
                    None => "a rebase is in progress".to_owned(),
                },
                if *is_safe {
                    "`git rebase --continue` puts them on the branch, `git rebase --abort` drops \
                     them"
                } else {
                    "keep them with `git branch NAME`, then run `git rebase --abort`. Do not \
                     continue the rebase: its todo list may run commands"
                },
            ),
            DetachedReason::Bisection => (
                "a bisect is in progress".to_owned(),
                "create one with `git switch -c NAME`; `git bisect reset` drops them",
            ),
        };
        format!("{why}, so ralph's commits are on no branch: {advice}")
    }
}

pub fn current_branch(directory: &Path) -> Option<String> {
    let head = read_git_file(&git_dir(directory)?.join("HEAD"))?;
    Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned())
}

/// `None` if commits are on a branch, or refs are stored in another format.
pub fn detached_reason(directory: &Path) -> Option<DetachedReason> {
    let git = git_dir(directory)?;
    if read_git_file(&git.join("HEAD"))?.starts_with("ref: ") {
        return None;
    }
    let rebase = ["rebase-merge", "rebase-apply"].map(|name| git.join(name));
    if let Some(state) = rebase.iter().find(|state| state.symlink_metadata().is_ok()) {
        let name = read_git_file(&state.join("head-name"));
        let branch =
            name.and_then(|name| Some(name.trim().strip_prefix("refs/heads/")?.to_owned()));
        return Some(DetachedReason::Rebase { branch, is_safe: is_safe_rebase(state) });
    }
    let is_bisected = git.join("BISECT_LOG").exists();
    Some(if is_bisected { DetachedReason::Bisection } else { DetachedReason::Detached })
}

/// Whether `git rebase --continue` executes nothing from the todo list, which an agent may have
/// written.
fn is_safe_rebase(state: &Path) -> bool {
    const SAFE_REBASE_STEPS: [&str; 19] = [
        "pick", "p", "reword", "r", "edit", "e", "squash", "s", "fixup", "f", "drop", "d", "label",
        "l", "reset", "t", "merge", "m", "noop",
    ];
    if !state.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return false;
    }
    if state.ends_with("rebase-apply") {
        // Applies patches, without a todo list.
        return true;
    }
    let todo = safe_fs::read_own(&state.join("git-rebase-todo"), MAX_TODO_BYTES);
    let Some(todo) = todo.ok().and_then(|todo| String::from_utf8(todo).ok()) else {
        return false;
    };
    let steps = todo.lines().filter_map(|line| line.split_ascii_whitespace().next());
    steps.filter(|step| !step.starts_with('#')).all(|step| SAFE_REBASE_STEPS.contains(&step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detached_head_bisect_and_rebase_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(git.join(name).parent().unwrap()).unwrap();
            std::fs::write(git.join(name), text).unwrap();
        };
        assert_eq!(detached_reason(dir.path()), None, "there is no repository");
        write("HEAD", "ref: refs/heads/main\n");
        write("rebase-apply/applying", "");
        assert_eq!(detached_reason(dir.path()), None, "`git am` stays on its branch");
        std::fs::remove_dir_all(git.join("rebase-apply")).unwrap();
        write("HEAD", "0123456789012345678901234567890123456789\n");
        assert_eq!(detached_reason(dir.path()), Some(DetachedReason::Detached));
        write("BISECT_LOG", "");
        assert_eq!(detached_reason(&dir.path().join("below")), Some(DetachedReason::Bisection));
        write("rebase-merge/head-name", "refs/heads/a/b\n");
        let rebase = detached_reason(dir.path());
        let branch = Some("a/b".to_owned());
        assert_eq!(rebase, Some(DetachedReason::Rebase { branch, is_safe: false }), "no todo list");
        let advice = rebase.map(|rebase| rebase.advice()).unwrap();
        assert!(advice.starts_with("a rebase of a/b is in progress, so"), "{advice}");
        write("rebase-merge/head-name", "detached HEAD\n");
        write("rebase-merge/git-rebase-todo", "pick 1234 one\n");
        let rebase = Some(DetachedReason::Rebase { branch: None, is_safe: true });
        assert_eq!(detached_reason(dir.path()), rebase);
    }

    #[test]
    fn rebase_with_unsafe_todo_list_is_advised_to_abort() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        let state = git.join("rebase-merge");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::write(git.join("HEAD"), "0123456789012345678901234567890123456789\n").unwrap();
        let advice = || detached_reason(dir.path()).unwrap().advice();
        let todo = state.join("git-rebase-todo");
        let safe =
            "pick 12 a\n\tr 34 b\n# exec x\n\nfixup -C 56 c\nlabel l\nmerge -C 78 l # m\nnoop\n";
        std::fs::write(&todo, safe).unwrap();
        assert!(advice().contains("`git rebase --continue`"), "{}", advice());
        for step in [
            "exec true",
            "x true",
            "  exec true",
            "\tx true",
            "break",
            "b",
            "Exec true",
            "update-ref r",
            "?",
        ] {
            std::fs::write(&todo, format!("{safe}{step}\npick 90 d\n")).unwrap();
            let advice = advice();
            assert!(advice.contains("`git rebase --abort`"), "{step}: {advice}");
            assert!(!advice.contains("--continue"), "{step}: {advice}");
        }
        std::fs::remove_file(&todo).unwrap();
        std::fs::write(dir.path().join("elsewhere"), safe).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &todo).unwrap();
        assert!(!advice().contains("--continue"), "a link is not read");
    }
}
