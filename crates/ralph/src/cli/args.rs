//! Arguments shared by several commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::config::Duration;

use crate::launch::LaunchAction;

/// Where to work. Accepted before and after the command.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// Work in this directory; relative file arguments start there.
    #[arg(short = 'C', long, value_name = "PATH", short_alias = 'd', global = true)]
    pub project_dir: Option<PathBuf>,
}

/// The prompt's source.
#[derive(Debug, Default, Args)]
pub struct PromptArgs {
    /// The prompt.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "prompt_file",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,

    /// A file with the prompt, reread before each iteration.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

/// The completion rule.
#[derive(Debug, Default, Args)]
pub struct CompletionArgs {
    /// Done when the agent answers `<response>TEXT</response>` [run: DONE].
    #[arg(short, long, value_name = "TEXT", hide_short_help = true)]
    pub completion_response: Option<String>,

    /// Done when the agent answers `<promise>TEXT</promise>` [plan, build, prompt, work: COMPLETE].
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "completion_response",
        hide_short_help = true
    )]
    pub completion_promise: Option<String>,

    /// Done when the agent's own text matches this regular expression.
    #[arg(
        long,
        value_name = "REGEX",
        hide_short_help = true,
        conflicts_with_all = ["completion_response", "completion_promise"]
    )]
    pub done_pattern: Option<String>,
}

impl PromptArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.prompt.is_some() || self.prompt_file.is_some()
    }
}

/// Arguments of every loop command.
#[derive(Debug, Default, Args)]
pub struct LoopArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    /// A name for the run, used by `status`, `pause`, `logs` and others [default: the directory's name; in the
    /// background: worker-1, worker-2, …].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub name: Option<String>,

    /// Run in the background, in a tmux window.
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

    /// A command that must succeed before the run is done; repeatable.
    #[arg(long, value_name = "CMD")]
    pub check: Vec<String>,

    /// Commit after each iteration whose checks pass.
    #[arg(long)]
    pub commit: bool,

    /// The agent's program, instead of the one in the settings.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "agent_command", hide_short_help = true)]
    pub agent: Option<String>,

    /// The model that the agent should use.
    #[arg(long, value_name = "MODEL", hide_short_help = true)]
    pub model: Option<String>,

    /// Stop an agent that prints nothing for this long, such as 90, 5m or 1h30m; 0 is never.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = parse_duration_or_zero,
        allow_negative_numbers = true,
        hide_short_help = true
    )]
    pub inactivity_timeout: Option<Duration>,

    /// Isolate the agent, with the first sandbox that works or this one.
    #[arg(
        long,
        value_name = "BACKEND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        overrides_with = "no_sandbox"
    )]
    pub sandbox: Option<String>,

    /// Run without a sandbox, whatever the settings say.
    #[arg(long, overrides_with = "sandbox", hide_short_help = true)]
    pub no_sandbox: bool,

    /// Read this file instead of `.ralph/settings.json`.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub settings: Option<PathBuf>,

    /// Show the agent's work as it happens (the default).
    #[arg(long, overrides_with = "no_stream_agent_output", hide_short_help = true)]
    pub stream_agent_output: bool,

    /// Run the agent in its plain-text mode and hide its work.
    #[arg(long, hide_short_help = true)]
    pub no_stream_agent_output: bool,

    /// Also show what ralph itself does, in lines that begin with `[ralph]`.
    #[arg(short = 'V', long, hide_short_help = true)]
    pub verbose: bool,

    /// Print only warnings, errors and the outcome.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    /// Show what would run, without running it.
    #[arg(long)]
    pub dry_run: bool,

    /// Print the prompt, without running anything.
    #[arg(long, conflicts_with = "dry_run", hide_short_help = true)]
    pub print_prompt: bool,

    #[command(flatten)]
    pub budget: BudgetArgs,

    /// The agent's command line, instead of the one in the settings.
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

/// The form of a run's output.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Print one JSON event per line.
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// The form of the output [default: human].
    #[arg(long, value_name = "FORM", value_enum, hide_short_help = true)]
    output: Option<OutputMode>,
}

impl OutputArgs {
    pub fn mode(&self) -> Option<OutputMode> {
        if self.json { Some(OutputMode::Json) } else { self.output }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// For people: emoji and colour where the terminal has them.
    #[default]
    Human,
    /// One event per line, as in the journal.
    Json,
    /// For people and log files: plain characters, no colour.
    Plain,
}

/// Limits on what a run may use, over all its iterations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub struct BudgetArgs {
    /// Stop when the run has cost this much, in US dollars.
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub max_cost: Option<f64>,

    /// Stop when the run has used this many tokens, cached ones included.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        hide_short_help = true
    )]
    pub max_tokens: Option<u64>,

    /// Stop when the run has worked this long, such as 90m or 8h.
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
    number.ok_or_else(|| format!("must be a whole number from 1 to {}", u32::MAX))
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
    parsed.ok_or_else(|| {
        "must be a number of seconds or a duration such as 90s, 5m or 1h30m".to_owned()
    })
}
