//! `ralph build`.

use ralph_events::error::Error;
use ralph_store::project::Project;

use super::mode::{self, ModeArgs, select_prompt};
use crate::launch::LoopCommand;
use crate::recover::recover;

pub const EXAMPLES: &str = "\
Examples:
  Up to 20 tasks of the plan that `ralph plan` wrote:
    ralph build 20

  With other variables and another agent:
    ralph build --config ci.config

Exit codes:
  0 complete, or the limit reached   2 bad usage, settings or input; no plan   3 budget used up
  4 the agent kept failing   5 complete, but an SCM task failed   130 interrupted";

/// Used if the project has no prompt of its own.
pub(super) const BUILD_PROMPT: &str = include_str!("prompts/build.md");

pub fn build(project: &Project, args: ModeArgs) -> Result<u8, Error> {
    let recovery = recover(project, &args.common)?;
    let source = select_prompt(project, &args.prompt, LoopCommand::Build)?;
    mode::run(project, LoopCommand::Build, args, source, recovery)
}
