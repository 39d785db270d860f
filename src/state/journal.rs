//! The append-only file of a run's events: the one source of truth of that run.

mod quick;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::core::event::{Entry, Event, Stamp};

/// Turns events into lines. What is collected here goes to the file in one write, and only then to
/// anybody's eyes.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// The part of a line that tells when and where, for `stamp`: most events share it.
    prefix: Vec<u8>,
    stamp: Option<Stamp>,
}

impl Lines {
    /// Adds the line of one event, and tells it without its newline.
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
        if !quick::write(&mut self.bytes, event)
            && serde_json::to_writer(&mut self.bytes, event).is_err()
        {
            // Only a number that JSON does not know could do this, and none is made here.
            self.bytes.truncate(start);
            return &[];
        }
        // Two objects become one: `{"time":…` and `{"event":…`.
        self.bytes[join] = b',';
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

/// Reads a journal from its beginning. A line that is torn, damaged or of a kind that this version does not
/// know is left out: what is whole is worth reading. How many there were is told by
/// [`Entries::unreadable`].
pub fn read(path: &Path) -> io::Result<Entries<File>> {
    File::open(path).map(entries)
}

/// The same, from wherever its bytes are.
pub fn entries<R: Read>(journal: R) -> Entries<R> {
    Entries { reader: BufReader::new(journal), line: Vec::new(), unreadable: 0 }
}

/// The entries of a journal that can be read, in order.
#[derive(Debug)]
pub struct Entries<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    unreadable: u64,
}

impl<R> Entries<R> {
    /// How many lines could not be read so far. A last one without its end is none of them: whoever writes
    /// it is at it, or was cut off there, which is told otherwise.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

impl<R: Read> Iterator for Entries<R> {
    type Item = Entry<'static>;

    fn next(&mut self) -> Option<Entry<'static>> {
        loop {
            self.line.clear();
            match self.reader.read_until(b'\n', &mut self.line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(_) => {
                    // Whatever follows, there is no way to get at it.
                    self.unreadable += 1;
                    return None;
                }
            }
            if let Ok(entry) = serde_json::from_slice(&self.line) {
                return Some(entry);
            }
            if self.line.ends_with(b"\n") && !self.line.trim_ascii().is_empty() {
                self.unreadable += 1;
            }
        }
    }
}

/// What is said of so many lines that cannot be read; nothing if there are none.
pub fn unreadable_words(lines: u64) -> Option<String> {
    match lines {
        0 => None,
        1 => Some("a line of the journal cannot be read".to_owned()),
        n => Some(format!("{n} lines of the journal cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(iteration: u32) -> Stamp {
        Stamp { time_ms: 1_794_774_472_123, iteration, attempt: 1 }
    }

    fn text(text: &'static str) -> Event<'static> {
        Event::Text { text: text.into(), joined: false, subagent: false }
    }

    #[test]
    fn a_line_is_the_entry_in_one_object() {
        let mut lines = Lines::default();
        for n in [1, 1, 2] {
            lines.push(at(n), &text("hi"));
        }
        let entry = |n| serde_json::to_string(&Entry { at: at(n), event: text("hi") }).unwrap();
        let expected = format!("{}\n{}\n{}\n", entry(1), entry(1), entry(2));
        assert_eq!(String::from_utf8_lossy(lines.bytes()), expected);
    }

    #[test]
    fn a_torn_line_hides_nothing_else() {
        let mut lines = Lines::default();
        lines.push(at(1), &text("one"));
        lines.push(at(2), &text("two"));
        let mut bytes = lines.bytes().to_vec();
        bytes.extend_from_slice(b"{\"event\":\"of a later version\"}\nnonsense \xff\n");
        lines.clear();
        lines.push(at(3), &text("three"));
        bytes.extend_from_slice(&lines.bytes()[..20]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let mut entries = read(&path).unwrap();
        let iterations: Vec<u32> = entries.by_ref().map(|entry| entry.at.iteration).collect();
        assert_eq!(iterations, [1, 2]);
        assert_eq!(entries.unreadable(), 2, "and the torn one, which is told otherwise");
    }
}
