//! The live area below the text: an unfinished line, and the status line.

use std::io::Write as _;

use crate::style::TextRole;
use crate::width;
use ralph_events::control_chars::ControlCharFilter;

use super::PARTIAL_LINE_BYTES;

#[derive(Debug, Default)]
pub(super) struct LiveArea {
    width: usize,
    /// As drawn; empty when nothing is drawn.
    open: String,
    status: String,
    partial_line: String,
}

impl LiveArea {
    pub(super) fn new(width: usize) -> Self {
        LiveArea { width, ..LiveArea::default() }
    }

    pub(super) fn resize(&mut self, width: usize) {
        self.width = width;
    }

    /// Usable columns. The last one stays free, so nothing wraps.
    pub(super) fn width(&self) -> usize {
        self.width.saturating_sub(1)
    }

    pub(super) fn needs_redraw(&self, status: &str) -> bool {
        status != self.status || self.partial_line != self.open
    }

    /// Keeps the end of the unfinished line that fits.
    pub(super) fn set_partial_line(&mut self, held: &[u8], scratch: &mut String) {
        self.partial_line.clear();
        if held.is_empty() {
            return;
        }
        let window = &held[held.len().saturating_sub(PARTIAL_LINE_BYTES)..];
        scratch.clear();
        ControlCharFilter::default().push(&String::from_utf8_lossy(window), scratch);
        let shown = width::suffix_within(scratch, self.width());
        // A tab may take more columns than it was counted for.
        self.partial_line.extend(shown.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }

    pub(super) fn erase(&self, frame: &mut Vec<u8>) {
        if self.status.is_empty() {
            return;
        }
        frame.push(b'\r');
        if !self.open.is_empty() {
            // A narrower terminal may have wrapped it.
            let rows = width::display_width(&self.open).div_ceil(self.width.max(1)).max(1);
            let _ = write!(frame, "\x1b[{rows}A");
        }
        frame.extend_from_slice(b"\x1b[J");
    }

    /// Draws both lines and leaves the cursor at the start of the second, so that later output overwrites it.
    pub(super) fn draw(&mut self, status: &str, color: bool, frame: &mut Vec<u8>) {
        self.open.clear();
        self.status.clear();
        if status.is_empty() {
            return;
        }
        std::mem::swap(&mut self.open, &mut self.partial_line);
        self.status.push_str(status);
        if !self.open.is_empty() {
            frame.extend_from_slice(self.open.as_bytes());
            frame.push(b'\n');
        }
        if color {
            let style = TextRole::Faint.style();
            let _ = write!(frame, "{}{status}{}\r", style.render(), style.render_reset());
        } else {
            let _ = write!(frame, "{status}\r");
        }
    }
}
