//! The files of workers.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::worktree::Worktree;
use crate::launch::{LaunchSpec, start_record_v1};
use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_report::worker_lines::{WorkerState, WorkerTracker, is_valid_name};
use ralph_store::home::ralph_home;
use ralph_store::lock;
use ralph_store::migration;
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::runs::{self, RunDir};
use ralph_store::safe_fs::is_same_file;
use ralph_store::save::{save_privately, save_without_sync};

/// The wait for another command that uses the same worker.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait for processes that only check whether the loop is alive.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

/// Enough for two states and the start of a log.
const RESERVE_BYTES: usize = 32 * 1024;

const REQUIRED_KEYS: [&str; 3] = ["status", "max_iterations", "current_iteration"];

#[derive(Debug, Clone)]
pub struct Workers {
    root: PathBuf,
}

/// A worker's directory, which need not exist.
#[derive(Debug, Clone)]
pub struct Worker {
    pub name: String,
    pub path: PathBuf,
}

#[derive(Debug, Clone)]
pub enum StoredState {
    State(Box<WorkerState>),
    Missing,
    Invalid(String),
}

impl Workers {
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

    pub fn by_name(&self, name: &str) -> Result<Worker, Error> {
        if is_valid_name(name) {
            return Ok(Worker { name: name.to_owned(), path: self.root.join(name) });
        }
        Err(Error::failed(format!("a worker cannot be called {name:?}"))
            .hint("letters, digits, - and _, at most 64 of them, and a letter or a digit first"))
    }

    pub fn find(&self, name: &str) -> Result<Worker, Error> {
        let worker = self.by_name(name)?;
        if worker.path.is_dir() {
            return Ok(worker);
        }
        Err(Error::failed(format!("worker '{name}' not found")).hint("`ralph ls` lists them"))
    }

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

    /// Workers that other commands have locked, including those that are being spawned and have no
    /// directory yet.
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

    /// Tells commands that are about to start a worker, and cannot be seen yet, not to.
    pub fn record_kill_all(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.root)?;
        save_without_sync(
            &self.kill_all_path(),
            nanoseconds(SystemTime::now()).to_string().as_bytes(),
        )
    }

    /// Fails if `kill --all` was called after `since`. Call it with the lock held.
    pub fn refuse_if_killed(&self, since: SystemTime) -> Result<(), Error> {
        let text = std::fs::read_to_string(self.kill_all_path()).unwrap_or_default();
        if text.trim().parse::<u128>().is_ok_and(|killed| killed >= nanoseconds(since)) {
            return Err(Error::failed("not started: `ralph kill --all` was called meanwhile"));
        }
        Ok(())
    }

    /// Keeps other commands, but not the loop, from changing the worker.
    pub fn lock(&self, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_for(LOCK_TIMEOUT, worker)
    }

    pub fn lock_for(&self, timeout: Duration, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_within(timeout, worker)?.ok_or_else(|| {
            Error::failed(format!("another command is busy with worker '{}'", worker.name))
                .hint("wait for it to end")
        })
    }

    fn lock_within(&self, timeout: Duration, worker: &Worker) -> Result<Option<WorkerLock>, Error> {
        private_files::create_dir_all(&self.root).map_err(|err| store_error(&self.root, &err))?;
        let path = self.root.join(format!(".{}.lock", worker.name));
        loop {
            let opened = private_files::private_open_options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path);
            opened.map_err(|err| store_error(&path, &err))?;
            match lock::lock_within(&path, timeout) {
                // The previous holder may have removed the file.
                Ok(file) if is_same_file(&file, &path) => {
                    let directory = worker.path.clone();
                    return Ok(Some(WorkerLock { path, directory, _file: file }));
                }
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Ok(None),
                Ok(_) | Err(_) => {}
            }
        }
    }

    pub fn lock_new(&self) -> Result<(Worker, WorkerLock), Error> {
        let mut number = 1_u32;
        loop {
            let worker = self.by_name(&format!("worker-{number}"))?;
            if !worker.path.exists()
                && let Some(held) = self.lock_within(Duration::ZERO, &worker)?
                // The previous holder may have created it.
                && !worker.path.exists()
            {
                return Ok((worker, held));
            }
            number += 1;
        }
    }
}

/// Removes its file if the worker does not exist.
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

    pub fn spec_path(&self) -> PathBuf {
        self.path.join("spec.json")
    }

    /// Version 0.1 wrote this instead of the spec.
    fn old_launch_path(&self) -> PathBuf {
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

    pub fn create(&self) -> io::Result<()> {
        private_files::create_dir_all(&self.path)
    }

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

    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Tells a new directory at this path from the old one.
    pub fn directory(&self) -> Option<(u64, u64)> {
        let meta = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_dir)?;
        Some((meta.dev(), meta.ino()))
    }

    pub fn invalid_limit(&self) -> Option<String> {
        let text = std::fs::read(self.state_path()).ok()?;
        let state: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).ok()?;
        let limit = state.get("max_iterations")?;
        let is_one = limit.as_u64().is_some_and(|n| (1..=u64::from(u32::MAX)).contains(&n));
        (!is_one).then(|| limit.to_string())
    }

    /// Whether the loop is alive. Always false on file systems without locks.
    pub fn is_alive(&self) -> bool {
        is_locked(&self.path)
    }

    /// The lock of the only writer of the state: the loop, or a command without one.
    pub fn claim(&self) -> io::Result<File> {
        lock::lock_within(&self.path, CLAIM_TIMEOUT)
    }

    /// Reads `state.json`, or the journal if the loop is gone without having saved its end, for
    /// instance because the disk was full.
    pub fn load_state(&self) -> StoredState {
        match self.saved() {
            StoredState::State(state) if !state.status.has_ended() && !self.is_alive() => {
                StoredState::State(self.end_from_journal(&state).map_or(state, Box::new))
            }
            known => known,
        }
    }

    fn end_from_journal(&self, saved: &WorkerState) -> Option<WorkerState> {
        let start = self.load_start_state().filter(|start| start.run_id == saved.run_id)?;
        if !runs::has_ended(&self.journal(&start)?) {
            return None;
        }
        let mut state = self.state_from_journal().filter(|state| state.status.has_ended())?;
        state.max_iterations = saved.max_iterations;
        Some(state)
    }

    fn saved(&self) -> StoredState {
        let text = match std::fs::read(self.state_path()) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return StoredState::Missing,
            Err(err) => return StoredState::Invalid(err.to_string()),
            Ok(text) => text,
        };
        // Only an object: serde also accepts an array for a struct.
        let object = serde_json::from_slice::<serde_json::Map<_, _>>(&text);
        // Defaults for these would be wrong.
        if let Ok(object) = &object
            && let Some(key) = REQUIRED_KEYS.iter().find(|key| !object.contains_key(**key))
        {
            return StoredState::Invalid(format!("it has no {key:?}"));
        }
        let state = object.and_then(|object| serde_json::from_value::<WorkerState>(object.into()));
        match state {
            Ok(mut state) => {
                // The directory's name is authoritative.
                state.worker_name.clone_from(&self.name);
                StoredState::State(Box::new(state))
            }
            Err(_) if text.trim_ascii().is_empty() => {
                StoredState::Invalid("it is empty".to_owned())
            }
            Err(err) => StoredState::Invalid(err.to_string()),
        }
    }

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

    pub fn run(&self) -> Option<(Project, RunDir)> {
        let StoredState::State(state) = self.load_state() else { return None };
        let project = self.project(&state)?;
        let dir = project.run_dir(&state.run_id?);
        Some((project, dir))
    }

    pub fn journal(&self, state: &WorkerState) -> Option<PathBuf> {
        Some(self.project(state)?.run_dir(state.run_id.as_ref()?).journal())
    }

    /// Opens the project, which may still have its runs where version 0.1 stored them.
    pub fn project(&self, state: &WorkerState) -> Option<Project> {
        let home = ralph_home(|name| std::env::var_os(name))?;
        let project = Project::new(Path::new(&state.directory), &home);
        // Refused while a worker of version 0.1 is active.
        let _ = migration::find_runs(&project, &home);
        Some(project)
    }

    pub fn save(&self, state: &WorkerState) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(state)?;
        text.push('\n');
        if !self.path.is_dir() {
            self.create()?;
        }
        save_privately(&self.state_path(), text.as_bytes())
    }

    /// Never overwrites an earlier one.
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

    pub fn repair_invalid(&self, previous: &Path) {
        let old = Worker { name: self.name.clone(), path: previous.to_owned() };
        if let StoredState::Invalid(_) = old.load_state() {
            let _ = std::fs::rename(old.state_path(), self.free_backup_name());
        }
    }

    fn start_state_path(&self) -> PathBuf {
        self.path.join("beginning.json")
    }

    /// Together with the journal, the state can be rebuilt from it. A resumed run keeps its first one.
    pub fn save_start_state(&self, state: &WorkerState) -> io::Result<()> {
        if self.load_start_state().is_some_and(|start| start.run_id == state.run_id) {
            return Ok(());
        }
        save_privately(&self.start_state_path(), &serde_json::to_vec_pretty(state)?)
    }

    pub fn load_start_state(&self) -> Option<WorkerState> {
        serde_json::from_slice(&std::fs::read(self.start_state_path()).ok()?).ok()
    }

    pub fn state_from_journal(&self) -> Option<WorkerState> {
        let state = self.load_start_state()?;
        let journal = self.journal(&state)?;
        let mut tracker = WorkerTracker::new(state, jiff::tz::TimeZone::system());
        let mut run = RunState::live();
        for entry in runs::read_journal(&journal).ok()?.without_text() {
            run.apply(&entry);
            tracker.apply(entry.at, &entry.event, &run);
        }
        Some(tracker.state)
    }

    pub fn append_log(&self, lines: &[String]) -> io::Result<()> {
        let mut text = lines.join("\n");
        text.push('\n');
        let mut log = private_files::private_open_options()
            .append(true)
            .create(true)
            .open(self.log_path())?;
        let length = log.metadata()?.len();
        log.write_all(text.as_bytes()).inspect_err(|_| {
            // All or nothing, to allow a retry.
            let _ = log.set_len(length);
        })
    }

    pub(crate) fn save_spec(&self, spec: &LaunchSpec) -> io::Result<()> {
        save_privately(&self.spec_path(), &serde_json::to_vec_pretty(spec)?)
    }

    /// What the loop is started with.
    pub(crate) fn spec(&self) -> Result<LaunchSpec, Error> {
        let path = self.spec_path();
        let unusable = |why: &dyn std::fmt::Display| {
            Error::failed(format!("cannot read {}: {why}", path.display()))
                .hint(format!("spawn '{}' again", self.name))
        };
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|err| unusable(&err)),
            Err(err) => match std::fs::read(self.old_launch_path()) {
                Ok(text) => start_record_v1::worker_spec(&text),
                Err(_) => Err(unusable(&err)),
            },
        }
    }

    pub(crate) fn worktree(&self) -> Option<Worktree> {
        #[derive(Deserialize)]
        struct Record {
            worktree: Option<Worktree>,
        }
        let text = std::fs::read(self.spec_path());
        let text = text.or_else(|_| std::fs::read(self.old_launch_path())).ok()?;
        serde_json::from_slice::<Record>(&text).ok()?.worktree
    }

    /// tmux would give the loop the environment of its server.
    pub fn save_environment(&self, variables: &[(String, String)]) -> io::Result<()> {
        save_privately(&self.environment_path(), &serde_json::to_vec(variables)?)
    }

    /// Removes the file: it may contain secrets.
    pub fn take_environment(&self) -> Option<Vec<(String, String)>> {
        let path = self.environment_path();
        let text = std::fs::read(&path).ok()?;
        // Otherwise it would be taken again and again.
        std::fs::remove_file(&path).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Reserves disk space for the first state or error, and for the last state if the disk is full
    /// by then.
    pub fn reserve(&self) -> io::Result<()> {
        save_without_sync(&self.reserve_path(), &[b' '; RESERVE_BYTES])
    }

    pub fn release(&self) {
        let _ = std::fs::remove_file(self.reserve_path());
    }

    pub fn save_failure(&self, error: &Error) {
        self.release();
        let text = serde_json::json!({"message": error.message, "hints": error.hints,
                                      "exit_code": error.exit_code()});
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

fn is_locked(path: &Path) -> bool {
    let is_held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(is_held)
}

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
        worker.save_environment(&[("KEY".into(), "secret".into())]).unwrap();
        let mode = worker.environment_path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(worker.path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
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
