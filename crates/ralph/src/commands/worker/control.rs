//! `ralph pause`, `resume`, `kill`, `rm`: asking a worker's loop, or doing it in the place of one that
//! is gone.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{RmArgs, WorkerSelection, spawn, warn, worker_files_error};
use crate::executors::tmux::Tmux;
use crate::workers::control::WorkerRequest;
use crate::workers::selection::for_each_worker;
use crate::workers::store::{LaunchRecord, StoredState, Worker, Workers};
use crate::workers::watch::WorkerWatcher;
use ralph_engine::rules::Budget;
use ralph_events::env_names;
use ralph_events::error::Error;
use ralph_process as process;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};

/// How long a loop may take to heed a request. It does so at once unless the machine is very busy.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The same of one that need not have anything to say.
const OPTIONAL_REQUEST_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a loop may take to end its agent.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long `kill --all` waits for a command that is spawning or resuming a worker.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long what a killed loop left behind has to leave.
const GRACE_MS: u64 = 2_000;

/// # Errors
/// There is no such worker, or it has come to its end.
pub fn pause(which: &WorkerSelection) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    let runs = |worker: &Worker| {
        matches!(worker.load_state(), StoredState::State(state) if state.status == WorkerStatus::Running)
            && worker.is_alive()
    };
    let chosen = which.select(&workers, runs)?;
    if chosen.is_empty() {
        return crate::cli::print("no worker is running\n");
    }
    for_each_worker(chosen, |worker| pause_one(&workers, worker, which.all))
}

/// Of all that run, one may come to its end meanwhile.
fn pause_one(workers: &Workers, worker: &Worker, all: bool) -> Result<(), Error> {
    let _held = workers.lock(worker)?;
    let name = &worker.name;
    let state = repaired_state(worker)?;
    match state.status {
        WorkerStatus::Paused => {
            warn(&format!("worker '{name}' is already paused"));
            return Ok(());
        }
        WorkerStatus::Running => {}
        _ if all => return Ok(()),
        over => {
            return Err(Error::failed(format!(
                "worker '{name}' is not running ({})",
                over.as_str()
            ))
            .hint(format!("ralph status {name}")));
        }
    }
    send_request(worker, WorkerRequest::Pause, WorkerStatus::Paused, |state| {
        state.status != WorkerStatus::Running
    })?;
    crate::cli::print(&format!("paused ralph loop for {name}\n")).map(drop)
}

/// # Errors
/// There is no such worker, or it cannot be started again.
pub fn resume(which: &WorkerSelection, more: NewLimits) -> Result<u8, Error> {
    let began = SystemTime::now();
    let workers = Workers::open_user_dir()?;
    let waits = |worker: &Worker| match worker.load_state() {
        StoredState::State(state) => can_resume(&state, worker.is_alive()),
        // What its journal tells is found out by trying.
        StoredState::Invalid(_) => !worker.is_alive(),
        StoredState::Missing => false,
    };
    let chosen = which.select(&workers, waits)?;
    if chosen.is_empty() {
        return crate::cli::print("no worker is paused\n");
    }
    for_each_worker(chosen, |worker| resume_one(&workers, worker, more, began))
}

/// What a worker may use from now on, what it has used before included.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewLimits {
    pub(crate) iterations: Option<u32>,
    pub(crate) budget: Budget,
}

/// One that is paused, or whose loop is gone without having come to its end.
fn can_resume(state: &WorkerState, alive: bool) -> bool {
    if alive { state.status == WorkerStatus::Paused } else { !state.status.has_ended() }
}

/// What it is given stays its limit. One that has come to its end goes on, too, unless it is complete, or has used its
/// iterations up; that its budget is used up is found by its loop.
fn resume_one(
    workers: &Workers,
    worker: &Worker,
    more: NewLimits,
    began: SystemTime,
) -> Result<(), Error> {
    let _held = workers.lock(worker)?;
    workers.refuse_if_killed(began)?;
    let (name, limit) = (&worker.name, more.iterations);
    if let (Some(odd), None) = (worker.invalid_limit(), limit) {
        let path = worker.state_path();
        let message = format!("max_iterations is {odd} in {}", path.display());
        return Err(Error::failed(message)
            .hint("it must be a whole number of at least 1")
            .hint(format!("ralph resume {name} -n 20 puts one there")));
    }
    let mut state = repaired_state(worker)?;
    let mut alive = worker.is_alive();
    if alive && state.status == WorkerStatus::Running {
        // Its loop knows better than what somebody may have written there. One that was just killed may wait
        // for the disk before it is gone.
        let mut watch = WorkerWatcher::new(worker);
        worker.wake();
        let told = watch.wait_for_within(OPTIONAL_REQUEST_TIMEOUT, || match worker.load_state() {
            StoredState::State(state) if state.status == WorkerStatus::Paused => Some(Some(*state)),
            _ => (!worker.is_alive()).then_some(None),
        });
        match told {
            Some(Some(paused)) => state = paused,
            Some(None) => (alive, state) = (false, repaired_state(worker)?),
            None => {}
        }
    }
    // One that has just come to its end is about to leave.
    let alive = alive && !(state.status.has_ended() && wait_or_kill(worker));
    if alive && !can_resume(&state, alive) || state.is_complete() {
        warn(&format!("worker '{name}' is not paused"));
        return Ok(());
    }
    if alive && !more.budget.is_none() {
        let message =
            format!("worker '{name}' is paused, and its loop keeps the budget that it has");
        return Err(Error::failed(message)
            .hint(format!("end it first (ralph kill {name}), then resume it with the other one")));
    }
    let begun = state.current_iteration;
    if let Some(limit) = limit {
        if limit < begun || limit == begun && !alive {
            return Err(Error::failed(format!(
                "worker '{name}' has begun {begun} iterations already, and those count"
            ))
            .hint(format!("ralph resume {name} -n {}", begun.saturating_add(10))));
        }
        state.max_iterations = limit;
    }
    if state.status.has_ended() {
        if state.max_iterations <= begun {
            warn(&format!(
                "worker '{name}' is not paused: it has used up its iterations; \
                 ralph resume {name} -n {} gives it more",
                begun.saturating_add(10)
            ));
            return Ok(());
        }
        // Whoever starts one again that had given up has done something about it.
        state.consecutive_failures = 0;
    }
    if alive {
        if limit.is_some() {
            worker.save(&state).map_err(|err| worker_files_error(worker, &err))?;
        }
        send_request(worker, WorkerRequest::Resume, WorkerStatus::Running, |state| {
            state.status != WorkerStatus::Paused
        })?;
    } else {
        restart(worker, state, more.budget)?;
    }
    crate::cli::print(&format!("resumed ralph loop for {name}\n")).map(drop)
}

/// The state of a worker. One that cannot be understood, and stays so for a moment, in which an editor
/// would have written the rest of it, is said and set aside; then its loop writes it again, or, if that
/// is gone, the journal of its run tells it.
fn repaired_state(worker: &Worker) -> Result<WorkerState, Error> {
    let whole =
        WorkerWatcher::new(worker).wait_for_within(OPTIONAL_REQUEST_TIMEOUT, || {
            match worker.load_state() {
                StoredState::Invalid(_) => None,
                known => Some(known),
            }
        });
    let why = match whole.unwrap_or_else(|| worker.load_state()) {
        StoredState::State(state) => return Ok(*state),
        StoredState::Missing => None,
        StoredState::Invalid(why) => Some(why),
    };
    let path = worker.state_path();
    if let Some(why) = &why {
        let aside = worker.move_aside();
        let now = aside.map(|aside| format!("; it is now {}", aside.display())).unwrap_or_default();
        warn(&format!("cannot understand {}: {why}{now}", path.display()));
    }
    if worker.is_alive() {
        let mut watch = WorkerWatcher::new(worker);
        worker.wake();
        let again = watch.wait_for_within(REQUEST_TIMEOUT, || match worker.load_state() {
            StoredState::State(state) => Some(*state),
            _ => None,
        });
        return again.map_or_else(|| worker.state(), Ok);
    }
    let Some(state) = worker.state_from_journal() else { return worker.state() };
    let _it = worker.claim().map_err(|err| worker_files_error(worker, &err))?;
    worker.save(&state).map_err(|err| worker_files_error(worker, &err))?;
    Ok(state)
}

/// Asks the loop and waits until its state says that it has heard. In the place of a loop that is gone
/// the status is written.
fn send_request(
    worker: &Worker,
    wish: WorkerRequest,
    status: WorkerStatus,
    heard: impl Fn(&WorkerState) -> bool,
) -> Result<(), Error> {
    let mut watch = WorkerWatcher::new(worker);
    worker.send_request(wish).map_err(|err| worker_files_error(worker, &err))?;
    let answer = watch.wait_for_within(REQUEST_TIMEOUT, || match worker.load_state() {
        StoredState::State(state) if heard(&state) => Some(true),
        _ => (!worker.is_alive()).then_some(false),
    });
    match answer {
        Some(true) => Ok(()),
        Some(false) => {
            worker.clear_requests();
            write_state_for_dead_loop(worker, status)
        }
        None => Err(Error::failed(format!("worker '{}' does not answer", worker.name))
            .hint("the request stays; it is heeded as soon as the loop can")
            .hint(format!("ralph kill {} ends it", worker.name))),
    }
}

/// Writes the state of a worker whose loop is gone.
fn write_state_for_dead_loop(worker: &Worker, status: WorkerStatus) -> Result<(), Error> {
    let _it = worker.claim().map_err(|err| worker_files_error(worker, &err))?;
    let mut state = worker.state()?;
    if !state.status.has_ended() {
        state.status = status;
    }
    worker.save(&state).map_err(|err| worker_files_error(worker, &err))
}

fn restart(worker: &Worker, state: WorkerState, budget: Budget) -> Result<(), Error> {
    let before = worker.launch()?;
    let launch = LaunchRecord { budget: budget.or(before.budget), ..before.clone() };
    kill_leftovers(worker, &state);
    let asleep = WorkerState { pid: None, ..state };
    {
        let _it = worker.claim().map_err(|err| worker_files_error(worker, &err))?;
        worker.save(&asleep).map_err(|err| worker_files_error(worker, &err))?;
    }
    if launch != before {
        worker.save_launch(&launch).map_err(|err| worker_files_error(worker, &err))?;
    }
    let opened = spawn::open_window(worker, None, |state| state.pid.is_some());
    if opened.is_err() && launch != before {
        // One that it did not start with is none that it was given. Another failure would hide the one that is told.
        let _ = worker.save_launch(&before);
    }
    opened.map(|_| ())
}

/// Ends a worker whose loop is gone, as that would have done it.
fn end_dead_worker(worker: &Worker) -> Result<(), Error> {
    let _it = worker.claim().map_err(|err| worker_files_error(worker, &err))?;
    let state = worker.state()?;
    if state.status.has_ended() {
        return Ok(());
    }
    let mut follower = WorkerTracker::new(state, TimeZone::system());
    let told = follower.mark_killed(Timestamp::now().as_millisecond());
    worker
        .append_log(&told.log_lines)
        .and_then(|()| worker.save(&follower.state))
        .map_err(|err| worker_files_error(worker, &err))
}

/// Ends what a loop that is gone has left running, and closes its window.
fn kill_leftovers(worker: &Worker, state: &WorkerState) {
    if let Some(run) = &state.run_id {
        process::kill_by_env(env_names::RUN_ID, run, GRACE_MS);
    }
    let tmux = Tmux::new(|name| std::env::var_os(name));
    if let Some(window) = tmux.find(&worker.name) {
        tmux.close(&window);
    }
}

/// # Errors
/// There is no such worker, or it cannot be ended.
pub fn kill(which: &WorkerSelection) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    if which.all {
        return kill_all(&workers);
    }
    let chosen = which.select(&workers, |worker| !has_ended(worker))?;
    // All agents are given their time to leave at once, not one after the other.
    let mut asked = Vec::new();
    for worker in chosen.iter().flatten().filter(|worker| chosen.len() > 1 && worker.is_alive()) {
        if worker.send_request(WorkerRequest::Kill).is_ok() {
            asked.push(worker.name.clone());
        }
    }
    for_each_worker(chosen, |worker| {
        let _held = workers.lock(worker)?;
        kill_one(worker, asked.contains(&worker.name))
    })
}

/// Kills every worker, those that are being spawned or resumed included.
fn kill_all(workers: &Workers) -> Result<u8, Error> {
    if let Err(err) = workers.record_kill_all() {
        warn(&format!("a worker that is just being spawned may be missed: {err}"));
    }
    let mut seen: Vec<String> = Vec::new();
    let mut failed = None;
    loop {
        let mut chosen = workers.locked_workers()?;
        chosen.extend(workers.all()?.into_iter().filter(|worker| !has_ended(worker)));
        chosen.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        chosen.dedup_by(|a, b| a.name == b.name);
        chosen.retain(|worker| !seen.contains(&worker.name));
        if chosen.is_empty() {
            break;
        }
        // All agents are given their time to leave at once, not one after the other.
        for worker in chosen.iter().filter(|worker| worker.is_alive()) {
            let _ = worker.send_request(WorkerRequest::Kill);
        }
        seen.extend(chosen.iter().map(|worker| worker.name.clone()));
        let all = chosen.into_iter().map(Ok).collect();
        let killed = for_each_worker(all, |worker| {
            let was_over = has_ended(worker);
            let _held = workers.lock_for(START_TIMEOUT, worker)?;
            // One that another command was busy with may be gone, or may have ended before.
            if !worker.path.exists() || was_over && has_ended(worker) {
                return Ok(());
            }
            kill_one(worker, true)
        });
        if let Err(error) = killed
            && let Some(before) = failed.replace(error)
        {
            crate::cli::print_error(&before);
        }
    }
    match failed {
        Some(error) => Err(error),
        None if seen.is_empty() => crate::cli::print("no worker is running\n"),
        None => Ok(0),
    }
}

/// Its loop is gone, and was to be.
fn has_ended(worker: &Worker) -> bool {
    // What is half written or missing tells of nothing that is to go on.
    !worker.is_alive()
        && !matches!(worker.load_state(), StoredState::State(state) if !state.status.has_ended())
}

/// Kills a worker that is held. One that was asked already may be gone by now.
fn kill_one(worker: &Worker, asked: bool) -> Result<(), Error> {
    let name = &worker.name;
    // One that cannot be mended is ended all the same.
    let state = repaired_state(worker).unwrap_or_default();
    if !worker.is_alive() && state.status.has_ended() && !asked {
        warn(&format!("worker '{name}' is not running"));
        return Ok(());
    }
    worker.send_request(WorkerRequest::Kill).map_err(|err| worker_files_error(worker, &err))?;
    if !wait_or_kill(worker) {
        return Err(Error::failed(format!("the loop of worker '{name}' cannot be ended"))
            .hint(format!("ralph attach {name} shows its window")));
    }
    worker.clear_requests();
    if let StoredState::State(state) = worker.load_state() {
        kill_leftovers(worker, &state);
        end_dead_worker(worker)?;
    } else {
        kill_leftovers(worker, &state);
    }
    crate::cli::print(&format!("killed {name}\n")).map(drop)
}

/// Waits for the end of a loop that was told to end, and ends it if it does not. Says whether it is gone.
pub(super) fn wait_or_kill(worker: &Worker) -> bool {
    let mut watch = WorkerWatcher::new(worker);
    let gone = || (!worker.is_alive()).then_some(());
    if watch.wait_for_within(KILL_TIMEOUT, gone).is_some() {
        return true;
    }
    // It holds its lock, so that the number in its state is still its own.
    if let StoredState::State(state) = worker.load_state()
        && let Some(pid) = state.pid
    {
        process::kill(pid);
    }
    watch.wait_for_within(REQUEST_TIMEOUT, gone).is_some()
}

/// # Errors
/// It still runs, or cannot be removed.
pub fn rm(args: &RmArgs) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    for_each_worker(args.which.select(&workers, has_ended)?, |worker| {
        let _held = workers.lock(worker)?;
        remove(worker, args)?;
        crate::cli::print(&format!("removed {}\n", worker.name)).map(drop)
    })
}

fn remove(worker: &Worker, args: &RmArgs) -> Result<(), Error> {
    let name = &worker.name;
    let status = match worker.load_state() {
        StoredState::State(state) if !state.status.has_ended() => Some(state.status.as_str()),
        _ => worker.is_alive().then_some("running"),
    };
    if let Some(status) = status {
        return Err(Error::failed(format!("worker '{name}' is {status}"))
            .hint(format!("end it first: ralph kill {name}")));
    }
    if let Some(worktree) = worker.launch().ok().and_then(|launch| launch.worktree) {
        let path = worktree.path.display();
        if args.worktree {
            let branch = &worktree.branch;
            if worktree.remove(args.force)? {
                crate::cli::print(&format!("the branch {branch} is kept\n"))?;
            }
        } else if worktree.path.exists() {
            warn(&format!("its worktree is kept: {path}"));
        }
    }
    worker.remove().map_err(|err| worker_files_error(worker, &err))
}
