//! Turns a command line into a run.
//!
//! Every loop command loads the settings (`load`), builds a `RunSpec` from a `LaunchPlan` and hands
//! it to the driver. The commands differ in their `Defaults`.

mod active_marker;
mod agent;
mod background;
mod checks;
mod defaults;
mod dry_run;
mod plan;
pub(super) mod prompt;
mod reporters;
pub(super) mod rules;
mod sandbox;
mod settings;

use ralph_driver::session;
use ralph_events::error::Error;
use ralph_git::environment::refuse_other_repository;
use ralph_store::project::Project;

pub(super) use self::background::BackgroundRun;
pub(super) use self::defaults::Defaults;
pub(super) use self::plan::LaunchPlan;
pub(super) use self::reporters::reporter;
pub(super) use self::settings::{load, load_from_project, named_settings_files, settings_files};

/// Cleans up after a killed run, with immediate warnings: this start may still fail.
pub(crate) fn recover(project: &Project) -> Result<(), Error> {
    refuse_other_repository(project.root(), |name| std::env::var_os(name))?;
    session::recover(project, super::cli::warn)?;
    super::recover::remove_planted_files(project.root())
}
