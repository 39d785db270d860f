//! `ralph ui`: every run on this machine in the terminal.
//!
//! The model is plain data, changed by messages; the view draws it. Only [`app`] has effects.

#![forbid(unsafe_code)]

pub mod input;
pub mod keys;
pub mod terminal;
pub mod text_field;
pub mod theme;
