//! Line-based requests to a helper child.

use std::io;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::super::{ChildId, Signal, clock};
use super::System;

const READ_BYTES: usize = 16 * 1024;
/// The time that an answer may take after a signal to stop.
const STOP_GRACE_MS: u64 = 250;

impl System {
    /// Sends a line to a child and waits for its one-line answer. Other occurrences are reported by
    /// the next [`System::wait`]. A signal to stop shortens the wait.
    ///
    /// # Errors
    /// `TimedOut` after `timeout_ms`, `Interrupted` if a signal cut that short, `UnexpectedEof` or
    /// `BrokenPipe` if the child is gone. The child is unusable after any of them.
    pub fn ask(&mut self, child: ChildId, question: &[u8], timeout_ms: u64) -> io::Result<Vec<u8>> {
        let index = self.position(child).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut until = clock::now_ms().saturating_add(timeout_ms);
        let mut late = io::ErrorKind::TimedOut;
        let mut unsent = question;
        let mut answer = Vec::new();
        loop {
            let stopping = self.pending.iter().any(|signal| *signal != Signal::Resize);
            if stopping && late == io::ErrorKind::TimedOut {
                until = until.min(clock::now_ms().saturating_add(STOP_GRACE_MS));
                late = io::ErrorKind::Interrupted;
            }
            let child = &self.children[index];
            let input = child.input.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            let stdout = child.stdout.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
            let wanted = if unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let mut polled = [
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stdout.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(input.fd(), wanted),
            ];
            let timeout =
                clock::timespec(until.saturating_mul(1_000_000).saturating_sub(clock::now_ns()));
            let ready = match rustix::event::poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Err(late.into()),
                Ok(_) => polled.map(|fd| !fd.revents().is_empty()),
                Err(Errno::INTR) => [true, false, false],
                Err(err) => return Err(err.into()),
            };
            let [signal, readable, writable] = ready;
            if readable {
                answer.reserve(READ_BYTES);
                match rustix::io::read(&stdout.reader, rustix::buffer::spare_capacity(&mut answer))
                {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => {
                        // A line before the question is sent is no answer to it.
                        if answer[answer.len() - read..].ends_with(b"\n") && unsent.is_empty() {
                            return Ok(answer);
                        }
                    }
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(err) => return Err(err.into()),
                }
            } else if writable && !unsent.is_empty() {
                match input.try_write(unsent) {
                    Ok(written) => unsent = &unsent[written..],
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(err) => return Err(err.into()),
                }
            } else if writable {
                // The child closed its input.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if signal && self.take_arrived_signals() {
                self.forest.reap();
            }
        }
    }
}
