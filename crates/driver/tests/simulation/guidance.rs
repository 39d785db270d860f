//! Promises about what a person says to a run, and what its agents ask.

use std::collections::{BTreeMap, BTreeSet};

use ralph_driver::run_spec::RunSpec;
use ralph_engine::rules::QuestionMode;
use ralph_events::event::{Entry, Event, Purpose};

use crate::truth::{Truth, numbers_after};

/// What the journal says about guidance and answers, up to an entry.
#[derive(Default)]
struct Said {
    /// What was received, in order, with what is left of it.
    guidance: Vec<(u64, bool)>,
    /// The answers, by the question.
    answers: BTreeMap<String, u64>,
    asked: BTreeSet<String>,
    /// Guidance and answers that finished iterations have carried.
    used: BTreeSet<u64>,
    used_answers: BTreeSet<u64>,
    /// Carried by the agents of the open iteration.
    carried: Vec<u64>,
    carried_answers: Vec<u64>,
    is_parked: bool,
}

/// Only for a journal without holes.
pub(crate) fn check(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    let mut said = Said::default();
    let mut starts = truth.starts.iter().peekable();
    for (end, entry) in &truth.entries {
        // A start is recorded after it happened.
        while let Some(start) = starts.next_if(|start| start.journal < *end) {
            if start.purpose == Purpose::Work {
                said.started(&start.guidance, &start.answers)?;
            }
        }
        said.read(spec, entry)?;
    }
    lost(truth, &said)
}

impl Said {
    /// A prompt carries all guidance that no finished iteration had, in order, and nothing else.
    fn started(&mut self, guidance: &[u64], answers: &[u64]) -> Result<(), String> {
        let due = self.guidance.iter().filter(|(id, every)| *every || !self.used.contains(id));
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        if due != guidance {
            return Err(format!("a prompt with guidance {guidance:?}, not {due:?}"));
        }
        let is_missing =
            |answer: &&u64| !self.used_answers.contains(*answer) && !answers.contains(answer);
        if let Some(missing) = self.answers.values().find(is_missing) {
            return Err(format!("a prompt without answer {missing}"));
        }
        self.carried.extend(guidance);
        self.carried_answers.extend(answers);
        Ok(())
    }

    fn read(&mut self, spec: &RunSpec, entry: &Entry<'_>) -> Result<(), String> {
        match &entry.event {
            Event::GuidanceReceived { text, every, .. } => {
                let number = numbers_after(text, "guidance#").pop().unwrap_or_default();
                let is_known = self.guidance.iter().any(|(known, _)| *known == number);
                if is_known || self.used.contains(&number) {
                    return Err(format!("guidance {number} was received twice"));
                }
                if self.guidance.last().is_some_and(|(last, _)| *last > number) {
                    return Err(format!("guidance {number} was received after a later one"));
                }
                self.guidance.push((number, *every));
            }
            Event::GuidanceCleared => self.guidance.clear(),
            Event::QuestionAsked { id, .. } => {
                if !self.asked.insert(id.to_string()) {
                    return Err(format!("question {id} was asked twice"));
                }
                if spec.rules.questions == QuestionMode::Off {
                    return Err("a question though they are off".to_owned());
                }
            }
            Event::QuestionAnswered { id, text } => {
                let number = numbers_after(text, "answer#").pop().unwrap_or_default();
                if self.answers.insert(id.to_string(), number).is_some() {
                    return Err(format!("question {id} was answered twice"));
                }
            }
            Event::RunStarted { .. } => self.is_parked = false,
            Event::IterationStarted { .. } => {
                self.carried.clear();
                self.carried_answers.clear();
                let waits = spec.rules.questions == QuestionMode::Wait && !spec.rules.gates;
                let open = self.asked.iter().find(|id| !self.answers.contains_key(*id));
                if let Some(open) = open.filter(|_| waits) {
                    return Err(format!("an iteration began before {open} was answered"));
                }
            }
            Event::IterationEnded { cut_off: false, guardrails_passed: Some(_), .. } => {
                self.used.extend(self.carried.drain(..));
                self.used_answers.extend(self.carried_answers.drain(..));
            }
            Event::Parked => self.is_parked = true,
            Event::Unparked => self.is_parked = false,
            Event::AgentStarted { .. }
            | Event::GuardrailStarted { .. }
            | Event::ScmStarted { .. }
                if self.is_parked =>
            {
                return Err("something was started while the run is parked".to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

/// What a person has sent is in the journal, or still waits in the queue.
fn lost(truth: &Truth, said: &Said) -> Result<(), String> {
    let received: BTreeSet<u64> = truth
        .entries
        .iter()
        .filter_map(|(_, entry)| match &entry.event {
            Event::GuidanceReceived { text, .. } => numbers_after(text, "guidance#").pop(),
            _ => None,
        })
        .collect();
    let waits = |number: &u64| truth.mailbox.iter().any(|(waiting, _)| waiting == number);
    let is_lost = |number: &&u64| !received.contains(*number) && !waits(number);
    match truth.sent.keys().find(is_lost) {
        Some(lost) => Err(format!("guidance {lost} was lost, of {:?}", said.guidance)),
        None => Ok(()),
    }
}
