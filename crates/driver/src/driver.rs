//! Carries out what the machine decides.
//!
//! Everything that happens (output, process ends, signals, deadlines) comes from
//! [`wait`](super::world::Processes::wait) and goes to the machine as an [`Input`]. Only this module executes its
//! actions.

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

use std::collections::VecDeque;
use std::ffi::OsString;

use ralph_engine::machine::{Action, Input, LoopMachine, Now};
use ralph_engine::prompt as prompts;
use ralph_events::env_names;
use ralph_events::event::{EndCause, Event, Outcome};
use ralph_events::run_state::RunState;
use ralph_events::text;
use ralph_process::{ChildId, Occurrence};
use ralph_report::{MAX_TICK_MS, Redraw, Reporter};

use super::agent_process::AgentProcess;
use super::guardrail::GuardrailRun;
use super::pty_agent::PtyScreen;
use super::recorder::Recorder;
use super::run_spec::{GuardrailSpec, PromptSource, RunSpec};
use super::task_gate::TaskGate;
use super::world::World;
use commit_guard::CommitGuardRun;
use display::DisplayFilter;
use ralph_git::ScmProcess;
use ralph_git::commit_guard::StagedSnapshot;
use response::ResponseFilterProcess;
use stall_check::GitStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunExit {
    pub outcome: Outcome,
    pub exit_code: u8,
}

/// Runs a loop to its end. `preface` is recorded right after the start.
pub fn run<W: World>(
    spec: &RunSpec,
    world: &mut W,
    reporters: Vec<Box<dyn Reporter>>,
    preface: &[Event<'static>],
) -> RunExit {
    let machine = match &spec.resumed {
        None => LoopMachine::new(spec.all_rules()),
        Some(state) => LoopMachine::resumed(spec.all_rules(), state.clone()),
    };
    let machine = match &spec.tasks {
        Some(tasks) if tasks.check_first => machine.with_initial_check(),
        _ => machine,
    };
    let state = spec.resumed.clone().unwrap_or_default();
    // A log's name comes from the command, and must not tell a secret either.
    let commands: Vec<_> = spec.guardrails.iter().map(GuardrailSpec::shown_command).collect();
    let mut driver = Driver {
        spec,
        world,
        machine,
        commit_message: state.resume.commit_message.clone(),
        recorder: Recorder::new(reporters, spec.journal_bytes, state),
        task: ActiveTask::None,
        log_slugs: prompts::log_slugs(commands.iter().map(|command| &**command)),
        queue: VecDeque::new(),
        has_taken_requests: false,
        staged_snapshot: None,
        unused_commit_message: None,
        iterations_without_tools: 0,
        journal_failed: false,
        raw_log_failed: false,
        end_recorded: false,
        finish: None,
        notifiers: Vec::new(),
        gate: spec.tasks.as_ref().map(|tasks| TaskGate::new(tasks, spec)),
        display_filter: DisplayFilter::default(),
        response_filter: ResponseFilterProcess::default(),
        initial_settings: Vec::new(),
        initial_branch: None,
    };
    driver.start(preface);
    driver.run_loop()
}

/// The running process: at most one at a time.
enum ActiveTask {
    None,
    Agent(Box<AgentProcess>),
    Guardrail(ChildId, GuardrailRun),
    Scm(ScmProcess),
    /// Waits until then for another git to release its lock.
    ScmRetry(ScmProcess, u64),
    /// Inspects staged changes, before and after an agent is asked for a commit message.
    CommitGuard(CommitGuardRun),
    StallCheck(GitStatus),
}

struct Driver<'s, W> {
    spec: &'s RunSpec,
    world: &'s mut W,
    machine: LoopMachine,
    recorder: Recorder,
    task: ActiveTask,
    log_slugs: Vec<String>,
    queue: VecDeque<Input>,
    /// Requests are in the queue, or were handled and not acknowledged yet.
    has_taken_requests: bool,
    commit_message: Option<String>,
    /// Changes that the commit message describes.
    staged_snapshot: Option<StagedSnapshot>,
    /// A message whose commit failed.
    unused_commit_message: Option<(String, StagedSnapshot)>,
    iterations_without_tools: u32,
    journal_failed: bool,
    raw_log_failed: bool,
    end_recorded: bool,
    finish: Option<RunExit>,
    notifiers: Vec<notify::NotifyProcess>,
    gate: Option<TaskGate>,
    display_filter: DisplayFilter,
    response_filter: ResponseFilterProcess,
    /// Hashes of the settings files at the start.
    initial_settings: Vec<u64>,
    initial_branch: Option<String>,
}

impl<W: World> Driver<'_, W> {
    fn start(&mut self, preface: &[Event<'static>]) {
        self.initial_settings = self.settings_fingerprints();
        self.initial_branch = self.world.branch();
        let spec = self.spec;
        let prompt = match &spec.prompt {
            PromptSource::Text(prompt) => text::truncate(prompt, 200, "…"),
            PromptSource::File(path) | PromptSource::FileOrDefault { path, .. } => {
                path.strip_prefix(&spec.directory).unwrap_or(path).to_string_lossy()
            }
            PromptSource::BuiltIn { name, .. } => name.as_ref().into(),
            PromptSource::TaskList(_) => PromptSource::TASK_PROMPT_NAME.into(),
        };
        let completion = match &spec.tasks {
            Some(_) => spec.describe_completion(),
            None => spec.completion.describe(),
        };
        self.take_time();
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
            branch: self.initial_branch.clone().map(Into::into),
            name: spec.name.as_deref().map(Into::into),
            streams_text: spec.agent.adapter.profile().extras.streams_text,
            plain_text: spec.agent.adapter.name() == "text",
            setup: Some(Box::new(spec.setup())),
        });
        if let Some(state) = spec.resumed.clone().map(RunState::closed) {
            self.recorder.record(&Event::RunContinued {
                after: state.outcome(),
                iterations: state.resume.iterations,
                // Iterations that only have to be finished do not restart, nor those beyond a lowered limit.
                cut_off: state.resume.open.map(|open| open.iteration).filter(|iteration| {
                    !self.machine.has_open_iteration()
                        && *iteration <= self.machine.max_iterations()
                }),
                unchecked: self.machine.unchecked_iteration(),
                usage: state.totals.spending.reported(),
                duration_ms: state.clock.active_ms,
            });
        }
        for event in preface {
            self.recorder.record(event);
        }
        self.recorder.at = self.machine.stamp(self.world.now());
        // Requests from before the start: what a person said belongs into the first prompt.
        let (said, control): (Vec<Input>, Vec<Input>) =
            self.take_requests().into_iter().partition(Input::is_message);
        self.queue.extend(said);
        self.take_spooled_questions();
        self.queue.push_back(Input::Start);
        self.queue.extend(control);
    }

    fn run_loop(&mut self) -> RunExit {
        let mut buf = Vec::new();
        loop {
            self.handle_inputs();
            if let Some(finish) = self.finish {
                self.wait_for_notify_commands(&mut buf);
                self.world.sync();
                self.recorder.finish();
                self.wait_for_readers(&mut buf);
                return finish;
            }
            let until = self.next_deadline();
            match self.world.wait(until, &mut buf) {
                Occurrence::Output(child, stream) => self.on_output(child, stream, &buf),
                Occurrence::Ended(child, ended) => self.on_child_ended(child, ended),
                Occurrence::Signal(signal) => {
                    self.on_signal(signal);
                    // At once, because a task that waits for a git lock checks for signals below.
                    self.handle_inputs();
                }
                Occurrence::ControlRequest => self.handle_requests(),
                Occurrence::FilesChanged => self.take_spooled_questions(),
                Occurrence::KeyInput => self.on_key_input(&buf),
                Occurrence::ProxyRefused => self.report_refusals(),
                Occurrence::Deadline => {}
            }
            // Checked after every event: an agent that prints without pause must not delay timers.
            let now = self.take_time();
            if self.machine.deadline().is_some_and(|at| now.mono_ms >= at) {
                self.queue.push_back(Input::Timer);
            }
            self.update_screen(now);
            if let ActiveTask::ScmRetry(..) = self.task {
                self.retry_scm_command(now);
            }
            if self.recorder.next_tick().is_some_and(|at| ms_until_tick(at, now) == 0) {
                self.recorder.redraw(Redraw::Tick { now_ms: now.wall_ms });
            }
        }
    }

    fn handle_inputs(&mut self) {
        while let Some(input) = self.queue.pop_front() {
            self.step(input);
            if self.queue.is_empty() {
                self.flush();
                // A run that has ended ignores requests, and takes them again if it is resumed.
                if std::mem::take(&mut self.has_taken_requests) && !self.machine.is_finished() {
                    self.world.acknowledge_requests();
                }
            }
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.take_time();
        for action in self.machine.step(now, input) {
            self.recorder.at = match &action {
                Action::Emit(at, _) => *at,
                _ => self.machine.stamp(now),
            };
            self.execute(action);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let now = self.world.now();
        let tick =
            self.recorder.next_tick().map(|at| now.mono_ms.saturating_add(ms_until_tick(at, now)));
        let again = match &self.task {
            ActiveTask::ScmRetry(_, at_ms) => Some(*at_ms),
            ActiveTask::Agent(task) => task.screen.as_ref().and_then(PtyScreen::next_check_ms),
            _ => None,
        };
        self.machine.deadline().into_iter().chain(tick).chain(again).min()
    }

    fn execute(&mut self, action: Action) {
        match action {
            Action::Emit(_, mut event) => {
                if let Event::RunEnded { branch, .. } = &mut event {
                    *branch = self.changed_branch().map(Into::into);
                }
                self.recorder.record(&event);
                self.end_recorded |= matches!(event, Event::RunEnded { .. });
                if let Event::Paused | Event::Parked = event {
                    self.flush();
                    self.world.rest();
                    // Requests that came while the world rested.
                    self.handle_requests();
                }
                self.run_notify_command(&event);
            }
            Action::Save => {
                self.flush();
                self.world.sync();
            }
            Action::StartAgent(purpose) => self.start_agent(purpose),
            Action::EndAgent(cause) => {
                if let ActiveTask::Agent(task) = &mut self.task {
                    task.ended_by = Some(cause);
                    self.world.end(task.child, cause == EndCause::InternalError);
                }
            }
            Action::KillJob => self.kill_job(),
            Action::CheckDone => {
                if let ActiveTask::Agent(task) = &mut self.task
                    && task.has_said_done()
                {
                    self.queue.push_back(Input::ResultSeen);
                }
            }
            Action::RunFinalChecks(checks) => self.run_final_checks(checks),
            Action::RunGuardrail(index) => self.run_guardrail(index),
            Action::EndGuardrail { timed_out } => {
                if let ActiveTask::Guardrail(child, run) = &mut self.task {
                    run.timed_out = timed_out;
                    run.cut_off = !timed_out;
                    self.world.end(*child, false);
                }
            }
            Action::CheckScmStatus => self.start_scm_status(),
            Action::CheckStaged => self.compare_staged(),
            Action::RunScmTask(index) => self.run_scm_task(index),
            Action::SkipScmTask(index, why) => {
                let task = self.scm_task_name(index);
                let detail = why.into();
                self.recorder.record(&Event::ScmEnded { task, ok: true, detail, duration_ms: 0 });
            }
            Action::EndScmTask { timed_out } => self.end_scm(timed_out),
            Action::CheckStall => self.start_stall_check(),
            Action::FindStory => self.find_story(),
            Action::CollectBriefing => self.collect_briefing(),
            Action::CheckGates { claimed, checks_passed } => {
                self.check_gates(claimed, checks_passed);
            }
            Action::Finish { outcome, exit_code } => self.finish(outcome, exit_code),
        }
    }

    fn finish(&mut self, outcome: Outcome, exit_code: u8) {
        if self.finish.is_none() {
            self.finish_tasks();
        }
        self.flush();
        self.finish = Some(RunExit { outcome, exit_code });
        if self.journal_failed {
            let message = format!(
                "cannot write the end of the run to the journal in {}: check free space and \
                 permissions",
                self.spec.ralph_dir.display()
            );
            self.step(Input::EndNotRecorded { message });
        }
    }

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

/// Milliseconds until the next redraw. A time further away than any reporter asks for means that the wall clock was set
/// back.
fn ms_until_tick(at_ms: i64, now: Now) -> u64 {
    match at_ms.saturating_sub(now.wall_ms) {
        left @ 0..=MAX_TICK_MS => left.unsigned_abs(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_tick_is_waited_for_unless_the_clock_was_set_back() {
        let now = Now { mono_ms: 5, wall_ms: 100_000 };
        for (ahead_ms, expected) in [(-1, 0), (0, 0), (1_000, 1_000), (MAX_TICK_MS, 10_000)] {
            assert_eq!(ms_until_tick(now.wall_ms + ahead_ms, now), expected);
        }
        assert_eq!(ms_until_tick(now.wall_ms + MAX_TICK_MS + 1, now), 0);
    }
}
