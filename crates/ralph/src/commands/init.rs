//! `ralph init`: writes `.ralph/settings.json` from answers, or from what it detects.
//!
//! Questions go through `Prompter`, which tests script.

mod ask;
mod detection;
mod questions;
mod terminal;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::config::{self, FILE, LOCAL_FILE, Sources, check, schema};
use ralph_events::error::{Error, ErrorKind};
use ralph_events::json_writer;
use ralph_events::redact;
use ralph_sandbox::Backend;
use ralph_store::project::Project;
use ralph_store::save::{PendingSave, save_all_in_project};

use self::ask::{Abort, Prompter, is_yes};
use self::detection::Detection;
use self::questions::{ask_sandbox, offer_starter_prompts};
use self::terminal::TerminalPrompter;
use crate::recover;

const SCHEMA_FILE: &str = "settings.schema.json";

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Ask nothing: write settings for the first agent found, the test command and git.
    #[arg(short, long)]
    pub yes: bool,

    /// Overwrite existing settings.
    #[arg(long, requires = "yes")]
    pub force: bool,
}

/// Returns the sandbox that this agent would get in the project.
type FindSandbox = fn(&Project, &str) -> Option<Backend>;

/// Writes nothing on an error.
pub fn init(project: &Project, args: &InitArgs) -> Result<u8, Error> {
    recover::remove_planted_files(project.root())?;
    let detection = Detection::of(project.root());
    if args.yes {
        let mut text = String::new();
        init_detected(project, &detection, args.force, super::sandbox::usable_backend, &mut text)?;
        return crate::cli::print(&text);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Error::usage("init asks questions, and standard input is not a terminal")
            .hint("`ralph init --yes` asks nothing"));
    }
    let mut terminal = TerminalPrompter::new(stdin.as_fd(), io::stdout())
        .map_err(|error| Error::config(format!("cannot use the terminal: {error}")))?;
    init_with(project, &detection, super::sandbox::usable_backend, &mut terminal)
}

/// Writes the detected settings and appends what it did to `text`.
fn init_detected(
    project: &Project,
    detection: &Detection,
    overwrite: bool,
    sandbox: FindSandbox,
    text: &mut String,
) -> Result<(), Error> {
    let (path, name) = settings_file(project)?;
    let Some((agent, others)) = detection.agents.split_first() else {
        return Err(Error::config("no agent found on the PATH")
            .hint("`ralph agents` lists the supported ones and how to install them"));
    };
    if !overwrite && path.symlink_metadata().is_ok() {
        return Err(Error::config(format!("{name} already exists"))
            .hint("`ralph init --yes --force` overwrites it"));
    }
    let mut document = detection.settings(agent);
    if sandbox(project, agent).is_some() {
        document["sandbox"] = json!({"backend": "auto"});
    }
    write(project, &path, &document, &[])?;
    text.push_str(&detection.describe());
    if !others.is_empty() {
        let others = others.join(", ");
        text.push_str(&format!("\nUsing {agent}. Also found: {others} (set agent.command).\n"));
    }
    text.push_str(&closing_text(&name, &document));
    Ok(())
}

/// The settings file and its name for people. Fails if it cannot be one.
fn settings_file(project: &Project) -> Result<(PathBuf, String), Error> {
    let sources = Sources { project_dir: project.root().to_owned(), ..Sources::default() };
    let (path, _) = sources.files();
    let name = config::display_name(&path);
    if path.is_dir() {
        return Err(Error::config(format!("{name} is a directory, not a file")));
    }
    if let Some(directory) = path.parent()
        && fs::metadata(directory).is_ok_and(|metadata| !metadata.is_dir())
    {
        let name = config::display_name(directory);
        return Err(Error::config(format!("{name} is a file, not a directory")));
    }
    Ok((path, name))
}

/// The file as written, and the command to type next.
fn closing_text(name: &str, document: &Value) -> String {
    let response = document["completionResponse"].as_str().unwrap_or("DONE");
    format!(
        "\nSettings written to {name}\n\n{document:#}\n\n\
         Next\n  ralph run -p \"Fix a bug. Answer <response>{response}</response> when done.\"\n"
    )
}

fn init_with(
    project: &Project,
    detection: &Detection,
    sandbox: FindSandbox,
    ask: &mut dyn Prompter,
) -> Result<u8, Error> {
    // Fail before the questions, not after.
    let (path, name) = settings_file(project)?;
    let sources = Sources { project_dir: project.root().to_owned(), ..Sources::default() };
    let answers = ask
        .print(&detection.describe())
        .and_then(|()| ask_settings(project, sandbox, &sources, &name, ask));
    let (document, prompts) = match answers {
        Ok(Some(answers)) => answers,
        Ok(None) => return Ok(0),
        Err(abort) => {
            let _ = ask.print("\n");
            let (kind, why) = match abort {
                Abort::Interrupted => (ErrorKind::Interrupted, "interrupted, nothing was written"),
                Abort::EndOfInput => (ErrorKind::Interrupted, "end of input, nothing was written"),
                Abort::Failed(error) => {
                    let message = format!("the terminal failed, nothing was written: {error}");
                    return Err(Error::config(message));
                }
            };
            return Err(Error::new(kind, why));
        }
    };
    write(project, &path, &document, &prompts)?;
    for (path, _) in &prompts {
        let _ = ask.print(&format!("\nPrompt written to {}", config::display_name(path)));
    }
    let _ = ask.print(&closing_text(&name, &document));
    Ok(0)
}

type StarterPrompt = (PathBuf, &'static str);

/// `None` if the user keeps the existing settings.
fn ask_settings(
    project: &Project,
    sandbox: FindSandbox,
    sources: &Sources,
    name: &str,
    ask: &mut dyn Prompter,
) -> Result<Option<(Value, Vec<StarterPrompt>)>, Abort> {
    if let Some(existing) = config::read_existing(sources) {
        let mut document = existing.document;
        redact::redact(&mut document);
        ask.print(&(json_writer::pretty(&document).unwrap_or_default() + "\n"))?;
        for problem in &existing.problems {
            ask.print(&format!("warning: {problem}\n"))?;
        }
        let overlay = if existing.with_overlay {
            format!(" (with local overlay from {LOCAL_FILE})")
        } else {
            String::new()
        };
        ask.print(&format!("Loaded from {name}{overlay}\n"))?;
        if !is_yes(&ask.prompt_line("Overwrite? (y/N): ")?) {
            return Ok(None);
        }
    }
    ask.print("\n")?;
    let mut document = questions::ask_settings(ask)?;
    let prompts = offer_starter_prompts(project, ask)?;
    let agent = document["agent"]["command"].as_str().unwrap_or_default();
    if let Some(backend) = sandbox(project, agent) {
        document["sandbox"] = ask_sandbox(backend, ask)?;
    }
    Ok(Some((document, prompts)))
}

fn write(
    project: &Project,
    path: &Path,
    document: &Value,
    prompts: &[StarterPrompt],
) -> Result<(), Error> {
    let problems = check::find_problems(document);
    if !problems.is_empty() {
        return Err(Error::config(problems.join("\n")).hint("nothing was written"));
    }
    let failed = |(path, error): (PathBuf, io::Error)| {
        Error::config(format!("cannot write {}: {error}", config::display_name(&path)))
    };
    let save = |path, text: &str| PendingSave { path, bytes: text.into(), replace: true };
    let mut files = vec![save(path.with_file_name(SCHEMA_FILE), &schema::schema_text())];
    files.extend(prompts.iter().map(|(path, text)| save(path.clone(), text)));
    files.push(save(path.with_file_name(FILE), &format!("{document:#}\n")));
    // Creates `.gitignore`, which keeps local settings out of a following `git add`.
    project.prepare().map_err(|error| failed((project.ralph_dir(), error)))?;
    save_all_in_project(project.root(), &files).map_err(failed)
}

#[cfg(test)]
mod tests;
