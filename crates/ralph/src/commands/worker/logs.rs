//! `ralph logs`, `attach`, `wait`, `send`.

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{LogsArgs, SelectionArgs, SendArgs, WorkerSelection};
use crate::executors::tmux::{Tmux, TmuxWindow};
use crate::workers::store::{Worker, Workers};
use crate::workers::watch::{WatchResult, WorkerWatcher};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::{Error, ErrorKind};
use ralph_events::event::{Entry, Event};
use ralph_events::journal::{self, LineRead};
use ralph_events::run_state::RunState;
use ralph_process as process;
use ralph_process::Interrupts;
use ralph_process::trust;
use ralph_report::style::{Capabilities, Style};
use ralph_report::terminal::TerminalReporter;
use ralph_report::worker_lines::WorkerTracker;
use ralph_report::{Backpressure, Recorded, Reporter};

/// In case a change goes unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub fn logs(args: &LogsArgs) -> Result<u8, Error> {
    let worker = Workers::open_user_dir()?.find(&args.name)?;
    let state = worker.state()?;
    let path = worker.journal(&state).ok_or_else(|| {
        Error::failed(format!("worker '{}' has not done anything yet", worker.name))
    })?;
    let capable = Capabilities::for_stdio();
    let style = Style {
        emoji: capable.emoji,
        color: capable.color,
        color_errors: capable.color_errors,
        ..Style::default()
    };
    let tracker =
        WorkerTracker::new(worker.load_start_state().unwrap_or_default(), TimeZone::system());
    let mut reporter =
        TerminalReporter::stdio(style, Backpressure::WaitForReader).for_worker(tracker);
    follow(&path, args.follow.then_some(&worker), &mut reporter)
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

fn find_window(tmux: &Tmux, name: &str) -> Result<TmuxWindow, Error> {
    let worker = Workers::open_user_dir()?.find(name)?;
    tmux.find(&worker.name).ok_or_else(|| {
        Error::failed(format!("worker '{name}' has no window: its loop is not running"))
            .hint(format!("ralph status {name}, or ralph logs {name}"))
    })
}

pub fn attach(args: &SelectionArgs) -> Result<u8, Error> {
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let window = find_window(&tmux, &args.name)?;
    let inside = std::env::var_os("TMUX");
    let command: Vec<OsString> = tmux.attach_command(&window, inside.as_deref())?;
    let Some((program, rest)) = command.split_first() else { return Ok(0) };
    // Unset `TMUX` to allow nested clients.
    let keeps_tmux = rest.iter().any(|word| word == "switch-client");
    let changes = trust::outside_env(&[]);
    let is_changed = |name: &OsString| changes.iter().any(|(other, _)| other == name);
    let is_kept = |name: &OsString| !is_changed(name) && (keeps_tmux || name != "TMUX");
    let env = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let set = changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    let env = env.chain(set).collect();
    let err = process::exec(program, rest, Some(env));
    Err(Error::failed(format!("tmux: {err}")))
}

pub fn send(args: &SendArgs) -> Result<u8, Error> {
    let name = &args.name;
    let worker = Workers::open_user_dir()?.find(name)?;
    if !worker.state()?.interactive {
        return Err(Error::failed(format!(
            "worker '{name}' is not interactive: nobody reads there"
        ))
        .hint("spawn it with --interactive, or change its prompt file"));
    }
    let tmux = Tmux::new(|name| std::env::var_os(name));
    let window = find_window(&tmux, name)?;
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

/// Waits for the end of a worker, prints why it ended, and returns its exit code. `interrupts` end
/// only the wait.
pub(super) fn wait_for(worker: &Worker, interrupts: Option<Interrupts>) -> Result<u8, Error> {
    let name = &worker.name;
    let mut watch = WorkerWatcher::new(worker).with_interrupts(interrupts);
    let ended = watch.wait_for(None, POLL_INTERVAL, || {
        // Asked first: the final state is still read.
        let alive = worker.is_alive();
        let state = match worker.state() {
            Ok(state) => state,
            Err(error) => return Some(Err(error)),
        };
        if state.status.has_ended() && !alive {
            return Some(Ok((state.exit_code.unwrap_or(1), state.last_event)));
        }
        (!alive).then(|| {
            Err(Error::failed(format!(
                "worker '{name}' is {}, and its process is gone",
                state.status.as_str()
            ))
            .hint(format!("ralph resume {name} starts it again")))
        })
    });
    match ended {
        WatchResult::Found(ended) => {
            let (code, last) = ended?;
            if let Some(words) = last {
                crate::cli::print(&strip_control_chars(&format!("[ralph] {name}: {words}\n")))?;
            }
            Ok(code)
        }
        WatchResult::Nothing | WatchResult::Interrupted => Err(Error::new(
            ErrorKind::Interrupted,
            format!("not waiting for worker '{name}' any more"),
        )
        .hint(format!("it goes on: ralph status {name}, ralph kill {name}"))),
    }
}
