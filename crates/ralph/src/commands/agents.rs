//! `ralph agents`: the known agents and their installed versions.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use ralph_agents as agents;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_events::text;
use ralph_process as process;
use ralph_process::trust::{self, OutsideCommand};
use ralph_store::project::Project;

#[derive(Debug, Args)]
pub struct AgentsArgs {
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
struct AgentRow {
    agent: &'static str,
    program: Option<String>,
    version: Option<String>,
    /// A program that agents can write to is not run for its version.
    is_trusted: bool,
    recorded: Option<&'static str>,
    is_recorded: bool,
    install: &'static str,
}

pub fn agents(project: &Project, args: &AgentsArgs) -> Result<u8, Error> {
    // Print row by row: some programs are slow to report their version.
    for adapter in agents::all().iter().filter(|adapter| adapter.name() != "text") {
        let found = find_installed(adapter.name(), project.root());
        let output = found.as_ref().and_then(|found| found.version_output.as_deref());
        let version = output.map(|output| version_number(output).unwrap_or(output).to_owned());
        let recorded = adapter.recorded_version();
        let row = AgentRow {
            agent: adapter.name(),
            is_recorded: version.is_some() && version.as_deref() == recorded,
            is_trusted: found.as_ref().is_none_or(|found| found.is_trusted),
            program: found.map(|found| found.path),
            version,
            recorded,
            install: adapter.profile().install_command,
        };
        let json = || json_writer::compact(&row).map(|json| json + "\n").unwrap_or_default();
        crate::cli::print(&if args.json { json() } else { strip_control_chars(&row.line()) })?;
    }
    if args.json {
        return Ok(0);
    }
    crate::cli::print("Any other command works, too: it gets the prompt on standard input.\n")
}

impl AgentRow {
    fn line(&self) -> String {
        let AgentRow { agent, install, .. } = self;
        let Some(program) = &self.program else {
            return format!("{agent:<9} not installed; install it: {install}\n");
        };
        if !self.is_trusted {
            return format!("{agent:<9} {UNTRUSTED_LABEL} ({program})\n");
        }
        let version = self.version.as_deref().unwrap_or("?");
        let tested = match self.recorded {
            Some(_) if self.is_recorded => "recorded".to_owned(),
            Some(recorded) => format!("recorded {recorded}"),
            None => "not recorded".to_owned(),
        };
        format!("{agent:<9} {version:<10} {tested:<22} {program}\n")
    }
}

#[derive(Debug)]
pub(super) struct InstalledAgent {
    pub(super) path: String,
    pub(super) version_output: Option<String>,
    pub(super) is_trusted: bool,
}

pub(super) const UNTRUSTED_LABEL: &str = "not used: agents can change it";

/// Looks on the user's `PATH`, as a run does.
pub(super) fn find_agent(name: &str, dir: &Path) -> Option<PathBuf> {
    process::find_program(OsStr::new(name), trust::user_path().as_deref(), dir)
}

pub(super) fn find_installed(name: &str, dir: &Path) -> Option<InstalledAgent> {
    Some(query_version(&find_agent(name, dir)?, &["--version"], dir))
}

/// Runs the program, unless `args` is empty or agents can write to it.
pub(super) fn query_version(path: &Path, args: &[&str], dir: &Path) -> InstalledAgent {
    let is_trusted = trust::may_run_outside(path);
    let words: Vec<OsString> = args.iter().map(Into::into).collect();
    let run =
        || OutsideCommand::find(path.as_os_str(), &[]).ok()?.run(&words, dir, VERSION_TIMEOUT).ok();
    let output = if is_trusted && !args.is_empty() { run() } else { None };
    let first_line = output.and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text::first_line(&text).map(str::to_owned)
    });
    InstalledAgent { path: path.display().to_string(), version_output: first_line, is_trusted }
}

fn version_number(output: &str) -> Option<&str> {
    output.split_whitespace().find_map(|word| {
        let word = word.trim_end_matches(['.', ',', ';', ')']).trim_start_matches(['(', 'v']);
        let is_number = word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        is_number.then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_number_is_found_in_program_output() {
        for (said, version) in [
            ("2.1.325 (Claude Code)", Some("2.1.325")),
            ("codex-cli 0.166.0", Some("0.166.0")),
            ("GitHub Copilot CLI 1.0.102.", Some("1.0.102")),
            ("v3.0.65", Some("3.0.65")),
            ("0.0.1763208032-g1234ab (released 2026-11-15)", Some("0.0.1763208032-g1234ab")),
            ("an agent with 7 lives", None),
            ("", None),
        ] {
            assert_eq!(version_number(said), version, "{said}");
        }
    }
}
