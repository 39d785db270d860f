//! The signals of a program that owns the terminal.

use std::io;
use std::os::fd::BorrowedFd;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use super::signals::SignalReader;
use super::{Signal, interrupts};

/// Keeps the signals from ending this process, and reports a new size of the terminal.
#[derive(Debug, Clone, Copy)]
pub struct TerminalSignals {
    signals: SignalReader,
}

impl TerminalSignals {
    /// Handles the signals for the rest of the process's life.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn install() -> io::Result<TerminalSignals> {
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH];
        Ok(TerminalSignals { signals: SignalReader::listen(&wanted)? })
    }

    /// Readable once a signal has arrived.
    pub fn fd(self) -> BorrowedFd<'static> {
        self.signals.fd()
    }

    /// The signals since the last call. A short command in another thread may have taken one to stop: look here
    /// after it, too.
    pub fn take(self) -> Vec<Signal> {
        let mut signals = Vec::new();
        if interrupts::take_recorded() {
            signals.push(Signal::Terminate);
        }
        self.signals.take_signals(|signal| signals.push(signal));
        signals
    }
}
