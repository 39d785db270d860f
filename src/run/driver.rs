//! The machine decides, the driver does.
//!
//! One loop, one wait: everything that can happen (output, the end of a process, a signal, a deadline)
//! comes out of [`World::wait`] and goes into the machine as an [`Input`]. What the machine answers is
//! carried out here, and nowhere else.

mod display;
mod notify;
mod prompt;
mod scm;
mod tasks;

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::agent::PromptVia;
use crate::core::completion::{Detector, Rule};
use crate::core::event::{EndCause, Event, Outcome, Purpose, Stream};
use crate::core::exit;
use crate::core::machine::{Action, Input, LoopMachine, Now};
use crate::core::prompt::{self as prompts, GuardrailFailure};
use crate::core::rules::ScmTask;
use crate::core::text;
use crate::core::worker::KILLED;
use crate::hook::STOP_CHECK;
use crate::process::{ChildId, Ended, Launch, Occurrence, Signal};
use crate::report::Reporter;
use crate::sandbox::proxy::Refusal;

use super::agent::{AgentTask, Files};
use super::guardrail::{self, GuardrailTask};
use super::record::Recorder;
use super::scm::ScmRun;
use super::spec::{Errand, PromptSource, RunSpec};
use super::tasks::TaskGate;
use super::world::{Part, Record, Request, World};
use display::Filter;

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
    let machine = match &spec.progress {
        None => LoopMachine::new(spec.all_rules()),
        Some(progress) => LoopMachine::resumed(spec.all_rules(), progress.clone()),
    };
    let machine = match &spec.tasks {
        Some(tasks) if tasks.check_first => machine.checking_first(),
        _ => machine,
    };
    let commands = spec.guardrails.iter().map(|guardrail| guardrail.command.as_str());
    let mut driver = Driver {
        spec,
        world,
        machine,
        recorder: Recorder::new(reporters),
        task: Task::None,
        log_slugs: prompts::log_slugs(commands),
        queue: VecDeque::new(),
        commit_message: None,
        signals: 0,
        broken: false,
        raw_broken: false,
        warned_of: HashSet::new(),
        finish: None,
        notifiers: Vec::new(),
        refused: (0, HashSet::new()),
        gate: spec.tasks.as_ref().map(|tasks| TaskGate::new(tasks, &spec.run_id)),
        filter: Filter::default(),
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
    /// What is said of prompts is said once.
    warned_of: HashSet<String>,
    finish: Option<Finish>,
    /// Commands that tell the user of something, beside the loop.
    notifiers: Vec<ChildId>,
    /// What was refused in which iteration.
    refused: (u32, HashSet<Refusal>),
    gate: Option<TaskGate>,
    filter: Filter,
}

impl<W: World> Driver<'_, W> {
    fn begin(&mut self, preface: &[Event<'static>]) {
        let spec = self.spec;
        let prompt = match &spec.prompt {
            PromptSource::Text(prompt) => text::truncate(prompt, 200, "…"),
            PromptSource::File(path) | PromptSource::FileOr { path, .. } => {
                path.strip_prefix(&spec.directory).unwrap_or(path).to_string_lossy()
            }
            PromptSource::BuiltIn { name, .. } => (*name).into(),
            PromptSource::OfTasks(_) => PromptSource::OF_TASKS.into(),
        };
        let completion = match &spec.tasks {
            Some(_) => spec.describe_completion(),
            None => spec.completion.describe(),
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
            completion: completion.into(),
            max_iterations: spec.rules.max_iterations,
        });
        for event in preface {
            self.recorder.record(event);
        }
        self.queue.push_back(Input::Start);
        // What was asked for before anybody listened.
        self.heed_requests();
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
                Occurrence::Woken => self.heed_requests(),
                Occurrence::Called => self.tell_refusals(),
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
        if let Some(message) = self.recorder.trouble() {
            self.recorder.record(&Event::Warning { message: message.into() });
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
            Action::Brief => self.brief(),
            Action::CheckGates { claimed, checks_passed } => {
                self.check_gates(claimed, checks_passed);
            }
            Action::Finish { outcome, exit_code } => self.finish(outcome, exit_code),
        }
    }

    fn finish(&mut self, outcome: Outcome, exit_code: u8) {
        self.close_tasks();
        self.commit();
        let mut finish = Finish { outcome, exit_code };
        // The machine has had its last word, and it is not in the journal: whoever looks there in the
        // morning must not be the only one who does not know.
        if self.broken && outcome != Outcome::Broken {
            finish = Finish { outcome: Outcome::Broken, exit_code: exit::INPUT };
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
        if self.is_filter(child) {
            return self.show_filtered(bytes);
        }
        match &mut self.task {
            Task::Agent(task) if task.child == child => {
                let raw = stream == Stream::Stdout && task.purpose() == Purpose::Work;
                task.output(stream, bytes, &mut self.recorder);
                self.queue.push_back(Input::Output);
                self.queue.extend(task.news());
                self.recorder.raw(stream, bytes);
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
        if self.is_filter(child) {
            self.filter_ended(ended.exit);
            return self.commit();
        }
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

    fn heed_requests(&mut self) {
        for request in self.world.requests() {
            self.queue.push_back(match request {
                Request::Pause => Input::Pause,
                Request::Resume { max_iterations } => Input::Resume { max_iterations },
                Request::End => Input::Stop { signal: KILLED, now: true },
            });
        }
    }

    /// What was asked for from inside the sandbox and refused: each once in an iteration, and no more
    /// than a person would read.
    fn tell_refusals(&mut self) {
        const MOST: usize = 50;
        self.stamp();
        let iteration = self.machine.iteration();
        if self.refused.0 != iteration {
            self.refused = (iteration, HashSet::new());
        }
        for refusal in self.world.refusals() {
            if self.refused.1.len() < MOST && self.refused.1.insert(refusal.clone()) {
                self.recorder.record(&Event::NetworkRefused {
                    host: refusal.host.as_str().into(),
                    port: refusal.port,
                    why: refusal.why().into(),
                    allow: refusal.entry().into(),
                });
            }
        }
        self.commit();
    }

    fn signal(&mut self, signal: Signal) {
        if signal == Signal::Terminate && self.spec.term_pauses && self.signals == 0 {
            self.signals = 1;
            return self.queue.push_back(Input::Pause);
        }
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
            Purpose::CommitMessage => prompts::COMMIT_MESSAGE_PROMPT.to_owned(),
        };
        let iteration = self.machine.iteration();
        let prompt_file = spec.ralph_dir.join(format!("prompt_{iteration:03}.txt"));
        let side_file = spec.ralph_dir.join(format!("side_{iteration:03}.txt"));
        let invocation = agent.invocation(Errand {
            purpose,
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
        env.push((STOP_CHECK.into(), Some(self.stop_check().into())));
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
        if purpose == Purpose::Work {
            self.start_filter();
        }
        let (child, pid) = self.world.start_inside(Part::Agent, &launch).map_err(|err| {
            self.finish_filter();
            Input::AgentNotStarted {
                message: not_started(spec, &err, invocation.prompt_via, prompt.len()),
            }
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
        let reader = agent.reader(invocation.structured);
        let started_ms = self.world.now().mono_ms;
        let mut task = AgentTask::new(child, purpose, started_ms, reader, detector, files);
        if agent.stderr_is_said && !invocation.structured {
            task = task.hearing_stderr();
        }
        self.task = Task::Agent(Box::new(task));
        Ok(())
    }

    /// Which start of an agent this is, if Claude Code's stop hook is to look for uncommitted work. Where
    /// the loop commits what its guardrails let pass, the agent is not to do it before them.
    fn stop_check(&self) -> String {
        let may_be_claude = ["claude", "text"].contains(&self.spec.agent.adapter.name());
        let loop_commits =
            self.spec.scm.as_ref().is_some_and(|scm| scm.kinds().contains(&ScmTask::Commit));
        if may_be_claude && !loop_commits {
            format!("{}.{}", self.machine.iteration(), self.machine.attempt())
        } else {
            String::new()
        }
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
        let name = prompts::log_name(self.machine.iteration(), &self.log_slugs[index]);
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
        match self.world.start_inside(Part::Check, &launch) {
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
