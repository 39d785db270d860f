//! Arguments and help of the worker commands.

use clap::{Args, ValueEnum};

use crate::cli::args::LoopArgs;
use crate::workers::selection::WorkerSelection;

#[derive(Debug, Default, Args)]
pub struct SpawnArgs {
    /// Wait for the end of the loop, and exit with its code.
    #[arg(long)]
    pub wait: bool,

    /// Give it a git worktree of its own, beside the repository: REPOSITORY-worktrees/NAME.
    #[arg(short, long)]
    pub worktree: bool,

    /// The branch of the worktree; without this, a new one with the worker's name, from HEAD.
    #[arg(long, value_name = "BRANCH", requires = "worktree")]
    pub branch: Option<String>,

    /// Run the agent with its own screen in the window, and type the prompt there. What it costs is not told
    /// then: only a machine-readable stream says it.
    #[arg(short, long)]
    pub interactive: bool,

    /// Accepted for those who are used to it: every worker loops, in tmux.
    #[arg(long, hide = true)]
    pub ralph: bool,

    #[arg(long, hide = true)]
    pub tmux: bool,

    #[command(flatten)]
    pub common: LoopArgs,
}

#[derive(Debug, Args)]
pub struct SelectionArgs {
    /// The run: name, run id, the beginning of it, or its last four characters.
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    #[command(flatten)]
    pub which: WorkerSelection,

    /// Remove its git worktree, too, unless that holds uncommitted work.
    #[arg(short, long)]
    pub worktree: bool,

    /// Remove the worktree whatever it holds.
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
    /// One name a line.
    Names,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// How to list them.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = ListFormat::Table)]
    pub format: ListFormat,

    /// Show it again every second.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The run: name, run id, the beginning of it, or its last four characters; without it, all that run or are paused.
    pub name: Option<String>,

    /// Those that have come to their end, too.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,

    /// Show it again every second.
    #[arg(short, long)]
    pub watch: bool,

    /// How to tell it.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = StatusFormat::Text)]
    pub format: StatusFormat,
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
    /// The run: name, run id, the beginning of it, or its last four characters.
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
