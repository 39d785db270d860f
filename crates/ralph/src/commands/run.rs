//! `ralph run`: loops over a prompt until the agent gives the completion response.

use crate::config::FlagSetting;
use ralph_events::error::Error;
use ralph_store::project::Project;

use crate::cli::args::LoopArgs;
use crate::launch::{self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, prompt};
use crate::recover::recover;

/// `extra` holds settings that have no flag.
pub fn run(project: &Project, args: &LoopArgs, extra: Vec<FlagSetting>) -> Result<u8, Error> {
    let recovery = recover(project, args)?;
    let prompt = prompt::prompt_source(&args.prompt)?;
    let loaded = launch::load_settings(project, args, Vec::new(), extra)?;
    let spec = LaunchSpec::new(LoopCommand::Run, project, args, None, loaded, prompt)?;
    launch(LaunchPlan::new(project, spec, args.action(), recovery))
}

pub(super) fn launch(plan: LaunchPlan<'_>) -> Result<u8, Error> {
    if plan.action == LaunchAction::PrintPrompt {
        return plan.print_prompt(None);
    }
    let spec = plan.run_spec()?;
    plan.preflight(spec)?.start_or_show()
}
