//! `ralph spawn`: starts a worker, or undoes everything.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{SpawnArgs, warn, worker_files_error};
use crate::executors::tmux::{SESSION_NAME, Tmux, TmuxWindow};
use crate::launch::{self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, prompt, rules};
use crate::recover::{Recovery, recover};
use crate::workers::store::{StoredState, Worker, Workers};
use crate::workers::watch::{WatchResult, WorkerWatcher};
use crate::workers::worktree::Worktree;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_engine::completion::CompletionRule;
use ralph_events::error::{Error, ErrorKind};
use ralph_git as git;
use ralph_process::Interrupts;
use ralph_report::worker_lines::{WorkerState, WorkerStatus};
use ralph_store::lock;
use ralph_store::project::Project;

const MANY_ITERATIONS: u32 = 50;

const START_TIMEOUT: Duration = Duration::from_secs(30);

const WINDOW_CHECK_INTERVAL: Duration = Duration::from_millis(500);

const WINDOW_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Leaves nothing behind on an error.
pub fn spawn(project: &Project, args: &SpawnArgs) -> Result<u8, Error> {
    let started = SystemTime::now();
    let subject = if args.ralph { "--ralph" } else { "spawn" };
    let required = |flag: &str| {
        Error::failed(format!("{subject} requires {flag}"))
            .hint("ralph spawn --name agent -f PROMPT.md -n 100 -- claude")
    };
    if args.prompt.prompt_file.is_none() && args.prompt.prompt.is_none() {
        return Err(required("--prompt-file"));
    }
    if let Some(path) = &args.prompt.prompt_file
        && (path == Path::new("-") || path.starts_with("/dev") || path.starts_with("/proc"))
    {
        let message = format!("a worker cannot read its prompt from {}", path.display());
        return Err(Error::failed(message)
            .hint("it is read anew in each iteration, by a loop that nobody types for")
            .hint("write it to a file: -f PROMPT.md"));
    }
    let Some(max_iterations) = args.common.max_iterations else {
        return Err(required("--max-iterations"));
    };
    // Prints the warnings: this process writes no journal.
    drop(recover(project, &args.common)?);
    let spec = launch_spec(project, args)?;
    let plan = LaunchPlan::new(project, spec, args.common.action(), Recovery::default());
    // Report errors here, not in the window.
    let spec = plan.run_spec()?;
    match plan.action {
        LaunchAction::PrintPrompt => return plan.print_prompt(None),
        LaunchAction::DryRun => return plan.preflight(spec)?.start_or_show(),
        LaunchAction::Start => {}
    }
    if max_iterations > MANY_ITERATIONS {
        warn("high iteration count (>50) may consume significant resources");
    }
    let workers = Workers::open_user_dir()?;
    let (worker, held) = match &args.name {
        Some(name) => {
            let worker = workers.by_name(name)?;
            let held = workers.lock(&worker)?;
            (worker, held)
        }
        None => workers.lock_new()?,
    };
    workers.refuse_if_killed(started)?;
    check_name_free(&worker)?;
    check_window_free(&worker)?;
    if args.worktree {
        warn_uncommitted(project, &spec);
        warn_missing_copies(project, &plan.settings().worker.copy);
    } else {
        warn_shared_directory(&workers, project)?;
    }
    // From here on there is something to undo. If signals cannot be caught, they kill this process
    // as usual.
    let interrupts = Interrupts::install().ok();
    let spec = plan.spec;
    let mut attempt = SpawnAttempt { worker: &worker, spec, previous_files: None, interrupts };
    let branch = args.worktree.then_some(args.branch.as_deref());
    let state = match attempt.run(project, branch) {
        Ok(state) => state,
        Err(error) => {
            attempt.undo();
            return Err(error);
        }
    };
    attempt.commit();
    let name = &worker.name;
    // Always iteration 1, even if a quick loop is already further.
    crate::cli::print(&format!(
        "spawned {name} (tmux: {SESSION_NAME}:{name}) [ralph mode: iteration 1/{}]\n",
        state.max_iterations
    ))?;
    drop(held);
    if args.wait { super::logs::wait_for(&worker, interrupts) } else { Ok(0) }
}

pub(crate) fn launch_spec(project: &Project, args: &SpawnArgs) -> Result<LaunchSpec, Error> {
    let (command, common) = (LoopCommand::Spawn, &args.common);
    let loaded = launch::load_settings(project, common, Vec::new(), Vec::new())?;
    // A missing prompt exits with 1 here.
    let prompt = prompt::prompt_source_or_empty(&args.prompt, true)
        .map_err(|err| Error { kind: ErrorKind::Failed, ..err })?;
    let completion = rules::completion_rule(&args.completion, || Ok(CompletionRule::Never))?;
    let spec = LaunchSpec::new(command, project, common, None, loaded, prompt, completion);
    Ok(LaunchSpec { interactive: args.interactive, ..spec })
}

/// A worker that is being started, with what is needed to undo it.
struct SpawnAttempt<'a> {
    worker: &'a Worker,
    spec: LaunchSpec,
    /// The moved files of the previous worker with this name.
    previous_files: Option<PathBuf>,
    interrupts: Option<Interrupts>,
}

impl SpawnAttempt<'_> {
    /// `Some(None)` makes a worktree with a new branch.
    fn run(
        &mut self,
        project: &Project,
        branch: Option<Option<&str>>,
    ) -> Result<WorkerState, Error> {
        let worker = self.worker;
        self.previous_files = worker.archive().map_err(|err| worker_files_error(worker, &err))?;
        if let Some(branch) = branch {
            warn_submodules(project);
            let copy = &self.spec.settings.settings.worker.copy;
            let made = Worktree::create(project.root(), &worker.name, branch, copy);
            self.spec.worktree = Some(made.map_err(|err| {
                let prefix = format!("cannot make a worktree for '{}'", worker.name);
                Error { message: format!("{prefix}: {}", err.message), ..err }
            })?);
        }
        worker
            .create()
            .and_then(|()| worker.save_spec(&self.spec))
            .map_err(|err| worker_files_error(worker, &err))?;
        open_window(worker, self.interrupts, |_| true)
    }

    fn undo(self) {
        let SpawnAttempt { worker, spec, previous_files, .. } = self;
        // Report only the first error.
        let _ = worker.remove();
        if let Some(worktree) = spec.worktree {
            worktree.undo();
        }
        if let Some(previous_files) = previous_files {
            let _ = std::fs::rename(previous_files, &worker.path);
        }
    }

    fn commit(&mut self) {
        if let Some(previous_files) = self.previous_files.take() {
            self.worker.repair_invalid(&previous_files);
            let _ = std::fs::remove_dir_all(previous_files);
        }
    }
}

/// The name of a paused or running worker stays taken, even if its process is gone.
fn check_name_free(worker: &Worker) -> Result<(), Error> {
    let name = &worker.name;
    let taken = |how: &str| {
        Error::failed(format!("worker '{name}' already exists ({how})"))
            .hint(format!("choose another name, or end it first: ralph kill {name}"))
    };
    match worker.load_state() {
        _ if worker.is_alive() => Err(taken("running")),
        StoredState::State(state) if !state.status.has_ended() => {
            let error = taken(state.status.as_str());
            Err(error.hint(format!("its process is gone; ralph resume {name} starts it again")))
        }
        StoredState::Invalid(why) => {
            let path = worker.state_path();
            let path = path.display();
            warn(&format!("cannot understand {path}: {why}; it is kept as {path}.broken"));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A window may contain the loop of a worker whose files were removed. The window of a worker that
/// has just ended closes soon.
fn check_window_free(worker: &Worker) -> Result<(), Error> {
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let name = &worker.name;
    if lock::holds_for(WINDOW_CLOSE_TIMEOUT, || tmux.find(name).is_some()) {
        return Err(Error::failed(format!("there is a window '{name}' in tmux already"))
            .hint("the loop of a worker whose files were removed may be in it")
            .hint(format!("to be rid of it: tmux kill-window -t {SESSION_NAME}:{name}"))
            .hint("or choose another name"));
    }
    if tmux.exits_when_unattached() {
        warn(
            "tmux ends, with all workers, while nobody is attached to it: \
              remove `exit-unattached on` from its configuration",
        );
    }
    Ok(())
}

fn warn_shared_directory(workers: &Workers, project: &Project) -> Result<(), Error> {
    let here = project.root().to_string_lossy();
    let others: Vec<String> = workers
        .all()?
        .into_iter()
        .filter(|other| {
            matches!(other.load_state(), StoredState::State(state) if state.directory == here)
                && other.is_alive()
        })
        .map(|other| other.name)
        .collect();
    if !others.is_empty() {
        warn(&format!(
            "{} {} in this directory, too; two agents that change the same files get in each \
             other's way: --worktree gives each its own",
            others.join(", "),
            if others.len() == 1 { "works" } else { "work" }
        ));
    }
    Ok(())
}

/// git leaves submodule directories empty in a new worktree.
fn warn_submodules(project: &Project) {
    let submodules = git::submodules(project.root()).unwrap_or_default();
    if let Some(names) = git::format_file_list(&submodules) {
        warn(&format!(
            "submodules are empty in the worktree: {names}. Run `git submodule update --init` in it if the agent needs them"
        ));
    }
}

/// A worktree starts from HEAD, without uncommitted changes.
fn warn_uncommitted(project: &Project, spec: &RunSpec) {
    let prompt = match &spec.prompt {
        PromptSource::File(path) => path.strip_prefix(project.root()).ok().and_then(Path::to_str),
        _ => None,
    };
    let mut files = git::list_uncommitted(project.root()).unwrap_or_default();
    files.retain(|file| Some(file.as_str()) != prompt);
    if let [first, rest @ ..] = files.as_slice() {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        warn(&format!(
            "the worktree begins with HEAD, and without what is not committed here: {first}{more}"
        ));
    }
}

/// A missing file is a mistake, or a glob pattern, which is not supported.
fn warn_missing_copies(project: &Project, copy: &[String]) {
    let defaults = crate::config::Settings::default().worker.copy;
    for name in copy.iter().filter(|name| !defaults.contains(name)) {
        if project.root().join(name).symlink_metadata().is_err() {
            warn(&format!(
                "worker.copy: there is no {name:?} here, and names are taken as they are"
            ));
        }
    }
}

/// Waits until the loop has started. `is_new` tells its state from an older one. Closes the window
/// on failure.
pub(super) fn open_window(
    worker: &Worker,
    interrupts: Option<Interrupts>,
    is_new: impl Fn(&WorkerState) -> bool,
) -> Result<WorkerState, Error> {
    let name = &worker.name;
    let ralph = std::env::current_exe()
        .map_err(|err| Error::failed(format!("cannot find ralph itself: {err}")))?;
    worker.clear_requests();
    worker.take_failure();
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    worker
        .reserve()
        .and_then(|()| worker.save_environment(&variables))
        .map_err(|err| worker_files_error(worker, &err))?;
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let command = [ralph.into(), "worker-loop".into(), name.into()];
    let window = tmux.open(name, &command).map_err(|err| {
        worker.take_environment();
        worker.release();
        Error { message: format!("cannot open a window for '{name}': {}", err.message), ..err }
    })?;
    wait_for_start(worker, &window, &tmux, interrupts, is_new).inspect_err(|_| {
        tmux.close(&window);
        worker.take_environment();
        worker.release();
        // The closed window ends the loop: wait until it cannot write any more.
        super::control::wait_or_kill(worker);
    })
}

fn wait_for_start(
    worker: &Worker,
    window: &TmuxWindow,
    tmux: &Tmux,
    interrupts: Option<Interrupts>,
    is_new: impl Fn(&WorkerState) -> bool,
) -> Result<WorkerState, Error> {
    let name = &worker.name;
    let (mut last_check, mut gone) = (Instant::now(), false);
    let mut watch = WorkerWatcher::new(worker).with_interrupts(interrupts);
    let started = watch.wait_for(Some(START_TIMEOUT), WINDOW_CHECK_INTERVAL, || {
        if let Some(failure) = worker.take_failure() {
            let message = format!("the loop of '{name}' did not start: {}", failure.message);
            return Some(Err(Error { message, ..failure }));
        }
        match worker.load_state() {
            StoredState::State(state)
                if is_new(&state) && (state.current_iteration > 0 || state.status.has_ended()) =>
            {
                return Some(Ok(*state));
            }
            _ => {}
        }
        if gone {
            let message = format!("the window of '{name}' closed before its loop began");
            return Some(Err(Error::failed(message)));
        }
        // Every query starts a tmux process, so limit them. Then read the state once more.
        if last_check.elapsed() >= WINDOW_CHECK_INTERVAL {
            gone = tmux.windows().iter().all(|it| it.id != window.id);
            last_check = Instant::now();
        }
        None
    });
    let state = match started {
        WatchResult::Found(started) => started?,
        WatchResult::Nothing => {
            let seconds = START_TIMEOUT.as_secs();
            let message = format!("the loop of '{name}' did not begin within {seconds} s");
            return Err(Error::failed(message));
        }
        WatchResult::Interrupted => {
            let message = format!("interrupted before the loop of '{name}' began");
            return Err(Error::new(ErrorKind::Interrupted, message));
        }
    };
    if state.status == WorkerStatus::Failed && state.current_iteration == 0 {
        let why = state.message.unwrap_or_default();
        return Err(Error::failed(format!("the loop of '{name}' did not start: {why}")));
    }
    Ok(state)
}
