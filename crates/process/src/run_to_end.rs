//! Short commands that are run to their end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{ChildEnd, Launch, Occurrence, Signal, System, interrupts};
use ralph_events::event::{Exit, Stream};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs a command to its end. Processes that it leaves in the background (a git daemon, a tmux
/// server) are kept.
///
/// For use before a [`System`] exists; with one, this fails with `AlreadyExists` and
/// [`System::run_to_end`] is the way. Ctrl+C ends this process and the command, unless
/// [`Interrupts`](super::Interrupts) are installed.
pub fn run_to_end(
    program: &OsStr,
    args: &[OsString],
    directory: &Path,
    env: &[(OsString, Option<OsString>)],
    timeout: Duration,
) -> io::Result<CommandOutput> {
    let launch = quick_launch(program, args, directory, env);
    run_exclusive(&launch, timeout)
}

/// Like [`run_to_end`], for any launch. Threads take turns.
pub fn run_exclusive(launch: &Launch<'_>, timeout: Duration) -> io::Result<CommandOutput> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = System::with_child_signals_only()?.wait_to_end(launch, timeout);
    if output.as_ref().is_err_and(|err| err.kind() == io::ErrorKind::Interrupted) {
        interrupts::record_interrupt();
    }
    output
}

fn quick_launch<'a>(
    program: &'a OsStr,
    args: &'a [OsString],
    directory: &'a Path,
    env: &'a [(OsString, Option<OsString>)],
) -> Launch<'a> {
    let plain = Launch::plain(directory, program, args, env);
    Launch { merge_stderr: false, keep_background: true, term_on_parent_death: true, ..plain }
}

impl System {
    /// Like the function [`run_to_end`]. No child may be running.
    ///
    /// A signal to stop ends the command with the error `Interrupted` and is reported again by the
    /// next [`System::wait`]. The error after the timeout is `TimedOut`.
    pub fn run_to_end(
        &mut self,
        program: &OsStr,
        args: &[OsString],
        directory: &Path,
        env: &[(OsString, Option<OsString>)],
        timeout: Duration,
    ) -> io::Result<CommandOutput> {
        self.wait_to_end(&quick_launch(program, args, directory, env), timeout)
    }

    fn wait_to_end(&mut self, launch: &Launch<'_>, timeout: Duration) -> io::Result<CommandOutput> {
        if !self.is_idle() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another command is running"));
        }
        let (child, _) = self.start(launch)?;
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let mut deadline = Some(self.now_ms().saturating_add(timeout));
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut failure = None;
        let mut signals = Vec::new();
        let mut buf = Vec::new();
        let ended = loop {
            match self.wait(deadline, &mut buf) {
                Occurrence::Output(_, Stream::Stdout) => stdout.extend_from_slice(&buf),
                Occurrence::Output(_, Stream::Stderr) => stderr.extend_from_slice(&buf),
                Occurrence::Ended(_, ended) => break ended,
                Occurrence::Signal(signal) => {
                    signals.push(signal);
                    if signal != Signal::Resize {
                        failure.get_or_insert(io::ErrorKind::Interrupted);
                        self.terminate_child(child);
                    }
                }
                Occurrence::ProxyRefused
                | Occurrence::ControlRequest
                | Occurrence::KeyInput
                | Occurrence::FilesChanged => {}
                Occurrence::Deadline => {
                    deadline = None;
                    failure.get_or_insert(io::ErrorKind::TimedOut);
                    self.terminate_child(child);
                }
            }
        };
        self.requeue_signals(signals);
        match (failure, ended) {
            (None, ChildEnd { exit: Some(exit), .. }) => Ok(CommandOutput { exit, stdout, stderr }),
            (Some(kind), _) => Err(kind.into()),
            (None, ChildEnd { exit: None, .. }) => Err(io::Error::other("unknown exit status")),
        }
    }
}
