//! The commands as a person types them.

pub mod init;
pub mod settings;
