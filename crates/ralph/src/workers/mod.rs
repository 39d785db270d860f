//! Runs by name.
//!
//! Every run has a directory in `$RALPH_HOME/workers`, the record of its name. Only the run writes
//! `state.json`; other processes send requests ([`control`]). The run locks the directory while it
//! lives, so liveness never depends on a pid that may have been reused.

pub mod control;
pub mod files;
pub mod registry;
pub mod selection;
pub mod store;
pub mod watch;
pub mod worktree;
