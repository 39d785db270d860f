//! Recognizes prompts that an agent repeats: a signal in them is no claim.

pub(crate) mod lines;
pub(crate) mod pattern;
pub(crate) mod tags;
