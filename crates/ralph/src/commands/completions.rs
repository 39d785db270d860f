//! `ralph completions`.

use clap::Args;

use ralph_events::error::Error;

use crate::cli::definition;

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
