//! Complete lines of a journal, from a byte position on.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use ralph_events::journal::MAX_LINE;

/// Reads the complete lines from `start` on, at least one if there is one, and otherwise at most `max_bytes`.
pub(crate) fn read_lines(file: &mut File, start: u64, max_bytes: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    // Grown from nothing, the first kilobytes would take a call each time they double.
    let mut bytes = Vec::with_capacity(max_bytes.min(64 * 1024));
    let mut room = max_bytes;
    loop {
        let read = file.by_ref().take(room as u64).read_to_end(&mut bytes)?;
        if let Some(end) = memchr::memrchr(b'\n', &bytes) {
            bytes.truncate(end + 1);
            return Ok(bytes);
        }
        if read < room || bytes.len() > MAX_LINE {
            return Ok(Vec::new());
        }
        room = bytes.len();
    }
}

/// The position of the first line that starts at `position` or later.
pub(crate) fn next_line_start(file: &mut File, position: u64) -> io::Result<u64> {
    let Some(before) = position.checked_sub(1) else { return Ok(0) };
    file.seek(SeekFrom::Start(before))?;
    let mut at = before;
    let mut block = [0; 8192];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(at);
        }
        if let Some(newline) = memchr::memchr(b'\n', &block[..read]) {
            return Ok(at + newline as u64 + 1);
        }
        at += read as u64;
    }
}
