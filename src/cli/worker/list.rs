//! `ralph ls` and `ralph status`.

use serde_json::json;

use super::{ListForm, LsArgs, StatusArgs};
use crate::core::worker::{Status, WorkerState};
use crate::error::Error;
use crate::worker::store::{Known, Worker, Workers};

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

    /// In one word.
    fn status(&self) -> &'static str {
        match &self.known {
            Known::State(state) if state.status.is_over() || self.alive => state.status.as_str(),
            Known::State(state) if state.status == Status::Paused => "paused",
            // It was to run, and does not.
            Known::State(_) => "gone",
            Known::Nothing if self.alive => "starting",
            Known::Nothing | Known::Broken(_) => "unknown",
        }
    }

    fn is_over(&self) -> bool {
        matches!(&self.known, Known::State(state) if state.status.is_over())
    }
}

/// # Errors
/// They cannot be listed.
pub(in crate::cli) fn ls(args: &LsArgs) -> Result<u8, Error> {
    let all: Vec<Seen> = Workers::of_user()?.all()?.into_iter().map(Seen::new).collect();
    match args.format {
        ListForm::Names => crate::cli::print(
            &all.iter().map(|it| format!("{}\n", it.worker.name)).collect::<String>(),
        ),
        ListForm::Json => {
            let objects: Vec<_> = all.iter().map(object).collect();
            crate::cli::print(&format!("{:#}\n", json!(objects)))
        }
        ListForm::Table if all.is_empty() => {
            crate::cli::print("no workers yet; ralph spawn starts one\n")
        }
        ListForm::Table => crate::cli::print(&table(&all)),
    }
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
        "alive": seen.alive,
        "metadata": {
            "ralph": true,
            "ralph_iteration": state.map_or(0, |state| state.current_iteration),
        },
        "state": state,
        "error": trouble,
    })
}

fn table(all: &[Seen]) -> String {
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|seen| {
            let of_state = |tell: fn(&WorkerState) -> String| match &seen.known {
                Known::State(state) => tell(state),
                _ => "-".to_owned(),
            };
            [
                seen.worker.name.clone(),
                seen.status().to_owned(),
                of_state(|state| format!("{}/{}", state.current_iteration, state.max_iterations)),
                of_state(|state| people(&state.started).to_owned()),
                of_state(|state| state.directory.clone()),
            ]
        })
        .collect();
    let head = ["NAME", "STATUS", "ITERATION", "STARTED", "DIRECTORY"].map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A moment of `state.json` for people.
fn people(stamp: &str) -> String {
    stamp.replacen('T', " ", 1).split('.').next().unwrap_or_default().to_owned()
}

/// # Errors
/// There is no such worker, or its state cannot be understood.
pub(in crate::cli) fn status(args: &StatusArgs) -> Result<u8, Error> {
    loop {
        let text = status_text(args)?;
        if !args.watch {
            return crate::cli::print(&text);
        }
        // Home, the text with each line cleared behind it, and nothing below.
        let screen = format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"));
        let clear = if text.is_empty() { "" } else { screen.as_str() };
        crate::cli::print(clear)?;
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn status_text(args: &StatusArgs) -> Result<String, Error> {
    let workers = Workers::of_user()?;
    if let Some(name) = &args.name {
        let worker = workers.find(name)?;
        let state = worker.state()?;
        return Ok(describe(&state, worker.is_alive()));
    }
    let seen = workers.all()?.into_iter().map(Seen::new);
    let texts: Vec<String> = seen
        .filter(|seen| args.all || !seen.is_over())
        .map(|seen| match &seen.known {
            Known::State(state) => describe(state, seen.alive),
            Known::Nothing => {
                format!("Ralph Loop: {}\nStatus: {}\n", seen.worker.name, seen.status())
            }
            Known::Broken(why) => {
                let path = seen.worker.state_path();
                format!(
                    "Ralph Loop: {}\nStatus: unknown ({}: {why})\n",
                    seen.worker.name,
                    path.display()
                )
            }
        })
        .collect();
    if texts.is_empty() {
        return Ok("no workers are running; `ralph ls` lists all\n".to_owned());
    }
    Ok(texts.join("\n"))
}

fn describe(state: &WorkerState, alive: bool) -> String {
    let name = &state.worker_name;
    let mut status = state.status.as_str().to_owned();
    if !alive && !state.status.is_over() {
        status.push_str(&format!(" (its process is gone; `ralph resume {name}` starts it again)"));
    }
    if let Some(message) = state.message.as_deref().filter(|_| state.status.is_over()) {
        status.push_str(&format!(" ({message})"));
    }
    let mut text = format!(
        "Ralph Loop: {name}\nStatus: {status}\nIteration: {}/{}\nStarted: {}\n",
        state.current_iteration,
        state.max_iterations,
        people(&state.started),
    );
    if let Some(started) = &state.last_iteration_started {
        text.push_str(&format!("Current iteration started: {}\n", people(started)));
    }
    text.push_str(&format!(
        "Consecutive failures: {}\nTotal failures: {}\n",
        state.consecutive_failures, state.total_failures
    ));
    match state.inactivity_timeout {
        0 => text.push_str("Inactivity timeout: none\n"),
        seconds => text.push_str(&format!("Inactivity timeout: {seconds}s\n")),
    }
    if let Some(pattern) = &state.done_pattern {
        text.push_str(&format!("Done pattern: {pattern}\n"));
    }
    text
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
        assert_eq!(describe(&state, true), expected);
        assert!(describe(&state, false).contains("Status: running (its process is gone"));
    }
}
