//! `ralph report`: what a night of work came to, folded from a run's journal.
//!
//! [`Facts`] are everything that there is to tell, as plain data and as JSON; [`plain`] draws them for
//! the terminal and as Markdown, [`html`] as a page that needs nothing else.

pub mod html;
pub mod plain;

use std::collections::VecDeque;

use serde::Serialize;

use super::runs::{RunSummary, stalling_words};
use crate::core::event::{
    Class, Entry, Event, Exit, Outcome, Purpose, TodoItem, TodoStatus, Usage, WaitReason,
};
use crate::core::text;

/// Tool calls whose summaries are remembered until they end.
const MAX_OPEN_TOOLS: usize = 64;
/// Entries of a list that a person still reads; how many there were is told beside it.
const MAX_LISTED: usize = 50;

/// What is told of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Facts {
    pub run: String,
    pub command: String,
    pub directory: String,
    pub agent: String,
    /// What was asked: the beginning of the prompt, or its file.
    pub asked: String,
    /// What completes the run, in words.
    pub completion: String,
    pub started_ms: i64,
    pub ended_ms: i64,
    pub duration_ms: u64,
    /// The commit that was checked out when it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// `None` for a run that goes on, or that was cut off.
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub message: String,
    pub max_iterations: u32,
    #[serde(flatten)]
    pub usage: Usage,
    pub iterations: Vec<Iteration>,
    /// When it went on after it had been left.
    pub continued: Vec<Continued>,
    pub waits: Vec<Wait>,
    /// What the agent was not allowed to do.
    pub denied: Listed<String>,
    pub warnings: Listed<String>,
    pub left: Left,
}

/// The first entries of a list, and how many there were in all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed<T> {
    pub total: u32,
    pub first: Vec<T>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Listed { total: 0, first: Vec::new() }
    }
}

impl<T: PartialEq> Listed<T> {
    fn push(&mut self, entry: T) {
        self.total = self.total.saturating_add(1);
        if self.first.len() < MAX_LISTED {
            self.first.push(entry);
        }
    }
}

/// One iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Iteration {
    pub number: u32,
    pub started_ms: i64,
    pub duration_ms: u64,
    /// How its last attempt ended; `None` if it did not.
    pub class: Option<Class>,
    /// All that was said there was the prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeats_prompt: bool,
    pub attempts: u32,
    #[serde(flatten)]
    pub usage: Usage,
    pub tools: u32,
    pub tool_errors: u32,
    pub denied: u32,
    pub guardrails: Vec<Check>,
    /// Why a completion did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vetoed: Option<String>,
    /// Why attempts failed.
    pub failures: Vec<String>,
    pub commits: Vec<Commit>,
}

/// A guardrail and what it said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    pub command: String,
    pub passed: bool,
    /// It was ended with the run, and says nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    pub exit: Option<Exit>,
    pub log: String,
}

impl Check {
    /// It found something wrong.
    pub fn failed(&self) -> bool {
        !self.passed && !self.cut_off
    }
}

/// A run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Continued {
    pub time_ms: i64,
    /// How it had ended; `None` if it was cut off.
    pub after: Option<Outcome>,
    /// The iteration that was begun again.
    pub cut_off: Option<u32>,
}

/// A time without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub iteration: u32,
    pub reason: WaitReason,
    pub from_ms: i64,
    pub until_ms: i64,
}

/// A commit, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    pub id: String,
    pub time_ms: i64,
    pub subject: String,
}

/// What is left to do, as far as anybody said.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Left {
    /// What the next prompt would carry.
    pub feedback: Vec<String>,
    /// What is open in the plan that the agent keeps for itself.
    pub plan: Vec<String>,
    /// Stories that pass, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<(u32, u32)>,
    /// The story that is next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
}

/// Folds a journal into [`Facts`].
#[derive(Debug, Default)]
pub struct Reading {
    summary: RunSummary,
    facts: Facts,
    /// The tools that are running, by their id.
    tools: VecDeque<(String, String)>,
    /// What of the output of the agent that is running is not in the journal, and of those before it.
    left_out: u64,
    left_out_before: u64,
}

impl Reading {
    pub fn fold(&mut self, entry: &Entry<'_>) {
        self.summary.fold(entry);
        let (at, facts) = (entry.at, &mut self.facts);
        match &entry.event {
            Event::RunStarted { prompt, completion, .. } => {
                facts.asked = prompt.as_ref().to_owned();
                facts.completion = completion.as_ref().to_owned();
            }
            // Only the first: what was committed since is of this run, too.
            Event::Repository { head } => {
                facts.head.get_or_insert_with(|| head.as_ref().to_owned());
            }
            Event::RunContinued { after, cut_off, .. } => facts.continued.push(Continued {
                time_ms: at.time_ms,
                after: *after,
                cut_off: *cut_off,
            }),
            // One that was cut off and is done again is one iteration.
            Event::IterationStarted { .. }
                if facts.iterations.last().is_none_or(|last| last.number != at.iteration) =>
            {
                facts.iterations.push(Iteration {
                    number: at.iteration,
                    started_ms: at.time_ms,
                    ..Iteration::default()
                });
            }
            Event::ToolStarted { id, name, summary, .. } => {
                let call = if summary.is_empty() {
                    name.as_ref().to_owned()
                } else {
                    format!("{name}: {summary}")
                };
                self.tools.push_back((id.as_ref().to_owned(), call));
                if self.tools.len() > MAX_OPEN_TOOLS {
                    self.tools.pop_front();
                }
            }
            Event::ToolEnded { id, name, denied, .. } => {
                let running = self.tools.iter().position(|(known, _)| known == id);
                let call = running.and_then(|at| self.tools.remove(at)).map(|(_, call)| call);
                if *denied {
                    facts.denied.push(call.unwrap_or_else(|| name.as_ref().to_owned()));
                }
            }
            Event::Todo { items } => facts.left.plan = open_items(items),
            Event::LeftOut { bytes, .. } => self.left_out = *bytes,
            Event::AgentStarted { .. } => {
                self.left_out_before += std::mem::take(&mut self.left_out);
            }
            Event::AgentEnded {
                purpose,
                class,
                usage,
                tools,
                tool_errors,
                denied,
                repeats_prompt,
                ..
            } => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    iteration.usage.add(usage);
                    iteration.tools = iteration.tools.saturating_add(*tools);
                    iteration.tool_errors = iteration.tool_errors.saturating_add(*tool_errors);
                    iteration.denied = iteration.denied.saturating_add(*denied);
                    if *purpose == Purpose::Work {
                        iteration.attempts = at.attempt;
                        iteration.class = Some(*class);
                        iteration.repeats_prompt = *repeats_prompt;
                    }
                }
            }
            Event::Retrying { message, .. } => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    iteration.failures.push(message.as_ref().to_owned());
                }
            }
            Event::Waiting { reason, until_ms } => facts.waits.push(Wait {
                iteration: at.iteration,
                reason: *reason,
                from_ms: at.time_ms,
                until_ms: *until_ms,
            }),
            Event::GuardrailEnded { command, exit, passed, cut_off, log, .. } => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    iteration.guardrails.push(Check {
                        command: command.as_ref().to_owned(),
                        passed: *passed,
                        cut_off: *cut_off,
                        exit: *exit,
                        log: log.as_ref().to_owned(),
                    });
                }
            }
            Event::FeedbackSet { parts } => {
                facts.left.feedback = parts.iter().map(|part| part.message.clone()).collect();
            }
            Event::Vetoed { reason } => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    iteration.vetoed = Some(reason.as_ref().to_owned());
                }
            }
            Event::Tasks { done, total, story, title, .. } => {
                facts.left.stories = Some((*done, *total));
                facts.left.story = story.as_ref().map(|story| match title {
                    Some(title) => format!("{story}: {title}"),
                    None => story.as_ref().to_owned(),
                });
            }
            Event::IterationEnded { class, duration_ms, .. } => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    iteration.class = Some(*class);
                    iteration.duration_ms = *duration_ms;
                }
            }
            Event::Stalling { reason, iterations, limit } => {
                facts.warnings.push(stalling_words(*reason, *iterations, *limit));
            }
            Event::Warning { message } => facts.warnings.push(message.as_ref().to_owned()),
            _ => {}
        }
    }

    /// All that was found. `now_ms` for a run that is going on.
    pub fn facts(self, now_ms: Option<i64>) -> Facts {
        let Reading { summary, mut facts, left_out, left_out_before, .. } = self;
        if let bytes @ 1.. = left_out + left_out_before {
            facts.warnings.push(format!(
                "{}B of what agents printed were left out of the journal, which has no room for them \
                 (runs.maxJournalMegabytes)",
                text::count(bytes)
            ));
        }
        let ended_ms = now_ms.unwrap_or(summary.last_ms);
        if let Some(last) = facts.iterations.last_mut().filter(|last| last.duration_ms == 0) {
            last.duration_ms = u64::try_from(ended_ms - last.started_ms).unwrap_or(0);
        }
        let complete =
            matches!(summary.outcome, Some(Outcome::Complete | Outcome::CompleteScmFailed));
        if complete {
            // The plan that the agent forgot to tick off is not work that is left.
            facts.left = Left { stories: facts.left.stories, ..Left::default() };
        }
        Facts {
            duration_ms: summary.duration_ms(now_ms),
            usage: summary.usage(),
            outcome: summary.outcome,
            exit_code: summary.exit_code,
            started_ms: summary.started_ms,
            ended_ms,
            max_iterations: summary.max_iterations,
            run: summary.id,
            command: summary.command,
            directory: summary.directory,
            agent: summary.agent,
            message: summary.message,
            ..facts
        }
    }
}

impl Facts {
    /// Takes commits in that were made during the run, each into the iteration in which it was made.
    pub fn place_commits(&mut self, commits: Vec<Commit>) {
        for commit in commits {
            // Git knows whole seconds: one of the first second may be a little older than its iteration.
            let made_by = self
                .iterations
                .iter_mut()
                .rev()
                .find(|iteration| iteration.started_ms - 999 <= commit.time_ms);
            if let Some(iteration) = made_by {
                iteration.commits.push(commit);
            }
        }
    }

    /// How the run came out, in a sentence.
    pub fn verdict(&self) -> String {
        match self.outcome {
            Some(_) if !self.message.is_empty() => self.message.clone(),
            Some(outcome) => super::runs::outcome_word(outcome).to_owned(),
            None => "it has not ended, or was cut off before it could say so".to_owned(),
        }
    }
}

fn open_items(items: &[TodoItem]) -> Vec<String> {
    let open = items.iter().filter(|item| item.status != TodoStatus::Completed);
    open.take(MAX_LISTED).map(|item| item.text.clone()).collect()
}

#[cfg(test)]
mod tests;
