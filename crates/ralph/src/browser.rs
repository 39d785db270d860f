//! Opens a page in the user's browser.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use ralph_process::trust::{OutsideCommand, outside_program};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// In the background: some browsers run as long as their window is open.
const START: &str = "\"$0\" \"$1\" >/dev/null 2>&1 &";

/// Starts the program that opens files. Whether it shows the page is not known.
///
/// # Errors
/// This machine has no such program, or it cannot be started.
pub(crate) fn open(page: &Path) -> Result<(), String> {
    let name = if std::env::consts::OS == "macos" { "open" } else { "xdg-open" };
    let opener =
        outside_program(OsStr::new(name)).map_err(|_| format!("{name} is not installed"))?;
    let shell = OutsideCommand::find(OsStr::new("/bin/sh"), &[]).map_err(|err| err.to_string())?;
    let args: [OsString; 4] = ["-c".into(), START.into(), opener.into(), page.into()];
    let directory = page.parent().unwrap_or(Path::new("/"));
    shell.run(&args, directory, START_TIMEOUT).map_err(|err| err.to_string())?;
    Ok(())
}
