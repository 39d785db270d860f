//! Version control after a passing iteration, as a list of programs to run. No shell is involved: a
//! commit message with `$(…)` is committed as those characters.

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

/// How much of what an SCM prints is kept for the report.
const MAX_OUTPUT: usize = 4 * 1024;

/// How long git may take for something that needs no network.
const GIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may take to look for what is only worth a warning.
const GIT_QUICK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long git is asked again while another git has one of its locks: they are held for moments, and
/// one that is older than this was left behind.
const GIT_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls git outside of a run, for what needs no hooks and no network, and tells what it printed. Nothing is
/// executed that an agent may have named ([`hardening`]).
///
/// # Errors
/// What git said of its failure.
pub fn run_git(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(GIT_TIMEOUT, GitPurpose::ReadOnly, args, directory)
}

/// The same for what may take as long as the repository is large, and runs the user's own hooks.
///
/// # Errors
/// As above.
pub fn run_git_slow(args: &[impl AsRef<OsStr>], directory: &Path) -> Result<String, Error> {
    run_git_within(COMMIT_TIMEOUT, GitPurpose::Write, args, directory)
}

/// The commit that is checked out, read from the repository's files: no run is to wait for a git just for
/// this. `None` if there is none, or if the repository keeps it in another way.
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

/// Where git keeps what it knows of the work tree that a directory is in.
fn git_dir(directory: &Path) -> Option<PathBuf> {
    let top = work_tree_root(directory)?;
    let git = top.join(".git");
    Some(if git.is_dir() {
        git
    } else {
        top.join(read_git_file(&git)?.trim().strip_prefix("gitdir: ")?)
    })
}

/// The directories of the repository that a directory is in: the top of the work tree, and where git keeps its files.
pub fn repository_dirs(directory: &Path) -> Vec<PathBuf> {
    let top = work_tree_root(directory).map(Path::to_owned);
    let git = git_dir(directory);
    let common = git.as_deref().map(common_dir);
    let dirs = top.into_iter().chain(git).chain(common);
    dirs.filter_map(|dir| dir.canonicalize().ok()).collect()
}

/// Whether a directory is the top of a work tree whose repository is there.
fn has_repository(top: &Path) -> bool {
    top.join(".git").exists()
        && git_dir(top).is_some_and(|git| git.join("HEAD").symlink_metadata().is_ok())
}

/// Whether a directory is in a work tree whose repository is there.
pub fn is_in_repository(directory: &Path) -> bool {
    work_tree_root(directory).is_some_and(has_repository)
}

/// The top of the work tree that a directory is in.
fn work_tree_root(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|above| above.join(".git").exists())
}

/// Where git keeps what all work trees share, by where it keeps what it knows of one.
fn common_dir(git: &Path) -> PathBuf {
    match read_git_file(&git.join("commondir")) {
        Some(common) => git.join(common.trim()),
        None => git.to_owned(),
    }
}

/// One of git's own files.
fn read_git_file(path: &Path) -> Option<String> {
    // No commit has a longer name, and no file of such a name is longer than a list of them.
    let bytes = ralph_store::user_files::read_user_file(path, 4 << 20).ok()?;
    String::from_utf8(bytes).ok()
}

fn run_git_within(
    patience: Duration,
    purpose: GitPurpose,
    args: &[impl AsRef<OsStr>],
    directory: &Path,
) -> Result<String, Error> {
    let until = Instant::now() + GIT_LOCK_TIMEOUT;
    let mut pause = Duration::from_millis(10);
    loop {
        match run_git_once(patience, purpose, args, directory) {
            Err(error) if is_lock_error(&error.message) && Instant::now() < until => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(250));
            }
            answer => return answer,
        }
    }
}

fn run_git_once(
    patience: Duration,
    purpose: GitPurpose,
    args: &[impl AsRef<OsStr>],
    directory: &Path,
) -> Result<String, Error> {
    let words: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let failed = |what: &str| {
        let mut command = words.iter().map(|word| word.to_string_lossy());
        let command = command.find(|word| !word.starts_with('-')).unwrap_or_default();
        Error::failed(format!("git {command}: {what}"))
    };
    let git_dir = words.first().and_then(|word| word.as_bytes().strip_prefix(b"--git-dir="));
    let git_dir = git_dir.map(|path| Path::new(OsStr::from_bytes(path)));
    let access = git_access(purpose, &words);
    link_guard::check_before_git(directory, git_dir, access)
        .map_err(|err| failed(&err.to_string()).hint(link_guard::hint(&err)))?;
    let cannot = |err: io::Error| match err.kind() {
        io::ErrorKind::Interrupted => {
            Error { kind: ralph_events::error::ErrorKind::Interrupted, ..failed("interrupted") }
        }
        _ => failed(&err.to_string()),
    };
    let settings = match purpose {
        GitPurpose::ReadOnly => disable_filters(directory).map_err(cannot)?,
        GitPurpose::Write => disable_agent_hooks(directory, git_dir).map_err(|error| {
            let shown = failed(&error.message);
            error.hints.into_iter().fold(shown, Error::hint)
        })?,
    };
    let (line, env) = (hardening::git_args(purpose, &settings, args), hardening::git_env(purpose));
    let git =
        OutsideCommand::find(OsStr::new("git"), &env).map_err(|err| git_missing_error(&err))?;
    let output = git.run(&line, directory, patience);
    if access == GitAccess::Write {
        link_guard::check_after_write(directory, git_dir);
    }
    let output = output.map_err(cannot)?;
    if output.exit.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(&match String::from_utf8_lossy(&output.stderr).trim() {
            "" if words.iter().any(|word| *word == "commit") => {
                format!("{}, without a word: a hook of the repository has refused it", output.exit)
            }
            "" => format!("{}, without a word", output.exit),
            said => said.to_owned(),
        }))
    }
}

/// Whether a call of git changes the repository. Refs and the index are also changed by calls that need no hooks.
fn git_access(purpose: GitPurpose, words: &[&OsStr]) -> GitAccess {
    let command = words.iter().find(|word| !word.as_bytes().starts_with(b"-"));
    let writes =
        command.is_some_and(|command| ["add", "branch", "reset"].iter().any(|it| command == it));
    if writes || purpose == GitPurpose::Write { GitAccess::Write } else { GitAccess::Read }
}

/// The settings that switch hooks off that agents of a sandbox can write. A warning is kept for later.
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
        let mut named = OsString::from("--git-dir=");
        named.push(git_dir);
        command.insert(0, named);
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

/// The settings that switch filter drivers off for a look in `directory`. git is asked once per process.
fn disable_filters(directory: &Path) -> io::Result<Vec<OsString>> {
    static FILTER_CACHE: Mutex<BTreeMap<PathBuf, Vec<OsString>>> = Mutex::new(BTreeMap::new());
    let known = || FILTER_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settings) = known().get(directory) {
        return Ok(settings.clone());
    }
    let words = hardening::git_args(GitPurpose::ReadOnly, &[], &hardening::LIST_FILTERS_ARGS);
    let git = OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::ReadOnly))?;
    let output = git.run(&words, directory, GIT_QUICK_TIMEOUT)?;
    let settings = hardening::disable_filters_config(&output.stdout);
    known().insert(directory.to_owned(), settings.clone());
    Ok(settings)
}

/// What is in the work tree and in no commit, in git's order; ralph's own run-time files are left out.
/// A directory of which git knows nothing is told as one.
///
/// # Errors
/// This is no git repository, or git did not answer.
pub fn list_uncommitted(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=normal", &[])
}

/// The same, with every file in such a directory.
///
/// # Errors
/// As above.
pub fn list_uncommitted_recursive(directory: &Path) -> Result<Vec<String>, Error> {
    uncommitted(directory, "--untracked-files=all", &[])
}

/// The same, of these paths.
fn uncommitted(directory: &Path, untracked: &str, paths: &[String]) -> Result<Vec<String>, Error> {
    // With -z no path is quoted. What is in a submodule is asked of a git in there, by its rules.
    let look = ["status", "--porcelain", "-z", untracked, "--ignore-submodules=dirty", "--"];
    let words: Vec<&str> = look.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let status = run_git_within(GIT_QUICK_TIMEOUT, GitPurpose::ReadOnly, &words, directory)?;
    Ok(status_files(&status))
}

/// The files in what `git status --porcelain -z` prints, without ralph's own run-time files.
pub fn status_files(status: &str) -> Vec<String> {
    let mut fields = status.split('\0');
    let mut files = Vec::new();
    while let Some(field) = fields.next() {
        let Some((state, path)) = field.split_at_checked(3) else { continue };
        // What was renamed or copied is followed by what it was called before.
        if state.contains(['R', 'C']) {
            fields.next();
        }
        if !is_run_time_file(path) {
            files.push(path.to_owned());
        }
    }
    files
}

/// Names files in one line. `None` if there are none.
pub fn format_file_list(files: &[String]) -> Option<String> {
    const MAX_NAMED_FILES: usize = 100;
    let named =
        files.iter().take(MAX_NAMED_FILES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = files.len().saturating_sub(MAX_NAMED_FILES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!files.is_empty()).then(|| format!("{named}{more}"))
}

/// How long a commit may take: it runs the user's own hooks.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(600);

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitResult {
    /// It has this name, in short, and these are not in it, because git ignores them.
    Created {
        commit: String,
        left_out: Vec<PathBuf>,
    },
    NoRepository,
    /// Everything that was to be committed is ignored.
    Ignored,
}

/// Commits what is at these paths and nothing else. What else is staged stays staged.
///
/// # Errors
/// What git said: a hook refused, a merge is under way, there is nobody to commit as.
pub fn commit_paths(
    directory: &Path,
    paths: &[&Path],
    message: &str,
) -> Result<CommitResult, Error> {
    if !is_repository(directory) {
        return Ok(CommitResult::NoRepository);
    }
    // A name with a `*` in it is that name.
    let literal = OsStr::new("--literal-pathspecs");
    let ignored = |path: &Path| {
        let words = [OsStr::new("check-ignore"), "-q".as_ref(), "--".as_ref(), path.as_ref()];
        run_git(&words, directory).is_ok()
    };
    let (left_out, paths): (Vec<&Path>, Vec<&Path>) = paths.iter().partition(|path| ignored(path));
    if paths.is_empty() {
        return Ok(CommitResult::Ignored);
    }
    let with = |words: &[&str], paths: &[&Path]| -> Vec<OsString> {
        let paths = paths.iter().map(|path| path.as_os_str());
        let words = words.iter().map(OsStr::new).chain([OsStr::new("--")]).chain(paths);
        std::iter::once(literal).chain(words).map(Into::into).collect()
    };
    // A commit of single paths needs to know the new ones by name; their content it takes itself, so
    // that what is staged is the same afterwards, whatever becomes of the commit.
    let mut new = Vec::new();
    for path in &paths {
        if run_git(&with(&["ls-files"], &[path]), directory)?.is_empty() {
            new.push(*path);
        }
    }
    if !new.is_empty() {
        run_git(&with(&["add", "--intent-to-add"], &new), directory)?;
    }
    // A commit of nothing tells what else there is, and looks into every repository in the work tree for that.
    let changed = with(&["status", "--porcelain", "--ignore-submodules=dirty"], &paths);
    if run_git(&changed, directory)?.is_empty() {
        return Err(Error::failed("git commit: nothing has changed since the last commit"));
    }
    let commit = with(&["commit", "--quiet", "-m", message], &paths);
    if let Err(err) = run_git_slow(&commit, directory) {
        if !new.is_empty() {
            // What is told is why there is no commit.
            let _ = run_git(&with(&["reset", "--quiet"], &new), directory);
        }
        return Err(err);
    }
    let name = run_git(&["rev-parse", "--short", "HEAD"], directory)?;
    let left_out = left_out.into_iter().map(Path::to_owned).collect();
    Ok(CommitResult::Created { commit: name.trim().to_owned(), left_out })
}

/// The submodules, and other repositories that were added as such, that have files in the work tree. What is in
/// there is known to nobody but them.
///
/// # Errors
/// As [`git`].
pub fn submodules(directory: &Path) -> Result<Vec<String>, Error> {
    let files = run_git(&["ls-files", "--stage", "-z"], directory)?;
    Ok(parse_submodules(&files, directory))
}

/// The same in what `git ls-files --stage -z` prints.
pub fn parse_submodules(files: &str, directory: &Path) -> Vec<String> {
    let submodules = files.split('\0').filter_map(|line| {
        let (state, path) = line.split_once('\t')?;
        (state.starts_with("160000 ") && directory.join(path).join(".git").exists())
            .then(|| path.to_owned())
    });
    submodules.collect()
}

fn is_repository(directory: &Path) -> bool {
    let inside = run_git(&["rev-parse", "--is-inside-work-tree"], directory);
    inside.is_ok_and(|answer| answer.trim() == "true")
}

/// Whether git would take a file for part of the work.
pub fn is_tracked_candidate(directory: &Path, name: &str) -> bool {
    is_repository(directory) && run_git(&["check-ignore", "-q", "--", name], directory).is_err()
}

/// Finds out whether a directory is in a git work tree.
///
/// # Errors
/// It is not, or there is no git.
pub fn require_repository(directory: &Path) -> Result<(), Error> {
    if is_repository(directory) {
        return Ok(());
    }
    trust::outside_program(OsStr::new("git")).map_err(|err| git_missing_error(&err))?;
    // It may be one that git does not touch, because it is somebody else's.
    let shown = directory.display();
    match run_git(&["rev-parse", "--is-inside-work-tree"], directory) {
        Err(error) if error.message.contains("safe.directory") => {
            let said = error.message.lines().next().unwrap_or_default();
            let command = format!("git config --global --add safe.directory {shown}");
            return Err(Error::input(said).hint(format!("if you trust it: {command}")));
        }
        Err(error) if error.message.contains("safe.bareRepository") => {
            return Err(bare_repository_error(directory));
        }
        // There is one, and git knows what is wrong with it.
        Err(error)
            if directory.join(".git").symlink_metadata().is_ok()
                || std::env::var_os("GIT_DIR").is_some() =>
        {
            let said = error.message.lines().next().unwrap_or_default();
            return Err(Error::input(format!("git cannot use the repository of {shown}: {said}"))
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

/// Tells why a repository is needed, and how to make one, if that is what is missing.
pub fn add_init_hint(error: Error, why: &str) -> Error {
    if error.message.starts_with(NO_REPOSITORY) {
        error.hint(format!("{why}: run `git init`"))
    } else {
        error
    }
}

/// Version control after a passing iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScmSpec {
    /// The program, `git` for most.
    pub program: String,
    /// Each task as words: `["commit"]`, `["push", "origin", "main"]`.
    pub tasks: Vec<Vec<String>>,
    /// What a commit takes, as pathspecs from the project's directory. Empty for the whole repository.
    pub paths: Vec<String>,
}

impl ScmSpec {
    /// Finds out before anything is spent whether the tasks can work at all.
    ///
    /// # Errors
    /// The program is missing, or this is no git repository.
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
        let cannot = |error: Error| {
            add_init_hint(error, "`scm` is configured, and its tasks need one")
                .hint("or take `scm` out of the settings")
        };
        require_repository(directory).map_err(cannot)
    }

    /// What the first commit will take along, though no agent of this run made it.
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

    /// The commands that tell of conflicts nobody has resolved, stage everything, and then tell by their exit
    /// code whether there is anything to commit. It is staged here, before the agent is asked for a message, so that what is
    /// committed is what the guardrails saw: an agent that is asked for words may do more than that.
    /// Only git's commands are known; others are asked for a commit each time.
    pub fn status_commands(&self) -> Option<Vec<Vec<String>>> {
        // To stage a file is to say that its conflicts are resolved: git would commit the marks. New files are part
        // of the work, and `commit -a` would leave them out.
        let look: [&[&str]; 3] =
            [&status::UNMERGED_ARGS, &["add", "-A"], &["diff", "--cached", "--quiet"]];
        let mut look: Vec<Vec<String>> = look.into_iter().map(to_strings).collect();
        look.iter_mut().skip(1).for_each(|command| command.extend(self.pathspecs()));
        self.is_git().then_some(look)
    }

    /// The words that limit a command to the paths of the commit.
    fn pathspecs(&self) -> impl Iterator<Item = String> {
        let dashes = (!self.paths.is_empty()).then(|| "--".to_owned());
        dashes.into_iter().chain(self.paths.iter().cloned())
    }

    /// Whether the commits that are made take what is staged and nothing else, whatever is in the work tree. Of flags
    /// that are not known here nobody can tell.
    pub fn commits_index_only(&self) -> bool {
        let takes_no_file = |word: &String| match word.strip_prefix("--") {
            Some(name) => {
                let more = ["all", "include", "interactive", "only", "patch", "pathspec-from-file"];
                let name = name.split('=').next().unwrap_or_default();
                // git knows a flag by its beginning.
                !name.is_empty() && !more.iter().any(|flag| flag.starts_with(name))
            }
            None => {
                let harmless = |letter: char| "nqsSv".contains(letter);
                word.strip_prefix('-').is_some_and(|letters| letters.chars().all(harmless))
            }
        };
        // A commit of single paths takes what is in the work tree.
        if !self.paths.is_empty() {
            return false;
        }
        let commits =
            self.tasks.iter().filter(|task| task.first().is_some_and(|it| it == "commit"));
        commits.flat_map(|task| task.iter().skip(1)).all(takes_no_file)
    }

    /// The commands of one task, in order.
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

/// An SCM task that is running, or a look at whether there is anything to commit.
#[derive(Debug)]
pub struct ScmProcess {
    pub child: ChildId,
    /// `None` for the look.
    pub task: Option<usize>,
    /// What is running.
    pub command: Vec<String>,
    /// What is still to be run after the current command.
    pub remaining_commands: std::vec::IntoIter<Vec<String>>,
    pub started_ms: u64,
    /// ralph has ended it, for this reason.
    pub ended: Option<&'static str>,
    /// A lock that stops it and that nobody uses, and when it will have been there for long enough.
    pub stale_lock: Option<(PathBuf, u64)>,
    /// How it began, and how it went on if there is more than that.
    output: Vec<u8>,
    output_tail: Vec<u8>,
}

impl ScmProcess {
    pub fn new(
        child: ChildId,
        task: Option<usize>,
        command: Vec<String>,
        rest: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) -> Self {
        ScmProcess {
            child,
            task,
            command,
            remaining_commands: rest,
            started_ms,
            ended: None,
            stale_lock: None,
            output: Vec::new(),
            output_tail: Vec::new(),
        }
    }

    /// Whether it failed for a reason that passes, and has not done so for too long.
    pub fn can_retry(&self, now_ms: u64) -> bool {
        let patience = u64::try_from(GIT_LOCK_TIMEOUT.as_millis()).unwrap_or(0);
        is_lock_error(&self.output_tail()) && now_ms < self.started_ms.saturating_add(patience)
    }

    /// The same for a lock that nobody uses: it may have to become old first.
    pub fn can_wait_for_lock(&self, now_ms: u64) -> bool {
        let patience = lock_files::STALE_LOCK_AGE.saturating_add(GIT_LOCK_TIMEOUT).as_millis();
        now_ms.saturating_sub(self.started_ms) < u64::try_from(patience).unwrap_or(0)
    }

    pub fn output(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT - self.output.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.output.extend_from_slice(first);
        self.output_tail.extend_from_slice(rest);
        let old = self.output_tail.len().saturating_sub(MAX_OUTPUT);
        if old > MAX_OUTPUT {
            self.output_tail.drain(..old);
        }
    }

    /// Why it failed, as far as anybody can tell.
    pub fn failure_message(&self, exit: Option<Exit>) -> String {
        match (self.ended, self.output_tail(), exit) {
            (Some(why), said, _) if said.is_empty() => format!("it was ended, because {why}"),
            (Some(why), said, _) => format!("it was ended, because {why}; it had said: {said}"),
            (None, said, Some(exit)) if said.is_empty() => format!("{exit}, without a word"),
            (None, said, None) if said.is_empty() => "it could not be run to its end".to_owned(),
            (None, said, _) => said,
        }
    }

    /// What it printed first, trimmed.
    pub fn output_head(&self) -> String {
        String::from_utf8_lossy(&self.output).trim().to_owned()
    }

    /// What it printed last, from the beginning of a line: whoever fails says why at the end.
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
        let look = git.status_commands().unwrap();
        assert_eq!(
            look[0],
            to_strings(&status::UNMERGED_ARGS),
            "conflicts count in the whole repository"
        );
        assert_eq!(look[1], to_strings(&["add", "-A", "--", ".", ":!secrets"]));
        assert_eq!(look[2], to_strings(&["diff", "--cached", "--quiet", "--", ".", ":!secrets"]));
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
        let run = |ended, said: &str| {
            let mut run =
                ScmProcess::new(ChildId(1), None, to_strings(&["add"]), Vec::new().into_iter(), 0);
            run.ended = ended;
            run.output(said.as_bytes());
            run
        };
        let (killed, failed) = (Some(Exit::Signal(15)), Some(Exit::Code(1)));
        let up = Some("the time is up");
        for (ended, said, exit, expected) in [
            (up, "\n", killed, "it was ended, because the time is up"),
            (up, "hm", killed, "it was ended, because the time is up; it had said: hm"),
            (None, "no\n", failed, "no"),
            (None, "", failed, "exit code 1, without a word"),
            (None, "", None, "it could not be run to its end"),
        ] {
            assert_eq!(run(ended, said).failure_message(exit), expected);
        }
        // A hook may have much to say, and a commit much to tell.
        let long: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let run = run(None, &long);
        assert!(run.output_head().starts_with("line 0\n"));
        let last = run.failure_message(failed);
        assert!(last.starts_with("…\nline 9") && last.ends_with("line 9999"), "{last}");
        assert!(last.len() <= MAX_OUTPUT + "…\n".len());
    }
}
