//! What agents of runs that were cut off have planted is taken away before anything of a project is read.

use std::path::Path;

use ralph_events::error::Error;
use ralph_sandbox::scratch::{self, StaleSandbox};
use ralph_store::home;

/// Puts right what sandboxes that nobody uses any more have left in projects. What there is to say of it.
///
/// # Errors
/// Something is still there in this project that would be executed.
pub(super) fn clean_stale_sandboxes(project: &Path) -> Result<Vec<String>, Error> {
    let (said, stuck) = collect_cleanup(project);
    let Some(stuck) = stuck else { return Ok(said) };
    said.iter().for_each(|message| super::cli::warn(message));
    Err(Error::input(stuck).hint(
        "once it is right, ralph goes on; `ralph sandbox rm NAME` forgets the sandbox that left it \
         (`ralph sandbox ls`)",
    ))
}

/// The same, said at once.
///
/// # Errors
/// As [`sweep`].
pub(super) fn remove_planted_files(project: &Path) -> Result<(), Error> {
    clean_stale_sandboxes(project)?.iter().for_each(|message| super::cli::warn(message));
    Ok(())
}

/// The same for a command that reads nothing of a project: whatever is left is only said.
pub(super) fn clean_best_effort(project: &Path) {
    let (said, stuck) = collect_cleanup(project);
    said.iter().chain(&stuck).for_each(|message| super::cli::warn(message));
}

/// Restores the permissions that agents of killed runs changed, and says so. The rest is left to [`sweep`]: this comes
/// first because a project may have become unreadable.
pub(super) fn restore_modes() {
    if let Some(home) = home::ralph_home(|name| std::env::var_os(name)) {
        let restored = home::restore_access(&home);
        if let [first, rest @ ..] = restored.as_slice() {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let first = first.display();
            super::cli::warn(&format!(
                "permissions were changed and have been restored: {first}{more}"
            ));
        }
    }
    let Ok(base) = scratch::sandboxes() else { return };
    for trace in scratch::restore_modes(&base) {
        super::cli::warn(&format!("left by a run that was cut off: {trace}"));
    }
}

/// What there is to say, and what cannot be put right in this project.
fn collect_cleanup(project: &Path) -> (Vec<String>, Option<String>) {
    let (mut said, mut stuck) = (Vec::new(), Vec::new());
    // Without a home there are no sandboxes.
    let Ok(base) = scratch::sandboxes() else { return (said, None) };
    for StaleSandbox { project: theirs, trace } in scratch::clean_stale(&base, project) {
        let is_here = theirs.starts_with(project) || project.starts_with(&theirs);
        if trace.is_not_restored() && is_here {
            stuck.push(trace.to_string());
        } else {
            said.push(format!("left by a run that was cut off: {trace}"));
        }
    }
    (said, (!stuck.is_empty()).then(|| stuck.join("\n")))
}
