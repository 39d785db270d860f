//! The loop as a pure state machine, and the rules it follows: completion, prompts, budgets, stall.
//!
//! The machine takes inputs and returns actions. It knows no files, clock or processes: the driver carries out what it decides.

#![forbid(unsafe_code)]

pub mod completion;
pub mod machine;
pub mod prompt;
pub mod rules;
pub mod stall;
pub mod template;
