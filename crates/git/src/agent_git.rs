//! What an agent needs to commit: write access to the repository, and an identity.

use std::path::{Path, PathBuf};

use super::git_call::run_git;
use super::repository::{common_dir, git_dir, read_git_file, work_tree_root};

/// The directories that a commit writes to: the common one and the worktree's own. Without a
/// repository, the one that `git init` would create.
///
/// A `.git` that leads elsewhere counts only if that repository names this work tree: agents can
/// write such a file, and must not gain another repository by it.
pub fn git_directories(directory: &Path) -> Vec<PathBuf> {
    let Some(top) = work_tree_root(directory) else { return vec![directory.join(".git")] };
    let Some(own) = git_dir(directory).and_then(|own| own.canonicalize().ok()) else {
        return Vec::new();
    };
    let is_inside = top.join(".git").symlink_metadata().is_ok_and(|meta| meta.is_dir());
    if !is_inside && !claims_work_tree(&own, top) {
        return Vec::new();
    }
    let common = common_dir(&own).canonicalize().unwrap_or_else(|_| own.clone());
    let is_worktree_of_it = own == common || own.starts_with(common.join("worktrees"));
    let is_repository = ["HEAD", "objects", "refs"].iter().all(|name| common.join(name).exists());
    let mut found = if is_worktree_of_it && is_repository { vec![common, own] } else { Vec::new() };
    found.dedup();
    found
}

/// Linked worktrees and submodules name their work tree.
fn claims_work_tree(git_dir: &Path, top: &Path) -> bool {
    let is_same = |path: PathBuf, other: PathBuf| {
        path.canonicalize().is_ok_and(|path| other.canonicalize().is_ok_and(|other| path == other))
    };
    if let Some(pointer) = read_git_file(&git_dir.join("gitdir")) {
        return is_same(git_dir.join(pointer.trim()), top.join(".git"));
    }
    let config = git_dir.join("config");
    let words =
        ["config".as_ref(), "--file".as_ref(), config.as_os_str(), "core.worktree".as_ref()];
    let output = run_git(&words, top);
    output.is_ok_and(|output| is_same(git_dir.join(output.trim()), top.to_owned()))
}

/// The configured author and committer. Agents may hide the user's configuration from git, and
/// commits would fail.
pub fn commit_identity_env(directory: &Path) -> Vec<(&'static str, String)> {
    let kinds = [
        ("GIT_AUTHOR_IDENT", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"),
        ("GIT_COMMITTER_IDENT", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
    ];
    let identities = kinds.into_iter().filter_map(|(variable, name, email)| {
        // Otherwise git invents an identity from user and host names.
        let ident = run_git(&["-c", "user.useConfigOnly=true", "var", variable], directory).ok()?;
        let (who, rest) = ident.rsplit_once(" <")?;
        let (address, _) = rest.split_once('>')?;
        Some([(name, who.to_owned()), (email, address.to_owned())])
    });
    identities.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn repository(at: &Path) {
        fs::create_dir_all(at).unwrap();
        run(at, &["init", "--quiet", "-b", "main"]);
        commit(at);
    }

    fn commit(at: &Path) {
        let who = ["-c", "user.name=A", "-c", "user.email=a@b"];
        run(at, &[&who[..], &["commit", "--quiet", "--allow-empty", "-m", "x"]].concat());
    }

    fn run(at: &Path, words: &[&str]) {
        super::super::run_git_slow(words, at).unwrap();
    }

    fn scene() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        (dir, root)
    }

    #[test]
    fn git_directories_in_repository_and_subdirectory_are_dot_git() {
        let (_dir, root) = scene();
        assert_eq!(git_directories(&root), [root.join(".git")], "what `git init` would make");
        let top = root.join("repo");
        repository(&top);
        fs::create_dir(top.join("sub")).unwrap();
        assert_eq!(git_directories(&top), [top.join(".git")]);
        assert_eq!(git_directories(&top.join("sub")), [top.join(".git")]);
    }

    #[test]
    fn git_directories_in_worktree_are_common_and_own() {
        let (_dir, root) = scene();
        let top = root.join("repo");
        repository(&top);
        run(&top, &["worktree", "add", "--quiet", "../tree"]);
        let tree = root.join("tree");
        fs::create_dir(tree.join("sub")).unwrap();
        let both = [top.join(".git"), top.join(".git/worktrees/tree")];
        assert_eq!(git_directories(&tree), both);
        assert_eq!(git_directories(&tree.join("sub")), both);
    }

    #[test]
    fn git_directories_in_submodule_are_its_module() {
        let (_dir, root) = scene();
        let (top, other) = (root.join("repo"), root.join("other"));
        repository(&top);
        repository(&other);
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
        run(&top, &[&add[..], &[other.to_str().unwrap(), "sub"]].concat());
        assert_eq!(git_directories(&top.join("sub")), [top.join(".git/modules/sub")]);
    }

    #[test]
    fn git_directories_of_planted_pointer_are_none() {
        let (_dir, root) = scene();
        let (top, other) = (root.join("repo"), root.join("other"));
        repository(&top);
        repository(&other);
        let sub = top.join("sub");
        fs::create_dir_all(sub.join("fake")).unwrap();
        let elsewhere = other.join(".git");
        fs::write(sub.join(".git"), format!("gitdir: {}\n", elsewhere.display())).unwrap();
        assert!(git_directories(&sub).is_empty());
        // A forged git directory with another's common directory.
        fs::write(sub.join(".git"), "gitdir: fake\n").unwrap();
        fs::write(sub.join("fake/gitdir"), sub.join(".git").to_str().unwrap()).unwrap();
        fs::write(sub.join("fake/commondir"), elsewhere.to_str().unwrap()).unwrap();
        assert!(git_directories(&sub).is_empty());
        fs::remove_file(sub.join(".git")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, sub.join(".git")).unwrap();
        assert!(git_directories(&sub).is_empty());
    }

    #[test]
    fn git_identity_comes_from_configuration() {
        let (_dir, root) = scene();
        repository(&root);
        run(&root, &["config", "user.name", "Ann <the> Author"]);
        run(&root, &["config", "user.email", "ann@example.com"]);
        run(&root, &["config", "committer.name", "Bot"]);
        let expected = [
            ("GIT_AUTHOR_NAME", "Ann the Author"),
            ("GIT_AUTHOR_EMAIL", "ann@example.com"),
            ("GIT_COMMITTER_NAME", "Bot"),
            ("GIT_COMMITTER_EMAIL", "ann@example.com"),
        ];
        assert_eq!(
            commit_identity_env(&root),
            expected.map(|(name, value)| (name, value.to_owned()))
        );
    }
}
