//! The report of a run, with what git knows about its commits.

use std::path::Path;

use ralph_events::run_state::RunState;
use ralph_report::summary::Summary;
use ralph_report::summary::commit_lookup::{annotate_branch, annotate_commits};
use ralph_store::project::is_run_time_file;

/// Returns the facts of a run's report. Pass `now_ms` if the run is alive. Asks git a few times.
pub fn read_summary(run: &RunState, now_ms: Option<i64>) -> Summary {
    read_summary_in(Path::new(&run.info.directory), run, now_ms)
}

/// [`read_summary`] for a project that may have been moved to `directory`.
pub fn read_summary_in(directory: &Path, run: &RunState, now_ms: Option<i64>) -> Summary {
    let mut facts = Summary::of(run, now_ms);
    // A run in progress may be about to send the notification.
    facts.end.notify_pending &= now_ms.is_none();
    let is_in_repository = ralph_git::is_in_repository(directory);
    let mut git = |words: &[&str]| ralph_git::run_git(words, directory).ok();
    annotate_commits(&mut facts, is_in_repository, is_run_time_file, &mut git);
    annotate_branch(&mut facts, &mut git);
    facts
}
