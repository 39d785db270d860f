//! The state of a run, computed from its journal.
//!
//! [`RunState::apply`] takes the entries of a journal one by one. Every reader (resume, `ls`, `status`, `runs`, `report`,
//! notifications, the status line) shows parts of the same state, so they agree by construction. Words and layout are
//! the readers' business.

mod activity;
mod clock;
mod end;
mod iteration;
mod notices;
mod repository;
mod resume_point;
mod steering;
mod steps;
mod totals;

use std::io::Read;

use serde::Serialize;

pub use activity::{Activity, OpenTool, Requests, RunningAgent, Wait};
pub use clock::Clock;
pub use end::{Continuation, RunEnd};
pub use iteration::{GuardrailResult, IterationRecord, ScmFailure, ScmTaskState, StoryRef};
pub use notices::{LastWords, Listed, Notices, Repeated, Warning};
pub use repository::{CommitRecord, RepositoryState};
pub use resume_point::{AgentReport, OpenIteration, Pending, RateLimits, ResumePoint, StallSeen};
pub use steering::{Answer, Guidance, Question, Steering};
pub use totals::{Cost, FailureCount, IterationResult, IterationResults, Totals};

use super::attempt;
use super::event::{Entry, Event, Purpose, RunSetup, Stamp, TodoItem, TodoStatus};
use super::journal::Entries;

/// Open items of an agent's plan that are kept.
const MAX_PLAN: usize = 50;

/// Everything that a journal says about its run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunState {
    pub info: RunInfo,
    pub clock: Clock,
    pub activity: Activity,
    pub requests: Requests,
    pub totals: Totals,
    pub resume: ResumePoint,
    /// In order; only the current one in a [live](RunState::live) state.
    pub iterations: Vec<IterationRecord>,
    pub repository: RepositoryState,
    /// `None` without a task list.
    pub tasks: Option<TaskProgress>,
    /// The open items of the agent's own plan.
    pub plan: Vec<TodoItem>,
    /// In order; only the last one in a [live](RunState::live) state.
    pub waits: Vec<Wait>,
    /// SCM tasks that have failed.
    pub scm: Vec<ScmTaskState>,
    pub continued: Vec<Continuation>,
    pub notices: Notices,
    pub steering: Steering,
    /// `None` while the run is active, or if it was killed.
    pub end: Option<RunEnd>,
    /// Lines of the journal that cannot be read: the run may have done and used more.
    pub unreadable: u64,
    #[serde(skip)]
    live: bool,
}

/// How a run was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunInfo {
    pub run: String,
    /// The version of ralph that wrote the last part of the journal.
    #[serde(skip)]
    pub version: String,
    /// The run's name; empty in journals of version 0.1.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub command: String,
    pub directory: String,
    /// The directory of the first start; the project may have been moved since.
    #[serde(skip)]
    pub began_in: Option<String>,
    pub agent: String,
    #[serde(skip)]
    pub pid: u32,
    /// The beginning of the prompt, or the name of its file.
    #[serde(rename = "asked")]
    pub prompt: String,
    /// The completion rule, in words.
    pub completion: String,
    pub max_iterations: u32,
    /// The branch at the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The branch at the last end, if it was a different one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Box<RunSetup>>,
}

/// The progress of a task list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskProgress {
    pub done: u32,
    pub total: u32,
    /// The next story.
    pub story: Option<String>,
    pub title: Option<String>,
    /// Problems of the list.
    pub problems: Vec<String>,
    /// The list cannot be read; the figures are the last known ones.
    pub unreadable: bool,
}

impl RunState {
    /// A state for the process that owns the run: it forgets finished iterations and waits, so that its size does
    /// not grow with the run.
    pub fn live() -> RunState {
        RunState::default().into_live()
    }

    /// Continues the state of a run in the process that resumes it.
    #[must_use]
    pub fn into_live(mut self) -> RunState {
        self.live = true;
        self.iterations.drain(..self.iterations.len().saturating_sub(1));
        self.waits.drain(..self.waits.len().saturating_sub(1));
        self
    }

    /// Reads a whole journal.
    pub fn read<R: Read>(entries: Entries<R>) -> RunState {
        let mut state = RunState::default();
        state.read_more(entries);
        state
    }

    /// Takes the following entries of the journal.
    pub fn read_more<R: Read>(&mut self, entries: Entries<R>) {
        let mut entries = entries.without_text();
        entries.by_ref().for_each(|entry| self.apply(&entry));
        self.unreadable += entries.unreadable();
    }

    /// Takes the next entry of the journal.
    pub fn apply(&mut self, entry: &Entry<'_>) {
        self.apply_event(entry.at, &entry.event);
    }

    /// Takes the next event of the run.
    pub fn apply_event(&mut self, at: Stamp, event: &Event<'_>) {
        let now = at.time_ms;
        self.tick(at, event);
        self.trust_stamp(at, event);
        self.steering.apply(at, event);
        match event {
            Event::RunStarted { .. } => self.run_started(now, event),
            Event::RunContinued { after, iterations, cut_off, unchecked, usage, duration_ms } => {
                self.resume.iterations = self.resume.iterations.max(*iterations);
                self.totals.spending.at_least(usage);
                self.totals.continued(*unchecked);
                let unrecorded = self.clock.resumed_after(*duration_ms);
                let (after, cut_off, unchecked) = (*after, *cut_off, *unchecked);
                self.continued.push(Continuation { time_ms: now, after, cut_off, unchecked });
                let mut records = self.iterations.iter_mut().rev();
                if let Some((number, ms)) = unrecorded
                    && let Some(open) = records.find(|it| it.number == number)
                {
                    open.add_unrecorded(ms);
                }
                let last = self.iterations.last_mut();
                if let Some(last) = last.filter(|last| Some(last.number) == unchecked) {
                    last.recheck(now);
                }
            }
            Event::IterationStarted { max_iterations } => {
                self.info.max_iterations = *max_iterations;
                self.totals.iteration_started();
                if self.resume.iteration_started(at.iteration) {
                    self.totals.spending.start_iteration();
                }
                self.open_record(at);
                self.end_wait(now);
            }
            Event::AgentStarted { purpose, .. } => {
                self.settle_attempt();
                self.enter(Activity::agent(*purpose, now), now);
                self.resume.agent_started(at, *purpose);
                self.notices.agent_started();
                self.totals.settle_omitted();
                if *purpose == Purpose::Work
                    && let Some(current) = self.iterations.last_mut()
                {
                    current.agent_started();
                }
            }
            Event::Session { model, .. } => {
                if let (Some(model), Some(current)) = (model, self.iterations.last_mut()) {
                    current.model = Some(model.as_ref().to_owned());
                }
            }
            Event::Usage(usage) => self.running_usage(usage),
            Event::Result { usage, turns, .. } => {
                if let Some(current) = self.iterations.last_mut() {
                    current.add_turns(*turns);
                }
                if let Some(usage) = usage {
                    self.running_usage(usage);
                }
            }
            Event::ToolStarted { id, name, summary, .. } => self.activity.tool_started(OpenTool {
                id: id.as_ref().to_owned(),
                name: name.as_ref().to_owned(),
                summary: summary.as_ref().to_owned(),
                since_ms: now,
            }),
            Event::ToolEnded { id, name, denied, .. } => {
                let tool = self.activity.tool_ended(id, now);
                if *denied {
                    let call = tool.map_or_else(|| name.as_ref().to_owned(), |tool| tool.call());
                    self.notices.denied.push(call);
                }
            }
            Event::Output { stream, text, joined } => {
                self.notices.last_words.hear(*stream, text, *joined);
                self.activity.touch(now);
            }
            Event::Text { .. }
            | Event::Thinking { .. }
            | Event::Notice { .. }
            | Event::Retracted { .. } => self.activity.touch(now),
            Event::Todo { items } => {
                let open = items.iter().filter(|item| item.status != TodoStatus::Completed);
                self.plan = open.take(MAX_PLAN).cloned().collect();
                self.activity.touch(now);
            }
            Event::OutputOmitted { bytes, .. } => {
                self.totals.set_omitted(*bytes);
                self.activity.touch(now);
            }
            Event::DialogOpened { dialog } => {
                self.activity.set_dialog(Some(dialog.as_ref().to_owned()));
            }
            Event::DialogClosed => self.activity.set_dialog(None),
            Event::AgentEnded { class, failure, usage, tools, tool_errors, .. } => {
                self.enter(Activity::Idle, now);
                self.totals.attempt_ended(usage, *tools, *tool_errors);
                self.notices.limit_ends_ms = attempt::rate_limit_reset_ms(*class, failure.as_ref());
                self.resume.agent_ended(event);
                if let Some(current) = self.iterations.last_mut() {
                    current.agent_ended(event);
                }
            }
            Event::Retrying { class, message, failures, .. } => {
                self.end_wait(now);
                self.totals.attempt_failed(*failures);
                self.resume.attempt_failed(*failures);
                if let Some(current) = self.iterations.last_mut() {
                    let last_words = &self.notices.last_words.line;
                    current.attempt_failed(Some(*class), message, last_words);
                }
            }
            Event::Waiting { reason, until_ms } => self.wait(at, *reason, *until_ms),
            Event::GuardrailStarted { command, .. } => {
                self.resume.checks_started();
                let command = command.as_ref().to_owned();
                self.enter(Activity::Guardrail { command, since_ms: now }, now);
            }
            Event::GuardrailEnded {
                index,
                command,
                exit,
                passed,
                cut_off,
                log,
                duration_ms,
                ..
            } => {
                self.enter(Activity::Idle, now);
                if let Some(current) = self.iterations.last_mut() {
                    current.guardrails.push(GuardrailResult {
                        index: *index,
                        command: command.as_ref().to_owned(),
                        passed: *passed,
                        cut_off: *cut_off,
                        exit: *exit,
                        log: log.as_ref().to_owned(),
                        duration_ms: *duration_ms,
                        ended_ms: now,
                    });
                }
            }
            Event::FeedbackSet { parts } => self.resume.feedback.clone_from(parts),
            Event::ScmStarted { task, argv } => {
                self.resume.scm_started(argv);
                let task = task.as_ref().to_owned();
                self.enter(Activity::Scm { task, since_ms: now }, now);
            }
            Event::ScmEnded { task, ok, detail, .. } => {
                self.enter(Activity::Idle, now);
                self.resume.scm_ended(*ok);
                let failure = (!ok).then_some(detail.as_ref());
                let current = self.iterations.last_mut();
                iteration::scm_ended(&mut self.scm, current, at.iteration, task, failure);
            }
            Event::CompletionChecked { complete, found, scm_failed } => {
                self.resume.completion_checked(*complete, found.as_deref(), *scm_failed);
            }
            Event::Vetoed { reason } => {
                if let Some(current) = self.iterations.last_mut() {
                    current.vetoed = Some(reason.as_ref().to_owned());
                }
            }
            Event::Tasks { done, total, story, title, problems, unreadable, marked } => {
                if let Some(current) = self.iterations.last_mut().filter(|it| !it.ended) {
                    current.tasks_reported(story.as_deref(), title.as_deref(), marked);
                }
                self.set_tasks(TaskProgress {
                    done: *done,
                    total: *total,
                    story: story.as_deref().map(str::to_owned),
                    title: title.as_deref().map(str::to_owned),
                    problems: problems.clone(),
                    unreadable: *unreadable,
                });
            }
            Event::IterationEnded {
                class,
                guardrails_passed,
                complete,
                cut_off,
                duration_ms,
                usage,
            } => {
                self.settle_attempt();
                self.end_wait(now);
                self.totals.spending.iteration_at_least(usage);
                self.totals.iteration_ended(*class, *cut_off, *duration_ms);
                if let Some(current) = self.iterations.last_mut() {
                    current.ended(now, *class, *cut_off, *duration_ms);
                    if current.is_prompted {
                        let result =
                            IterationResult::new(*class, *guardrails_passed, *complete, *cut_off);
                        self.totals.results.record(at.iteration, result);
                    }
                }
                if *cut_off {
                    self.resume.iteration_cut_off(at);
                } else {
                    self.totals.spending.start_iteration();
                    self.resume.iteration_finished(at.iteration, *complete);
                }
            }
            Event::StallChecked { unchanged, same_failures, fingerprint } => {
                self.resume.record_stall_check(fingerprint.as_deref(), *unchanged, *same_failures);
            }
            Event::Repository { head, commits, by_others } => {
                self.resume.pending_commit = None;
                let iterations = &mut self.iterations;
                self.repository.update(now, head, commits, *by_others, iterations);
            }
            Event::SandboxReady { backend, .. } => {
                self.notices.sandbox = Some(backend.as_ref().to_owned());
            }
            Event::StallWarning { reason, iterations, limit } => {
                let (reason, iterations, limit) = (*reason, *iterations, *limit);
                self.notices.warnings.push(Warning::Stalling { reason, iterations, limit });
            }
            Event::ModelSilent { silent_ms, limit_ms } => {
                let (silent_ms, limit_ms) = (*silent_ms, *limit_ms);
                self.notices.warnings.push(Warning::ModelSilent { silent_ms, limit_ms });
            }
            Event::Warning { message } => {
                let message = message.as_ref().to_owned();
                self.notices.warn(Warning::Message { message }, self.iterations.is_empty());
            }
            Event::Recovered { run, processes } => {
                let (run, processes) = (run.as_ref().to_owned(), processes.clone());
                let warning = Warning::Recovered { run, processes };
                self.notices.warn(warning, self.iterations.is_empty());
            }
            Event::Planted { message } => {
                let message = message.as_ref().to_owned();
                self.notices.warn(Warning::Planted { message }, self.iterations.is_empty());
            }
            Event::NetworkRefused { host, port, reason, .. } => {
                self.notices.denied.push(format!("network: {host}:{port}: {reason}"));
            }
            Event::StopRequested { signal, .. } => {
                self.end_wait(now);
                self.requests.stop = Some(signal.as_ref().to_owned());
            }
            Event::PauseRequested => self.requests.pause = true,
            Event::Paused => {
                self.clock.enter_idle(now);
                self.enter(Activity::Paused { since_ms: now }, now);
            }
            Event::Resumed { max_iterations } => {
                self.requests.pause = false;
                self.info.max_iterations = *max_iterations;
                self.clock.leave_idle(now);
                self.end_pause(now);
            }
            Event::Parked => {
                self.clock.enter_idle(now);
                self.enter(Activity::Parked { since_ms: now }, now);
            }
            Event::Unparked => {
                self.clock.leave_idle(now);
                self.end_pause(now);
            }
            Event::RunEnded { .. } => self.run_ended(now, event),
            Event::Notified { .. } => {
                if let Some(end) = &mut self.end {
                    end.notify_pending = false;
                }
            }
            Event::Prompt { .. } => {
                if let Some(current) = self.iterations.last_mut() {
                    current.is_prompted = true;
                }
            }
            // Taken by `Steering`.
            Event::QuestionAsked { .. }
            | Event::QuestionAnswered { .. }
            | Event::GuidanceReceived { .. }
            | Event::GuidanceCleared
            | Event::GuidanceDelivered { .. } => {}
            Event::BackgroundTasks { .. }
            | Event::Leftovers { .. }
            | Event::TaskListAccepted { .. }
            | Event::Note { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
