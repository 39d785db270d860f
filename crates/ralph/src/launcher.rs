//! Starts, resumes and attaches to runs for `ralph ui` and `ralph serve`.
//!
//! Each is a command of this program in a process of its own, so that killing the screen or the server ends no run.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ralph_events::error::Error;
use ralph_monitor::{Launcher, NewRun, StartedRun};
use ralph_process::{self as process, Launch};

use crate::executors::tmux::{Tmux, find_window};
use crate::workers::registry::{Workers, find_by_id};

/// Long enough for a window to open and its run to begin.
const TIMEOUT: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy)]
pub struct RunLauncher;

impl Launcher for RunLauncher {
    fn start(&self, run: &NewRun) -> Result<StartedRun, Error> {
        if run.prompt.trim().is_empty() {
            return Err(Error::input("the prompt is empty"));
        }
        let sandbox = if run.sandbox { "--sandbox" } else { "--no-sandbox" };
        let limit = run.max_iterations.to_string();
        let mut args: Vec<OsString> =
            ["run", "--background", "--json", sandbox, "-n", &limit, "-f", "-"]
                .map(OsString::from)
                .into();
        if !run.check.trim().is_empty() {
            args.push(format!("--check={}", run.check).into());
        }
        if !run.agent.trim().is_empty() {
            args.push("--".into());
            args.extend(split_agent(&run.agent)?);
        }
        // An argument has at most 128 KB.
        let printed = run_ralph(&args, &run.directory, &run.prompt)?;
        serde_json::from_str(&printed)
            .map_err(|err| Error::failed(format!("cannot read the answer of ralph: {err}")))
    }

    fn resume(&self, run_id: &str) -> Result<(), Error> {
        let unknown = || Error::input(format!("there is no run {run_id}"));
        let (project, run) = find_by_id(run_id).ok_or_else(unknown)?;
        let args = ["resume", &run.id, "--background"].map(OsString::from);
        run_ralph(&args, project.root(), "").map(drop)
    }

    fn attach_command(&self, run_id: &str) -> Result<Vec<OsString>, Error> {
        let no_window = || {
            Error::input("this run has no tmux window: it works in a terminal of its own")
                .hint("start runs with `--background` to attach to them")
        };
        let worker = Workers::open_user_dir()?.find_last_by_id(run_id)?;
        let worker = worker.filter(|worker| !worker.is_foreground()).ok_or_else(no_window)?;
        let tmux = Tmux::new(|name| std::env::var_os(name));
        let window = find_window(&tmux, &worker)?;
        tmux.attach_command(&window, std::env::var_os("TMUX").as_deref())
    }
}

fn split_agent(agent: &str) -> Result<impl Iterator<Item = OsString>, Error> {
    let words = shell_words::split(agent)
        .map_err(|err| Error::input(format!("cannot read the agent's command: {err}")))?;
    Ok(words.into_iter().map(OsString::from))
}

fn own_program() -> Result<OsString, Error> {
    std::env::current_exe()
        .map(Into::into)
        .map_err(|err| Error::failed(format!("cannot find the ralph program: {err}")))
}

/// Runs a command of this program to its end, and returns what it printed.
fn run_ralph(args: &[OsString], directory: &Path, stdin: &str) -> Result<String, Error> {
    let program = own_program()?;
    let launch = Launch {
        stdin: stdin.as_bytes(),
        merge_stderr: false,
        keep_background: true,
        term_on_parent_death: true,
        ..Launch::plain(directory, &program, args, &[])
    };
    let output = process::run_exclusive(&launch, TIMEOUT)
        .map_err(|err| Error::failed(format!("cannot start ralph: {err}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.exit.success() {
        return Ok(text(&output.stdout));
    }
    Err(parse_error(&text(&output.stderr)))
}

/// The error that a command of this program printed.
fn parse_error(printed: &str) -> Error {
    let line = |prefix: &str| {
        printed
            .lines()
            .filter_map(move |line| {
                Some(line.trim_start_matches("ralph: ").strip_prefix(prefix)?.to_owned())
            })
            .collect::<Vec<_>>()
    };
    let message = line("error: ").into_iter().next();
    let error = Error::failed(message.unwrap_or_else(|| "the command failed".to_owned()));
    line("hint: ").into_iter().fold(error, Error::hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_error_keeps_message_and_hints() {
        let error =
            parse_error("warning: x\nralph: error: no tmux\nhint: install it\nhint: or not\n");
        assert_eq!(error.message, "no tmux");
        assert_eq!(error.hints, ["install it", "or not"]);
    }
}
