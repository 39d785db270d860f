//! A reader thread for a child that prints faster than its output is processed.
//!
//! Copying from the pipe is a third of the cost of a flood and can run in parallel.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::system::READ_BYTES;

/// Buffers besides the one being processed.
const BUFFERS: usize = 2;
/// The buffers are on the heap.
const STACK_BYTES: usize = 64 * 1024;

/// Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct PipeReaderThread {
    full: Receiver<Vec<u8>>,
    /// One byte per full buffer; ends with the pipe.
    wake_reader: PipeReader,
    thread_state: Option<PumpState>,
}

#[derive(Debug)]
struct PumpState {
    empty: Sender<Vec<u8>>,
    /// Closing it stops the thread.
    stop_writer: PipeWriter,
    thread: JoinHandle<()>,
}

impl PipeReaderThread {
    /// `pipe` must be nonblocking. `None` loses no data.
    pub(super) fn start(pipe: &PipeReader) -> Option<PipeReaderThread> {
        let pipe = pipe.try_clone().ok()?;
        let (wake_reader, wake_writer) = io::pipe().ok()?;
        let (stop_reader, stop_writer) = io::pipe().ok()?;
        let (full_sender, full) = channel();
        let (empty, empty_receiver) = channel();
        for _ in 0..BUFFERS {
            empty.send(Vec::new()).ok()?;
        }
        let thread = thread::Builder::new()
            .name("pump".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                reader_loop(&pipe, &empty_receiver, &full_sender, wake_writer, &stop_reader)
            })
            .ok()?;
        Some(PipeReaderThread {
            full,
            wake_reader,
            thread_state: Some(PumpState { empty, stop_writer, thread }),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake_reader.as_fd()
    }

    /// `false` at the end. Call when [`fd`](Self::fd) is readable.
    pub(super) fn take_buffer(&mut self, buf: &mut Vec<u8>) -> bool {
        // Written after the buffer was sent.
        if !matches!(self.wake_reader.read(&mut [0]), Ok(1)) {
            return false;
        }
        let Ok(full) = self.full.recv() else {
            return false;
        };
        let empty = std::mem::replace(buf, full);
        if let Some(state) = &self.thread_state {
            // At the end of the pipe the thread is gone.
            let _ = state.empty.send(empty);
        }
        true
    }

    /// Returns what was read but not taken.
    pub(super) fn stop(&mut self) -> VecDeque<Vec<u8>> {
        if let Some(PumpState { empty, stop_writer, thread }) = self.thread_state.take() {
            drop((empty, stop_writer));
            let _ = thread.join();
        }
        self.full.try_iter().collect()
    }
}

impl Drop for PipeReaderThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn reader_loop(
    pipe: &PipeReader,
    empty: &Receiver<Vec<u8>>,
    full: &Sender<Vec<u8>>,
    mut wake_writer: PipeWriter,
    stop_reader: &PipeReader,
) {
    while let Ok(mut buf) = empty.recv() {
        buf.clear();
        buf.reserve(READ_BYTES);
        loop {
            match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut buf)) {
                Ok(0) => return,
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if wait(pipe, stop_reader) => {}
                Err(_) => return,
            }
        }
        if full.send(buf).is_err() || wake_writer.write_all(&[0]).is_err() {
            return;
        }
    }
}

/// `false` when stopped.
fn wait(pipe: &PipeReader, stop_reader: &PipeReader) -> bool {
    let mut polled = [
        PollFd::from_borrowed_fd(stop_reader.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN),
    ];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) => polled[0].revents().is_empty(),
        Err(error) => error == Errno::INTR,
    }
}
