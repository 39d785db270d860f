//! `ralph hook` with flags or for help. Other calls take the fast path in `main`.

use clap::Args;

use crate::hooks;

pub const EXAMPLES: &str = "\
Claude Code calls these by itself: with the plugin (`ralph plugin export`) all of them, and in a run
without a sandbox the first.

Examples:
  What would it say to this command, if a loop's agent used it?
    echo '{\"cwd\": \"'$PWD'\", \"tool_name\": \"Bash\", \"tool_input\": {\"command\": \"rm -rf ~\"}}' |
      RALPH_RUN_ID=try ralph hook pre-tool-use";

#[derive(Debug, Args)]
pub struct HookArgs {
    /// Which one: pre-tool-use, post-tool-use, stop or session-start.
    pub name: String,
}

pub fn hook(args: HookArgs) -> u8 {
    hooks::main(&[args.name.into()]);
    0
}
