//! Everything outside the engine that the driver touches.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use ralph_engine::machine::Now;
use ralph_events::event::Entry;
use ralph_events::journal;
use ralph_events::run_state::RunState;
use ralph_process::trust::{self, OutsideCommand};
use ralph_process::{ChildId, Launch, Occurrence, System, TerminalSize};
use ralph_report::summary::Summary;
use ralph_sandbox as sandbox;
use ralph_sandbox::proxy::Refusal;
use ralph_sandbox::{Backend, Sandbox, SandboxTrace};
use ralph_store::dir_identity::{DirChange, DirHandle};
use ralph_store::guardrail_logs::GuardrailLogs;
use ralph_store::lock::{Holder, Lock};
use ralph_store::log_files::BoundedLog;
use ralph_store::project::Project;
use ralph_store::project_record;
use ralph_store::run_files::RunFiles;
use ralph_store::runs::RunDir;
use ralph_store::save::{save_atomically, save_privately, with_parent_dir};
use ralph_store::{home, private_files, safe_fs, user_files};
use ralph_tasks::documents;

use super::commit_lookup;
use ralph_git as git;
use ralph_git::branch::{self, DetachedReason};
use ralph_git::config_trust::{self, ConfigRepository};
use ralph_git::hardening::{self, GitPurpose};
use ralph_git::head_log::{self, LogPosition, NewCommits};
use ralph_git::link_guard::{self, LinkGuard};
use ralph_git::lock_files::{self, LockStatus};
use ralph_git::work_tree;

/// How long git may take to look up commits.
const COMMIT_LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Submodules that are checked for uncommitted work, at most.
const MAX_SUBMODULES: usize = 20;

/// Changes that are in no commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Paths relative to the project.
    pub files: Vec<String>,
    /// Submodules with such changes.
    pub submodules: Vec<String>,
}

/// A file that a run appends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    Journal,
    /// The agent's bytes, unchanged.
    Raw,
    /// The log that was opened last.
    Log,
}

/// A request to a run from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRequest {
    Pause,
    /// Continues, with a new iteration limit if one is given.
    Resume {
        max_iterations: Option<u32>,
    },
    /// Ends the run and its agent.
    End,
}

/// A source of requests. A byte in the world's control pipe announces one.
pub trait ControlSource {
    fn take(&mut self) -> Vec<ControlRequest>;
    /// Returns why no requests can arrive any more.
    fn obstacle(&mut self) -> Option<String>;
}

/// Decides where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Agent,
    /// A guardrail: it executes files that the agent wrote. Without a sandbox it uses the user's `PATH`.
    Check,
    /// git or another SCM: inside the sandbox if guardrails are, otherwise found in trusted directories only.
    Scm,
}

/// Processes, files, clock and signals.
pub trait World {
    fn now(&self) -> Now;
    /// Starts a child outside the sandbox and returns its pid. The program must be in a trusted directory.
    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)>;
    /// Starts a child, inside the sandbox if this part belongs there.
    fn start_inside(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        let _ = part;
        self.start(launch)
    }
    /// Hosts refused since the last call.
    fn refusals(&mut self) -> Vec<Refusal> {
        Vec::new()
    }
    /// Returns why no further agent may start: no requests can arrive any more, or the project is gone.
    fn lost(&mut self) -> Option<String> {
        None
    }
    /// Frees resources: nothing will be started for a while.
    fn rest(&mut self) {}
    /// Starts an agent on a pseudo-terminal of our size, inside the sandbox if there is one. Fed bytes are typed
    /// there.
    fn start_on_terminal(
        &mut self,
        launch: &Launch<'_>,
    ) -> io::Result<(ChildId, u32, TerminalSize)> {
        let _ = launch;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Adapts the child's terminal to our size and returns it.
    fn resize(&mut self, child: ChildId) -> TerminalSize {
        let _ = child;
        TerminalSize::DEFAULT
    }
    /// Returns whether the child reads single keys, as full-screen programs do once they are ready.
    fn reads_keys(&mut self, child: ChildId) -> bool {
        let _ = child;
        true
    }
    /// Starts a child whose standard input is fed.
    fn start_fed(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)>;
    /// Writes to the child's input; returns whether there was room.
    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool;
    /// Writes a line to the child and waits for its answer. Everything else waits meanwhile.
    ///
    /// # Errors No answer in time, or the child has exited.
    fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>> {
        let _ = (child, question, patience_ms);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Closes the child's standard input.
    fn close_input(&mut self, child: ChildId);
    /// Ends a child and everything it started, without a grace period if `at_once`. `wait` still reports its end.
    fn end(&mut self, child: ChildId, at_once: bool);
    /// Waits for the next occurrence, at most until `until_mono_ms`.
    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence;
    fn exists(&mut self, path: &Path) -> bool;
    fn is_file(&mut self, path: &Path) -> bool {
        self.exists(path)
    }
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads a task list, which may be written at the same time.
    fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    /// A fingerprint of a file, and the bytes read for it (at most `budget`).
    fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64);
    /// A fingerprint of a directory; `None` if it has more than `most` files.
    fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64>;
    /// A fingerprint of the repository's refs; `None` if it is unknown.
    fn refs_fingerprint(&mut self, directory: &Path) -> Option<u64> {
        let _ = directory;
        Some(0)
    }
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Writes a file atomically.
    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Removes a file; a missing file is no error.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Returns whether the owner of a git lock is gone.
    fn abandoned(&mut self, lock: &Path) -> LockStatus {
        let _ = lock;
        LockStatus::InUse
    }
    /// Starts a new log.
    fn open_log(&mut self, path: &Path) -> io::Result<()>;
    fn append(&mut self, record: Record, bytes: &[u8]) -> io::Result<()>;
    /// Frees reserved disk space for the last events of a run; returns whether there was any.
    fn make_room(&mut self) -> bool {
        false
    }
    /// Restores ralph's own files and returns messages about it.
    ///
    /// # Errors The journal is lost.
    fn cleanup(&mut self) -> io::Result<Vec<String>>;
    /// Returns why the run cannot continue, and what to do about it: a planted file that cannot be removed, or a
    /// missing project or repository. Nothing there may be read or executed any more.
    fn stuck(&self) -> Option<String> {
        None
    }
    /// Passes every journal entry, from the first.
    fn replay(&mut self, _take: &mut dyn FnMut(&Entry<'static>)) {}
    /// Reads the journal.
    fn run_state(&mut self) -> RunState {
        RunState::default()
    }
    /// Adds what git knows about the commits.
    fn look_up(&mut self, _facts: &mut Summary) {}
    /// git settings that switch filter drivers off.
    fn read_only_git_args(&self) -> Vec<OsString> {
        Vec::new()
    }
    /// Commits since the last call; see [`head_log::Watch::look`].
    fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        let _ = thorough;
        None
    }
    /// The repository that has replaced the original one.
    fn replaced(&mut self) -> Option<PathBuf> {
        None
    }
    fn branch(&mut self) -> Option<String> {
        None
    }
    /// Uncommitted work; empty if git does not answer.
    fn uncommitted(&mut self) -> Uncommitted {
        Uncommitted::default()
    }
    /// Why new commits are on no branch, if so.
    fn no_branch(&mut self) -> Option<DetachedReason> {
        None
    }
    /// Requests since the last call.
    fn requests(&mut self) -> Vec<ControlRequest>;
    /// Schedules an fsync of the journal.
    fn sync(&mut self);
}

/// The real world.
#[expect(missing_debug_implementations, reason = "who asks is a trait object")]
pub struct RealWorld {
    system: System,
    files: RunFiles,
    log: Option<BoundedLog>,
    logs: Option<GuardrailLogs>,
    max_log: u64,
    syncer: Option<SyncSender<()>>,
    /// The journal was restored, and this is not reported yet.
    was_put_back: bool,
    project: Project,
    /// The project directory at the start; the lock keeps it open.
    project_dir: DirHandle,
    project_change: DirChange,
    lock: Lock,
    holder: Holder,
    control: Option<Box<dyn ControlSource>>,
    sandbox: Option<ActiveSandbox>,
    repository: Option<head_log::HeadLog>,
    /// A thorough repository check was done since the last occurrence.
    is_repository_checked: bool,
    /// git settings that switch filter drivers off, from the configuration at the start.
    filters_off: Vec<OsString>,
    links: Option<LinkGuard>,
    /// Git directories were checked for links since the last occurrence.
    links_checked: bool,
    /// Unreported warnings about links.
    link_warnings: Vec<String>,
    link_error: Option<String>,
    /// The warning about disabled hooks was given.
    hooks_reported: bool,
}

#[derive(Debug)]
struct ActiveSandbox {
    sandbox: Box<dyn Sandbox>,
    /// Guardrails and SCM tasks run inside as well.
    checks: bool,
    /// The child that runs inside.
    child: Option<ChildId>,
    /// Quarantined files that are not reported yet, and those that could not be moved.
    pending_traces: Vec<SandboxTrace>,
}

impl RealWorld {
    /// `lock` is the project's, held by `me`. `max_log` limits each log, and all guardrail logs together.
    pub fn new(
        system: System,
        files: RunFiles,
        project: Project,
        lock: Lock,
        me: Holder,
        max_log: u64,
    ) -> Self {
        RealWorld {
            max_log,
            system,
            files,
            log: None,
            logs: None,
            syncer: None,
            was_put_back: false,
            project_dir: DirHandle::new(project.root()),
            project_change: DirChange::Unchanged,
            project,
            lock,
            holder: me,
            sandbox: None,
            control: None,
            repository: None,
            is_repository_checked: false,
            filters_off: Vec::new(),
            links: None,
            links_checked: false,
            link_warnings: Vec::new(),
            link_error: None,
            hooks_reported: false,
        }
    }

    /// Accepts requests announced at `door`.
    ///
    /// # Errors The pipe cannot be watched.
    pub fn set_control(
        &mut self,
        control: Box<dyn ControlSource>,
        door: OwnedFd,
    ) -> io::Result<()> {
        self.system.set_control_pipe(door)?;
        self.control = Some(control);
        Ok(())
    }

    /// Reports keys typed into our terminal from now on.
    ///
    /// # Errors There is no standard input.
    pub fn watch_keys(&mut self) -> io::Result<()> {
        self.system.set_key_input(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        Ok(())
    }

    /// Starts agents inside this sandbox from now on; with `checks`, guardrails and SCM tasks too.
    pub fn set_sandbox(&mut self, mut sandbox: Box<dyn Sandbox>, checks: bool) {
        self.system.set_wake_pipe(sandbox.take_wake_pipe());
        self.sandbox =
            Some(ActiveSandbox { sandbox, checks, child: None, pending_traces: Vec::new() });
    }

    /// Moves new links in the git directories aside after each step from now on.
    pub fn set_link_guard(&mut self, guard: LinkGuard) {
        self.links = Some(guard);
    }

    /// Moves new links in the git directories aside, unless nothing has happened since the last check.
    ///
    /// # Errors As [`LinkGuard::check`].
    fn check_links(&mut self) -> io::Result<()> {
        if let Some(guard) = self.links.as_ref().filter(|_| !self.links_checked) {
            let checked = guard.check();
            self.link_error = checked.as_ref().err().map(ToString::to_string);
            self.link_warnings.extend(checked?);
            self.links_checked = true;
        }
        Ok(())
    }

    /// The same before git writes outside the sandbox. Fails if another run's agent could put links back.
    fn check_links_before_write(&mut self) -> io::Result<()> {
        let before = self.link_warnings.len();
        self.links_checked = false;
        self.check_links()?;
        if self.link_warnings.len() > before
            && let Some(guard) = &self.links
        {
            let home = home::ralph_home(|name| std::env::var_os(name));
            guard.refuse_other_agents(home.as_deref())?;
        }
        Ok(())
    }

    /// Arguments of an SCM task outside the sandbox. Switches hooks off if sandboxed agents can write them.
    fn scm_args_without_agent_hooks(&mut self, launch: &Launch<'_>) -> io::Result<Vec<OsString>> {
        let unchanged = Ok(launch.args.to_vec());
        let is_git = Path::new(launch.program).file_name() == Some(OsStr::new("git"));
        let repository = ConfigRepository::find(self.project.root(), None).filter(|_| is_git);
        let Some(repository) = repository else { return unchanged };
        let home = home::ralph_home(|name| std::env::var_os(name));
        let records = home.as_deref().map(project_record::all_records).unwrap_or_default();
        if self.sandbox.is_none() && !repository.last_run_was_sandboxed(&records) {
            return unchanged;
        }
        let words = hardening::git_args(GitPurpose::Write, &[], &config_trust::LIST_CONFIG_ARGS);
        let git = OutsideCommand::find(launch.program, launch.env)?;
        let (program, env, root) = (git.program(), git.env(), self.project.root());
        let output = self.system.run_to_end(program, &words, root, env, COMMIT_LOOKUP_TIMEOUT)?;
        let restriction = repository.restrict_from_output(&output).map_err(|error| {
            let parts: Vec<String> = std::iter::once(error.message).chain(error.hints).collect();
            io::Error::other(parts.join("; "))
        })?;
        if let Some(warning) = restriction.warning.filter(|_| !self.hooks_reported) {
            self.hooks_reported = true;
            self.link_warnings.push(warning);
        }
        let settings = restriction.settings.into_iter();
        let settings = settings.flat_map(|setting| [OsString::from("-c"), setting]);
        Ok(settings.chain(launch.args.iter().cloned()).collect())
    }

    /// Reports commits from now on, and returns the repository's state with the commits since `since`.
    pub fn watch_repository(&mut self, since: LogPosition<'_>) -> Option<NewCommits> {
        let (watch, moved) = head_log::HeadLog::open(self.project.root(), since);
        self.repository = Some(watch);
        if git::is_in_repository(self.project.root()) {
            self.filters_off = self.disabled_filters();
        }
        moved
    }

    /// Settings that switch filter drivers off; none if git does not answer, because then it answers no query
    /// either.
    fn disabled_filters(&mut self) -> Vec<OsString> {
        let words = hardening::git_args(GitPurpose::ReadOnly, &[], &hardening::LIST_FILTERS_ARGS);
        let git =
            OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::ReadOnly));
        let Ok(git) = git else { return Vec::new() };
        let (program, env, root) = (git.program(), git.env(), self.project.root());
        let output = self.system.run_to_end(program, &words, root, env, COMMIT_LOOKUP_TIMEOUT);
        output
            .map_or_else(|_| Vec::new(), |output| hardening::disable_filters_config(&output.stdout))
    }

    /// Runs a git query. Nothing that the repository configures is executed.
    fn git_query(&mut self, directory: &Path, words: &[&str]) -> Option<String> {
        let args = hardening::git_args(GitPurpose::ReadOnly, &self.filters_off, words);
        let git =
            OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::ReadOnly))
                .ok()?;
        let (program, env) = (git.program(), git.env());
        let output =
            self.system.run_to_end(program, &args, directory, env, COMMIT_LOOKUP_TIMEOUT).ok()?;
        let is_whole = output.exit.success();
        is_whole.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn status_files(&mut self, directory: &Path, paths: &[&str]) -> Vec<String> {
        let words = ["status", "--porcelain", "-z", "--ignore-submodules=dirty", "--"];
        let status = self.git_query(directory, &[&words[..], paths].concat());
        status.map_or_else(Vec::new, |status| git::status_files(&status))
    }

    pub fn run_dir(&self) -> &RunDir {
        &self.files.dir
    }

    /// Bytes in the journal.
    pub fn journal_size(&self) -> u64 {
        self.files.journal_size()
    }

    /// Ends what is still running and releases the project.
    ///
    /// # Errors The lock file cannot be cleared.
    pub fn close(self) -> io::Result<()> {
        let RealWorld { system, files, lock, sandbox: cell, links, link_warnings, .. } = self;
        drop(system);
        drop(cell);
        link_guard::queue_warnings(link_warnings);
        // After an error the record still makes the next ralph check.
        link_guard::queue_warnings(match links.map(LinkGuard::finish) {
            Some(Ok(warnings)) => warnings,
            Some(Err(err)) => vec![format!("the git directories could not be checked: {err}")],
            None => Vec::new(),
        });
        // The end of the run has reported a journal that cannot be kept.
        let _ = files.close();
        lock.release(None)
    }

    /// Restores a journal that the running agent removed: this process may not live until the agent ends, and the
    /// next run must find it.
    fn put_back(&mut self) -> io::Result<()> {
        self.check_project_in_place()?;
        self.project.prepare_beside_agent()?;
        let root = self.project.root();
        if self.files.put_back_beside_agent(root)? {
            self.was_put_back = true;
            // The thread holds the deleted file open.
            self.syncer = None;
        }
        self.lock.restore_beside_agent(root, &self.project.lock_path(), &self.holder)
    }

    /// Refuses to write if the project is no longer where the run started.
    fn check_project_in_place(&mut self) -> io::Result<()> {
        if self.project_change == DirChange::Unchanged {
            self.project_change = self.project_dir.change();
        }
        match self.project_change {
            DirChange::Unchanged => Ok(()),
            DirChange::Gone => Err(io::Error::new(io::ErrorKind::NotFound, "the project is gone")),
            DirChange::Replaced => {
                let message = "another directory has the project's place";
                Err(io::Error::new(io::ErrorKind::NotFound, message))
            }
        }
    }

    /// Quarantine failures.
    fn unresolved_traces(&self) -> impl Iterator<Item = &SandboxTrace> {
        self.sandbox
            .iter()
            .flat_map(|cell| &cell.pending_traces)
            .filter(|trace| trace.is_not_restored())
    }

    fn project_gone_message(&self) -> Option<String> {
        let path = self.project_dir.path().display();
        let now = match self.project_change {
            DirChange::Unchanged => return None,
            DirChange::Gone => "",
            DirChange::Replaced => ", and another directory is there now",
        };
        let kept = self.files.kept_at();
        let kept = kept.map(|at| format!(" (the journal is kept in {})", at.display()));
        Some(format!(
            "the project {path} was moved or removed{now}, so that nothing more is started{}: put it back, or go \
             where it is",
            kept.unwrap_or_default()
        ))
    }

    fn repository_gone_message(&self) -> Option<String> {
        let lost = self.repository.as_ref().and_then(head_log::HeadLog::missing_repository)?;
        Some(format!(
            "the repository is gone: there was {} when the run began; what the agent did is in the files, its \
             history is not: put it back, or make a new one (git init)",
            lost.display()
        ))
    }

    /// An fsync takes milliseconds, an instant agent less than one. A second thread waits for the disk.
    fn start_syncer(&self) -> io::Result<SyncSender<()>> {
        let journal = self.files.journal_handle()?;
        let (sender, receiver) = sync_channel::<()>(1);
        std::thread::Builder::new().name("sync".into()).stack_size(64 * 1024).spawn(move || {
            while receiver.recv().is_ok() {
                // The next write reports a failed disk.
                let _ = journal.sync_data();
            }
        })?;
        Ok(sender)
    }
}

impl World for RealWorld {
    fn now(&self) -> Now {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall_ms = wall.tv_sec.saturating_mul(1000).saturating_add(wall.tv_nsec / 1_000_000);
        Now { mono_ms: self.system.now_ms(), wall_ms }
    }

    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        let command = OutsideCommand::find(launch.program, launch.env)?;
        self.system.start(&command.launch(launch))
    }

    fn start_inside(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        match &mut self.sandbox {
            Some(cell) if part == Part::Agent || cell.checks => {
                let started =
                    sandbox::start(cell.sandbox.as_mut(), &mut self.system, launch, None)?;
                cell.child = Some(started.0);
                Ok(started)
            }
            _ => match part {
                Part::Agent => self.system.start(launch),
                // The shell is ours, the command the user's.
                Part::Check => {
                    let shell = trust::outside_program(launch.program)?;
                    self.system.start(&Launch { program: shell.as_os_str(), ..launch.clone() })
                }
                Part::Scm => {
                    self.check_links_before_write()?;
                    let args = self.scm_args_without_agent_hooks(launch)?;
                    self.start(&Launch { args: &args, ..launch.clone() })
                }
            },
        }
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        self.sandbox.as_mut().map(|cell| cell.sandbox.refusals()).unwrap_or_default()
    }

    fn rest(&mut self) {
        if let Some(cell) = &mut self.sandbox {
            cell.sandbox.rest(&mut self.system);
        }
    }

    fn start_on_terminal(
        &mut self,
        launch: &Launch<'_>,
    ) -> io::Result<(ChildId, u32, TerminalSize)> {
        let size = terminal_size();
        let system = &mut self.system;
        let (child, pid) = match &mut self.sandbox {
            Some(cell) => {
                let sandbox = cell.sandbox.as_mut();
                let started = sandbox::start_on_terminal(sandbox, system, launch, size)?;
                cell.child = Some(started.0);
                started
            }
            None => system.start_on_terminal(launch, size)?,
        };
        Ok((child, pid, size))
    }

    fn resize(&mut self, child: ChildId) -> TerminalSize {
        let size = terminal_size();
        self.system.resize(child, size);
        size
    }

    fn reads_keys(&mut self, child: ChildId) -> bool {
        self.system.reads_keys(child)
    }

    fn start_fed(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        let command = OutsideCommand::find(launch.program, launch.env)?;
        self.system.start_with_stdin_pipe(&command.launch(launch))
    }

    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        self.system.feed(child, bytes)
    }

    fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>> {
        self.system.ask(child, question, patience_ms)
    }

    fn close_input(&mut self, child: ChildId) {
        self.system.close_input(child);
    }

    fn end(&mut self, child: ChildId, at_once: bool) {
        if at_once {
            self.system.kill_child(child);
        } else {
            self.system.terminate_child(child);
        }
    }

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.is_repository_checked = false;
        self.links_checked = false;
        let happened = self.system.wait(until_mono_ms, buf);
        if let (Occurrence::Ended(child, _), Some(cell)) = (&happened, &mut self.sandbox)
            && cell.child == Some(*child)
        {
            cell.child = None;
            cell.pending_traces.extend(cell.sandbox.cleanup());
        }
        happened
    }

    fn exists(&mut self, path: &Path) -> bool {
        path.exists()
    }

    fn is_file(&mut self, path: &Path) -> bool {
        path.is_file()
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.sandbox {
            // A sandboxed agent must not read files through us.
            Some(_) => safe_fs::read_within(self.project.root(), path, MAX_PROMPT_BYTES),
            None => user_files::read_user_file(path, u64::MAX),
        }
    }

    fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let cell = self.sandbox.as_mut();
        let inside = cell.and_then(|cell| cell.sandbox.read(&mut self.system, path));
        inside.unwrap_or_else(|| documents::read_tasks(self.project.root(), path))
    }

    fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64) {
        work_tree::file_fingerprint(path, budget)
    }

    fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64> {
        work_tree::tree_fingerprint(path, most)
    }

    fn refs_fingerprint(&mut self, directory: &Path) -> Option<u64> {
        git::refs::fingerprint(directory)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        // An agent may have left a link there.
        self.remove(path)?;
        with_parent_dir(path, || {
            private_files::private_open_options()
                .write(true)
                .create_new(true)
                .open(path)?
                .write_all(bytes)
        })
    }

    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if !path.starts_with(self.project.root()) {
            private_files::create_dir_all(path.parent().unwrap_or(path))?;
            return save_privately(path, bytes);
        }
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        with_parent_dir(path, || save_atomically(path, bytes))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn open_log(&mut self, path: &Path) -> io::Result<()> {
        self.log = None;
        self.check_project_in_place()?;
        safe_fs::check_inside(self.project.root(), path)?;
        safe_fs::check_inside(self.project.root(), &self.files.dir.journal())?;
        self.remove(path)?;
        let (dir, room) = (&self.files.dir.path, self.max_log);
        let logs = self.logs.get_or_insert_with(|| GuardrailLogs::open(dir, room));
        self.log = Some(BoundedLog::new(logs.start_log(path)?, self.max_log));
        Ok(())
    }

    fn append(&mut self, record: Record, bytes: &[u8]) -> io::Result<()> {
        match record {
            Record::Journal => {
                self.files.append_journal(bytes)?;
                if self.files.is_removed() {
                    // A failure is retried when the agent has ended.
                    let _ = self.put_back();
                }
                Ok(())
            }
            Record::Raw => self.files.append_raw(bytes),
            Record::Log => self.log.as_mut().map_or(Ok(()), |log| log.append(bytes)),
        }
    }

    fn make_room(&mut self) -> bool {
        self.files.release_reserve()
    }

    fn cleanup(&mut self) -> io::Result<Vec<String>> {
        let mut restored = Vec::new();
        // Called whenever a child ends. If the journal is in place, so is the project, and nothing needs to be
        // written.
        if !self.files.is_in_place() {
            safe_fs::check_inside(self.project.root(), &self.files.dir.journal())?;
            if self.check_project_in_place().is_err() {
                return Ok(restored);
            }
            self.was_put_back |= self.files.restore()?;
        }
        if std::mem::take(&mut self.was_put_back) {
            let path = self.files.dir.journal();
            restored.push(format!(
                "{} had been removed or moved; it was put back, with all that it held",
                path.display()
            ));
            // The thread holds the deleted file open.
            self.syncer = None;
        }
        let traces = self
            .sandbox
            .iter_mut()
            .flat_map(|cell| cell.pending_traces.extract_if(.., |t| !t.is_not_restored()));
        restored.extend(traces.map(|trace| trace.to_string()));
        // `stuck` reports the error, if there is one.
        let _ = self.check_links();
        restored.append(&mut self.link_warnings);
        if self.unresolved_traces().next().is_some() {
            return Ok(restored);
        }
        // The next commit must not include run-time files.
        let note = self.project.lock_path();
        if !self.project.is_prepared() || !self.lock.is_noted_at(&note) {
            self.project.prepare()?;
            self.lock.restore(&note, &self.holder)?;
        }
        Ok(restored)
    }

    fn stuck(&self) -> Option<String> {
        let words: Vec<String> = self.unresolved_traces().map(SandboxTrace::to_string).collect();
        let stuck = (!words.is_empty()).then(|| words.join("\n"));
        let stuck = stuck.or_else(|| self.link_error.clone());
        let gone = self.project_gone_message().or_else(|| self.repository_gone_message());
        stuck.or(gone)
    }

    fn abandoned(&mut self, lock: &Path) -> LockStatus {
        // Processes in a Docker sandbox are not visible here.
        let is_elsewhere = |cell: &ActiveSandbox| cell.sandbox.backend() == Backend::Docker;
        if self.sandbox.as_ref().is_some_and(is_elsewhere) {
            return LockStatus::InUse;
        }
        lock_files::lock_status(lock, self.project.root())
    }

    fn replay(&mut self, take: &mut dyn FnMut(&Entry<'static>)) {
        if let Ok(journal) = self.files.read_journal() {
            journal::entries(journal).for_each(|entry| take(&entry));
        }
    }

    fn run_state(&mut self) -> RunState {
        let journal = self.files.read_journal().map(journal::entries);
        journal.map_or_else(|_| RunState::default(), RunState::read)
    }

    fn look_up(&mut self, facts: &mut Summary) {
        if self.check_links().is_err() {
            return;
        }
        let root = self.project.root();
        let git =
            OutsideCommand::find(OsStr::new("git"), &hardening::git_env(GitPurpose::ReadOnly));
        let Ok(git) = git else { return };
        let filters_off = self.filters_off.clone();
        commit_lookup::annotate_commits(facts, root, &mut |words| {
            let args = hardening::git_args(GitPurpose::ReadOnly, &filters_off, words);
            let system = &mut self.system;
            let output =
                system.run_to_end(git.program(), &args, root, git.env(), COMMIT_LOOKUP_TIMEOUT);
            let output = output.ok().filter(|output| output.exit.success())?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        });
    }

    fn read_only_git_args(&self) -> Vec<OsString> {
        self.filters_off.clone()
    }

    fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        // Nothing happens between the end of one agent and the start of the next.
        if self.is_repository_checked || self.unresolved_traces().next().is_some() {
            return None;
        }
        self.is_repository_checked = thorough;
        self.repository.as_mut().and_then(|watch| watch.new_commits(thorough))
    }

    fn replaced(&mut self) -> Option<PathBuf> {
        self.repository
            .as_ref()
            .and_then(head_log::HeadLog::replaced_repository)
            .map(Path::to_owned)
    }

    fn branch(&mut self) -> Option<String> {
        branch::current_branch(self.project.root())
    }

    fn uncommitted(&mut self) -> Uncommitted {
        let root = self.project.root().to_owned();
        if !git::is_in_repository(&root) || self.check_links().is_err() {
            return Uncommitted::default();
        }
        let files = self.status_files(&root, &["."]);
        let modules = self.git_query(&root, &["ls-files", "--stage", "-z"]).unwrap_or_default();
        let mut submodules = git::parse_submodules(&modules, &root);
        submodules.truncate(MAX_SUBMODULES);
        submodules.retain(|path| !self.status_files(&root.join(path), &[]).is_empty());
        Uncommitted { files, submodules }
    }

    fn no_branch(&mut self) -> Option<DetachedReason> {
        branch::detached_reason(self.project.root()).filter(|_| self.stuck().is_none())
    }

    fn lost(&mut self) -> Option<String> {
        let lost = self.control.as_mut().and_then(|control| control.obstacle());
        lost.or_else(|| {
            self.check_project_in_place().err().and_then(|_| self.project_gone_message())
        })
    }

    fn requests(&mut self) -> Vec<ControlRequest> {
        self.control.as_mut().map(|control| control.take()).unwrap_or_default()
    }

    fn sync(&mut self) {
        if self.syncer.is_none() {
            // Without a thread the journal is as safe as any other file.
            self.syncer = self.start_syncer().ok();
        }
        if let Some(syncer) = &self.syncer {
            // A pending fsync covers later requests.
            let _ = syncer.try_send(());
        }
    }
}

/// A larger file is not a prompt.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

fn terminal_size() -> TerminalSize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => TerminalSize::DEFAULT,
    }
}
