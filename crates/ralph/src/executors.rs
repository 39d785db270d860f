//! Places where a run can be executed.

pub mod tmux;
