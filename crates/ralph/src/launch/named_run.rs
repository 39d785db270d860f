//! Gives a run its name, by which other processes find and steer it.

use std::fs::File;

use super::LaunchPlan;
use super::reporters::reporter;
use crate::cli::args::OutputMode;
use crate::workers::control::RunControl;
use crate::workers::files::{RunRecord, StateFiles};
use crate::workers::registry::{WorkerLock, Workers};
use crate::workers::store::{Worker, read_state};
use jiff::tz::TimeZone;
use ralph_driver::run_spec::{PromptSource, RunSpec};
use ralph_driver::session::RunSession;
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_events::run_state::RunState;
use ralph_report::mirror::PtyMirror;
use ralph_report::style::Style;
use ralph_report::terminal::TerminalReporter;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, WorkerTracker};
use ralph_report::{Backpressure, Reporter};

/// The window of a run: its name, which the process that opened the window reserved.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) worker: Worker,
    pub(crate) claim: File,
    /// The state of the run that is resumed.
    pub(crate) previous: Option<Box<WorkerState>>,
}

impl Window {
    /// What is known of a run whose journal is gone.
    pub(super) fn progress(&self) -> Option<RunState> {
        let mut run = RunState::default();
        self.previous.as_ref()?.add_progress_to(&mut run);
        Some(run)
    }
}

/// A name that no other run can take.
#[derive(Debug)]
pub(super) enum NameReservation {
    Own(Worker, WorkerLock),
    Window(Window),
}

impl NameReservation {
    /// `None` without a home directory: no other process finds such a run.
    pub(super) fn new(plan: &mut LaunchPlan<'_>) -> Result<Option<NameReservation>, Error> {
        if let Some(window) = plan.window.take() {
            return Ok(Some(NameReservation::Window(window)));
        }
        let Ok(workers) = Workers::open_user_dir() else { return Ok(None) };
        let resumed = plan.resume.as_ref().map(|resume| resume.dir.id.as_str());
        let reserved = match &plan.spec.name {
            Some(name) if resumed.is_none() => Some(workers.reserve_for_run(name)?),
            _ => workers.reserve_default(plan.project.root(), resumed).ok(),
        };
        Ok(reserved.map(|(worker, lock)| NameReservation::Own(worker, lock)))
    }

    pub(super) fn worker(&self) -> &Worker {
        match self {
            NameReservation::Own(worker, _) => worker,
            NameReservation::Window(window) => &window.worker,
        }
    }

    /// Makes the name that of this run, and listens for requests. Returns the reporters: the terminal
    /// and the state files. A resumed run keeps its state.
    pub(super) fn attach(
        self,
        session: &mut RunSession,
        spec: &RunSpec,
        form: OutputMode,
        style: Style,
    ) -> std::io::Result<Vec<Box<dyn Reporter>>> {
        let run = session.world.run_dir().clone();
        let foreground = matches!(self, NameReservation::Own(..));
        let (Window { worker, claim, previous }, _lock) = match self {
            NameReservation::Window(window) => (window, None),
            NameReservation::Own(worker, lock) => {
                if worker.run().is_none_or(|(_, last)| last.id != run.id) {
                    worker.replace()?;
                }
                let previous = read_state(&run.state_file()).known();
                (Window { claim: worker.claim()?, worker, previous }, Some(lock))
            }
        };
        let new = initial_state(&worker.name, spec);
        let state = match previous {
            Some(previous) => WorkerState {
                status: WorkerStatus::Running,
                worker_name: new.worker_name,
                command: new.command,
                directory: new.directory,
                foreground,
                ..*previous
            },
            None => WorkerState { foreground, ..new },
        };
        let record = RunRecord::shared(worker, run.clone());
        let (control, wake_pipe) = RunControl::open(record.clone(), claim, &run, !foreground)?;
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
        let files = StateFiles::new(record, tracker);
        Ok(vec![window, Box::new(files)])
    }
}

/// The state of a run that has not begun.
fn initial_state(name: &str, spec: &RunSpec) -> WorkerState {
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
