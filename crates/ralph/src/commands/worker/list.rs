//! `ralph ls` and `ralph status`.

use serde_json::json;

use super::{ListForm, LsArgs, StatusArgs, StatusForm, live};
use crate::workers::store::{Known, Worker, Workers};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_events::text;
use ralph_report::width::display_width;
use ralph_report::worker_lines::{WorkerOutcome, WorkerState, WorkerStatus, format_duration};

/// A worker, as it is looked at.
struct Seen {
    worker: Worker,
    known: Known,
    alive: bool,
}

impl Seen {
    fn new(worker: Worker) -> Seen {
        Seen { known: worker.known(), alive: worker.is_alive(), worker }
    }

    /// In one word, as scripts know it.
    fn status(&self) -> &'static str {
        match &self.known {
            Known::State(state) if state.status.has_ended() || self.alive => state.status.as_str(),
            Known::State(state) if state.status == WorkerStatus::Paused => "paused",
            // It was to run, and does not.
            Known::State(_) => "gone",
            Known::Nothing if self.alive => "starting",
            Known::Nothing | Known::Broken(_) => "unknown",
        }
    }

    /// In a word or two, for people.
    fn described_status(&self) -> String {
        let Known::State(state) = &self.known else { return self.status().to_owned() };
        let word = match (state.status, state.outcome) {
            (WorkerStatus::Stopped, Some(WorkerOutcome::Complete)) => "complete",
            (WorkerStatus::Stopped, Some(outcome)) => {
                return format!("ended ({})", outcome.as_str());
            }
            (WorkerStatus::Stopped, None) => "ended",
            (WorkerStatus::Failed, _) => "failed",
            (WorkerStatus::Paused, _) if self.alive && state.iteration_open => "pausing",
            (WorkerStatus::Paused, _) => "paused",
            (WorkerStatus::Running, _) if !self.alive => "interrupted",
            (WorkerStatus::Running, _) if state.waiting => "waiting",
            (WorkerStatus::Running, _) => "working",
        };
        word.to_owned()
    }

    fn is_over(&self) -> bool {
        matches!(&self.known, Known::State(state) if state.status.has_ended())
    }
}

/// # Errors
/// They cannot be listed.
pub fn ls(args: &LsArgs) -> Result<u8, Error> {
    let workers = Workers::of_user()?;
    live::show(args.watch, || {
        let all: Vec<Seen> = workers.all()?.into_iter().map(Seen::new).collect();
        Ok(match args.format {
            ListForm::Names => all.iter().map(|it| format!("{}\n", it.worker.name)).collect(),
            ListForm::Json => objects(&all),
            ListForm::Table if all.is_empty() => {
                "no workers yet; ralph spawn starts one\n".to_owned()
            }
            ListForm::Table => clean(&table(&all)),
        })
    })
}

/// What is shown to people. What it tells of may have come from an agent or a file name.
fn clean(text: &str) -> String {
    strip_control_chars(text)
}

fn objects(all: &[Seen]) -> String {
    let objects: Vec<_> = all.iter().map(object).collect();
    in_json(&json!(objects))
}

fn in_json(value: &serde_json::Value) -> String {
    // A document of plain values always has a form.
    json_writer::pretty(value).unwrap_or_default() + "\n"
}

fn object(seen: &Seen) -> serde_json::Value {
    let (state, trouble) = match &seen.known {
        Known::State(state) => (Some(state), None),
        Known::Nothing => (None, None),
        Known::Broken(why) => (None, Some(why)),
    };
    json!({
        "name": seen.worker.name,
        "status": seen.status(),
        "outcome": state.and_then(|state| state.outcome),
        "alive": seen.alive,
        "elapsed_seconds": state.and_then(|state| elapsed_ms(state)).map(|ms| ms / 1000),
        "average_seconds": state.and_then(|state| state.average_ms()).map(|ms| ms / 1000),
        "left_seconds": state.and_then(|state| state.remaining_ms()).map(|ms| ms / 1000),
        "cost_usd": state.and_then(|state| state.cost_usd),
        "last_event": state.and_then(|state| state.last_event.as_deref()),
        "metadata": {
            "ralph": true,
            "ralph_iteration": state.map_or(0, |state| state.current_iteration),
        },
        "state": state,
        "error": trouble,
    })
}

/// From its beginning to its end, or to now, without pauses.
fn elapsed_ms(state: &WorkerState) -> Option<u64> {
    let now = match &state.ended {
        Some(ended) if state.status.has_ended() => ended.parse().ok()?,
        _ => jiff::Zoned::now().datetime(),
    };
    state.elapsed_ms(now)
}

/// `12s`, `3m 42s`, `5h 7m`: as exactly as somebody wants to know who looks at many.
fn about(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..3600 => format_duration(seconds * 1000, " "),
        seconds if seconds < 48 * 3600 => {
            format!("{}h {}m", seconds / 3600, seconds / 60 % 60)
        }
        seconds => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

const COLUMNS: [&str; 9] =
    ["NAME", "STATUS", "ITERATION", "ELAPSED", "AVERAGE", "LEFT", "COST", "LAST", "DIRECTORY"];

fn row(seen: &Seen) -> [String; COLUMNS.len()] {
    let nothing = || "-".to_owned();
    let of_state = |tell: fn(&WorkerState) -> Option<String>| match &seen.known {
        Known::State(state) => tell(state).unwrap_or_else(nothing),
        _ => nothing(),
    };
    [
        seen.worker.name.clone(),
        seen.described_status(),
        of_state(|state| Some(format!("{}/{}", state.current_iteration, state.max_iterations))),
        of_state(|state| elapsed_ms(state).map(about)),
        of_state(|state| state.average_ms().map(about)),
        of_state(|state| state.remaining_ms().map(about)),
        of_state(|state| state.cost_usd.map(text::format_dollars)),
        of_state(|state| {
            state.last_event.as_deref().map(|words| text::truncate(words, 40, "…").into_owned())
        }),
        of_state(|state| Some(state.directory.clone())),
    ]
}

fn table(all: &[Seen]) -> String {
    let rows: Vec<_> = all.iter().map(row).collect();
    let head = COLUMNS.map(str::to_owned);
    let mut widths = [0; COLUMNS.len()];
    for cells in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(display_width(cell));
        }
    }
    let mut table = String::new();
    for cells in [&head].into_iter().chain(&rows) {
        let padded = |(cell, width): (&String, usize)| {
            format!("{cell}{:1$}", "", width.saturating_sub(display_width(cell)))
        };
        let cells: Vec<String> = cells.iter().zip(widths).map(padded).collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

/// A moment of `state.json` for people.
fn people(stamp: &str) -> String {
    stamp.replacen('T', " ", 1).split('.').next().unwrap_or_default().to_owned()
}

/// # Errors
/// There is no such worker, or its state cannot be understood.
pub fn status(args: &StatusArgs) -> Result<u8, Error> {
    live::show(args.watch, || status_text(args))
}

fn status_text(args: &StatusArgs) -> Result<String, Error> {
    let workers = Workers::of_user()?;
    let chosen = match &args.name {
        Some(name) => vec![Seen::new(workers.find(name)?)],
        None => {
            let seen = workers.all()?.into_iter().map(Seen::new);
            seen.filter(|seen| args.all || !seen.is_over()).collect()
        }
    };
    match (args.format, chosen.as_slice()) {
        (StatusForm::Json, [one]) if args.name.is_some() => Ok(in_json(&object(one))),
        (StatusForm::Json, all) => Ok(objects(all)),
        (StatusForm::Text, []) => Ok("no workers are running; `ralph ls` lists all\n".to_owned()),
        (StatusForm::Text, [one]) if args.name.is_some() => {
            Ok(clean(&described(&one.worker.state()?, one.alive)))
        }
        (StatusForm::Text, all) => {
            let texts: Vec<String> = all.iter().map(describe_any).collect();
            Ok(clean(&texts.join("\n")))
        }
    }
}

fn describe_any(seen: &Seen) -> String {
    let name = &seen.worker.name;
    match &seen.known {
        Known::State(state) => described(state, seen.alive),
        Known::Nothing => format!("Ralph Loop: {name}\nStatus: {}\n", seen.status()),
        Known::Broken(why) => {
            let path = seen.worker.state_path();
            format!("Ralph Loop: {name}\nStatus: unknown ({}: {why})\n", path.display())
        }
    }
}

fn described(state: &WorkerState, alive: bool) -> String {
    describe(state, alive, elapsed_ms(state))
}

fn describe(state: &WorkerState, alive: bool, elapsed_ms: Option<u64>) -> String {
    let name = &state.worker_name;
    let mut status = state.status.as_str().to_owned();
    if !alive && !state.status.has_ended() {
        status.push_str(&format!(" (its process is gone; `ralph resume {name}` starts it again)"));
    }
    if alive
        && state.status == WorkerStatus::Running
        && state.waiting
        && let Some(why) = &state.last_event
    {
        status.push_str(&format!(" ({why})"));
    }
    if let Some(message) = state.message.as_deref().filter(|_| state.status.has_ended()) {
        status.push_str(&format!(" ({message})"));
    }
    let iteration = format!("{}/{}", state.current_iteration, state.max_iterations);
    let inactivity = match state.inactivity_timeout {
        0 => "none".to_owned(),
        seconds => format!("{seconds}s"),
    };
    let last = state.last_event.as_ref().map(|words| match &state.last_event_time {
        Some(time) => format!("{words} ({})", people(time)),
        None => words.clone(),
    });
    let cut_off = Some(state.cut_off_iterations).filter(|n| *n > 0).map(|n| n.to_string());
    let directory = Some(state.directory.clone()).filter(|path| !path.is_empty());
    let lines = [
        ("Ralph Loop", Some(name.clone())),
        ("Status", Some(status)),
        ("Outcome", state.outcome.map(|outcome| outcome.as_str().to_owned())),
        ("Iteration", Some(iteration)),
        ("Started", Some(people(&state.started))),
        ("Current iteration started", state.last_iteration_started.as_deref().map(people)),
        ("Consecutive failures", Some(state.consecutive_failures.to_string())),
        ("Total failures", Some(state.total_failures.to_string())),
        ("Cut off iterations", cut_off),
        ("Inactivity timeout", Some(inactivity)),
        ("Done pattern", state.done_pattern.clone()),
        ("Elapsed", elapsed_ms.map(about)),
        ("Average iteration", state.average_ms().map(about)),
        ("Left at most, about", state.remaining_ms().map(about)),
        ("Cost", state.cost_usd.map(text::format_dollars)),
        ("Last event", last),
        ("Directory", directory),
    ];
    let told = lines.into_iter().filter_map(|(what, value)| Some(format!("{what}: {}\n", value?)));
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_to_the_letter() {
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
Status: running
Iteration: 7/100
Started: 2024-01-15 10:30:00
Current iteration started: 2024-01-15 12:45:00
Consecutive failures: 0
Total failures: 2
Inactivity timeout: 60s
Done pattern: All tasks complete
";
        assert_eq!(describe(&state, true, None), expected);
        assert!(describe(&state, false, None).contains("Status: running (its process is gone"));
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
Left at most, about: 5h 47m
Cost: $1.50
Last event: starting iteration 7/100 (2024-01-15 12:45:00)
Directory: /src
";
        let elapsed_ms = Some(135 * 60_000);
        assert_eq!(describe(&state, true, elapsed_ms), format!("{expected}{more}"));
    }
}
