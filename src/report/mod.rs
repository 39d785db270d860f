//! The faces of a run. Each is a reader of the same events; nothing else prints.

use crate::core::event::{Event, Stamp};

/// Shows events to somebody.
///
/// `event` only prepares; what it prepared is shown by `flush`, which the driver calls once the
/// journal holds those events.
pub trait Reporter {
    fn event(&mut self, at: Stamp, event: &Event<'_>);
    /// Shows what was prepared. Somebody who is gone (a closed pipe) is no reason to stop a run.
    fn flush(&mut self);
    /// When this face wants to be redrawn without an event, in milliseconds since the Unix epoch.
    fn next_tick(&self) -> Option<i64> {
        None
    }
    fn tick(&mut self, _now_ms: i64) {}
}
