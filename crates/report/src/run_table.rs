//! `ralph runs`: past runs, one line each.

use jiff::tz::TimeZone;
use serde::Serialize;

use super::width;
use crate::state_word::{StateWord, end_cause};
use crate::table::{self, Column};
use crate::time_text::format_local;
use ralph_events::event::{Outcome, Usage};
use ralph_events::journal;
use ralph_events::json_writer;
use ralph_events::run_state::{Cost, RunState};
use ralph_events::text;

#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The name of its directory: the journal may have lost it.
    pub id: String,
    pub run: RunState,
    /// The process of the run is alive.
    pub running: bool,
}

impl RunRow {
    fn state(&self) -> StateWord {
        StateWord::of(&self.run, self.running)
    }

    fn state_label(&self) -> String {
        self.state().with_cause(self.run.outcome().and_then(end_cause))
    }

    fn duration_ms(&self, now_ms: i64) -> u64 {
        self.run.duration_ms(self.running.then_some(now_ms))
    }
}

/// Completes "Resumed after …".
pub(super) fn continued_after_text(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        None => "a crash",
        Some(Outcome::Complete | Outcome::CompleteScmFailed) => "completion",
        Some(Outcome::LimitReached) => "the iteration limit",
        Some(Outcome::Interrupted) => "you stopped it",
        Some(Outcome::Budget) => "a used-up budget",
        Some(Outcome::Stalled) => "a stall",
        Some(Outcome::AgentFailed) => "repeated agent failures",
        Some(Outcome::CredentialsRefused) => "refused credentials",
        Some(Outcome::PromptMissing) => "a missing prompt",
        Some(Outcome::InternalError) => "an internal error",
    }
}

const COLUMNS: [Column; 9] = [
    Column::left("RUN", 0),
    Column::left("STARTED", 2),
    Column::left("COMMAND", 4),
    Column::left("AGENT", 5),
    Column::left("STATE", 0),
    Column::right("ITERATIONS", 3),
    Column::right("TIME", 1),
    Column::right("COST", 1),
    Column::right("TOKENS", 6),
];

/// Formats the list as aligned columns, at most `room` columns wide.
pub fn table(rows: &[RunRow], zone: &TimeZone, now_ms: i64, room: Option<usize>) -> String {
    let cells: Vec<_> = rows.iter().map(|row| cells(row, zone, now_ms)).collect();
    table::format(COLUMNS, &cells, room)
}

fn cells(row: &RunRow, zone: &TimeZone, now_ms: i64) -> [String; COLUMNS.len()] {
    let run = &row.run;
    let info = &run.info;
    let clean = |text: &str| width::one_line(text, 60, "...");
    [
        clean(&row.id),
        started(run.clock.started_ms, zone),
        clean(&info.command),
        clean(&info.agent),
        row.state_label(),
        match info.max_iterations {
            0 => run.totals.iteration.to_string(),
            max => format!("{}/{max}", run.totals.iteration),
        },
        text::format_duration(row.duration_ms(now_ms)),
        cost_text(run.cost()).unwrap_or_else(|| "-".to_owned()),
        match run.usage().total_tokens() {
            0 => "-".to_owned(),
            tokens => text::format_count(tokens),
        },
    ]
}

/// Formats a cost; `~$2.50` if part of it is an estimate.
pub fn cost_text(cost: Cost) -> Option<String> {
    let estimated = cost.estimated.map(|dollars| format!("~{}", text::format_dollars(dollars)));
    estimated.or_else(|| cost.reported.map(text::format_dollars))
}

fn started(ms: Option<i64>, zone: &TimeZone) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format_local(ms, zone, "%Y-%m-%d %H:%M"))
}

/// Notes below the list about damaged journals.
pub fn damage_notes(rows: &[RunRow]) -> String {
    let note = |RunRow { id, run, .. }: &RunRow| {
        let damage = journal::unreadable_message(run.unreadable)?;
        Some(format!("run {id}: {damage}; its figures may be too low\n"))
    };
    rows.iter().filter_map(note).collect()
}

/// A row of `ralph runs --json`.
#[derive(Debug, Serialize)]
struct RunJsonRow<'a> {
    id: &'a str,
    started_ms: Option<i64>,
    command: &'a str,
    directory: &'a str,
    agent: &'a str,
    state: StateWord,
    outcome: Option<Outcome>,
    exit_code: Option<u8>,
    message: &'a str,
    iterations: u32,
    max_iterations: u32,
    duration_ms: u64,
    #[serde(flatten)]
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "is_zero")]
    unreadable_lines: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
pub(super) fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Formats the list as JSON, one object per line.
pub fn json(rows: &[RunRow], now_ms: i64) -> String {
    let mut out = String::new();
    for row in rows {
        let run = &row.run;
        let (info, end) = (&run.info, run.end.as_ref());
        let line = json_writer::compact(&RunJsonRow {
            id: &row.id,
            started_ms: run.clock.started_ms,
            command: &info.command,
            directory: &info.directory,
            agent: &info.agent,
            state: row.state(),
            outcome: end.map(|end| end.outcome),
            exit_code: end.map(|end| end.exit_code),
            message: end.map_or("", |end| &end.message),
            iterations: run.totals.iteration,
            max_iterations: info.max_iterations,
            duration_ms: row.duration_ms(now_ms),
            usage: run.usage(),
            estimated_cost_usd: run.cost().estimated,
            unreadable_lines: run.unreadable,
        });
        // Plain data cannot fail to serialize.
        out.push_str(&line.unwrap_or_default());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_events::run_started;
    use ralph_events::event::{Entry, Event, Purpose, Stamp, WaitReason};
    use ralph_events::run_state::Activity;

    fn fold(lines: impl Iterator<Item = &'static str>) -> RunState {
        let mut run = RunState::default();
        for line in lines {
            run.apply(&serde_json::from_str(line).unwrap());
        }
        run
    }

    fn journal() -> impl Iterator<Item = &'static str> {
        include_str!("testdata/run.jsonl").lines()
    }

    fn row(run: RunState, running: bool) -> RunRow {
        RunRow { id: run.info.run.clone(), run, running }
    }

    #[test]
    fn run_list_uses_one_word_per_state_and_names_causes() {
        let unfinished = fold(journal().take(3));
        assert_eq!(row(unfinished.clone(), true).state_label(), "working");
        assert_eq!(row(unfinished.clone(), false).state_label(), "interrupted");
        assert_eq!(row(fold(journal()), true).state_label(), "complete");
        let label = |outcome| {
            let mut ended = fold(journal());
            ended.end.as_mut().unwrap().outcome = outcome;
            row(ended, false).state_label()
        };
        assert_eq!(label(Outcome::LimitReached), "ended (iteration limit)");
        assert_eq!(label(Outcome::Stalled), "failed (no progress)");
        for (activity, word) in [
            (Activity::Paused { since_ms: 1 }, "paused"),
            (Activity::Waiting { reason: WaitReason::RateLimit, until_ms: 1 }, "waiting"),
        ] {
            let mut run = unfinished.clone();
            run.activity = activity;
            assert_eq!(row(run, true).state_label(), word);
        }
    }

    #[test]
    fn unknown_run_facts_are_listed_as_unknown() {
        let lost = row(fold(journal().skip(1)), false);
        let table = table(std::slice::from_ref(&lost), &TimeZone::UTC, 0, None);
        assert!(!table.contains("1970"), "{table}");
        assert_eq!(lost.run.clock.started_ms, None);
        let whole = fold(journal()).duration_ms(None);
        assert!(whole - lost.run.duration_ms(None) < 2_000, "{whole}: {table}");
        assert!(json(&[lost], 0).contains("\"started_ms\":null"));

        let usage = Usage { output_tokens: 100_000, ..Usage::default() };
        let entry = |event| Entry { at: Stamp { time_ms: 1, iteration: 1, attempt: 1 }, event };
        let mut guessed = RunState::default();
        guessed.apply(&entry(Event::AgentStarted {
            purpose: Purpose::Work,
            pid: 2,
            argv: Vec::new(),
        }));
        guessed.apply(&entry(Event::Usage(usage)));
        let rows = [row(guessed, true)];
        let table = super::table(&rows, &TimeZone::UTC, 0, None);
        assert!(table.contains(" ~$2.50 "), "{table}");
        assert!(json(&rows, 0).contains("\"estimated_cost_usd\":2.5"), "{}", json(&rows, 0));
    }

    #[test]
    fn run_list_counts_usage_of_interrupted_attempt() {
        let cut = fold(journal().take_while(|line| !line.contains("agent_ended")));
        assert_eq!(cut.usage().cost_usd, Some(0.31));
        let resumed = fold(
            journal()
                .take_while(|line| !line.contains("agent_ended"))
                .chain([
                    r#"{"time":"2026-11-15T20:36:39.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"/p","pid":1,"agent":"claude","prompt":"","completion":"","max_iterations":5}"#,
                    r#"{"time":"2026-11-15T20:36:39.000Z","iteration":1,"attempt":1,"event":"agent_started","purpose":"work","pid":2,"argv":[]}"#,
                    r#"{"time":"2026-11-15T20:36:40.000Z","iteration":1,"attempt":1,"event":"usage","cost_usd":1.0,"input_tokens":1,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}"#,
                ]),
        );
        assert_eq!(resumed.usage().cost_usd, Some(1.31));
        assert_eq!(
            resumed.duration_ms(None),
            cut.duration_ms(None) + 1000,
            "the pause between is not the run's time"
        );
    }

    #[test]
    fn run_list_counts_unreadable_lines_and_keeps_totals() {
        let whole = include_str!("testdata/run.jsonl");
        let damaged: String = whole
            .split_inclusive('\n')
            .map(|line| if line.contains("agent_ended") { "nonsense\n" } else { line })
            .collect();
        let summary = RunState::read(journal::entries(damaged.as_bytes()));
        // The order of a sum changes its last digits.
        let rounded = |usage: Usage| Usage {
            cost_usd: usage.cost_usd.map(|cost| (cost * 1e9).round() / 1e9),
            ..usage
        };
        let (known, whole_usage) = (rounded(summary.usage()), rounded(fold(journal()).usage()));
        assert_eq!(known, whole_usage, "the last event has the total");
        let lost = whole.matches("agent_ended").count() as u64;
        assert_eq!(summary.unreadable, lost);
        assert!(
            damage_notes(&[row(summary, false)]).contains("lines of the journal cannot be read")
        );
        assert_eq!(damage_notes(&[row(fold(journal()), false)]), "");
    }

    #[test]
    fn run_list_counts_usage_of_result_before_agent_ends() {
        let result = r#"{"time":"2026-11-15T20:36:40.000Z","iteration":1,"attempt":1,"event":"result","usage":{"cost_usd":1.5,"input_tokens":1,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0}}"#;
        let cut = fold(journal().take_while(|line| !line.contains("agent_ended")).chain([result]));
        assert_eq!(cut.usage().cost_usd, Some(1.5));
    }

    #[test]
    fn run_list_columns_are_aligned_and_fit_width() {
        let rows = [row(fold(journal()), false), row(fold(journal().take(3)), true)];
        let now = 1_794_774_472_000 + 3_600_000;
        let whole = table(&rows, &TimeZone::UTC, now, None);
        assert_eq!(
            whole,
            "\
RUN              STARTED           COMMAND  AGENT   STATE     ITERATIONS  TIME   COST  TOKENS
20261115-202752  2026-11-15 20:27  run      claude  complete        2/10  9m1s  $6.10    1.2M
20261115-202752  2026-11-15 20:27  run      claude  working         1/10  1h0m      -       -
"
        );
        for room in 0..100 {
            for line in table(&rows, &TimeZone::UTC, now, Some(room)).lines() {
                assert!(width::display_width(line) <= room, "{room}: {line}");
            }
        }
        assert_eq!(
            table(&rows[..1], &TimeZone::UTC, now, Some(60)),
            "\
RUN              STARTED           STATE     TIME   COST
20261115-202752  2026-11-15 20:27  complete  9m1s  $6.10
"
        );
    }

    #[test]
    fn run_duration_excludes_pauses() {
        let mut run = RunState::default();
        let mut at = |seconds: i64, event: Event<'static>| {
            let at = Stamp { time_ms: 1_000_000 + seconds * 1_000, iteration: 1, attempt: 1 };
            run.apply(&Entry { at, event });
            run.duration_ms(Some(1_000_000 + 500_000)) / 1_000
        };
        assert_eq!(at(0, run_started()), 500);
        assert_eq!(at(10, Event::Paused), 10);
        assert_eq!(at(110, Event::Resumed { max_iterations: 5 }), 400);
        assert_eq!(at(120, Event::Paused), 20);
        // Another process resumes the run.
        assert_eq!(at(300, run_started()), 220);
    }

    #[test]
    fn run_list_prints_json_rows() {
        let json = json(&[row(fold(journal()), false)], 0);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["state"], "complete");
        assert_eq!(value["exit_code"], 0);
        assert_eq!(value["iterations"], 2);
        assert!(json.ends_with("}\n"));
    }
}
