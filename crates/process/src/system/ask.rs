//! Questions to a child that answers each with a line.

use std::io;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::super::{ChildId, Signal, clock};
use super::System;

/// How much of an answer is read at once. Most are a few words.
const READ_BYTES: usize = 16 * 1024;
/// How long an answer may still take once somebody has asked this process to stop.
const STOP_GRACE_MS: u64 = 250;

impl System {
    /// Gives a child that is fed a line to read, and waits for the line that it answers with. Nothing else
    /// is heard of meanwhile; what happens is told by the next [`System::wait`]. A signal that asks this
    /// process to stop makes the wait a short one.
    ///
    /// # Errors
    /// `TimedOut` past `patience_ms`, `Interrupted` if that was cut short by a signal, `UnexpectedEof` or
    /// `BrokenPipe` if the child is gone. After each of them the child is of no more use.
    pub fn ask(
        &mut self,
        child: ChildId,
        question: &[u8],
        patience_ms: u64,
    ) -> io::Result<Vec<u8>> {
        let index = self.position(child).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut until = clock::now_ms().saturating_add(patience_ms);
        let mut late = io::ErrorKind::TimedOut;
        let mut left = question;
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
            let wanted = if left.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
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
                        // An answer that comes before the end of the question is none to it.
                        if answer[answer.len() - read..].ends_with(b"\n") && left.is_empty() {
                            return Ok(answer);
                        }
                    }
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(err) => return Err(err.into()),
                }
            } else if writable && !left.is_empty() {
                match input.try_write(left) {
                    Ok(written) => left = &left[written..],
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(err) => return Err(err.into()),
                }
            } else if writable {
                // Its end of the pipe is closed.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if signal && self.take_arrived_signals() {
                self.reap();
            }
        }
    }
}
