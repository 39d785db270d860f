//! Views of a run: each reads the same events, and nothing else prints.
//!
//! [`terminal`] with its [`status_line`], [`json`], [`session_log`], [`summary`] (the report) and [`run_table`] are the views. [`screen`] is the
//! only writer to the terminal. This crate knows no files, processes or agents; callers hand it events and writers.

#![forbid(unsafe_code)]

mod async_writer;
pub mod json;
pub mod mirror;
pub mod output;
pub mod replay;
pub mod run_table;
pub mod screen;
pub mod session_log;
pub mod status_line;
pub mod stream_merger;
pub mod style;
pub mod summary;
pub mod terminal;
pub mod warning_text;
pub mod width;
pub mod worker_lines;

use std::time::Duration;

use ralph_events::event::{Event, Stamp, Stream};
use ralph_events::run_state::RunState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backpressure {
    /// Show everything, however slow the reader.
    WaitForReader,
    /// A slow reader misses output; the display says how much.
    DropWhenSlow,
}

/// A view of events.
///
/// `event` and `line` only prepare; `flush` shows it, once the journal has the events.
pub trait Reporter {
    /// `run` is the state of the run after the event.
    fn event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState);
    /// The same event as a line of the journal, without the newline.
    fn line(&mut self, _line: &[u8]) {}
    /// The agent's raw bytes.
    fn raw_output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// The agent's unfinished line, for views that can erase it. Empty if there is none.
    fn partial_line(&mut self, _line: &[u8]) {}
    /// The user's display filter now formats the agent's output, or no longer.
    fn filtering_changed(&mut self, _at: Stamp, _on: bool) {}
    /// The filter failed: show its last input, and what follows, in the usual way.
    fn filter_failed(&mut self, _at: Stamp) {}
    fn filter_output(&mut self, _at: Stamp, _bytes: &[u8]) {}
    /// A problem with this view that the user should know.
    fn take_warning(&mut self) -> Option<String> {
        None
    }
    /// A required file cannot be written: the run must stop.
    fn take_failure(&mut self) -> Option<String> {
        None
    }
    /// Shows what was prepared. A closed reader does not stop a run.
    fn flush(&mut self);
    /// When to redraw without an event, in milliseconds since the Unix epoch.
    fn next_tick(&self) -> Option<i64> {
        None
    }
    fn tick(&mut self, _now_ms: i64) {}
    fn resized(&mut self) {}
    /// The last call: shows the rest and restores the terminal.
    fn finish(&mut self) {
        self.flush();
    }
    /// After `finish`: waits a moment for a slow reader and returns whether to wait more. It ends when everything
    /// is read, or nothing was for `patience`.
    fn has_pending_output(&mut self, _patience: Duration) -> bool {
        false
    }
}
