//! The record of one iteration.

use serde::Serialize;

use super::clock::millis_between;
use super::repository::CommitRecord;
use crate::event::{Class, EndCause, Event, Exit, FailureKind, Purpose, Usage};

/// One iteration, however often it was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct IterationRecord {
    pub number: u32,
    pub started_ms: i64,
    /// Without pauses, and without the time between a cut and a restart.
    pub duration_ms: u64,
    /// How much of that was spent waiting for a rate limit or a retry.
    pub waited_ms: u64,
    /// How often it was started: once, and again each time that it was cut off.
    #[serde(rename = "begun")]
    pub starts: u32,
    /// It has ended, if only with the run.
    pub ended: bool,
    /// When it ended, or when it was last known to be active.
    #[serde(skip)]
    pub ended_ms: Option<i64>,
    /// Its checks were not finished.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// How its last attempt ended.
    pub class: Option<Class>,
    /// Why ralph ended the agent of that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndCause>,
    /// The failure that this agent reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// This agent only repeated its prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeats_prompt: bool,
    /// Attempts of all starts.
    pub attempts: u32,
    #[serde(flatten)]
    pub usage: Usage,
    /// The part of `usage` without a reported price.
    #[serde(skip)]
    pub unpriced: Usage,
    /// API requests since it was last started, where the agent reports them.
    #[serde(skip)]
    pub turns: Option<u32>,
    /// The model that an agent named last since then.
    #[serde(skip)]
    pub model: Option<String>,
    pub tools: u32,
    pub tool_errors: u32,
    pub denied: u32,
    pub guardrails: Vec<GuardrailResult>,
    /// Why a completion did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vetoed: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm_failed: Vec<ScmFailure>,
    /// SCM tasks that succeeded since the last agent started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scm_done: Vec<String>,
    /// Why attempts failed.
    pub failures: Vec<String>,
    /// In JSON, the report adds what git knows about them.
    #[serde(skip)]
    pub commits: Vec<CommitRecord>,
    /// The story of the task list that it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryRef>,
    /// Stories that the agent marked as passing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marked: Vec<String>,
    /// The commit checked out afterwards, if it is a different one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// A prompt was made since it was last started.
    #[serde(skip)]
    pub(super) is_prompted: bool,
    /// Start of the time that `duration_ms` does not include yet. Pauses move it.
    #[serde(skip)]
    pub(super) since_ms: Option<i64>,
}

/// A story of a task list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoryRef {
    pub id: String,
    pub title: String,
}

/// The result of a guardrail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardrailResult {
    #[serde(skip)]
    pub index: u32,
    pub command: String,
    pub passed: bool,
    /// It was stopped together with the run, so its result means nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    pub exit: Option<Exit>,
    pub log: String,
    pub duration_ms: u64,
    pub ended_ms: i64,
}

impl GuardrailResult {
    pub fn has_failed(&self) -> bool {
        !self.passed && !self.cut_off
    }
}

/// An SCM task that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScmFailure {
    pub task: String,
    #[serde(rename = "why")]
    pub reason: String,
}

impl IterationRecord {
    pub(super) fn new(number: u32, now_ms: i64) -> IterationRecord {
        IterationRecord {
            number,
            started_ms: now_ms,
            since_ms: Some(now_ms),
            starts: 1,
            ..IterationRecord::default()
        }
    }

    /// It was cut off and starts again.
    pub(super) fn restart(&mut self, now_ms: i64) {
        self.starts = self.starts.saturating_add(1);
        self.recheck(now_ms);
        (self.class, self.ended_by, self.failure) = (None, None, None);
        (self.turns, self.model, self.is_prompted) = (None, None, false);
        self.scm_done.clear();
    }

    /// Its checks run again, which replaces their earlier results.
    pub(super) fn recheck(&mut self, now_ms: i64) {
        self.since_ms = Some(now_ms);
        self.guardrails.clear();
        self.scm_failed.clear();
        (self.ended, self.cut_off, self.vetoed) = (false, false, None);
    }

    /// Adds the time up to `until_ms`, if its end was not recorded.
    pub(super) fn stop(&mut self, until_ms: i64) {
        self.duration_ms = self.active_ms(until_ms);
        if self.since_ms.take().is_some() {
            self.ended_ms = Some(until_ms);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.since_ms.is_some()
    }

    /// It was worked on after its last entry.
    pub(super) fn add_unrecorded(&mut self, ms: u64) {
        self.duration_ms = self.duration_ms.saturating_add(ms);
        self.ended_ms = self.ended_ms.map(|ended_ms| ended_ms.saturating_add_unsigned(ms));
    }

    pub(super) fn active_ms(&self, until_ms: i64) -> u64 {
        let open_ms = self.since_ms.map_or(0, |since_ms| millis_between(since_ms, until_ms));
        self.duration_ms.saturating_add(open_ms)
    }

    /// Leaves a pause out of its time.
    pub(super) fn skip_pause(&mut self, length_ms: i64) {
        self.since_ms = self.since_ms.map(|since_ms| since_ms.saturating_add(length_ms));
    }

    pub(super) fn agent_started(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.scm_done.clear();
    }

    pub(super) fn agent_ended(&mut self, event: &Event<'_>) {
        let Event::AgentEnded {
            purpose,
            class,
            ended_by,
            failure,
            usage,
            tools,
            tool_errors,
            denied,
            repeats_prompt,
            ..
        } = event
        else {
            return;
        };
        self.add_usage(usage);
        self.tools = self.tools.saturating_add(*tools);
        self.tool_errors = self.tool_errors.saturating_add(*tool_errors);
        self.denied = self.denied.saturating_add(*denied);
        if *purpose == Purpose::Work {
            self.class = Some(*class);
            self.ended_by = *ended_by;
            self.failure = failure.as_ref().map(|failure| failure.kind);
            self.repeats_prompt = *repeats_prompt;
        }
    }

    pub(super) fn add_turns(&mut self, turns: Option<u32>) {
        if let Some(turns) = turns {
            self.turns = Some(self.turns.unwrap_or(0).saturating_add(turns));
        }
    }

    pub(super) fn add_usage(&mut self, usage: &Usage) {
        self.usage.add(usage);
        if usage.cost_usd.is_none() {
            self.unpriced.add(usage);
        }
    }

    /// Records a failed attempt with the agent's last words on standard error, since an exit code alone
    /// explains little. An agent that never started has printed nothing and counts as an attempt here.
    pub(super) fn attempt_failed(&mut self, class: Option<Class>, why: &str, last_words: &str) {
        let mut failure = why.to_owned();
        if class == Some(Class::NotStarted) {
            self.attempts = self.attempts.saturating_add(1);
        } else {
            let words = last_words.trim();
            if !words.is_empty() && !why.contains(words) {
                failure = format!("{why}: {words}");
            }
        }
        self.failures.push(failure);
    }

    /// The list names the next story: until the agent marks one, that is the story in work.
    pub(super) fn tasks_reported(
        &mut self,
        story: Option<&str>,
        title: Option<&str>,
        marked: &[String],
    ) {
        if let (None, Some(id)) = (&self.story, story) {
            let title = title.unwrap_or_default().to_owned();
            self.story = Some(StoryRef { id: id.to_owned(), title });
        }
        for story in marked {
            if !self.marked.contains(story) {
                self.marked.push(story.clone());
            }
        }
    }

    pub(super) fn ended(&mut self, now_ms: i64, class: Class, cut_off: bool, duration_ms: u64) {
        (self.since_ms, self.ended_ms) = (None, Some(now_ms));
        self.duration_ms = self.duration_ms.saturating_add(duration_ms);
        self.class = Some(class);
        (self.ended, self.cut_off) = (true, cut_off);
    }
}

/// An SCM task that has failed at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScmTaskState {
    pub task: String,
    /// The iterations in which it failed.
    #[serde(rename = "iterations")]
    pub failed_in: Vec<u32>,
    /// Why it failed last.
    #[serde(rename = "why")]
    pub reason: String,
    /// It has succeeded since.
    #[serde(rename = "made_good")]
    pub recovered: bool,
}

/// Notes the end of an SCM task in the current iteration and among the failed tasks.
pub(super) fn scm_ended(
    tasks: &mut Vec<ScmTaskState>,
    current: Option<&mut IterationRecord>,
    iteration: u32,
    task: &str,
    failure: Option<&str>,
) {
    let known = tasks.iter_mut().find(|known| known.task == task);
    let Some(detail) = failure else {
        if let Some(current) = current
            && !current.scm_done.iter().any(|done| done == task)
        {
            current.scm_done.push(task.to_owned());
        }
        if let Some(known) = known {
            known.recovered = true;
        }
        return;
    };
    let reason = failure_line(detail).to_owned();
    if let Some(current) = current {
        current.scm_failed.push(ScmFailure { task: task.to_owned(), reason: reason.clone() });
    }
    match known {
        Some(known) => {
            if known.failed_in.last() != Some(&iteration) {
                known.failed_in.push(iteration);
            }
            (known.reason, known.recovered) = (reason, false);
        }
        None => tasks.push(ScmTaskState {
            task: task.to_owned(),
            failed_in: vec![iteration],
            reason,
            recovered: false,
        }),
    }
}

/// Returns the line that explains a failure: git's error, or the last line that is not one of its hints.
fn failure_line(output: &str) -> &str {
    let lines = || output.lines().map(str::trim).rev().filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.starts_with("fatal: ") || line.starts_with("error: ");
    lines()
        .find(is_error)
        .or_else(|| lines().find(|line| !line.starts_with("hint: ")))
        .unwrap_or("no reason given")
}
