//! The loop as a pure state machine, and its rules: completion, prompts, budgets, stall.
//!
//! It takes inputs and returns actions for the driver, and knows no files, clock or processes.

#![forbid(unsafe_code)]

pub mod completion;
pub mod machine;
pub mod prompt;
pub mod rules;
pub mod stall;
pub mod template;
