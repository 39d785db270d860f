//! Recovery after killed runs: leftover processes, planted files, missed notifications.
//!
//! It comes before anything in the project is read: agents may still be writing there, or may have
//! planted settings and prompts.

use std::path::{Path, PathBuf};

use crate::cli::args::LoopArgs;
use crate::launch;
use ralph_driver::notify_command;
use ralph_driver::session;
use ralph_events::error::Error;
use ralph_git::environment::refuse_other_repository;
use ralph_sandbox::scratch::{self, StaleSandbox};
use ralph_store::home;
use ralph_store::project::Project;
use ralph_store::runs;

/// Warnings about cleaned-up files, for the journal of the run that follows. If none follows, they
/// are printed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    warnings: Vec<String>,
}

impl Recovery {
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.warnings.iter().for_each(|message| super::cli::warn(message));
    }
}

/// The first step of every loop command. `--dry-run` and `--print-prompt` only remove planted
/// files; a resumed run has sent its notifications already.
pub(crate) fn recover(project: &Project, args: &LoopArgs) -> Result<Recovery, Error> {
    recover_worktree(project, project, args)
}

/// Like [`recover`], with the settings of `origin`.
pub(crate) fn recover_worktree(
    project: &Project,
    origin: &Project,
    args: &LoopArgs,
) -> Result<Recovery, Error> {
    let starts_run = !args.dry_run && !args.print_prompt;
    refuse_foreign_git_variables(project)?;
    if starts_run {
        home::require_ralph_home(|name| std::env::var_os(name))?;
        session::recover(project, super::cli::warn)?;
    }
    let recovery = Recovery { warnings: clean_stale_sandboxes(project.root())? };
    if starts_run && args.resume.is_none() {
        send_missed_notifications(project, origin, args)?;
    }
    Ok(recovery)
}

/// Recovery for commands that start no run. Sends no notifications.
pub(crate) fn recover_project(project: &Project) -> Result<(), Error> {
    refuse_foreign_git_variables(project)?;
    session::recover(project, super::cli::warn)?;
    remove_planted_files(project.root())
}

fn refuse_foreign_git_variables(project: &Project) -> Result<(), Error> {
    refuse_other_repository(project.root(), |name| std::env::var_os(name))
}

/// Runs without saved settings, such as those of workers, use the current `notify.command`.
fn send_missed_notifications(
    project: &Project,
    origin: &Project,
    args: &LoopArgs,
) -> Result<(), Error> {
    let runs = runs::list(&project.runs_dir()).unwrap_or_default();
    if !runs.iter().any(|run| run.untold_end().is_some()) {
        return Ok(());
    }
    let settings = launch::load_settings(origin, args, Vec::new(), Vec::new());
    let command = settings.ok().and_then(|loaded| loaded.settings.notify.command);
    notify_command::send_missed(project, command.as_deref(), super::cli::warn)
}

/// Cleans up after abandoned sandboxes and returns warnings. Fails if this project still contains
/// something that would be executed.
fn clean_stale_sandboxes(project: &Path) -> Result<Vec<String>, Error> {
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
        warn_restored(&home::restore_access(&home));
    }
    let Ok(base) = scratch::sandboxes() else { return };
    for trace in scratch::restore_modes(&base) {
        super::cli::warn(&format!("left by a run that was cut off: {trace}"));
    }
}

pub(super) fn warn_restored(restored: &[PathBuf]) {
    let [first, rest @ ..] = restored else { return };
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let first = first.display();
    super::cli::warn(&format!("permissions were changed and have been restored: {first}{more}"));
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
