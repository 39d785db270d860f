//! Being asked to stop while something is being done that must be undone first.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Signal;
use super::signals::Signals;

/// Somebody asked while a small command was running, which has taken the signal.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Keeps Ctrl+C and its like from ending this process. Small commands
/// ([`run_quick`](super::run_quick)) are still ended by it, with `Interrupted`.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    /// From now on, and for as long as this process lives.
    ///
    /// # Errors
    /// The signals cannot be taken over.
    pub fn catch() -> io::Result<Interrupts> {
        Ok(Interrupts { signals: Signals::listen(&[SIGINT, SIGTERM, SIGHUP])? })
    }

    /// What can be read once somebody has asked.
    pub fn fd(self) -> BorrowedFd<'static> {
        self.signals.fd()
    }

    /// Whether somebody has asked since this was last looked at.
    pub fn take(self) -> bool {
        let mut asked = ASKED.swap(false, Ordering::AcqRel);
        self.signals.take(|signal| asked |= signal != Signal::Resize);
        asked
    }
}

/// Remembers that a small command was ended by a request to stop.
pub(super) fn remember() {
    ASKED.store(true, Ordering::Release);
}
