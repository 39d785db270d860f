//! The commands, one file each.

pub mod agents;
pub mod archive;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod hook;
pub mod init;
pub mod man;
pub mod mode;
pub mod new;
pub mod plugin;
pub mod prompt;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod sandbox;
pub mod serve;
pub mod settings;
pub mod steer;
pub mod stories;
pub mod tasks;
pub mod ui;
pub mod work;
pub mod worker;
