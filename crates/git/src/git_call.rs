//! Runs git outside the sandbox.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ralph_events::error::{Error, ErrorKind};
use ralph_process::trust::{OutsideCommand, ProgramNotFound};
use ralph_store::home;
use ralph_store::project_record;

use super::config_trust::{self, ConfigRepository};
use super::hardening::{self, GitPurpose};
use super::link_guard;
use super::lock_files::is_lock_error;

/// For calls without network.
const GIT_TIMEOUT: Duration = Duration::from_secs(30);

/// For checks that lead to a warning at most.
pub(super) const GIT_QUICK_TIMEOUT: Duration = Duration::from_secs(5);

/// A commit runs the user's hooks.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(600);

/// How long to retry while another git holds a lock. An older lock was abandoned.
pub(super) const GIT_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs git without hooks or network, and returns its output.
pub fn run_git(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(GIT_TIMEOUT, GitPurpose::ReadOnly, args, directory)
}

/// Like [`run_git`], for calls that take long in a large repository and run the user's hooks.
pub fn run_git_slow(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(COMMIT_TIMEOUT, GitPurpose::Write, args, directory)
}

pub(super) fn run_git_within(
    timeout: Duration,
    purpose: GitPurpose,
    args: &[impl AsRef<OsStr>],
    directory: &Path,
) -> Result<String, Error> {
    let deadline = Instant::now() + GIT_LOCK_TIMEOUT;
    let mut pause = Duration::from_millis(10);
    loop {
        match run_git_once(timeout, purpose, args, directory) {
            Err(error) if is_lock_error(&error.message) && Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            result => return result,
        }
    }
}

fn run_git_once(
    timeout: Duration,
    purpose: GitPurpose,
    args: &[impl AsRef<OsStr>],
    directory: &Path,
) -> Result<String, Error> {
    let words: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let failed = |reason: &str| {
        let mut command = words.iter().map(|word| word.to_string_lossy());
        let command = command.find(|word| !word.starts_with('-')).unwrap_or_default();
        Error::failed(format!("git {command}: {reason}"))
    };
    let git_dir = words.first().and_then(|word| word.as_bytes().strip_prefix(b"--git-dir="));
    let git_dir = git_dir.map(|path| Path::new(OsStr::from_bytes(path)));
    let writes = purpose == GitPurpose::Write || changes_refs_or_index(&words);
    link_guard::check_before_git(directory, git_dir, writes)
        .map_err(|err| failed(&err.to_string()).hint(link_guard::hint(&err)))?;
    let to_error = |err: io::Error| match err.kind() {
        io::ErrorKind::Interrupted => {
            Error { kind: ErrorKind::Interrupted, ..failed("interrupted") }
        }
        _ => failed(&err.to_string()),
    };
    let settings = match purpose {
        GitPurpose::ReadOnly => disable_filters(directory).map_err(to_error)?,
        GitPurpose::Write => disable_agent_hooks(directory, git_dir).map_err(|error| {
            let shown = failed(&error.message);
            error.hints.into_iter().fold(shown, Error::hint)
        })?,
    };
    let git = find_git(purpose).map_err(|err| git_missing_error(&err))?;
    let output = git.run(&hardening::git_args(purpose, &settings, args), directory, timeout);
    if writes {
        link_guard::check_after_write(directory, git_dir);
    }
    let output = output.map_err(to_error)?;
    if output.exit.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(&match String::from_utf8_lossy(&output.stderr).trim() {
            "" if words.iter().any(|word| *word == "commit") => {
                format!("{} without output, probably from a git hook", output.exit)
            }
            "" => format!("{} without output", output.exit),
            stderr => stderr.to_owned(),
        }))
    }
}

fn changes_refs_or_index(words: &[&OsStr]) -> bool {
    let command = words.iter().find(|word| !word.as_bytes().starts_with(b"-"));
    command.is_some_and(|command| ["add", "branch", "reset"].iter().any(|name| command == name))
}

/// Disables hooks that a sandboxed agent can write. Queues a warning.
fn disable_agent_hooks(directory: &Path, git_dir: Option<&Path>) -> Result<Vec<OsString>, Error> {
    let home = home::ralph_home(|name| std::env::var_os(name));
    let records = home.as_deref().map(project_record::all_records).unwrap_or_default();
    let repository = ConfigRepository::find(directory, git_dir);
    let Some(repository) =
        repository.filter(|repository| repository.last_run_was_sandboxed(&records))
    else {
        return Ok(Vec::new());
    };
    let mut command: Vec<OsString> = config_trust::LIST_CONFIG_ARGS.map(OsString::from).to_vec();
    if let Some(git_dir) = git_dir {
        let mut flag = OsString::from("--git-dir=");
        flag.push(git_dir);
        command.insert(0, flag);
    }
    let words = hardening::git_args(GitPurpose::Write, &[], &command);
    let git = find_git(GitPurpose::Write).map_err(|err| git_missing_error(&err))?;
    let output = git.run(&words, directory, GIT_QUICK_TIMEOUT);
    let output = output.map_err(|err| Error::failed(err.to_string()))?;
    let restriction = repository.restrict_from_output(&output)?;
    link_guard::queue_warnings(restriction.warning.into_iter().collect());
    Ok(restriction.settings)
}

/// Disables filter drivers. Asks git once per process.
fn disable_filters(directory: &Path) -> io::Result<Vec<OsString>> {
    static FILTER_CACHE: Mutex<BTreeMap<PathBuf, Vec<OsString>>> = Mutex::new(BTreeMap::new());
    let cache = || FILTER_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settings) = cache().get(directory) {
        return Ok(settings.clone());
    }
    let words = hardening::git_args(GitPurpose::ReadOnly, &[], &hardening::LIST_FILTERS_ARGS);
    let output = find_git(GitPurpose::ReadOnly)?.run(&words, directory, GIT_QUICK_TIMEOUT)?;
    let settings = hardening::disable_filters_config(&output.stdout);
    cache().insert(directory.to_owned(), settings.clone());
    Ok(settings)
}

fn find_git(purpose: GitPurpose) -> Result<OutsideCommand, ProgramNotFound> {
    OutsideCommand::find(OsStr::new("git"), &hardening::git_env(purpose))
}

pub(super) fn git_missing_error(err: &ProgramNotFound) -> Error {
    err.error("install git")
}
