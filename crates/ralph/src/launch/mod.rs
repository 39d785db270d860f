//! Turns a command line into a run.
//!
//! Every loop command takes the same steps: recover from killed runs (`recover`), load the settings,
//! make a `LaunchSpec`, preflight, start. The commands differ in their `Defaults` and prompts.
//! `ralph resume` enters at preflight with a saved `LaunchSpec`.

mod active_marker;
mod agent;
mod agent_version;
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
mod spec;
mod start;
pub(super) mod start_record_v1;

pub(super) use self::agent::installed_agents;
use self::defaults::Defaults;
pub(super) use self::defaults::LoopCommand;
pub(super) use self::named_run::Window;
pub(super) use self::plan::{LaunchAction, LaunchPlan, ResumedRun};
pub(super) use self::reporters::{capabilities, reporter};
pub(super) use self::settings::load_settings;
pub(super) use self::spec::{LaunchSpec, TaskListSpec, View};
