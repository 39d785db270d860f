//! `ralph pause`, `resume`, `kill`, `rm`: requests to a worker's loop, or the same done for a loop
//! that is gone.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{KillArgs, RmArgs, WorkerSelection, warn, worker_files_error};
use crate::cli::args::BudgetArgs;
use crate::commands::resume::ResumeArgs;
use crate::executors::executor_of;
use crate::workers::registry::Workers;
use crate::workers::selection::for_each_worker;
use crate::workers::store::{StoredState, Worker};
use crate::workers::watch::WorkerWatcher;
use ralph_events::env_names;
use ralph_events::error::Error;
use ralph_process as process;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_store::requests::Request;

/// Much longer than a loop takes on an idle machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// For a loop that may have nothing to answer.
const OPTIONAL_REQUEST_TIMEOUT: Duration = Duration::from_millis(300);

/// How long `kill --all` waits for a command that is spawning or resuming a worker.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between TERM and KILL for leftovers of a killed loop.
const GRACE_MS: u64 = 2_000;

pub fn pause(selection: &WorkerSelection) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    let is_running = |worker: &Worker| {
        let state = worker.load_state().known();
        state.is_some_and(|state| state.status == WorkerStatus::Running) && worker.is_alive()
    };
    let selected = selection.select(&workers, is_running)?;
    if selected.is_empty() {
        return crate::cli::print("no runs are active\n");
    }
    for_each_worker(selected, |worker| pause_one(&workers, worker, selection.all))
}

/// With `all`, a worker that ends meanwhile is not an error.
fn pause_one(workers: &Workers, worker: &Worker, all: bool) -> Result<(), Error> {
    let _held = workers.lock(worker)?;
    worker.refuse_past()?;
    worker.refuse_old_loop()?;
    let (name, label) = (worker.handle(), worker.label());
    let state = repaired_state(worker)?;
    match state.status {
        WorkerStatus::Paused => {
            warn(&format!("worker '{}' is already paused", worker.name));
            return Ok(());
        }
        WorkerStatus::Running => {}
        _ if all => return Ok(()),
        over => {
            let message = format!("{label} is not running ({})", over.as_str());
            return Err(Error::failed(message).hint(format!("ralph status {name}")));
        }
    }
    send_request(worker, &Request::Pause, WorkerStatus::Paused, |state| {
        state.status != WorkerStatus::Running
    })?;
    crate::cli::print(&format!("paused ralph loop for {name}\n")).map(drop)
}

pub fn resume(selection: &WorkerSelection, args: &ResumeArgs) -> Result<u8, Error> {
    let started = SystemTime::now();
    let workers = Workers::open_user_dir()?;
    let is_resumable = |worker: &Worker| match worker.load_state() {
        // A run of a terminal that has ended needs one again.
        StoredState::State(state) if state.foreground && !worker.is_alive() => false,
        StoredState::State(state) => can_resume(&state, worker.is_alive()),
        // May be rebuilt from the journal.
        StoredState::Invalid(_) => !worker.is_alive(),
        StoredState::Missing => false,
    };
    let selected = selection.select(&workers, is_resumable)?;
    if selected.is_empty() {
        return crate::cli::print("no background runs are paused\n");
    }
    for_each_worker(selected, |worker| resume_one(&workers, worker, args, started))
}

fn can_resume(state: &WorkerState, alive: bool) -> bool {
    if alive { state.status == WorkerStatus::Paused } else { !state.status.has_ended() }
}

/// Stores the new limits. A worker that has ended is resumed, too, unless it is complete or out of
/// iterations. Its loop checks the budget.
fn resume_one(
    workers: &Workers,
    worker: &Worker,
    args: &ResumeArgs,
    command_start: SystemTime,
) -> Result<(), Error> {
    let _held = workers.lock(worker)?;
    workers.refuse_if_killed(command_start)?;
    worker.refuse_old_loop()?;
    let (name, label, limit) = (&worker.name, worker.label(), args.max_iterations);
    if let (Some(odd), None) = (worker.invalid_limit(), limit) {
        let path = worker.state_path();
        let message = format!("max_iterations is {odd} in {}", path.display());
        return Err(Error::failed(message)
            .hint("it must be a whole number from 1")
            .hint(format!("set it: ralph resume {name} -n 20")));
    }
    let mut state = repaired_state(worker)?;
    let mut alive = worker.is_alive();
    if alive && state.status == WorkerStatus::Running {
        // The state file may have been edited: ask the loop. A loop that was just killed may still
        // be waiting for the disk.
        let mut watch = WorkerWatcher::new(worker);
        worker.wake();
        let answer =
            watch.wait_for_within(OPTIONAL_REQUEST_TIMEOUT, || match worker.load_state() {
                StoredState::State(state) if state.status == WorkerStatus::Paused => {
                    Some(Some(*state))
                }
                _ => (!worker.is_alive()).then_some(None),
            });
        match answer {
            Some(Some(paused)) => state = paused,
            Some(None) => (alive, state) = (false, repaired_state(worker)?),
            None => {}
        }
    }
    // Just ended, and about to exit.
    let alive = alive && !(state.status.has_ended() && worker.wait_or_kill());
    if state.is_complete() {
        warn(&format!("{label} has ended: {}", state.end_clause()));
        return Ok(());
    }
    if alive && !can_resume(&state, alive) {
        warn(&format!("worker '{name}' is not paused"));
        return Ok(());
    }
    if alive && !args.budget.is_none() {
        let message = format!("cannot change the budget of {label} while it is paused");
        return Err(Error::failed(message).hint(format!(
            "stop it first (ralph kill {name}), then resume it with the new budget"
        )));
    }
    let used = state.current_iteration;
    if let Some(limit) = limit {
        if limit < used || limit == used && !alive {
            let message = format!("{label} has already started {used} iterations, which count");
            return Err(Error::failed(message)
                .hint(format!("ralph resume {name} -n {}", used.saturating_add(10))));
        }
        state.max_iterations = limit;
    }
    if state.status.has_ended() {
        if state.max_iterations <= used {
            return Err(Error::failed(format!("{label} has ended: no iterations left")).hint(
                format!("raise the limit: ralph resume {name} -n {}", used.saturating_add(10)),
            ));
        }
        // The user has presumably fixed the cause.
        state.consecutive_failures = 0;
    }
    if alive {
        if limit.is_some() {
            worker.save(&state).map_err(|err| worker_files_error(worker, &err))?;
        }
        let request = Request::Resume { max_iterations: limit };
        send_request(worker, &request, WorkerStatus::Running, |state| {
            state.status != WorkerStatus::Paused
        })?;
    } else {
        restart(worker, state, &args.budget)?;
    }
    crate::cli::print(&format!("resumed ralph loop for {name}\n")).map(drop)
}

/// Loads the state. A file that stays unreadable longer than an editor takes to save it is moved
/// aside with a warning; the loop writes it again, or, if that is gone, it is rebuilt from the
/// journal.
fn repaired_state(worker: &Worker) -> Result<WorkerState, Error> {
    let readable = WorkerWatcher::new(worker).wait_for_within(OPTIONAL_REQUEST_TIMEOUT, || {
        match worker.load_state() {
            StoredState::Invalid(_) => None,
            known => Some(known),
        }
    });
    let why = match readable.unwrap_or_else(|| worker.load_state()) {
        StoredState::State(state) => return Ok(*state),
        StoredState::Missing => None,
        StoredState::Invalid(why) => Some(why),
    };
    let path = worker.state_path();
    if let Some(why) = &why {
        let aside = worker.move_aside();
        let now = aside.map(|aside| format!("; moved to {}", aside.display())).unwrap_or_default();
        warn(&format!("invalid {}: {why}{now}", path.display()));
    }
    if worker.is_alive() {
        let mut watch = WorkerWatcher::new(worker);
        worker.wake();
        let rewritten = watch.wait_for_within(REQUEST_TIMEOUT, || worker.load_state().known());
        return rewritten.map_or_else(|| worker.state(), |state| Ok(*state));
    }
    let Some(state) = worker.state_from_journal() else { return worker.state() };
    worker.claim_and_save(&state)?;
    Ok(state)
}

/// Sends the request and waits for the state to confirm it. If the loop is gone, writes the status
/// itself.
fn send_request(
    worker: &Worker,
    request: &Request,
    status: WorkerStatus,
    is_confirmed: impl Fn(&WorkerState) -> bool,
) -> Result<(), Error> {
    let mut watch = WorkerWatcher::new(worker);
    executor_of(worker).request(worker, request).map_err(|err| worker_files_error(worker, &err))?;
    let answer = watch.wait_for_within(REQUEST_TIMEOUT, || match worker.load_state() {
        StoredState::State(state) if is_confirmed(&state) => Some(true),
        _ => (!worker.is_alive()).then_some(false),
    });
    match answer {
        Some(true) => Ok(()),
        Some(false) => {
            worker.clear_requests();
            let state = worker.state()?;
            let status = if state.status.has_ended() { state.status } else { status };
            worker.claim_and_save(&WorkerState { status, ..state })
        }
        None => Err(Error::failed(format!("{} does not respond", worker.label()))
            .hint("the request is saved and takes effect when it responds")
            .hint(format!("to stop it now: ralph kill {}", worker.handle()))),
    }
}

fn restart(worker: &Worker, state: WorkerState, budget: &BudgetArgs) -> Result<(), Error> {
    let before = worker.spec()?;
    // The new process kills and records what the old one left behind.
    executor_of(worker).close(worker);
    worker.claim_and_save(&WorkerState { pid: None, ..state })?;
    let has_new_budget = !budget.is_none();
    if has_new_budget {
        let mut spec = before.clone();
        spec.set_limits(None, budget);
        worker.save_spec(&spec).map_err(|err| worker_files_error(worker, &err))?;
    }
    let opened = executor_of(worker).start(worker, None);
    if opened.is_err() && has_new_budget {
        // The worker did not start with the new budget. The first error is the one to report.
        let _ = worker.save_spec(&before);
    }
    opened.map(|_| ())
}

/// Records the end of a worker whose loop is gone, as the loop would have.
fn end_dead_worker(worker: &Worker) -> Result<(), Error> {
    let _it = worker.claim().map_err(|err| worker_files_error(worker, &err))?;
    let state = worker.state()?;
    if state.status.has_ended() {
        return Ok(());
    }
    let run = worker.run().and_then(|(_, run)| run.read_state().ok()).unwrap_or_default();
    let mut tracker = WorkerTracker::new(state, TimeZone::system());
    let update = tracker.mark_killed(Timestamp::now().as_millisecond(), &run);
    worker
        .append_log(&update.log_lines)
        .and_then(|()| worker.save(&tracker.state))
        .map_err(|err| worker_files_error(worker, &err))
}

fn kill_leftovers(worker: &Worker, state: &WorkerState) {
    if let Some(run) = &state.run_id {
        process::kill_by_env(env_names::RUN_ID, run, GRACE_MS, || false);
    }
    executor_of(worker).close(worker);
}

pub fn kill(args: &KillArgs) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    let selection = &args.which;
    if args.after_iteration {
        return stop_after_iteration(&workers, selection);
    }
    if selection.all {
        return kill_all(&workers);
    }
    let selected = selection.select(&workers, |worker| !has_ended(worker))?;
    // Ask all first, for the grace periods to overlap.
    let mut asked = Vec::new();
    for worker in selected.iter().flatten().filter(|worker| selected.len() > 1 && worker.is_alive())
    {
        if worker.send_request(&Request::STOP).is_ok() {
            asked.push(worker.name.clone());
        }
    }
    for_each_worker(selected, |worker| {
        let _held = workers.lock(worker)?;
        kill_one(worker, asked.contains(&worker.name))
    })
}

/// A run that has no process, or waits for one, is stopped at once.
fn stop_after_iteration(workers: &Workers, selection: &WorkerSelection) -> Result<u8, Error> {
    let selected = selection.select(workers, Worker::is_alive)?;
    if selected.is_empty() {
        return crate::cli::print("no worker is running\n");
    }
    for_each_worker(selected, |worker| {
        let (handle, label) = (worker.handle(), worker.label());
        worker.refuse_old_loop()?;
        if !worker.is_alive() {
            return Err(Error::failed(format!("{label} is not running"))
                .hint(format!("ralph status {handle}")));
        }
        let request = Request::Stop { now: false };
        worker.send_request(&request).map_err(|err| worker_files_error(worker, &err))?;
        crate::cli::print(&format!("{handle} stops after the current iteration\n")).map(drop)
    })
}

/// Also kills workers that are being spawned or resumed.
fn kill_all(workers: &Workers) -> Result<u8, Error> {
    if let Err(err) = workers.record_kill_all() {
        warn(&format!("a run that is starting right now may be missed: {err}"));
    }
    let mut handled: Vec<String> = Vec::new();
    let mut failed = None;
    loop {
        let mut selected = workers.locked_workers()?;
        selected.extend(workers.all()?.into_iter().filter(|worker| !has_ended(worker)));
        selected.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        selected.dedup_by(|a, b| a.name == b.name);
        selected.retain(|worker| !handled.contains(&worker.name));
        if selected.is_empty() {
            break;
        }
        let over: Vec<Worker> = selected.iter().filter(|it| has_ended(it)).cloned().collect();
        // Ask all first, for the grace periods to overlap.
        for worker in selected.iter().filter(|worker| worker.is_alive()) {
            let _ = worker.send_request(&Request::STOP);
        }
        handled.extend(selected.iter().map(|worker| worker.name.clone()));
        let all = selected.into_iter().map(Ok).collect();
        let killed = for_each_worker(all, |worker| {
            let was_over = over.iter().any(|it| it.name == worker.name);
            let _held = workers.lock_for(START_TIMEOUT, worker)?;
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
        None if handled.is_empty() => crate::cli::print("no runs are active\n"),
        None => Ok(0),
    }
}

fn has_ended(worker: &Worker) -> bool {
    // An unreadable state does not count as running, and a run of a terminal ends with its process.
    let state = worker.load_state().known();
    !worker.is_alive() && state.is_none_or(|state| state.status.has_ended() || state.foreground)
}

/// `asked`: a kill request was already sent.
fn kill_one(worker: &Worker, asked: bool) -> Result<(), Error> {
    let (name, label) = (worker.handle(), worker.label());
    if let Err(ended) = worker.refuse_past() {
        warn(&ended.message);
        return Ok(());
    }
    let state = repaired_state(worker).unwrap_or_default();
    if !worker.is_alive() && state.status.has_ended() && !asked {
        warn(&format!("{label} is not running"));
        return Ok(());
    }
    worker.send_request(&Request::STOP).map_err(|err| worker_files_error(worker, &err))?;
    if !worker.wait_or_kill() {
        return Err(Error::failed(format!("cannot kill the loop of {label}"))
            .hint(format!("look at its window: ralph attach {name}")));
    }
    worker.clear_requests();
    let last = worker.load_state().known();
    kill_leftovers(worker, last.as_deref().unwrap_or(&state));
    if last.is_some() {
        end_dead_worker(worker)?;
    }
    crate::cli::print(&format!("killed {name}\n")).map(drop)
}

pub fn rm(args: &RmArgs) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    let removed = for_each_worker(args.which.select(&workers, has_ended)?, |worker| {
        let _held = workers.lock(worker)?;
        remove(worker, args)?;
        let older = |past: &Worker| past.name == worker.name && !worker.is_past();
        let runs = match unlist_past(&workers, older)? {
            0 => String::new(),
            older => format!(" ({} runs)", older + 1),
        };
        crate::cli::print(&format!("removed {}{runs}\n", worker.handle())).map(drop)
    });
    if args.which.all {
        unlist_past(&workers, |_| true)?;
    }
    removed
}

/// Returns how many there were.
fn unlist_past(workers: &Workers, applies: impl Fn(&Worker) -> bool) -> Result<usize, Error> {
    let mut past = workers.past_runs()?;
    past.retain(|it| applies(it) && !it.is_alive());
    past.iter().try_for_each(unlist)?;
    Ok(past.len())
}

/// The run itself stays: its journal, and with it `ralph report` and `ralph resume`.
fn unlist(worker: &Worker) -> Result<(), Error> {
    let Some((_, run)) = worker.run().filter(|(_, run)| run.path.is_dir()) else { return Ok(()) };
    run.unlist().map_err(|err| worker_files_error(worker, &err))
}

fn remove(worker: &Worker, args: &RmArgs) -> Result<(), Error> {
    if worker.is_past() && !worker.is_alive() {
        return unlist(worker);
    }
    let name = &worker.name;
    let status = match worker.load_state() {
        // One of a terminal can be resumed without its record.
        StoredState::State(state) if !state.status.has_ended() && !state.foreground => {
            Some(state.status.as_str())
        }
        _ => worker.is_alive().then_some("running"),
    };
    if let Some(status) = status {
        return Err(Error::failed(format!("{} is {status}", worker.label()))
            .hint(format!("stop it first: ralph kill {name}")));
    }
    if let Some(worktree) = executor_of(worker).collect(worker) {
        let path = worktree.path.display();
        if args.worktree {
            let branch = &worktree.branch;
            if worktree.remove(args.force)? {
                crate::cli::print(&format!("kept branch {branch}\n"))?;
            }
        } else if worktree.path.exists() {
            warn(&format!("kept its worktree: {path}"));
        }
    }
    unlist(worker)?;
    worker.remove().map_err(|err| worker_files_error(worker, &err))
}
