//! The output of a child, read directly or by a thread during a flood.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::super::pump::PipeReaderThread;
use super::super::spawn::OutputPipe;
use super::READ_BYTES;

/// The number of consecutive half-full reads after which output counts as a flood.
const FLOOD_READS: u32 = 8;

#[derive(Debug)]
pub(super) struct ChildPipe {
    pub(super) reader: PipeReader,
    /// See [`OutputPipe::writer`].
    _writer: Option<PipeWriter>,
    /// The bytes to read before closing, once the child has ended. Others that hold the pipe open
    /// must not delay that.
    remaining: Option<u64>,
    /// Consecutive reads that were at least half full.
    full_reads: u32,
    pump: Option<PipeReaderThread>,
    /// What the stopped pump had read; comes first.
    buffered: VecDeque<Vec<u8>>,
    /// The master side of a terminal, where FIONREAD does not work.
    is_terminal: bool,
}

impl ChildPipe {
    pub(super) fn new(OutputPipe { reader, writer }: OutputPipe) -> Self {
        let (is_terminal, pumped) = (writer.is_none(), VecDeque::new());
        ChildPipe {
            reader,
            _writer: writer,
            remaining: None,
            full_reads: 0,
            pump: None,
            buffered: pumped,
            is_terminal,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pump.as_ref().map_or(self.reader.as_fd(), PipeReaderThread::fd)
    }

    pub(super) fn has_buffered(&self) -> bool {
        !self.buffered.is_empty()
    }

    /// Reads once and returns the byte count; 0 is the end.
    fn read(&mut self, buf: &mut Vec<u8>) -> Result<usize, Errno> {
        if let Some(bytes) = self.buffered.pop_front() {
            *buf = bytes;
            return Ok(buf.len());
        }
        if let Some(pump) = &mut self.pump {
            return Ok(if pump.take_buffer(buf) { buf.len() } else { 0 });
        }
        buf.reserve(READ_BYTES);
        let read = rustix::io::read(&self.reader, rustix::buffer::spare_capacity(buf))?;
        self.full_reads = if read >= READ_BYTES / 2 { self.full_reads + 1 } else { 0 };
        if self.full_reads == FLOOD_READS && self.remaining.is_none() && !self.is_terminal {
            self.pump = PipeReaderThread::start(&self.reader);
        }
        Ok(read)
    }

    /// Limits reading to what is in the pipe now. Returns whether there is anything.
    pub(super) fn read_only_available(&mut self) -> bool {
        if self.is_terminal {
            // Read until EAGAIN or the end.
            self.remaining = Some(u64::MAX);
            return true;
        }
        if let Some(mut pump) = self.pump.take() {
            self.buffered = pump.stop();
        }
        let pumped: usize = self.buffered.iter().map(Vec::len).sum();
        let available = rustix::io::ioctl_fionread(&self.reader).unwrap_or(0);
        self.remaining = Some(available + pumped as u64);
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
