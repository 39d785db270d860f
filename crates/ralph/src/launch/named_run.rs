//! Gives a run its name, by which other processes find and steer it.

use std::fs::File;

use super::LaunchPlan;
use super::reporters::reporter;
use crate::cli::args::OutputMode;
use crate::workers::control::{RunControl, SharedState};
use crate::workers::files::StateFiles;
use crate::workers::registry::{WorkerLock, Workers};
use crate::workers::store::{StoredState, Worker, read_state};
use jiff::tz::TimeZone;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_driver::session::RunSession;
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_report::mirror::PtyMirror;
use ralph_report::style::Style;
use ralph_report::terminal::TerminalReporter;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_report::{Backpressure, Reporter};
use ralph_store::runs::RunDir;

/// A name that no other run can take.
#[derive(Debug)]
pub(super) enum NameReservation {
    Own(Worker, WorkerLock),
    /// Held by the process that opened this window.
    Window(Worker),
}

impl NameReservation {
    /// `None` without a home directory: no other process finds such a run.
    pub(super) fn new(plan: &LaunchPlan<'_>) -> Result<Option<NameReservation>, Error> {
        if let Some(worker) = &plan.window {
            return Ok(Some(NameReservation::Window(worker.clone())));
        }
        let Ok(workers) = Workers::open_user_dir() else { return Ok(None) };
        let resumed = plan.resume.as_ref().map(|resume| resume.id.as_str());
        let reserved = match &plan.spec.name {
            Some(name) if resumed.is_none() => Some(workers.reserve_for_run(name)?),
            _ => workers.reserve_default(plan.project.root(), resumed).ok(),
        };
        Ok(reserved.map(|(worker, lock)| NameReservation::Own(worker, lock)))
    }

    /// Makes the name that of this run. A run that is resumed goes on with its state.
    pub(super) fn claim(self, run: &RunDir, spec: &RunSpec) -> std::io::Result<NamedRun> {
        let (worker, _lock) = match self {
            NameReservation::Own(worker, lock) => (worker, Some(lock)),
            NameReservation::Window(worker) => (worker, None),
        };
        let foreground = _lock.is_some();
        if foreground && worker.last_run().is_none_or(|(_, last)| last.id != run.id) {
            worker.replace()?;
        }
        let claim = worker.claim()?;
        let mut state = initial_state(&worker.name, spec);
        if let StoredState::State(previous) = read_state(&run.path.join("state.json")) {
            let (worker_name, directory) = (state.worker_name, state.directory);
            state =
                WorkerState { status: WorkerStatus::Running, worker_name, directory, ..*previous };
        }
        state.foreground = foreground;
        Ok(NamedRun { worker, state, claim })
    }
}

/// A run that other processes control by name.
#[derive(Debug)]
pub(crate) struct NamedRun {
    pub(crate) worker: Worker,
    pub(crate) state: WorkerState,
    /// Held as long as the run lives.
    pub(crate) claim: File,
}

/// The state of a run that has not begun.
pub(crate) fn initial_state(name: &str, spec: &RunSpec) -> WorkerState {
    WorkerState {
        worker_name: name.to_owned(),
        command: spec.command.to_owned(),
        prompt_file: match &spec.prompt {
            PromptSource::File(path) => path.to_string_lossy().into_owned(),
            _ => String::new(),
        },
        done_pattern: match &spec.completion {
            CompletionRule::Pattern(regex) => Some(regex.as_str().to_owned()),
            _ => None,
        },
        inactivity_timeout: spec.rules.inactivity_ms.unwrap_or(0) / 1000,
        directory: spec.directory.to_string_lossy().into_owned(),
        interactive: spec.agent.interactive,
        ..WorkerState::default()
    }
}

impl NamedRun {
    /// Listens for requests. Returns the reporters: the terminal and the state files.
    pub(super) fn attach(
        self,
        session: &mut RunSession,
        form: OutputMode,
        style: Style,
    ) -> std::io::Result<Vec<Box<dyn Reporter>>> {
        let run = session.world.run_dir().clone();
        let shared_state = SharedState::default();
        let NamedRun { worker, state, claim } = self;
        let (control, wake_pipe) =
            RunControl::open(worker.clone(), claim, &run, shared_state.clone(), !state.foreground)?;
        session.world.set_control(Box::new(control), wake_pipe)?;
        if state.interactive {
            // Without standard input there are no keys.
            let _ = session.world.watch_keys();
        }
        let tracker = WorkerTracker::new(state, TimeZone::system());
        let window: Box<dyn Reporter> = match form {
            _ if tracker.state.interactive => Box::new(PtyMirror::new(tracker.clone())),
            OutputMode::Human | OutputMode::Plain if tracker.state.is_spawned() => Box::new(
                TerminalReporter::stdio(style, Backpressure::DropWhenSlow)
                    .for_worker(tracker.clone()),
            ),
            _ => reporter(form, style, Backpressure::DropWhenSlow),
        };
        let files = StateFiles::new(worker, run, tracker, shared_state);
        Ok(vec![window, Box::new(files)])
    }
}
