//! The loop of `ralph spawn`, in its window.

use crate::launch::{LaunchAction, LaunchPlan, LaunchSpec, NamedRun, ResumedRun, initial_state};
use crate::project_dir;
use crate::recover::recover_and_notify;
use crate::workers::store::{StoredState, Worker};
use ralph_driver::resume::ResumeState;
use ralph_events::error::Error;
use ralph_events::run_state::{Pending, RunState};
use ralph_report::worker_lines::{WorkerState, WorkerStatus};
use ralph_store::project::Project;

/// `home` is the project whose settings apply, also in a worktree.
pub(crate) fn run_loop(worker: &Worker, home: &Project, mut spec: LaunchSpec) -> Result<u8, Error> {
    let project = match &spec.worktree {
        Some(worktree) if worktree.directory.is_dir() => {
            project_dir::refuse_link_out(&worktree.directory)?;
            project_dir::declare_project(&worktree.directory)?
        }
        Some(worktree) => {
            let path = worktree.directory.display();
            return Err(Error::failed(format!("its worktree is gone: {path}")).hint(format!(
                "ralph kill {0}, then ralph rm {0}, and spawn it again",
                worker.name
            )));
        }
        None => home.clone(),
    };
    let claim = worker
        .claim()
        .map_err(|_| Error::failed(format!("worker '{}' is running already", worker.name)))?;
    let notify_command = spec.settings.settings.notify.command.clone();
    let recovery = recover_and_notify(&project, true, || notify_command)?;
    let previous = match worker.load_state() {
        StoredState::State(previous) => Some(previous),
        StoredState::Missing | StoredState::Invalid(_) => None,
    };
    let resume = previous.as_ref().and_then(|previous| resumed_run(&project, previous));
    if resume.is_some() {
        spec.settings.warnings.extend(spec.changed_settings_warning(&worker.spec_path()));
    }
    let mut plan = LaunchPlan::new(&project, spec, LaunchAction::Start, recovery);
    (plan.origin, plan.resume) = (home, resume);
    let mut spec = plan.run_spec()?;
    let mut state = initial_state(&worker.name, &spec);
    if let Some(previous) = previous {
        // The user may have edited the limit.
        if previous.max_iterations > 0 {
            spec.rules.max_iterations = previous.max_iterations;
        }
        if spec.resumed.is_none() {
            set_progress(spec.resumed.insert(RunState::default()), &previous);
        }
        state = WorkerState {
            status: WorkerStatus::Running,
            worker_name: state.worker_name,
            command: state.command,
            ..*previous
        };
        state.directory = spec.directory.to_string_lossy().into_owned();
    }
    let named = NamedRun { worker: worker.clone(), state, claim };
    plan.preflight_named(spec, Some(named))?.start_or_show()
}

/// For a run whose journal is gone.
fn set_progress(run: &mut RunState, previous: &WorkerState) {
    run.resume.iterations = previous.current_iteration;
    run.resume.failures = previous.consecutive_failures;
}

/// An interrupted iteration counts as used, like a failed one.
fn resumed_run(project: &Project, previous: &WorkerState) -> Option<ResumedRun> {
    let id = previous.run_id.clone()?;
    let dir = project.run_dir(&id);
    if !dir.journal().exists() {
        return None;
    }
    let mut state = ResumeState::load(&dir);
    let point = &mut state.run.resume;
    if point.pending == Pending::Nothing
        && let Some(open) = point.open.take()
    {
        point.iterations = point.iterations.max(open.iteration);
    }
    if state.is_lost {
        set_progress(&mut state.run, previous);
    }
    Some(ResumedRun { id, state })
}
