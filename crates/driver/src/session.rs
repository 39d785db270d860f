//! Opens a project for a run: lock, recovery of the previous run, files.

use std::io;
use std::path::Path;
use std::time::Duration;

use ralph_events::env_names::RUN_ID;
use ralph_events::error::{Error, ErrorKind};
use ralph_events::event::{Event, Leftover};
use ralph_events::redact::redact_command;
use ralph_events::run_state::RunState;
use ralph_events::text;
use ralph_process as process;
use ralph_process::{Interrupts, System};
use ralph_report::warning_text::warning_text;
use ralph_store::active_marker;
use ralph_store::home;
use ralph_store::lock::{self, Holder, Lock, LockAttempt};
use ralph_store::private_files;
use ralph_store::project::Project;
use ralph_store::run_files::RunFiles;
use ralph_store::runs::{self, RunDir};
use ralph_store::save::save_privately;
use ralph_tasks::ledger_store;

use super::world::RealWorld;
use ralph_git::link_guard::{self, LinkGuard};

const LEFTOVER_GRACE_MS: u64 = 2_000;

/// How long to wait for a dead run's lock: a killed process may have left a child that has not called exec yet,
/// or another ralph is recovering it.
pub const LOCK_RETRY_FOR: Duration = Duration::from_secs(1);

#[expect(missing_debug_implementations, reason = "the world has trait objects in it")]
pub struct RunSession {
    pub run_id: String,
    pub world: RealWorld,
    /// Events about the previous run, or about this one before it was resumed.
    pub preface: Vec<Event<'static>>,
    is_new: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Retention {
    pub runs: usize,
    pub raw_bytes: u64,
}

impl Retention {
    /// Size limit of a log; never so small that it is useless.
    pub fn log_bytes(self) -> u64 {
        self.raw_bytes.max(1024 * 1024)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct SessionOptions<'a> {
    pub command: &'a str,
    pub retention: Retention,
    /// Other runs may share the directory.
    pub shared: bool,
    pub resume: Option<&'a str>,
    /// Journal size known to the caller.
    pub known_journal_bytes: Option<u64>,
    /// What is needed to resume the run; private, because settings may hold keys.
    pub spec: &'a [u8],
}

impl RunSession {
    /// Takes the project's lock, and creates or reopens the run's files.
    pub fn open(project: &Project, options: SessionOptions<'_>) -> Result<RunSession, Error> {
        let SessionOptions { retention, resume, .. } = options;
        let dir = project.ralph_dir();
        project.prepare_state().map_err(|err| home_not_writable_error(project, &err))?;
        project.prepare().map_err(|err| not_writable_error(&dir, &err))?;
        project.restrict_access();
        home::restrict_access(|name| std::env::var_os(name));
        let run_id = match resume {
            Some(run) => run.to_owned(),
            None => runs::new_id(jiff::Timestamp::now().as_millisecond()),
        };
        let me = Holder {
            pid: std::process::id(),
            run: run_id.clone(),
            command: options.command.to_owned(),
        };
        let lock_path = project.lock_path();
        let take = || {
            let taken = if options.shared {
                Lock::try_lock_shared(project.root(), &lock_path)
            } else {
                Lock::try_lock(project.root(), &lock_path, &me)
            };
            taken.map_err(|err| home_not_writable_error(project, &err))
        };
        let is_gone = |holder: &Holder| process::has_exited(holder.pid);
        let passes = |holder: Option<&Holder>| resume.is_some() || holder.is_some_and(is_gone);
        let (lock, cut_off) = match lock_with_retry(take, passes)? {
            LockAttempt::Acquired { lock, cut_off } => (lock, cut_off),
            LockAttempt::Held(holder) => return Err(locked_error(project.root(), holder)),
        };
        let home = home::ralph_home(|name| std::env::var_os(name));
        let open = || {
            // Signal handlers come before anything that needs cleanup.
            let system = System::new()
                .map_err(|err| Error::failed(format!("cannot watch processes: {err}")))?;
            let run = project.run_dir(&run_id);
            // From here on no other process can resume it.
            if options.known_journal_bytes.is_some_and(|known| known != run.journal_size()) {
                return Err(Error::input(format!("another ralph resumed run {run_id} meanwhile"))
                    .hint(format!("see its result: ralph report {run_id}")));
            }
            let opened = open_files(&run, retention, resume.is_some(), options.spec)
                .map_err(|err| home_not_writable_error(project, &err))
                .and_then(|files| {
                    // Last, so that every recorded run has really started.
                    let links =
                        LinkGuard::start(home.as_deref(), project.root()).map_err(|err| {
                            Error::input(err.to_string()).hint(link_guard::hint(&err))
                        })?;
                    Ok((system, files, links))
                });
            opened.inspect_err(|_| {
                if resume.is_none() {
                    let _ = runs::remove(&run);
                }
            })
        };
        match open() {
            Ok((system, files, (links, found))) => {
                let before = cut_off.as_ref();
                let warning = |message: String| Event::Warning { message: message.into() };
                let found = link_guard::take_warnings().into_iter().chain(found);
                let mut preface: Vec<Event<'static>> = found.map(warning).collect();
                if let Some(before) = before.filter(|before| before.run != run_id) {
                    preface.extend(unfinished_run_event(project, before));
                    preface.extend(kill_leftovers(&before.run));
                }
                if resume.is_some() {
                    preface.extend(kill_leftovers(&run_id));
                }
                if let torn @ 1.. = files.truncated_bytes() {
                    let message = format!(
                        "the last line of the journal was incomplete and was removed ({torn} bytes)"
                    );
                    preface.push(Event::Warning { message: message.into() });
                }
                // A new run must be visible. Old runs that cannot be removed only take up space.
                let spare = before.map(|before| before.run.as_str()).or(resume);
                let _ = runs::prune(
                    &project.runs_dir(),
                    &project.ralph_dir(),
                    retention.runs.max(1),
                    spare,
                );
                let mut world =
                    RealWorld::new(system, files, project.clone(), lock, retention.log_bytes());
                world.set_link_guard(links);
                Ok(RunSession { run_id, world, preface, is_new: resume.is_none() })
            }
            Err(err) => {
                // This run never started; the interrupted one before it must still be reported.
                let _ = lock.release(cut_off.as_ref());
                Err(err)
            }
        }
    }

    /// Releases the project. Otherwise the next start reports an interrupted run.
    pub fn close(self) {
        // If the lock file cannot be cleared, the next start reports an interruption; the disk is not writable
        // then.
        let _ = self.world.close();
    }

    /// Releases a run that never started and removes its files; a resumed run stays.
    pub fn discard(self) {
        let dir = self.world.run_dir().clone();
        let is_new = self.is_new;
        self.close();
        if is_new {
            let _ = runs::remove(&dir);
        }
    }
}

/// Takes a lock, retrying briefly while its holder is temporary.
fn lock_with_retry(
    take: impl FnMut() -> Result<LockAttempt, Error>,
    passes: impl Fn(Option<&Holder>) -> bool,
) -> Result<LockAttempt, Error> {
    let again = |taken: &Result<LockAttempt, Error>| matches!(taken, Ok(LockAttempt::Held(holder)) if passes(holder.as_ref()));
    lock::retry(LOCK_RETRY_FOR, take, again)
}

/// Ends the leftover processes of a dead run, before files are read that they may be writing. `tell` says so at
/// once, because it takes a while.
///
/// # Errors A stop was requested meanwhile; the processes are gone all the same.
pub fn recover(
    project: &Project,
    mut tell: impl FnMut(&str),
) -> Result<Option<Event<'static>>, Error> {
    let note = project.lock_path();
    let sign = active_marker::exists(project.root());
    let cut_off = lock::read_holder(&note);
    if cut_off.is_none() && !sign {
        return Ok(None);
    }
    // The lock's holder is alive.
    let Ok(Some(_idle)) = lock::lock_briefly(project.root(), &note) else { return Ok(None) };
    if sign {
        active_marker::remove_stale(project.root());
    }
    let Some(Holder { run, .. }) = lock::read_holder(&note) else { return Ok(None) };
    if process::find_by_env(RUN_ID, &run).is_empty() {
        return Ok(None);
    }
    let interrupts = Interrupts::install().ok();
    tell(&format!("killing the processes that run {} left behind", text::suffix(&run, 4)));
    let mut asked = false;
    let ended = process::kill_by_env(RUN_ID, &run, LEFTOVER_GRACE_MS, || {
        asked |= interrupts.is_some_and(Interrupts::take_interrupt);
        asked
    });
    asked |= interrupts.is_some_and(Interrupts::take_interrupt);
    let recovered = recovered_event(&run, ended);
    if asked {
        recovered.as_ref().and_then(warning_text).iter().for_each(|message| tell(message));
        return Err(Error::new(ErrorKind::Interrupted, "interrupted; nothing was started"));
    }
    Ok(recovered)
}

/// Blocks runs while a command changes their files, until the result is dropped.
///
/// # Errors A run is active.
pub fn lock_project_idle(project: &Project) -> Result<Option<std::fs::File>, Error> {
    lock::lock_briefly(project.root(), &project.lock_path())
        .map_err(|holder| locked_error(project.root(), holder))
}

/// Locks a task list for a run, until the result is dropped. Without a home there is no lock, but the project's
/// own still holds.
///
/// # Errors Another run, perhaps of another project, works on it.
pub fn lock_task_list(
    home: Option<&Path>,
    list: &Path,
    me: &Holder,
) -> Result<Option<Lock>, Error> {
    let Some(directory) = home.map(|home| ledger_store::lock_directory(home, list)) else {
        return Ok(None);
    };
    let _ = private_files::create_dir_all(&directory);
    match Lock::try_lock(&directory, &directory.join("lock"), me) {
        Ok(LockAttempt::Acquired { lock, .. }) => Ok(Some(lock)),
        Ok(LockAttempt::Held(holder)) => Err(locked_error(list, holder)),
        Err(_) => Ok(None),
    }
}

/// Blocks runs on a task list while a command replaces it, until the result is dropped.
///
/// # Errors A run works on it.
pub fn lock_task_list_idle(
    home: Option<&Path>,
    list: &Path,
) -> Result<Option<std::fs::File>, Error> {
    let Some(directory) = home.map(|home| ledger_store::lock_directory(home, list)) else {
        return Ok(None);
    };
    lock::lock_briefly(&directory, &directory.join("lock"))
        .map_err(|holder| locked_error(list, holder))
}

pub fn not_writable_error(path: &Path, err: &io::Error) -> Error {
    let hint = match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DISK_FULL_HINT,
        io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => {
            "ralph needs this path for its own files; move the existing file away"
        }
        _ => "ralph stores its logs there; make it writable",
    };
    Error::input(format!("cannot write {}: {err}", path.display())).hint(hint)
}

pub fn home_not_writable_error(project: &Project, err: &io::Error) -> Error {
    let hint = match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DISK_FULL_HINT,
        _ => {
            "ralph stores its runs there; make it writable, or set RALPH_HOME to a directory that is"
        }
    };
    let path = project.state_dir().display();
    Error::input(format!("cannot write {path}: {err}")).hint(hint)
}

const DISK_FULL_HINT: &str = "the disk is full: free some space and run again; nothing was started";

fn locked_error(what: &Path, holder: Option<Holder>) -> Error {
    let what = what.display();
    match holder {
        Some(Holder { pid, run, command }) => {
            Error::input(format!("{what} is in use by `ralph {command}` (pid {pid}, run {run})"))
                .hint(format!("wait for it to end, or stop it: ralph kill {run}"))
        }
        None => Error::input(format!("{what} is in use by another ralph process"))
            .hint("wait for it to end; `ralph ls` lists all runs"),
    }
}

/// Opens a run's files; the data for a resume is written before the run exists.
fn open_files(run: &RunDir, keep: Retention, resume: bool, spec: &[u8]) -> io::Result<RunFiles> {
    if !resume {
        run.create()?;
    }
    save_privately(&run.spec(), spec)?;
    // The run may have been killed before its journal existed.
    if resume && run.journal().exists() {
        RunFiles::reopen(run.clone(), keep.raw_bytes)
    } else {
        RunFiles::create(run.clone(), keep.raw_bytes)
    }
}

fn unfinished_run_event(project: &Project, before: &Holder) -> Option<Event<'static>> {
    let run = &before.run;
    let path = project.run_dir(run).journal();
    let state = runs::read_journal(&path).map_or_else(|_| RunState::default(), RunState::read);
    if state.end.is_some() {
        return None;
    }
    let short = text::suffix(run, 4);
    let mut message = format!("the last run ({short}) was interrupted");
    if state.totals.iteration > 0 {
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let ago = format_age(now_ms.saturating_sub(state.clock.last_ms));
        message.push_str(&format!(" in iteration {}, {ago}", state.totals.iteration));
    }
    if path.exists() {
        message.push_str(&format!(". Continue it with `ralph resume {short}`."));
    }
    Some(Event::Note { message: message.into(), important: true })
}

/// In words, such as `12 minutes ago`.
fn format_age(ms: i64) -> String {
    let (count, unit) = match ms / 60_000 {
        ..1 => return "just now".to_owned(),
        minutes @ ..120 => (minutes, "minute"),
        minutes @ ..2_880 => (minutes / 60, "hour"),
        minutes => (minutes / 1_440, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

fn kill_leftovers(run: &str) -> Option<Event<'static>> {
    recovered_event(run, process::kill_by_env(RUN_ID, run, LEFTOVER_GRACE_MS, || false))
}

fn recovered_event(run: &str, mut processes: Vec<Leftover>) -> Option<Event<'static>> {
    for process in &mut processes {
        process.command = redact_command(&process.command).into_owned();
    }
    (!processes.is_empty()).then(|| Event::Recovered { run: run.to_owned().into(), processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_held_for_dead_process_is_retried() {
        for (pid, waits) in [(i32::MAX.unsigned_abs(), true), (std::process::id(), false)] {
            let dir = tempfile::tempdir().unwrap();
            let note = dir.path().join("lock");
            let named = Holder { pid, run: "r".into(), command: "run".into() };
            std::fs::write(&note, serde_json::to_vec(&named).unwrap()).unwrap();
            let mut held = lock::lock_briefly(dir.path(), &note).unwrap();
            let mut asked = 0;
            let me = Holder { pid: 1, ..named.clone() };
            let take = || {
                asked += 1;
                if asked == 2 {
                    held = None;
                }
                Ok(Lock::try_lock(dir.path(), &note, &me).unwrap())
            };
            let is_gone = |holder: Option<&Holder>| process::has_exited(holder.unwrap().pid);
            match lock_with_retry(take, is_gone).unwrap() {
                LockAttempt::Acquired { cut_off, .. } => {
                    assert_eq!((cut_off, waits), (Some(named), true))
                }
                LockAttempt::Held(by) => assert_eq!((by, waits), (Some(named), false)),
            }
            assert_eq!(asked, 1 + u32::from(waits));
        }
    }
}
