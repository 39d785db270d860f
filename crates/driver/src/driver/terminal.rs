//! The driver's part in an agent that has a screen of its own.

use super::agent::{argv, not_started};
use super::{Driver, Task};
use crate::agent_process::{AgentTask, Files};
use crate::pty_agent::{Screen, Step};
use crate::screen_text;
use crate::world::World;
use ralph_agents::PromptVia;
use ralph_engine::completion::CompletionDetector;
use ralph_engine::machine::{Input, Now};
use ralph_events::event::{Event, Purpose, Stream};
use ralph_process::Launch;

impl<W: World> Driver<'_, W> {
    pub(super) fn start_on_screen(
        &mut self,
        launch: &Launch<'_>,
        prompt: &str,
    ) -> Result<(), Input> {
        let spec = self.spec;
        let launch = Launch { stdin: b"", ..launch.clone() };
        let (child, pid, size) = self.world.start_on_terminal(&launch).map_err(|err| {
            let message = not_started(spec, &err, PromptVia::Stdin, prompt.len());
            Input::AgentNotStarted { message }
        })?;
        let purpose = Purpose::Work;
        let argv = argv(launch.program, launch.args, prompt);
        self.recorder.record(&Event::AgentStarted { purpose, pid, argv });
        let started_ms = self.world.now().mono_ms;
        let (reader, detector) =
            (spec.agent.reader(false), CompletionDetector::new(&spec.completion));
        let pattern = screen_text::expression(&spec.completion);
        let screen = Screen::new(size, prompt, pattern);
        let task = AgentTask::new(child, purpose, started_ms, reader, detector, Files::default());
        let task = task.whose_word_stands(spec.done_stands);
        self.task = Task::Agent(Box::new(task.on_screen(screen)));
        Ok(())
    }

    /// The agent wrote to its screen.
    pub(super) fn shown(&mut self, bytes: &[u8]) {
        let now = self.stamp();
        if let Task::Agent(task) = &mut self.task
            && let Some(screen) = task.screen()
        {
            screen.output(bytes, now.mono_ms);
        }
        self.recorder.raw(Stream::Stdout, bytes);
        if !self.raw_broken {
            self.keep_raw(bytes);
        }
        self.commit();
    }

    /// Does what is to be done about the screen by now, or about the silence of who has none.
    pub(super) fn mind_screen(&mut self, now: Now) {
        let Task::Agent(task) = &mut self.task else { return };
        if task.has_fallen_silent_done(now.mono_ms) {
            self.queue.push_back(Input::ResultSeen);
        }
        let child = task.child;
        let steps = match task.screen() {
            Some(screen) if screen.next_ms().is_some_and(|at| now.mono_ms >= at) => {
                screen.step(now.mono_ms, self.world.reads_keys(child))
            }
            _ => return,
        };
        for step in steps {
            let Task::Agent(task) = &mut self.task else { return };
            match step {
                Step::Type(bytes) => {
                    // One that takes nothing more gets no prompt, and its silence ends it.
                    self.world.feed(child, &bytes);
                }
                Step::Changed => self.queue.push_back(Input::Output),
                Step::Dialog(dialog) => self.tell_dialog(dialog),
                Step::Unreachable => self.world.end(child, false),
                Step::Done => {
                    task.done_on_screen();
                    self.queue.extend([Input::Output, Input::ResultSeen]);
                }
            }
        }
    }

    fn tell_dialog(&mut self, dialog: Option<String>) {
        let event = match dialog {
            Some(dialog) => Event::DialogOpened { dialog: dialog.into() },
            None => Event::DialogClosed,
        };
        self.recorder.record(&event);
        self.notify(&event);
        self.commit();
    }

    /// Somebody typed something into the window. Between two agents nobody is there to read it.
    pub(super) fn typed(&mut self, bytes: &[u8]) {
        if let Task::Agent(task) = &mut self.task
            && task.has_screen()
        {
            self.world.feed(task.child, bytes);
        }
    }

    pub(super) fn resize_screen(&mut self) {
        if let Task::Agent(task) = &mut self.task {
            let child = task.child;
            if let Some(screen) = task.screen() {
                screen.resize(self.world.resize(child));
            }
        }
    }
}
