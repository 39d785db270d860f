//! Everything outside of the engine that the driver touches, behind one narrow interface.

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

/// How long git may take to tell what became of commits.
const COMMIT_LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of submodules that are asked for uncommitted work.
const MAX_SUBMODULES: usize = 20;

/// Work that is in no commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Files below the project's directory.
    pub files: Vec<String>,
    /// Submodules that have some.
    pub submodules: Vec<String>,
}

/// A file that a run adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    Journal,
    /// The agent's bytes as they came.
    Raw,
    /// The log that was opened last.
    Log,
}

/// What others may ask of a run that goes on without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRequest {
    Pause,
    /// Go on, with another limit if one is given.
    Resume {
        max_iterations: Option<u32>,
    },
    /// Come to an end, the agent with it.
    End,
}

/// Where requests come from: whoever asked has knocked at the world's door.
pub trait ControlSource {
    fn take(&mut self) -> Vec<ControlRequest>;
    /// Why nobody can ask for anything any more, if that is so.
    fn obstacle(&mut self) -> Option<String>;
}

/// What is started, as far as that decides where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Agent,
    /// A guardrail: it executes what the agent wrote. Without a sandbox it has the user's `PATH`.
    Check,
    /// git or another SCM, in the sandbox if guardrails are. Outside, it is found in trusted directories only.
    Scm,
}

/// Processes, files, clock and signals, as the driver sees them.
pub trait World {
    fn now(&self) -> Now;
    /// Starts a child outside the sandbox and tells its process id. Its program is found in trusted directories only.
    fn start(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)>;
    /// The same, inside the sandbox if there is one for this.
    fn start_inside(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<(ChildId, u32)> {
        let _ = part;
        self.start(launch)
    }
    /// The hosts that were refused since this was last asked.
    fn refusals(&mut self) -> Vec<Refusal> {
        Vec::new()
    }
    /// Why no further agent may be started, if that is so: nobody could ask this run for anything any more, though
    /// somebody was to, or the project that it works in is gone.
    fn lost(&mut self) -> Option<String> {
        None
    }
    /// Nothing will be started for a while.
    fn rest(&mut self) {}
    /// Starts an agent on a terminal of its own, of the size of ours, inside the sandbox if there is one;
    /// tells that size, too. What it is fed is typed there.
    fn start_on_terminal(
        &mut self,
        launch: &Launch<'_>,
    ) -> io::Result<(ChildId, u32, TerminalSize)> {
        let _ = launch;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives the terminal of such a child the size that ours has now, and tells it.
    fn resize(&mut self, child: ChildId) -> TerminalSize {
        let _ = child;
        TerminalSize::DEFAULT
    }
    /// Whether such a child reads every key at once, as programs with a screen do once they are ready.
    fn reads_keys(&mut self, child: ChildId) -> bool {
        let _ = child;
        true
    }
    /// Starts a child that is fed its standard input.
    fn start_fed(&mut self, launch: &Launch<'_>) -> io::Result<(ChildId, u32)>;
    /// Gives such a child something to read; says whether there was room for it.
    fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool;
    /// Gives such a child a line to read and waits for the line that it answers with, while everything
    /// else waits.
    ///
    /// # Errors
    /// There is no answer: within this time, or because the child is gone.
    fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>> {
        let _ = (child, question, patience_ms);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Such a child gets nothing more to read.
    fn close_input(&mut self, child: ChildId);
    /// Ends a child with everything that it started; with `at_once` nobody is asked first. Its end is
    /// still told by `wait`.
    fn end(&mut self, child: ChildId, at_once: bool);
    /// Waits for the next thing to happen, at most until `until_mono_ms`.
    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence;
    /// Whether there is anything at this path.
    fn exists(&mut self, path: &Path) -> bool;
    /// Whether what is there is a file.
    fn is_file(&mut self, path: &Path) -> bool {
        self.exists(path)
    }
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    /// Reads a task list, which somebody may be writing.
    fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    /// What a file looks like, as a number, and how much had to be read for that, `budget` at most.
    fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64);
    /// What a directory looks like; `None` if there are more than `most` files in it.
    fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64>;
    /// What the repository looks like that a directory is in, beyond the work tree; `None` if nobody can tell.
    fn refs_fingerprint(&mut self, directory: &Path) -> Option<u64> {
        let _ = directory;
        Some(0)
    }
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Writes a file all or nothing.
    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Whether a lock of git's was left by one that is gone.
    fn abandoned(&mut self, lock: &Path) -> LockStatus {
        let _ = lock;
        LockStatus::InUse
    }
    /// Begins a new log.
    fn open_log(&mut self, path: &Path) -> io::Result<()>;
    fn append(&mut self, record: Record, bytes: &[u8]) -> io::Result<()>;
    /// Gives up room that was set aside on a disk that is full, for the last words of the run; says whether there
    /// was any.
    fn make_room(&mut self) -> bool {
        false
    }
    /// Puts back what is ours and was removed meanwhile, and tells of it in words.
    ///
    /// # Errors
    /// The journal is lost for good.
    fn cleanup(&mut self) -> io::Result<Vec<String>>;
    /// Why the run cannot go on as things were left, in words, with what to do about it: something that would be
    /// executed outside and cannot be taken away, a project or a repository that is gone. Nothing may be read or
    /// executed where the run works any more.
    fn stuck(&self) -> Option<String> {
        None
    }
    /// All that the journal holds, from its beginning.
    fn replay(&mut self, _take: &mut dyn FnMut(&Entry<'static>)) {}
    /// Reads the journal.
    fn run_state(&mut self) -> RunState {
        RunState::default()
    }
    /// Adds what git knows of its commits by now.
    fn look_up(&mut self, _facts: &mut Summary) {}
    /// The settings that switch filter drivers off when git looks at the work tree.
    fn read_only_git_args(&self) -> Vec<OsString> {
        Vec::new()
    }
    /// What was committed where the run works since this was last asked; see [`head_log::Watch::look`].
    fn new_commits(&mut self, thorough: bool) -> Option<NewCommits> {
        let _ = thorough;
        None
    }
    /// The repository that is in the place of the one that was there at the beginning.
    fn replaced(&mut self) -> Option<PathBuf> {
        None
    }
    /// The branch that is checked out.
    fn branch(&mut self) -> Option<String> {
        None
    }
    /// The work that is in no commit. Empty where git does not answer.
    fn uncommitted(&mut self) -> Uncommitted {
        Uncommitted::default()
    }
    /// Why what is committed where the run works is on no branch, if it is on none.
    fn no_branch(&mut self) -> Option<DetachedReason> {
        None
    }
    /// What others have asked of this run since it was last looked at.
    fn requests(&mut self) -> Vec<ControlRequest>;
    /// Sees to it that the journal is safe from a power cut, soon.
    fn sync(&mut self);
}

/// The world as it is.
#[expect(missing_debug_implementations, reason = "who asks is a trait object")]
pub struct RealWorld {
    system: System,
    files: RunFiles,
    log: Option<BoundedLog>,
    /// The logs that there are.
    logs: Option<GuardrailLogs>,
    max_log: u64,
    syncer: Option<SyncSender<()>>,
    /// The journal was put back, and nobody has been told yet.
    was_put_back: bool,
    project: Project,
    /// The project as it was when the run began. The lock holds it open.
    project_dir: DirHandle,
    /// What became of it, once that is known.
    project_change: DirChange,
    lock: Lock,
    holder: Holder,
    control: Option<Box<dyn ControlSource>>,
    sandbox: Option<ActiveSandbox>,
    repository: Option<head_log::HeadLog>,
    /// The repository was looked at thoroughly since something last happened.
    is_repository_checked: bool,
    /// The settings that switch filter drivers off, as the configuration was at the start.
    filters_off: Vec<OsString>,
    links: Option<LinkGuard>,
    /// The git directories were checked for links since something last happened.
    links_checked: bool,
    /// Warnings about links that were not reported yet.
    link_warnings: Vec<String>,
    /// Why the last check for links failed.
    link_error: Option<String>,
    /// The warning about hooks that are not run was given.
    hooks_reported: bool,
}

/// The sandbox of a run.
#[derive(Debug)]
struct ActiveSandbox {
    sandbox: Box<dyn Sandbox>,
    /// Guardrails and SCM tasks are inside as well.
    checks: bool,
    /// Who is inside.
    child: Option<ChildId>,
    /// What was put aside and has not been told of yet, and what could not be.
    pending_traces: Vec<SandboxTrace>,
}

impl RealWorld {
    /// `lock` is the project's, held by `me`.
    /// No log becomes larger than `max_log`, nor do those of all guardrails together.
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

    /// Heeds what is asked of this run by whoever knocks at the `door`.
    ///
    /// # Errors
    /// The door cannot be listened at.
    pub fn set_control(
        &mut self,
        control: Box<dyn ControlSource>,
        door: OwnedFd,
    ) -> io::Result<()> {
        self.system.set_control_pipe(door)?;
        self.control = Some(control);
        Ok(())
    }

    /// From now on what is typed into our terminal is told.
    ///
    /// # Errors
    /// There is no standard input.
    pub fn watch_keys(&mut self) -> io::Result<()> {
        self.system.set_key_input(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        Ok(())
    }

    /// From now on agents are started inside of this; with `checks`, guardrails and SCM tasks too.
    pub fn set_sandbox(&mut self, mut sandbox: Box<dyn Sandbox>, checks: bool) {
        self.system.set_wake_pipe(sandbox.take_wake_pipe());
        self.sandbox =
            Some(ActiveSandbox { sandbox, checks, child: None, pending_traces: Vec::new() });
    }

    /// From now on new links in the git directories are moved aside after each step.
    pub fn set_link_guard(&mut self, guard: LinkGuard) {
        self.links = Some(guard);
    }

    /// Moves new links in the git directories aside, unless nothing has happened since that was last done.
    ///
    /// # Errors
    /// As [`LinkGuard::check`].
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

    /// The arguments of an SCM task outside the sandbox. Hooks are switched off for git if agents in a sandbox can
    /// write them.
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

    /// From now on what is committed is told by [`World::moved`]. Tells where the repository stands, with
    /// what was committed since then.
    pub fn watch_repository(&mut self, since: LogPosition<'_>) -> Option<NewCommits> {
        let (watch, moved) = head_log::HeadLog::open(self.project.root(), since);
        self.repository = Some(watch);
        if git::is_in_repository(self.project.root()) {
            self.filters_off = self.disabled_filters();
        }
        moved
    }

    /// The settings that switch filter drivers off. None if git does not answer: then it answers no look, either.
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

    /// Asks git for something and waits for the answer. Nothing that a repository names is executed.
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

    /// Where this run is kept.
    pub fn run_dir(&self) -> &RunDir {
        &self.files.dir
    }

    /// What is in its journal already.
    pub fn journal_size(&self) -> u64 {
        self.files.journal_size()
    }

    /// Ends what is still running and gives the project back.
    ///
    /// # Errors
    /// The note in the lock's file cannot be wiped.
    pub fn close(self) -> io::Result<()> {
        let RealWorld { system, files, lock, sandbox: cell, links, link_warnings, .. } = self;
        drop(system);
        drop(cell);
        link_guard::queue_warnings(link_warnings);
        // After an error the record still tells the next ralph to check.
        link_guard::queue_warnings(match links.map(LinkGuard::finish) {
            Some(Ok(warnings)) => warnings,
            Some(Err(err)) => vec![format!("the git directories could not be checked: {err}")],
            None => Vec::new(),
        });
        // A journal that nobody can keep is told of by what the run said at its end.
        let _ = files.close();
        lock.release(None)
    }

    /// Puts the journal back that an agent has removed while it works: nobody knows how long it goes on, or whether
    /// this process lives until then. Git must not find it, and the next run must know of this one.
    fn put_back(&mut self) -> io::Result<()> {
        self.check_project_in_place()?;
        self.project.prepare_beside_agent()?;
        let root = self.project.root();
        if self.files.put_back_beside_agent(root)? {
            self.was_put_back = true;
            // It holds on to the file that is gone.
            self.syncer = None;
        }
        self.lock.restore_beside_agent(root, &self.project.lock_path(), &self.holder)
    }

    /// Says no to writing in a project that is not where the run began: nobody's work is there, and nothing of ours
    /// must look like it.
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

    /// What cannot be taken away of what an agent has left in a sandbox.
    fn unresolved_traces(&self) -> impl Iterator<Item = &SandboxTrace> {
        self.sandbox
            .iter()
            .flat_map(|cell| &cell.pending_traces)
            .filter(|trace| trace.is_not_restored())
    }

    /// That the project is gone, where the journal is kept, and what to do before the run goes on.
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

    /// That the repository is gone, and what to do before the run goes on.
    fn repository_gone_message(&self) -> Option<String> {
        let lost = self.repository.as_ref().and_then(head_log::HeadLog::missing_repository)?;
        Some(format!(
            "the repository is gone: there was {} when the run began; what the agent did is in the files, its \
             history is not: put it back, or make a new one (git init)",
            lost.display()
        ))
    }

    /// A disk takes milliseconds to sync, an instant agent less than one to run. So another thread
    /// waits for the disk; it sleeps until there is something to do.
    fn start_syncer(&self) -> io::Result<SyncSender<()>> {
        let journal = self.files.journal_handle()?;
        let (sender, receiver) = sync_channel::<()>(1);
        std::thread::Builder::new().name("sync".into()).stack_size(64 * 1024).spawn(move || {
            while receiver.recv().is_ok() {
                // The next write tells of a disk that has failed.
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
                // The shell is ours, what it runs is the user's.
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
            // What the agent could not read inside must not come to it by way of us.
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
        // An agent may have left a link there, to a file that is none of its business.
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
                    // What does not succeed now is tried again when the agent has ended.
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
        // Asked whenever a child has ended, and mostly everything is there: then nothing is written, and it does not
        // matter where the way to it leads. A journal that is in its place is in the project that was there.
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
            // It holds on to the file that is gone.
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
        // The next commit must not find run-time files that are not ignored any more.
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
        // In another machine nobody sees who is at work.
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
        // Between the end of an agent and the start of the next one nothing has happened that there is to look for.
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
            // One that is under way is followed by one more; further ones add nothing.
            let _ = syncer.try_send(());
        }
    }
}

/// What is larger is no prompt, but something that an agent has put in its place.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// The size of the terminal that this process shows itself on.
fn terminal_size() -> TerminalSize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => TerminalSize::DEFAULT,
    }
}
