//! Arguments shared by several commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::config::Duration;

use crate::launch::LaunchAction;

/// Where to work. It may be said before or after the command.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// Work in this directory instead of the current one. Files that are named for a loop are looked for there.
    #[arg(short = 'C', long, value_name = "PATH", short_alias = 'd', global = true)]
    pub project_dir: Option<PathBuf>,
}

/// What the agent is asked.
#[derive(Debug, Default, Args)]
pub struct PromptArgs {
    /// What to ask the agent.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "prompt_file",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,

    /// A file with what to ask the agent. It is read again for each iteration.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

/// What completes a loop.
#[derive(Debug, Default, Args)]
pub struct CompletionArgs {
    /// Complete when the agent answers `<response>TEXT</response>` (the default of run, with DONE).
    #[arg(short, long, value_name = "TEXT")]
    pub completion_response: Option<String>,

    /// Complete when the agent says `<promise>TEXT</promise>` (the default of plan, build, prompt and
    /// work, with COMPLETE).
    #[arg(long, value_name = "TEXT", conflicts_with = "completion_response")]
    pub completion_promise: Option<String>,

    /// Complete when what the agent says matches this regular expression.
    #[arg(
        long,
        value_name = "REGEX",
        conflicts_with_all = ["completion_response", "completion_promise"]
    )]
    pub done_pattern: Option<String>,
}

/// What every loop takes.
#[derive(Debug, Default, Args)]
pub struct LoopArgs {
    /// What to call the run, for commands such as `ralph status`; without this, a worker is worker-1 and so on, and
    /// other runs have the name of their directory.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Run in the background, in a tmux window; with a name, the same as --background --name NAME.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["dry_run", "print_prompt"]
    )]
    pub background: Option<String>,

    /// Stop after this many iterations.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        short_alias = 'm',
        visible_alias = "maximum-iterations",
        allow_negative_numbers = true,
        value_parser = parse_iterations
    )]
    pub max_iterations: Option<u32>,

    /// A command that must exit with 0 before the work counts as done; may be repeated.
    #[arg(long, value_name = "CMD")]
    pub check: Vec<String>,

    /// Commit after each iteration that passes its checks.
    #[arg(long)]
    pub commit: bool,

    /// The agent's program, instead of the one in the settings.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "agent_command")]
    pub agent: Option<String>,

    /// The model to ask the agent for.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// End an agent that prints nothing for this long: seconds, or a text such as 5m or 1h30m; 0 is never.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_zero, allow_negative_numbers = true)]
    pub inactivity_timeout: Option<Duration>,

    /// Lock the agent in: by the first sandbox that works, or by this one (bwrap, docker, landlock; on a Mac seatbelt, docker).
    #[arg(
        long,
        value_name = "BACKEND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        overrides_with = "no_sandbox"
    )]
    pub sandbox: Option<String>,

    /// Run the agent as your user, on your files, whatever the settings say.
    #[arg(long, overrides_with = "sandbox")]
    pub no_sandbox: bool,

    /// Read settings from this file instead of `.ralph/settings.json`.
    #[arg(long, value_name = "PATH")]
    pub settings: Option<PathBuf>,

    /// Show what the agent does while it does it (the default).
    #[arg(long, overrides_with = "no_stream_agent_output")]
    pub stream_agent_output: bool,

    /// Run the agent in its plain mode and do not show what it does.
    #[arg(long)]
    pub no_stream_agent_output: bool,

    /// Tell what ralph itself does, in lines that begin with `[ralph]`.
    #[arg(short = 'V', long)]
    pub verbose: bool,

    /// Print only warnings, errors and the outcome.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// How to show what happens.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = OutputMode::Human)]
    pub output: OutputMode,

    /// Show what would be run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Print what the agent would be asked, and run nothing.
    #[arg(long, conflicts_with = "dry_run")]
    pub print_prompt: bool,

    #[command(flatten)]
    pub budget: BudgetArgs,

    /// The agent to run, with its flags, instead of the one in the settings.
    #[arg(last = true, value_name = "COMMAND")]
    pub agent_command: Vec<String>,
}

impl LoopArgs {
    pub(crate) fn run_name(&self) -> Option<&str> {
        let background = self.background.as_deref().filter(|name| !name.is_empty());
        background.or(self.name.as_deref())
    }

    pub(crate) fn action(&self) -> LaunchAction {
        match self {
            LoopArgs { print_prompt: true, .. } => LaunchAction::PrintPrompt,
            LoopArgs { dry_run: true, .. } => LaunchAction::DryRun,
            LoopArgs { background: Some(_), .. } => LaunchAction::StartInBackground,
            _ => LaunchAction::Start,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// For people: emoji and colour where the terminal has them.
    #[default]
    Human,
    /// One event a line, as in the journal.
    Json,
    /// For people and log files: plain characters, no colour.
    Plain,
}

/// What a run may use up, all its iterations together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub struct BudgetArgs {
    /// Stop when the run has cost this many US dollars.
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub max_cost: Option<f64>,

    /// Stop when the run has used this many tokens, cached ones included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,

    /// Stop when the run has been at work for so long: seconds, or a text such as 8h or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_time: Option<Duration>,
}

impl BudgetArgs {
    pub fn is_none(&self) -> bool {
        *self == BudgetArgs::default()
    }
}

pub fn parse_iterations(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("it must be a whole number from 1 to {}", u32::MAX))
}

fn parse_dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(dollars) if dollars.is_finite() && dollars > 0.0 => Ok(dollars),
        _ => Err("must be a number above 0".to_owned()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = Duration::parse(text).filter(|duration| !duration.is_zero());
    parsed.ok_or_else(|| "must be a duration such as 90m, 8h or 1h30m".to_owned())
}

fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let parsed = Duration::parse(text);
    parsed.ok_or_else(|| "must be seconds, or a duration such as 90s, 5m or 1h30m".to_owned())
}
