//! Exit codes of the program.

/// Complete, or nothing to do.
pub const SUCCESS: u8 = 0;
/// Incomplete within the limit, or the command failed.
pub const INCOMPLETE: u8 = 1;
/// Bad usage, settings or input.
pub const USAGE: u8 = 2;
/// Stopped by a budget, or stalled.
pub const BUDGET: u8 = 3;
/// The agent kept failing, or its credentials were refused.
pub const AGENT_FAILED: u8 = 4;
/// Complete, but an SCM task failed.
pub const SCM_FAILED: u8 = 5;
/// Interrupted by a person, a signal or the end of input.
pub const INTERRUPTED: u8 = 130;
