//! The faces of a run. Each reads the same events and [`RunState`]; nothing else prints.
//!
//! [`terminal`] is for people, with [`status_line`] below the text; [`json`] is for programs; [`session_log`] is a file
//! of the agents' output; [`mirror`] shows an agent's own screen; [`replay`] shows a past run on any face; [`run_table`]
//! lists past runs; [`summary`] reports on one. [`style`] selects signs and colors; [`width`] keeps agents' output from
//! steering the terminal; only [`screen`] writes to an [`output`], without waiting for readers that are slow.
//! This crate knows no files of ralph's, no processes and no engine.

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
pub mod width;
pub mod worker_lines;

use std::time::Duration;

use ralph_events::event::{Event, Stamp, Stream};
use ralph_events::run_state::RunState;

/// What happens if a reader is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backpressure {
    /// Everything is shown, however long it takes.
    WaitForReader,
    /// A slow reader misses lines and is told how many.
    DropWhenSlow,
}

/// Shows events.
///
/// `event` and `line` only prepare; `flush` shows what they prepared, once the journal holds it.
pub trait Reporter {
    /// `run` is the state of the run after the event.
    fn event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState);
    /// The same event as a line of the journal, without the newline.
    fn line(&mut self, _line: &[u8]) {}
    /// The agent's raw bytes. Only prepares, too.
    fn raw_output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// A line that the agent has not ended, for faces that can replace it. It comes again as an event.
    fn partial_line(&mut self, _line: &[u8]) {}
    /// A command of the user's shows the agent's work from now on, or no longer does.
    fn filtering_changed(&mut self, _at: Stamp, _on: bool) {}
    /// That command failed: what it may not have shown is shown in the usual way, as is everything after it.
    fn filter_failed(&mut self, _at: Stamp) {}
    /// Output of that command.
    fn filter_output(&mut self, _at: Stamp, _bytes: &[u8]) {}
    /// Returns a problem of this face that a person should know about.
    fn take_warning(&mut self) -> Option<String> {
        None
    }
    /// Returns a problem without whose solution the run must not continue.
    fn take_failure(&mut self) -> Option<String> {
        None
    }
    /// Shows what was prepared. A closed pipe does not stop a run.
    fn flush(&mut self);
    /// Returns when to redraw without an event, in milliseconds since the Unix epoch.
    fn next_tick(&self) -> Option<i64> {
        None
    }
    fn tick(&mut self, _now_ms: i64) {}
    fn resized(&mut self) {}
    /// Shows the rest and restores the terminal.
    fn finish(&mut self) {
        self.flush();
    }
    /// Waits for a slow reader after `finish`. Returns whether to wait longer: not once everything was read, or nothing
    /// was for `patience`.
    fn has_pending_output(&mut self, _patience: Duration) -> bool {
        false
    }
}
