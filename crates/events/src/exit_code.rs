//! The exit codes of the program: what the end of a run or of a command says to whoever started it.

/// Complete, or nothing to do.
pub const SUCCESS: u8 = 0;
/// Not complete within the limit, or what was asked for could not be carried out.
pub const INCOMPLETE: u8 = 1;
/// Bad usage, settings or input.
pub const USAGE: u8 = 2;
/// Stopped by a budget.
pub const BUDGET: u8 = 3;
/// The agent kept failing, or its credentials were refused.
pub const AGENT_FAILED: u8 = 4;
/// Complete, but an SCM task failed.
pub const SCM_FAILED: u8 = 5;
/// Put an end to by a person, a signal or the end of input.
pub const INTERRUPTED: u8 = 130;
