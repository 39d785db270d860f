//! The output of a child.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::super::spawn::OutputPipe;
use super::READ_BYTES;

#[derive(Debug)]
pub(super) struct ChildPipe {
    pub(super) reader: PipeReader,
    /// See [`OutputPipe::writer`].
    _writer: Option<PipeWriter>,
    /// The bytes to read before closing, once the child has ended. Others that hold the pipe open
    /// must not delay that.
    remaining: Option<u64>,
    /// The master side of a terminal, where FIONREAD does not work.
    is_terminal: bool,
}

impl ChildPipe {
    pub(super) fn new(OutputPipe { reader, writer }: OutputPipe) -> Self {
        let is_terminal = writer.is_none();
        ChildPipe { reader, _writer: writer, remaining: None, is_terminal }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Reads once and returns the byte count; 0 is the end.
    fn read(&self, buf: &mut Vec<u8>) -> Result<usize, Errno> {
        buf.reserve(READ_BYTES);
        rustix::io::read(&self.reader, rustix::buffer::spare_capacity(buf))
    }

    /// Limits reading to what is in the pipe now. Returns whether there is anything.
    pub(super) fn read_only_available(&mut self) -> bool {
        if self.is_terminal {
            // Read until EAGAIN or the end.
            self.remaining = Some(u64::MAX);
            return true;
        }
        self.remaining = Some(rustix::io::ioctl_fionread(&self.reader).unwrap_or(0));
        self.remaining != Some(0)
    }
}

/// Reads once; closes the pipe at its end. Returns whether anything was read.
pub(super) fn read_pipe(slot: &mut Option<ChildPipe>, buf: &mut Vec<u8>) -> bool {
    let Some(pipe) = slot else {
        return false;
    };
    let read = match pipe.read(buf) {
        Ok(read) => read,
        Err(Errno::INTR) => return false,
        Err(Errno::AGAIN) if pipe.remaining.is_none() => return false,
        Err(_) => 0,
    };
    if let Some(remaining) = &mut pipe.remaining {
        *remaining = remaining.saturating_sub(read as u64);
    }
    if read == 0 || pipe.remaining == Some(0) {
        *slot = None;
    }
    read > 0
}
