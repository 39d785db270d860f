//! The signals of a program that owns the terminal.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

/// Keeps the signals from ending this process, and reports a new size of the terminal.
///
/// Not by the pipe of [`System`](super::System): a short command in another thread waits for that.
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
        let listen = |signals: &[i32]| -> io::Result<UnixStream> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            for signal in signals {
                pipe::register(*signal, writer.try_clone()?)?;
            }
            Ok(reader)
        };
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
