//! `ralph prompt`.

use std::path::PathBuf;

use clap::Args;

use ralph_events::error::Error;
use ralph_store::project::Project;

use super::mode::{self, ModeArgs};
use crate::launch::{LoopCommand, prompt};
use crate::recover::recover;

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
        None => prompt::prompt_source(&args.common.prompt)?,
    };
    mode::run(project, LoopCommand::Prompt, args, source, recovery)
}
