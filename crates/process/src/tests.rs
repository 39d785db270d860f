//! What the unit tests share.

pub(crate) mod fake_processes;
