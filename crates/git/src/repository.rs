//! The repository of a directory: where its files are, and whether git can use it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ralph_events::error::Error;
use ralph_process::trust;
use ralph_store::user_files::read_user_file;

use super::git_call::{git_missing_error, run_git};

/// The checked-out commit, read from files: a run should not wait for git. `None` also for other
/// storage formats.
pub fn head_commit(directory: &Path) -> Option<String> {
    let is_id = |text: &str| {
        let id = text.trim();
        let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (matches!(id.len(), 40 | 64) && is_hex).then(|| id.to_owned())
    };
    let git = git_dir(directory)?;
    let head = read_git_file(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return is_id(&head) };
    let common = common_dir(&git);
    read_git_file(&common.join(name)).and_then(|id| is_id(&id)).or_else(|| {
        let packed = read_git_file(&common.join("packed-refs"))?;
        packed.lines().find_map(|line| is_id(line.strip_suffix(name)?))
    })
}

pub(super) fn git_dir(directory: &Path) -> Option<PathBuf> {
    let top = work_tree_root(directory)?;
    let git = top.join(".git");
    Some(if git.is_dir() {
        git
    } else {
        top.join(read_git_file(&git)?.trim().strip_prefix("gitdir: ")?)
    })
}

/// The work tree's root and the git directories.
pub fn repository_dirs(directory: &Path) -> Vec<PathBuf> {
    let top = work_tree_root(directory).map(Path::to_owned);
    let git = git_dir(directory);
    let common = git.as_deref().map(common_dir);
    let dirs = top.into_iter().chain(git).chain(common);
    dirs.filter_map(|dir| dir.canonicalize().ok()).collect()
}

pub(super) fn has_repository(top: &Path) -> bool {
    top.join(".git").exists()
        && git_dir(top).is_some_and(|git| git.join("HEAD").symlink_metadata().is_ok())
}

pub fn is_in_repository(directory: &Path) -> bool {
    work_tree_root(directory).is_some_and(has_repository)
}

pub(super) fn work_tree_root(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|above| above.join(".git").exists())
}

/// Shared by all work trees of a repository.
pub(super) fn common_dir(git: &Path) -> PathBuf {
    match read_git_file(&git.join("commondir")) {
        Some(common) => git.join(common.trim()),
        None => git.to_owned(),
    }
}

/// Resolves links; the last component need not exist.
pub(super) fn canonical_parent(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

pub(super) fn read_git_file(path: &Path) -> Option<String> {
    let bytes = read_user_file(path, 4 << 20).ok()?;
    String::from_utf8(bytes).ok()
}

pub(super) fn is_repository(directory: &Path) -> bool {
    let answer = run_git(&["rev-parse", "--is-inside-work-tree"], directory);
    answer.is_ok_and(|text| text.trim() == "true")
}

pub fn require_repository(directory: &Path) -> Result<(), Error> {
    if is_repository(directory) {
        return Ok(());
    }
    trust::outside_program(OsStr::new("git")).map_err(|err| git_missing_error(&err))?;
    // git refuses repositories of other users.
    let shown = directory.display();
    match run_git(&["rev-parse", "--is-inside-work-tree"], directory) {
        Err(error) if error.message.contains("safe.directory") => {
            let message = error.message.lines().next().unwrap_or_default();
            let command = format!("git config --global --add safe.directory {shown}");
            return Err(Error::input(message).hint(format!("if you trust it: {command}")));
        }
        Err(error) if error.message.contains("safe.bareRepository") => {
            return Err(bare_repository_error(directory));
        }
        // The repository exists, but git cannot use it.
        Err(error)
            if directory.join(".git").symlink_metadata().is_ok()
                || std::env::var_os("GIT_DIR").is_some() =>
        {
            let message = error.message.lines().next().unwrap_or_default();
            return Err(Error::input(format!(
                "git cannot use the repository of {shown}: {message}"
            ))
            .hint("check .git, and GIT_DIR if it is set"));
        }
        Ok(_) => return Err(bare_repository_error(directory)),
        Err(_) => {}
    }
    Err(Error::input(format!("{NO_REPOSITORY}: {}", directory.display())))
}

fn bare_repository_error(directory: &Path) -> Error {
    Error::input(format!(
        "no work tree in {}: it is a bare repository, or inside .git",
        directory.display()
    ))
    .hint("clone it and work in the clone")
}

const NO_REPOSITORY: &str = "not a git repository";

pub fn add_init_hint(error: Error, why: &str) -> Error {
    if error.message.starts_with(NO_REPOSITORY) {
        error.hint(format!("{why}: run `git init`"))
    } else {
        error
    }
}
