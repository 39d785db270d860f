//! Compares [`RunState`] with the older readers of the journal, at every point where a journal can be cut.
//!
//! The readers differ from `RunState` in these cases, which the comparison leaves out:
//! - sums of floating-point numbers differ in their last digits;
//! - `runs` and `report` measure an unfinished run by the wall clock since its last start, `report` subtracts pauses twice,
//!   and `runs` measures a finished run by the wall clock, too;
//! - `runs` and `report` keep the message of the end before a resume, until the next end;
//! - for `report`, a wait before an iteration lasts until its agent starts, and one before checks until the first
//!   guardrail ends;
//! - `ls` calls a run waiting that has stopped waiting because it was paused, stopped or resumed;
//! - `runs` and `report` ignore a limit of iterations that came with a `resumed`;
//! - `ls` does not count the failure that ended a run if a later attempt of its iteration could not be started;
//! - `ls` counts only what ended attempts reported: no estimates, nothing of an attempt that was cut off;
//! - `report` adds up estimates per iteration, so it misses usage that only the totals of a later entry mention.

mod random;

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::Value;

use ralph_events::event::{Class, Entry, Event, Outcome};
use ralph_events::journal;
use ralph_events::run_state::RunState;
use ralph_report::worker_lines::{KILL_REASON, WorkerOutcome, WorkerState, WorkerTracker};

use crate::history;

/// All readers of one journal.
struct Readers {
    state: RunState,
    live: RunState,
    worker: WorkerTracker,
    /// An attempt was cut off.
    agent_runs: bool,
    attempt_lost: bool,
    killed: bool,
    /// An attempt after the first one of an iteration could not be started.
    start_failed_later: bool,
}

/// Differences by the name of the figure: how many, and an example.
#[derive(Debug, Default)]
struct Differences(BTreeMap<&'static str, (u32, String)>);

impl Differences {
    fn same(&mut self, name: &'static str, old: &impl Debug, new: &impl Debug) {
        let (old, new) = (format!("{old:?}"), format!("{new:?}"));
        if old != new {
            self.0.entry(name).or_insert_with(|| (0, format!("old {old}\nnew {new}"))).0 += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Readers {
    fn new() -> Readers {
        Readers {
            state: RunState::default(),
            live: RunState::live(),
            worker: WorkerTracker::new(WorkerState::default(), TimeZone::UTC),
            agent_runs: false,
            attempt_lost: false,
            killed: false,
            start_failed_later: false,
        }
    }

    fn take(&mut self, entry: &Entry<'_>) {
        self.state.apply(entry);
        self.live.apply(entry);
        self.worker.apply(entry.at, &entry.event);
        match &entry.event {
            Event::RunStarted { .. } => {
                self.attempt_lost |= std::mem::take(&mut self.agent_runs);
            }
            Event::AgentStarted { .. } => self.agent_runs = true,
            Event::AgentEnded { .. } => self.agent_runs = false,
            Event::IterationEnded { class: Class::NotStarted, .. } => {
                self.start_failed_later |= entry.at.attempt > 1;
            }
            Event::StopRequested { signal, .. } => self.killed |= signal == KILL_REASON,
            _ => {}
        }
    }

    fn compare(&self, differences: &mut Differences) {
        let mut closed = self.state.clone();
        closed.close();
        self.compare_worker(&closed, differences);
        self.compare_anything(differences);
    }

    /// Compares what holds for entries in any order.
    fn compare_anything(&self, differences: &mut Differences) {
        let (mut closed, mut live) = (self.state.clone(), self.live.clone());
        closed.close();
        live.close();
        differences.same("live cost", &closed.cost(), &live.cost());
        differences.same("live resume point", &closed.resume, &live.resume);
        let mut again = closed.clone();
        again.close();
        differences.same("closed twice", &closed, &again);
    }

    fn compare_worker(&self, closed: &RunState, differences: &mut Differences) {
        let (old, totals) = (&self.worker.state, &closed.totals);
        let ended = (old.finished_iterations, old.finished_ms, old.cut_off_iterations);
        let new_ended = (totals.iterations_ended, totals.ended_ms, totals.cut_off);
        differences.same("ls: iterations ended", &ended, &new_ended);
        differences.same("ls: open", &old.iteration_open, &totals.iteration_open);
        differences.same("ls: iteration", &old.current_iteration, &totals.iteration);
        differences.same("ls: limit", &old.max_iterations, &closed.info.max_iterations);
        let failures = (old.total_failures, old.consecutive_failures);
        let new_failures = (totals.failures.total, totals.failures.consecutive);
        if !self.start_failed_later {
            differences.same("ls: failures", &failures, &new_failures);
        }
        if self.state.activity.is_waiting() && !self.state.requests.pause {
            differences.same("ls: waiting", &old.waiting, &true);
        }
        let expected = outcome(closed).filter(|it| *it != Outcome::Interrupted || self.killed);
        differences.same("ls: outcome", &old.outcome, &expected.map(worker_outcome));
        if !self.attempt_lost && !self.agent_runs {
            differences.same(
                "ls: cost",
                &rounded(&old.cost_usd),
                &rounded(&closed.cost().reported),
            );
        }
    }
}

fn outcome(state: &RunState) -> Option<Outcome> {
    state.end.as_ref().map(|end| end.outcome)
}

fn worker_outcome(outcome: Outcome) -> WorkerOutcome {
    match outcome {
        Outcome::Complete | Outcome::CompleteScmFailed => WorkerOutcome::Complete,
        Outcome::LimitReached => WorkerOutcome::Limit,
        Outcome::Budget => WorkerOutcome::Budget,
        Outcome::Stalled => WorkerOutcome::Stalled,
        Outcome::Interrupted => WorkerOutcome::Killed,
        Outcome::AgentFailed
        | Outcome::CredentialsRefused
        | Outcome::PromptLost
        | Outcome::Broken => WorkerOutcome::Failed,
    }
}

/// JSON with costs rounded, since the order of a sum changes its last digits.
fn rounded(value: &impl serde::Serialize) -> String {
    fn round(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => {
                let rounded = number.as_f64().map(|cost| (cost * 1e9).round() / 1e9);
                *value = rounded.map_or(Value::Null, Value::from);
            }
            Value::Array(items) => items.iter_mut().for_each(round),
            Value::Object(fields) => fields.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).expect("plain data");
    round(&mut value);
    value.to_string()
}

/// Compares all readers after every entry. Returns the number of cuts.
fn compare(entries: &[Entry<'_>], differences: &mut Differences) -> usize {
    let mut readers = Readers::new();
    for entry in entries {
        readers.take(entry);
        readers.compare(differences);
    }
    entries.len()
}

/// Compares entries that need not be a whole journal with the reader that resumes runs.
fn compare_with_resume(entries: &[Entry<'_>], differences: &mut Differences) {
    let mut readers = Readers::new();
    for entry in entries {
        // The old reader counts an attempt twice whose end is missing.
        let ends = matches!(entry.event, Event::RunEnded { .. } | Event::IterationEnded { .. });
        if ends && readers.agent_runs {
            return;
        }
        readers.take(entry);
        readers.compare_anything(differences);
    }
}

#[test]
fn run_state_of_recorded_run_agrees_with_old_readers() {
    let bytes = include_bytes!("../../../report/src/testdata/run.jsonl").as_slice();
    let entries: Vec<_> = journal::entries(bytes).collect();
    assert!(entries.len() > 50);
    let mut differences = Differences::default();
    compare(&entries, &mut differences);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// `RALPH_FOLD_HISTORIES` asks for more histories.
#[test]
fn run_state_of_simulated_runs_agrees_with_old_readers() {
    let mut differences = Differences::default();
    let (mut cuts, mut holes) = (0, 0);
    let histories = crate::number("RALPH_FOLD_HISTORIES").unwrap_or(150);
    for seed in 0..histories {
        let journal = history::journal(seed);
        if journal.has_holes {
            compare_with_resume(&journal.entries, &mut differences);
            holes += 1;
        } else {
            cuts += compare(&journal.entries, &mut differences);
        }
    }
    eprintln!("{cuts} cuts of {} journals; {holes} more have holes", histories - holes);
    assert!(holes > 0);
    assert!(cuts > 3_000, "{cuts}");
    assert!(differences.is_empty(), "{differences:#?}");
}

/// `RALPH_FOLD_CASES` asks for more cases.
fn config() -> ProptestConfig {
    let cases = crate::number("RALPH_FOLD_CASES").unwrap_or(100) as u32;
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn run_state_of_random_runs_agrees_with_old_readers(entries in random::plausible()) {
        let mut differences = Differences::default();
        compare(&entries, &mut differences);
        prop_assert!(differences.is_empty(), "{differences:#?}");
    }

    #[test]
    fn run_state_of_any_entries_agrees_with_resume(entries in random::arbitrary()) {
        let mut differences = Differences::default();
        compare_with_resume(&entries, &mut differences);
        prop_assert!(differences.is_empty(), "{differences:#?}");
    }
}
