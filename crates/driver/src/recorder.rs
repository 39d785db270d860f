//! Writes events to the journal, then hands them to the reporters.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use crate::journal_quota::{JournalQuota, QuotaDecision};
use ralph_events::event::{Event, Stamp};
use ralph_events::journal::LineEncoder;
use ralph_events::run_state::RunState;
use ralph_report::{LiveOutput, Problem, Recorded, Redraw, Reporter};

use super::world::Journal;

#[derive(Debug)]
pub enum WriteResult {
    Normal,
    /// The disk is full, and reserved space was used.
    UsedReserve(io::Error),
}

/// Collects events for the journal and the reporters.
#[expect(missing_debug_implementations, reason = "reporters are trait objects over terminals")]
pub struct Recorder {
    pub at: Stamp,
    lines: LineEncoder,
    ration: JournalQuota,
    reporters: Vec<Box<dyn Reporter>>,
    /// The state of the run, shared by all reporters.
    run: RunState,
    /// Warnings of this run, and how often each occurred.
    warnings: Vec<(String, u32)>,
}

impl Recorder {
    /// `room` limits the bytes recorded of agents' output. `run` is the state of a resumed run.
    pub fn new(reporters: Vec<Box<dyn Reporter>>, room: u64, run: RunState) -> Self {
        let at = Stamp { time_ms: 0, iteration: 0, attempt: 0 };
        let (lines, ration) = (LineEncoder::default(), JournalQuota::new(room));
        Recorder { at, lines, ration, reporters, run: run.into_live(), warnings: Vec::new() }
    }

    /// Records an event. Repeated warnings are counted, and the counts recorded before the end of the run.
    pub fn record(&mut self, event: &Event<'_>) {
        match event {
            Event::Warning { message } if self.is_repeated(message) => return,
            Event::RunEnded { .. } => {
                for (message, times) in std::mem::take(&mut self.warnings) {
                    if times > 1 {
                        let message = format!("{message} ({times} times in this run)");
                        self.append_line(&Event::Warning { message: message.into() });
                    }
                }
            }
            _ => {}
        }
        if let Event::AgentEnded { .. } = event {
            for late in self.ration.finish_agent() {
                self.append_line(&late);
            }
        }
        match self.ration.decide(event) {
            QuotaDecision::Keep { agents } => {
                let bytes = self.append_line(event);
                if agents {
                    self.ration.record_bytes(bytes);
                }
            }
            QuotaDecision::Omit(told) => {
                if let Some(told) = told {
                    self.append_line(&told);
                }
            }
        }
    }

    pub fn warn(&mut self, message: impl Into<Cow<'static, str>>) {
        self.record(&Event::Warning { message: message.into() });
    }

    /// Warns unless this was said before, and does not count it.
    pub fn warn_once(&mut self, message: String) {
        if !self.warnings.iter().any(|(known, _)| *known == message) {
            self.warn(message);
        }
    }

    fn is_repeated(&mut self, message: &str) -> bool {
        /// More different warnings than this are repeated.
        const MAX_COUNTED_WARNINGS: usize = 1000;
        if let Some((_, times)) = self.warnings.iter_mut().find(|(known, _)| known == message) {
            *times += 1;
            return true;
        }
        if self.warnings.len() < MAX_COUNTED_WARNINGS {
            self.warnings.push((message.to_owned(), 1));
        }
        false
    }

    fn append_line(&mut self, event: &Event<'_>) -> usize {
        self.run.apply_event(self.at, event);
        let line = self.lines.push(self.at, event);
        for reporter in &mut self.reporters {
            reporter.event(Recorded { at: self.at, event, line, run: &self.run });
        }
        line.len()
    }

    /// Writes the collected events, then shows them, even if they could not be written: then the terminal is the only
    /// place that has them. `may_be_last` allows the use of reserved space; set it when nothing runs that could fill the
    /// disk.
    pub fn flush(
        &mut self,
        world: &mut impl Journal,
        may_be_last: bool,
    ) -> io::Result<WriteResult> {
        let mut written = if self.lines.bytes().is_empty() {
            Ok(WriteResult::Normal)
        } else {
            world.append(self.lines.bytes()).map(|()| WriteResult::Normal)
        };
        let is_full = |err: &io::Error| {
            matches!(err.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        if may_be_last
            && let Err(err) = &mut written
            && is_full(err)
            && world.make_room()
            && world.append(self.lines.bytes()).is_ok()
        {
            let err = std::mem::replace(err, io::ErrorKind::StorageFull.into());
            written = Ok(WriteResult::UsedReserve(err));
        }
        self.lines.clear();
        for reporter in &mut self.reporters {
            reporter.flush();
        }
        written
    }

    /// Passes on what is shown and not recorded.
    pub fn output(&mut self, output: LiveOutput<'_>) {
        for reporter in &mut self.reporters {
            reporter.output(self.at, output);
        }
    }

    pub fn take_problems(&mut self) -> Vec<Problem> {
        self.reporters.iter_mut().filter_map(|reporter| reporter.take_problem()).collect()
    }

    /// Returns when a reporter wants to redraw, by the wall clock.
    pub fn next_tick(&self) -> Option<i64> {
        self.reporters.iter().filter_map(|reporter| reporter.next_tick()).min()
    }

    pub fn redraw(&mut self, cause: Redraw) {
        for reporter in &mut self.reporters {
            reporter.redraw(cause);
        }
    }

    /// Nothing may be recorded after this.
    pub fn finish(&mut self) {
        for reporter in &mut self.reporters {
            reporter.finish();
        }
    }

    /// Waits for slow readers and returns whether output is still pending.
    pub fn has_pending_output(&mut self, patience: Duration) -> bool {
        self.reporters.iter_mut().any(|reporter| reporter.has_pending_output(patience))
    }
}
