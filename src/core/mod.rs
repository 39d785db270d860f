//! Decisions in plain data: no files, no clock, no processes.
//!
//! Everything here is a function of its arguments, so that every case is a row in a table and any
//! history can be replayed. Nothing in this folder may import from another folder of the crate.

pub mod attempt;
pub mod cleaner;
pub mod completion;
pub mod event;
pub mod exit;
pub(crate) mod json;
pub mod json_writer;
pub mod lines;
pub mod machine;
pub mod merge;
pub mod on_screen;
pub mod progress;
pub mod prompt;
pub mod ration;
pub mod rules;
pub mod run_state;
pub(crate) mod scan;
pub mod spending;
pub mod stall;
pub mod tasks;
pub mod template;
pub mod text;
pub mod worker;
