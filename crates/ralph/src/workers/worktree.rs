//! A worker's own git worktree and branch.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use ralph_events::error::Error;
use ralph_events::text;
use ralph_git as git;
use ralph_git::worktree_entry;
use ralph_store::{lock, safe_fs};

/// git does not serialize adding and removing worktrees.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Copied, because they may not be committed.
const COPIED_RALPH_FILES: [&str; 4] =
    [".ralph/settings.json", ".ralph/settings.local.json", ".ralph/config", ".ralph/prompts"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    pub path: PathBuf,
    /// The project's directory within the worktree.
    pub directory: PathBuf,
    pub git_dir: PathBuf,
    pub branch: String,
    /// May be removed with the worktree.
    pub new_branch: bool,
    /// Not the agent's work.
    #[serde(default)]
    pub copied: Vec<String>,
}

impl Worktree {
    /// Creates a worktree beside the repository and copies files that git does not have; all or
    /// nothing. Without `branch`, creates one with the worker's name at HEAD.
    pub fn create(
        project: &Path,
        worker: &str,
        branch: Option<&str>,
        copy: &[String],
    ) -> Result<Worktree, Error> {
        git::require_repository(project)?;
        let query = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"];
        let answer = git::run_git(&query, project)?;
        let mut lines = answer.lines().map(PathBuf::from);
        let (Some(top), Some(git_dir)) = (lines.next(), lines.next()) else {
            return Err(Error::failed("git rev-parse: cannot find the repository"));
        };
        let _lock = lock_worktrees(&git_dir)?;
        let mut worktree = Worktree::plan(project, &top, git_dir, worker, branch)?;
        match worktree.populate(project, copy) {
            Ok(()) => Ok(worktree),
            Err(error) => {
                worktree.undo();
                Err(error)
            }
        }
    }

    fn plan(
        project: &Path,
        top: &Path,
        git_dir: PathBuf,
        worker: &str,
        branch: Option<&str>,
    ) -> Result<Worktree, Error> {
        if git::run_git(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], project).is_err() {
            return Err(Error::input("cannot create a worktree: the repository has no commit")
                .hint("create a first commit"));
        }
        // Never inside another worktree.
        let main = match git_dir.file_name() {
            Some(name) if name == ".git" => git_dir.parent().unwrap_or(top),
            _ => top,
        };
        let mut directory_name = main.file_name().unwrap_or_default().to_owned();
        directory_name.push("-worktrees");
        let path = main.with_file_name(directory_name).join(worker);
        let real_project = project.canonicalize().ok();
        let real_project = real_project.as_deref().unwrap_or(project);
        let prefix = top
            .canonicalize()
            .ok()
            .and_then(|top| real_project.strip_prefix(top).ok().map(Path::to_owned));
        let directory = match prefix {
            Some(prefix) if !prefix.as_os_str().is_empty() => path.join(prefix),
            _ => path.clone(),
        };
        if path.symlink_metadata().is_ok() {
            return Err(Error::failed(format!("worktree already exists: {}", path.display()))
                .hint(format!("use it: ralph spawn -C {} …", path.display()))
                .hint(format!("remove it: git worktree remove {}", path.display()))
                .hint("or choose another name"));
        }
        let name = branch.unwrap_or(worker);
        let reference = format!("refs/heads/{name}");
        let exists =
            git::run_git(&["show-ref", "--verify", "--quiet", &reference], project).is_ok();
        if exists && branch.is_none() {
            return Err(Error::failed(format!("branch '{name}' already exists"))
                .hint(format!("use it: --branch {name}"))
                .hint(format!("delete it: git branch -D {name}"))
                .hint("or choose another name"));
        }
        let (branch, new_branch) = (name.to_owned(), !exists);
        Ok(Worktree { path, directory, git_dir, branch, new_branch, copied: Vec::new() })
    }

    fn populate(&mut self, project: &Path, copy: &[String]) -> Result<(), Error> {
        for entry in copy {
            let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
            if !Path::new(entry).components().all(is_plain) {
                return Err(Error::config(format!(
                    "worker.copy: {entry:?} is outside the project"
                ))
                .hint("use paths inside the project"));
            }
        }
        let path = self.path.as_os_str();
        let mut words: Vec<&OsStr> = ["worktree", "add", "--quiet"].map(OsStr::new).to_vec();
        if self.new_branch {
            words.extend(["--no-track", "-b", &self.branch].map(OsStr::new));
            words.extend([path, OsStr::new("HEAD")]);
        } else {
            words.extend([path, OsStr::new(&self.branch)]);
        }
        git::run_git_slow(&words, project)?;
        if !self.directory.is_dir() {
            return Err(Error::input(format!(
                "HEAD has no {}: no file in this directory is committed",
                self.directory.strip_prefix(&self.path).unwrap_or(&self.directory).display()
            ))
            .hint("commit a file in it, or spawn from the top of the repository"));
        }
        let wanted = copy.iter().map(String::as_str).chain(COPIED_RALPH_FILES);
        for entry in wanted {
            let (from, to) = (project.join(entry), self.directory.join(entry));
            // Committed files may be links.
            let copied = safe_fs::check_inside(&self.path, &to)
                .and_then(|()| copy_inside_project(project, &from, &to));
            let copied = copied.map_err(|err| {
                Error::failed(format!("cannot copy {} to {}: {err}", from.display(), to.display()))
            })?;
            if copied {
                let path = to.strip_prefix(&self.path).unwrap_or(&to);
                self.copied.push(path.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }

    pub fn undo(&self) {
        // Report only the first error.
        let _ = self.remove_directory();
        if self.new_branch {
            let _ = self.git(&["branch", "-D", "--", &self.branch]);
        }
    }

    /// Removes the worktree, and its branch if that is new and contained in another ref. Returns
    /// whether the branch is kept.
    pub fn remove(&self, force: bool) -> Result<bool, Error> {
        if !force && self.path.exists() {
            self.refuse_to_lose_work()?;
        }
        let _lock = lock_worktrees(&self.git_dir)?;
        self.remove_directory()?;
        if !self.new_branch {
            return Ok(true);
        }
        let tip = format!("refs/heads/{}", self.branch);
        let holders = ["for-each-ref", "--contains", &tip, "--format=%(refname)"];
        let elsewhere = match self.git(&holders) {
            Ok(refs) => refs.lines().any(|other| other != tip),
            Err(_) => false,
        };
        Ok(!(elsewhere && self.git(&["branch", "-D", "--", &self.branch]).is_ok()))
    }

    fn refuse_to_lose_work(&self) -> Result<(), Error> {
        let path = self.path.display();
        let refuse = |message: String| {
            Err(Error::failed(message)
                .hint(format!("check it: git -C {path} status"))
                .hint("to remove it anyway, add --force"))
        };
        let mut files = git::list_uncommitted_recursive(&self.path).map_err(|err| {
            Error::failed(format!("cannot tell whether {path} has uncommitted changes: {err}"))
                .hint("to remove it anyway, add --force")
        })?;
        let is_copied =
            |file: &String| self.copied.iter().any(|it| Path::new(file).starts_with(it));
        files.retain(|file| !is_copied(file));
        if !files.is_empty() {
            let files = text::first_few(&files, 1);
            return refuse(format!("{path} has uncommitted changes: {files}"));
        }
        if let Some(submodule) = git::submodules(&self.path)?.first() {
            return refuse(format!(
                "{path} contains a submodule, which is not checked for changes: {submodule}"
            ));
        }
        // The agent may have committed on a detached HEAD.
        let holders = ["for-each-ref", "--count=1", "--contains", "HEAD"];
        if git::run_git(&holders, &self.path)?.trim().is_empty() {
            return refuse(format!("{path} has commits that are on no branch"));
        }
        Ok(())
    }

    fn remove_directory(&self) -> Result<(), Error> {
        let failed = |why: &dyn std::fmt::Display| {
            Error::failed(format!("cannot remove the worktree {}: {why}", self.path.display()))
        };
        match self.path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                if !worktree_entry::exists(&self.git_dir, &self.path).map_err(|err| failed(&err))? {
                    return Err(failed(&format!("{} does not list it", self.git_dir.display())));
                }
                let repository = self.repository();
                let words =
                    [&repository, OsStr::new("worktree"), "remove".as_ref(), "--force".as_ref()];
                let words: Vec<&OsStr> = words.into_iter().chain([self.path.as_os_str()]).collect();
                git::run_git_slow(&words, &self.git_dir)?;
            }
            Ok(_) => return Err(failed(&"not a directory")),
            // It was removed without git.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let removed = worktree_entry::remove(&self.git_dir, &self.path);
                removed.map_err(|err| failed(&err))?;
            }
            Err(err) => return Err(failed(&err)),
        }
        if let Some(parent) = self.path.parent() {
            // Fails while other worktrees exist.
            let _ = std::fs::remove_dir(parent);
        }
        Ok(())
    }

    fn git(&self, words: &[&str]) -> Result<String, Error> {
        let repository = self.repository();
        let words: Vec<&OsStr> =
            std::iter::once(repository.as_os_str()).chain(words.iter().map(OsStr::new)).collect();
        git::run_git(&words, &self.git_dir)
    }

    /// git uses a bare repository only if it is named.
    fn repository(&self) -> OsString {
        let mut word = OsString::from("--git-dir=");
        word.push(&self.git_dir);
        word
    }
}

fn lock_worktrees(git_dir: &Path) -> Result<File, Error> {
    lock::lock_within(git_dir, GIT_TIMEOUT).map_err(|err| {
        Error::failed(format!("cannot lock {}: {err}", git_dir.display()))
            .hint("the worktree of another run is being created; try again")
    })
}

/// Copies a file of the project. A link out of the project is copied as a link: the agent may not
/// be allowed to read its target.
fn copy_inside_project(project: &Path, from: &Path, to: &Path) -> io::Result<bool> {
    match (from.canonicalize(), project.canonicalize()) {
        (Ok(real), Ok(project)) if !real.starts_with(&project) => {
            if to.symlink_metadata().is_ok() {
                return Ok(false);
            }
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::os::unix::fs::symlink(real, to)?;
            Ok(true)
        }
        _ => copy_missing(from, to),
    }
}

/// Copies a file or a directory if the target does not exist. Ignores pipes and devices. Returns
/// whether it copied.
fn copy_missing(from: &Path, to: &Path) -> io::Result<bool> {
    let Ok(meta) = from.metadata() else { return Ok(false) };
    if to.symlink_metadata().is_ok() {
        return Ok(false);
    }
    if meta.is_file() {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(from, to)?;
        return Ok(true);
    }
    if !meta.is_dir() {
        return Ok(false);
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&from)?, &to)?;
        } else {
            copy_missing(&from, &to)?;
        }
    }
    Ok(true)
}
