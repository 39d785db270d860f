//! `ralph plan`.

use ralph_events::error::Error;
use ralph_store::project::Project;

use super::mode::{self, ModeArgs, select_prompt};
use crate::launch::LoopCommand;
use crate::recover::recover;

pub const EXAMPLES: &str = "\
Examples:
  Write .ralph/implementation_plan.md from the specifications in specs/:
    ralph plan -- claude

  With the agent of .ralph/config or the settings, at most three times:
    ralph plan 3

  See what the agent is asked:
    ralph plan --print-prompt

Exit codes:
  0 complete, or the limit reached   2 bad usage, settings or input   3 budget used up
  4 the agent kept failing   5 complete, but an SCM task failed   130 interrupted";

/// Used if the project has no prompt of its own.
pub(super) const PLAN_PROMPT: &str = include_str!("prompts/plan.md");

pub fn plan(project: &Project, args: ModeArgs) -> Result<u8, Error> {
    let recovery = recover(project, &args.common)?;
    let source = select_prompt(project, &args.prompt, LoopCommand::Plan)?;
    mode::run(project, LoopCommand::Plan, args, source, recovery)
}
