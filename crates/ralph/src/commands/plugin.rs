//! `ralph plugin`: exports the plugin for Claude Code.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::plugin;
use ralph_events::error::Error;
use ralph_process::trust;

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Write the plugin to a directory.
    Export {
        /// Where to; it is made if it is not there.
        directory: PathBuf,

        /// Overwrite existing files of the plugin.
        #[arg(long)]
        force: bool,
    },
}

pub fn plugin(args: &PluginArgs) -> Result<u8, Error> {
    let PluginCommand::Export { directory, force } = &args.command;
    plugin::export(directory, *force)?;
    let shown = shell_words::quote(&directory.to_string_lossy()).into_owned();
    let mut text = format!(
        "The plugin is in {}\n\nTo use it in one session:\n  claude --plugin-dir {shown}\n",
        directory.display()
    );
    if trust::outside_program("ralph".as_ref()).is_err() {
        text.push_str("\nIts hooks call `ralph`, which must be on the PATH.\n");
    }
    crate::cli::print(&text)
}
