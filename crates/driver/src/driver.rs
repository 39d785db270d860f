//! The machine decides, the driver does.
//!
//! One loop, one wait: everything that can happen (output, the end of a process, a signal, a deadline)
//! comes out of [`World::wait`] and goes into the machine as an [`Input`]. What the machine answers is
//! carried out here, and nowhere else.

mod agent;
mod commit_guard;
mod display;
mod final_checks;
mod guardrail;
mod inputs;
mod journal;
mod notify;
mod prompt;
mod response;
mod scm;
mod stall_check;
mod tasks;
mod terminal;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;

use ralph_engine::machine::{Action, Input, LoopMachine, Now};
use ralph_engine::prompt as prompts;
use ralph_events::env_names;
use ralph_events::event::{EndCause, Event, Outcome};
use ralph_events::exit_code;
use ralph_events::text;
use ralph_process::Occurrence;
use ralph_report::Reporter;
use ralph_sandbox::proxy::Refusal;

use super::agent_process::AgentTask;
use super::guardrail::GuardrailTask;
use super::recorder::Recorder;
use super::run_spec::{GuardrailSpec, PromptSource, RunSpec};
use super::task_gate::TaskGate;
use super::world::World;
use commit_guard::StagedRun;
use display::Filter;
use ralph_git::ScmProcess;
use ralph_git::commit_guard::StagedSnapshot;
use response::Evaluator;
use stall_check::Look;

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
        Some(tasks) if tasks.check_first => machine.with_initial_check(),
        _ => machine,
    };
    // A log's name comes from the command, and must not tell a secret either.
    let commands: Vec<_> = spec.guardrails.iter().map(GuardrailSpec::shown_command).collect();
    let mut driver = Driver {
        spec,
        world,
        machine,
        recorder: Recorder::new(reporters, spec.journal_bytes),
        task: Task::None,
        log_slugs: prompts::log_slugs(commands.iter().map(|command| &**command)),
        queue: VecDeque::new(),
        commit_message: spec.progress.as_ref().and_then(|left| left.commit_message.clone()),
        staged: None,
        unused_message: None,
        without_tools: 0,
        signals: 0,
        broken: false,
        raw_broken: false,
        has_ended: false,
        warned_of: HashSet::new(),
        finish: None,
        notifiers: Vec::new(),
        refused: (0, HashSet::new()),
        gate: spec.tasks.as_ref().map(|tasks| TaskGate::new(tasks, spec)),
        filter: Filter::default(),
        evaluator: Evaluator::default(),
        settings_then: Vec::new(),
        first_branch: None,
    };
    driver.begin(preface);
    driver.drive()
}

/// What is running. One thing at a time: never two agents, never a guardrail beside one.
enum Task {
    None,
    Agent(Box<AgentTask>),
    Guardrail(GuardrailTask),
    Scm(ScmProcess),
    /// Another git is busy with the same repository; tried again at this moment.
    ScmWaits(ScmProcess, u64),
    /// What is staged is looked at, before and after an agent is asked for a commit message.
    Staged(StagedRun),
    Look(Look),
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
    /// What was staged when that was asked for.
    staged: Option<StagedSnapshot>,
    /// A message for that of which nothing came: the commit failed.
    unused_message: Option<(String, StagedSnapshot)>,
    /// Iterations in a row in which the agent used no tool.
    without_tools: u32,
    signals: u32,
    /// The journal cannot be written any more, and the machine knows.
    broken: bool,
    raw_broken: bool,
    /// The machine has had its last word.
    has_ended: bool,
    /// What is said of prompts is said once.
    warned_of: HashSet<String>,
    finish: Option<Finish>,
    /// Commands that tell the user of something, beside the loop.
    notifiers: Vec<notify::Notifier>,
    /// What was refused in which iteration.
    refused: (u32, HashSet<Refusal>),
    gate: Option<TaskGate>,
    filter: Filter,
    evaluator: Evaluator,
    /// What its settings' files looked like when it began.
    settings_then: Vec<u64>,
    /// The branch that was checked out when it began.
    first_branch: Option<String>,
}

impl<W: World> Driver<'_, W> {
    fn begin(&mut self, preface: &[Event<'static>]) {
        self.settings_then = self.settings_now();
        self.first_branch = self.world.branch();
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
            branch: self.first_branch.clone().map(Into::into),
            streams_text: spec.agent.adapter.streams_text(),
            plain_text: spec.agent.adapter.name() == "text",
        });
        if let Some(progress) = &spec.progress {
            self.recorder.record(&Event::RunContinued {
                after: progress.outcome,
                iterations: progress.iterations,
                // What only has to be brought to its end is not begun again, nor what the limit is below by now.
                cut_off: progress.open.map(|open| open.iteration).filter(|iteration| {
                    !self.machine.has_open_iteration()
                        && *iteration <= self.machine.max_iterations()
                }),
                unchecked: self.machine.unchecked_iteration(),
                usage: progress.spending.reported(),
                duration_ms: progress.active_ms,
            });
        }
        for event in preface {
            self.recorder.record(event);
        }
        (self.recorder.at.iteration, self.recorder.at.attempt) = self.machine.position();
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
                Occurrence::ControlRequest => self.heed_requests(),
                Occurrence::KeyInput => self.typed(&buf),
                Occurrence::ProxyRefused => self.tell_refusals(),
                Occurrence::Deadline => {}
            }
            // An agent that prints without a pause must not keep time from passing.
            let now = self.stamp();
            if self.machine.deadline().is_some_and(|at| now.mono_ms >= at) {
                self.queue.push_back(Input::Timer);
            }
            self.mind_screen(now);
            if let Task::ScmWaits(..) = self.task {
                self.go_on_with_scm(now);
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

    fn next_wake(&self) -> Option<u64> {
        let now = self.world.now();
        let tick =
            self.recorder.next_tick().map(|at| now.mono_ms.saturating_add(until_tick(at, now)));
        let again = match &self.task {
            Task::ScmWaits(_, at_ms) => Some(*at_ms),
            Task::Agent(task) => task.next_ms(),
            _ => None,
        };
        self.machine.deadline().into_iter().chain(tick).chain(again).min()
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Emit(mut event) => {
                if let Event::RunEnded { outcome, exit_code, branch, .. } = &mut event {
                    *branch = self.other_branch().map(Into::into);
                    let (outcome, exit_code) = (*outcome, *exit_code);
                    self.look_back(outcome, exit_code);
                }
                self.announce(&mut event);
                if let Event::IterationStarted { .. } = event {
                    // One step of the machine begins one iteration at most, so that it is this one.
                    self.recorder.at.iteration = self.machine.iteration();
                    self.recorder.at.attempt = 0;
                }
                self.recorder.record(&event);
                self.has_ended |= matches!(event, Event::RunEnded { .. });
                if let Event::Resumed { .. } = event {
                    // Whoever asked for the pause has got it: what is asked for now is a first time again.
                    self.signals = 0;
                }
                if let Event::Paused = event {
                    self.commit();
                    self.world.rest();
                    // Whoever called meanwhile was not heard.
                    self.heed_requests();
                }
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
                    task.cut_off = !timed_out;
                    self.world.end(task.child, false);
                }
            }
            Action::CheckScmStatus => self.look_at_scm(),
            Action::CheckStaged => self.look_at_staged_again(),
            Action::RunScmTask(index) => self.run_scm_task(index),
            Action::SkipScmTask(index, why) => {
                let task = self.scm_task_name(index);
                let detail = why.into();
                self.recorder.record(&Event::ScmEnded { task, ok: true, detail, duration_ms: 0 });
            }
            Action::EndScmTask { timed_out } => self.end_scm(timed_out),
            Action::CheckStall => self.look_at_repository(),
            Action::CollectBriefing => self.brief(),
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
            finish = Finish { outcome: Outcome::Broken, exit_code: exit_code::USAGE };
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

    /// What agents, guardrails and SCM tasks are told of the run they belong to.
    fn run_variables(&self) -> Vec<(OsString, Option<OsString>)> {
        [
            (env_names::RUN_ID, self.spec.run_id.clone()),
            (env_names::ITERATION, self.machine.iteration().to_string()),
            (env_names::MAX_ITERATIONS, self.machine.max_iterations().to_string()),
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
