//! What really happened in the simulated world, whatever the engine makes of it, and what of it was
//! recorded and shown.

use ralph_events::event::{Class, Entry, Event, Exit, Outcome, Purpose};
use ralph_process::Signal;

/// One agent that was started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) purpose: Purpose,
    /// What it was told of earlier failures, by their numbers, in order.
    pub(crate) told: Vec<u64>,
    /// How much of the journal there was at that moment.
    pub(crate) journal: usize,
}

/// What the engine cannot see directly, or could get wrong.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// The last agent that worked said in its own words that it is done, and came to its end.
    pub(crate) claimed: bool,
    /// How each guardrail ended since an agent worked last, or since they were begun anew by a process that
    /// went on: its place, and whether it passed.
    pub(crate) checks: Vec<(usize, bool)>,
    /// A process has gone on, and has not run the first of them yet.
    pub(crate) goes_on: bool,
    /// Something is there that was not committed.
    pub(crate) dirty: bool,
    /// Commits so far, and files that are not staged.
    pub(crate) commits: u64,
    pub(crate) beside: u64,
    /// An agent that was asked for a commit message has changed something since the checks, and how often one did.
    pub(crate) unseen: bool,
    pub(crate) meddled: u64,
    /// The numbers of guardrail failures so far.
    pub(crate) failures: u64,
    pub(crate) starts: Vec<Start>,
    /// Changes of the repository so far, and how many there were whenever it was looked at.
    pub(crate) changes: u64,
    pub(crate) looks: Vec<u64>,
    /// How often a lock was removed that a git had left behind.
    pub(crate) unlocked: u64,
    /// Stories that pass, if there are any.
    pub(crate) stories: Vec<bool>,
    /// Signals of this life, and how many came since its start or the last resume.
    pub(crate) signals: Vec<(Signal, u32)>,
    /// The journal as it is on the disk.
    pub(crate) journal: Vec<u8>,
    /// What it holds, with where each line ends, as far as it was read. It only grows, so that nothing is
    /// read twice.
    pub(crate) entries: Vec<(usize, Entry<'static>)>,
    /// Something could not be written, so that more may have been shown than is there.
    pub(crate) refused: bool,
    /// That happened in this life or before it.
    pub(crate) has_holes: bool,
    /// The first thing that must never happen and did.
    pub(crate) violation: Option<String>,
}

impl Truth {
    pub(crate) fn violated(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    /// Reads what is new in the journal, up to its last whole line, and tells where that ends.
    pub(crate) fn read(&mut self) -> usize {
        let mut end = self.entries.last().map_or(0, |(end, _)| *end);
        for line in self.journal.get(end..).unwrap_or_default().split_inclusive(|it| *it == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            end += line.len();
            let entry = serde_json::from_slice(line).expect("every whole line is an event");
            self.entries.push((end, entry));
        }
        end
    }
}

/// What is looked at of an event once a history is over.
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

/// The facts of a journal, with where each line ends.
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
        // One that ralph ended for its own reasons has not failed.
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

/// The numbers of the guardrail failures that a text tells of.
pub(crate) fn numbers(text: &str) -> Vec<u64> {
    let parts = text.split("failure#").skip(1);
    parts
        .filter_map(|part| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect()
}
