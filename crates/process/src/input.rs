//! The standard input of a child, written piece by piece.

use std::io::PipeWriter;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

/// The most that is buffered for a child that does not read.
const MAX_PENDING_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct ChildInput {
    pipe: PipeWriter,
    pending: Vec<u8>,
    /// How much of `pending` was written.
    written: usize,
    closing: bool,
}

impl ChildInput {
    /// `pipe` must be nonblocking.
    pub(super) fn new(pipe: PipeWriter) -> Self {
        ChildInput { pipe, pending: Vec::new(), written: 0, closing: false }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    pub(super) fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    /// Writes what the pipe takes now, bypassing `pending`. Do not mix with [`ChildInput::push`].
    pub(super) fn try_write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(&self.pipe, bytes)
    }

    /// Queues all of `bytes`, or returns `false`.
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

    /// Writes what the pipe takes. Closes it when all is written or the reader is gone.
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
