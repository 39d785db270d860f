//! Failures around ralph: it reports them, keeps the work, and leaves nothing running.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod crash;
mod disk;
mod input;
mod missing_project;
mod output;
mod processes;
