//! `ralph logs`, `attach`, `wait`, `send`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{LogsArgs, SelectionArgs, SendArgs, WorkerSelection};
use crate::executors::executor_of;
use crate::executors::tmux::{Tmux, find_window};
use crate::workers::registry::Workers;
use crate::workers::store::Worker;
use crate::workers::watch::WorkerWatcher;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::event::{Entry, Event};
use ralph_events::journal::{self, LineRead};
use ralph_events::run_state::RunState;
use ralph_process::Interrupts;
use ralph_report::style::Capabilities;
use ralph_report::terminal::TerminalReporter;
use ralph_report::worker_lines::{WorkerState, WorkerTracker};
use ralph_report::{Backpressure, Recorded, Reporter};

/// In case a change goes unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub fn logs(args: &LogsArgs) -> Result<u8, Error> {
    let style = Capabilities::for_stdio().style();
    let mut reporter = TerminalReporter::stdio(style, Backpressure::WaitForReader);
    let worker = Workers::open_user_dir()?.find(&args.name)?;
    let path = executor_of(&worker).events(&worker)?;
    if worker.state()?.is_spawned() {
        let named = || WorkerState { worker_name: worker.name.clone(), ..WorkerState::default() };
        let start = worker.load_start_state().unwrap_or_else(named);
        reporter = reporter.for_worker(WorkerTracker::new(start, TimeZone::system()));
    }
    follow(&path, Some(&worker).filter(|_| args.follow), &mut reporter)
        .map_err(|err| Error::failed(format!("cannot read {}: {err}", path.display())))?;
    reporter.finish();
    reporter.take_problem().map_or(Ok(0), |problem| Err(Error::failed(problem.into_message())))
}

/// Reports a journal, and its new entries while the worker's loop is alive.
fn follow(
    path: &Path,
    worker: Option<&Worker>,
    reporter: &mut dyn Reporter,
) -> std::io::Result<()> {
    let mut watch = worker.map(|worker| WorkerWatcher::new(worker).also_watch(path));
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    let (mut run, mut ended) = (RunState::live(), false);
    loop {
        // Asked first: the last entries are still read.
        let alive = worker.is_some_and(Worker::is_alive);
        while journal::read_line(&mut reader, &mut line)? != LineRead::End {
            if !line.is_empty() && !line.ends_with(b"\n") {
                break;
            }
            if let Ok(entry) = serde_json::from_slice::<Entry<'_>>(&line) {
                match entry.event {
                    Event::RunEnded { .. } => ended = true,
                    Event::RunStarted { .. } => ended = false,
                    _ => {}
                }
                run.apply(&entry);
                let (at, event, line) = (entry.at, &entry.event, line.trim_ascii_end());
                reporter.event(Recorded { at, event, line, run: &run });
                reporter.flush();
            }
            line.clear();
        }
        match &mut watch {
            Some(watch) if alive && !ended => watch.wait(POLL_INTERVAL),
            _ => return Ok(()),
        }
    }
}

pub fn attach(args: &SelectionArgs) -> Result<u8, Error> {
    let worker = Workers::open_user_dir()?.find(&args.name)?;
    worker.refuse_past()?;
    executor_of(&worker).attach(&worker)
}

pub fn send(args: &SendArgs) -> Result<u8, Error> {
    let name = &args.name;
    let worker = Workers::open_user_dir()?.find(name)?;
    worker.refuse_past()?;
    if !worker.state()?.interactive {
        return Err(Error::failed(format!(
            "{} is not interactive: it reads no input",
            worker.label()
        ))
        .hint("spawn it with --interactive, or change its prompt file"));
    }
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let window = find_window(&tmux, &worker)?;
    tmux.type_line(&window, &args.text)?;
    Ok(0)
}

/// Waits for all selected workers. The exit code is the first that is not 0.
pub fn wait(selection: &WorkerSelection) -> Result<u8, Error> {
    let workers = Workers::open_user_dir()?;
    let selected = selection.select(&workers, Worker::is_alive)?;
    // A missing worker fails at once, not after hours.
    let selected = selected.into_iter().collect::<Result<Vec<_>, _>>()?;
    let ends: Vec<_> = selected.iter().map(|worker| wait_for(worker, None)).collect();
    let codes = ends.into_iter().collect::<Result<Vec<u8>, _>>()?;
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// Waits for the end of a worker, prints why it ended, and returns its exit code.
pub(super) fn wait_for(worker: &Worker, interrupts: Option<Interrupts>) -> Result<u8, Error> {
    let (code, last) = executor_of(worker).wait(worker, interrupts)?;
    if let Some(words) = last {
        let line = format!("[ralph] {}: {words}\n", worker.name);
        crate::cli::print(&strip_control_chars(&line))?;
    }
    Ok(code)
}
