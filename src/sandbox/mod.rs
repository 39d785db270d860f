//! Where an agent is locked in.

pub mod hosts;
pub mod proxy;
