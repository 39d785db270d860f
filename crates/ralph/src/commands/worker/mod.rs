//! The worker commands.

mod args;
mod control;
mod list;
mod live;
mod logs;
mod spawn;
mod template;

pub use crate::workers::selection::WorkerSelection;
pub use args::{
    KillArgs, ListFormat, LogsArgs, LsArgs, RmArgs, SelectionArgs, SendArgs, SpawnArgs, StatusArgs,
    StatusFormat, TemplateArgs,
};
pub use control::{kill, pause, resume, rm};
pub use list::{ls, status};
pub use logs::{attach, logs, send, wait};
pub use spawn::spawn;
pub(crate) use spawn::{launch_spec, resume_in_background, start_in_background};
pub use template::template;

use crate::cli::warn;
use crate::workers::store::worker_files_error;
