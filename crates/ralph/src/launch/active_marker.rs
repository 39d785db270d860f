//! Telling others that a task list is being worked off.

use ralph_driver::run_spec::RunSpec;
use ralph_git as git;
use ralph_store::active_marker::{self, ActiveMarker, ActiveRecord};
use ralph_store::project::Project;
use ralph_store::save::save_atomically;

/// Keeps the sign of a run that works off a task list out of git: whatever commits everything must not
/// commit that. This calls git, so that it has to come before the run.
pub(super) fn ignore_marker(project: &Project, spec: &RunSpec) -> Option<String> {
    let root = project.root();
    if spec.tasks.is_none() || !git::is_tracked_candidate(root, active_marker::MARKER_FILE) {
        return None;
    }
    let saved = active_marker::gitignore_with_marker(root).and_then(|ignored| match ignored {
        Some((path, text)) => save_atomically(&path, &text),
        None => Ok(()),
    });
    saved.err().map(|err| not_writable_warning(project, ".gitignore", &err))
}

/// How an agent runs that no sandbox keeps in.
pub(super) const UNSANDBOXED_MODE: &str = "direct";

/// Puts up the sign of a run that works off a task list; `mode` is the name of its sandbox. It comes down
/// when the sign is dropped.
pub(super) fn create_marker(
    project: &Project,
    spec: &RunSpec,
    mode: &str,
) -> Result<Option<ActiveMarker>, String> {
    let Some(tasks) = &spec.tasks else { return Ok(None) };
    let active = ActiveRecord {
        timestamp: format!("{:.0}", jiff::Timestamp::now()),
        pid: std::process::id(),
        max_iterations: spec.rules.max_iterations,
        mode: mode.to_owned(),
        run_id: spec.run_id.clone(),
        // A path that JSON cannot hold is not worth the sign.
        ralph_dir: tasks.path.parent().filter(|dir| dir.to_str().is_some()).map(Into::into),
    };
    ActiveMarker::create(project.root(), active)
        .map(Some)
        .map_err(|err| not_writable_warning(project, active_marker::MARKER_FILE, &err))
}

fn not_writable_warning(project: &Project, what: &str, err: &std::io::Error) -> String {
    format!("cannot write {what} in {}: {err}", project.root().display())
}
