//! The machine decides, the driver does.
//!
//! One loop, one wait: everything that can happen (output, the end of a process, a signal, a deadline)
//! comes out of [`World::wait`] and goes into the machine as an [`Input`]. What the machine answers is
//! carried out here, and nowhere else.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::agent::{PromptVia, Request};
use crate::core::completion::{Detector, Rule};
use crate::core::event::{EndCause, Event, Exit, Outcome, Purpose, Stream, WaitReason};
use crate::core::machine::{Action, Input, LoopMachine, Now, ScmLook};
use crate::core::prompt::{self, GuardrailFailure};
use crate::core::text;
use crate::process::{ChildId, Ended, Launch, Occurrence, Signal};
use crate::report::Reporter;
use crate::state::journal::Lines;

use super::agent::{AgentTask, Files};
use super::guardrail::{self, GuardrailTask};
use super::record::Recorder;
use super::scm::ScmRun;
use super::spec::{PromptSource, RunSpec};
use super::world::{Record, World};

/// How long a run that has ended waits for the command that tells of it.
const NOTIFY_MS: u64 = 10_000;

/// How long a run that has ended waits for somebody who takes nothing of what it has to say.
const READER: Duration = Duration::from_secs(2);
/// The same after a signal.
const READER_INTERRUPTED: Duration = Duration::from_millis(200);

/// How a run came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish {
    pub outcome: Outcome,
    pub exit_code: u8,
}

/// Carries out a run from its beginning to its end. `preface` is recorded right after its start.
pub fn run<W: World>(
    spec: &RunSpec,
    world: &mut W,
    reporters: Vec<Box<dyn Reporter>>,
    preface: &[Event<'static>],
) -> Finish {
    let machine = LoopMachine::new(spec.all_rules());
    let commands = spec.guardrails.iter().map(|guardrail| guardrail.command.as_str());
    let mut driver = Driver {
        spec,
        world,
        machine,
        recorder: Recorder::new(reporters),
        task: Task::None,
        log_slugs: prompt::log_slugs(commands),
        queue: VecDeque::new(),
        commit_message: None,
        signals: 0,
        broken: false,
        raw_broken: false,
        prompt_warned: false,
        finish: None,
        notifiers: Vec::new(),
    };
    driver.begin(preface);
    driver.drive()
}

/// What is running. One thing at a time: never two agents, never a guardrail beside one.
enum Task {
    None,
    Agent(Box<AgentTask>),
    Guardrail(GuardrailTask),
    Scm(ScmRun),
}

struct Driver<'s, W> {
    spec: &'s RunSpec,
    world: &'s mut W,
    machine: LoopMachine,
    recorder: Recorder,
    task: Task,
    /// What tells the logs of the guardrails apart.
    log_slugs: Vec<String>,
    queue: VecDeque<Input>,
    commit_message: Option<String>,
    signals: u32,
    /// The journal cannot be written any more, and the machine knows.
    broken: bool,
    raw_broken: bool,
    prompt_warned: bool,
    finish: Option<Finish>,
    /// Commands that tell the user of something, beside the loop.
    notifiers: Vec<ChildId>,
}

impl<W: World> Driver<'_, W> {
    fn begin(&mut self, preface: &[Event<'static>]) {
        let spec = self.spec;
        let prompt = match &spec.prompt {
            PromptSource::Text(prompt) => text::truncate(prompt, 200, "…"),
            PromptSource::File(path) => {
                path.strip_prefix(&spec.directory).unwrap_or(path).to_string_lossy()
            }
        };
        self.stamp();
        self.recorder.record(&Event::RunStarted {
            run: spec.run_id.as_str().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: spec.command.into(),
            directory: spec.directory.to_string_lossy(),
            pid: std::process::id(),
            agent: spec.agent.shown_name().into(),
            prompt,
            completion: spec.completion.describe().into(),
            max_iterations: spec.rules.max_iterations,
        });
        for event in preface {
            self.recorder.record(event);
        }
        self.queue.push_back(Input::Start);
    }

    fn drive(&mut self) -> Finish {
        let mut buf = Vec::new();
        loop {
            self.take_inputs();
            if let Some(finish) = self.finish {
                self.await_notifiers(&mut buf);
                self.world.sync();
                self.recorder.finish();
                self.await_readers(&mut buf);
                return finish;
            }
            let until = self.next_wake();
            match self.world.wait(until, &mut buf) {
                Occurrence::Output(child, stream) => self.output(child, stream, &buf),
                Occurrence::Ended(child, ended) => self.ended(child, ended),
                Occurrence::Signal(signal) => self.signal(signal),
                Occurrence::Deadline => {}
            }
            // An agent that prints without a pause must not keep time from passing.
            let now = self.stamp();
            if self.machine.deadline().is_some_and(|at| now.mono_ms >= at) {
                self.queue.push_back(Input::Deadline);
            }
            if self.recorder.next_tick().is_some_and(|at| until_tick(at, now) == 0) {
                self.recorder.tick(now.wall_ms);
            }
        }
    }

    fn take_inputs(&mut self) {
        while let Some(input) = self.queue.pop_front() {
            let now = self.stamp();
            for action in self.machine.step(now, input) {
                self.perform(action);
            }
            if self.queue.is_empty() {
                self.commit();
            }
        }
    }

    /// Takes the time, for the machine and for what is recorded from now on.
    fn stamp(&mut self) -> Now {
        let now = self.world.now();
        self.recorder.at.time_ms = now.wall_ms;
        now
    }

    fn next_wake(&self) -> Option<u64> {
        let now = self.world.now();
        let tick =
            self.recorder.next_tick().map(|at| now.mono_ms.saturating_add(until_tick(at, now)));
        self.machine.deadline().into_iter().chain(tick).min()
    }

    /// Journal first, then everybody else.
    fn commit(&mut self) {
        if let Err(err) = self.recorder.commit(self.world) {
            self.broke("the journal", &err);
        }
    }

    /// What agents and guardrails do to the work tree must not lose the record of it.
    fn restore(&mut self) {
        match self.world.restore() {
            Ok(restored) => {
                self.raw_broken &= restored.is_empty();
                for message in restored {
                    self.recorder.record(&Event::Warning { message: message.into() });
                }
            }
            Err(err) => self.broke("the journal", &err),
        }
    }

    fn broke(&mut self, what: &str, err: &io::Error) {
        if !std::mem::replace(&mut self.broken, true) {
            let message = format!(
                "cannot write {what} in {}: {err}; free space or permissions are needed to go on",
                self.spec.ralph_dir.display()
            );
            self.queue.push_back(Input::Broken { message });
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Emit(event) => {
                if let Event::IterationStarted { .. } = event {
                    // One step of the machine begins one iteration at most, so that it is this one.
                    self.recorder.at.iteration = self.machine.iteration();
                    self.recorder.at.attempt = 0;
                }
                self.recorder.record(&event);
                self.notify(&event);
            }
            Action::Save => {
                self.commit();
                self.world.sync();
            }
            Action::StartAgent(purpose) => self.start_agent(purpose),
            Action::EndAgent(cause) => {
                if let Task::Agent(task) = &mut self.task {
                    task.ended_by = Some(cause);
                    self.world.end(task.child, cause == EndCause::Broken);
                }
            }
            Action::RunGuardrail(index) => self.run_guardrail(index),
            Action::EndGuardrail { timed_out } => {
                if let Task::Guardrail(task) = &mut self.task {
                    task.timed_out = timed_out;
                    self.world.end(task.child, false);
                }
            }
            Action::LookAtScm => self.look_at_scm(),
            Action::RunScmTask(index) => self.run_scm_task(index),
            Action::SkipScmTask(index, why) => {
                let task = self.scm_task_name(index);
                let detail = why.into();
                self.recorder.record(&Event::ScmEnded { task, ok: true, detail, duration_ms: 0 });
            }
            Action::EndScmTask => {
                if let Task::Scm(run) = &self.task {
                    self.world.end(run.child, false);
                }
            }
            // No command has a gate yet, and one that cannot be asked must not let anything pass.
            Action::CheckGates => {
                self.queue
                    .push_back(Input::Broken { message: "there is no gate to ask".to_owned() });
            }
            Action::Finish { outcome, exit_code } => self.finish(outcome, exit_code),
        }
    }

    fn finish(&mut self, outcome: Outcome, exit_code: u8) {
        self.commit();
        let mut finish = Finish { outcome, exit_code };
        // The machine has had its last word, and it is not in the journal: whoever looks there in the
        // morning must not be the only one who does not know.
        if self.broken && outcome != Outcome::Broken {
            finish = Finish { outcome: Outcome::Broken, exit_code: 2 };
            let message = format!(
                "the end of this run could not be written to its journal in {}; \
                 free space or permissions are needed",
                self.spec.ralph_dir.display()
            );
            self.recorder.record(&Event::Warning { message: message.into() });
            self.commit();
        }
        self.finish = Some(finish);
    }

    // What happened.

    fn output(&mut self, child: ChildId, stream: Stream, bytes: &[u8]) {
        self.stamp();
        match &mut self.task {
            Task::Agent(task) if task.child == child => {
                let raw = stream == Stream::Stdout && task.purpose() == Purpose::Work;
                task.output(stream, bytes, &mut self.recorder);
                self.queue.push_back(Input::Output);
                self.queue.extend(task.news());
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
            _ => {}
        }
    }

    fn keep_raw(&mut self, bytes: &[u8]) {
        let mut kept = self.world.append(Record::Raw, bytes);
        if kept.as_ref().is_err_and(|err| err.kind() == io::ErrorKind::NotFound) {
            self.restore();
            kept = self.world.append(Record::Raw, bytes);
        }
        if let Err(err) = kept {
            self.raw_broken = true;
            let message = format!("the agent's raw output is not kept any more: {err}").into();
            self.recorder.record(&Event::Warning { message });
        }
    }

    fn ended(&mut self, child: ChildId, ended: Ended) {
        let now = self.stamp();
        if self.notifier_ended(child, ended.exit) {
            return;
        }
        self.restore();
        match std::mem::replace(&mut self.task, Task::None) {
            Task::Agent(task) if task.child == child => self.agent_ended(*task, ended, now),
            Task::Guardrail(task) if task.child == child => {
                self.leftovers(ended.leftovers, false);
                let guardrail = &self.spec.guardrails[task.index];
                let max_chars = self.spec.output_truncate_chars;
                let (event, failed) = task.finish(ended.exit, guardrail, max_chars, now.mono_ms);
                self.recorder.record(&event);
                self.queue.push_back(Input::GuardrailEnded { failed });
            }
            Task::Scm(run) if run.child == child => {
                self.leftovers(ended.leftovers, false);
                self.scm_ended(run, ended.exit, now);
            }
            other => self.task = other,
        }
    }

    fn signal(&mut self, signal: Signal) {
        let (name, at_once) = match signal {
            Signal::Interrupt => ("SIGINT", false),
            Signal::Terminate => ("SIGTERM", false),
            Signal::HangUp => ("SIGHUP", true),
            Signal::Quit => ("SIGQUIT", true),
            Signal::Resize => return self.recorder.resized(),
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
            Task::None => None,
            Task::Agent(task) => Some(task.child),
            Task::Guardrail(task) => Some(task.child),
            Task::Scm(run) => Some(run.child),
        }
    }

    fn leftovers(&mut self, processes: Vec<crate::core::event::Leftover>, kept: bool) {
        if !processes.is_empty() {
            self.recorder.record(&Event::Leftovers { processes, kept });
        }
    }

    // The agent.

    fn start_agent(&mut self, purpose: Purpose) {
        let input = match self.try_start_agent(purpose) {
            Ok(()) => Input::AgentStarted,
            Err(input) => input,
        };
        self.queue.push_back(input);
    }

    fn try_start_agent(&mut self, purpose: Purpose) -> Result<(), Input> {
        let spec = self.spec;
        let agent = &spec.agent;
        let prompt = match purpose {
            Purpose::Work => {
                self.recorder.at.attempt = self.machine.attempt();
                self.compose_prompt().map_err(|message| Input::PromptFailed { message })?
            }
            Purpose::CommitMessage => prompt::COMMIT_MESSAGE_PROMPT.to_owned(),
        };
        let iteration = self.machine.iteration();
        let prompt_file = spec.ralph_dir.join(format!("prompt_{iteration:03}.txt"));
        let side_file = spec.ralph_dir.join(format!("side_{iteration:03}.txt"));
        let invocation = agent.adapter.invocation(&Request {
            program: &agent.program,
            flags: &agent.flags,
            model: agent.model.as_deref(),
            purpose,
            stream: agent.stream,
            autonomous: agent.autonomous,
            sandboxed: false,
            prompt_via: agent.prompt_via,
            prompt: &prompt,
            prompt_file: &prompt_file,
            side_file: &side_file,
        });
        if invocation.prompt_via == PromptVia::File {
            self.world.write(&prompt_file, prompt.as_bytes()).map_err(|err| {
                Input::PromptFailed {
                    message: format!("cannot write {}: {err}", prompt_file.display()),
                }
            })?;
        }
        let files = Files {
            prompt: (invocation.prompt_via == PromptVia::File).then(|| prompt_file.clone()),
            side: invocation.side_file.clone(),
        };
        if let Some(path) = &files.side {
            // One that a run before this left behind tells nothing of this attempt.
            let _ = self.world.remove(path);
        }
        let mut env = agent.env.clone();
        env.extend(self.run_variables());
        env.extend(
            invocation.env.iter().map(|(name, value)| (OsString::from(*name), Some(value.into()))),
        );
        let stdin = if invocation.prompt_via == PromptVia::Stdin { prompt.as_bytes() } else { b"" };
        let launch = Launch {
            program: &invocation.program,
            args: &invocation.args,
            directory: &spec.directory,
            env: &env,
            stdin,
            merge_stderr: false,
            keep_background: agent.keep_background,
            spare: false,
        };
        let (child, pid) = self.world.start(&launch).map_err(|err| Input::AgentNotStarted {
            message: not_started(spec, &err, invocation.prompt_via, prompt.len()),
        })?;
        let argv = argv(&invocation.program, &invocation.args, &prompt);
        self.recorder.record(&Event::AgentStarted { purpose, pid, argv });
        let mut detector = match purpose {
            Purpose::Work => Detector::new(&spec.completion),
            // It is only listened to; a message completes nothing.
            Purpose::CommitMessage => Detector::new(&Rule::Response(String::new())),
        };
        if !invocation.structured {
            detector = detector.ignoring_echo_of(&prompt);
        }
        let reader = agent.adapter.reader(invocation.structured);
        let started_ms = self.world.now().mono_ms;
        self.task = Task::Agent(Box::new(AgentTask::new(
            child, purpose, started_ms, reader, detector, files,
        )));
        Ok(())
    }

    fn compose_prompt(&mut self) -> Result<String, String> {
        let base = match &self.spec.prompt {
            PromptSource::Text(prompt) => Cow::Borrowed(prompt.as_str()),
            PromptSource::File(path) => Cow::Owned(self.read_prompt(path)?),
        };
        let (iteration, max) = (self.machine.iteration(), self.machine.max_iterations());
        let feedback = self.machine.feedback();
        let line = self.spec.iteration_line.then_some((iteration, max));
        let prompt = prompt::compose(&base, feedback, line);
        let carries_feedback = !feedback.is_empty();
        self.recorder.record(&Event::Prompt {
            bytes: prompt.len() as u64,
            preview: text::truncate(&prompt, 200, "…"),
            feedback: carries_feedback,
        });
        Ok(prompt)
    }

    fn read_prompt(&mut self, path: &Path) -> Result<String, String> {
        let bytes = self.world.read(path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => format!("prompt file not found: {}", path.display()),
            _ => format!("cannot read prompt file: {}: {err}", path.display()),
        })?;
        // To ask for nothing costs as much as to ask for something. A pipe is like this the second
        // time.
        if bytes.trim_ascii().is_empty() {
            return Err(format!("the prompt file is empty: {}", path.display()));
        }
        String::from_utf8(bytes).or_else(|err| {
            if !std::mem::replace(&mut self.prompt_warned, true) {
                let message =
                    format!("{} is not UTF-8; what is not is sent as \u{fffd}", path.display());
                self.recorder.record(&Event::Warning { message: message.into() });
            }
            Ok(String::from_utf8_lossy(err.as_bytes()).into_owned())
        })
    }

    fn agent_ended(&mut self, mut task: AgentTask, ended: Ended, now: Now) {
        let files = std::mem::take(&mut task.files);
        let side_file = files.side.and_then(|path| {
            let content = self.world.read(&path).ok();
            let _ = self.world.remove(&path);
            content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        });
        if let Some(path) = files.prompt {
            let _ = self.world.remove(&path);
        }
        let duration_ms = now.mono_ms.saturating_sub(task.started_ms);
        let finished =
            task.finish(ended.exit, side_file.as_deref(), duration_ms, &mut self.recorder);
        self.leftovers(ended.leftovers, self.spec.agent.keep_background);
        self.recorder.record(&finished.ended);
        self.commit_message = finished.commit_message;
        self.queue.push_back(Input::AgentEnded(Box::new(finished.report)));
    }

    // Guardrails.

    fn run_guardrail(&mut self, index: usize) {
        let spec = &self.spec.guardrails[index];
        let name = prompt::log_name(self.machine.iteration(), &self.log_slugs[index]);
        let log = format!(".ralph/{name}");
        let command = spec.command.as_str().into();
        self.recorder.record(&Event::GuardrailStarted { index: index as u32, command });
        self.commit();
        if let Err(err) = self.world.open_log(&self.spec.ralph_dir.join(name)) {
            self.broke(&log, &err);
        }
        let env = self.run_variables();
        let args = [OsString::from("-c"), OsString::from(&spec.command)];
        let launch = plain_launch(&self.spec.directory, OsStr::new("sh"), &args, &env);
        let max_chars = self.spec.output_truncate_chars;
        match self.world.start(&launch) {
            Ok((child, _)) => {
                let started = self.world.now().mono_ms;
                let task = GuardrailTask::new(child, index, started, log, max_chars);
                self.task = Task::Guardrail(task);
            }
            Err(err) => {
                let failure = GuardrailFailure::Exit(None);
                let output = format!("sh: {err}");
                let feedback = guardrail::feedback(spec, failure, &log, &output, max_chars);
                self.recorder.record(&Event::GuardrailEnded {
                    index: index as u32,
                    command: spec.command.as_str().into(),
                    exit: None,
                    timed_out: false,
                    passed: false,
                    fail_action: spec.fail_action,
                    log: log.into(),
                    duration_ms: 0,
                });
                self.queue.push_back(Input::GuardrailEnded { failed: Some(feedback) });
            }
        }
    }

    // SCM.

    fn look_at_scm(&mut self) {
        self.commit_message = None;
        let Some(look) = self.spec.scm.as_ref().and_then(super::spec::ScmSpec::look) else {
            return self.queue.push_back(Input::ScmLooked(ScmLook::Dirty));
        };
        let started = self.world.now().mono_ms;
        self.look_on(look.into_iter(), started);
    }

    fn look_on(&mut self, mut commands: std::vec::IntoIter<Vec<String>>, started_ms: u64) {
        let Some(command) = commands.next() else { return };
        match self.start_scm(&command) {
            Ok(child) => self.task = Task::Scm(ScmRun::new(child, None, commands, started_ms)),
            Err(err) => self.look_failed(&err.to_string()),
        }
    }

    fn look_failed(&mut self, why: &str) {
        let message = format!(
            "the changes could not be staged, so nothing was committed: {why}; \
             this is tried again after the next passing iteration"
        );
        self.recorder.record(&Event::Warning { message: message.into() });
        self.queue.push_back(Input::ScmLooked(ScmLook::Failed));
    }

    fn run_scm_task(&mut self, index: usize) {
        let Some(scm) = &self.spec.scm else { return };
        let own = format!("ralph: iteration {}", self.machine.iteration());
        let message = self.commit_message.as_deref().unwrap_or(&own);
        let mut rest = scm.commands(index, message).into_iter();
        let Some(first) = rest.next() else {
            return self.queue.push_back(Input::ScmTaskEnded { ok: true });
        };
        let started = self.world.now().mono_ms;
        self.next_scm_command(index, &first, rest, started);
    }

    fn next_scm_command(
        &mut self,
        index: usize,
        command: &[String],
        rest: std::vec::IntoIter<Vec<String>>,
        started_ms: u64,
    ) {
        let task = self.scm_task_name(index);
        let program = self.spec.scm.as_ref().map(|scm| scm.program.clone()).unwrap_or_default();
        let argv = std::iter::once(program).chain(command.iter().cloned()).collect();
        self.recorder.record(&Event::ScmStarted { task: task.clone(), argv });
        self.commit();
        match self.start_scm(command) {
            Ok(child) => {
                self.task = Task::Scm(ScmRun::new(child, Some(index), rest, started_ms));
            }
            Err(err) => {
                let detail = err.to_string().into();
                self.recorder.record(&Event::ScmEnded { task, ok: false, detail, duration_ms: 0 });
                self.queue.push_back(Input::ScmTaskEnded { ok: false });
            }
        }
    }

    fn start_scm(&mut self, command: &[String]) -> io::Result<ChildId> {
        let Some(scm) = &self.spec.scm else { return Err(io::ErrorKind::NotFound.into()) };
        let mut env = self.run_variables();
        // Nobody is there to answer a question.
        env.push(("GIT_TERMINAL_PROMPT".into(), Some("0".into())));
        let args: Vec<OsString> = command.iter().map(OsString::from).collect();
        let launch = plain_launch(&self.spec.directory, OsStr::new(&scm.program), &args, &env);
        let launch = Launch { spare: true, ..launch };
        self.world.start(&launch).map(|(child, _)| child)
    }

    fn scm_ended(&mut self, mut run: ScmRun, exit: Option<Exit>, now: Now) {
        let ok = exit.is_some_and(Exit::success);
        let text = run.text();
        let Some(index) = run.task else {
            // The first command stages and must succeed; the last one tells by its exit code.
            return match (run.rest.len(), exit) {
                (0, Some(Exit::Code(0))) => self.queue.push_back(Input::ScmLooked(ScmLook::Clean)),
                (0, Some(Exit::Code(1))) => self.queue.push_back(Input::ScmLooked(ScmLook::Dirty)),
                (1.., Some(Exit::Code(0))) => self.look_on(run.rest, run.started_ms),
                _ => self.look_failed(&text),
            };
        };
        if ok && let Some(next) = run.rest.next() {
            return self.next_scm_command(index, &next, run.rest, run.started_ms);
        }
        let detail = match exit {
            Some(exit) if !ok && text.is_empty() => exit.to_string(),
            _ => text,
        };
        let task = self.scm_task_name(index);
        let duration_ms = now.mono_ms.saturating_sub(run.started_ms);
        self.recorder.record(&Event::ScmEnded { task, ok, detail: detail.into(), duration_ms });
        self.queue.push_back(Input::ScmTaskEnded { ok });
    }

    fn scm_task_name(&self, index: usize) -> Cow<'static, str> {
        let words = self.spec.scm.as_ref().and_then(|scm| scm.tasks.get(index));
        words.map(|words| words.join(" ")).unwrap_or_default().into()
    }

    // Telling the user.

    /// Runs the user's own command for what should not wait until somebody looks.
    fn notify(&mut self, event: &Event<'_>) {
        let Some(command) = &self.spec.notify else { return };
        let worth_it = matches!(
            event,
            Event::RunEnded { .. } | Event::Waiting { reason: WaitReason::RateLimit, .. }
        );
        if !worth_it {
            return;
        }
        // Whoever is told may look the journal up at once.
        self.commit();
        let mut lines = Lines::default();
        let line = lines.push(self.recorder.at, event);
        let env = self.run_variables();
        let args = [OsString::from("-c"), OsString::from(command)];
        let launch = plain_launch(&self.spec.directory, OsStr::new("sh"), &args, &env);
        match self.world.start(&Launch { stdin: line, ..launch }) {
            Ok((child, _)) => self.notifiers.push(child),
            Err(err) => self.notifier_failed(&err.to_string()),
        }
    }

    fn notifier_failed(&mut self, how: &str) {
        let message = format!("notify.command failed: {how}").into();
        self.recorder.record(&Event::Warning { message });
    }

    fn notifier_ended(&mut self, child: ChildId, exit: Option<Exit>) -> bool {
        let Some(index) = self.notifiers.iter().position(|other| *other == child) else {
            return false;
        };
        self.notifiers.swap_remove(index);
        match exit {
            Some(exit) if !exit.success() => self.notifier_failed(&exit.to_string()),
            _ => {}
        }
        true
    }

    /// Gives the last message a moment to get out. Nothing is left behind for it, and a signal means
    /// that nobody wants to wait.
    fn await_notifiers(&mut self, buf: &mut Vec<u8>) {
        let mut until = Some(self.world.now().mono_ms.saturating_add(NOTIFY_MS));
        while !self.notifiers.is_empty() {
            match self.world.wait(until, buf) {
                Occurrence::Ended(child, ended) => {
                    self.notifier_ended(child, ended.exit);
                }
                Occurrence::Signal(Signal::Resize) => self.recorder.resized(),
                Occurrence::Deadline | Occurrence::Signal(_) => {
                    until = None;
                    for child in self.notifiers.clone() {
                        self.world.end(child, true);
                    }
                }
                Occurrence::Output(..) => {}
            }
        }
        self.commit();
    }

    /// Gives those who are slow to read a moment for the last words. After a signal nobody wants to
    /// wait for them for long, and after one more not at all.
    fn await_readers(&mut self, buf: &mut Vec<u8>) {
        let patience = if self.signals > 0 { READER_INTERRUPTED } else { READER };
        while self.recorder.lags(patience) {
            let now = self.world.now().mono_ms;
            if let Occurrence::Signal(signal) = self.world.wait(Some(now), buf)
                && signal != Signal::Resize
            {
                self.recorder.lags(Duration::ZERO);
            }
        }
    }

    // Both.

    /// What agents, guardrails and SCM tasks are told of the run they belong to.
    fn run_variables(&self) -> Vec<(OsString, Option<OsString>)> {
        [
            ("RALPH_RUN_ID", self.spec.run_id.clone()),
            ("RALPH_ITERATION", self.machine.iteration().to_string()),
            ("RALPH_MAX_ITERATIONS", self.machine.max_iterations().to_string()),
        ]
        .map(|(name, value)| (name.into(), Some(value.into())))
        .to_vec()
    }
}

/// Milliseconds until somebody is to be redrawn. Nobody waits longer than a second for that: a moment
/// that is further away was told by a clock that has been set back since.
fn until_tick(at_ms: i64, now: Now) -> u64 {
    match at_ms.saturating_sub(now.wall_ms) {
        left @ 0..=1_000 => left.unsigned_abs(),
        _ => 0,
    }
}

/// How guardrails and SCM tasks are started: nothing to read, one stream to print to.
fn plain_launch<'a>(
    directory: &'a Path,
    program: &'a OsStr,
    args: &'a [OsString],
    env: &'a [(OsString, Option<OsString>)],
) -> Launch<'a> {
    Launch {
        program,
        args,
        directory,
        env,
        stdin: b"",
        merge_stderr: true,
        keep_background: false,
        spare: false,
    }
}

/// The command line as it is recorded: a prompt in it is named, not repeated.
fn argv(program: &OsStr, args: &[OsString], prompt: &str) -> Vec<String> {
    let mut argv: Vec<String> = std::iter::once(program)
        .chain(args.iter().map(OsString::as_os_str))
        .map(|arg| {
            if !prompt.is_empty() && arg == OsStr::new(prompt) {
                "<prompt>".to_owned()
            } else {
                arg.to_string_lossy().into_owned()
            }
        })
        .collect();
    crate::config::secret::redact_args(&mut argv);
    argv
}

fn not_started(spec: &RunSpec, err: &io::Error, via: PromptVia, prompt_len: usize) -> String {
    let program = &spec.agent.program;
    let hint = match err.kind() {
        io::ErrorKind::NotFound if !spec.directory.exists() => String::new(),
        io::ErrorKind::NotFound
            if program.contains('/') && spec.directory.join(program).exists() =>
        {
            "; the file is there, so the interpreter that its first line names is missing"
                .to_owned()
        }
        io::ErrorKind::NotFound => "; is it installed and on the PATH?".to_owned(),
        io::ErrorKind::ArgumentListTooLong if via == PromptVia::Argument => format!(
            "; a prompt of {prompt_len} bytes does not fit into an argument: \
             set \"agent\": {{\"promptVia\": \"stdin\"}} or \"file\""
        ),
        _ => String::new(),
    };
    format!("the agent: {err}{hint}")
}
