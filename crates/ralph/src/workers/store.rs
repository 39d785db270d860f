//! What is kept of workers on disk.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::worktree::Worktree;
use ralph_engine::rules::Budget;
use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_report::worker_lines::{WorkerState, WorkerTracker, is_valid_name};
use ralph_store::home::ralph_home;
use ralph_store::journal_copies;
use ralph_store::lock;
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};
use ralph_store::safe_fs::is_same_file;
use ralph_store::save::{save_privately, save_without_sync};

/// How long a command waits for another one that is busy with the same worker.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a loop waits for those who only look whether there is one.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// More than a state, the one that its run began with, and the beginning of a log take.
const RESERVE_BYTES: usize = 32 * 1024;

/// A state without these tells nothing.
const REQUIRED_BYTES: [&str; 3] = ["status", "max_iterations", "current_iteration"];

/// All workers of a user.
#[derive(Debug, Clone)]
pub struct Workers {
    root: PathBuf,
}

/// The directory of one worker, which may not be there.
#[derive(Debug, Clone)]
pub struct Worker {
    pub name: String,
    pub path: PathBuf,
}

/// What a `state.json` tells.
#[derive(Debug, Clone)]
pub enum StoredState {
    State(Box<WorkerState>),
    Missing,
    /// It cannot be understood, and why.
    Invalid(String),
}

/// What a loop needs to start, and to start again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// The command line, from the program's name on.
    pub args: Vec<String>,
    /// Where it was given.
    pub directory: PathBuf,
    /// The work tree that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// What it may use up in all, where that is other than it was spawned with.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
}

impl Workers {
    /// # Errors
    /// The user has no home.
    pub fn open_user_dir() -> Result<Workers, Error> {
        match ralph_home(|name| std::env::var_os(name)) {
            Some(home) => Ok(Workers { root: home.join("workers") }),
            None => Err(Error::failed("there is no place to keep workers: HOME is not set")
                .hint("set RALPH_HOME to a directory by its whole path")),
        }
    }

    pub fn at(root: PathBuf) -> Workers {
        Workers { root }
    }

    /// The worker of this name, whether or not there is one.
    ///
    /// # Errors
    /// No worker can be called this.
    pub fn by_name(&self, name: &str) -> Result<Worker, Error> {
        if is_valid_name(name) {
            return Ok(Worker { name: name.to_owned(), path: self.root.join(name) });
        }
        Err(Error::failed(format!("a worker cannot be called {name:?}"))
            .hint("letters, digits, - and _, at most 64 of them, and a letter or a digit first"))
    }

    /// The worker of this name, which must be there.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<Worker, Error> {
        let worker = self.by_name(name)?;
        if worker.path.is_dir() {
            return Ok(worker);
        }
        Err(Error::failed(format!("worker '{name}' not found")).hint("`ralph ls` lists them"))
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub fn all(&self) -> Result<Vec<Worker>, Error> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|err| store_error(&self.root, &err))?,
        };
        let mut workers: Vec<Worker> = entries
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| self.by_name(entry.file_name().to_str()?).ok())
            .collect();
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(workers)
    }

    /// The worker whose run begins like this, and where it is; nothing if there is none, or more than one.
    pub fn find_by_run(&self, prefix: &str) -> Option<(Worker, RunDir)> {
        let runs = self.all().ok()?.into_iter().filter_map(|worker| {
            let (_, run) = worker.run()?;
            Some((worker, run))
        });
        let mut found = runs.filter(|(_, run)| run.id.starts_with(prefix));
        match (found.next(), found.next()) {
            (Some(it), None) => Some(it),
            _ => None,
        }
    }

    /// The workers that another command holds at the moment. A worker that is being spawned is one of them before it
    /// has a directory.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub fn locked_workers(&self) -> Result<Vec<Worker>, Error> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|err| store_error(&self.root, &err))?,
        };
        let names =
            entries.flatten().filter(|entry| is_locked(&entry.path())).filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                self.by_name(name.strip_prefix('.')?.strip_suffix(".lock")?).ok()
            });
        Ok(names.collect())
    }

    fn kill_all_path(&self) -> PathBuf {
        self.root.join(".kill-all")
    }

    /// Records that all workers are to be killed: a command that is about to start one, and cannot be seen yet,
    /// finds this and does not.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record_kill_all(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.root)?;
        save_without_sync(
            &self.kill_all_path(),
            nanoseconds(SystemTime::now()).to_string().as_bytes(),
        )
    }

    /// Fails if all workers were to be killed after `since`, which is when a command began that starts one. To be
    /// asked while the worker is held.
    ///
    /// # Errors
    /// They were.
    pub fn refuse_if_killed(&self, since: SystemTime) -> Result<(), Error> {
        let text = std::fs::read_to_string(self.kill_all_path()).unwrap_or_default();
        if text.trim().parse::<u128>().is_ok_and(|killed| killed >= nanoseconds(since)) {
            return Err(Error::failed("not started: `ralph kill --all` was called meanwhile"));
        }
        Ok(())
    }

    /// Keeps other commands from changing anything about a worker, until the answer is dropped. Its
    /// loop is not concerned.
    ///
    /// # Errors
    /// Another command is busy with it, or nothing can be written.
    pub fn lock(&self, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_for(LOCK_TIMEOUT, worker)
    }

    /// The same, with more or less patience.
    ///
    /// # Errors
    /// As above.
    pub fn lock_for(&self, patience: Duration, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_within(patience, worker)?.ok_or_else(|| {
            Error::failed(format!("another command is busy with worker '{}'", worker.name))
                .hint("wait for it to end")
        })
    }

    /// `None` if another command is busy with it for longer than that.
    fn lock_within(
        &self,
        patience: Duration,
        worker: &Worker,
    ) -> Result<Option<WorkerLock>, Error> {
        private_files::create_dir_all(&self.root).map_err(|err| store_error(&self.root, &err))?;
        let path = self.root.join(format!(".{}.lock", worker.name));
        loop {
            let opened = private_files::private_open_options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path);
            opened.map_err(|err| store_error(&path, &err))?;
            match lock::lock_within(&path, patience) {
                // Whoever held it before may have removed it.
                Ok(file) if is_same_file(&file, &path) => {
                    let directory = worker.path.clone();
                    return Ok(Some(WorkerLock { path, directory, _file: file }));
                }
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Ok(None),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// The first worker of `worker-1` and so on that nobody has, held as by [`Workers::hold`].
    ///
    /// # Errors
    /// Nothing can be written.
    pub fn lock_new(&self) -> Result<(Worker, WorkerLock), Error> {
        let mut number = 1_u32;
        loop {
            let worker = self.by_name(&format!("worker-{number}"))?;
            if !worker.path.exists()
                && let Some(held) = self.lock_within(Duration::ZERO, &worker)?
                // Whoever was busy with it may just have made it.
                && !worker.path.exists()
            {
                return Ok((worker, held));
            }
            number += 1;
        }
    }
}

/// Nobody else changes anything about a worker while this is there. Where there is no worker in the end, nothing
/// is left of it.
#[derive(Debug)]
pub struct WorkerLock {
    path: PathBuf,
    directory: PathBuf,
    _file: File,
}

impl Drop for WorkerLock {
    fn drop(&mut self) {
        if !self.directory.exists() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Worker {
    pub fn state_path(&self) -> PathBuf {
        self.path.join("state.json")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("iterations.log")
    }

    fn launch_path(&self) -> PathBuf {
        self.path.join("launch.json")
    }

    fn environment_path(&self) -> PathBuf {
        self.path.join("environment.json")
    }

    fn failure_path(&self) -> PathBuf {
        self.path.join("failure.txt")
    }

    fn reserve_path(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// Makes its directory, for this user only.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.path)
    }

    /// Moves all that is kept of it out of the way, and says where to.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn archive(&self) -> io::Result<Option<PathBuf>> {
        let aside = self.path.with_file_name(format!(".{}.before", self.name));
        match std::fs::remove_dir_all(&aside) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        match std::fs::rename(&self.path, &aside) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            moved => moved.map(|()| Some(aside)),
        }
    }

    /// Removes all that is kept of it.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Which directory it is that is there now: one that was removed and made again is another one.
    pub fn directory(&self) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_dir)?;
        Some((meta.dev(), meta.ino()))
    }

    /// What somebody wrote into its state for a limit that is none.
    pub fn invalid_limit(&self) -> Option<String> {
        let text = std::fs::read(self.state_path()).ok()?;
        let state: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).ok()?;
        let limit = state.get("max_iterations")?;
        let is_one = limit.as_u64().is_some_and(|n| (1..=u64::from(u32::MAX)).contains(&n));
        (!is_one).then(|| limit.to_string())
    }

    /// Whether its loop is alive. A file system without locks tells nothing, and then it is taken for
    /// gone.
    pub fn is_alive(&self) -> bool {
        is_locked(&self.path)
    }

    /// Makes this process the worker's loop, or whoever else writes its state, until the answer is
    /// dropped.
    ///
    /// # Errors
    /// Another one is.
    pub fn claim(&self) -> io::Result<File> {
        lock::lock_within(&self.path, RETRY_DELAY)
    }

    /// What is known of it. `state.json` tells, except that a loop may be gone without having saved its last state,
    /// for instance because the disk was full: if the journal of its run has an end, that counts.
    pub fn load_state(&self) -> StoredState {
        match self.saved() {
            StoredState::State(state) if !state.status.has_ended() && !self.is_alive() => {
                StoredState::State(self.end_from_journal(&state).map_or(state, Box::new))
            }
            known => known,
        }
    }

    /// The final state that the journal tells, if its run has ended.
    fn end_from_journal(&self, saved: &WorkerState) -> Option<WorkerState> {
        let beginning =
            self.load_start_state().filter(|beginning| beginning.run_id == saved.run_id)?;
        if !runs::has_ended(&journal_of(&beginning)?) {
            return None;
        }
        let mut state = self.state_from_journal().filter(|state| state.status.has_ended())?;
        // The limit may be edited by hand.
        state.max_iterations = saved.max_iterations;
        Some(state)
    }

    /// What `state.json` holds.
    fn saved(&self) -> StoredState {
        let text = match std::fs::read(self.state_path()) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return StoredState::Missing,
            Err(err) => return StoredState::Invalid(err.to_string()),
            Ok(text) => text,
        };
        // An object and nothing else: serde would take a list for a struct, too.
        let object = serde_json::from_slice::<serde_json::Map<_, _>>(&text);
        // What is missing here would be taken for something that it is not.
        if let Ok(object) = &object
            && let Some(key) = REQUIRED_BYTES.iter().find(|key| !object.contains_key(**key))
        {
            return StoredState::Invalid(format!("it has no {key:?}"));
        }
        let state = object.and_then(|object| serde_json::from_value::<WorkerState>(object.into()));
        match state {
            Ok(mut state) => {
                // The directory's name is what counts everywhere else.
                state.worker_name.clone_from(&self.name);
                StoredState::State(Box::new(state))
            }
            Err(_) if text.trim_ascii().is_empty() => {
                StoredState::Invalid("it is empty".to_owned())
            }
            Err(err) => StoredState::Invalid(err.to_string()),
        }
    }

    /// Its state.
    ///
    /// # Errors
    /// It has none, or one that cannot be understood.
    pub fn state(&self) -> Result<WorkerState, Error> {
        let path = self.state_path();
        match self.load_state() {
            StoredState::State(state) => Ok(*state),
            StoredState::Missing => {
                Err(Error::failed(format!("worker '{}' has no state", self.name))
                    .hint(format!("ralph rm {} removes what is left of it", self.name)))
            }
            StoredState::Invalid(why) => {
                let name = &self.name;
                Err(Error::failed(format!("cannot understand {}: {why}", path.display()))
                    .hint(format!("ralph resume {name} sets it aside and goes by the journal"))
                    .hint(format!("ralph kill {name} does the same, and ends it")))
            }
        }
    }

    /// Where it works, and its run there; nothing if it has none yet, or nobody can tell.
    pub fn run(&self) -> Option<(Project, RunDir)> {
        let StoredState::State(state) = self.load_state() else { return None };
        let (project, id) = (Project::new(state.directory.into()), state.run_id?);
        let path = project.runs_dir().join(&id);
        Some((project, RunDir { id, path }))
    }

    /// # Errors
    /// It cannot be written.
    pub fn save(&self, state: &WorkerState) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(state)?;
        text.push('\n');
        if !self.path.is_dir() {
            self.create()?;
        }
        save_privately(&self.state_path(), text.as_bytes())
    }

    /// Sets a state that cannot be understood aside, and says where. Nothing that was set aside before
    /// is lost by that.
    pub fn move_aside(&self) -> Option<PathBuf> {
        let aside = self.free_backup_name();
        std::fs::rename(self.state_path(), &aside).ok().map(|()| aside)
    }

    fn free_backup_name(&self) -> PathBuf {
        let first = self.path.join("state.json.broken");
        let others = (2_u32..).map(|nth| self.path.join(format!("state.json.broken-{nth}")));
        let mut names = std::iter::once(first.clone()).chain(others);
        names.find(|path| path.symlink_metadata().is_err()).unwrap_or(first)
    }

    /// Takes over a state that could not be understood from a directory that was put aside.
    pub fn repair_invalid(&self, before: &Path) {
        let old = Worker { name: self.name.clone(), path: before.to_owned() };
        if let StoredState::Invalid(_) = old.load_state() {
            // If it cannot be moved, it goes with the rest: it had been given up already.
            let _ = std::fs::rename(old.state_path(), self.free_backup_name());
        }
    }

    fn start_state_path(&self) -> PathBuf {
        self.path.join("beginning.json")
    }

    /// Saves the state with which its run began. With the journal it tells how things are, when nothing else
    /// does. A run that is resumed keeps its beginning: the journal tells everything after it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_start_state(&self, state: &WorkerState) -> io::Result<()> {
        if self.load_start_state().is_some_and(|beginning| beginning.run_id == state.run_id) {
            return Ok(());
        }
        save_privately(&self.start_state_path(), &serde_json::to_vec_pretty(state)?)
    }

    /// The state with which its run began.
    pub fn load_start_state(&self) -> Option<WorkerState> {
        serde_json::from_slice(&std::fs::read(self.start_state_path()).ok()?).ok()
    }

    /// Its state, as the journal of its run tells it.
    pub fn state_from_journal(&self) -> Option<WorkerState> {
        let state = self.load_start_state()?;
        let journal = journal_of(&state)?;
        let mut follower = WorkerTracker::new(state, jiff::tz::TimeZone::system());
        let mut run = RunState::live();
        for entry in runs::read_journal(&journal).ok()?.without_text() {
            run.apply(&entry);
            follower.apply(entry.at, &entry.event, &run);
        }
        Some(follower.state)
    }

    /// # Errors
    /// It cannot be written.
    pub fn append_log(&self, lines: &[String]) -> io::Result<()> {
        let mut text = lines.join("\n");
        text.push('\n');
        let mut log = private_files::private_open_options()
            .append(true)
            .create(true)
            .open(self.log_path())?;
        let length = log.metadata()?.len();
        log.write_all(text.as_bytes()).inspect_err(|_| {
            // All or nothing, so that it can be tried again.
            let _ = log.set_len(length);
        })
    }

    /// # Errors
    /// It cannot be written.
    pub fn save_launch(&self, launch: &LaunchRecord) -> io::Result<()> {
        save_privately(&self.launch_path(), &serde_json::to_vec_pretty(launch)?)
    }

    /// # Errors
    /// It is not there, or cannot be understood.
    pub fn launch(&self) -> Result<LaunchRecord, Error> {
        let path = self.launch_path();
        let unusable = |why: &dyn std::fmt::Display| {
            Error::failed(format!("cannot read {}: {why}", path.display()))
                .hint(format!("spawn '{}' again", self.name))
        };
        let text = std::fs::read(&path).map_err(|err| unusable(&err))?;
        serde_json::from_slice(&text).map_err(|err| unusable(&err))
    }

    /// Leaves an environment for the loop that is about to start: tmux would give it that of whoever
    /// started the server.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_environment(&self, variables: &[(String, String)]) -> io::Result<()> {
        save_privately(&self.environment_path(), &serde_json::to_vec(variables)?)
    }

    /// Takes the environment that was left, so that no secret in it stays on the disk.
    pub fn take_environment(&self) -> Option<Vec<(String, String)>> {
        let path = self.environment_path();
        let text = std::fs::read(&path).ok()?;
        // Taken or not: whoever cannot remove it must not take it again and again.
        std::fs::remove_file(&path).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps room on the disk for what a loop must be able to write down: its first state or why it could not
    /// start, and its last state if the disk is full by then.
    ///
    /// # Errors
    /// There is not as much.
    pub fn reserve(&self) -> io::Result<()> {
        save_without_sync(&self.reserve_path(), &[b' '; RESERVE_BYTES])
    }

    /// The room is needed now, or not any more.
    pub fn release(&self) {
        let _ = std::fs::remove_file(self.reserve_path());
    }

    /// Leaves word of why the loop could not start.
    pub fn save_failure(&self, error: &Error) {
        self.release();
        let text = serde_json::json!({"message": error.message, "hints": error.hints,
                                      "exit_code": error.exit_code()});
        // If not even this can be written, the one who waits says that it does not know.
        let _ = save_without_sync(&self.failure_path(), text.to_string().as_bytes());
    }

    pub fn take_failure(&self) -> Option<Error> {
        let path = self.failure_path();
        let text = std::fs::read(&path).ok()?;
        let _ = std::fs::remove_file(&path);
        let failure: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let message = failure["message"].as_str()?;
        let error =
            if failure["exit_code"] == 2 { Error::input(message) } else { Error::failed(message) };
        let hints = failure["hints"].as_array().into_iter().flatten().filter_map(|it| it.as_str());
        Some(hints.fold(error, Error::hint))
    }
}

/// The journal of a worker's run, which may be gone with its project; then it has a second name.
fn journal_of(state: &WorkerState) -> Option<PathBuf> {
    let run = state.run_id.as_ref()?;
    let journal = Project::new(state.directory.clone().into()).runs_dir().join(run);
    let journal = journal.join("events.jsonl");
    if journal.exists() {
        return Some(journal);
    }
    Some(journal_copies::second_name(&ralph_home(|name| std::env::var_os(name))?, run))
}

fn is_locked(path: &Path) -> bool {
    let held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(held)
}

/// Since the Unix epoch.
fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

pub(super) fn store_error(path: &Path, err: &io::Error) -> Error {
    Error::failed(format!("cannot use {}: {err}", path.display()))
        .hint("ralph keeps its workers there; RALPH_HOME names another place")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use ralph_report::worker_lines::WorkerStatus;

    fn workers() -> (tempfile::TempDir, Workers, Worker) {
        let dir = tempfile::tempdir().unwrap();
        let workers = Workers::at(dir.path().join("workers"));
        let worker = workers.by_name("agent").unwrap();
        worker.create().unwrap();
        (dir, workers, worker)
    }

    #[test]
    fn corrupt_worker_state_is_reported_and_set_aside() {
        let (_dir, _, worker) = workers();
        assert!(matches!(worker.load_state(), StoredState::Missing));
        let state = WorkerState { status: WorkerStatus::Paused, ..WorkerState::default() };
        worker.save(&state).unwrap();
        let whole = std::fs::read(worker.state_path()).unwrap();
        let cases: [&[u8]; 9] = [
            b"",
            b" \n",
            &whole[..whole.len() / 2],
            b"[]",
            b"{}",
            b"{\"status\":\"odd\"}",
            b"{\"status\":\"paused\",\"current_iteration\":1}",
            b"\xff",
            b"7",
        ];
        for text in cases {
            std::fs::write(worker.state_path(), text).unwrap();
            assert!(matches!(worker.load_state(), StoredState::Invalid(_)), "{text:?}");
            assert!(worker.state().is_err());
        }
        let aside = worker.move_aside().unwrap();
        assert_eq!(std::fs::read(aside).unwrap(), b"7");
        assert!(matches!(worker.load_state(), StoredState::Missing));
        std::fs::create_dir(worker.state_path()).unwrap();
        assert!(matches!(worker.load_state(), StoredState::Invalid(_)));
    }

    #[test]
    fn invalid_iteration_limit_is_reported() {
        let (_dir, _, worker) = workers();
        for (limit, odd) in [
            ("1", false),
            ("4294967295", false),
            ("0", true),
            ("\"8\"", true),
            ("1.5", true),
            ("-1", true),
            ("null", true),
            ("4294967296", true),
        ] {
            let text = format!("{{\"max_iterations\": {limit}}}");
            std::fs::write(worker.state_path(), text).unwrap();
            assert_eq!(worker.invalid_limit(), odd.then(|| limit.to_owned()), "{limit}");
        }
    }

    #[test]
    fn start_begun_before_kill_all_is_refused() {
        let (_dir, workers, worker) = workers();
        let began = SystemTime::now();
        assert!(workers.refuse_if_killed(began).is_ok());
        workers.record_kill_all().unwrap();
        assert!(workers.refuse_if_killed(began).is_err());
        assert!(workers.refuse_if_killed(SystemTime::now()).is_ok(), "what begins later may start");
        assert!(workers.locked_workers().unwrap().is_empty());
        let held = workers.lock(&worker).unwrap();
        let new = workers.by_name("new").unwrap();
        let reserved = workers.lock(&new).unwrap();
        let mut names: Vec<_> =
            workers.locked_workers().unwrap().into_iter().map(|it| it.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["agent", "new"], "whether or not it has a directory");
        drop((held, reserved));
        assert!(workers.locked_workers().unwrap().is_empty());
    }

    #[test]
    fn worker_is_alive_while_its_lock_is_held() {
        let (_dir, _, worker) = workers();
        assert!(!worker.is_alive());
        let held = worker.claim().unwrap();
        assert!(worker.is_alive() && worker.is_alive(), "looking changes nothing");
        drop(held);
        assert!(!worker.is_alive());
    }

    #[test]
    fn worker_files_with_secrets_are_private() {
        let (_dir, _, worker) = workers();
        let launch = LaunchRecord {
            args: vec!["ralph".into()],
            directory: "/x".into(),
            ..LaunchRecord::default()
        };
        worker.save_launch(&launch).unwrap();
        worker.save_environment(&[("KEY".into(), "secret".into())]).unwrap();
        for path in [worker.launch_path(), worker.environment_path()] {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        assert_eq!(worker.path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(worker.launch().unwrap(), launch);
        assert!(worker.take_environment().is_some());
        assert!(worker.take_environment().is_none(), "it does not stay");
    }

    #[test]
    fn worker_list_skips_other_directories() {
        let (dir, workers, _) = workers();
        std::fs::create_dir(dir.path().join("workers/.hidden")).unwrap();
        std::fs::create_dir(dir.path().join("workers/b")).unwrap();
        std::fs::write(dir.path().join("workers/file"), "").unwrap();
        let names: Vec<_> = workers.all().unwrap().into_iter().map(|worker| worker.name).collect();
        assert_eq!(names, ["agent", "b"]);
        assert!(workers.find("file").is_err() && workers.find("../workers").is_err());
    }
}
