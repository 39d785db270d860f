//! The commands, one file each.

pub mod agents;
pub mod archive;
pub mod demo;
pub mod doctor;
pub mod generated;
pub mod hook;
pub mod init;
pub mod modes;
pub mod new;
pub mod plugin;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod sandbox;
pub mod settings;
pub mod stories;
pub mod tasks;
pub mod work;
pub mod worker;
