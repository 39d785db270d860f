//! Programs that work beside this one: in its terminal, or in the background until it leaves.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs a program that takes over the terminal, and waits for its end. `Some` sets a variable, `None` removes it.
///
/// # Errors
/// It cannot be started.
pub fn run_in_terminal(command: &[OsString], env: &[(&str, Option<OsString>)]) -> io::Result<()> {
    let Some((program, args)) = command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "empty command"));
    };
    let mut command = Command::new(program);
    command.args(args);
    for (name, value) in env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn()?;
    // A short command in another thread may have collected the exit status.
    let _ = child.wait();
    Ok(())
}

/// A program without input and output. TERM and INT end it when this is dropped.
#[derive(Debug)]
pub struct Companion {
    child: Child,
}

impl Companion {
    /// # Errors
    /// It cannot be started.
    pub fn start(
        program: &Path,
        args: &[OsString],
        directory: &Path,
        env: &[(&str, OsString)],
    ) -> io::Result<Companion> {
        let mut command = Command::new(program);
        command.args(args).current_dir(directory).envs(env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Companion { child: command.spawn()? })
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // The pid is not reused before it is waited for.
        if let Some(pid) =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // A run finishes its step after the first signal; a second one of the same kind could be lost.
            for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        let _ = self.child.wait();
    }
}
