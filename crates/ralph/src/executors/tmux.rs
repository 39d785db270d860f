//! A window of tmux, which outlives the terminal of the user.

mod client;

use std::ffi::OsString;
use std::time::{Duration, Instant};

pub use client::{SESSION_NAME, Tmux, TmuxWindow};

use super::{Executor, Start};
use crate::cli::warn;
use crate::workers::store::{StoredState, Worker, worker_files_error};
use crate::workers::watch::{WatchResult, WorkerWatcher};
use ralph_events::error::{Error, ErrorKind};
use ralph_process::{self as process, Interrupts, trust};
use ralph_report::worker_lines::{WorkerState, WorkerStatus};
use ralph_store::lock;

const START_TIMEOUT: Duration = Duration::from_secs(30);

const WINDOW_CHECK_INTERVAL: Duration = Duration::from_millis(500);

const WINDOW_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct TmuxExecutor;

impl Executor for TmuxExecutor {
    /// Opens a window whose command starts the run in its own process, and waits until it has begun.
    /// Closes the window on failure.
    fn start(&self, run: &Worker, interrupts: Option<Interrupts>) -> Result<Start, Error> {
        let name = &run.name;
        let ralph = std::env::current_exe()
            .map_err(|err| Error::failed(format!("cannot find the ralph program: {err}")))?;
        run.clear_requests();
        run.take_early_end();
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        run.reserve()
            .and_then(|()| run.save_environment(&variables))
            .map_err(|err| worker_files_error(run, &err))?;
        let tmux = Tmux::new(|name| std::env::var_os(name));
        let command = [ralph.into(), "worker-loop".into(), name.into()];
        let window = tmux.open(name, &command).map_err(|err| {
            run.take_environment();
            run.release();
            Error { message: format!("cannot open a window for '{name}': {}", err.message), ..err }
        })?;
        wait_for_start(run, &window, &tmux, interrupts).inspect_err(|_| {
            tmux.close(&window);
            run.take_environment();
            run.release();
            // The closed window ends the loop: wait until it cannot write any more.
            run.wait_or_kill();
        })
    }

    fn attach(&self, run: &Worker) -> Result<u8, Error> {
        let tmux = Tmux::new(|name| std::env::var_os(name));
        let window = find_window(&tmux, run)?;
        let inside = std::env::var_os("TMUX");
        let command: Vec<OsString> = tmux.attach_command(&window, inside.as_deref())?;
        let Some((program, rest)) = command.split_first() else { return Ok(0) };
        // Unset `TMUX` to allow nested clients.
        let keeps_tmux = rest.iter().any(|word| word == "switch-client");
        let changes = trust::outside_env(&[]);
        let is_changed = |name: &OsString| changes.iter().any(|(other, _)| other == name);
        let is_kept = |name: &OsString| !is_changed(name) && (keeps_tmux || name != "TMUX");
        let env = std::env::vars_os().filter(|(name, _)| is_kept(name));
        let set = changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let env = env.chain(set).collect();
        let err = process::exec(program, rest, Some(env));
        Err(Error::failed(format!("tmux: {err}")))
    }

    fn close(&self, run: &Worker) {
        let tmux = Tmux::new(|name| std::env::var_os(name));
        if let Some(window) = tmux.find(&run.name) {
            tmux.close(&window);
        }
    }
}

pub fn find_window(tmux: &Tmux, run: &Worker) -> Result<TmuxWindow, Error> {
    let name = &run.name;
    tmux.find(name).ok_or_else(|| {
        Error::failed(format!("{} has no window: its loop is not running", run.label()))
            .hint(format!("ralph status {name}, or ralph logs {name}"))
    })
}

/// A window may contain the loop of a worker whose files were removed. The window of a worker that
/// has just ended closes soon.
pub fn check_window_free(worker: &Worker) -> Result<(), Error> {
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let name = &worker.name;
    if lock::holds_for(WINDOW_CLOSE_TIMEOUT, || tmux.find(name).is_some()) {
        return Err(Error::failed(format!("tmux window '{name}' already exists"))
            .hint("it may contain a run whose files were removed")
            .hint(format!("close it: tmux kill-window -t {SESSION_NAME}:{name}"))
            .hint("or choose another name"));
    }
    if tmux.exits_when_unattached() {
        warn(
            "tmux exits with all workers when no client is attached: remove `exit-unattached on` \
             from its configuration",
        );
    }
    Ok(())
}

fn wait_for_start(
    worker: &Worker,
    window: &TmuxWindow,
    tmux: &Tmux,
    interrupts: Option<Interrupts>,
) -> Result<Start, Error> {
    let name = &worker.name;
    let (mut last_check, mut gone) = (Instant::now(), false);
    let mut watch = WorkerWatcher::new(worker).with_interrupts(interrupts);
    let started = watch.wait_for(Some(START_TIMEOUT), WINDOW_CHECK_INTERVAL, || {
        match worker.take_early_end() {
            Some(Err(failure)) => {
                let message = format!("the loop of '{name}' did not start: {}", failure.message);
                return Some(Err(Error { message, ..failure }));
            }
            Some(Ok(code)) => return Some(Ok(Start::Ended(code))),
            None => {}
        }
        match worker.load_state() {
            StoredState::State(state) if has_begun(&state) => {
                return Some(Ok(Start::Begun(state)));
            }
            _ => {}
        }
        if gone {
            let message = format!("the window of '{name}' closed before its loop started");
            return Some(Err(Error::failed(message)));
        }
        // Every query starts a tmux process, so limit them. Then read the state once more.
        if last_check.elapsed() >= WINDOW_CHECK_INTERVAL {
            gone = tmux.windows().iter().all(|it| it.id != window.id);
            last_check = Instant::now();
        }
        None
    });
    let started = match started {
        WatchResult::Found(started) => started?,
        WatchResult::Nothing => {
            let seconds = START_TIMEOUT.as_secs();
            let message = format!("the loop of '{name}' did not start within {seconds} s");
            return Err(Error::failed(message));
        }
        WatchResult::Interrupted => {
            let message = format!("interrupted before the loop of '{name}' started");
            return Err(Error::new(ErrorKind::Interrupted, message));
        }
    };
    match started {
        Start::Begun(state)
            if state.status == WorkerStatus::Failed && state.current_iteration == 0 =>
        {
            let why = state.message.unwrap_or_default();
            Err(Error::failed(format!("the loop of '{name}' did not start: {why}")))
        }
        started => Ok(started),
    }
}

/// A state without a process is older than the start. Runs with a task list may check it before
/// their first iteration.
fn has_begun(state: &WorkerState) -> bool {
    let is_under_way = state.current_iteration > 0 || state.status.has_ended();
    state.pid.is_some() && (is_under_way || !state.is_spawned())
}
