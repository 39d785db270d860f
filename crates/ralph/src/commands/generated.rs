//! `ralph completions` and `ralph man`: what other programs want to know of the command line.

use std::path::PathBuf;

use clap::Args;

use ralph_events::error::Error;

use crate::cli::definition;

pub const COMPLETIONS_EXAMPLES: &str = "\
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

pub const MAN_EXAMPLES: &str = "Examples:\n  ralph man ~/.local/share/man/man1";

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write them.
    pub directory: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> Result<u8, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "ralph", &mut script);
    crate::cli::print(&String::from_utf8_lossy(&script))
}

pub fn man(args: &ManArgs) -> Result<u8, Error> {
    let directory = args.directory.display();
    std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(definition(), &args.directory))
        .map_err(|err| Error::input(format!("cannot write to {directory}: {err}")))?;
    crate::cli::print(&format!("man pages written to {directory}\n"))
}
