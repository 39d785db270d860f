//! The files of workers.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::registry::find_by_id;
use super::worktree::Worktree;
use crate::launch::{LaunchSpec, start_record_v1};
use crate::project_dir::report_change;
use ralph_events::error::{Error, ErrorKind};
use ralph_events::run_state::RunState;
use ralph_report::worker_lines::{WorkerState, WorkerTracker};
use ralph_store::lock;
use ralph_store::migration;
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::requests::is_pipe;
use ralph_store::runs::{self, RunDir};
use ralph_store::save::{save_privately, save_without_sync};

/// The wait for processes that only check whether the loop is alive.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

/// Enough for two states and the start of a log.
const RESERVE_BYTES: usize = 32 * 1024;

const REQUIRED_KEYS: [&str; 3] = ["status", "max_iterations", "current_iteration"];

/// Version 0.1 wrote this instead of the spec.
const OLD_LAUNCH: &str = "launch.json";
const EARLY_END: &str = "failure.txt";
const RESERVE: &str = "reserve";
const ENVIRONMENT: &str = "environment.json";
const START_STATE: &str = "beginning.json";

/// A worker's directory, which need not exist.
#[derive(Debug, Clone)]
pub struct Worker {
    pub name: String,
    pub path: PathBuf,
    past: Option<(Project, RunDir)>,
}

#[derive(Debug, Clone)]
pub enum StoredState {
    State(Box<WorkerState>),
    Missing,
    Invalid(String),
}

impl StoredState {
    pub fn known(self) -> Option<Box<WorkerState>> {
        match self {
            StoredState::State(state) => Some(state),
            StoredState::Missing | StoredState::Invalid(_) => None,
        }
    }
}

impl Worker {
    pub fn at(name: &str, path: PathBuf) -> Worker {
        Worker { name: name.to_owned(), path, past: None }
    }

    /// A run whose name another one has by now, or none. The directory is that of the run.
    pub fn past(project: Project, run: RunDir) -> Worker {
        let mut worker = Worker::at(&run.id, run.path.clone());
        if let StoredState::State(state) = read_state(&worker.state_path()) {
            worker.name = state.worker_name;
        }
        worker.past = Some((project, run));
        worker
    }

    pub fn is_past(&self) -> bool {
        self.past.is_some()
    }

    /// Selects the run on a command line.
    pub fn handle(&self) -> &str {
        self.past.as_ref().map_or(&self.name, |(_, run)| &run.id)
    }

    /// Names the run in messages.
    pub fn label(&self) -> String {
        match &self.past {
            Some((_, run)) => format!("run {}", run.id),
            None => format!("run '{}'", self.name),
        }
    }

    /// For commands about the last run of a name.
    pub fn refuse_past(&self) -> Result<(), Error> {
        if !self.is_past() || self.is_alive() {
            return Ok(());
        }
        let how = self.load_state().known().map_or("interrupted".to_owned(), |it| it.end_clause());
        let handle = self.handle();
        Err(Error::failed(format!("{} has ended: {how}", self.label()))
            .hint(format!("ralph status {handle}, ralph report {handle}")))
    }

    /// Whether version 0.1 runs the loop, which takes only one request: to end.
    fn is_old_loop(&self) -> bool {
        is_pipe(&self.old_pipe()) && self.is_alive()
    }

    pub(super) fn old_pipe(&self) -> PathBuf {
        self.path.join("wake")
    }

    pub fn refuse_old_loop(&self) -> Result<(), Error> {
        if !self.is_old_loop() {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::failed(format!("run '{name}' was started by ralph 0.1 and can only be stopped"))
            .hint(format!("ralph kill {name} && ralph resume {name}")))
    }

    pub fn state_path(&self) -> PathBuf {
        self.path.join("state.json")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("iterations.log")
    }

    pub fn spec_path(&self) -> PathBuf {
        self.path.join("spec.json")
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

    /// Starts with an empty directory.
    pub fn replace(&self) -> io::Result<()> {
        let previous = self.archive()?;
        self.create()?;
        if let Some(previous) = previous {
            self.discard(&previous);
        }
        Ok(())
    }

    /// Removes the archived files of the previous run with this name, except an invalid
    /// state.
    pub fn discard(&self, previous: &Path) {
        self.repair_invalid(previous);
        let _ = std::fs::remove_dir_all(previous);
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
        self.past.as_ref().map_or_else(|| is_locked(&self.path), |(_, run)| run.is_running())
    }

    /// Whether its last run was one of a terminal.
    pub fn is_foreground(&self) -> bool {
        self.load_state().known().is_some_and(|state| state.foreground)
    }

    /// The lock of the only writer of the state: the loop, or a command without one.
    pub fn claim(&self) -> io::Result<File> {
        lock::lock_within(&self.path, CLAIM_TIMEOUT)
    }

    /// Reads `state.json`, or the journal if the loop is gone without having saved its end, for
    /// instance because the disk was full.
    pub fn load_state(&self) -> StoredState {
        match self.saved() {
            StoredState::State(state) if !state.has_end() && !self.is_alive() => {
                StoredState::State(self.end_from_journal(&state).map_or(state, Box::new))
            }
            known => known,
        }
    }

    fn end_from_journal(&self, saved: &WorkerState) -> Option<WorkerState> {
        let start = self.load_start_state().filter(|start| start.run_id == saved.run_id)?;
        if !runs::has_ended(&self.run_of(&start)?.1.journal()) {
            return None;
        }
        let mut state = self.state_from_journal().filter(|state| state.status.has_ended())?;
        state.max_iterations = saved.max_iterations;
        Some(state)
    }

    fn saved(&self) -> StoredState {
        let mut stored = read_state(&self.state_path());
        if let (Some((_, run)), StoredState::Missing) = (&self.past, &stored) {
            // Version 0.1 wrote none.
            let state = state_after(WorkerState::default(), run);
            stored = state.map_or(stored, |state| StoredState::State(Box::new(state)));
        }
        if let StoredState::State(state) = &mut stored {
            // The directory's name is authoritative.
            state.worker_name.clone_from(&self.name);
        }
        stored
    }

    pub fn state(&self) -> Result<WorkerState, Error> {
        let path = self.state_path();
        match self.load_state() {
            StoredState::State(state) => Ok(*state),
            StoredState::Missing => Err(Error::failed(format!("run '{}' has no state", self.name))
                .hint(format!("remove what is left of it: ralph rm {}", self.name))),
            StoredState::Invalid(why) => {
                let name = &self.name;
                Err(Error::failed(format!("invalid {}: {why}", path.display()))
                    .hint(format!("to restore it from the journal: ralph resume {name}"))
                    .hint(format!("to stop the run: ralph kill {name}")))
            }
        }
    }

    /// The last run with this name, also if the state is damaged.
    pub fn run(&self) -> Option<(Project, RunDir)> {
        self.past.clone().or_else(|| self.run_of(&self.last_start()?))
    }

    /// Fails if the last run with this name has no journal that can be read.
    pub fn run_with_journal(&self) -> Result<(Project, RunDir), Error> {
        let (project, run) = self
            .run()
            .ok_or_else(|| Error::failed(format!("{} has not done anything yet", self.label())))?;
        if self.is_old_loop() && !run.path.exists() {
            let (name, path) = (&self.name, project.ralph_dir().join("runs").join(&run.id));
            let message = format!(
                "run '{name}' was started by ralph 0.1; its journal can be read after it has \
                 ended: {}",
                path.display()
            );
            return Err(Error::failed(message)
                .hint(format!("see its progress: ralph status {name}"))
                .hint(format!("or stop it: ralph kill {name}")));
        }
        Ok((project, run))
    }

    pub(super) fn run_id(&self) -> Option<String> {
        self.last_start()?.run_id
    }

    fn last_start(&self) -> Option<WorkerState> {
        self.load_start_state().or_else(|| self.saved().known().map(|state| *state))
    }

    fn run_of(&self, state: &WorkerState) -> Option<(Project, RunDir)> {
        let project = self.project(state)?;
        let id = state.run_id.as_ref()?;
        let dir = project.run_dir(id);
        if dir.path.exists() {
            return Some((project, dir));
        }
        // The project may have been moved.
        Some(find_by_id(id).unwrap_or((project, dir)))
    }

    /// Opens the project, which may still have its runs where version 0.1 stored them.
    fn project(&self, state: &WorkerState) -> Option<Project> {
        let home = self.path.parent()?.parent()?;
        let project = Project::new(Path::new(&state.directory), home);
        if !project.runs_dir().is_dir() {
            // Refused while a worker of version 0.1 is active.
            let change = migration::find_runs(&project).ok().flatten();
            report_change(&project, change);
        }
        Some(project)
    }

    /// The limit, which the user may have edited.
    pub fn edited_limit(&self) -> Option<u32> {
        let limit = self.load_state().known()?.max_iterations;
        Some(limit).filter(|limit| *limit > 0)
    }

    /// Saves the state of a run that has no process.
    pub fn claim_and_save(&self, state: &WorkerState) -> Result<(), Error> {
        let saved = self.claim().and_then(|_claim| self.save(state));
        saved.map_err(|err| worker_files_error(self, &err))
    }

    pub fn save(&self, state: &WorkerState) -> io::Result<()> {
        if !self.path.is_dir() {
            self.create()?;
        }
        save_state(&self.state_path(), state)
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

    fn repair_invalid(&self, previous: &Path) {
        let old = Worker::at(&self.name, previous.to_owned());
        if let StoredState::Invalid(_) = old.load_state() {
            let _ = std::fs::rename(old.state_path(), self.free_backup_name());
        }
    }

    /// Together with the journal, the state can be rebuilt from it. A resumed run keeps its first one.
    pub fn save_start_state(&self, state: &WorkerState) -> io::Result<()> {
        if self.load_start_state().is_some_and(|start| start.run_id == state.run_id) {
            return Ok(());
        }
        save_without_sync(&self.path.join(START_STATE), &serde_json::to_vec_pretty(state)?)
    }

    pub fn load_start_state(&self) -> Option<WorkerState> {
        serde_json::from_slice(&std::fs::read(self.path.join(START_STATE)).ok()?).ok()
    }

    pub fn state_from_journal(&self) -> Option<WorkerState> {
        let state = self.load_start_state()?;
        let (_, run) = self.run_of(&state)?;
        state_after(state, &run)
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
            Err(err) => match std::fs::read(self.path.join(OLD_LAUNCH)) {
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
        let text = text.or_else(|_| std::fs::read(self.path.join(OLD_LAUNCH))).ok()?;
        serde_json::from_slice::<Record>(&text).ok()?.worktree
    }

    /// tmux would give the loop the environment of its server.
    pub fn save_environment(&self, variables: &[(String, String)]) -> io::Result<()> {
        save_privately(&self.path.join(ENVIRONMENT), &serde_json::to_vec(variables)?)
    }

    /// Removes the file: it may contain secrets.
    pub fn take_environment(&self) -> Option<Vec<(String, String)>> {
        let path = self.path.join(ENVIRONMENT);
        let text = std::fs::read(&path).ok()?;
        // Otherwise it would be taken again and again.
        std::fs::remove_file(&path).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Reserves disk space for the first state or error, and for the last state if the disk is full
    /// by then.
    pub fn reserve(&self) -> io::Result<()> {
        save_without_sync(&self.path.join(RESERVE), &[b' '; RESERVE_BYTES])
    }

    pub fn release(&self) {
        let _ = std::fs::remove_file(self.path.join(RESERVE));
    }

    /// For a process that waits for the start: no run began, for this reason or because there was
    /// nothing to do.
    pub fn save_early_end(&self, end: &Result<u8, Error>) {
        self.release();
        let text = match end {
            Ok(code) => serde_json::json!({"exit_code": code}),
            Err(error) => serde_json::json!({"message": error.message, "hints": error.hints,
                                             "exit_code": error.exit_code()}),
        };
        let _ = save_without_sync(&self.path.join(EARLY_END), text.to_string().as_bytes());
    }

    pub fn take_early_end(&self) -> Option<Result<u8, Error>> {
        let path = self.path.join(EARLY_END);
        let text = std::fs::read(&path).ok()?;
        let _ = std::fs::remove_file(&path);
        let end: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let Some(message) = end["message"].as_str() else {
            return Some(Ok(u8::try_from(end["exit_code"].as_u64()?).ok()?));
        };
        use ErrorKind::{Agent, Budget, Failed, Input, Interrupted, Scm};
        let is_kind = |kind: &ErrorKind| end["exit_code"] == kind.exit_code();
        let kind = [Input, Budget, Agent, Scm, Interrupted].into_iter().find(is_kind);
        let error = Error::new(kind.unwrap_or(Failed), message);
        let hints = end["hints"].as_array().into_iter().flatten().filter_map(|it| it.as_str());
        Some(Err(hints.fold(error, Error::hint)))
    }
}

/// The state after everything in the journal of a run.
fn state_after(start: WorkerState, run: &RunDir) -> Option<WorkerState> {
    let mut tracker = WorkerTracker::new(start, jiff::tz::TimeZone::system());
    let mut state = RunState::live();
    for entry in run.read_journal().ok()?.without_text() {
        state.apply(&entry);
        tracker.apply(entry.at, &entry.event, &state);
    }
    Some(tracker.state)
}

/// Not synced: the journal is, and has all of it.
pub fn save_state(path: &Path, state: &WorkerState) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(state)?;
    text.push('\n');
    save_without_sync(path, text.as_bytes())
}

/// Reads a `state.json`.
pub fn read_state(path: &Path) -> StoredState {
    let text = match std::fs::read(path) {
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
        return StoredState::Invalid(format!("{key:?} is missing"));
    }
    match object.and_then(|object| serde_json::from_value::<WorkerState>(object.into())) {
        Ok(state) => StoredState::State(Box::new(state)),
        Err(_) if text.trim_ascii().is_empty() => StoredState::Invalid("it is empty".to_owned()),
        Err(err) => StoredState::Invalid(err.to_string()),
    }
}

pub(super) fn is_locked(path: &Path) -> bool {
    let is_held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(path).is_ok_and(is_held)
}

pub fn worker_files_error(worker: &Worker, err: &io::Error) -> Error {
    store_error(&worker.path, err)
}

pub(super) fn store_error(path: &Path, err: &io::Error) -> Error {
    Error::failed(format!("cannot use {}: {err}", path.display()))
        .hint("ralph stores its runs there; to use another directory, set RALPH_HOME")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use ralph_report::worker_lines::WorkerStatus;

    fn worker() -> (tempfile::TempDir, Worker) {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker::at("agent", dir.path().join("workers/agent"));
        worker.create().unwrap();
        (dir, worker)
    }

    #[test]
    fn corrupt_worker_state_is_reported_and_set_aside() {
        let (_dir, worker) = worker();
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
        let (_dir, worker) = worker();
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
    fn worker_is_alive_while_its_lock_is_held() {
        let (_dir, worker) = worker();
        assert!(!worker.is_alive());
        let held = worker.claim().unwrap();
        assert!(worker.is_alive() && worker.is_alive(), "looking changes nothing");
        drop(held);
        assert!(!worker.is_alive());
    }

    #[test]
    fn worker_files_with_secrets_are_private() {
        let (_dir, worker) = worker();
        worker.save_environment(&[("KEY".into(), "secret".into())]).unwrap();
        let mode = worker.path.join(ENVIRONMENT).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(worker.path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(worker.take_environment().is_some());
        assert!(worker.take_environment().is_none(), "it does not stay");
    }
}
