//! `ralph ls` and `ralph status`.

use serde_json::json;

use super::{ListFormat, LsArgs, StatusArgs, StatusFormat, live};
use crate::workers::registry::Workers;
use crate::workers::store::{StoredState, Worker};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_events::text;
use ralph_report::output::OutputStream;
use ralph_report::run_table::cost_text;
use ralph_report::state_word::{ATTENTION_MS, Group};
use ralph_report::table::{self, Column};
use ralph_report::terminal::short_id;
use ralph_report::width;
use ralph_report::worker_lines::{WorkerState, WorkerStatus, format_duration};
use ralph_store::project::Project;
use ralph_store::runs::RunDir;

struct WorkerRow {
    worker: Worker,
    state: StoredState,
    alive: bool,
    /// Working time.
    elapsed_ms: Option<u64>,
}

impl WorkerRow {
    fn new(worker: Worker) -> WorkerRow {
        let (state, alive) = (worker.load_state(), worker.is_alive());
        let elapsed_ms = match &state {
            // Only the journal knows how long a killed run has worked.
            StoredState::State(state) if !alive && !state.has_end() => {
                let run = worker.run().and_then(|(_, run)| run.read_state().ok());
                run.map(|run| run.duration_ms(None))
            }
            StoredState::State(state) => state.elapsed_ms(jiff::Zoned::now().datetime()),
            _ => None,
        };
        WorkerRow { worker, state, alive, elapsed_ms }
    }

    /// For scripts: must not change.
    fn status(&self) -> &'static str {
        match &self.state {
            StoredState::State(state) if state.status.has_ended() || self.alive => {
                state.status.as_str()
            }
            StoredState::State(state) if state.status == WorkerStatus::Paused => "paused",
            StoredState::State(_) => "gone",
            StoredState::Missing if self.alive => "starting",
            StoredState::Missing | StoredState::Invalid(_) => "unknown",
        }
    }

    /// For people: the same words as everywhere.
    fn described_status(&self) -> String {
        let StoredState::State(state) = &self.state else { return self.status().to_owned() };
        requested_word(state, self.alive)
            .map_or_else(|| state.state_text(self.alive), str::to_owned)
    }

    /// Order of the table: needs you, working, waiting, done. Times in `state.json` sort as text.
    fn sort_key(&self) -> (Group, Option<String>) {
        let StoredState::State(state) = &self.state else { return (Group::NeedsYou, None) };
        let last_time = state.ended.clone().or_else(|| state.last_event_time.clone());
        let word = state.state_word(self.alive);
        let is_old = is_older_than_a_day(last_time.as_deref());
        match word.group(0, if is_old { ATTENTION_MS } else { 0 }) {
            // A later run has taken its name.
            _ if self.worker.is_past() && !self.alive => (Group::Done, last_time),
            group @ (Group::NeedsYou | Group::Done) => (group, last_time),
            group => (group, Some(state.started.clone())),
        }
    }

    /// A run of a terminal that has ended, and whose project or journal was removed since.
    fn is_forgotten(&self) -> bool {
        let StoredState::State(state) = &self.state else { return false };
        let is_there =
            |(project, run): (Project, RunDir)| project.root().exists() && run.path.exists();
        state.foreground && !self.alive && !self.worker.run().is_some_and(is_there)
    }

    fn has_ended(&self) -> bool {
        matches!(&self.state, StoredState::State(state) if state.status.has_ended())
    }
}

/// `pausing` and `stopping` until the run has done so.
fn requested_word(state: &WorkerState, alive: bool) -> Option<&'static str> {
    match () {
        () if alive && state.stopping => Some("stopping"),
        () if state.is_pausing(alive) => Some("pausing"),
        () => None,
    }
}

/// For a run that works on: one without a process, or about to stop, does not.
fn remaining_ms(state: &WorkerState, alive: bool) -> Option<u64> {
    state.remaining_ms().filter(|_| alive && !state.stopping)
}

fn is_older_than_a_day(time: Option<&str>) -> bool {
    let time = time.and_then(|time| time.parse::<jiff::civil::DateTime>().ok());
    time.is_some_and(|time| jiff::Zoned::now().datetime().duration_since(time).as_hours() >= 24)
}

/// Sorts by group. Finished workers come newest first, others oldest first.
fn sort_rows(rows: &mut [WorkerRow]) {
    rows.sort_by(|a, b| {
        let ((group, time), (other_group, other_time)) = (a.sort_key(), b.sort_key());
        let by_time =
            if group == Group::Done { other_time.cmp(&time) } else { time.cmp(&other_time) };
        group.cmp(&other_group).then(by_time)
    });
}

pub fn ls(args: &LsArgs) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    live::print_live(args.watch, || {
        let mut all = workers.all()?;
        // Scripts select runs by their names, so they get the last run of each.
        if args.format() == ListFormat::Table {
            all.extend(workers.past_runs()?);
        }
        let mut all: Vec<WorkerRow> = all.into_iter().map(WorkerRow::new).collect();
        all.retain(|row| !row.is_forgotten());
        Ok(match args.format() {
            ListFormat::Names => all.iter().map(|it| format!("{}\n", it.worker.name)).collect(),
            ListFormat::Json => to_json_array(&all),
            ListFormat::Table if all.is_empty() => {
                "no runs yet; start one with `ralph run` or `ralph spawn`\n".to_owned()
            }
            ListFormat::Table => {
                sort_rows(&mut all);
                let rows: Vec<_> = all.iter().map(row).collect();
                table::format(COLUMNS, &rows, OutputStream::stdout().width())
            }
        })
    })
}

fn to_json_array(all: &[WorkerRow]) -> String {
    let objects: Vec<_> = all.iter().map(to_json_object).collect();
    to_json(&json!(objects))
}

fn to_json(value: &serde_json::Value) -> String {
    json_writer::pretty(value).unwrap_or_default() + "\n"
}

fn to_json_object(row: &WorkerRow) -> serde_json::Value {
    let (state, error) = match &row.state {
        StoredState::State(state) => (Some(state), None),
        StoredState::Missing => (None, None),
        StoredState::Invalid(why) => (None, Some(why)),
    };
    json!({
        "name": row.worker.name,
        "status": row.status(),
        "outcome": state.and_then(|state| state.outcome),
        "alive": row.alive,
        "elapsed_seconds": row.elapsed_ms.map(|ms| ms / 1000),
        "average_seconds": state.and_then(|state| state.average_ms()).map(|ms| ms / 1000),
        "left_seconds": state.and_then(|state| state.remaining_ms()).map(|ms| ms / 1000),
        "cost_usd": state.and_then(|state| state.cost_usd),
        "last_event": state.and_then(|state| state.last_event.as_deref()),
        "metadata": {
            "ralph": true,
            "ralph_iteration": state.map_or(0, |state| state.current_iteration),
        },
        "state": state,
        "error": error,
    })
}

/// `12s`, `3m 42s`, `5h 7m`.
fn rough_duration(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..3600 => format_duration(seconds * 1000, " "),
        seconds if seconds < 48 * 3600 => {
            format!("{}h {}m", seconds / 3600, seconds / 60 % 60)
        }
        seconds => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// No directory has a longer path.
const MAX_CELL: usize = 4096;

/// The last event gets the room that is left.
const COLUMNS: [Column; 10] = [
    Column::left("NAME", 0).shrinking_to(17),
    Column::left("STATUS", 0),
    Column::left("ITERATION", 0),
    Column::left("ELAPSED", 3),
    Column::left("AVERAGE", 5),
    Column::left("LEFT", 4),
    Column::left("COST", 1),
    Column::left("RUN", 1),
    Column::left("LAST", 2).shrinking_to(20),
    Column::left("DIRECTORY", 6),
];

fn row(row: &WorkerRow) -> [String; COLUMNS.len()] {
    let dash = || "-".to_owned();
    let of_state = |render: fn(&WorkerState) -> Option<String>| match &row.state {
        StoredState::State(state) => render(state).unwrap_or_else(dash),
        _ => dash(),
    };
    let remaining = match &row.state {
        StoredState::State(state) => remaining_ms(state, row.alive),
        _ => None,
    };
    [
        row.worker.name.clone(),
        row.described_status(),
        of_state(|state| Some(format!("{}/{}", state.current_iteration, state.max_iterations))),
        row.elapsed_ms.map_or_else(dash, rough_duration),
        of_state(|state| state.average_ms().map(rough_duration)),
        remaining.map_or_else(dash, rough_duration),
        of_state(|state| cost_text(state.cost())),
        of_state(|state| state.run_id.as_deref().map(|id| short_id(id).to_owned())),
        of_state(|state| {
            state.last_event.as_deref().map(|words| text::truncate(words, 40, "…").into_owned())
        }),
        of_state(|state| Some(state.directory.clone())),
    ]
    .map(|cell| width::one_line(&cell, MAX_CELL, "…"))
}

fn format_time(stamp: &str) -> String {
    stamp.replacen('T', " ", 1).split('.').next().unwrap_or_default().to_owned()
}

pub fn status(args: &StatusArgs) -> Result<u8, Error> {
    live::print_live(args.watch, || status_text(args))
}

fn status_text(args: &StatusArgs) -> Result<String, Error> {
    let workers = Workers::open_user_dir()?;
    let mut rows = match &args.name {
        Some(name) => vec![WorkerRow::new(workers.find(name)?)],
        None => {
            let row = workers.all()?.into_iter().map(WorkerRow::new);
            row.filter(|row| args.all || !row.has_ended())
                .filter(|row| !row.is_forgotten())
                .collect()
        }
    };
    match (args.format(), rows.as_mut_slice()) {
        (StatusFormat::Json, [one]) if args.name.is_some() => Ok(to_json(&to_json_object(one))),
        (StatusFormat::Json, all) => Ok(to_json_array(all)),
        (StatusFormat::Text, []) => Ok("no runs are active; `ralph ls` lists all\n".to_owned()),
        (StatusFormat::Text, [one]) if args.name.is_some() => {
            let state = one.worker.state()?;
            Ok(strip_control_chars(&describe(
                &state,
                one.worker.handle(),
                one.alive,
                one.elapsed_ms,
            )))
        }
        (StatusFormat::Text, all) => {
            sort_rows(all);
            let texts: Vec<String> = all.iter().map(describe_worker).collect();
            Ok(strip_control_chars(&texts.join("\n")))
        }
    }
}

fn describe_worker(row: &WorkerRow) -> String {
    let name = &row.worker.name;
    match &row.state {
        StoredState::State(state) => describe(state, name, row.alive, row.elapsed_ms),
        StoredState::Missing => format!("Ralph Loop: {name}\nStatus: {}\n", row.status()),
        StoredState::Invalid(why) => {
            let path = row.worker.state_path();
            format!("Ralph Loop: {name}\nStatus: unknown ({}: {why})\n", path.display())
        }
    }
}

/// `handle` selects the run on a command line.
fn describe(state: &WorkerState, handle: &str, alive: bool, elapsed_ms: Option<u64>) -> String {
    let word = || state.state_word(alive);
    let status = match requested_word(state, alive) {
        Some(word) => word.to_owned(),
        None if state.status.has_ended() => state.end_text(),
        None if !alive => {
            word().with_cause(Some(&format!("continue it with `ralph resume {handle}`")))
        }
        None => word().with_cause(state.last_event.as_deref().filter(|_| state.waiting)),
    };
    let iteration = format!("{}/{}", state.current_iteration, state.max_iterations);
    let inactivity = match state.inactivity_timeout {
        0 => "none".to_owned(),
        seconds => format!("{seconds}s"),
    };
    let last = state.last_event.as_ref().map(|words| match &state.last_event_time {
        Some(time) => format!("{words} ({})", format_time(time)),
        None => words.clone(),
    });
    let cut_off = Some(state.cut_off_iterations).filter(|n| *n > 0).map(|n| n.to_string());
    let directory = Some(state.directory.clone()).filter(|path| !path.is_empty());
    let lines = [
        ("Ralph Loop", Some(state.worker_name.clone())),
        ("Status", Some(status)),
        ("Outcome", state.outcome.map(|outcome| outcome.as_str().to_owned())),
        ("Iteration", Some(iteration)),
        ("Started", Some(format_time(&state.started))),
        ("Current iteration started", state.last_iteration_started.as_deref().map(format_time)),
        ("Consecutive failures", Some(state.consecutive_failures.to_string())),
        ("Total failures", Some(state.total_failures.to_string())),
        ("Interrupted iterations", cut_off),
        ("Inactivity timeout", Some(inactivity)),
        ("Done pattern", state.done_pattern.clone()),
        ("Elapsed", elapsed_ms.map(rough_duration)),
        ("Average iteration", state.average_ms().map(rough_duration)),
        (
            "Remaining",
            remaining_ms(state, alive).map(|ms| format!("up to ~{}", rough_duration(ms))),
        ),
        ("Cost", cost_text(state.cost())),
        ("Last event", last),
        ("Directory", directory),
    ];
    let rendered =
        lines.into_iter().filter_map(|(label, value)| Some(format!("{label}: {}\n", value?)));
    rendered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_status_has_documented_format() {
        let state = WorkerState {
            worker_name: "agent".into(),
            max_iterations: 100,
            current_iteration: 7,
            started: "2024-01-15T10:30:00.000000".into(),
            last_iteration_started: Some("2024-01-15T12:45:00.000000".into()),
            total_failures: 2,
            done_pattern: Some("All tasks complete".into()),
            inactivity_timeout: 60,
            ..WorkerState::default()
        };
        let expected = "\
Ralph Loop: agent
Status: working
Iteration: 7/100
Started: 2024-01-15 10:30:00
Current iteration started: 2024-01-15 12:45:00
Consecutive failures: 0
Total failures: 2
Inactivity timeout: 60s
Done pattern: All tasks complete
";
        assert_eq!(describe(&state, "agent", true, None), expected);
        assert!(
            describe(&state, "agent", false, None)
                .contains("Status: interrupted (continue it with")
        );
        let state = WorkerState {
            iteration_open: true,
            finished_iterations: 6,
            finished_ms: 6 * 222_000,
            cost_usd: Some(1.5),
            last_event: Some("starting iteration 7/100".into()),
            last_event_time: Some("2024-01-15T12:45:00.000000".into()),
            directory: "/src".into(),
            ..state
        };
        let more = "\
Elapsed: 2h 15m
Average iteration: 3m 42s
Remaining: up to ~5h 47m
Cost: $1.50
Last event: starting iteration 7/100 (2024-01-15 12:45:00)
Directory: /src
";
        let elapsed_ms = Some(135 * 60_000);
        assert_eq!(describe(&state, "agent", true, elapsed_ms), format!("{expected}{more}"));
    }

    #[test]
    fn killed_run_shows_the_working_time_of_its_journal() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::new(&home.path().join("p"), home.path());
        let run = project.run_dir("20261115-200000-0000");
        run.create().unwrap();
        let entry = |minute: u32, event: &str| {
            format!(
                r#"{{"time":"2026-11-15T20:{minute}:00.000Z","iteration":1,"attempt":1,{event}}}"#
            ) + "\n"
        };
        let journal = [
            entry(10, r#""event":"iteration_started","max_iterations":5"#),
            entry(20, r#""event":"note","message":"at work""#),
        ];
        std::fs::write(run.journal(), journal.concat()).unwrap();
        let worker = Worker::at("agent", home.path().join("workers/agent"));
        worker.create().unwrap();
        let state = WorkerState {
            directory: project.root().display().to_string(),
            run_id: Some(run.id.clone()),
            started: "2026-11-15T20:00:00.000000".into(),
            last_event_time: Some("2026-11-15T20:00:01.000000".into()),
            ..WorkerState::default()
        };
        worker.save(&state).unwrap();
        let row = WorkerRow::new(worker);
        assert_eq!((row.alive, row.elapsed_ms), (false, Some(600_000)));
    }
}
