//! Recognizes prompts that an agent repeats: a signal in them is no claim.

pub(crate) mod lines;
pub(crate) mod pattern;

#[cfg(test)]
mod tests;
