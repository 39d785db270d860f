//! Calls `notify.command` for the end of a run, and catches up on calls missed by a killed ralph.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use ralph_events::env_names;
use ralph_events::error::{Error, ErrorKind};
use ralph_events::event::{Entry, Event, Exit, Stamp};
use ralph_events::journal::LineEncoder;
use ralph_events::json_writer;
use ralph_events::run_state::RunState;
use ralph_events::text;
use ralph_git as git;
use ralph_process as process;
use ralph_process::Launch;
use ralph_process::trust::OutsideCommand;
use ralph_report::summary::Summary;
use ralph_report::summary::commit_lookup::annotate_commits;
use ralph_store::project::{Project, is_run_time_file};
use ralph_store::run_files::RunFiles;
use ralph_store::runs::{self, RunDir};

pub(super) const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const MAX_OUTPUT_BYTES: usize = 1024;

/// Returns the journal line of the event with the report of the run.
pub fn payload(at: Stamp, event: &Event<'_>, facts: &Summary, late: bool) -> Vec<u8> {
    let mut lines = LineEncoder::default();
    let mut message = lines.push(at, event).to_vec();
    if let Ok(report) = json_writer::compact(facts)
        && message.pop() == Some(b'}')
    {
        if late {
            message.extend_from_slice(b",\"late\":true");
        }
        message.extend_from_slice(b",\"report\":");
        message.extend_from_slice(report.as_bytes());
        message.push(b'}');
    }
    message.push(b'\n');
    message
}

pub(super) fn failure_message(exit: Exit, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.map(|line| format!(": {line}")).unwrap_or_default();
    format!("{exit}{last}")
}

/// Sends missed notifications of ended runs, once each. `command` is for runs that did not save theirs.
///
/// # Errors A stop was requested meanwhile.
pub fn send_missed(
    project: &Project,
    command: Option<&str>,
    mut say: impl FnMut(&str),
) -> Result<(), Error> {
    let runs = runs::list(&project.runs_dir()).unwrap_or_default();
    let is_pending = |run: &RunDir| run.has_pending_notification() && !run.is_running();
    for run in runs.into_iter().filter(is_pending) {
        let Some(command) = saved_command(&run).or_else(|| command.map(str::to_owned)) else {
            continue;
        };
        match send(project, run, &command) {
            Ok(Some(message)) => say(&message),
            Ok(None) => {}
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted; nothing was started"));
            }
            // Another process is sending it, or the directory is not writable, which is reported elsewhere.
            Err(_) => {}
        }
    }
    Ok(())
}

/// The command that the run was started with.
fn saved_command(run: &RunDir) -> Option<String> {
    let spec: Value = serde_json::from_slice(&run.read_spec().ok()??).ok()?;
    spec.pointer("/settings/notify/command")?.as_str().map(str::to_owned)
}

/// Sends one notification and records it; returns `None` if another process was faster.
fn send(project: &Project, run: RunDir, command: &str) -> io::Result<Option<String>> {
    // While this is open, no other process can send it or resume the run.
    let mut files = RunFiles::reopen_if_free(run)?;
    let dir = files.dir.clone();
    let is_end = |entry: &Entry<'_>| matches!(entry.event, Event::RunEnded { .. });
    let end = dir.read_journal()?.filter(is_end).last();
    let Some(Entry { at, event }) = end.filter(|_| dir.has_pending_notification()) else {
        return Ok(None);
    };
    let mut facts = Summary::of(&RunState::read(dir.read_journal()?), None);
    (facts.info.run, facts.end.notify_pending) = (dir.id.clone(), false);
    let root = project.root();
    let is_in_repository = git::is_in_repository(root);
    annotate_commits(&mut facts, is_in_repository, is_run_time_file, &mut |words| {
        git::run_git(words, root).ok()
    });
    let said = run_command(project.root(), command, &facts, &payload(at, &event, &facts, true));
    let failed = match said {
        Err(err) if err.kind() == io::ErrorKind::Interrupted => return Err(err),
        Err(err) if err.kind() == io::ErrorKind::TimedOut => Some(TIMED_OUT_MESSAGE.to_owned()),
        Err(err) => Some(err.to_string()),
        Ok(output) if output.exit.success() => None,
        Ok(output) => Some(failure_message(output.exit, &output.stdout)),
    };
    let mut lines = LineEncoder::default();
    let now = Stamp { time_ms: jiff::Timestamp::now().as_millisecond(), ..at };
    if let Some(why) = &failed {
        let message = format!("notify.command failed: {why}").into();
        lines.push(now, &Event::Warning { message });
    }
    lines.push(now, &Event::Notified { ok: failed.is_none() });
    files.append_journal(lines.bytes())?;
    let (id, ended) = (&dir.id, text::truncate(&facts.end.message, 200, "…"));
    Ok(Some(match failed {
        None => format!(
            "run {id} ended ({ended}), but ralph was killed before it could notify you; ran \
             notify.command now"
        ),
        Some(why) => format!(
            "run {id} ended ({ended}), but ralph was killed before it could notify you; \
             notify.command failed now: {why}"
        ),
    }))
}

pub(super) const TIMED_OUT_MESSAGE: &str = "timed out after 10 s";

fn run_command(
    directory: &Path,
    command: &str,
    facts: &Summary,
    stdin: &[u8],
) -> io::Result<process::CommandOutput> {
    let args = [OsString::from("-c"), OsString::from(command)];
    let iteration = facts.iterations.last().map_or(0, |last| last.record.number);
    let env = [
        (env_names::RUN_ID, facts.info.run.clone()),
        (env_names::ITERATION, iteration.to_string()),
        (env_names::MAX_ITERATIONS, facts.info.max_iterations.to_string()),
    ]
    .map(|(name, value)| (name.into(), Some(value.into())));
    let sh = OsStr::new("sh");
    let launch = Launch { stdin, ..Launch::plain(directory, sh, &args, &env) };
    process::run_exclusive(&OutsideCommand::find(sh, &env)?.launch(&launch), NOTIFY_TIMEOUT)
}
