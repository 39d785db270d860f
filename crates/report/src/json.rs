//! Events for programs: the journal's own lines on standard output, each as soon as it is written.

use std::io::Write;
use std::time::Duration;

use super::output::{Output, Target};
use super::screen::Screen;
use super::{Pace, Reporter};
use ralph_events::event::{Event, Stamp};

/// What waits for a program that is slow: as much as most runs have in all, since a program cannot
/// guess what it was not told.
const QUEUE_BYTES: usize = 64 << 20;

/// `--output json`.
#[derive(Debug)]
pub struct Json {
    screen: Screen,
    /// Where it is said that the events cannot be told any more.
    aside: Output,
}

impl Json {
    pub fn new(out: Output) -> Self {
        let screen = Screen::new(out, Output::nobody(), false, false);
        Json { screen, aside: Output::nobody() }
    }

    /// The events on standard output.
    pub fn stdio(pace: Pace) -> Self {
        let Json { screen, aside } = Json::new(Output::stdout());
        match pace {
            Pace::OfReader => Json { screen, aside },
            Pace::OfRun => Json {
                screen: screen.without_waiting(QUEUE_BYTES, skipped),
                aside: Output::stderr(),
            },
        }
    }
}

/// The one line that is in no journal.
fn skipped(events: u64, out: &mut Vec<u8>) {
    let _ = writeln!(out, r#"{{"event":"display_skipped","events":{events}}}"#);
}

impl Reporter for Json {
    fn event(&mut self, _at: Stamp, _event: &Event<'_>) {}

    fn line(&mut self, line: &[u8]) {
        if !self.screen.is_gone() {
            let out = self.screen.to(Target::Out);
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }

    fn trouble(&mut self) -> Option<String> {
        let trouble = self.screen.trouble()?;
        self.aside.write(format!("ralph: warning: {trouble}\n").as_bytes());
        Some(trouble)
    }

    fn flush(&mut self) {
        self.screen.flush("");
    }

    fn finish(&mut self) {
        self.screen.finish();
    }

    fn lags(&mut self, patience: Duration) -> bool {
        self.screen.lags(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::Sink;

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
        assert!(json.screen.to(Target::Out).is_empty(), "nothing is kept for nobody");
    }
}
