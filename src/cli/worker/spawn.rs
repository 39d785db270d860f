//! `ralph spawn`: all or nothing.

use std::ffi::OsString;

use super::{DEFAULTS, SpawnArgs, look_for, run_loop, unusable, warn};
use crate::cli::launch::{self, Start};
use crate::core::worker::{Status, WorkerState};
use crate::error::{Error, Kind};
use crate::state::project::Project;
use crate::tmux::{SESSION, Tmux, Window};
use crate::worker::store::{Known, LaunchNote, Worker, Workers};

/// So many iterations cost something.
const MANY: u32 = 50;

/// How long a loop may take to begin its first iteration, in seconds.
const PATIENCE: u64 = 30;

/// # Errors
/// Whatever keeps the worker from starting; nothing of it is left then.
pub(in crate::cli) fn spawn(project: &Project, args: &SpawnArgs) -> Result<u8, Error> {
    let required = |flag: &str| {
        Error::failed(format!("spawn requires {flag}"))
            .hint("ralph spawn --name agent -f PROMPT.md -n 100 -- claude")
    };
    if args.prompt.prompt_file.is_none() && args.prompt.prompt.is_none() {
        return Err(required("--prompt-file"));
    }
    let Some(max_iterations) = args.common.max_iterations else {
        return Err(required("--max-iterations"));
    };
    let loaded = launch::load(project, &args.common, Vec::new(), Vec::new())?;
    let start = Start { project, args: &args.common, defaults: &DEFAULTS, loaded: &loaded };
    // What keeps the loop from starting is found here, where somebody sees it.
    let spec = run_loop::spec(&start, args)?;
    if args.common.print_prompt {
        return start.print_prompt(&spec.prompt, None);
    }
    if args.common.dry_run {
        return start.carry_out(spec);
    }
    if max_iterations > MANY {
        warn("high iteration count (>50) may consume significant resources");
    }
    let workers = Workers::of_user()?;
    let worker = match &args.name {
        Some(name) => workers.named(name)?,
        None => free_name(&workers)?,
    };
    let _held = workers.hold(&worker)?;
    refuse_taken(&worker)?;
    warn_of_company(&workers, project)?;
    let launch = LaunchNote {
        args: arguments(&worker.name)?,
        directory: std::env::current_dir().unwrap_or_else(|_| project.root().to_owned()),
        worktree: None,
    };
    worker.remove().map_err(|err| unusable(&worker, &err))?;
    let started = prepare(&worker, &launch).and_then(|()| open(&worker, &launch, |_| true));
    let state = started.inspect_err(|_| {
        // What is left of it now tells nobody anything.
        let _ = worker.remove();
    })?;
    let name = &worker.name;
    crate::cli::print(&format!(
        "spawned {name} (tmux: {SESSION}:{name}) [ralph mode: iteration {}/{}]\n",
        state.current_iteration, state.max_iterations
    ))?;
    drop(_held);
    if args.wait { super::look::wait_for(&worker) } else { Ok(0) }
}

/// The command line, with the name in it that was found for the worker.
fn arguments(name: &str) -> Result<Vec<String>, Error> {
    let args: Result<Vec<String>, OsString> =
        std::env::args_os().map(OsString::into_string).collect();
    let mut args = args.map_err(|arg| {
        Error::new(Kind::Usage, format!("not UTF-8: {}", arg.to_string_lossy()))
            .hint("what a worker is started with is kept in a file, as text")
    })?;
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let named = args[..end].iter().any(|arg| arg == "--name" || arg.starts_with("--name="));
    if !named {
        args.insert(end, format!("--name={name}"));
    }
    Ok(args)
}

fn free_name(workers: &Workers) -> Result<Worker, Error> {
    let mut number = 1_u32;
    loop {
        let worker = workers.named(&format!("worker-{number}"))?;
        if !worker.path.exists() {
            return Ok(worker);
        }
        number += 1;
    }
}

/// The name of one that runs or is paused is taken, whether or not its process is still there.
fn refuse_taken(worker: &Worker) -> Result<(), Error> {
    let name = &worker.name;
    let taken = |how: &str| {
        Error::failed(format!("worker '{name}' already exists ({how})"))
            .hint(format!("choose another name, or end it first: ralph kill {name}"))
    };
    match worker.known() {
        _ if worker.is_alive() => Err(taken("running")),
        Known::State(state) if !state.status.is_over() => {
            let error = taken(state.status.as_str());
            Err(error.hint(format!("its process is gone; ralph resume {name} starts it again")))
        }
        Known::Broken(why) => {
            let path = worker.state_path();
            warn(&format!("{} cannot be understood and is removed: {why}", path.display()));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn warn_of_company(workers: &Workers, project: &Project) -> Result<(), Error> {
    let here = project.root().to_string_lossy();
    let others: Vec<String> = workers
        .all()?
        .into_iter()
        .filter(|other| {
            matches!(other.known(), Known::State(state) if state.directory == here)
                && other.is_alive()
        })
        .map(|other| other.name)
        .collect();
    if !others.is_empty() {
        warn(&format!(
            "{} works in this directory, too; two agents that change the same files get in each \
             other's way",
            others.join(", ")
        ));
    }
    Ok(())
}

/// Writes down what the loop needs.
fn prepare(worker: &Worker, launch: &LaunchNote) -> Result<(), Error> {
    worker.make().and_then(|()| worker.save_launch(launch)).map_err(|err| unusable(worker, &err))
}

/// Opens the window of a worker, and waits until its loop is at work: `is_new` tells the state that it
/// writes from one that was there before. If that fails, no window is left.
pub(super) fn open(
    worker: &Worker,
    launch: &LaunchNote,
    is_new: impl Fn(&WorkerState) -> bool,
) -> Result<WorkerState, Error> {
    let name = &worker.name;
    let ralph = std::env::current_exe()
        .map_err(|err| Error::failed(format!("cannot find ralph itself: {err}")))?;
    worker.forget_requests();
    worker.take_failure();
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    worker.leave_environment(&variables).map_err(|err| unusable(worker, &err))?;
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let command = [ralph.into(), "worker-loop".into(), name.into()];
    let window = tmux.open(name, &launch.directory, &command).map_err(|err| {
        worker.take_environment();
        Error { message: format!("cannot open a window for '{name}': {}", err.message), ..err }
    })?;
    wait_for_start(worker, &window, &tmux, is_new).inspect_err(|_| {
        tmux.close(&window);
        worker.take_environment();
    })
}

fn wait_for_start(
    worker: &Worker,
    window: &Window,
    tmux: &Tmux,
    is_new: impl Fn(&WorkerState) -> bool,
) -> Result<WorkerState, Error> {
    let name = &worker.name;
    let (mut looks, mut gone) = (0_u32, false);
    let started = look_for(PATIENCE, || {
        if let Some(failure) = worker.take_failure() {
            let message = format!("the loop of '{name}' did not start: {}", failure.message);
            return Some(Err(Error { message, ..failure }));
        }
        match worker.known() {
            Known::State(state)
                if is_new(&state) && (state.current_iteration > 0 || state.status.is_over()) =>
            {
                return Some(Ok(*state));
            }
            _ => {}
        }
        // tmux is asked now and then only: every question is a process.
        looks += 1;
        if gone {
            let message = format!("the window of '{name}' closed before its loop began");
            return Some(Err(Error::failed(message)));
        }
        // What it left behind is looked at once more.
        gone = looks.is_multiple_of(25) && tmux.windows().iter().all(|it| it.id != window.id);
        None
    });
    let state = started.unwrap_or_else(|| {
        Err(Error::failed(format!("the loop of '{name}' did not begin within {PATIENCE} s")))
    })?;
    if state.status == Status::Failed && state.current_iteration == 0 {
        let why = state.message.unwrap_or_default();
        return Err(Error::failed(format!("the loop of '{name}' did not start: {why}")));
    }
    Ok(state)
}
