//! Turns what happens in the world into inputs of the machine.

use super::commit_guard::CommitGuardRun;
use super::{ActiveTask, Driver};
use crate::world::{RunStep, World};
use ralph_engine::machine::{Input, RefusedHost, StopSignal};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::{Event, Leftover, Purpose, Stream};
use ralph_events::question;
use ralph_events::redact;
use ralph_events::text;
use ralph_process::{ChildEnd, ChildId, Signal};
use ralph_report::worker_lines::KILL_REASON;
use ralph_report::{LiveOutput, Redraw};
use ralph_sandbox::proxy::Refusal;
use ralph_store::requests::{self, Request};

impl<W: World> Driver<'_, W> {
    pub(super) fn on_output(&mut self, child: ChildId, stream: Stream, bytes: &[u8]) {
        self.take_time();
        if self.append_notify_output(child, bytes) {
            return;
        }
        if self.is_filter(child) {
            return self.show_filter_output(bytes);
        }
        match &mut self.task {
            ActiveTask::Agent(task) if task.child == child && task.screen.is_some() => {
                self.on_screen_output(bytes);
            }
            ActiveTask::Agent(task) if task.child == child => {
                let raw = stream == Stream::Stdout && task.purpose() == Purpose::Work;
                {
                    let ask = &mut self.response_filter.query_fn(self.spec, self.world);
                    task.output(stream, bytes, &mut self.recorder, ask);
                }
                self.queue.push_back(Input::Output);
                self.queue.extend(task.drain_inputs());
                let asked = task.take_questions();
                self.recorder.output(LiveOutput::Raw(stream, bytes));
                if let Some(line) = task.partial_line() {
                    self.recorder.output(LiveOutput::PartialLine(line));
                }
                self.write_to_filter(stream, bytes);
                if raw && !self.raw_log_failed {
                    self.append_raw(bytes);
                }
                self.ask_person(asked);
                self.flush();
            }
            ActiveTask::Guardrail(own, run) if *own == child => {
                run.output(bytes);
                if let Err(err) = self.world.append_log(bytes) {
                    self.fail("a guardrail's log", &err);
                }
            }
            ActiveTask::Scm(run) if run.child == child => run.output(bytes),
            ActiveTask::CommitGuard(CommitGuardRun { status, .. })
            | ActiveTask::StallCheck(status)
                if status.child == child && stream == Stream::Stdout =>
            {
                status.output(bytes);
            }
            _ => {}
        }
    }

    pub(super) fn append_raw(&mut self, bytes: &[u8]) {
        if let Err(err) = self.world.append_raw(bytes) {
            self.raw_log_failed = true;
            if self.world.obstacle(RunStep::UseProject).is_some() {
                // Reported when the agent has ended.
                return;
            }
            self.recorder.warn(format!("cannot save the agent's raw output: {err}"));
        }
    }

    pub(super) fn on_child_ended(&mut self, child: ChildId, ended: ChildEnd) {
        let now = self.take_time();
        if self.on_notify_ended(child, ended.exit, None) {
            return;
        }
        if self.is_filter(child) {
            self.filter_ended(ended.exit);
            return self.flush();
        }
        if self.response_filter.owns_child(child) {
            return;
        }
        self.record_commits(true);
        self.report_refusals();
        self.cleanup();
        match std::mem::replace(&mut self.task, ActiveTask::None) {
            ActiveTask::Agent(task) if task.child == child => {
                self.finish_filter();
                // A sender that was killed may not have woken the run.
                self.handle_requests();
                self.take_spooled_questions();
                self.agent_ended(*task, ended, now);
            }
            ActiveTask::Guardrail(own, run) if own == child => {
                self.record_leftovers(ended.leftovers, false);
                self.finish_guardrail(run, ended.exit, now.mono_ms);
            }
            ActiveTask::Scm(run) if run.child == child => {
                self.record_leftovers(ended.leftovers, false);
                self.on_scm_ended(run, ended.exit, now);
            }
            ActiveTask::CommitGuard(run) if run.status.child == child => {
                self.on_staged_status(&run, ended.exit)
            }
            ActiveTask::StallCheck(look) if look.child == child => {
                self.finish_stall_check(&look, ended.exit)
            }
            other => self.task = other,
        }
    }

    pub(super) fn handle_requests(&mut self) {
        let inputs = self.take_requests();
        self.queue.extend(inputs);
    }

    pub(super) fn take_requests(&mut self) -> Vec<Input> {
        let requests = self.world.requests();
        self.has_taken_requests |= !requests.is_empty();
        let input = |(id, request)| match request {
            Request::Pause => Input::Pause,
            Request::Resume { max_iterations } => Input::Resume { max_iterations },
            Request::Stop { now: true } => Input::Stop { signal: KILL_REASON, now: true },
            Request::Stop { now: false } => Input::StopAfterIteration { signal: KILL_REASON },
            Request::Tell { text, now, every } => {
                Input::Tell { id, text: clean(&text), now, every }
            }
            Request::ClearGuidance => Input::ClearGuidance { id },
            Request::Answer { question, text } => Input::Answered { question, text: clean(&text) },
        };
        requests.into_iter().map(input).collect()
    }

    pub(super) fn take_spooled_questions(&mut self) {
        let texts = self.world.questions();
        self.ask_person(texts.iter().filter_map(|text| question::bounded(text)).collect());
    }

    /// Hands questions of the agent to the machine.
    pub(super) fn ask_person(&mut self, texts: Vec<String>) {
        for text in texts {
            let id = question::id(&self.spec.run_id, &text);
            let gate = self.gate.as_ref();
            let story = gate.and_then(|gate| Some(gate.next_story()?.0.clone()));
            self.queue.push_back(Input::Asked { id, text, story });
        }
    }

    pub(super) fn report_refusals(&mut self) {
        let hosts: Vec<RefusedHost> = self.world.refusals().iter().map(refused_host).collect();
        if !hosts.is_empty() {
            // At once, so that the hosts are recorded before the end of their agent.
            self.step(Input::Refusals(hosts));
        }
        self.take_time();
        self.flush();
    }

    pub(super) fn on_signal(&mut self, signal: Signal) {
        let signal = match signal {
            Signal::Interrupt => StopSignal::Interrupt,
            Signal::Terminate => StopSignal::Terminate,
            Signal::HangUp => StopSignal::HangUp,
            Signal::Quit => StopSignal::Quit,
            Signal::CpuLimit => StopSignal::CpuLimit,
            Signal::Resize => {
                self.resize_screen();
                return self.recorder.redraw(Redraw::Resized);
            }
        };
        self.queue.push_back(Input::Signal(signal));
    }

    pub(super) fn kill_job(&mut self) {
        if let Some(child) = self.running_child() {
            self.world.end(child, true);
        }
    }

    pub(super) fn running_child(&self) -> Option<ChildId> {
        match &self.task {
            ActiveTask::None | ActiveTask::ScmRetry(..) => None,
            ActiveTask::Agent(task) => Some(task.child),
            ActiveTask::Guardrail(child, _) => Some(*child),
            ActiveTask::Scm(run) => Some(run.child),
            ActiveTask::CommitGuard(run) => Some(run.status.child),
            ActiveTask::StallCheck(look) => Some(look.child),
        }
    }

    pub(super) fn record_leftovers(&mut self, mut processes: Vec<Leftover>, kept: bool) {
        for process in &mut processes {
            process.command = redact::redact_command(&process.command).into_owned();
        }
        if !processes.is_empty() {
            self.recorder.record(&Event::Leftovers { processes, kept });
        }
    }
}

/// A prompt may be an argument, which holds no control characters.
fn clean(text: &str) -> String {
    strip_control_chars(text::prefix(text, requests::MAX_TEXT)).trim().to_owned()
}

fn refused_host(refusal: &Refusal) -> RefusedHost {
    RefusedHost {
        host: refusal.describe_target(),
        port: refusal.port,
        reason: refusal.reason(),
        allow_entry: refusal.allow_entry(),
    }
}
