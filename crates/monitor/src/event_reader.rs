//! The events of one run as journal lines, from a byte position on.

use std::fs::File;
use std::io;

use ralph_store::runs::RunDir;
use ralph_store::safe_fs;

use crate::journal_reader::{next_line_start, read_lines};

/// Reads a journal in bounded chunks. The position after a line is its id: a reader that reconnects continues there.
#[derive(Debug)]
pub struct EventReader {
    file: File,
    position: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// The position of the next line.
    pub end: u64,
    /// A JSON object, without the newline.
    pub bytes: Vec<u8>,
}

impl EventReader {
    /// Continues after the line that ends at `position`; 0 for the beginning. A position inside a line, which no
    /// reader was given, means the next line.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn open(run: &RunDir, position: u64) -> io::Result<EventReader> {
        let mut file = safe_fs::open_file(&run.journal())?;
        let position = next_line_start(&mut file, position)?;
        Ok(EventReader { file, position })
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next complete lines, about `max_bytes` of them; none at the end of the journal.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read(&mut self, max_bytes: usize) -> io::Result<Vec<JournalLine>> {
        let bytes = read_lines(&mut self.file, self.position, max_bytes)?;
        let mut lines = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.position += line.len() as u64;
            let bytes = line.trim_ascii_end().to_vec();
            lines.push(JournalLine { end: self.position, bytes });
        }
        Ok(lines)
    }
}
