//! Being asked to stop while something is being done that must be undone first.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Signal;
use super::signals::SignalReader;

/// Somebody asked while a small command was running, which has taken the signal.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Keeps Ctrl+C and its like from ending this process. Small commands
/// ([`run_quick`](super::run_quick)) are still ended by it, with `Interrupted`.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts {
    signals: SignalReader,
}

impl Interrupts {
    /// From now on, and for as long as this process lives.
    ///
    /// # Errors
    /// The signals cannot be taken over.
    pub fn install() -> io::Result<Interrupts> {
        Ok(Interrupts { signals: SignalReader::listen(&[SIGINT, SIGTERM, SIGHUP])? })
    }

    /// What can be read once somebody has asked.
    pub fn fd(self) -> BorrowedFd<'static> {
        self.signals.fd()
    }

    /// Whether somebody has asked since this was last looked at.
    pub fn take_interrupt(self) -> bool {
        let mut asked = INTERRUPTED.swap(false, Ordering::AcqRel);
        self.signals.take_signals(|signal| asked |= signal != Signal::Resize);
        asked
    }
}

/// Remembers that a small command was ended by a request to stop.
pub(super) fn record_interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}
