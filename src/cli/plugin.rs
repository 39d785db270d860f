//! `ralph plugin`: what Claude Code installs.

use std::path::Path;

use crate::error::Error;
use crate::plugin;

use super::{PluginArgs, PluginCommand};

/// # Errors
/// It cannot be written there.
pub(super) fn plugin(args: &PluginArgs) -> Result<u8, Error> {
    let PluginCommand::Export { directory, force } = &args.command;
    plugin::export(directory, *force)?;
    let shown = shell_words::quote(&directory.to_string_lossy()).into_owned();
    let mut text = format!(
        "The plugin is in {}\n\nTo use it in one session:\n  claude --plugin-dir {shown}\n",
        directory.display()
    );
    if !is_on_path() {
        text.push_str("\nIts hooks call `ralph`, which has to be on the PATH for that.\n");
    }
    super::print(&text)
}

fn is_on_path() -> bool {
    let path = std::env::var_os("PATH");
    crate::process::find_program("ralph".as_ref(), path.as_deref(), Path::new(".")).is_some()
}
