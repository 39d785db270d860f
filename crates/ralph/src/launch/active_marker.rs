//! The marker that tells other programs of a run with a task list.

use ralph_driver::run_spec::RunSpec;
use ralph_git as git;
use ralph_store::active_marker::{self, ActiveMarker, ActiveRecord};
use ralph_store::project::Project;
use ralph_store::save::save_atomically;

/// Adds the marker to `.gitignore`, for commits of everything. Calls git, so it must come before
/// the run.
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

pub(super) const UNSANDBOXED_MODE: &str = "direct";

/// `mode` names the sandbox.
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
        // JSON cannot hold other paths.
        ralph_dir: tasks.path.parent().filter(|dir| dir.to_str().is_some()).map(Into::into),
    };
    ActiveMarker::create(project.root(), active)
        .map(Some)
        .map_err(|err| not_writable_warning(project, active_marker::MARKER_FILE, &err))
}

fn not_writable_warning(project: &Project, name: &str, err: &std::io::Error) -> String {
    format!("cannot write {name} in {}: {err}", project.root().display())
}
