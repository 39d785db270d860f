//! The append-only file of a run's events: the one source of truth about the run.

mod skim;

use std::io::{self, BufRead, BufReader, Read, Seek};

use crate::event::{Entry, Event, Stamp};
use crate::json_writer;

/// Encodes events as lines, collected for one write to the file.
#[derive(Debug, Default)]
pub struct LineEncoder {
    bytes: Vec<u8>,
    /// The beginning of a line with this `stamp`, which most events share.
    prefix: Vec<u8>,
    stamp: Option<Stamp>,
}

impl LineEncoder {
    /// Adds the line of an event and returns it without its newline.
    pub fn push(&mut self, at: Stamp, event: &Event<'_>) -> &[u8] {
        if self.stamp != Some(at) {
            self.stamp = Some(at);
            self.prefix.clear();
            if serde_json::to_writer(&mut self.prefix, &at).is_ok() {
                self.prefix.pop();
            }
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.prefix);
        let join = self.bytes.len();
        if serde_json::to_writer(&mut self.bytes, event).is_err() {
            // Unreachable: only a number that JSON lacks could fail.
            self.bytes.truncate(start);
            return &[];
        }
        // Joins two objects: `{"time":…` and `{"event":…`.
        self.bytes[join] = b',';
        json_writer::escape_from(&mut self.bytes, join);
        self.bytes.push(b'\n');
        &self.bytes[start..self.bytes.len() - 1]
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1024 * 1024);
    }
}

/// Reads a journal from its beginning. Lines that are torn, damaged or of an unknown kind are skipped and counted.
pub fn entries<R: Read>(journal: R) -> Entries<R> {
    Entries {
        reader: BufReader::with_capacity(BUFFER, journal),
        line: Vec::new(),
        unreadable: 0,
        without_text: false,
    }
}

/// The readable entries of a journal, in order.
#[derive(Debug)]
pub struct Entries<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    unreadable: u64,
    without_text: bool,
}

const BUFFER: usize = 64 * 1024;
/// The longest line that is read. Events are limited so that none exceeds it.
pub const MAX_LINE: usize = 64 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRead {
    End,
    /// The line was added, with its newline unless the file ends before it.
    Line,
    /// The line was longer than [`MAX_LINE`] and was skipped.
    TooLong,
}

/// Adds the next line of a journal, or the rest of it, to `line`.
///
/// # Errors
/// The file cannot be read.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    let room = (MAX_LINE + 1).saturating_sub(line.len());
    if reader.by_ref().take(room as u64).read_until(b'\n', line)? == 0 {
        return Ok(LineRead::End);
    }
    if line.len() <= MAX_LINE || line.ends_with(b"\n") {
        return Ok(LineRead::Line);
    }
    line.clear();
    line.shrink_to(BUFFER);
    reader.skip_until(b'\n')?;
    Ok(LineRead::TooLong)
}

impl<R> Entries<R> {
    /// Returns how many lines could not be read. An unfinished last line does not count.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Leaves the text out of entries that are nothing but text, which is most of a journal. The state of a run
    /// depends only on their stamps.
    #[must_use]
    pub fn without_text(self) -> Self {
        Entries { without_text: true, ..self }
    }
}

impl<R: Read> Iterator for Entries<R> {
    type Item = Entry<'static>;

    fn next(&mut self) -> Option<Entry<'static>> {
        while self.read_line() {
            if self.without_text
                && let Some(entry) = skim::entry_without_text(&self.line)
            {
                return Some(entry);
            }
            if let Some(entry) = skim::entry(&mut self.line) {
                return Some(entry);
            }
            if self.line.ends_with(b"\n") && !self.line.trim_ascii().is_empty() {
                self.unreadable += 1;
            }
        }
        None
    }
}

impl<R: Read> Entries<R> {
    fn read_line(&mut self) -> bool {
        loop {
            self.line.clear();
            match read_line(&mut self.reader, &mut self.line) {
                Ok(LineRead::End) => return false,
                Ok(LineRead::Line) => return true,
                Ok(LineRead::TooLong) => self.unreadable += 1,
                Err(_) => {
                    // Nothing behind an error can be read.
                    self.unreadable += 1;
                    return false;
                }
            }
        }
    }
}

/// Describes unreadable lines; `None` if there are none.
pub fn unreadable_message(lines: u64) -> Option<String> {
    match lines {
        0 => None,
        1 => Some("a line of the journal cannot be read".to_owned()),
        n => Some(format!("{n} lines of the journal cannot be read")),
    }
}

/// Returns the length of the complete lines of a journal.
pub fn complete_lines_len(journal: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut end = journal.seek(io::SeekFrom::End(0))?;
    let mut block = [0; 8192];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let length = usize::try_from(end - start).unwrap_or(block.len());
        journal.seek(io::SeekFrom::Start(start))?;
        journal.read_exact(&mut block[..length])?;
        if let Some(newline) = memchr::memrchr(b'\n', &block[..length]) {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Stream;

    fn at(iteration: u32) -> Stamp {
        Stamp { time_ms: 1_794_774_472_123, iteration, attempt: 1 }
    }

    fn text(text: &'static str) -> Event<'static> {
        Event::Text { text: text.into(), joined: false, subagent: false }
    }

    #[test]
    fn journal_line_is_one_json_object() {
        let mut lines = LineEncoder::default();
        for n in [1, 1, 2] {
            lines.push(at(n), &text("hi"));
        }
        let entry = |n| serde_json::to_string(&Entry { at: at(n), event: text("hi") }).unwrap();
        let expected = format!("{}\n{}\n{}\n", entry(1), entry(1), entry(2));
        assert_eq!(String::from_utf8_lossy(lines.bytes()), expected);
    }

    #[test]
    fn torn_journal_line_hides_no_other_line() {
        let mut lines = LineEncoder::default();
        lines.push(at(1), &text("one"));
        lines.push(at(2), &text("two"));
        let mut bytes = lines.bytes().to_vec();
        bytes.extend_from_slice(b"{\"event\":\"of a later version\"}\nnonsense \xff\n");
        lines.clear();
        lines.push(at(3), &text("three"));
        bytes.extend_from_slice(&lines.bytes()[..20]);
        let mut entries = entries(&bytes[..]);
        let iterations: Vec<u32> = entries.by_ref().map(|entry| entry.at.iteration).collect();
        assert_eq!(iterations, [1, 2]);
        assert_eq!(entries.unreadable(), 2, "without the torn line at the end");
    }

    #[test]
    fn overlong_journal_line_is_skipped_and_counted() {
        let mut lines = LineEncoder::default();
        lines.push(at(1), &text("one"));
        let mut bytes = lines.bytes().to_vec();
        bytes.resize(bytes.len() + MAX_LINE + 1, b' ');
        bytes.push(b'\n');
        bytes.extend_from_slice(lines.bytes());
        // The last line has no end.
        bytes.resize(bytes.len() + 2 * MAX_LINE, 0);
        let mut entries = entries(&bytes[..]);
        assert_eq!(entries.by_ref().count(), 2);
        assert_eq!(entries.unreadable(), 2);
        assert!(entries.line.capacity() <= BUFFER, "the line is not buffered");
    }

    #[test]
    fn read_error_ends_journal_and_counts_as_damage() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken disk"))
            }
        }
        let mut lines = LineEncoder::default();
        lines.push(at(1), &text("one"));
        let mut entries = entries(lines.bytes().chain(Broken));
        assert_eq!(entries.by_ref().count(), 1);
        assert_eq!(entries.unreadable(), 1);
        assert_eq!(unreadable_message(0), None);
        assert!(unreadable_message(1).is_some_and(|message| message.starts_with("a line")));
        assert!(unreadable_message(2).is_some_and(|message| message.starts_with("2 lines")));
    }

    #[test]
    fn complete_lines_end_with_last_newline() {
        // Torn lines shorter and longer than what is read at once.
        for torn in [0, 1, 8_191, 8_192, 8_193, 20_000] {
            for complete in ["", "\n", "{}\n", "{\"a\":1}\n{}\n"] {
                let bytes = [complete.as_bytes(), &vec![b'x'; torn]].concat();
                let length = complete_lines_len(&mut io::Cursor::new(bytes)).unwrap();
                assert_eq!(length, complete.len() as u64, "{complete:?} and {torn} more");
            }
        }
    }

    #[test]
    fn entries_without_text_keep_times_and_count_damage() {
        let mut lines = LineEncoder::default();
        let output =
            |stream, text: &'static str| Event::Output { stream, text: text.into(), joined: false };
        let events = [
            (1, text("said")),
            (2, output(Stream::Stdout, "\"stream\":\"stderr\"")),
            (3, output(Stream::Stderr, "failed")),
            (4, Event::Paused),
        ];
        for (seconds, event) in &events {
            lines.push(Stamp { time_ms: seconds * 1000, ..at(1) }, event);
        }
        let mut bytes = b"{\"time\":\"2026-11-15T20:27:52.123Z\",\"iteration\":1,\"attempt\":1,\"event\":\"text\",\"te\n".to_vec();
        bytes.extend_from_slice(lines.bytes());
        let mut entries = entries(&bytes[..]).without_text();
        let read: Vec<_> =
            entries.by_ref().map(|entry| (entry.at.time_ms / 1000, entry.event)).collect();
        let expected = [
            (1, text("")),
            (2, output(Stream::Stdout, "")),
            (3, output(Stream::Stderr, "failed")),
            (4, Event::Paused),
        ];
        assert_eq!(read, expected);
        assert_eq!(entries.unreadable(), 1);
    }
}
