//! Everything outside the engine that the driver touches.

mod control;
mod files;
mod journal;
mod processes;
mod repository;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use ralph_engine::machine::Now;
use ralph_events::run_state::RunState;
use ralph_git::branch::DetachedReason;
use ralph_git::head_log::{self, NewCommits};
use ralph_git::link_guard::{self, LinkGuard};
use ralph_git::lock_files::LockStatus;
use ralph_process::{ChildId, FileWatcher, Launch, Occurrence, System, TerminalSize};
use ralph_report::summary::Summary;
use ralph_sandbox::proxy::Refusal;
use ralph_sandbox::{Sandbox, SandboxTrace};
use ralph_store::dir_identity::{DirChange, DirHandle};
use ralph_store::guardrail_logs::GuardrailLogs;
use ralph_store::lock::Lock;
use ralph_store::log_files::BoundedLog;
use ralph_store::project::Project;
use ralph_store::question_spool::QuestionSpool;
use ralph_store::requests::Request;
use ralph_store::run_files::RunFiles;

/// Changes that are in no commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Paths relative to the project.
    pub files: Vec<String>,
    /// Submodules with such changes.
    pub submodules: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// Also if it cannot be looked up.
    Missing,
    File,
    /// A directory or a special file.
    Other,
}

impl PathKind {
    pub fn exists(self) -> bool {
        self != PathKind::Missing
    }
}

/// A source of requests. A byte in the world's control pipe announces one.
pub trait ControlSource {
    /// Each with its number.
    fn take(&mut self) -> Vec<(u64, Request)>;
    /// The requests taken so far are in the journal.
    fn acknowledge(&mut self);
    /// Returns why no requests can arrive any more.
    fn obstacle(&mut self) -> Option<String>;
}

/// A step of the run that something may stand in the way of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStep {
    /// Start an agent. Not possible if no requests can arrive any more, or the project is gone.
    StartAgent,
    /// Read or execute anything in the project. Not possible if a planted file cannot be removed, or the project
    /// or its repository is known to be gone.
    UseProject,
}

/// Decides where a program runs, and what its standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Agent,
    /// An agent on a pseudo-terminal of our size. Fed bytes are typed there.
    InteractiveAgent,
    /// A guardrail: it executes files that the agent wrote. Without a sandbox it uses the user's `PATH`.
    Check,
    /// git or another SCM: inside the sandbox if guardrails are, otherwise found in trusted directories only.
    Scm,
    /// The user's notify command: outside the sandbox, found in trusted directories only.
    Notify,
    /// A filter of the agent's output: as `Notify`, and its standard input is fed.
    Filter,
}

/// A child that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    pub child: ChildId,
    pub pid: u32,
    /// The size of its terminal, for [`Part::InteractiveAgent`].
    pub terminal: Option<TerminalSize>,
}

impl Started {
    pub fn new((child, pid): (ChildId, u32)) -> Self {
        Started { child, pid, terminal: None }
    }
}

/// Children, their input and output, the clock and signals.
pub trait Processes {
    fn now(&self) -> Now;
    /// Starts a child, inside the sandbox if this part belongs there.
    fn start(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<Started>;
    /// Writes to the child's input; returns whether there was room.
    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool;
    /// Writes a line to the child and waits for its answer. Everything else waits meanwhile.
    ///
    /// # Errors No answer in time, or the child has exited.
    fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>>;
    /// Closes the child's standard input.
    fn close_input(&mut self, child: ChildId);
    /// Ends a child and everything it started, without a grace period if `at_once`. `wait` still reports its end.
    fn end(&mut self, child: ChildId, at_once: bool);
    /// Adapts the child's terminal to our size and returns it.
    fn resize(&mut self, child: ChildId) -> TerminalSize;
    /// Returns whether the child reads single keys, as full-screen programs do once they are ready.
    fn reads_keys(&mut self, child: ChildId) -> bool;
    /// Frees resources: nothing will be started for a while.
    fn rest(&mut self);
    /// Waits for the next occurrence, at most until `until_mono_ms`.
    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence;
}

/// Files outside the journal: prompts, task lists, logs, and their fingerprints.
pub trait Files {
    /// The kind of a path's target: links are followed.
    fn kind(&mut self, path: &Path) -> PathKind;
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads a task list, which may be written at the same time.
    fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Writes a file atomically.
    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Removes a file; a missing file is no error.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Starts a new log.
    fn open_log(&mut self, path: &Path) -> io::Result<()>;
    /// Appends to the log that was opened last.
    fn append_log(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// A fingerprint of a file, and the bytes read for it (at most `budget`).
    fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64);
    /// A fingerprint of a directory; `None` if it has more than `most` files.
    fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64>;
}

/// The run's journal and the agent's raw output.
pub trait Journal {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Appends the agent's bytes, unchanged.
    fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Frees reserved disk space for the last events of a run; returns whether there was any.
    fn make_room(&mut self) -> bool;
    /// Schedules an fsync of the journal.
    fn sync(&mut self);
    /// The state of the run, read from the journal.
    fn run_state(&mut self) -> RunState;
}

/// Read-only facts about the repository.
pub trait Repository {
    /// Commits since the last call; see [`head_log::HeadLog::new_commits`].
    fn new_commits(&mut self, thorough: bool) -> Option<NewCommits>;
    /// Returns whether the owner of a git lock is gone.
    fn abandoned(&mut self, lock: &Path) -> LockStatus;
    /// The repository that has replaced the original one.
    fn replaced(&mut self) -> Option<PathBuf>;
    fn branch(&mut self) -> Option<String>;
    /// Uncommitted work; empty if git does not answer.
    fn uncommitted(&mut self) -> Uncommitted;
    /// Why new commits are on no branch, if so.
    fn no_branch(&mut self) -> Option<DetachedReason>;
    /// git settings that switch filter drivers off.
    fn read_only_git_args(&mut self) -> Vec<OsString>;
    /// Adds what git knows about the commits.
    fn look_up(&mut self, facts: &mut Summary);
}

/// Requests to the run, and reasons why it cannot continue.
pub trait Control {
    /// Requests since the last call, each with its number.
    fn requests(&mut self) -> Vec<(u64, Request)>;
    /// Questions that `ralph ask` left since the last call.
    fn questions(&mut self) -> Vec<String>;
    /// The requests taken so far are in the journal; until then they survive a crash.
    fn acknowledge_requests(&mut self);
    /// Hosts refused since the last call.
    fn refusals(&mut self) -> Vec<Refusal>;
    /// Restores ralph's own files and returns messages about it.
    ///
    /// # Errors The journal is lost.
    fn cleanup(&mut self) -> io::Result<Vec<String>>;
    /// Returns why the run cannot take this step, and what to do about it.
    fn obstacle(&mut self, next: RunStep) -> Option<String>;
}

/// Everything outside the engine.
pub trait World: Processes + Files + Journal + Repository + Control {}

impl<W: Processes + Files + Journal + Repository + Control> World for W {}

/// The real world.
#[expect(missing_debug_implementations, reason = "who asks is a trait object")]
pub struct RealWorld {
    system: System,
    files: RunFiles,
    log: Option<BoundedLog>,
    logs: Option<GuardrailLogs>,
    max_log: u64,
    syncer: Option<SyncSender<()>>,
    project: Project,
    /// The project directory at the start; the lock keeps it open.
    project_dir: DirHandle,
    project_change: DirChange,
    lock: Lock,
    control: Option<Box<dyn ControlSource>>,
    questions: Option<QuestionSource>,
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

/// Where `ralph ask` leaves questions.
#[derive(Debug)]
struct QuestionSource {
    spool: QuestionSpool,
    /// `None` if the system has no more watches; then questions are read after each agent.
    watcher: Option<FileWatcher>,
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
    /// `lock` is the project's. `max_log` limits each log, and all guardrail logs together.
    pub fn new(
        system: System,
        files: RunFiles,
        project: Project,
        lock: Lock,
        max_log: u64,
    ) -> Self {
        RealWorld {
            max_log,
            system,
            files,
            log: None,
            logs: None,
            syncer: None,
            project_dir: DirHandle::new(project.root()),
            project_change: DirChange::Unchanged,
            project,
            lock,
            sandbox: None,
            control: None,
            questions: None,
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

    /// Ends what is still running and releases the project.
    ///
    /// # Errors The lock file cannot be cleared.
    pub fn close(self) -> io::Result<()> {
        let RealWorld {
            system, files, lock, sandbox: cell, links, link_warnings, questions, ..
        } = self;
        if let Some(source) = questions {
            source.spool.remove();
        }
        drop(system);
        drop(cell);
        link_guard::queue_warnings(link_warnings);
        // After an error the record still makes the next ralph check.
        link_guard::queue_warnings(match links.map(LinkGuard::finish) {
            Some(Ok(warnings)) => warnings,
            Some(Err(err)) => vec![format!("cannot check the git directories: {err}")],
            None => Vec::new(),
        });
        // The next write would have reported a failed disk.
        let _ = files.sync();
        lock.release(None)
    }
}
