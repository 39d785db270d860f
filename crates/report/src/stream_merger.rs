//! Merges two streams in order of arrival, without mixing their lines.

use ralph_events::event::Stream;

/// Limit for output held back by an unfinished line.
const MAX_PENDING: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct StreamMerger {
    open_stream: Option<Stream>,
    /// Output of the other stream meanwhile.
    pending: Vec<u8>,
}

impl StreamMerger {
    /// Appends what can be passed on now. The stream with the open line is never held back.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], out: &mut Vec<u8>) {
        if self.open_stream.is_some_and(|open| open != stream) {
            self.pending.extend_from_slice(bytes);
            if self.pending.len() > MAX_PENDING {
                self.finish(out);
            }
            return;
        }
        let whole = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(whole);
        out.extend_from_slice(lines);
        if whole > 0 {
            self.open_stream = None;
            if !self.pending.is_empty() {
                let held = std::mem::take(&mut self.pending);
                let other = match stream {
                    Stream::Stdout => Stream::Stderr,
                    Stream::Stderr => Stream::Stdout,
                };
                self.push(other, &held, out);
            }
        }
        if !rest.is_empty() {
            match self.open_stream {
                Some(open) if open != stream => self.pending.extend_from_slice(rest),
                _ => {
                    self.open_stream = Some(stream);
                    out.extend_from_slice(rest);
                }
            }
        }
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.open_stream.take().is_some() {
            out.push(b'\n');
        }
        if !self.pending.is_empty() {
            out.append(&mut self.pending);
            if out.last() != Some(&b'\n') {
                out.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(pieces: &[(Stream, &str)]) -> String {
        let (mut merger, mut out) = (StreamMerger::default(), Vec::new());
        for (stream, text) in pieces {
            merger.push(*stream, text.as_bytes(), &mut out);
        }
        merger.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn merged_streams_keep_lines_whole() {
        use Stream::{Stderr, Stdout};
        for (pieces, expected) in [
            (&[(Stdout, "a\n"), (Stderr, "b\n"), (Stdout, "c\n")][..], "a\nb\nc\n"),
            (&[(Stdout, "a"), (Stderr, "b\n"), (Stdout, "c\n")], "ac\nb\n"),
            (&[(Stdout, "a"), (Stderr, "b"), (Stdout, "c\nd"), (Stderr, "e\n")], "ac\nbe\nd\n"),
            (&[(Stdout, "a"), (Stderr, "b")], "a\nb\n"),
            (&[(Stdout, "a")], "a\n"),
            (&[], ""),
        ] {
            assert_eq!(merged(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn unfinished_line_does_not_block_other_stream() {
        let (mut merger, mut out) = (StreamMerger::default(), Vec::new());
        merger.push(Stream::Stdout, b"...", &mut out);
        merger.push(Stream::Stderr, &vec![b'x'; MAX_PENDING + 1], &mut out);
        assert!(out.len() > MAX_PENDING);
    }

    proptest! {
        #[test]
        fn each_stream_keeps_its_order_when_merged(
            pieces in proptest::collection::vec((any::<bool>(), "[a\n]{0,4}"), 0..20),
        ) {
            // Letters tell which stream a line is of.
            let pieces: Vec<(Stream, String)> = pieces
                .into_iter()
                .map(|(err, text)| match err {
                    true => (Stream::Stderr, text.replace('a', "e")),
                    false => (Stream::Stdout, text.replace('a', "o")),
                })
                .collect();
            let borrowed: Vec<_> = pieces.iter().map(|(stream, text)| (*stream, text.as_str())).collect();
            let out = merged(&borrowed);
            for (stream, letter) in [(Stream::Stdout, 'o'), (Stream::Stderr, 'e')] {
                let all: String =
                    pieces.iter().filter(|it| it.0 == stream).map(|it| it.1.as_str()).collect();
                let lines = |text: &str| -> Vec<String> {
                    text.lines().filter(|line| line.contains(letter)).map(str::to_owned).collect()
                };
                prop_assert_eq!(lines(&out), lines(&all));
            }
            prop_assert!(out.lines().all(|line| !(line.contains('o') && line.contains('e'))));
        }
    }
}
