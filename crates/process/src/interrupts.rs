//! Deferred Ctrl+C, for work that must be undone before the process exits.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Signal;
use super::signals::SignalReader;

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

pub(super) fn record_interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}
