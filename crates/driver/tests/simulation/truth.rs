//! What really happened in the simulated world, and what was recorded and shown of it.

use std::collections::BTreeMap;

use ralph_events::event::{Class, Entry, Event, Exit, Outcome, Purpose};
use ralph_events::run_state::RunState;
use ralph_process::Signal;
use ralph_store::requests::Request;

#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) purpose: Purpose,
    /// The numbers of the failures in its prompt.
    pub(crate) told: Vec<u64>,
    /// The numbers of the guidance and of the answers in its prompt, as they stand there.
    pub(crate) guidance: Vec<u64>,
    pub(crate) answers: Vec<u64>,
    /// The size of the journal at that moment.
    pub(crate) journal: usize,
}

/// What the engine cannot see, or could get wrong.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// The last working agent claimed completion itself, and ended.
    pub(crate) claimed: bool,
    /// Position and result of each guardrail since the last working agent or resume.
    pub(crate) checks: Vec<(usize, bool)>,
    /// Resumed, and the first guardrail has not run yet.
    pub(crate) goes_on: bool,
    pub(crate) dirty: bool,
    /// Commits, and unstaged files.
    pub(crate) commits: u64,
    pub(crate) beside: u64,
    /// Whether, and how often, an agent asked for a commit message changed something after the
    /// checks.
    pub(crate) unseen: bool,
    pub(crate) meddled: u64,
    /// The last agent met a rate limit.
    pub(crate) limited: bool,
    /// Of each commit by its id, whether it came from outside.
    pub(crate) by_others: BTreeMap<String, bool>,
    pub(crate) failures: u64,
    pub(crate) starts: Vec<Start>,
    /// Changes of the repository, and their number at each stall check.
    pub(crate) changes: u64,
    pub(crate) looks: Vec<u64>,
    /// Removed abandoned locks.
    pub(crate) unlocked: u64,
    pub(crate) stories: Vec<bool>,
    /// Signals of this life, and how many came since its start or the last resume.
    pub(crate) signals: Vec<(Signal, u32)>,
    /// Requests that a person has sent and the run has not acknowledged, and the number of the last one.
    pub(crate) mailbox: Vec<(u64, Request)>,
    pub(crate) last_request: u64,
    /// All guidance, with whether it is for every prompt.
    pub(crate) sent: BTreeMap<u64, bool>,
    /// The last request to drop guidance that was acknowledged.
    pub(crate) cleared: u64,
    pub(crate) journal: Vec<u8>,
    /// The entries read so far, with the end of each line. The journal only grows.
    pub(crate) entries: Vec<(usize, Entry<'static>)>,
    /// A write failed, so more may have been shown than recorded.
    pub(crate) refused: bool,
    /// A write failed in this life or before.
    pub(crate) has_holes: bool,
    /// The first violation.
    pub(crate) violation: Option<String>,
}

impl Truth {
    /// A person sends something that survives a kill.
    pub(crate) fn send(&mut self, request: impl FnOnce(u64) -> Request) {
        self.last_request += 1;
        let request = request(self.last_request);
        if let Request::Tell { every, .. } = request {
            self.sent.insert(self.last_request, every);
        }
        self.mailbox.push((self.last_request, request));
    }

    pub(crate) fn acknowledge(&mut self, number: u64) {
        for (number, request) in self.mailbox.extract_if(.., |(sent, _)| *sent <= number) {
            if request == Request::ClearGuidance {
                self.cleared = number;
            }
        }
    }

    pub(crate) fn violated(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    /// The state of the run by the entries read so far.
    pub(crate) fn state(&self) -> RunState {
        let mut state = RunState::default();
        self.entries.iter().for_each(|(_, entry)| state.apply(entry));
        state
    }

    /// Reads new complete lines and returns their end.
    pub(crate) fn read(&mut self) -> usize {
        let mut end = self.entries.last().map_or(0, |(end, _)| *end);
        for line in self.journal.get(end..).unwrap_or_default().split_inclusive(|it| *it == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            end += line.len();
            let entry = serde_json::from_slice(line).expect("every complete line is an event");
            self.entries.push((end, entry));
        }
        end
    }
}

/// The part of an event that the checks need.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    RunStarted,
    IterationStarted { number: u32, most: u32 },
    AgentStarted { purpose: Purpose },
    Used { cost: f64, tokens: u64 },
    AgentEnded { purpose: Purpose, class: Class, cost: f64, tokens: u64, has_message: bool },
    GuardrailEnded { passed: bool },
    Feedback { parts: usize, failures: Vec<u64> },
    Retrying { failures: u32 },
    IterationEnded { cut_off: bool, complete: bool },
    RunEnded { outcome: Outcome, iterations: u32 },
}

pub(crate) fn facts(entries: &[(usize, Entry<'_>)]) -> Vec<(usize, Fact)> {
    entries.iter().filter_map(|(end, entry)| Some((*end, fact(entry)?))).collect()
}

fn fact(entry: &Entry<'_>) -> Option<Fact> {
    Some(match &entry.event {
        Event::RunStarted { .. } => Fact::RunStarted,
        Event::IterationStarted { max_iterations } => {
            Fact::IterationStarted { number: entry.at.iteration, most: *max_iterations }
        }
        Event::AgentStarted { purpose, .. } => Fact::AgentStarted { purpose: *purpose },
        Event::Usage(usage) | Event::Result { usage: Some(usage), .. } => {
            Fact::Used { cost: usage.cost_usd.unwrap_or(0.0), tokens: usage.total_tokens() }
        }
        Event::AgentEnded { purpose, class, usage, commit_message, .. } => Fact::AgentEnded {
            purpose: *purpose,
            class: *class,
            has_message: commit_message.is_some(),
            cost: usage.cost_usd.unwrap_or(0.0),
            tokens: usage.total_tokens(),
        },
        // A guardrail that ralph ended has not failed.
        Event::GuardrailEnded { exit: Some(Exit::Signal(_)), timed_out: false, .. } => return None,
        Event::GuardrailEnded { passed, .. } => Fact::GuardrailEnded { passed: *passed },
        Event::FeedbackSet { parts } => {
            let failures = parts.iter().flat_map(|part| numbers(&part.message)).collect();
            Fact::Feedback { parts: parts.len(), failures }
        }
        Event::Retrying { failures, .. } => Fact::Retrying { failures: *failures },
        Event::IterationEnded { cut_off, complete, .. } => {
            Fact::IterationEnded { cut_off: *cut_off, complete: *complete }
        }
        Event::RunEnded { outcome, iterations, .. } => {
            Fact::RunEnded { outcome: *outcome, iterations: *iterations }
        }
        _ => return None,
    })
}

/// The numbers of the guardrail failures in a text.
pub(crate) fn numbers(text: &str) -> Vec<u64> {
    numbers_after(text, "failure#")
}

/// The numbers after a mark.
pub(crate) fn numbers_after(text: &str, mark: &str) -> Vec<u64> {
    let parts = text.split(mark).skip(1);
    parts
        .filter_map(|part| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect()
}
