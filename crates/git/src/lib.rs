//! Every git call: SCM tasks after an iteration, and the state of the repository.
//!
//! There is no shell: a commit message with `$(…)` is committed as it is. Agents have worked in
//! these repositories, so git executes nothing that they can name ([`hardening`], [`config_trust`],
//! [`link_guard`]). The crate knows nothing of agents, sandboxes or the loop.

#![forbid(unsafe_code)]

mod agent_git;
pub mod branch;
pub mod commit_guard;
pub mod config_trust;
pub mod environment;
pub mod file_history;
pub mod hardening;
pub mod head_log;
pub mod link_guard;
pub mod lock_files;
pub mod refs;
pub mod status;
pub mod work_tree;
pub mod worktree_entry;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ralph_events::error::Error;
use ralph_events::event::Exit;
use ralph_process as process;
use ralph_process::ChildId;
use ralph_process::trust::{self, OutsideCommand};
use ralph_store::home;
use ralph_store::project::is_run_time_file;
use ralph_store::project_record;

pub use agent_git::{commit_identity_env, git_directories};
use config_trust::ConfigRepository;
use hardening::GitPurpose;
use link_guard::GitAccess;
use lock_files::is_lock_error;

const MAX_OUTPUT: usize = 4 * 1024;

/// For calls without network.
const GIT_TIMEOUT: Duration = Duration::from_secs(30);

/// For checks that lead to a warning at most.
const GIT_QUICK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to retry while another git holds a lock. An older lock was abandoned.
const GIT_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs git without hooks or network, and returns its output.
pub fn run_git(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(GIT_TIMEOUT, GitPurpose::ReadOnly, args, directory)
}

/// Like [`run_git`], for calls that take long in a large repository and run the user's hooks.
pub fn run_git_slow(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(COMMIT_TIMEOUT, GitPurpose::Write, args, directory)
}

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

fn git_dir(directory: &Path) -> Option<PathBuf> {
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

fn has_repository(top: &Path) -> bool {
    top.join(".git").exists()
        && git_dir(top).is_some_and(|git| git.join("HEAD").symlink_metadata().is_ok())
}

pub fn is_in_repository(directory: &Path) -> bool {
    work_tree_root(directory).is_some_and(has_repository)
}

fn work_tree_root(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|above| above.join(".git").exists())
}

/// Shared by all work trees of a repository.
fn common_dir(git: &Path) -> PathBuf {
    match read_git_file(&git.join("commondir")) {
        Some(common) => git.join(common.trim()),
        None => git.to_owned(),
    }
}

fn read_git_file(path: &Path) -> Option<String> {
    let bytes = ralph_store::user_files::read_user_file(path, 4 << 20).ok()?;
    String::from_utf8(bytes).ok()
}

fn run_git_within(
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
    let access = git_access(purpose, &words);
    link_guard::check_before_git(directory, git_dir, access)
        .map_err(|err| failed(&err.to_string()).hint(link_guard::hint(&err)))?;
    let to_error = |err: io::Error| match err.kind() {
        io::ErrorKind::Interrupted => {
            Error { kind: ralph_events::error::ErrorKind::Interrupted, ..failed("interrupted") }
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
    let (command_line, env) =
        (hardening::git_args(purpose, &settings, args), hardening::git_env(purpose));
    let git =
        OutsideCommand::find(OsStr::new("git"), &env).map_err(|err| git_missing_error(&err))?;
    let output = git.run(&command_line, directory, timeout);
    if access == GitAccess::Write {
        link_guard::check_after_write(directory, git_dir);
    }
    let output = output.map_err(to_error)?;
    if output.exit.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(&match String::from_utf8_lossy(&output.stderr).trim() {
            "" if words.iter().any(|word| *word == "commit") => {
                format!("{}, without a word: a hook of the repository has refused it", output.exit)
            }
            "" => format!("{}, without a word", output.exit),
            stderr => stderr.to_owned(),
        }))
    }
}

/// Some calls without hooks change refs or the index.
fn git_access(purpose: GitPurpose, words: &[&OsStr]) -> GitAccess {
    let command = words.iter().find(|word| !word.as_bytes().starts_with(b"-"));
    let writes = command
        .is_some_and(|command| ["add", "branch", "reset"].iter().any(|name| command == name));
    if writes || purpose == GitPurpose::Write { GitAccess::Write } else { GitAccess::Read }
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
    let git = OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::Write));
    let git = git.map_err(|err| git_missing_error(&err))?;
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
    let git = OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::ReadOnly))?;
    let output = git.run(&words, directory, GIT_QUICK_TIMEOUT)?;
    let settings = hardening::disable_filters_config(&output.stdout);
    cache().insert(directory.to_owned(), settings.clone());
    Ok(settings)
}

/// Uncommitted files without ralph's run-time files. An untracked directory is one entry.
pub fn list_uncommitted(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=normal", &[])
}

/// Like [`list_uncommitted`], with every file in untracked directories.
pub fn list_uncommitted_recursive(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=all", &[])
}

fn uncommitted(directory: &Path, untracked: &str, paths: &[String]) -> Result<Vec<String>, Error> {
    // `-z` prevents quoting. git would use a submodule's configuration inside it.
    let args = ["status", "--porcelain", "-z", untracked, "--ignore-submodules=dirty", "--"];
    let words: Vec<&str> = args.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let status = run_git_within(GIT_QUICK_TIMEOUT, GitPurpose::ReadOnly, &words, directory)?;
    Ok(status_files(&status))
}

/// Parses `git status --porcelain -z`. Skips ralph's run-time files.
pub fn status_files(status: &str) -> Vec<String> {
    let mut fields = status.split('\0');
    let mut files = Vec::new();
    while let Some(field) = fields.next() {
        let Some((state, path)) = field.split_at_checked(3) else { continue };
        // A rename or copy is followed by its old name.
        if state.contains(['R', 'C']) {
            fields.next();
        }
        if !is_run_time_file(path) {
            files.push(path.to_owned());
        }
    }
    files
}

pub fn format_file_list(files: &[String]) -> Option<String> {
    const MAX_NAMED_FILES: usize = 100;
    let shown =
        files.iter().take(MAX_NAMED_FILES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = files.len().saturating_sub(MAX_NAMED_FILES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!files.is_empty()).then(|| format!("{shown}{more}"))
}

/// A commit runs the user's hooks.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitResult {
    /// git ignores the files in `left_out`.
    Created {
        commit: String,
        left_out: Vec<PathBuf>,
    },
    NoRepository,
    Ignored,
}

/// Commits only these paths. Other staged changes stay staged.
pub fn commit_paths(
    directory: &Path,
    paths: &[&Path],
    message: &str,
) -> Result<CommitResult, Error> {
    if !is_repository(directory) {
        return Ok(CommitResult::NoRepository);
    }
    // A `*` in a name is literal.
    let literal = OsStr::new("--literal-pathspecs");
    let is_ignored = |path: &Path| {
        let words = [OsStr::new("check-ignore"), "-q".as_ref(), "--".as_ref(), path.as_ref()];
        run_git(&words, directory).is_ok()
    };
    let (left_out, paths): (Vec<&Path>, Vec<&Path>) =
        paths.iter().partition(|path| is_ignored(path));
    if paths.is_empty() {
        return Ok(CommitResult::Ignored);
    }
    let git_args = |words: &[&str], paths: &[&Path]| -> Vec<OsString> {
        let paths = paths.iter().map(|path| path.as_os_str());
        let words = words.iter().map(OsStr::new).chain([OsStr::new("--")]).chain(paths);
        std::iter::once(literal).chain(words).map(Into::into).collect()
    };
    // The commit must know new files by name. It takes their content itself, so the index is the
    // same afterwards, even on failure.
    let mut untracked = Vec::new();
    for path in &paths {
        if run_git(&git_args(&["ls-files"], &[path]), directory)?.is_empty() {
            untracked.push(*path);
        }
    }
    if !untracked.is_empty() {
        run_git(&git_args(&["add", "--intent-to-add"], &untracked), directory)?;
    }
    // An empty commit would look into every nested repository.
    let changed = git_args(&["status", "--porcelain", "--ignore-submodules=dirty"], &paths);
    if run_git(&changed, directory)?.is_empty() {
        return Err(Error::failed("git commit: nothing has changed since the last commit"));
    }
    let commit = git_args(&["commit", "--quiet", "-m", message], &paths);
    if let Err(err) = run_git_slow(&commit, directory) {
        if !untracked.is_empty() {
            let _ = run_git(&git_args(&["reset", "--quiet"], &untracked), directory);
        }
        return Err(err);
    }
    let name = run_git(&["rev-parse", "--short", "HEAD"], directory)?;
    let left_out = left_out.into_iter().map(Path::to_owned).collect();
    Ok(CommitResult::Created { commit: name.trim().to_owned(), left_out })
}

/// Checked-out submodules and nested repositories. git does not see files inside them.
pub fn submodules(directory: &Path) -> Result<Vec<String>, Error> {
    let files = run_git(&["ls-files", "--stage", "-z"], directory)?;
    Ok(parse_submodules(&files, directory))
}

/// Parses `git ls-files --stage -z`.
pub fn parse_submodules(files: &str, directory: &Path) -> Vec<String> {
    let submodules = files.split('\0').filter_map(|line| {
        let (state, path) = line.split_once('\t')?;
        (state.starts_with("160000 ") && directory.join(path).join(".git").exists())
            .then(|| path.to_owned())
    });
    submodules.collect()
}

fn is_repository(directory: &Path) -> bool {
    let answer = run_git(&["rev-parse", "--is-inside-work-tree"], directory);
    answer.is_ok_and(|text| text.trim() == "true")
}

pub fn is_tracked_candidate(directory: &Path, name: &str) -> bool {
    is_repository(directory) && run_git(&["check-ignore", "-q", "--", name], directory).is_err()
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
            .hint("look at .git, and at GIT_DIR if it is set"));
        }
        Ok(_) => return Err(bare_repository_error(directory)),
        Err(_) => {}
    }
    Err(Error::input(format!("{NO_REPOSITORY}: {}", directory.display())))
}

fn git_missing_error(err: &trust::ProgramNotFound) -> Error {
    err.error("install git")
}

fn bare_repository_error(directory: &Path) -> Error {
    Error::input(format!(
        "{} is in a git repository, but has no files to work on (it is bare, or inside of .git)",
        directory.display()
    ))
    .hint("work in a clone of it")
}

const NO_REPOSITORY: &str = "not a git repository";

pub fn add_init_hint(error: Error, why: &str) -> Error {
    if error.message.starts_with(NO_REPOSITORY) {
        error.hint(format!("{why}: run `git init`"))
    } else {
        error
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScmSpec {
    pub program: String,
    /// As words: `["commit"]`, `["push", "origin", "main"]`.
    pub tasks: Vec<Vec<String>>,
    /// Pathspecs relative to the project's directory. Empty for the whole repository.
    pub paths: Vec<String>,
}

impl ScmSpec {
    /// Checks that the tasks can work, before the run costs anything.
    pub fn preflight(&self, directory: &Path) -> Result<(), Error> {
        let program = OsStr::new(&self.program);
        let found = match self.program.contains('/') {
            true => process::find_program(program, None, directory).map(drop).ok_or(None),
            false => trust::outside_program(program).map(drop).map_err(Some),
        };
        match found {
            Ok(()) => {}
            Err(Some(err)) if err.untrusted.is_some() => {
                let hint = "or give its whole path as scm.command";
                return Err(err.error("").hint(hint));
            }
            Err(_) => {
                return Err(Error::input(format!("scm.command was not found: {}", self.program))
                    .hint("install it, or take `scm` out of the settings"));
            }
        }
        if !self.is_git() {
            return Ok(());
        }
        let add_hints = |error: Error| {
            add_init_hint(error, "`scm` is configured, and its tasks need one")
                .hint("or take `scm` out of the settings")
        };
        require_repository(directory).map_err(add_hints)
    }

    /// A warning about changes that no agent of this run made.
    pub fn uncommitted(&self, directory: &Path) -> Option<String> {
        if !self.is_git() || !self.has_commit() {
            return None;
        }
        let files = uncommitted(directory, "--untracked-files=all", &self.paths).ok()?;
        let files = format_file_list(&files)?;
        Some(format!("your uncommitted changes will be included in ralph's commits: {files}"))
    }

    pub fn is_git(&self) -> bool {
        let name = std::path::Path::new(&self.program).file_name();
        name.is_some_and(|name| name == "git")
    }

    fn has_commit(&self) -> bool {
        self.tasks.iter().any(|task| task.first().is_some_and(|word| word == "commit"))
    }

    /// Commands that list conflicts, stage everything, and tell by their exit code whether there is
    /// anything to commit. `None` if the SCM is not git.
    ///
    /// Stages before the agent writes a message, so the commit is what the guardrails checked: the
    /// agent may do more than write it.
    pub fn status_commands(&self) -> Option<Vec<Vec<String>>> {
        // Staging a file marks its conflicts as resolved, and git would commit the markers.
        // `commit -a` would leave out new files.
        let commands: [&[&str]; 3] =
            [&status::UNMERGED_ARGS, &["add", "-A"], &["diff", "--cached", "--quiet"]];
        let mut commands: Vec<Vec<String>> = commands.into_iter().map(to_strings).collect();
        commands.iter_mut().skip(1).for_each(|command| command.extend(self.pathspecs()));
        self.is_git().then_some(commands)
    }

    fn pathspecs(&self) -> impl Iterator<Item = String> {
        let dashes = (!self.paths.is_empty()).then(|| "--".to_owned());
        dashes.into_iter().chain(self.paths.iter().cloned())
    }

    /// Whether commits take nothing from the work tree that is not staged. False for unknown flags.
    pub fn commits_index_only(&self) -> bool {
        let is_index_only = |word: &String| match word.strip_prefix("--") {
            Some(name) => {
                let file_flags =
                    ["all", "include", "interactive", "only", "patch", "pathspec-from-file"];
                let name = name.split('=').next().unwrap_or_default();
                // git accepts abbreviated flags.
                !name.is_empty() && !file_flags.iter().any(|flag| flag.starts_with(name))
            }
            None => {
                let is_harmless = |letter: char| "nqsSv".contains(letter);
                word.strip_prefix('-').is_some_and(|letters| letters.chars().all(is_harmless))
            }
        };
        if !self.paths.is_empty() {
            return false;
        }
        let commits =
            self.tasks.iter().filter(|task| task.first().is_some_and(|word| word == "commit"));
        commits.flat_map(|task| task.iter().skip(1)).all(is_index_only)
    }

    pub fn commands(&self, task: usize, message: &str) -> Vec<Vec<String>> {
        let Some(task) = self.tasks.get(task) else { return Vec::new() };
        match task.first().map(String::as_str) {
            Some("commit") if self.is_git() => {
                let mut commit = task.clone();
                commit.extend(to_strings(&["-m", message]));
                commit.extend(self.pathspecs());
                vec![commit]
            }
            Some("commit") => {
                let mut commit = task.clone();
                commit.extend(to_strings(&["-am", message]));
                vec![commit]
            }
            _ => vec![task.clone()],
        }
    }
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A running SCM task, or the check whether there is anything to commit.
#[derive(Debug)]
pub struct ScmProcess {
    pub child: ChildId,
    /// `None` for the check.
    pub task: Option<usize>,
    pub command: Vec<String>,
    pub remaining_commands: std::vec::IntoIter<Vec<String>>,
    pub started_ms: u64,
    /// Why ralph killed it.
    pub ended: Option<&'static str>,
    /// An unused lock that blocks it, and when it counts as abandoned.
    pub stale_lock: Option<(PathBuf, u64)>,
    /// The beginning; the end is in `output_tail`.
    output: Vec<u8>,
    output_tail: Vec<u8>,
}

impl ScmProcess {
    pub fn new(
        child: ChildId,
        task: Option<usize>,
        command: Vec<String>,
        remaining_commands: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) -> Self {
        ScmProcess {
            child,
            task,
            command,
            remaining_commands,
            started_ms,
            ended: None,
            stale_lock: None,
            output: Vec::new(),
            output_tail: Vec::new(),
        }
    }

    pub fn can_retry(&self, now_ms: u64) -> bool {
        let timeout = u64::try_from(GIT_LOCK_TIMEOUT.as_millis()).unwrap_or(0);
        is_lock_error(&self.output_tail()) && now_ms < self.started_ms.saturating_add(timeout)
    }

    /// An unused lock must become old first.
    pub fn can_wait_for_lock(&self, now_ms: u64) -> bool {
        let timeout = lock_files::STALE_LOCK_AGE.saturating_add(GIT_LOCK_TIMEOUT).as_millis();
        now_ms.saturating_sub(self.started_ms) < u64::try_from(timeout).unwrap_or(0)
    }

    pub fn output(&mut self, bytes: &[u8]) {
        let capacity = MAX_OUTPUT - self.output.len();
        let (first, rest) = bytes.split_at(capacity.min(bytes.len()));
        self.output.extend_from_slice(first);
        self.output_tail.extend_from_slice(rest);
        let excess = self.output_tail.len().saturating_sub(MAX_OUTPUT);
        if excess > MAX_OUTPUT {
            self.output_tail.drain(..excess);
        }
    }

    pub fn failure_message(&self, exit: Option<Exit>) -> String {
        match (self.ended, self.output_tail(), exit) {
            (Some(why), output, _) if output.is_empty() => format!("it was ended, because {why}"),
            (Some(why), output, _) => {
                format!("it was ended, because {why}; it had said: {output}")
            }
            (None, output, Some(exit)) if output.is_empty() => format!("{exit}, without a word"),
            (None, output, None) if output.is_empty() => {
                "it could not be run to its end".to_owned()
            }
            (None, output, _) => output,
        }
    }

    pub fn output_head(&self) -> String {
        String::from_utf8_lossy(&self.output).trim().to_owned()
    }

    /// From the start of a line. Programs print the reason of a failure last.
    pub fn output_tail(&self) -> String {
        if self.output_tail.is_empty() {
            return self.output_head();
        }
        let all = [&self.output[..], &self.output_tail].concat();
        let last = &all[all.len().saturating_sub(MAX_OUTPUT)..];
        let line = memchr::memchr(b'\n', last).map_or(0, |end| end + 1);
        format!("…\n{}", String::from_utf8_lossy(&last[line..]).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(program: &str, tasks: &[&[&str]]) -> ScmSpec {
        let tasks = tasks.iter().map(|task| to_strings(task)).collect();
        ScmSpec { program: program.to_owned(), tasks, paths: Vec::new() }
    }

    #[test]
    fn commit_with_paths_takes_only_these_paths() {
        let paths = vec![".".to_owned(), ":!secrets".to_owned()];
        let git = ScmSpec { paths, ..spec("git", &[&["commit"]]) };
        let commands = git.status_commands().unwrap();
        assert_eq!(
            commands[0],
            to_strings(&status::UNMERGED_ARGS),
            "conflicts count in the whole repository"
        );
        assert_eq!(commands[1], to_strings(&["add", "-A", "--", ".", ":!secrets"]));
        assert_eq!(
            commands[2],
            to_strings(&["diff", "--cached", "--quiet", "--", ".", ":!secrets"])
        );
        assert_eq!(
            git.commands(0, "m"),
            [to_strings(&["commit", "-m", "m", "--", ".", ":!secrets"])]
        );
        assert!(!git.commits_index_only());
    }

    #[test]
    fn git_task_commands_are_built_without_shell_quoting() {
        let git = spec("/usr/bin/git", &[&["commit", "--signoff"], &["push", "origin"]]);
        assert_eq!(
            git.commands(0, "Fix `x` $(y)"),
            [to_strings(&["commit", "--signoff", "-m", "Fix `x` $(y)"])]
        );
        assert_eq!(git.commands(1, "m"), [to_strings(&["push", "origin"])]);
    }

    #[test]
    fn only_plain_commit_is_known_to_commit_staged_files() {
        for (flags, expected) in [
            (&[][..], true),
            (&["--signoff", "-S", "-nv", "--author=A <a@b>"], true),
            (&["-a"], false),
            (&["-qa"], false),
            (&["--al"], false),
            (&["--only"], false),
            (&["--", "file"], false),
            (&["file"], false),
        ] {
            let task = [&["commit"], flags].concat();
            let git = spec("git", &[&task, &["push", "-a"]]);
            assert_eq!(git.commits_index_only(), expected, "{flags:?}");
        }
    }

    #[test]
    fn other_scm_uses_documented_commit_flags() {
        let hg = spec("hg", &[&["commit"]]);
        assert_eq!(hg.status_commands(), None);
        assert_eq!(hg.commands(0, "m"), [to_strings(&["commit", "-am", "m"])]);
    }

    #[test]
    fn scm_failure_always_has_a_reason() {
        let run = |ended, output: &str| {
            let mut run =
                ScmProcess::new(ChildId(1), None, to_strings(&["add"]), Vec::new().into_iter(), 0);
            run.ended = ended;
            run.output(output.as_bytes());
            run
        };
        let (killed, failed) = (Some(Exit::Signal(15)), Some(Exit::Code(1)));
        let up = Some("the time is up");
        for (ended, output, exit, expected) in [
            (up, "\n", killed, "it was ended, because the time is up"),
            (up, "hm", killed, "it was ended, because the time is up; it had said: hm"),
            (None, "no\n", failed, "no"),
            (None, "", failed, "exit code 1, without a word"),
            (None, "", None, "it could not be run to its end"),
        ] {
            assert_eq!(run(ended, output).failure_message(exit), expected);
        }
        let long: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let run = run(None, &long);
        assert!(run.output_head().starts_with("line 0\n"));
        let last = run.failure_message(failed);
        assert!(last.starts_with("…\nline 9") && last.ends_with("line 9999"), "{last}");
        assert!(last.len() <= MAX_OUTPUT + "…\n".len());
    }
}
