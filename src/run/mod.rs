//! Carrying a loop out: one engine for every command that loops.

pub mod agent;
pub mod driver;
mod fingerprint;
pub mod guard;
mod guardrail;
pub mod left;
pub mod record;
pub mod scm;
mod screen;
pub mod session;
pub mod spec;
pub mod tasks;
pub mod told;
pub mod world;
