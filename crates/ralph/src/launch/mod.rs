//! Turns a command line into a run.
//!
//! Every loop command takes the same steps: recover from killed runs (`recover`), load the settings,
//! build a `RunSpec`, preflight, start. The commands differ in their `Defaults` and prompts.

mod active_marker;
mod agent;
mod checks;
mod defaults;
mod dry_run;
mod named_run;
mod plan;
mod preflight;
pub(super) mod prompt;
mod reporters;
pub(super) mod rules;
mod sandbox;
mod settings;
mod start;

pub(super) use self::defaults::Defaults;
pub(super) use self::named_run::{NamedRun, initial_state};
pub(super) use self::plan::LaunchPlan;
pub(super) use self::reporters::reporter;
pub(super) use self::settings::{load_settings, named_settings_files, settings_files};
