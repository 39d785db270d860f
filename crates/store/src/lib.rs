//! Project and run directories: locks, atomic saves, records, journal files, and access to files
//! that an agent can tamper with.
//!
//! Every file of ralph's own is written by way of this crate. It knows nothing of agents, git,
//! processes or task lists.

#![forbid(unsafe_code)]

pub mod active_marker;
pub mod dir_handle;
pub mod dir_identity;
pub mod guardrail_logs;
pub mod home;
pub mod lock;
pub mod log_files;
pub mod migration;
pub mod naming;
mod platform;
pub mod private_files;
pub mod project;
pub mod project_record;
pub mod question_spool;
pub mod relocation;
pub mod requests;
pub mod run_files;
pub mod runs;
pub mod runs_link;
pub mod safe_fs;
pub mod save;
pub mod saved_path;
pub mod user_files;
