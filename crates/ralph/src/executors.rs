//! Where runs execute.

pub mod tmux;
