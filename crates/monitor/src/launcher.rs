//! What only the program itself can do for a face.

use std::ffi::OsString;
use std::path::PathBuf;

use ralph_events::error::Error;
use serde::Deserialize;

/// Starts, resumes and attaches to runs; implemented by `ralph` on its executors.
pub trait Launcher: Send + Sync {
    /// Starts a run in the background.
    fn start(&self, run: &NewRun) -> Result<StartedRun, Error>;
    /// Resumes a run whose process is gone, in the background.
    fn resume(&self, run_id: &str) -> Result<(), Error>;
    /// The command line that attaches to the run's tmux window, or why there is none.
    fn attach_command(&self, run_id: &str) -> Result<Vec<OsString>, Error>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    pub directory: PathBuf,
    /// Its command line; empty for the agent in the project's settings.
    pub agent: String,
    pub prompt: String,
    pub max_iterations: u32,
    /// A command that must succeed before the run is done; empty for none.
    pub check: String,
    pub sandbox: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StartedRun {
    pub name: String,
    pub run_id: String,
}
