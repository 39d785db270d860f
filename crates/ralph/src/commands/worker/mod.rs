//! The worker commands.

mod args;
mod control;
mod list;
mod live;
mod logs;
mod run_loop;
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
pub use run_loop::run_loop;
pub use spawn::{spawn, start_in_background};
pub use template::template;

use crate::cli::warn;
use crate::workers::store::worker_files_error;
use ralph_events::exit_code;

use crate::launch::Defaults;

const DEFAULTS: Defaults = Defaults {
    command: "spawn",
    exit_at_limit: exit_code::SUCCESS,
    retries: 4,
    failure_uses_iteration: true,
    exit_at_failure: exit_code::INCOMPLETE,
    inactivity_ms: Some(300_000),
    inactivity_fails: false,
    exit_without_prompt: exit_code::INCOMPLETE,
    empty_prompt: true,
    term_pauses: true,
    completion_is_final: true,
    ..Defaults::RUN
};

/// A screen shows activity at once.
const INTERACTIVE_DEFAULTS: Defaults = Defaults { inactivity_ms: Some(60_000), ..DEFAULTS };

fn defaults(args: &SpawnArgs) -> &'static Defaults {
    if args.interactive { &INTERACTIVE_DEFAULTS } else { &DEFAULTS }
}
