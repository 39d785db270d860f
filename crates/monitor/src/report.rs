//! The report of a run, with what git knows about its commits.

use std::path::Path;

use ralph_events::run_state::RunState;
use ralph_report::summary::Summary;
use ralph_report::summary::commit_lookup::{annotate_branch, annotate_commits};

/// Returns the facts of a run's report. Pass `now_ms` if the run is alive. Asks git a few times.
pub fn read_summary(run: &RunState, now_ms: Option<i64>) -> Summary {
    let mut facts = Summary::of(run, now_ms);
    // A run in progress may be about to send the notification.
    facts.end.notify_pending &= now_ms.is_none();
    let directory = Path::new(&run.info.directory).to_owned();
    let mut git = |words: &[&str]| ralph_git::run_git(words, &directory).ok();
    annotate_commits(&mut facts, ralph_git::is_in_repository(&directory), &mut git);
    annotate_branch(&mut facts, &mut git);
    facts
}
