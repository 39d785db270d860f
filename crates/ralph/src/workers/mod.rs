//! Background runs with names.
//!
//! A worker is a loop in a tmux window and a directory in `$RALPH_HOME/workers`. Only its loop
//! writes `state.json`; other processes send requests ([`control`]). The loop locks its directory
//! while it lives, so liveness never depends on a pid that may have been reused.

pub mod control;
pub mod files;
pub mod selection;
pub mod store;
pub mod watch;
pub mod worktree;
