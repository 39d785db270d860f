//! A program that repairs the terminal after this one was killed.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

/// Waits for a line, which says that all is well. The end of input without one means that the writer is dead: restores the
/// screen, and the line settings unless a shell has done so already.
const SCRIPT: &str = r#"trap "" HUP INT QUIT TERM TSTP TTOU
raw=$(stty -g <&1)
read -r _ && exit
printf %s "$0"
[ "$(stty -g <&1)" = "$raw" ] && stty sane <&1"#;

/// Writes `leave` to the terminal if this process dies without [`TerminalGuard::release`].
#[derive(Debug)]
pub struct TerminalGuard {
    child: Child,
}

impl TerminalGuard {
    /// Call it in raw mode, with the terminal as standard output.
    ///
    /// # Errors
    /// There is no shell.
    pub fn start(leave: &str) -> io::Result<TerminalGuard> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, leave]).stdin(Stdio::piped()).stderr(Stdio::null());
        // An agent may have planted a `stty` on the user's path.
        command.env_clear().env("PATH", "/usr/bin:/bin");
        Ok(TerminalGuard { child: command.spawn()? })
    }

    pub fn release(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.child.wait();
    }
}

/// Stops the job of this process, as Ctrl+Z does outside of raw mode. Returns when a shell continues it.
pub fn suspend_job() -> io::Result<()> {
    Ok(rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?)
}
