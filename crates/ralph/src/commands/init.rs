//! `ralph init`: asks a few questions and writes `.ralph/settings.json`.
//!
//! Questions go through `Prompter`, which tests script.

mod ask;
mod questions;
mod terminal;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::{self, FILE, LOCAL_FILE, Sources, check, schema};
use ralph_events::error::{Error, ErrorKind};
use ralph_events::json_writer;
use ralph_events::redact;
use ralph_sandbox::Backend;
use ralph_store::project::Project;
use ralph_store::save::{PendingSave, save_all_in_project};

use self::ask::{Abort, Prompter, is_yes};
use self::questions::{ask_sandbox, offer_starter_prompts};
use self::terminal::TerminalPrompter;
use crate::recover;

const SCHEMA_FILE: &str = "settings.schema.json";

/// Returns the sandbox that this agent would get in the project.
type FindSandbox = fn(&Project, &str) -> Option<Backend>;

/// Writes nothing on an error.
pub fn init(project: &Project) -> Result<u8, Error> {
    recover::remove_planted_files(project.root())?;
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Error::usage("init asks questions, and standard input is not a terminal")
            .hint("run `ralph init` in a terminal")
            .hint(
                "or write .ralph/settings.json yourself; `ralph settings --schema` describes it",
            ));
    }
    let mut terminal = TerminalPrompter::new(stdin.as_fd(), io::stdout())
        .map_err(|error| Error::config(format!("the terminal cannot be used: {error}")))?;
    init_with(project, super::sandbox::usable_backend, &mut terminal)
}

fn init_with(project: &Project, sandbox: FindSandbox, ask: &mut dyn Prompter) -> Result<u8, Error> {
    let sources = Sources { project_dir: project.root().to_owned(), ..Sources::default() };
    let (path, _) = sources.files();
    let name = config::display_name(&path);
    // Fail before the questions, not after.
    if path.is_dir() {
        return Err(Error::config(format!("{name}: is a directory, a file is needed")));
    }
    if let Some(directory) = path.parent()
        && fs::metadata(directory).is_ok_and(|metadata| !metadata.is_dir())
    {
        let name = config::display_name(directory);
        return Err(Error::config(format!("{name}: is a file, a directory is needed")));
    }
    let (document, prompts) = match ask_settings(project, sandbox, &sources, &name, ask) {
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
    let problems = check::find_problems(&document);
    if !problems.is_empty() {
        return Err(Error::config(problems.join("\n")).hint("nothing was written"));
    }
    write(project, &path, &document, &prompts).map_err(|(path, error)| {
        let name = config::display_name(&path);
        Error::config(format!("{name}: cannot be written: {error}"))
    })?;
    let _ = ask.print(&format!("\nSettings written to {name}\n"));
    for (path, _) in &prompts {
        let _ = ask.print(&format!("Prompt written to {}\n", config::display_name(path)));
    }
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
            ask.print(&format!("ralph: warning: {problem}\n"))?;
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
) -> Result<(), (PathBuf, io::Error)> {
    let save = |path, text: &str| PendingSave { path, bytes: text.into(), replace: true };
    let mut files = vec![save(path.with_file_name(SCHEMA_FILE), &schema::schema_text())];
    files.extend(prompts.iter().map(|(path, text)| save(path.clone(), text)));
    files.push(save(path.with_file_name(FILE), &format!("{document:#}\n")));
    // Creates `.gitignore`, which keeps local settings out of a following `git add`.
    project.prepare().map_err(|error| (project.ralph_dir(), error))?;
    save_all_in_project(project.root(), &files)
}

#[cfg(test)]
mod tests;
