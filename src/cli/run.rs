//! `ralph run`: a prompt of one's own, until the agent gives the completion response.

use crate::config::Flag;
use crate::error::Error;
use crate::state::project::Project;

use super::RunArgs;
use super::launch::{self, Defaults, Start, prompt, rules};

/// Runs the loop. `extra` is for settings that no flag can say.
///
/// # Errors
/// Whatever keeps the run from starting. What happens after that is an event, and an exit code.
pub(super) fn run(project: &Project, args: &RunArgs, extra: Vec<Flag>) -> Result<u8, Error> {
    let prompt = prompt::source(&args.prompt, &args.common)?;
    let loaded = launch::load(project, &args.common, Vec::new(), extra)?;
    let usual = || rules::configured_response(&loaded.settings);
    let completion = rules::completion(&args.completion, usual)?;
    let defaults = &Defaults::RUN;
    let start = Start { project, args: &args.common, defaults, loaded: &loaded };
    if args.common.print_prompt {
        return start.print_prompt(&prompt, None);
    }
    start.carry_out(start.spec(prompt, completion)?)
}
