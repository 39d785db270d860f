//! Events for programs: the journal's own lines on standard output, each as soon as it is written.

use super::Reporter;
use super::screen::Output;
use crate::core::event::{Event, Stamp};

/// `--output json`.
#[derive(Debug)]
pub struct Json {
    out: Output,
    buffer: Vec<u8>,
}

impl Json {
    pub fn new(out: Output) -> Self {
        Json { out, buffer: Vec::new() }
    }
}

impl Reporter for Json {
    fn event(&mut self, _at: Stamp, _event: &Event<'_>) {}

    fn line(&mut self, line: &[u8]) {
        if !self.out.is_gone() {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
        }
    }

    fn flush(&mut self) {
        self.out.write(&self.buffer);
        self.buffer.clear();
        self.buffer.shrink_to(256 * 1024);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::screen::tests::Sink;

    #[test]
    fn lines_are_passed_on_as_they_are_and_in_one_write() {
        let sink = Sink::default();
        let mut json = Json::new(sink.output());
        json.line(br#"{"event":"note"}"#);
        json.line(br#"{"event":"text"}"#);
        assert_eq!(sink.take(), [""; 0], "nothing before the flush");
        json.flush();
        json.flush();
        assert_eq!(sink.take(), ["{\"event\":\"note\"}\n{\"event\":\"text\"}\n"]);
        *sink.closed.borrow_mut() = true;
        json.line(b"x");
        json.flush();
        json.line(b"y");
        assert!(json.buffer.is_empty(), "nothing is kept for nobody");
    }
}
