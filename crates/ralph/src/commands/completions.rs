//! `ralph completions`.

use clap::Args;

use ralph_events::error::Error;

use crate::cli::definition;

pub const EXAMPLES: &str = "\
Examples:
  ralph completions bash > ~/.local/share/bash-completion/completions/ralph
  ralph completions zsh > \"${fpath[1]}/_ralph\"
  ralph completions fish > ~/.config/fish/completions/ralph.fish";

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

pub fn completions(args: &CompletionsArgs) -> Result<u8, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "ralph", &mut script);
    crate::cli::print(&String::from_utf8_lossy(&script))
}
