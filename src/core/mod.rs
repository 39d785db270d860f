//! Decisions in plain data: no files, no clock, no processes.
//!
//! Everything here is a function of its arguments, so that every case is a row in a table and any
//! history can be replayed. Nothing in this folder may import from another folder of the crate.

pub(crate) mod json;
pub mod on_screen;
pub mod ration;
