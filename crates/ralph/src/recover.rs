//! Recovery after killed runs: leftover processes, planted files, missed notifications.
//!
//! It comes before anything in the project is read: agents may still be writing there, or may have
//! planted settings and prompts.

use std::path::{Path, PathBuf};

use crate::cli::args::LoopArgs;
use crate::launch::{self, LaunchAction};
use ralph_driver::notify_command;
use ralph_driver::session;
use ralph_events::error::Error;
use ralph_events::event::Event;
use ralph_git::environment::refuse_other_repository;
use ralph_report::warning_text::warning_text;
use ralph_sandbox::scratch::{self, StaleSandbox};
use ralph_store::home;
use ralph_store::project::Project;
use ralph_store::runs;

/// What was cleaned up, for the journal of the run that follows. If none follows, it is printed
/// when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    events: Vec<Event<'static>>,
}

impl Recovery {
    pub(crate) fn take_events(&mut self) -> Vec<Event<'static>> {
        std::mem::take(&mut self.events)
    }

    /// Cleans up after abandoned sandboxes. Fails if this project still contains something that
    /// would be executed.
    fn clean_stale_sandboxes(&mut self, project: &Path) -> Result<(), Error> {
        match self.collect_cleanup(project) {
            None => Ok(()),
            Some(stuck) => Err(Error::input(stuck).hint(
                "fix it and run ralph again, or discard the sandbox that left it: `ralph sandbox \
                 ls`, `ralph sandbox rm NAME`",
            )),
        }
    }

    /// Returns what cannot be put right.
    fn collect_cleanup(&mut self, project: &Path) -> Option<String> {
        let mut stuck = Vec::new();
        for StaleSandbox { project: theirs, trace } in
            scratch::clean_stale(&scratch::sandboxes().ok()?, project)
        {
            let is_here = theirs.starts_with(project) || project.starts_with(&theirs);
            let message = trace.to_string();
            if trace.is_not_restored() && is_here {
                stuck.push(message);
            } else {
                self.events.push(Event::Planted { message: message.into() });
            }
        }
        (!stuck.is_empty()).then(|| stuck.join("\n"))
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        let messages = self.events.iter().filter_map(warning_text);
        messages.for_each(|message| super::cli::warn(&message));
    }
}

/// The first step of every loop command. `--dry-run` and `--print-prompt` only remove planted
/// files.
pub(crate) fn recover(project: &Project, args: &LoopArgs) -> Result<Recovery, Error> {
    let starts_run = matches!(args.action(), LaunchAction::Start | LaunchAction::StartInBackground);
    recover_and_notify(project, starts_run, || {
        let settings = launch::load_settings(project, args, Vec::new(), Vec::new());
        settings.ok().and_then(|loaded| loaded.settings.notify.command)
    })
}

/// `notify_command` is for runs that did not save theirs.
pub(crate) fn recover_and_notify(
    project: &Project,
    starts_run: bool,
    notify_command: impl FnOnce() -> Option<String>,
) -> Result<Recovery, Error> {
    refuse_foreign_git_variables(project)?;
    let mut recovery = Recovery::default();
    if starts_run {
        home::require_ralph_home(|name| std::env::var_os(name))?;
        recovery.events.extend(session::recover(project, super::cli::note)?);
    }
    recovery.clean_stale_sandboxes(project.root())?;
    if starts_run {
        send_missed_notifications(project, notify_command)?;
    }
    Ok(recovery)
}

/// Recovery for commands that start no run. Sends no notifications.
pub(crate) fn recover_project(project: &Project) -> Result<(), Error> {
    refuse_foreign_git_variables(project)?;
    let mut recovery = Recovery::default();
    recovery.events.extend(session::recover(project, super::cli::note)?);
    recovery.clean_stale_sandboxes(project.root())
}

fn refuse_foreign_git_variables(project: &Project) -> Result<(), Error> {
    refuse_other_repository(project.root(), |name| std::env::var_os(name))
}

fn send_missed_notifications(
    project: &Project,
    notify_command: impl FnOnce() -> Option<String>,
) -> Result<(), Error> {
    let runs = runs::list(&project.runs_dir()).unwrap_or_default();
    if !runs.iter().any(runs::RunDir::has_pending_notification) {
        return Ok(());
    }
    notify_command::send_missed(project, notify_command().as_deref(), super::cli::warn)
}

pub(super) fn remove_planted_files(project: &Path) -> Result<(), Error> {
    Recovery::default().clean_stale_sandboxes(project)
}

/// For commands that read nothing of the project.
pub(super) fn clean_best_effort(project: &Path) {
    let mut recovery = Recovery::default();
    if let Some(stuck) = recovery.collect_cleanup(project) {
        super::cli::warn(&stuck);
    }
}

/// Restores permissions that agents of killed runs changed. Must come first: the project may be
/// unreadable.
pub(super) fn restore_modes() {
    if let Some(home) = home::ralph_home(|name| std::env::var_os(name)) {
        warn_restored(&home::restore_access(&home));
    }
    let Ok(base) = scratch::sandboxes() else { return };
    for trace in scratch::restore_modes(&base) {
        super::cli::warn(&format!("left by an interrupted run: {trace}"));
    }
}

pub(super) fn warn_restored(restored: &[PathBuf]) {
    let [first, rest @ ..] = restored else { return };
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let first = first.display();
    super::cli::warn(&format!("restored changed permissions: {first}{more}"));
}
