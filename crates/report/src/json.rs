//! The JSON view: journal lines on standard output.

use std::io::Write;
use std::time::Duration;

use super::output::{OutputStream, OutputTarget};
use super::screen::TerminalOutput;
use super::{Backpressure, Problem, Recorded, Reporter};

/// Large enough for most runs: a program cannot guess missing events.
const QUEUE_BYTES: usize = 64 << 20;

/// `--output json`.
#[derive(Debug)]
pub struct JsonReporter {
    screen: TerminalOutput,
    /// For the message that events can no longer be written.
    stderr: OutputStream,
}

impl JsonReporter {
    pub fn new(out: OutputStream) -> Self {
        let screen = TerminalOutput::new(out, OutputStream::null(), false, false);
        JsonReporter { screen, stderr: OutputStream::null() }
    }

    pub fn stdio(pace: Backpressure) -> Self {
        let JsonReporter { screen, stderr: aside } = JsonReporter::new(OutputStream::stdout());
        match pace {
            Backpressure::WaitForReader => JsonReporter { screen, stderr: aside },
            Backpressure::DropWhenSlow => JsonReporter {
                screen: screen.with_async_writer(QUEUE_BYTES, omitted_event),
                stderr: OutputStream::stderr(),
            },
        }
    }

    fn write_line(&mut self, line: &[u8]) {
        if !self.screen.is_closed() {
            let out = self.screen.buffer_for(OutputTarget::Out);
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
}

/// The only line that is not in the journal.
fn omitted_event(events: u64, out: &mut Vec<u8>) {
    let _ = writeln!(out, r#"{{"event":"display_skipped","events":{events}}}"#);
}

impl Reporter for JsonReporter {
    fn event(&mut self, recorded: Recorded<'_>) {
        self.write_line(recorded.line);
    }

    fn take_problem(&mut self) -> Option<Problem> {
        let trouble = self.screen.take_warning()?;
        self.stderr.write(format!("warning: {trouble}\n").as_bytes());
        Some(Problem::Warning(trouble))
    }

    fn flush(&mut self) {
        self.screen.flush("");
    }

    fn finish(&mut self) {
        self.screen.finish();
    }

    fn has_pending_output(&mut self, patience: Duration) -> bool {
        self.screen.has_pending_output(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::Sink;

    #[test]
    fn json_lines_are_written_unchanged_in_one_write() {
        let sink = Sink::default();
        let mut json = JsonReporter::new(sink.output());
        json.write_line(br#"{"event":"note"}"#);
        json.write_line(br#"{"event":"text"}"#);
        assert_eq!(sink.take(), [""; 0], "nothing before the flush");
        json.flush();
        json.flush();
        assert_eq!(sink.take(), ["{\"event\":\"note\"}\n{\"event\":\"text\"}\n"]);
        *sink.closed.borrow_mut() = true;
        json.write_line(b"x");
        json.flush();
        json.write_line(b"y");
        assert!(
            json.screen.buffer_for(OutputTarget::Out).is_empty(),
            "nothing is kept without a reader"
        );
    }
}
