//! Every face of a run shows the same cost, tokens, iteration, duration and outcome, wherever its journal is cut:
//! `ralph runs`, `ralph report`, the cards of the live screens, the terminal's status line, a worker's `state.json`, and what `notify.command` gets.
//! A screen that saw a run die and come back shows what one shows that was opened later.

mod random;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Value, json};

use ralph_driver::notify_command;
use ralph_events::event::{Entry, Event};
use ralph_events::journal::{self, LineEncoder};
use ralph_events::run_state::{Cost, RunState};
use ralph_events::text;
use ralph_report::run_card::{BarResult, CardContext, RunCard};
use ralph_report::run_table::{self, RunRow, cost_text};
use ralph_report::status_line::StatusLine;
use ralph_report::summary::Summary;
use ralph_report::worker_lines::{WorkerState, WorkerTracker};

use crate::history;

/// Time between the last entry and the look at a view.
const LATER_MS: i64 = 12_345;

/// The figures that all faces show.
#[derive(Debug, Clone, PartialEq)]
struct Figures {
    cost: Option<String>,
    tokens: u64,
    iteration: u64,
    duration_ms: u64,
    outcome: Value,
}

impl Figures {
    /// Those of a JSON object that has the usage of the run among its fields.
    fn of_json(value: &Value, iteration: u64) -> Figures {
        let dollars = |name: &str| value[name].as_f64();
        let cost = Cost { reported: dollars("cost_usd"), estimated: dollars("estimated_cost_usd") };
        let tokens = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
        Figures {
            cost: cost_text(cost),
            tokens: tokens.iter().filter_map(|name| value[name].as_u64()).sum(),
            iteration,
            duration_ms: value["duration_ms"].as_u64().expect("a duration"),
            outcome: value["outcome"].clone(),
        }
    }

    fn of_report(report: &Value) -> Figures {
        let iterations = report["iterations"].as_array().expect("a list");
        let numbers = iterations.iter().filter_map(|iteration| iteration["number"].as_u64());
        Figures::of_json(report, numbers.max().unwrap_or(0))
    }
}

/// All faces of one run.
struct Faces {
    state: RunState,
    /// Of a screen that followed the run from its start.
    followed: RunState,
    live: RunState,
    worker: WorkerTracker,
    status: StatusLine,
    last_ms: i64,
    clock_set_back: bool,
}

impl Faces {
    fn new() -> Faces {
        Faces {
            state: RunState::default(),
            followed: RunState::default(),
            live: RunState::live(),
            worker: WorkerTracker::new(WorkerState::default(), TimeZone::UTC),
            status: StatusLine::ascii(|| TimeZone::UTC),
            last_ms: i64::MIN,
            clock_set_back: false,
        }
    }

    fn take(&mut self, entry: &Entry<'_>, next: Option<&Entry<'_>>) {
        if let (Event::RunStarted { .. }, Some(Event::RunContinued { duration_ms, .. })) =
            (&entry.event, next.map(|next| &next.event))
        {
            self.follow_to_death(*duration_ms);
        }
        self.followed.apply(entry);
        self.state.apply(entry);
        self.live.apply(entry);
        self.worker.apply(entry.at, &entry.event, &self.live);
        self.status.update(entry.at.time_ms, &self.live);
        self.clock_set_back |= entry.at.time_ms < self.last_ms;
        self.last_ms = entry.at.time_ms;
    }

    /// The screen knew from files what the journal learns from the resume: how long the run worked after its last entry.
    fn follow_to_death(&mut self, duration_ms: u64) {
        let unrecorded = duration_ms.saturating_sub(self.followed.duration_ms(None));
        let unrecorded = i64::try_from(unrecorded).expect("a short time");
        self.followed.alive_at(self.last_ms + unrecorded);
    }

    /// Compares the faces after `entry`, while the run is alive or after its process was killed.
    fn check(&mut self, entry: &Entry<'_>, alive: bool) -> Result<(), TestCaseError> {
        let now_ms = self.last_ms + LATER_MS;
        let now = alive.then_some(now_ms);
        let row = RunRow { id: "r".to_owned(), run: self.state.clone(), running: alive };
        let runs: Value = serde_json::from_str(&run_table::json(&[row], now_ms)).expect("JSON");
        let iteration = runs["iterations"].as_u64().expect("a number");
        let expected = Figures::of_json(&runs, iteration);

        let summary = Summary::of(&self.state, now);
        let report = serde_json::to_value(&summary).expect("plain data");
        prop_assert_eq!(&Figures::of_report(&report), &expected, "report");
        let payload = notify_command::payload(entry.at, &entry.event, &summary, false);
        let payload: Value = serde_json::from_slice(&payload).expect("JSON");
        prop_assert_eq!(&Figures::of_report(&payload["report"]), &expected, "notify.command");
        let card = self.check_card(&expected, &runs["state"], alive)?;
        let durations: Vec<u64> = card.bars.iter().map(|bar| bar.duration_ms).collect();
        let reported: Vec<u64> =
            summary.iterations.iter().map(|it| it.record.duration_ms).collect();
        prop_assert_eq!(durations, reported, "time of each iteration, alive: {}", alive);
        if let Event::RunEnded { .. } = entry.event {
            prop_assert_eq!(&payload["duration_ms"], &json!(expected.duration_ms));
            prop_assert_eq!(&payload["outcome"], &expected.outcome);
        }
        if alive {
            self.check_state_file(&expected, now_ms)?;
            self.check_status_line(&expected, now_ms)?;
        }
        Ok(())
    }

    fn check_card(
        &self,
        expected: &Figures,
        state: &Value,
        alive: bool,
    ) -> Result<RunCard, TestCaseError> {
        let card = self.card(&self.state, alive);
        prop_assert_eq!(&json!(card.state), state, "card");
        let outcome = self.state.outcome();
        let figures = Figures {
            cost: cost_text(card.cost),
            tokens: card.tokens,
            iteration: u64::from(card.iteration),
            duration_ms: card.elapsed_ms,
            outcome: json!(outcome),
        };
        prop_assert_eq!(&figures, expected, "card");
        prop_assert_eq!(card.bars.len(), self.state.iterations.len(), "bars");
        let is_over = outcome.is_some() || !alive;
        let running = card.bars.iter().filter(|bar| bar.result == BarResult::Running).count();
        prop_assert!(running <= usize::from(!is_over), "{:?}", card.bars);
        Ok(card)
    }

    fn card(&self, state: &RunState, is_alive: bool) -> RunCard {
        let context = CardContext {
            id: "r",
            project: "p",
            fallback_name: None,
            is_alive,
            is_removed: false,
            reading: None,
            now_ms: self.last_ms + LATER_MS,
            zone: &TimeZone::UTC,
        };
        RunCard::of(state, &context)
    }

    fn check_followed(&self) -> Result<(), TestCaseError> {
        // Signs of life and entries cannot be compared then.
        if self.clock_set_back {
            return Ok(());
        }
        for is_alive in [true, false] {
            let [followed, opened] =
                [&self.followed, &self.state].map(|state| self.card(state, is_alive));
            prop_assert_eq!(followed, opened, "followed and opened, alive: {}", is_alive);
        }
        Ok(())
    }

    fn check_state_file(&self, expected: &Figures, now_ms: i64) -> Result<(), TestCaseError> {
        let state = &self.worker.state;
        prop_assert_eq!(&cost_text(state.cost()), &expected.cost, "state.json");
        prop_assert_eq!(u64::from(state.current_iteration), expected.iteration, "state.json");
        // The outcome of an interrupted worker is open, since it can be resumed.
        let interrupted = expected.outcome == "interrupted";
        let ended = state.outcome.is_some() || state.ended.is_some() && interrupted;
        prop_assert_eq!(ended, !expected.outcome.is_null(), "state.json");
        let now = jiff::Timestamp::from_millisecond(now_ms).expect("a time");
        let now = TimeZone::UTC.to_datetime(now);
        // The file has times of the wall clock, and its first one if the journal lost the start of the run.
        let by_wall_clock = WorkerState { paused_ms: 0, ..state.clone() };
        if !self.clock_set_back
            && let Some(most_ms) = by_wall_clock.elapsed_ms(now)
        {
            let duration_ms = expected.duration_ms.min(most_ms);
            prop_assert_eq!(state.elapsed_ms(now), Some(duration_ms), "state.json");
        }
        Ok(())
    }

    fn check_status_line(&mut self, expected: &Figures, now_ms: i64) -> Result<(), TestCaseError> {
        self.status.tick(now_ms);
        let line = self.status.render(1_000).to_owned();
        if !expected.outcome.is_null() {
            prop_assert_eq!(line, "");
            return Ok(());
        }
        let parts: Vec<&str> = line.split(" | ").collect();
        if expected.iteration > 0 {
            let iteration = format!("iteration {}", expected.iteration);
            prop_assert_eq!(parts[0].split('/').next(), Some(iteration.as_str()));
        }
        let shows = |part: &str| parts.contains(&part);
        if let Some(cost) = &expected.cost {
            prop_assert!(shows(cost), "{} lacks {}", line, cost);
        }
        if expected.tokens > 0 {
            let tokens = format!("{} tokens", text::format_count(expected.tokens));
            prop_assert!(shows(&tokens), "{} lacks {}", line, tokens);
        }
        if !self.clock_set_back {
            let seconds = expected.duration_ms / 1_000;
            let duration = match seconds {
                0..60 => format!("{seconds}s"),
                _ => text::format_duration(seconds * 1_000),
            };
            prop_assert!(shows(&duration), "{} lacks {}", line, duration);
        }
        Ok(())
    }
}

/// Checks all faces after every entry. Returns the number of cuts.
fn check(entries: &[Entry<'_>]) -> Result<usize, TestCaseError> {
    let mut faces = Faces::new();
    for (at, entry) in entries.iter().enumerate() {
        faces.take(entry, entries.get(at + 1));
        faces.check(entry, true)?;
        faces.check(entry, false)?;
        // The journal names the working time of a killed process when the next one has started.
        if !matches!(entry.event, Event::RunStarted { .. }) {
            faces.check_followed()?;
        }
        check_live(&faces.state, &faces.live)?;
    }
    check_skimming(entries, &faces.state)?;
    Ok(entries.len())
}

/// A live state knows as much about the whole run, and closing a state twice changes nothing.
fn check_live(state: &RunState, live: &RunState) -> Result<(), TestCaseError> {
    let (mut closed, mut live) = (state.clone(), live.clone());
    closed.close();
    live.close();
    prop_assert_eq!(closed.cost(), live.cost());
    prop_assert_eq!(&closed.resume, &live.resume);
    prop_assert_eq!(&closed.totals, &live.totals);
    let mut again = closed.clone();
    again.close();
    prop_assert_eq!(closed, again);
    Ok(())
}

/// A journal read without its texts gives the state of the whole journal.
fn check_skimming(entries: &[Entry<'_>], state: &RunState) -> Result<(), TestCaseError> {
    let mut lines = LineEncoder::default();
    for entry in entries {
        lines.push(entry.at, &entry.event);
    }
    let mut whole = RunState::default();
    journal::entries(lines.bytes()).for_each(|entry| whole.apply(&entry));
    prop_assert_eq!(&RunState::read(journal::entries(lines.bytes())), &whole);
    prop_assert_eq!(&whole.resume, &state.resume);
    Ok(())
}

#[test]
fn faces_of_recorded_run_agree() {
    let bytes = include_bytes!("../../../report/src/testdata/run.jsonl").as_slice();
    let entries: Vec<_> = journal::entries(bytes).collect();
    assert!(entries.len() > 50);
    check(&entries).unwrap();
}

/// `RALPH_FACES_HISTORIES` asks for more histories.
#[test]
fn faces_of_simulated_runs_agree() {
    let (mut cuts, mut holes) = (0, 0);
    for seed in 0..crate::number("RALPH_FACES_HISTORIES").unwrap_or(150) {
        let journal = history::journal(seed);
        holes += u32::from(journal.has_holes);
        cuts += check(&journal.entries).unwrap_or_else(|err| panic!("seed {seed}: {err}"));
    }
    assert!(holes > 0);
    assert!(cuts > 3_000, "{cuts}");
}

/// `RALPH_FACES_CASES` asks for more cases.
fn config() -> ProptestConfig {
    let cases = crate::number("RALPH_FACES_CASES").unwrap_or(100) as u32;
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn faces_of_random_runs_agree(entries in random::plausible()) {
        check(&entries)?;
    }

    #[test]
    fn faces_of_any_entries_agree(entries in random::arbitrary()) {
        check(&entries)?;
    }
}
