//! Removes files planted by agents of killed runs, before anything in the project is read.

use std::path::Path;

use ralph_events::error::Error;
use ralph_sandbox::scratch::{self, StaleSandbox};
use ralph_store::home;

/// Cleans up after abandoned sandboxes and returns warnings. Fails if this project still contains
/// something that would be executed.
pub(super) fn clean_stale_sandboxes(project: &Path) -> Result<Vec<String>, Error> {
    let (warnings, stuck) = collect_cleanup(project);
    let Some(stuck) = stuck else { return Ok(warnings) };
    warnings.iter().for_each(|message| super::cli::warn(message));
    Err(Error::input(stuck).hint(
        "once it is right, ralph goes on; `ralph sandbox rm NAME` forgets the sandbox that left it \
         (`ralph sandbox ls`)",
    ))
}

pub(super) fn remove_planted_files(project: &Path) -> Result<(), Error> {
    clean_stale_sandboxes(project)?.iter().for_each(|message| super::cli::warn(message));
    Ok(())
}

/// For commands that read nothing of the project.
pub(super) fn clean_best_effort(project: &Path) {
    let (warnings, stuck) = collect_cleanup(project);
    warnings.iter().chain(&stuck).for_each(|message| super::cli::warn(message));
}

/// Restores permissions that agents of killed runs changed. Must come first: the project may be
/// unreadable.
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

fn collect_cleanup(project: &Path) -> (Vec<String>, Option<String>) {
    let (mut warnings, mut stuck) = (Vec::new(), Vec::new());
    let Ok(base) = scratch::sandboxes() else { return (warnings, None) };
    for StaleSandbox { project: theirs, trace } in scratch::clean_stale(&base, project) {
        let is_here = theirs.starts_with(project) || project.starts_with(&theirs);
        if trace.is_not_restored() && is_here {
            stuck.push(trace.to_string());
        } else {
            warnings.push(format!("left by a run that was cut off: {trace}"));
        }
    }
    (warnings, (!stuck.is_empty()).then(|| stuck.join("\n")))
}
