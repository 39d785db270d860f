//! The loop of `ralph spawn`, in its window.

use super::{SpawnArgs, defaults};
use crate::cli::{Cli, CliCommand};
use crate::launch::{self, LaunchPlan, NamedRun, prompt, rules};
use crate::project_dir;
use crate::recover::recover_worktree;
use crate::workers::store::{LaunchRecord, StoredState, Worker};
use ralph_driver::resume::ResumeState;
use ralph_driver::run_spec::RunSpec;
use ralph_engine::completion::CompletionRule;
use ralph_events::error::Error;
use ralph_events::run_state::{Pending, RunState};
use ralph_report::worker_lines::{WorkerState, WorkerStatus};
use ralph_store::project::Project;

pub(super) fn run_spec(plan: &LaunchPlan<'_>, args: &SpawnArgs) -> Result<RunSpec, Error> {
    // A missing prompt exits with 1 here.
    let prompt = prompt::prompt_source_or_empty(&args.prompt, &args.common, true)
        .map_err(|err| Error { kind: ralph_events::error::ErrorKind::Failed, ..err })?;
    let completion = rules::completion_rule(&args.completion, || Ok(CompletionRule::Never))?;
    let mut spec = plan.spec(prompt, completion)?;
    spec.agent.interactive = args.interactive;
    Ok(spec)
}

pub fn run_loop(worker: &Worker, launch: LaunchRecord, mut parsed: Cli) -> Result<u8, Error> {
    project_dir::resolve_paths_from_project(&parsed.project, &mut parsed.command);
    let CliCommand::Spawn(mut args) = parsed.command else {
        return Err(Error::failed(format!("worker '{}' was not spawned", worker.name)));
    };
    // Its settings apply, also in a worktree.
    let home = project_dir::open_project(&parsed.project)?;
    let project = match launch.worktree {
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
    let recovery = recover_worktree(&project, &home, &args.common)?;
    let loaded = launch::load_settings(&home, &args.common, Vec::new(), Vec::new())?;
    let previous = match worker.load_state() {
        StoredState::State(previous) => Some(previous),
        StoredState::Missing | StoredState::Invalid(_) => None,
    };
    let journal = |run: &String| project.run_dir(run).journal().exists();
    let resume = previous.as_ref().and_then(|previous| previous.run_id.clone()).filter(journal);
    let resume_state = resume.as_ref().map(|run| load_resume_state(&project, run));
    args.common.only_checks =
        resume_state.as_ref().is_some_and(|it| it.run.resume.needs_only_checks());
    let mut plan = LaunchPlan::new(&project, &args.common, defaults(&args), loaded, recovery)
        .with_origin(&home);
    let mut spec = run_spec(&plan, &args)?;
    spec.rules.budget = launch.budget.or(spec.rules.budget);
    let mut state = launch::initial_state(&worker.name, &spec);
    let damage = resume_state
        .as_ref()
        .and_then(|resume_state| resume_state.journal_warning(&spec.rules.budget));
    if let Some(previous) = previous {
        // The user may have edited the limit.
        if previous.max_iterations > 0 {
            spec.rules.max_iterations = previous.max_iterations;
        }
        spec.resumed = Some(match resume_state.filter(|resume_state| !resume_state.is_lost) {
            Some(resume_state) => resume_state.run,
            None => {
                let mut state = RunState::default();
                state.resume.iterations = previous.current_iteration;
                state.resume.failures = previous.consecutive_failures;
                state
            }
        });
        state = WorkerState {
            status: WorkerStatus::Running,
            worker_name: state.worker_name,
            command: state.command,
            ..*previous
        };
        state.directory = spec.directory.to_string_lossy().into_owned();
    }
    let named = NamedRun { worker: worker.clone(), state, claim };
    plan.settings.warnings.extend(damage);
    plan.preflight_worker(spec, Some((named, resume)))?.start_or_show()
}

/// An interrupted iteration counts as used, like a failed one.
fn load_resume_state(project: &Project, run: &str) -> ResumeState {
    let mut state = ResumeState::load(&project.run_dir(run));
    let point = &mut state.run.resume;
    if point.pending == Pending::Nothing
        && let Some(open) = point.open.take()
    {
        point.iterations = point.iterations.max(open.iteration);
    }
    state
}
