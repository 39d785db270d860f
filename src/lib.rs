//! Runs a coding agent in a loop until the work is provably done.

pub mod agent;
pub mod core;
pub mod demo;
pub mod process;
pub mod report;
