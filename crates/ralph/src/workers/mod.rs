//! Runs in the background, by name.
//!
//! A worker is a loop in a tmux window and a directory in `$RALPH_HOME/workers`. The loop is the only
//! one who writes its `state.json`; whoever wants something of it leaves a request and knocks
//! ([`control`]). The loop holds a lock on its directory for as long as it lives, so that whether it
//! does is never a guess: a process number that went to somebody else fools nobody.

pub mod control;
pub mod files;
pub mod selection;
pub mod store;
pub mod watch;
pub mod worktree;
