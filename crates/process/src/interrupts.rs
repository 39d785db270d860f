//! Deferred Ctrl+C, for work that must be undone before the process exits.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Signal;
use super::signals::{self, SignalReader};

/// Set when a short command consumed the signal.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Keeps INT, TERM and HUP from ending this process. They still end commands of
/// [`run_to_end`](super::run_to_end()), with `Interrupted`.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts {
    signals: SignalReader,
}

impl Interrupts {
    /// Handles the signals for the rest of the process's life.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn install() -> io::Result<Interrupts> {
        Ok(Interrupts { signals: SignalReader::listen(&[SIGINT, SIGTERM, SIGHUP])? })
    }

    /// Readable once a signal has arrived.
    pub fn fd(self) -> BorrowedFd<'static> {
        self.signals.fd()
    }

    /// Whether a signal arrived since the last call.
    pub fn take_interrupt(self) -> bool {
        let mut interrupted = INTERRUPTED.swap(false, Ordering::AcqRel);
        self.signals.take_signals(|signal| interrupted |= signal != Signal::Resize);
        interrupted
    }
}

/// INT, TERM and HUP in a pipe of their own, for a program that runs commands on other threads: they take the signals
/// of [`Interrupts`] for those of their child.
#[derive(Debug)]
pub struct EndSignals {
    reader: io::PipeReader,
}

impl EndSignals {
    /// Handles the signals for the rest of the process's life.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn install() -> io::Result<EndSignals> {
        let (reader, writer) = io::pipe()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if !signals::is_inherited_ignore(signal) {
                signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            }
        }
        Ok(EndSignals { reader })
    }

    /// Readable once a signal has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

pub(super) fn record_interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}
