//! `ralph hook` with flags or for help. Other calls take the fast path in `main`.

use clap::Args;

use crate::hooks;

pub const EXAMPLES: &str = "\
Claude Code calls these itself: all of them with the plugin
(`ralph plugin export`), the first one in every run without a sandbox.

Examples:
  Would this command be allowed inside a loop?
    echo '{\"cwd\": \"/tmp\", \"tool_name\": \"Bash\",
      \"tool_input\": {\"command\": \"git push --force\"}}' |
      RALPH_RUN_ID=try ralph hook pre-tool-use";

#[derive(Debug, Args)]
pub struct HookArgs {
    /// pre-tool-use, post-tool-use, stop or session-start.
    pub name: String,
}

pub fn hook(args: HookArgs) -> u8 {
    hooks::main(&[args.name.into()]);
    0
}
