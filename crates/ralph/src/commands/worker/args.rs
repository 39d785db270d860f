//! Arguments and help of the worker commands.

use clap::{Args, ValueEnum};

use crate::cli::args::{CompletionArgs, LoopArgs, PromptArgs};
use crate::workers::selection::WorkerSelection;

pub const SPAWN_EXAMPLES: &str = "\
Examples:
  A loop in the background, in the window `agent` of the tmux session `ralph`:
    ralph spawn --name agent -f PROMPT.md -n 100 --done-pattern \"All tasks complete\" -- claude

  Wait for it, and exit with its code:
    ralph spawn --name agent -f PROMPT.md -n 10 --wait -- claude && echo done

  With the agent's own screen, to watch and to type into:
    ralph spawn --name agent -f PROMPT.md -n 10 --interactive -- claude

  Several at once in one repository, each in a git worktree and on a branch of its own:
    ralph spawn --name docs --worktree -f DOCS.md -n 20 -- claude
    ralph spawn --name tests --worktree -f TESTS.md -n 20 -- claude

Then: ralph status agent, ralph attach agent, ralph pause agent, ralph logs -f agent.";
pub const LS_EXAMPLES: &str = "\
Examples:
  ralph ls
  ralph ls --watch
  ralph ls --format json | jq '.[] | select(.status == \"failed\") | .name'";
pub const STATUS_EXAMPLES: &str = "\
Examples:
  ralph status agent
  ralph status --watch
  ralph status agent --format json | jq .left_seconds";
pub const PAUSE_EXAMPLES: &str = "\
Examples:
  ralph pause agent
  ralph pause --all

What the agent is doing it may finish. A wait before another try ends at once.";
pub const KILL_EXAMPLES: &str = "\
Examples:
  ralph kill agent
  ralph kill docs tests
  ralph kill --all

The agent is ended with everything that it started.";
pub const RM_EXAMPLES: &str = "\
Examples:
  ralph rm agent
  ralph rm --all
  ralph rm --worktree agent

A worktree with uncommitted work is kept, and so is a branch with commits that are nowhere else.";
pub const LOGS_EXAMPLES: &str = "Examples:\n  ralph logs agent\n  ralph logs -f agent";
pub const ATTACH_EXAMPLES: &str = "\
Examples:
  ralph attach agent

Leave it with Ctrl-B D (or your tmux prefix and D).";
pub const WAIT_EXAMPLES: &str = "Examples:\n  ralph wait agent && notify-send \"done\" || notify-send \"failed\"\n  ralph wait docs tests\n  ralph wait --all";
pub const SEND_EXAMPLES: &str = "Examples:\n  ralph send agent \"yes, go on\"";
pub const TEMPLATE_EXAMPLES: &str = "\
Examples:
  ralph template > BUILD_PROMPT.md
  ralph template --write";

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
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

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
