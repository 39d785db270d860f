//! `ralph runs`: past runs, one line each.

use std::fmt::Write;
use std::io::Read;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::width;
use ralph_events::event::{Entry, Event, Outcome, StallReason, Stamp, Usage};
use ralph_events::journal::{self, Entries, Want};
use ralph_events::json_writer;
use ralph_events::spending::Spending;
use ralph_events::text;

/// What is to be known of a run at a glance, folded from its events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    pub id: String,
    pub command: String,
    pub directory: String,
    pub agent: String,
    pub pid: u32,
    /// 0 if its beginning cannot be read.
    pub started_ms: i64,
    /// The last event that is there.
    pub last_ms: i64,
    pub iterations: u32,
    pub max_iterations: u32,
    /// `None` for a run that has not ended, or that was ended before it could say so.
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub message: String,
    /// Lines of its journal that cannot be read, so that all of this may be more.
    pub unreadable: u64,
    /// What ended attempts used.
    spent: Spending,
    /// What the attempt that has not ended has used so far.
    current: Usage,
    /// How long earlier parts of a resumed run took, and when the last part began.
    earlier_ms: i64,
    part_started_ms: i64,
    /// Since when it is paused.
    paused_ms: Option<i64>,
}

impl RunSummary {
    /// Takes all that a journal tells.
    pub fn of<R: Read>(entries: Entries<R>) -> RunSummary {
        let mut run = RunSummary::default();
        let mut entries = entries.filter_kinds(wanted);
        while let Some(entry) = entries.next() {
            run.note_event(entries.take_skipped_stamp());
            run.fold(&entry);
        }
        run.note_event(entries.take_skipped_stamp());
        run.unreadable = entries.unreadable();
        run
    }

    /// Something of which nothing is told but that it was there.
    pub(super) fn note_event(&mut self, at: Option<Stamp>) {
        if let Some(at) = at {
            self.iterations = self.iterations.max(at.iteration);
            if self.part_started_ms == 0 {
                // Where its beginning cannot be read, it began no later than this.
                self.part_started_ms = at.time_ms;
            }
            // A word may follow about those who were told of the end; the run is over by then.
            if self.outcome.is_none() {
                self.last_ms = self.last_ms.max(at.time_ms);
            }
        }
    }

    /// The run is known to have been there at this moment, by something that it wrote elsewhere.
    pub fn note_alive(&mut self, time_ms: i64) {
        if self.outcome.is_none() {
            self.last_ms = self.last_ms.max(time_ms);
        }
    }

    pub fn fold(&mut self, entry: &Entry<'_>) {
        let at = entry.at;
        match &entry.event {
            Event::RunStarted { run, command, directory, pid, agent, max_iterations, .. } => {
                if self.part_started_ms == 0 {
                    self.started_ms = at.time_ms;
                } else {
                    let last = self.paused_ms.take().unwrap_or(self.last_ms);
                    self.earlier_ms += last - self.part_started_ms;
                }
                self.part_started_ms = at.time_ms;
                self.id = run.as_ref().to_owned();
                self.command = command.as_ref().to_owned();
                self.directory = directory.as_ref().to_owned();
                self.agent = agent.as_ref().to_owned();
                self.pid = *pid;
                self.max_iterations = *max_iterations;
                // A run that was resumed has not ended after all.
                self.outcome = None;
                self.exit_code = None;
                self.settle();
            }
            Event::IterationStarted { max_iterations } => {
                self.max_iterations = *max_iterations;
            }
            Event::Usage(usage) | Event::Result { usage: Some(usage), .. } => self.current = *usage,
            Event::AgentEnded { usage, .. } => {
                self.spent.end_attempt(usage);
                self.current = Usage::default();
            }
            Event::RunContinued { usage, duration_ms, .. } => {
                self.spent.at_least(usage);
                let before = i64::try_from(*duration_ms).unwrap_or(i64::MAX);
                self.earlier_ms = self.earlier_ms.max(before);
            }
            Event::Paused => self.paused_ms = Some(at.time_ms),
            Event::Resumed { .. } => self.end_pause(at.time_ms),
            Event::RunEnded { outcome, exit_code, message, usage, .. } => {
                self.end_pause(at.time_ms);
                self.settle();
                self.spent.at_least(usage);
                self.outcome = Some(*outcome);
                self.exit_code = Some(*exit_code);
                self.message = message.as_ref().to_owned();
            }
            _ => {}
        }
        self.note_event(Some(at));
        if let Event::RunEnded { .. } = entry.event {
            self.last_ms = self.last_ms.max(at.time_ms);
        }
    }

    /// A pause is no time of the run's.
    fn end_pause(&mut self, now_ms: i64) {
        if let Some(since_ms) = self.paused_ms.take() {
            self.part_started_ms += (now_ms - since_ms).max(0);
        }
    }

    /// An attempt whose end was not recorded has used what it told before.
    fn settle(&mut self) {
        let current = std::mem::take(&mut self.current);
        self.spent.end_attempt(&current);
    }

    /// Everything that the run has used.
    pub fn usage(&self) -> Usage {
        let mut usage = self.spent.reported();
        usage.add(&self.current);
        usage
    }

    /// Its cost with a guess at what was not told, as budgets count it; nothing if all of it was told.
    pub fn estimated_cost_usd(&self) -> Option<f64> {
        let mut spent = self.spent.clone();
        spent.set_running(self.current);
        let told = self.usage().cost_usd;
        spent.budget_usage().cost_usd.filter(|cost| Some(*cost) != told)
    }

    /// The time that was spent, without pauses and the time between a stop and a resume; `now_ms` for a
    /// run that is going on.
    pub fn duration_ms(&self, now_ms: Option<i64>) -> u64 {
        let last = now_ms.map_or(self.last_ms, |now| now.max(self.last_ms));
        let last = self.paused_ms.unwrap_or(last);
        u64::try_from(self.earlier_ms + last - self.part_started_ms).unwrap_or(0)
    }
}

/// Which events a summary is made of.
fn wanted(event: &str, _: &[u8]) -> Want {
    match event {
        "usage" | "result" => Want::Perhaps,
        "agent_ended" => Want::WithoutThose,
        "run_started" | "run_ended" => Want::WithThose,
        "run_continued" | "iteration_started" | "iteration_ended" | "paused" | "resumed" => {
            Want::Yes
        }
        _ => Want::No,
    }
}

/// A run in the list.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunSummary,
    /// Its process is there.
    pub running: bool,
}

impl RunRow {
    /// How the run stands, in a word or two.
    pub fn state_label(&self) -> &'static str {
        match self.run.outcome {
            None if self.running => "running",
            None => "cut off",
            Some(outcome) => outcome_label(outcome),
        }
    }

    fn duration_ms(&self, now_ms: i64) -> u64 {
        let going_on = self.running && self.run.outcome.is_none();
        self.run.duration_ms(going_on.then_some(now_ms))
    }
}

/// An outcome as a column shows it.
pub(super) fn outcome_label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "complete",
        Outcome::CompleteScmFailed => "complete, SCM failed",
        Outcome::LimitReached => "limit reached",
        Outcome::Interrupted => "interrupted",
        Outcome::Budget => "budget",
        Outcome::Stalled => "stalled",
        Outcome::AgentFailed => "agent failed",
        Outcome::CredentialsRefused => "credentials refused",
        Outcome::PromptLost => "prompt lost",
        Outcome::Broken => "broken",
    }
}

/// What a run went on after, in words that follow "after".
pub(super) fn continued_after_text(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        None => "it was cut off",
        Some(Outcome::Complete | Outcome::CompleteScmFailed) => "it was complete",
        Some(Outcome::LimitReached) => "it had reached its limit",
        Some(Outcome::Interrupted) => "it was interrupted",
        Some(Outcome::Budget) => "its budget was used up",
        Some(Outcome::Stalled) => "nothing had changed any more",
        Some(Outcome::AgentFailed) => "its agent had kept failing",
        Some(Outcome::CredentialsRefused) => "its agent's credentials were refused",
        Some(Outcome::PromptLost) => "its prompt was missing",
        Some(Outcome::Broken) => "ralph could not go on",
    }
}

/// The warning of an agent that prints nothing and runs no tool.
pub(super) fn silence_warning(silent_ms: u64, limit_ms: u64) -> String {
    let (silent, limit) = (text::format_duration(silent_ms), text::format_duration(limit_ms));
    format!(
        "the agent has been silent for {silent} while none of its tools runs: its connection to the model \
         may be dead. It is ended after {limit} (silentModelMinutes)"
    )
}

/// What is said of a loop that seems to get nowhere.
pub(super) fn stall_warning(reason: StallReason, iterations: u32, limit: Option<u32>) -> String {
    let mut words = match (reason, iterations) {
        (StallReason::Unchanged, 1) => {
            "the last iteration changed nothing in the repository".to_owned()
        }
        (StallReason::Unchanged, n) => {
            format!("the last {n} iterations changed nothing in the repository")
        }
        (StallReason::SameFailure, n) => {
            format!("guardrails have failed in the same way {n} times in a row")
        }
    };
    match limit {
        Some(limit) => words.push_str(&format!("; {limit} in a row stop the run")),
        None => words.push_str("; `stall.iterations` in the settings would stop the run"),
    }
    words
}

/// A column: its title, whether it is aligned to the right, and its rank: a higher one is left out
/// first where there is not enough room, and 0 never is.
type Column = (&'static str, bool, u8);

const COLUMNS: [Column; 9] = [
    ("RUN", false, 0),
    ("STARTED", false, 2),
    ("COMMAND", false, 4),
    ("AGENT", false, 5),
    ("OUTCOME", false, 0),
    ("ITERATIONS", true, 3),
    ("TIME", true, 1),
    ("COST", true, 1),
    ("TOKENS", true, 6),
];

/// The list as aligned columns, no wider than `room` where that is told; one line for each run, in the
/// order given, after a line of titles.
pub fn table(rows: &[RunRow], zone: &TimeZone, now_ms: i64, room: Option<usize>) -> String {
    let cells: Vec<[String; COLUMNS.len()]> =
        rows.iter().map(|row| cells(row, zone, now_ms)).collect();
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|column| {
        cells
            .iter()
            .map(|row| width::display_width(&row[column]))
            .chain([COLUMNS[column].0.len()])
            .max()
            .unwrap_or(0)
    });
    let mut rank = u8::MAX;
    if let Some(room) = room {
        let width = |rank: u8| {
            let shown = COLUMNS.iter().zip(widths).filter(|(it, _)| it.2 <= rank);
            shown.map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2)
        };
        let highest = COLUMNS.iter().map(|column| column.2).max().unwrap_or(0);
        rank = (0..=highest).rev().find(|rank| width(*rank) <= room).unwrap_or(0);
    }
    let mut out = String::new();
    let titles = COLUMNS.map(|column| column.0.to_owned());
    for row in std::iter::once(&titles).chain(&cells) {
        let start = out.len();
        for ((cell, (_, right, own_rank)), width) in row.iter().zip(COLUMNS).zip(widths) {
            if own_rank > rank {
                continue;
            }
            if out.len() > start {
                out.push_str("  ");
            }
            let pad = width - width::display_width(cell);
            let (before, after) = if right { (pad, 0) } else { (0, pad) };
            let _ = write!(out, "{:before$}{cell}{:after$}", "", "");
        }
        let fits =
            room.map_or(out.len(), |room| start + width::prefix_within(&out[start..], room).len());
        out.truncate(fits);
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    }
    out
}

fn cells(row: &RunRow, zone: &TimeZone, now_ms: i64) -> [String; COLUMNS.len()] {
    let run = &row.run;
    let usage = run.usage();
    let clean = |text: &str| {
        let mut out = Vec::new();
        width::push_one_line(text, 60, "...", &mut out);
        String::from_utf8(out).unwrap_or_default()
    };
    [
        clean(&run.id),
        started(run.started_ms, zone),
        clean(&run.command),
        clean(&run.agent),
        row.state_label().to_owned(),
        match run.max_iterations {
            0 => run.iterations.to_string(),
            max => format!("{}/{max}", run.iterations),
        },
        text::format_duration(row.duration_ms(now_ms)),
        match (run.estimated_cost_usd(), usage.cost_usd) {
            (Some(guess), _) => format!("~{}", text::format_dollars(guess)),
            (None, Some(told)) => text::format_dollars(told),
            (None, None) => "-".to_owned(),
        },
        match usage.total_tokens() {
            0 => "-".to_owned(),
            tokens => text::format_count(tokens),
        },
    ]
}

fn started(ms: i64, zone: &TimeZone) -> String {
    if ms == 0 {
        return "-".to_owned();
    }
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| "-".to_owned(),
        |time| zone.to_datetime(time).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

/// What is said below the list of runs whose journal is not whole.
pub fn damage_notes(rows: &[RunRow]) -> String {
    let note = |RunRow { run, .. }: &RunRow| {
        let words = journal::unreadable_message(run.unreadable)?;
        Some(format!("run {}: {words}; it may have done and used more\n", run.id))
    };
    rows.iter().filter_map(note).collect()
}

/// A run as `ralph runs --json` prints it.
#[derive(Debug, Serialize)]
struct RunJsonRow<'a> {
    id: &'a str,
    started_ms: Option<i64>,
    command: &'a str,
    directory: &'a str,
    agent: &'a str,
    state: &'a str,
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
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The list for programs: one JSON object on a line for each run.
pub fn json(rows: &[RunRow], now_ms: i64) -> String {
    let mut out = String::new();
    for row in rows {
        let run = &row.run;
        let line = json_writer::compact(&RunJsonRow {
            id: &run.id,
            started_ms: Some(run.started_ms).filter(|ms| *ms != 0),
            command: &run.command,
            directory: &run.directory,
            agent: &run.agent,
            state: row.state_label(),
            outcome: run.outcome,
            exit_code: run.exit_code,
            message: &run.message,
            iterations: run.iterations,
            max_iterations: run.max_iterations,
            duration_ms: row.duration_ms(now_ms),
            usage: run.usage(),
            estimated_cost_usd: run.estimated_cost_usd(),
            unreadable_lines: run.unreadable,
        });
        // Plain data cannot fail to be written into memory.
        out.push_str(&line.unwrap_or_default());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(lines: impl Iterator<Item = &'static str>) -> RunSummary {
        let mut run = RunSummary::default();
        for line in lines {
            run.fold(&serde_json::from_str(line).unwrap());
        }
        run
    }

    fn journal() -> impl Iterator<Item = &'static str> {
        include_str!("testdata/run.jsonl").lines()
    }

    fn row(run: RunSummary, running: bool) -> RunRow {
        RunRow { run, running }
    }

    #[test]
    fn unfinished_run_is_listed_as_running_or_cut_off() {
        let unfinished = fold(journal().take(30));
        assert_eq!(row(unfinished.clone(), true).state_label(), "running");
        assert_eq!(row(unfinished, false).state_label(), "cut off");
        assert_eq!(row(fold(journal()), true).state_label(), "complete");
    }

    #[test]
    fn unknown_run_facts_are_listed_as_unknown() {
        let lost = row(fold(journal().skip(1)), false);
        let table = table(std::slice::from_ref(&lost), &TimeZone::UTC, 0, None);
        assert!(!table.contains("1970"), "{table}");
        assert_eq!(lost.run.started_ms, 0);
        let whole = fold(journal()).duration_ms(None);
        assert!(whole - lost.run.duration_ms(None) < 2_000, "{whole}: {table}");
        assert!(json(&[lost], 0).contains("\"started_ms\":null"));

        let usage = Usage { output_tokens: 100_000, ..Usage::default() };
        let entry = |event| Entry { at: Stamp { time_ms: 1, iteration: 1, attempt: 1 }, event };
        let mut guessed = RunSummary::default();
        guessed.fold(&entry(Event::Usage(usage)));
        let rows = [row(guessed, true)];
        let table = super::table(&rows, &TimeZone::UTC, 0, None);
        assert!(table.contains(" ~$2.50 "), "{table}");
        assert!(json(&rows, 0).contains("\"estimated_cost_usd\":2.5"), "{}", json(&rows, 0));
    }

    #[test]
    fn run_list_counts_usage_of_cut_off_attempt() {
        let cut = fold(journal().take_while(|line| !line.contains("agent_ended")));
        assert_eq!(cut.usage().cost_usd, Some(0.31));
        let resumed = fold(
            journal()
                .take_while(|line| !line.contains("agent_ended"))
                .chain([
                    r#"{"time":"2026-11-15T20:36:39.000Z","iteration":0,"attempt":0,"event":"run_started","run":"r","version":"1","command":"run","directory":"/p","pid":1,"agent":"claude","prompt":"","completion":"","max_iterations":5}"#,
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
        let summary = RunSummary::of(journal::entries(damaged.as_bytes()));
        assert_eq!(summary.usage(), fold(journal()).usage(), "the last event tells the total");
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
RUN              STARTED           COMMAND  AGENT   OUTCOME   ITERATIONS  TIME   COST  TOKENS
20261115-202752  2026-11-15 20:27  run      claude  complete        2/10  9m1s  $6.10    1.2M
20261115-202752  2026-11-15 20:27  run      claude  running         1/10  1h0m      -       -
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
RUN              STARTED           OUTCOME   TIME   COST
20261115-202752  2026-11-15 20:27  complete  9m1s  $6.10
"
        );
    }

    #[test]
    fn run_duration_excludes_pauses() {
        let mut run = RunSummary::default();
        let mut at = |seconds: i64, event: Event<'static>| {
            let at = Stamp { time_ms: 1_000_000 + seconds * 1_000, iteration: 1, attempt: 1 };
            run.fold(&Entry { at, event });
            run.duration_ms(Some(1_000_000 + 500_000)) / 1_000
        };
        let started = || Event::RunStarted {
            branch: None,
            streams_text: false,
            plain_text: false,
            run: "r".into(),
            version: "1".into(),
            command: "spawn".into(),
            directory: "/p".into(),
            pid: 1,
            agent: "claude".into(),
            prompt: "".into(),
            completion: "".into(),
            max_iterations: 5,
        };
        assert_eq!(at(0, started()), 500);
        assert_eq!(at(10, Event::Paused), 10);
        assert_eq!(at(110, Event::Resumed { max_iterations: 5 }), 400);
        assert_eq!(at(120, Event::Paused), 20);
        // Its process ends meanwhile, and another one takes over.
        assert_eq!(at(300, started()), 220);
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
