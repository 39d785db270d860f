//! What ralph keeps on disk, and the one place that writes it.

pub mod active;
pub mod archive;
pub mod check_logs;
pub mod dir_handle;
pub mod documents;
pub mod given;
pub mod home;
pub mod kept;
pub mod lock;
pub mod logs;
pub mod naming;
pub mod place;
pub mod private;
pub mod project;
pub mod project_record;
pub mod relocation;
pub mod run_files;
pub mod runs;
pub mod save;
pub mod snapshots;
pub mod start;
pub mod within;
