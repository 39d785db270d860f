//! Arguments and help of the worker commands.

use clap::{Args, ValueEnum};

use crate::cli::args::{CompletionArgs, LoopArgs, PromptArgs};
use crate::workers::selection::WorkerSelection;

pub const SPAWN_EXAMPLES: &str = "\
Examples:
  Start a loop in the background:
    ralph spawn --name docs -f PROMPT.md -n 20 --done-pattern DONE -- claude

  Wait for it, and exit with its exit code:
    ralph spawn --name docs -f PROMPT.md -n 10 --wait -- claude

  With the agent's own terminal interface:
    ralph spawn --name docs -f PROMPT.md -n 10 --interactive -- claude

  Two loops in one repository, each in its own worktree:
    ralph spawn --name docs --worktree -f DOCS.md -n 20 -- claude
    ralph spawn --name tests --worktree -f TESTS.md -n 20 -- claude

Then: `ralph ls`, `ralph logs -f docs`, `ralph pause docs`, `ralph attach docs`.";
pub const LS_EXAMPLES: &str = "\
Examples:
  ralph ls
  ralph ls --watch
  ralph ls --json | jq -r '.[] | select(.status == \"failed\") | .name'";
pub const STATUS_EXAMPLES: &str = "\
Examples:
  ralph status docs
  ralph status --watch
  ralph status docs --json | jq .left_seconds";
pub const PAUSE_EXAMPLES: &str = "\
Examples:
  ralph pause docs
  ralph pause --all

The agent finishes its current iteration first.";
pub const KILL_EXAMPLES: &str = "\
Examples:
  ralph kill docs
  ralph kill docs tests
  ralph kill --all";
pub const RM_EXAMPLES: &str = "\
Examples:
  ralph rm docs
  ralph rm --all
  ralph rm --worktree docs

Uncommitted work and unmerged commits are kept.";
pub const LOGS_EXAMPLES: &str = "Examples:\n  ralph logs docs\n  ralph logs -f docs";
pub const ATTACH_EXAMPLES: &str = "\
Examples:
  ralph attach docs

Leave with Ctrl-B D (your tmux prefix, then D).";
pub const WAIT_EXAMPLES: &str =
    "Examples:\n  ralph wait docs && git merge docs\n  ralph wait docs tests\n  ralph wait --all";
pub const SEND_EXAMPLES: &str = "Examples:\n  ralph send docs \"yes, continue\"";
pub const TEMPLATE_EXAMPLES: &str = "\
Examples:
  ralph template --write
  ralph template > BUILD_PROMPT.md";

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
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

#[derive(Debug, Args)]
pub struct SelectionArgs {
    /// A run's name, id, beginning of the id, or last four characters of it.
    pub name: String,
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
