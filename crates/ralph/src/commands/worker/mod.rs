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
    ATTACH_EXAMPLES, KILL_EXAMPLES, LOGS_EXAMPLES, LS_EXAMPLES, ListFormat, LogsArgs, LsArgs,
    PAUSE_EXAMPLES, RM_EXAMPLES, RmArgs, SEND_EXAMPLES, SPAWN_EXAMPLES, STATUS_EXAMPLES,
    SelectionArgs, SendArgs, SpawnArgs, StatusArgs, StatusFormat, TEMPLATE_EXAMPLES, TemplateArgs,
    WAIT_EXAMPLES,
};
pub use control::{NewLimits, kill, pause, resume, rm};
pub use list::{ls, status};
pub use logs::{attach, logs, send, wait};
pub use spawn::spawn;
pub(crate) use spawn::{launch_spec, start_in_background};
pub use template::template;

use crate::cli::warn;
use crate::workers::store::worker_files_error;
