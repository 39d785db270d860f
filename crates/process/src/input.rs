//! The standard input of a child that is fed bit by bit.

use std::io::PipeWriter;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

/// What waits for a child that does not read. Beyond that it is not for us to keep.
const MAX_WAITING: usize = 4 << 20;

/// What a child is still to read.
#[derive(Debug)]
pub(super) struct Input {
    pipe: PipeWriter,
    waiting: Vec<u8>,
    /// How much of it has been written.
    written: usize,
    closing: bool,
}

impl Input {
    /// The pipe must not block.
    pub(super) fn new(pipe: PipeWriter) -> Self {
        Input { pipe, waiting: Vec::new(), written: 0, closing: false }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// There is something that the pipe did not take.
    pub(super) fn is_waiting(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// Writes what the pipe takes at once, past what waits: for a child that is only ever fed so.
    pub(super) fn write_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(&self.pipe, bytes)
    }

    /// Says whether it was taken, all of it.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_WAITING.saturating_sub(self.waiting.len() - self.written);
        if self.closing || bytes.len() > room {
            return false;
        }
        self.waiting.drain(..std::mem::take(&mut self.written));
        self.waiting.extend_from_slice(bytes);
        true
    }

    pub(super) fn close(slot: &mut Option<Input>) {
        if let Some(input) = slot {
            input.closing = true;
        }
        Input::write(slot);
    }

    /// Writes what the pipe takes, and closes it once there is nothing left to come, or nobody left to
    /// read it.
    pub(super) fn write(slot: &mut Option<Input>) {
        let Some(input) = slot else { return };
        while input.is_waiting() {
            match rustix::io::write(&input.pipe, &input.waiting[input.written..]) {
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
