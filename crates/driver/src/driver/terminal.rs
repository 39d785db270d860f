//! Driver: an agent with a screen.

use super::{ActiveTask, Driver};
use crate::pty_agent::ScreenAction;
use crate::world::World;
use ralph_engine::machine::{Input, Now};
use ralph_events::event::{Event, Stream};
use ralph_report::LiveOutput;

impl<W: World> Driver<'_, W> {
    pub(super) fn on_screen_output(&mut self, bytes: &[u8]) {
        let now = self.take_time();
        if let ActiveTask::Agent(task) = &mut self.task
            && let Some(screen) = &mut task.screen
        {
            screen.output(bytes, now.mono_ms);
        }
        self.recorder.output(LiveOutput::Raw(Stream::Stdout, bytes));
        if !self.raw_log_failed {
            self.append_raw(bytes);
        }
        self.flush();
    }

    /// Does what is due for the screen.
    pub(super) fn update_screen(&mut self, now: Now) {
        let ActiveTask::Agent(task) = &mut self.task else { return };
        let child = task.child;
        let steps = match &mut task.screen {
            Some(screen) if screen.next_check_ms().is_some_and(|at| now.mono_ms >= at) => {
                screen.next_actions(now.mono_ms, self.world.reads_keys(child))
            }
            _ => return,
        };
        for step in steps {
            let ActiveTask::Agent(task) = &mut self.task else { return };
            match step {
                ScreenAction::Type(bytes) => {
                    // An agent that reads nothing is ended by the inactivity limit.
                    self.world.feed(child, &bytes);
                }
                ScreenAction::Changed => self.queue.push_back(Input::Output),
                ScreenAction::Dialog(dialog) => self.record_dialog(dialog),
                ScreenAction::Unreachable => self.world.end(child, false),
                ScreenAction::Done => {
                    task.complete_on_screen();
                    self.queue.extend([Input::Output, Input::ResultSeen]);
                }
            }
        }
    }

    fn record_dialog(&mut self, dialog: Option<String>) {
        let event = match dialog {
            Some(dialog) => Event::DialogOpened { dialog: dialog.into() },
            None => Event::DialogClosed,
        };
        self.recorder.record(&event);
        self.run_notify_command(&event);
        self.flush();
    }

    /// Keys typed between two agents are lost.
    pub(super) fn on_key_input(&mut self, bytes: &[u8]) {
        if let ActiveTask::Agent(task) = &mut self.task
            && task.screen.is_some()
        {
            self.world.feed(task.child, bytes);
        }
    }

    pub(super) fn resize_screen(&mut self) {
        if let ActiveTask::Agent(task) = &mut self.task {
            let child = task.child;
            if let Some(screen) = &mut task.screen {
                screen.resize(self.world.resize(child));
            }
        }
    }
}
