//! A second pair of hands for a child that prints faster than its output is understood.
//!
//! Copying from a pipe takes a third of the time that a flood of output costs, and it can go on while
//! the copy before is being looked at. No agent prints like that for long, so a thread is started
//! only for one that does: everybody else is read where the waiting is done.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::system::READ_BYTES;

/// How many buffers there are beside the one that is being looked at.
const BUFFERS: usize = 2;
/// The thread calls a few functions and has its buffers elsewhere.
const STACK_BYTES: usize = 64 * 1024;

/// A thread that reads from one pipe. It leaves when this is dropped.
#[derive(Debug)]
pub(super) struct PipeReaderThread {
    full: Receiver<Vec<u8>>,
    /// A byte for every full buffer. At its end when the pipe is, or cannot be read any more.
    wake_reader: PipeReader,
    thread_state: Option<PumpState>,
}

/// What keeps the thread.
#[derive(Debug)]
struct PumpState {
    empty: Sender<Vec<u8>>,
    /// Never written to: its end tells the thread to leave.
    stop_writer: PipeWriter,
    thread: JoinHandle<()>,
}

impl PipeReaderThread {
    /// Has a thread read from `pipe`, which does not block. `None` if there is no thread to be had;
    /// nothing is lost by that.
    pub(super) fn start(pipe: &PipeReader) -> Option<PipeReaderThread> {
        let pipe = pipe.try_clone().ok()?;
        let (bell, ring) = io::pipe().ok()?;
        let (stays, stay) = io::pipe().ok()?;
        let (full_sender, full) = channel();
        let (empty, empty_receiver) = channel();
        for _ in 0..BUFFERS {
            empty.send(Vec::new()).ok()?;
        }
        let thread = thread::Builder::new()
            .name("pump".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || reader_loop(&pipe, &empty_receiver, &full_sender, ring, &stays))
            .ok()?;
        Some(PipeReaderThread {
            full,
            wake_reader: bell,
            thread_state: Some(PumpState { empty, stop_writer: stay, thread }),
        })
    }

    /// Readable when there is something to take.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake_reader.as_fd()
    }

    /// Takes what was read, and gives the buffer of the last time for it. `false` at the end. To be
    /// called when there is something to take.
    pub(super) fn take_buffer(&mut self, buf: &mut Vec<u8>) -> bool {
        // The bell rings after the buffer was sent.
        if !matches!(self.wake_reader.read(&mut [0]), Ok(1)) {
            return false;
        }
        let Ok(full) = self.full.recv() else {
            return false;
        };
        let empty = std::mem::replace(buf, full);
        if let Some(hold) = &self.thread_state {
            // At the end of the pipe the thread has left already.
            let _ = hold.empty.send(empty);
        }
        true
    }

    /// Has the thread leave, and tells what it has read that was not taken. Nothing is read from the
    /// pipe after this.
    pub(super) fn stop(&mut self) -> VecDeque<Vec<u8>> {
        if let Some(PumpState { empty, stop_writer: stay, thread }) = self.thread_state.take() {
            drop((empty, stay));
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

/// Fills buffers until the pipe ends or nobody wants more.
fn reader_loop(
    pipe: &PipeReader,
    empty: &Receiver<Vec<u8>>,
    full: &Sender<Vec<u8>>,
    mut bell: PipeWriter,
    stay: &PipeReader,
) {
    while let Ok(mut buf) = empty.recv() {
        buf.clear();
        buf.reserve(READ_BYTES);
        loop {
            match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut buf)) {
                Ok(0) => return,
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if wait(pipe, stay) => {}
                Err(_) => return,
            }
        }
        if full.send(buf).is_err() || bell.write_all(&[0]).is_err() {
            return;
        }
    }
}

/// Waits until there is something in the pipe; `false` if it is no longer wanted.
fn wait(pipe: &PipeReader, stay: &PipeReader) -> bool {
    let mut polled = [
        PollFd::from_borrowed_fd(stay.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN),
    ];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) => polled[0].revents().is_empty(),
        Err(error) => error == Errno::INTR,
    }
}
