//! The signals of a program that runs commands on other threads.
//!
//! They have pipes of their own: a command takes the signals of [`Interrupts`](super::Interrupts) and
//! [`System`](super::System) for those of its child.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use super::signals::is_inherited_ignore;

/// Keeps INT, TERM and HUP from ending this process, and reports them.
#[derive(Debug)]
pub struct EndSignals(UnixStream);

impl EndSignals {
    /// Handles the signals for the rest of the process's life.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn install() -> io::Result<EndSignals> {
        listen(&[SIGINT, SIGTERM, SIGHUP]).map(EndSignals)
    }

    /// Readable once a signal has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The same for a program that owns the terminal: also QUIT, and new sizes of the terminal.
#[derive(Debug)]
pub struct TerminalSignals {
    ends: UnixStream,
    resizes: UnixStream,
}

impl TerminalSignals {
    /// Handles the signals for the rest of the process's life.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn install() -> io::Result<TerminalSignals> {
        Ok(TerminalSignals {
            ends: listen(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])?,
            resizes: listen(&[SIGWINCH])?,
        })
    }

    /// One is readable once a signal has arrived.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.ends.as_fd(), self.resizes.as_fd()]
    }

    /// Whether a signal to end this process arrived. Takes resizes, too.
    pub fn take(&self) -> bool {
        let has_any = |mut stream: &UnixStream| {
            let mut bytes = [0; 64];
            std::iter::from_fn(|| stream.read(&mut bytes).ok().filter(|count| *count > 0)).count()
                > 0
        };
        has_any(&self.resizes);
        has_any(&self.ends)
    }
}

/// A stream that becomes readable with one of the signals. Signals that `nohup` and the like ignore stay ignored.
fn listen(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals.iter().filter(|signal| !is_inherited_ignore(**signal)) {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
