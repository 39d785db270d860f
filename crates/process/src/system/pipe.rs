//! What a child prints, read as it comes: by whoever waits, or by a thread where that is not fast enough.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::super::pump::PipeReaderThread;
use super::super::spawn::OutputPipe;
use super::READ_BYTES;

/// After so many reads in a row that found at least half of that, a child prints faster than it is
/// read.
const FLOOD_READS: u32 = 8;

#[derive(Debug)]
pub(super) struct ChildPipe {
    pub(super) reader: PipeReader,
    /// Held so that nobody is woken when the child closes its end: its own end is told by a signal.
    _writer: Option<PipeWriter>,
    /// How much is to be read until it is closed, once nothing of the child is left to write.
    /// Whatever else holds the other end must not keep us.
    remaining: Option<u64>,
    /// Reads in a row that found much.
    full_reads: u32,
    /// Reads in our place, once there were too many of those.
    pump: Option<PipeReaderThread>,
    /// What the pump had read when it was stopped. It comes first.
    buffered: VecDeque<Vec<u8>>,
    /// It is our side of a terminal, which cannot tell how much there is to read.
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

    /// What tells that there is something to read.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pump.as_ref().map_or(self.reader.as_fd(), PipeReaderThread::fd)
    }

    /// There is something that was read already.
    pub(super) fn has_buffered(&self) -> bool {
        !self.buffered.is_empty()
    }

    /// Reads what is there, once, and says how much it was; 0 is the end.
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

    /// Nobody who matters writes any more: only what is there now is still to be read. Says whether
    /// that is anything.
    pub(super) fn read_only_available(&mut self) -> bool {
        if self.is_terminal {
            // Read on until there is nothing for the moment, or nobody who could write.
            self.remaining = Some(u64::MAX);
            return true;
        }
        if let Some(mut pump) = self.pump.take() {
            self.buffered = pump.stop();
        }
        let pumped: usize = self.buffered.iter().map(Vec::len).sum();
        let left = rustix::io::ioctl_fionread(&self.reader).unwrap_or(0);
        self.remaining = Some(left + pumped as u64);
        self.remaining != Some(0)
    }
}

/// Reads what is there, once. Closes the pipe at its end. Says whether anything was read.
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
