//! The names of runs, unique among the living ones of this machine: `$RALPH_HOME/workers/NAME`.

use std::collections::HashSet;
use std::fs::{DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::store::{StoredState, Worker, is_locked, store_error};
use crate::cli::warn;
use ralph_events::error::{Error, ErrorKind};
use ralph_report::worker_lines::is_valid_name;
use ralph_store::home::ralph_home;
use ralph_store::lock;
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::project_record;
use ralph_store::runs::{self, RunDir};
use ralph_store::safe_fs::is_same_file;
use ralph_store::save::save_without_sync;

/// The wait for another command that uses the same worker.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Leaves room for a number.
const MAX_DEFAULT_NAME: usize = 48;

#[derive(Debug, Clone)]
pub struct Workers {
    root: PathBuf,
}

impl Workers {
    pub fn open_user_dir() -> Result<Workers, Error> {
        match ralph_home(|name| std::env::var_os(name)) {
            Some(home) => Ok(Workers { root: home.join("workers") }),
            None => Err(Error::failed("no directory for runs: HOME is not set")
                .hint("set RALPH_HOME to an absolute path")),
        }
    }

    pub fn at(root: PathBuf) -> Workers {
        Workers { root }
    }

    pub fn by_name(&self, name: &str) -> Result<Worker, Error> {
        if is_valid_name(name) {
            return Ok(Worker::at(name, self.root.join(name)));
        }
        Err(Error::failed(format!("invalid run name {name:?}"))
            .hint("use up to 64 letters, digits, - and _, starting with a letter or digit"))
    }

    /// The last run with this name.
    pub fn find_by_name(&self, name: &str) -> Option<Worker> {
        self.by_name(name).ok().filter(|worker| worker.path.is_dir())
    }

    /// Finds the last run with this name, or the run that this part of an id selects.
    pub fn find(&self, wanted: &str) -> Result<Worker, Error> {
        self.by_name(wanted)?;
        let found = self.search(wanted).map_err(|err| Error { kind: ErrorKind::Failed, ..err })?;
        found.ok_or_else(|| {
            Error::failed(format!("run '{wanted}' not found")).hint("`ralph ls` lists them")
        })
    }

    /// Like [`find`](Workers::find), for texts that need not select a run.
    pub fn search(&self, wanted: &str) -> Result<Option<Worker>, Error> {
        if let Some(worker) = self.find_by_name(wanted) {
            return Ok(Some(worker));
        }
        if let Some(worker) = self.find_last_by_id(wanted)? {
            return Ok(Some(worker));
        }
        let past = find_run_anywhere(wanted)?;
        Ok(past.map(|(project, run)| Worker::past(project, run)))
    }

    /// Finds a run that is the last one of its name by its id, the unique beginning of it, or its
    /// last four characters. A living run wins over those that are not.
    pub fn find_last_by_id(&self, wanted: &str) -> Result<Option<Worker>, Error> {
        if !runs::is_id_part(wanted) {
            return Ok(None);
        }
        let mut found = self.all()?;
        found.retain(|worker| worker.run_id().is_some_and(|id| runs::is_selected(&id, wanted)));
        if found.len() > 1 && found.iter().any(Worker::is_alive) {
            found.retain(Worker::is_alive);
        }
        only_match(found, wanted, |worker| &worker.name)
    }

    fn entries(&self) -> Result<Vec<DirEntry>, Error> {
        match std::fs::read_dir(&self.root) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(err) => Err(store_error(&self.root, &err)),
            Ok(entries) => Ok(entries.flatten().collect()),
        }
    }

    pub fn all(&self) -> Result<Vec<Worker>, Error> {
        let directories = self.entries()?.into_iter().filter(|entry| entry.path().is_dir());
        let mut workers: Vec<Worker> = directories
            .filter_map(|entry| self.by_name(entry.file_name().to_str()?).ok())
            .collect();
        workers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(workers)
    }

    /// Listed runs that are not the last ones of their names, oldest first.
    pub fn past_runs(&self) -> Result<Vec<Worker>, Error> {
        let home = self.root.parent().unwrap_or(&self.root);
        let last: HashSet<String> = self.all()?.iter().filter_map(Worker::run_id).collect();
        let mut found = Vec::new();
        for record in project_record::all_records(home).iter().filter(|it| it.root.exists()) {
            let project = Project::new(&record.root, home);
            let runs = runs::list(&project.runs_dir()).unwrap_or_default().into_iter();
            let past = runs.filter(|run| !last.contains(&run.id) && run.is_listed());
            found.extend(past.map(|run| Worker::past(project.clone(), run)));
        }
        found.sort_by(|a, b| a.handle().cmp(b.handle()));
        Ok(found)
    }

    /// Workers that other commands have locked, including those that are being spawned and have no
    /// directory yet.
    pub fn locked_workers(&self) -> Result<Vec<Worker>, Error> {
        let locked = self.entries()?.into_iter().filter(|entry| is_locked(&entry.path()));
        let workers = locked.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            self.by_name(name.strip_prefix('.')?.strip_suffix(".lock")?).ok()
        });
        Ok(workers.collect())
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
            return Err(Error::failed(
                "not started, because `ralph kill --all` was called meanwhile",
            ));
        }
        Ok(())
    }

    /// Keeps other commands, but not the loop, from changing the worker.
    pub fn lock(&self, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_for(LOCK_TIMEOUT, worker)
    }

    pub fn lock_for(&self, timeout: Duration, worker: &Worker) -> Result<WorkerLock, Error> {
        self.lock_within(timeout, worker)?.ok_or_else(|| {
            Error::failed(format!("another command is busy with run '{}'", worker.name))
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

    /// Locks a name for a new run, unless another one has it.
    pub fn reserve(&self, name: &str) -> Result<(Worker, WorkerLock), Error> {
        let worker = self.by_name(name)?;
        let held = self.lock(&worker)?;
        check_name_free(&worker)?;
        Ok((worker, held))
    }

    /// Like [`reserve`](Workers::reserve), with the exit code of commands other than `spawn`.
    pub fn reserve_for_run(&self, name: &str) -> Result<(Worker, WorkerLock), Error> {
        self.reserve(name).map_err(|error| Error { kind: ErrorKind::Input, ..error })
    }

    /// Locks `worker-1`, or the next name that is free.
    pub fn reserve_new(&self) -> Result<(Worker, WorkerLock), Error> {
        let names = (1_u32..).map(|number| format!("worker-{number}"));
        self.reserve_first(names, |worker| !worker.path.exists())
    }

    /// Locks a name for a run in the foreground: the one that it had before it was resumed, or that
    /// of its directory, with a number if need be. Leaves other background runs alone.
    pub fn reserve_default(
        &self,
        directory: &Path,
        resumed: Option<&str>,
    ) -> Result<(Worker, WorkerLock), Error> {
        let is_own = |worker: &Worker| resumed.is_some() && worker.run_id().as_deref() == resumed;
        let before = resumed.and_then(|_| self.all().ok()?.into_iter().find(is_own));
        let base = default_name(directory);
        let numbered = (2_u32..).map(|number| format!("{base}-{number}"));
        let names = before.map(|worker| worker.name).into_iter().chain([base.clone()]);
        self.reserve_first(names.chain(numbered), |worker| {
            let is_reusable = || worker.is_foreground() || is_own(worker);
            !worker.path.exists() || !worker.is_alive() && is_reusable()
        })
    }

    fn reserve_first(
        &self,
        names: impl Iterator<Item = String>,
        is_free: impl Fn(&Worker) -> bool,
    ) -> Result<(Worker, WorkerLock), Error> {
        for name in names {
            let worker = self.by_name(&name)?;
            if is_free(&worker)
                && let Some(held) = self.lock_within(Duration::ZERO, &worker)?
                // The previous holder may have taken it.
                && is_free(&worker)
            {
                return Ok((worker, held));
            }
        }
        Err(Error::failed("all names are taken"))
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

/// The name of a background run that is paused or running stays taken, even if its process is
/// gone.
fn check_name_free(worker: &Worker) -> Result<(), Error> {
    let name = &worker.name;
    let taken = |how: &str| {
        Error::failed(format!("run '{name}' already exists ({how})"))
            .hint(format!("choose another name, or stop it first: ralph kill {name}"))
    };
    match worker.load_state() {
        _ if worker.is_alive() => Err(taken("running")),
        StoredState::State(state) if !state.status.has_ended() && !state.foreground => {
            let error = taken(state.status.as_str());
            Err(error.hint(format!("its process is gone; to continue it: ralph resume {name}")))
        }
        StoredState::Invalid(why) => {
            let path = worker.state_path();
            let path = path.display();
            warn(&format!("invalid {path}: {why}; moved to {path}.broken"));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The run with this id, of any project.
pub fn find_by_id(id: &str) -> Option<(Project, RunDir)> {
    find_run_anywhere(id).ok().flatten()
}

/// Finds a run of any project by its id, the unique beginning of it, or its last four characters.
fn find_run_anywhere(wanted: &str) -> Result<Option<(Project, RunDir)>, Error> {
    let home = ralph_home(|name| std::env::var_os(name));
    let Some(home) = home.filter(|_| runs::is_id_part(wanted)) else { return Ok(None) };
    let mut found = Vec::new();
    for record in project_record::all_records(&home) {
        let project = Project::new(&record.root, &home);
        let runs = runs::list(&project.runs_dir()).unwrap_or_default();
        let selected = runs.into_iter().filter(|run| runs::is_selected(&run.id, wanted));
        found.extend(selected.map(|run| (project.clone(), run)));
    }
    only_match(found, wanted, |(_, run)| &run.id)
}

/// Fails if `wanted` selects several runs.
pub fn only_match<T>(
    mut found: Vec<T>,
    wanted: &str,
    name: impl Fn(&T) -> &str,
) -> Result<Option<T>, Error> {
    if let [first, second, ..] = found.as_slice() {
        let (first, second) = (name(first), name(second));
        let message = format!("{wanted:?} matches several runs: {first}, {second}, …");
        return Err(Error::input(message));
    }
    Ok(found.pop())
}

/// The directory's name, with characters that a name may have.
fn default_name(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let valid = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let valid: String = valid.take(MAX_DEFAULT_NAME).collect();
    let valid = valid.trim_matches('-');
    if valid.is_empty() { "run".to_owned() } else { valid.to_owned() }
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers() -> (tempfile::TempDir, Workers, Worker) {
        let dir = tempfile::tempdir().unwrap();
        let workers = Workers::at(dir.path().join("workers"));
        let worker = workers.by_name("agent").unwrap();
        worker.create().unwrap();
        (dir, workers, worker)
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
    fn worker_list_skips_other_directories() {
        let (dir, workers, _) = workers();
        std::fs::create_dir(dir.path().join("workers/.hidden")).unwrap();
        std::fs::create_dir(dir.path().join("workers/b")).unwrap();
        std::fs::write(dir.path().join("workers/file"), "").unwrap();
        let names: Vec<_> = workers.all().unwrap().into_iter().map(|worker| worker.name).collect();
        assert_eq!(names, ["agent", "b"]);
        assert!(workers.find("file").is_err() && workers.find("../workers").is_err());
    }

    #[test]
    fn default_names_are_valid() {
        for (directory, expected) in
            [("/src/app", "app"), ("/src/my app.rs", "my-app-rs"), ("/", "run"), ("/src/…", "run")]
        {
            assert_eq!(default_name(Path::new(directory)), expected);
        }
        assert!(is_valid_name(&format!("{}-999", default_name(Path::new(&"x".repeat(99))))));
    }
}
