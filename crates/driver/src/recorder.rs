//! From an event to the journal and then to everybody who watches.

use std::io;
use std::time::Duration;

use crate::journal_quota::{JournalQuota, QuotaDecision};
use ralph_events::event::{Event, Stamp, Stream};
use ralph_events::journal::LineEncoder;
use ralph_report::Reporter;

use super::world::Journal;

/// How events came into the journal.
#[derive(Debug)]
pub enum WriteResult {
    Normal,
    /// There was no more room than what was set aside, for this reason.
    UsedReserve(io::Error),
}

/// Collects events and hands them on: to the journal first.
#[expect(missing_debug_implementations, reason = "reporters are trait objects over terminals")]
pub struct Recorder {
    pub at: Stamp,
    lines: LineEncoder,
    ration: JournalQuota,
    reporters: Vec<Box<dyn Reporter>>,
    /// Warnings of this run, and how often each was given.
    warnings: Vec<(String, u32)>,
}

impl Recorder {
    /// `room` is what may be recorded of what agents print, in bytes.
    pub fn new(reporters: Vec<Box<dyn Reporter>>, room: u64) -> Self {
        let at = Stamp { time_ms: 0, iteration: 0, attempt: 0 };
        let (lines, ration) = (LineEncoder::default(), JournalQuota::new(room));
        Recorder { at, lines, ration, reporters, warnings: Vec::new() }
    }

    /// Records an event. A warning that was given before is only counted; the counts are told before the run's end.
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

    fn is_repeated(&mut self, message: &str) -> bool {
        /// More different warnings than this are given each time.
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
        let line = self.lines.push(self.at, event);
        for reporter in &mut self.reporters {
            reporter.event(self.at, event);
            reporter.line(line);
        }
        line.len()
    }

    /// Writes what was collected, then shows it. It is shown even when it could not be written: the
    /// person who watches is then the only one who will know. `may_be_last` if nothing of the run is at work that
    /// would fill a disk any further: then these words may have what was set aside for the last ones.
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

    /// The agent's bytes as they came, for those who show them.
    pub fn raw_output(&mut self, stream: Stream, bytes: &[u8]) {
        for reporter in &mut self.reporters {
            reporter.raw_output(stream, bytes);
        }
    }

    /// A line of the agent's that has not ended: only to be looked at. It is recorded once it has.
    pub fn partial_line(&mut self, line: &[u8]) {
        for reporter in &mut self.reporters {
            reporter.partial_line(line);
        }
    }

    /// Whether the user's own filter makes what is shown of the agent's work.
    pub fn filtering_changed(&mut self, on: bool) {
        for reporter in &mut self.reporters {
            reporter.filtering_changed(self.at, on);
        }
    }

    /// That filter is of no use any more.
    pub fn filter_failed(&mut self) {
        for reporter in &mut self.reporters {
            reporter.filter_failed(self.at);
        }
    }

    /// What that filter printed. It is in no journal: it is only another look at what is.
    pub fn filter_output(&mut self, bytes: &[u8]) {
        for reporter in &mut self.reporters {
            reporter.filter_output(self.at, bytes);
        }
    }

    /// What went wrong with those who watch.
    pub fn reporter_warning(&mut self) -> Option<String> {
        self.reporters.iter_mut().find_map(|reporter| reporter.take_warning())
    }

    /// What cannot be kept of the run, so that it must end.
    pub fn reporter_failure(&mut self) -> Option<String> {
        self.reporters.iter_mut().find_map(|reporter| reporter.take_failure())
    }

    /// When somebody wants to be redrawn, by the wall clock.
    pub fn next_tick(&self) -> Option<i64> {
        self.reporters.iter().filter_map(|reporter| reporter.next_tick()).min()
    }

    pub fn tick(&mut self, now_ms: i64) {
        for reporter in &mut self.reporters {
            reporter.tick(now_ms);
        }
    }

    pub fn resized(&mut self) {
        for reporter in &mut self.reporters {
            reporter.resized();
        }
    }

    /// Nothing is recorded after this.
    pub fn finish(&mut self) {
        for reporter in &mut self.reporters {
            reporter.finish();
        }
    }

    /// Waits a moment for those who are slow to read, and says whether more waiting is worth it.
    pub fn has_pending_output(&mut self, patience: Duration) -> bool {
        self.reporters.iter_mut().any(|reporter| reporter.has_pending_output(patience))
    }
}
