//! Splits bytes into lines, whatever the chunks.
//!
//! Complete lines within a chunk are not copied. Memory is bounded: a line over the limit is passed on in pieces,
//! cut between characters.

use memchr::memchr;

/// A line without its ending, or a piece of a long one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    pub bytes: &'a [u8],
    /// Continues the previous piece.
    pub joined: bool,
    /// Another piece follows.
    pub is_unfinished: bool,
}

impl Line<'_> {
    pub fn is_complete(&self) -> bool {
        !self.joined && !self.is_unfinished
    }
}

#[derive(Debug)]
pub struct LineSplitter {
    /// The start of an incomplete line.
    buffer: Vec<u8>,
    /// Pieces of this line were already passed on.
    joined: bool,
    max_line: usize,
}

const RETAINED_CAPACITY: usize = 256 * 1024;

impl LineSplitter {
    /// A line of more than `max_line` bytes is passed on in pieces.
    pub fn new(max_line: usize) -> Self {
        LineSplitter { buffer: Vec::new(), joined: false, max_line: max_line.max(4) }
    }

    pub fn push(&mut self, mut chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.buffer.is_empty() && line.len() <= self.max_line {
                each(Line { bytes: trim_cr(line), joined: self.joined, is_unfinished: false });
            } else {
                self.append(line, &mut each);
                let line = Line {
                    bytes: trim_cr(&self.buffer),
                    joined: self.joined,
                    is_unfinished: false,
                };
                each(line);
                self.reset();
            }
            self.joined = false;
        }
        if !chunk.is_empty() {
            self.append(chunk, &mut each);
        }
    }

    /// The buffered end of the incomplete line.
    pub fn unfinished(&self) -> &[u8] {
        &self.buffer
    }

    /// Passes on the last line if it has no newline.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.buffer.is_empty() {
            each(Line { bytes: trim_cr(&self.buffer), joined: self.joined, is_unfinished: false });
        } else if self.joined {
            each(Line { bytes: b"", joined: true, is_unfinished: false });
        }
        self.reset();
        self.joined = false;
    }

    fn append(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Line<'_>)) {
        while self.buffer.len() + bytes.len() > self.max_line {
            let room = self.max_line - self.buffer.len();
            self.buffer.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            let cut = char_boundary(&self.buffer);
            each(Line { bytes: &self.buffer[..cut], joined: self.joined, is_unfinished: true });
            self.buffer.drain(..cut);
            self.joined = true;
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn reset(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(RETAINED_CAPACITY);
    }
}

fn trim_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where to cut without splitting a character.
fn char_boundary(bytes: &[u8]) -> usize {
    // The incomplete character at the end, at most three bytes.
    bytes.len() - bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], max_line: usize) -> Vec<(Vec<u8>, bool, bool)> {
        let mut splitter = LineSplitter::new(max_line);
        let mut lines = Vec::new();
        let mut each =
            |line: Line<'_>| lines.push((line.bytes.to_vec(), line.joined, line.is_unfinished));
        for chunk in chunks {
            splitter.push(chunk, &mut each);
        }
        splitter.finish(&mut each);
        lines
    }

    fn whole(chunks: &[&[u8]]) -> Vec<String> {
        split(chunks, 1024)
            .into_iter()
            .map(|(bytes, joined, unfinished)| {
                assert!(!joined && !unfinished);
                String::from_utf8(bytes).unwrap()
            })
            .collect()
    }

    #[test]
    fn lines_are_split_independently_of_chunks() {
        assert_eq!(whole(&[b"a\nb", b"c\r\n", b"\nd"]), ["a", "bc", "", "d"]);
        assert_eq!(whole(&["é".as_bytes().split_at(1).0, "é".as_bytes().split_at(1).1]), ["é"]);
        assert_eq!(whole(&[]), [""; 0]);
        assert_eq!(whole(&[b"a\r", b"\n"]), ["a"]);
    }

    #[test]
    fn long_line_is_split_at_character_boundaries() {
        let lines = split(&["éééé\nx\n".as_bytes()], 5);
        let expected = [("éé", false, true), ("éé", true, false), ("x", false, false)];
        assert_eq!(
            lines,
            expected.map(|(text, joined, unfinished)| (
                text.as_bytes().to_vec(),
                joined,
                unfinished
            ))
        );
    }

    proptest! {
        #[test]
        fn line_splitter_loses_no_byte_for_any_chunking(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..8),
            max_line in 4usize..40,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            let lines = split(&chunks, max_line);
            // Pieces put together again are the lines of the plain definition.
            let mut joined: Vec<Vec<u8>> = Vec::new();
            for (bytes, goes_on, _) in lines {
                prop_assert!(bytes.len() <= max_line);
                if goes_on { joined.last_mut().unwrap().extend(bytes) } else { joined.push(bytes) }
            }
            let mut plain: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            if plain.last().is_some_and(|last| last.is_empty()) {
                plain.pop();
            }
            // A carriage return that stood alone in its piece may have been trimmed with it.
            let plain: Vec<Vec<u8>> = plain.into_iter().map(|line| trim_cr(line).to_vec()).collect();
            prop_assert_eq!(joined, plain);
        }
    }
}
