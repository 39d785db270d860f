//! `ralph run`: loops over a prompt until the agent gives the completion response.

use clap::Args;

use crate::config::FlagSetting;
use ralph_events::error::Error;
use ralph_store::project::Project;

use crate::cli::args::{CompletionArgs, LoopArgs, PromptArgs};
use crate::launch::{self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, prompt, rules};
use crate::recover::recover;

pub const EXAMPLES: &str = "\
Examples:
  Make the tests pass, in at most five iterations, with no settings file:
    ralph run -n 5 --check \"make test\" -p \"Make the tests pass. \\
      Answer <response>DONE</response> when they do.\" -- claude

  With this project's settings, and a prompt file you may edit meanwhile:
    ralph run -f PROMPT.md

  In the background:
    ralph run -f PROMPT.md --background=fix

Exit codes:
  0 complete    1 iteration limit   2 bad usage, settings or input
  3 budget used up, or stalled      4 the agent kept failing
  5 complete, but an SCM task failed                 130 interrupted";

#[derive(Debug, Default, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

/// `extra` holds settings that have no flag.
pub fn run(project: &Project, args: &RunArgs, extra: Vec<FlagSetting>) -> Result<u8, Error> {
    let recovery = recover(project, &args.common)?;
    let prompt = prompt::prompt_source(&args.prompt)?;
    let loaded = launch::load_settings(project, &args.common, Vec::new(), extra)?;
    let default = || rules::configured_response(&loaded.settings);
    let completion = rules::completion_rule(&args.completion, default)?;
    let command = LoopCommand::Run;
    let spec = LaunchSpec::new(command, project, &args.common, None, loaded, prompt, completion);
    launch(LaunchPlan::new(project, spec, args.common.action(), recovery))
}

pub(super) fn launch(plan: LaunchPlan<'_>) -> Result<u8, Error> {
    if plan.action == LaunchAction::PrintPrompt {
        return plan.print_prompt(None);
    }
    let spec = plan.run_spec()?;
    plan.preflight(spec)?.start_or_show()
}
