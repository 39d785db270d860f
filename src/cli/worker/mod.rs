//! Workers: runs in the background, in tmux windows, known by name.

mod control;
mod list;
mod look;
mod run_loop;
mod spawn;
mod template;

use clap::{Args, ValueEnum};

pub(super) use control::{kill, pause, resume, rm};
pub(super) use list::{ls, status};
pub(super) use look::{attach, logs, send, wait};
pub(super) use run_loop::run_loop;
pub(super) use spawn::spawn;
pub(super) use template::template;

use super::{CompletionArgs, LoopArgs, PromptArgs};
use crate::core::exit;
use crate::error::Error;

use super::launch::Defaults;

pub(super) const SPAWN_EXAMPLES: &str = "\
Examples:
  A loop in the background, in the window `agent` of the tmux session `ralph`:
    ralph spawn --name agent -f PROMPT.md -n 100 --done-pattern \"All tasks complete\" -- claude

  Wait for it, and exit with its code:
    ralph spawn --name agent -f PROMPT.md -n 10 --wait -- claude && echo done

Then: ralph status agent, ralph attach agent, ralph pause agent, ralph logs -f agent.";
pub(super) const LS_EXAMPLES: &str = "\
Examples:
  ralph ls
  ralph ls --format json | jq '.[] | select(.status == \"failed\") | .name'";
pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  ralph status agent
  ralph status --watch";
pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  ralph pause agent

What the agent is doing it may finish. A wait before another try ends at once.";
pub(super) const KILL_EXAMPLES: &str = "\
Examples:
  ralph kill agent

The agent is ended with everything that it started.";
pub(super) const RM_EXAMPLES: &str = "Examples:\n  ralph rm agent\n  ralph rm --all";
pub(super) const LOGS_EXAMPLES: &str = "Examples:\n  ralph logs agent\n  ralph logs -f agent";
pub(super) const ATTACH_EXAMPLES: &str = "\
Examples:
  ralph attach agent

Leave it with Ctrl-B D (or your tmux prefix and D).";
pub(super) const WAIT_EXAMPLES: &str =
    "Examples:\n  ralph wait agent && notify-send \"done\" || notify-send \"failed\"";
pub(super) const SEND_EXAMPLES: &str = "Examples:\n  ralph send agent \"yes, go on\"";
pub(super) const TEMPLATE_EXAMPLES: &str = "\
Examples:
  ralph template > BUILD_PROMPT.md
  ralph template --write";

/// What holds for workers where nobody says otherwise.
const DEFAULTS: Defaults = Defaults {
    command: "spawn",
    exit_at_limit: exit::DONE,
    retries: 4,
    failure_uses_iteration: true,
    exit_at_failure: exit::NOT_DONE,
    inactivity_ms: Some(300_000),
    inactivity_fails: false,
    exit_without_prompt: exit::NOT_DONE,
    empty_prompt: true,
    term_pauses: true,
    ..Defaults::RUN
};

#[derive(Debug, Default, Args)]
pub struct SpawnArgs {
    /// What to call the worker; `worker-1` and so on if nothing is said.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Wait for the end of the loop, and exit with its code.
    #[arg(long)]
    pub wait: bool,

    /// Accepted for those who are used to it: every worker loops, in tmux.
    #[arg(long, hide = true)]
    pub ralph: bool,

    #[arg(long, hide = true)]
    pub tmux: bool,

    #[command(flatten)]
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// The worker.
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// The worker.
    #[arg(required_unless_present = "all")]
    pub name: Option<String>,

    /// All workers that have come to their end.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ListForm {
    /// For people.
    #[default]
    Table,
    /// An array of objects.
    Json,
    /// One name a line.
    Names,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// How to list them.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = ListForm::Table)]
    pub format: ListForm,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The worker; without a name, all that run or are paused.
    pub name: Option<String>,

    /// Those that have come to their end, too.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,

    /// Show it again every second.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The worker.
    pub name: String,

    /// Go on with what happens, until its end.
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct SendArgs {
    /// The worker.
    pub name: String,

    /// What to type; Enter is pressed after it.
    pub text: String,
}

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Write it to PROMPT.md in this directory.
    #[arg(long)]
    pub write: bool,

    /// Overwrite PROMPT.md if it is there.
    #[arg(long, requires = "write")]
    pub force: bool,
}

/// Warns in the way that scripts know.
fn warn(message: &str) {
    use std::io::Write;
    // If nobody reads the warning, nobody needs it.
    let _ = writeln!(std::io::stderr(), "ralph: warning: {message}");
}

/// Between two looks at something that is waited for.
fn pause_a_moment() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Looks until there is an answer, for so many seconds.
fn look_for<T>(seconds: u64, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    loop {
        let found = look();
        if found.is_some() || std::time::Instant::now() >= until {
            return found;
        }
        pause_a_moment();
    }
}

/// Something about a worker's files went wrong.
fn unusable(worker: &crate::worker::store::Worker, err: &std::io::Error) -> Error {
    Error::failed(format!("cannot use {}: {err}", worker.path.display()))
        .hint("ralph keeps its workers there; RALPH_HOME names another place")
}
