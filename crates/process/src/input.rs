//! The standard input of a child that is fed bit by bit.

use std::io::PipeWriter;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

/// What waits for a child that does not read. Beyond that it is not for us to keep.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// What a child is still to read.
#[derive(Debug)]
pub(super) struct ChildInput {
    pipe: PipeWriter,
    pending: Vec<u8>,
    /// How much of it has been written.
    written: usize,
    closing: bool,
}

impl ChildInput {
    /// The pipe must not block.
    pub(super) fn new(pipe: PipeWriter) -> Self {
        ChildInput { pipe, pending: Vec::new(), written: 0, closing: false }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// There is something that the pipe did not take.
    pub(super) fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    /// Writes what the pipe takes at once, past what waits: for a child that is only ever fed so.
    pub(super) fn try_write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(&self.pipe, bytes)
    }

    /// Says whether it was taken, all of it.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_PENDING_BYTES.saturating_sub(self.pending.len() - self.written);
        if self.closing || bytes.len() > room {
            return false;
        }
        self.pending.drain(..std::mem::take(&mut self.written));
        self.pending.extend_from_slice(bytes);
        true
    }

    pub(super) fn close(slot: &mut Option<ChildInput>) {
        if let Some(input) = slot {
            input.closing = true;
        }
        ChildInput::flush(slot);
    }

    /// Writes what the pipe takes, and closes it once there is nothing left to come, or nobody left to
    /// read it.
    pub(super) fn flush(slot: &mut Option<ChildInput>) {
        let Some(input) = slot else { return };
        while input.has_pending() {
            match rustix::io::write(&input.pipe, &input.pending[input.written..]) {
                Ok(written) => input.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    *slot = None;
                    return;
                }
            }
        }
        if input.closing {
            *slot = None;
        }
    }
}
