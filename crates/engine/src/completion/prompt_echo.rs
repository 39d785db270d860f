//! Recognizes an agent that repeats its prompt: the completion text in a quoted prompt is no claim.

pub(crate) mod lines;
pub(crate) mod pattern;
pub(crate) mod tags;
