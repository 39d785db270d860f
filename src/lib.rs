//! Runs a coding agent in a loop until the work is provably done.

pub mod agent;
pub mod cli;
pub mod config;
pub mod core;
pub mod error;
pub mod process;
pub mod report;
pub mod state;
