//! Views of a run: each reads the same events, and nothing else prints.
//!
//! [`terminal`] with its [`status_line`], [`json`], [`session_log`], [`summary`] (the report) and [`run_table`] are the views. [`run_card`], [`overview`],
//! [`transcript`], [`story_view`] and [`check_view`] are what the live screens show, as data. [`screen`] is the
//! only writer to the terminal. This crate knows no files, processes or agents; callers hand it events and writers.

#![forbid(unsafe_code)]

mod async_writer;
pub mod check_view;
pub mod json;
pub mod mirror;
pub mod next_steps;
pub mod output;
pub mod overview;
pub mod replay;
pub mod run_card;
pub mod run_table;
#[cfg(test)]
mod sample_events;
pub mod screen;
pub mod session_log;
pub mod state_word;
pub mod status_line;
pub mod story_view;
pub mod stream_merger;
pub mod style;
pub mod summary;
pub mod table;
pub mod terminal;
mod time_text;
pub mod transcript;
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

/// An event that is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    pub at: Stamp,
    pub event: &'a Event<'a>,
    /// The event as a line of the journal, without the newline.
    pub line: &'a [u8],
    /// The state of the run after the event.
    pub run: &'a RunState,
}

/// Output that a view may show although it is not recorded in this form.
#[derive(Debug, Clone, Copy)]
pub enum LiveOutput<'a> {
    /// The agent's raw bytes.
    Raw(Stream, &'a [u8]),
    /// The agent's unfinished line, for views that can erase it. Empty if there is none.
    PartialLine(&'a [u8]),
    /// The user's display filter now formats the agent's output, or no longer.
    Filtering(bool),
    /// What the display filter printed.
    Filtered(&'a [u8]),
    /// The filter failed: show its last input, and what follows, in the usual way.
    FilterFailed,
}

/// Why a view is drawn again without an event.
#[derive(Debug, Clone, Copy)]
pub enum Redraw {
    /// The time of [`Reporter::next_tick`] has come.
    Tick {
        now_ms: i64,
    },
    Resized,
}

/// A problem of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The user should know.
    Warning(String),
    /// A required file cannot be written: the run must stop.
    Failure(String),
}

impl Problem {
    pub fn into_message(self) -> String {
        match self {
            Problem::Warning(message) | Problem::Failure(message) => message,
        }
    }
}

/// A view of events.
///
/// `event` and `output` only prepare; `flush` shows it, once the journal has the events.
pub trait Reporter {
    fn event(&mut self, recorded: Recorded<'_>);
    fn output(&mut self, _at: Stamp, _output: LiveOutput<'_>) {}
    /// Shows what was prepared. A closed reader does not stop a run.
    fn flush(&mut self);
    fn take_problem(&mut self) -> Option<Problem> {
        None
    }
    /// When to redraw without an event, in milliseconds since the Unix epoch.
    fn next_tick(&self) -> Option<i64> {
        None
    }
    fn redraw(&mut self, _cause: Redraw) {}
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
