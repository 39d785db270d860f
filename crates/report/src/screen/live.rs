//! What is drawn beneath the text and taken away again: an unfinished line, and the status line.

use std::io::Write as _;

use crate::style::Paint;
use crate::width;
use ralph_events::control_chars::ControlCharFilter;

use super::OPEN_WINDOW;

/// What is drawn beneath the text and taken away again.
#[derive(Debug, Default)]
pub(super) struct Live {
    width: usize,
    /// As drawn: the unfinished line, and the status line; both empty when nothing is drawn.
    open: String,
    status: String,
    /// The unfinished line as it is now.
    now_open: String,
}

impl Live {
    pub(super) fn new(width: usize) -> Self {
        Live { width, ..Live::default() }
    }

    pub(super) fn resize(&mut self, width: usize) {
        self.width = width;
    }

    /// The columns that a line may take; the last is left free, so that nothing ever wraps.
    pub(super) fn room(&self) -> usize {
        self.width.saturating_sub(1)
    }

    /// Something else is drawn than what is to be.
    pub(super) fn is_outdated(&self, status: &str) -> bool {
        status != self.status || self.now_open != self.open
    }

    /// Takes the end of the unfinished line, as much of it as fits.
    pub(super) fn set_open(&mut self, held: &[u8], scratch: &mut String) {
        self.now_open.clear();
        if held.is_empty() {
            return;
        }
        let window = &held[held.len().saturating_sub(OPEN_WINDOW)..];
        scratch.clear();
        ControlCharFilter::default().push(&String::from_utf8_lossy(window), scratch);
        let shown = width::tail(scratch, self.room());
        // A tab may take more columns than the one it was counted for.
        self.now_open.extend(shown.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }

    pub(super) fn erase(&self, frame: &mut Vec<u8>) {
        if self.status.is_empty() {
            return;
        }
        frame.push(b'\r');
        if !self.open.is_empty() {
            // It may have been wrapped since, by a terminal that was made narrower.
            let rows = width::columns(&self.open).div_ceil(self.width.max(1)).max(1);
            let _ = write!(frame, "\x1b[{rows}A");
        }
        frame.extend_from_slice(b"\x1b[J");
    }

    /// Draws both lines and leaves the cursor at the beginning of the second, where anything that is
    /// printed by others, or after a sudden end, overwrites it.
    pub(super) fn draw(&mut self, status: &str, color: bool, frame: &mut Vec<u8>) {
        self.open.clear();
        self.status.clear();
        if status.is_empty() {
            return;
        }
        std::mem::swap(&mut self.open, &mut self.now_open);
        self.status.push_str(status);
        if !self.open.is_empty() {
            frame.extend_from_slice(self.open.as_bytes());
            frame.push(b'\n');
        }
        if color {
            let style = Paint::Faint.style();
            let _ = write!(frame, "{}{status}{}\r", style.render(), style.render_reset());
        } else {
            let _ = write!(frame, "{status}\r");
        }
    }
}
