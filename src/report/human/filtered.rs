//! The agent's work as the user's own filter shows it.

use std::collections::VecDeque;

use super::words::plural;
use super::{Human, Paragraph, Speaker};
use crate::core::event::{Entry, Stamp};
use crate::core::lines::LineSplitter;

/// The longest line that is held.
const MAX_LINE: usize = 64 * 1024;
/// How much is held of what a filter may not show.
const MAX_HELD: usize = 1 << 20;
/// How long a filter may take to show what it was given. What is older when it prints something is taken
/// for shown, or left out on purpose; what is younger may come twice if the filter then fails.
const LAG_MS: i64 = 1_000;

/// Events that only the user's filter shows, as they are in the journal.
#[derive(Debug, Default)]
pub(super) struct Held {
    lines: VecDeque<(Stamp, Vec<u8>)>,
    bytes: usize,
    /// Events that there was no room for.
    lost: u64,
    /// The next line is to be held.
    expected: Option<Stamp>,
}

impl Held {
    /// An event comes that is to be held.
    pub(super) fn expect(&mut self, at: Stamp) {
        self.expected = Some(at);
    }

    /// Takes the line of the latest event, if it is to be held.
    pub(super) fn take(&mut self, line: &[u8]) {
        let Some(at) = self.expected.take() else { return };
        self.bytes += line.len();
        self.lines.push_back((at, line.to_vec()));
        while self.bytes > MAX_HELD {
            self.lost += 1;
            self.drop_first();
        }
    }

    /// The filter has printed something, so that it has come past what it was given a while ago.
    fn shown(&mut self, now_ms: i64) {
        while self.lines.front().is_some_and(|(at, _)| at.time_ms < now_ms - LAG_MS) {
            self.drop_first();
            self.lost = 0;
        }
    }

    fn drop_first(&mut self) {
        match self.lines.pop_front() {
            Some((_, line)) => self.bytes -= line.len(),
            None => self.bytes = 0,
        }
    }
}

impl Human {
    /// Shows the lines that are whole.
    pub(super) fn show_filtered(&mut self, at: Stamp, bytes: &[u8]) {
        if !self.style.show_stream || self.style.quiet {
            return;
        }
        self.held.shown(at.time_ms);
        let mut lines = self.filter.take().unwrap_or_else(|| LineSplitter::new(MAX_LINE));
        lines.push(bytes, |line| {
            self.speak(at, Speaker::Filter, &String::from_utf8_lossy(line.bytes), line.joined);
        });
        self.filter = Some(lines);
    }

    pub(super) fn set_filtering(&mut self, at: Stamp, on: bool) {
        self.held = Held::default();
        match (self.filter.take(), on) {
            (None, true) => self.filter = Some(LineSplitter::new(MAX_LINE)),
            (Some(mut lines), false) => {
                lines.finish(|line| {
                    self.speak(
                        at,
                        Speaker::Filter,
                        &String::from_utf8_lossy(line.bytes),
                        line.joined,
                    );
                });
                self.end_block();
            }
            (lines, _) => self.filter = lines,
        }
    }

    /// Shows in the usual way what a filter has not, or may not have, shown.
    pub(super) fn show_held(&mut self, at: Stamp, held: Held) {
        if held.lost > 0 {
            let (more, lost) = (self.marks.more, held.lost);
            let were = if lost == 1 { "was" } else { "were" };
            let mut pen = self.line(at, Paragraph::Run);
            pen.say(&format!(
                "{more} {lost} event{} {were} not shown; `ralph replay` has them",
                plural(lost)
            ));
            pen.end();
        }
        for (at, line) in held.lines {
            if let Ok(Entry { event, .. }) = serde_json::from_slice(&line) {
                self.agent_event(at, &event);
            }
        }
        self.end_block();
    }
}
