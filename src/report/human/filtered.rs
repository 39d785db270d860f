//! The agent's work as the user's own filter shows it.

use super::{Human, Speaker};
use crate::core::event::Stamp;
use crate::core::lines::LineSplitter;

/// The longest line that is held.
const MAX_LINE: usize = 64 * 1024;

impl Human {
    /// Shows the lines that are whole.
    pub(super) fn show_filtered(&mut self, at: Stamp, bytes: &[u8]) {
        if !self.style.show_stream || self.style.quiet {
            return;
        }
        let mut lines = self.filter.take().unwrap_or_else(|| LineSplitter::new(MAX_LINE));
        lines.push(bytes, |line| {
            self.speak(at, Speaker::Filter, &String::from_utf8_lossy(line.bytes), line.joined);
        });
        self.filter = Some(lines);
    }

    pub(super) fn set_filtering(&mut self, at: Stamp, on: bool) {
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
}
