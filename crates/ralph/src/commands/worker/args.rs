//! Arguments and help of the worker commands.

use clap::{Args, ValueEnum};

use crate::cli::args::LoopArgs;
use crate::workers::selection::WorkerSelection;

#[derive(Debug, Default, Args)]
pub struct SpawnArgs {
    /// Wait until the loop ends, and exit with its exit code.
    #[arg(long)]
    pub wait: bool,

    /// Work in a new git worktree, REPOSITORY-worktrees/NAME.
    #[arg(short, long)]
    pub worktree: bool,

    /// The worktree's branch [default: a new one from HEAD, named like the run].
    #[arg(long, value_name = "BRANCH", requires = "worktree")]
    pub branch: Option<String>,

    /// Run the agent's own terminal interface in the window and type the prompt there. Its cost is unknown then.
    #[arg(short, long)]
    pub interactive: bool,

    /// Ignored; every background run is a loop in tmux.
    #[arg(long, hide = true)]
    pub ralph: bool,

    #[arg(long, hide = true)]
    pub tmux: bool,

    #[command(flatten)]
    pub common: LoopArgs,
}

#[derive(Debug, Args)]
pub struct SelectionArgs {
    /// A run's name, id, beginning of the id, or last four characters of it.
    pub name: String,
}

#[derive(Debug, Args)]
pub struct KillArgs {
    #[command(flatten)]
    pub which: WorkerSelection,

    /// Stop after the current iteration, its checks and its commit, and return at once.
    #[arg(long)]
    pub after_iteration: bool,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    #[command(flatten)]
    pub which: WorkerSelection,

    /// Also remove its git worktree, unless that has uncommitted work.
    #[arg(short, long)]
    pub worktree: bool,

    /// Remove the worktree even with uncommitted work.
    #[arg(long, requires = "worktree")]
    pub force: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people.
    #[default]
    Table,
    /// An array of objects.
    Json,
    /// One name per line.
    Names,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Print a JSON array.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// The form of the list.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,

    /// Keep the list on screen and up to date.
    #[arg(short, long)]
    pub watch: bool,
}

impl LsArgs {
    pub fn format(&self) -> ListFormat {
        if self.json { ListFormat::Json } else { self.format }
    }
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A run's name, id, beginning of the id, or last four characters of it [default: every run that has not ended].
    pub name: Option<String>,

    /// Include runs that have ended.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,

    /// Keep the status on screen and up to date.
    #[arg(short, long)]
    pub watch: bool,

    /// Print a JSON object, or an array of them.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// The form of the status.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = StatusFormat::Text, hide_short_help = true)]
    format: StatusFormat,
}

impl StatusArgs {
    pub fn format(&self) -> StatusFormat {
        if self.json { StatusFormat::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// For people.
    #[default]
    Text,
    /// An object, or an array of them.
    Json,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// A run's name, id, beginning of the id, or last four characters of it.
    pub name: String,

    /// Keep printing until the run ends.
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct SendArgs {
    /// The background run's name.
    pub name: String,

    /// The text to type, followed by Enter.
    pub text: String,
}

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Write the prompt to PROMPT.md.
    #[arg(long)]
    pub write: bool,

    /// Overwrite an existing PROMPT.md.
    #[arg(long, requires = "write")]
    pub force: bool,
}
