//! Moves bytes between two sockets, one direction at a time.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// Keeps one client from starving the others.
const MAX_READS_PER_TURN: usize = 8;

/// Bytes in one direction. Buffers only what is unwritten.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) pending: Vec<u8>,
    pub(super) written: usize,
    pub(super) ended: bool,
    pub(super) shut: bool,
    pub(super) bytes_left: Option<u64>,
}

impl Flow {
    pub(super) fn wants_more(&self) -> bool {
        self.pending.is_empty() && !self.ended && self.bytes_left != Some(0)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shut || self.bytes_left == Some(0) && self.pending.is_empty()
    }

    /// Moves data within one turn. Returns whether any was moved.
    pub(super) fn run(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        scratch: &mut [u8],
    ) -> io::Result<bool> {
        let mut moved = self.flush(to)?;
        for _ in 0..MAX_READS_PER_TURN {
            if !self.wants_more() {
                break;
            }
            let room = self
                .bytes_left
                .map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let room = room.min(scratch.len());
            match rustix::net::recv(from, &mut scratch[..room], RecvFlags::empty()) {
                Ok((0, _)) => self.ended = true,
                Ok((read, _)) => {
                    let bytes = &scratch[..read.min(room)];
                    self.bytes_left =
                        self.bytes_left.map(|left| left.saturating_sub(bytes.len() as u64));
                    let sent = write(to, bytes)?;
                    self.pending = bytes[sent..].to_vec();
                    self.written = 0;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(err) => return Err(err.into()),
            }
            moved = true;
        }
        Ok(self.flush(to)? || moved)
    }

    pub(super) fn flush(&mut self, to: &OwnedFd) -> io::Result<bool> {
        let mut moved = false;
        if !self.pending.is_empty() {
            let sent = write(to, &self.pending[self.written..])?;
            self.written += sent;
            moved = sent > 0;
            if self.written >= self.pending.len() {
                (self.pending, self.written) = (Vec::new(), 0);
            }
        }
        if self.ended && self.pending.is_empty() && !self.shut {
            let _ = rustix::net::shutdown(to, Shutdown::Write);
            self.shut = true;
            moved = true;
        }
        Ok(moved)
    }
}

/// Discards input. Returns whether the client is gone.
pub(super) fn drain_client(from: &OwnedFd, scratch: &mut [u8]) -> bool {
    for _ in 0..MAX_READS_PER_TURN {
        match rustix::net::recv(from, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

/// Needs SIGPIPE to be ignored, as it is in Rust programs.
pub(super) fn write(to: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(to, &bytes[sent..], SendFlags::empty()) {
            Ok(more) => sent += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(err) => return Err(err.into()),
        }
    }
    Ok(sent)
}
