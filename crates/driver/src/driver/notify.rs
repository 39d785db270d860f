//! Driver: the user's notification command, and slow readers at the end.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use super::Driver;
use crate::notify_command;
use crate::world::{Part, Started, World};
use ralph_events::event::{Event, Exit, WaitReason};
use ralph_process::{ChildId, Launch, Occurrence, Signal};
use ralph_report::Redraw;
use ralph_report::summary::Summary;

pub(super) struct NotifyProcess {
    child: ChildId,
    output: Vec<u8>,
    is_for_run_end: bool,
}

const READER_TIMEOUT: Duration = Duration::from_secs(2);
const READER_TIMEOUT_INTERRUPTED: Duration = Duration::from_millis(200);

impl<W: World> Driver<'_, W> {
    pub(super) fn run_notify_command(&mut self, event: &Event<'_>) {
        let Some(command) = &self.spec.notify else { return };
        let worth_it = matches!(
            event,
            Event::RunEnded { .. }
                | Event::Paused
                | Event::ModelSilent { .. }
                | Event::DialogOpened { .. }
                | Event::QuestionAsked { .. }
                | Event::Waiting { reason: WaitReason::RateLimit, .. }
        );
        if !worth_it {
            return;
        }
        // The command may read the journal.
        self.flush();
        let message = self.notify_payload(event);
        let env = self.run_variables();
        let args = [OsString::from("-c"), OsString::from(command)];
        // A missing project is reported, too.
        let is_there = self.world.kind(&self.spec.directory).exists();
        let directory = if is_there { &self.spec.directory } else { Path::new("/") };
        let launch = Launch::plain(directory, OsStr::new("sh"), &args, &env);
        let of_end = matches!(event, Event::RunEnded { .. });
        match self.world.start(Part::Notify, &Launch { stdin: &message, ..launch }) {
            Ok(Started { child, .. }) => self.notifiers.push(NotifyProcess {
                child,
                output: Vec::new(),
                is_for_run_end: of_end,
            }),
            Err(err) => self.warn_notify_failed(&err.to_string(), of_end),
        }
    }

    /// The journal event, with the run's report.
    fn notify_payload(&mut self, event: &Event<'_>) -> Vec<u8> {
        let is_over = matches!(event, Event::RunEnded { .. });
        let now_ms = (!is_over).then_some(self.recorder.at.time_ms);
        let mut facts = Summary::of(&self.world.run_state(), now_ms);
        // That is what is about to change.
        facts.end.notify_pending = false;
        self.world.look_up(&mut facts);
        notify_command::payload(self.recorder.at, event, &facts, false)
    }

    fn warn_notify_failed(&mut self, how: &str, of_end: bool) {
        self.recorder.warn(format!("notify.command failed: {how}"));
        if of_end {
            self.recorder.record(&Event::Notified { ok: false });
        }
    }

    /// `given_up`: why ralph ended the command.
    pub(super) fn on_notify_ended(
        &mut self,
        child: ChildId,
        exit: Option<Exit>,
        given_up: Option<&str>,
    ) -> bool {
        let Some(index) = self.notifiers.iter().position(|other| other.child == child) else {
            return false;
        };
        let NotifyProcess { output: said, is_for_run_end: of_end, .. } =
            self.notifiers.swap_remove(index);
        match (given_up, exit) {
            (Some(why), _) => self.warn_notify_failed(why, of_end),
            (None, Some(exit)) if !exit.success() => {
                self.warn_notify_failed(&notify_command::failure_message(exit, &said), of_end);
            }
            (None, _) if of_end => self.recorder.record(&Event::Notified { ok: true }),
            (None, _) => {}
        }
        true
    }

    pub(super) fn append_notify_output(&mut self, child: ChildId, bytes: &[u8]) -> bool {
        let own = self.notifiers.iter_mut().find(|other| other.child == child);
        let Some(NotifyProcess { output: said, .. }) = own else { return false };
        said.extend_from_slice(bytes);
        said.drain(..said.len().saturating_sub(notify_command::MAX_OUTPUT_BYTES));
        true
    }

    /// Waits briefly for the last notification; not after a signal.
    pub(super) fn wait_for_notify_commands(&mut self, buf: &mut Vec<u8>) {
        let patience =
            u64::try_from(notify_command::NOTIFY_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let mut until = Some(self.world.now().mono_ms.saturating_add(patience));
        let mut given_up = None;
        while !self.notifiers.is_empty() {
            let occurrence = self.world.wait(until, buf);
            self.take_time();
            match occurrence {
                Occurrence::Ended(child, ended) => {
                    self.on_notify_ended(child, ended.exit, given_up);
                }
                Occurrence::Signal(Signal::Resize) => self.recorder.redraw(Redraw::Resized),
                Occurrence::Deadline | Occurrence::Signal(_) => {
                    given_up.get_or_insert(if occurrence == Occurrence::Deadline {
                        notify_command::TIMED_OUT_MESSAGE
                    } else {
                        "killed, because ralph received a signal"
                    });
                    until = None;
                    for notifier in &self.notifiers {
                        self.world.end(notifier.child, true);
                    }
                }
                Occurrence::Output(child, _) => {
                    self.append_notify_output(child, buf);
                }
                // Too late for a question, but taken: otherwise it would wake us again.
                Occurrence::FilesChanged => drop(self.world.questions()),
                Occurrence::ProxyRefused | Occurrence::ControlRequest | Occurrence::KeyInput => {}
            }
        }
        self.flush();
    }

    /// Waits briefly for slow readers; less after a signal, and not at all after a second one.
    pub(super) fn wait_for_readers(&mut self, buf: &mut Vec<u8>) {
        let patience =
            if self.machine.was_signalled() { READER_TIMEOUT_INTERRUPTED } else { READER_TIMEOUT };
        while self.recorder.has_pending_output(patience) {
            let now = self.world.now().mono_ms;
            if let Occurrence::Signal(signal) = self.world.wait(Some(now), buf)
                && signal != Signal::Resize
            {
                self.recorder.has_pending_output(Duration::ZERO);
            }
        }
    }
}
