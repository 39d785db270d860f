//! `ralph prompt`.

use std::path::PathBuf;

use clap::Args;

use ralph_events::error::Error;
use ralph_store::project::Project;

use super::mode::{self, ModeArgs};
use crate::launch::{LoopCommand, prompt};
use crate::recover::recover;

pub const EXAMPLES: &str = "\
Examples:
  ralph prompt prompts/refactor-analysis.md
  ralph prompt prompts/refactor-analysis.md 5 -- codex

The prompt must ask for <promise>COMPLETE</promise> when the work is done.

Exit codes:
  0 complete, or iteration limit    1 the prompt never mentions the signal
  2 bad usage, settings or input    3 budget used up, or stalled
  4 the agent kept failing          5 complete, but an SCM task failed
  130 interrupted";

#[derive(Debug, Args)]
pub struct AdHocArgs {
    /// The prompt file, reread before each iteration.
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["prompt", "prompt_file"],
        required_unless_present_any = ["prompt", "prompt_file"]
    )]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub mode: ModeArgs,
}

pub fn prompt(project: &Project, args: AdHocArgs) -> Result<u8, Error> {
    let AdHocArgs { file, mode: args } = args;
    let recovery = recover(project, &args.common)?;
    let source = match &file {
        Some(path) => prompt::prompt_file(path)?,
        None => prompt::prompt_source(&args.prompt)?,
    };
    mode::run(project, LoopCommand::Prompt, args, source, recovery)
}
