//! The vocabulary of a run: events, journal lines, errors and exit codes, and what a journal adds up to.
//!
//! Everything here is plain data and text. This crate knows no files, clocks, processes or terminals, and no other crate of
//! the workspace.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod control_chars;
pub mod env_names;
pub mod error;
pub mod event;
pub mod exit_code;
pub mod journal;
pub mod json_writer;
pub mod line_splitter;
pub mod question;
pub mod redact;
pub mod run_state;
pub mod spending;
pub mod text;
