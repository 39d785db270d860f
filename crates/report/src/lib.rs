//! The faces of a run. Each is a reader of the same events; nothing else prints.
//!
//! [`terminal`] is what a person sees in a terminal, with [`status_line`] as the line beneath it; [`json`] is
//! the same events for programs; [`session_log`] is a file of what the agent printed; [`mirror`] is
//! the screen of an agent that has one; [`replay`] shows a past run to any face; [`run_table`] is the list of past
//! runs. What a face may print where, and in which signs, is decided by [`style`]; [`width`] keeps
//! what an agent printed from steering the terminal, and [`screen`] is the one place that writes to an
//! [`output`]; with an `outbox` before it, nobody who does not read can stop a run.

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

/// Who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backpressure {
    /// Everything is shown, however long somebody takes to read it.
    WaitForReader,
    /// A reader that stands still misses something, and is told how much.
    DropWhenSlow,
}

/// Shows events to somebody.
///
/// `event` and `line` only prepare; what they prepared is shown by `flush`, which the driver calls
/// once the journal holds those events.
pub trait Reporter {
    /// `run` is the state of the run after the event.
    fn event(&mut self, at: Stamp, event: &Event<'_>, run: &RunState);
    /// The same event as the journal's line, without the newline. Every event is handed over in both
    /// forms, so that a face that passes lines on need not write them anew.
    fn line(&mut self, _line: &[u8]) {}
    /// The agent's bytes as they came. They only prepare, too.
    fn raw_output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// The line that the agent has begun and not ended, for those who can take it back: it comes again, as
    /// an event, when it is whole. Empty if there is none.
    fn partial_line(&mut self, _line: &[u8]) {}
    /// From now on somebody else, a command of the user's, makes of the agent's bytes what is shown of
    /// its work; or not any more.
    fn filtering_changed(&mut self, _at: Stamp, _on: bool) {}
    /// That command is of no use: what it was given last, and has perhaps not shown, is shown in the usual
    /// way, and so is what follows.
    fn filter_failed(&mut self, _at: Stamp) {}
    /// What that command printed.
    fn filter_output(&mut self, _at: Stamp, _bytes: &[u8]) {}
    /// What went wrong with this face since it was last asked, if a person should know.
    fn take_warning(&mut self) -> Option<String> {
        None
    }
    /// What this face has to keep and cannot, if the run must not continue without it.
    fn take_failure(&mut self) -> Option<String> {
        None
    }
    /// Shows what was prepared. Somebody who is gone (a closed pipe) is no reason to stop a run.
    fn flush(&mut self);
    /// When this face wants to be redrawn without an event, in milliseconds since the Unix epoch.
    fn next_tick(&self) -> Option<i64> {
        None
    }
    fn tick(&mut self, _now_ms: i64) {}
    /// The terminal's size changed.
    fn resized(&mut self) {}
    /// The last call: shows what is left and leaves the terminal as it was found.
    fn finish(&mut self) {
        self.flush();
    }
    /// After the last call: waits a moment for somebody who is slow to read, and says whether more
    /// waiting is worth it. It is not once everything was read, or nothing was for `patience`; and
    /// then it never is again.
    fn has_pending_output(&mut self, _patience: Duration) -> bool {
        false
    }
}
