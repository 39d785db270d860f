//! Driver: the user's display filter, a shell pipeline that formats the agent's output for the terminal.
//!
//! If it dies, the usual display takes over; if it hangs, it is ended; if it is slow, it misses output. The run
//! waits for it only a moment after each agent.

use std::ffi::{OsStr, OsString};

use super::Driver;
use crate::world::{Part, Started, World};
use ralph_events::event::{Exit, Stream};
use ralph_process::{ChildEnd, ChildId, Launch, Occurrence, Signal};
use ralph_report::stream_merger::StreamMerger;
use ralph_report::{LiveOutput, Redraw};

const DRAIN_TIMEOUT_MS: u64 = 2_000;

/// One filter process per agent.
#[derive(Debug, Default)]
pub(super) struct DisplayFilter {
    running: Option<FilterProcess>,
    /// One hung or did not start: no further ones.
    has_failed: bool,
}

#[derive(Debug)]
struct FilterProcess {
    child: ChildId,
    merger: StreamMerger,
    input_closed: bool,
}

impl<W: World> Driver<'_, W> {
    /// Starts before its agent, because orphans are attributed to the latest child.
    pub(super) fn start_filter(&mut self) {
        let Some(command) = self.spec.display_filter.as_deref() else { return };
        if self.display_filter.has_failed {
            return;
        }
        let env = self.run_variables();
        let args = [OsString::from("-c"), OsString::from(command)];
        let launch = Launch::plain(&self.spec.directory, OsStr::new("sh"), &args, &env);
        match self.world.start(Part::Filter, &launch) {
            Ok(Started { child, .. }) => {
                let merger = StreamMerger::default();
                self.display_filter.running =
                    Some(FilterProcess { child, merger, input_closed: false });
                self.recorder.output(LiveOutput::Filtering(true));
            }
            Err(err) => self.abandon_filter(&format!("could not be started: {err}")),
        }
    }

    pub(super) fn write_to_filter(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(running) = &mut self.display_filter.running else { return };
        let mut merged = Vec::new();
        running.merger.push(stream, bytes, &mut merged);
        if !merged.is_empty() && !self.world.feed(running.child, &merged) {
            self.recorder
                .warn_once("the display filter is too slow; some output is not shown".into());
        }
    }

    pub(super) fn is_filter(&self, child: ChildId) -> bool {
        self.display_filter.running.as_ref().is_some_and(|running| running.child == child)
    }

    pub(super) fn show_filter_output(&mut self, bytes: &[u8]) {
        self.recorder.output(LiveOutput::Filtered(bytes));
        self.flush();
    }

    pub(super) fn filter_ended(&mut self, exit: Option<Exit>) {
        let Some(running) = self.display_filter.running.take() else { return };
        // `grep` exits with 1 if nothing matched.
        let found_nothing = running.input_closed && exit == Some(Exit::Code(1));
        let failed = exit.filter(|exit| !exit.success() && !found_nothing);
        if let Some(exit) = failed {
            let hint = match exit {
                Exit::Code(127) => {
                    "; is a command in AGENT_DISPLAY_FILTER (displayFilter) missing?"
                }
                _ => "",
            };
            self.recorder.warn_once(format!("the display filter failed: {exit}{hint}"));
        }
        if self.display_filter.has_failed || failed.is_some() {
            self.recorder.output(LiveOutput::FilterFailed);
        } else if running.input_closed {
            // A filter such as `head` may finish early.
            self.recorder.output(LiveOutput::Filtering(false));
        }
    }

    pub(super) fn finish_filter(&mut self) {
        if let Some(running) = &mut self.display_filter.running {
            let mut rest = Vec::new();
            running.merger.finish(&mut rest);
            self.world.feed(running.child, &rest);
            running.input_closed = true;
            self.world.close_input(running.child);
        } else {
            self.recorder.output(LiveOutput::Filtering(false));
        }
        // Its output must not mix with what follows.
        let mut until = Some(self.world.now().mono_ms.saturating_add(DRAIN_TIMEOUT_MS));
        let mut buf = Vec::new();
        let mut ended = false;
        while let Some(FilterProcess { child: filter, .. }) = self.display_filter.running {
            match self.world.wait(until, &mut buf) {
                Occurrence::Output(child, _) if child == filter => self.show_filter_output(&buf),
                Occurrence::Ended(child, ChildEnd { exit, .. }) if child == filter => {
                    // Our own KILL needs no message.
                    self.filter_ended(exit.filter(|_| !ended));
                }
                Occurrence::Ended(child, ended) => {
                    self.on_notify_ended(child, ended.exit, None);
                }
                Occurrence::ProxyRefused => self.report_refusals(),
                Occurrence::Signal(Signal::Resize) => self.recorder.redraw(Redraw::Resized),
                Occurrence::Signal(signal) => {
                    self.on_signal(signal);
                    until = None;
                    ended = true;
                    self.world.end(filter, true);
                }
                Occurrence::ControlRequest => self.handle_requests(),
                Occurrence::FilesChanged => self.take_spooled_questions(),
                Occurrence::Deadline => {
                    until = None;
                    ended = true;
                    self.abandon_filter("did not exit and was killed");
                    self.world.end(filter, true);
                }
                Occurrence::Output(..) | Occurrence::KeyInput => {}
            }
        }
    }

    fn abandon_filter(&mut self, why: &str) {
        self.display_filter.has_failed = true;
        self.recorder.warn_once(format!("the display filter {why}; using the default display"));
    }
}
