//! What the world tells the driver, as inputs for the machine: output, ends, requests, signals.

use std::collections::HashSet;
use std::io;

use super::{Driver, Task};
use crate::world::{Record, Request, World};
use ralph_engine::machine::Input;
use ralph_events::event::{Event, Leftover, Purpose, Stream};
use ralph_events::redact;
use ralph_process::{ChildEnd, ChildId, Signal};
use ralph_report::worker_lines::KILL_REASON;

impl<W: World> Driver<'_, W> {
    pub(super) fn output(&mut self, child: ChildId, stream: Stream, bytes: &[u8]) {
        let now = self.stamp();
        if self.notifier_said(child, bytes) {
            return;
        }
        if self.is_filter(child) {
            return self.show_filtered(bytes);
        }
        match &mut self.task {
            Task::Agent(task) if task.child == child && task.has_screen() => {
                self.shown(bytes);
            }
            Task::Agent(task) if task.child == child => {
                let raw = stream == Stream::Stdout && task.purpose() == Purpose::Work;
                {
                    let ask = &mut self.evaluator.asked(self.spec, self.world);
                    task.output(stream, bytes, &mut self.recorder, ask);
                }
                task.printed(now.mono_ms);
                self.queue.push_back(Input::Output);
                self.queue.extend(task.news());
                self.recorder.raw(stream, bytes);
                if let Some(line) = task.unfinished() {
                    self.recorder.unfinished(line);
                }
                self.feed_filter(stream, bytes);
                if raw && !self.raw_broken {
                    self.keep_raw(bytes);
                }
                self.commit();
            }
            Task::Guardrail(task) if task.child == child => {
                task.output(bytes);
                if let Err(err) = self.world.append(Record::Log, bytes) {
                    self.broke("a guardrail's log", &err);
                }
            }
            Task::Scm(run) if run.child == child => run.output(bytes),
            Task::Staged(run) if run.child == child && stream == Stream::Stdout => {
                run.reader.feed(bytes);
            }
            Task::Look(look) if look.child == child && stream == Stream::Stdout => {
                look.output(bytes);
            }
            _ => {}
        }
    }

    pub(super) fn keep_raw(&mut self, bytes: &[u8]) {
        let mut kept = self.world.append(Record::Raw, bytes);
        if kept.as_ref().is_err_and(|err| err.kind() == io::ErrorKind::NotFound) {
            self.put_back();
            kept = self.world.append(Record::Raw, bytes);
        }
        if let Err(err) = kept {
            self.raw_broken = true;
            if self.world.stuck().is_some() {
                // There is more to be said when it has ended.
                return;
            }
            let message = format!("the agent's raw output is not kept any more: {err}").into();
            self.recorder.record(&Event::Warning { message });
        }
    }

    pub(super) fn ended(&mut self, child: ChildId, ended: ChildEnd) {
        let now = self.stamp();
        if self.notifier_ended(child, ended.exit, None) {
            return;
        }
        if self.is_filter(child) {
            self.filter_ended(ended.exit);
            return self.commit();
        }
        if self.evaluator.was(child) {
            return;
        }
        self.tell_commits(true);
        self.tell_refusals();
        self.restore();
        match std::mem::replace(&mut self.task, Task::None) {
            Task::Agent(task) if task.child == child => {
                self.finish_filter();
                self.agent_ended(*task, ended, now);
            }
            Task::Guardrail(task) if task.child == child => {
                self.leftovers(ended.leftovers, false);
                let guardrail = &self.spec.guardrails[task.index];
                let limits = self.spec.guardrail_output;
                let (event, failed) = task.finish(ended.exit, guardrail, limits, now.mono_ms);
                self.recorder.record(&event);
                self.queue.push_back(Input::GuardrailEnded { failed });
            }
            Task::Scm(run) if run.child == child => {
                self.leftovers(ended.leftovers, false);
                self.scm_ended(run, ended.exit, now);
            }
            Task::Staged(run) if run.child == child => self.staged_ended(run, ended.exit),
            Task::Look(look) if look.child == child => self.look_ended(&look, ended.exit),
            other => self.task = other,
        }
    }

    pub(super) fn heed_requests(&mut self) {
        for request in self.world.requests() {
            self.queue.push_back(match request {
                Request::Pause => Input::Pause,
                Request::Resume { max_iterations } => Input::Resume { max_iterations },
                Request::End => Input::Stop { signal: KILL_REASON, now: true },
            });
        }
    }

    /// What was asked for from inside the sandbox and refused: each once in an iteration, and no more
    /// than a person would read.
    pub(super) fn tell_refusals(&mut self) {
        const MOST: usize = 50;
        self.stamp();
        let iteration = self.machine.iteration();
        if self.refused.0 != iteration {
            self.refused = (iteration, HashSet::new());
        }
        for refusal in self.world.refusals() {
            if self.refused.1.len() > MOST || !self.refused.1.insert(refusal.clone()) {
                continue;
            }
            if self.refused.1.len() > MOST {
                let message =
                    format!("more than {MOST} hosts were refused; others are not told of");
                self.recorder.record(&Event::Warning { message: message.into() });
                continue;
            }
            self.recorder.record(&Event::NetworkRefused {
                host: refusal.describe_target().into(),
                port: refusal.port,
                why: refusal.reason().into(),
                allow: refusal.allow_entry().into(),
            });
        }
        self.commit();
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        if signal == Signal::Terminate && self.spec.term_pauses && self.signals == 0 {
            self.signals = 1;
            return self.queue.push_back(Input::Pause);
        }
        let (name, at_once) = match signal {
            Signal::Interrupt => ("SIGINT", false),
            Signal::Terminate => ("SIGTERM", false),
            Signal::HangUp => ("SIGHUP", true),
            Signal::Quit => ("SIGQUIT", true),
            Signal::CpuLimit => ("SIGXCPU", true),
            Signal::Resize => {
                self.resize_screen();
                return self.recorder.resized();
            }
        };
        self.signals += 1;
        // Whoever asks a third time does not want to wait for anybody's grace.
        if self.signals > 2
            && let Some(child) = self.child()
        {
            self.world.end(child, true);
        }
        self.queue.push_back(Input::Stop { signal: name, now: at_once || self.signals > 1 });
    }

    fn child(&self) -> Option<ChildId> {
        match &self.task {
            Task::None | Task::ScmWaits(..) => None,
            Task::Agent(task) => Some(task.child),
            Task::Guardrail(task) => Some(task.child),
            Task::Scm(run) => Some(run.child),
            Task::Staged(run) => Some(run.child),
            Task::Look(look) => Some(look.child),
        }
    }

    pub(super) fn leftovers(&mut self, mut processes: Vec<Leftover>, kept: bool) {
        for process in &mut processes {
            process.command = redact::redact_command(&process.command).into_owned();
        }
        if !processes.is_empty() {
            self.recorder.record(&Event::Leftovers { processes, kept });
        }
    }
}
