//! `ralph ui`: every run on this machine in the terminal.
//!
//! The [`model`] is plain data, changed by messages; the [`view`] draws it. Only `app` has effects.

#![forbid(unsafe_code)]

mod app;
mod canvas;
pub mod data;
pub mod input;
mod jobs;
pub mod keys;
pub mod model;
mod source;
pub mod terminal;
pub mod text_field;
pub mod theme;
pub mod view;

pub use app::{OpenReport, Options, run};
