//! The agent of a run, and what to do about one that is not there.

use std::path::{Path, PathBuf};

use crate::agent::{self, Adapter};
use crate::config::{self, Settings};
use crate::error::Error;
use crate::process;
use crate::run::spec::AgentSpec;
use crate::state::project::Project;

/// The agent of a run. `agent_command` is what was given after `--`, and `usual` is the program when
/// nobody named one.
///
/// # Errors
/// There is none, or it is not installed, or the settings do not fit it.
pub(super) fn spec(
    project: &Project,
    settings: &Settings,
    agent_command: &[String],
    command: &str,
    usual: Option<&str>,
) -> Result<AgentSpec, Error> {
    let agent = &settings.agent;
    let named = agent.command.as_deref().filter(|command| !command.is_empty());
    let Some(program) = named.or(usual).map(str::to_owned) else {
        return Err(no_agent(command));
    };
    let adapter = match agent.kind {
        None => agent::for_command(&program),
        Some(kind) => agent::by_name(kind.as_str()).ok_or_else(|| {
            let names: Vec<&str> = agent::all().iter().map(|adapter| adapter.name()).collect();
            Error::config(format!("agent.type: there is no adapter for {} yet", kind.as_str()))
                .hint(format!("known are {}", names.join(", ")))
        })?,
    };
    // The agent is looked for where it will be looked for when it is started.
    let path = match agent.env.get("PATH") {
        Some(path) => Some(path.into()),
        None if agent.env_exclude.iter().any(|name| name == "PATH") => None,
        None => std::env::var_os("PATH"),
    };
    if process::find_program(program.as_ref(), path.as_deref(), project.root()).is_none() {
        return Err(not_installed(&program, adapter, project.root()));
    }
    // Words after `--` are arguments already; those of the settings may need splitting.
    let flags = match agent_command.split_first() {
        Some((_, rest)) => rest.to_vec(),
        None => config::agent_args(&agent.flags)
            .map_err(|err| Error::config(format!("agent.flags: {err}")))?,
    };
    let env = agent
        .env
        .iter()
        .map(|(name, value)| (name.into(), Some(value.into())))
        .chain(agent.env_exclude.iter().map(|name| (name.into(), None)))
        .collect();
    Ok(AgentSpec {
        adapter,
        program,
        flags,
        model: agent.model.clone(),
        autonomous: agent.autonomous,
        stream: settings.stream_agent_output,
        prompt_via: agent.prompt_via,
        keep_background: agent.keep_background,
        env,
    })
}

fn no_agent(command: &str) -> Error {
    let path = std::env::var_os("PATH");
    let here = PathBuf::from(".");
    let found: Vec<&str> = agent::all()
        .iter()
        .map(|adapter| adapter.name())
        .filter(|name| *name != "text")
        .filter(|name| process::find_program(name.as_ref(), path.as_deref(), &here).is_some())
        .collect();
    let error = Error::usage("no agent is configured");
    match found.first() {
        Some(first) => error
            .hint(format!("found on the PATH: {}", found.join(", ")))
            .hint(format!("name one: ralph {command} … -- {first}, or run `ralph init`")),
        None => error
            .hint("none of the known agents is on the PATH; `ralph doctor` says how to get one")
            .hint(format!("any command can be an agent: ralph {command} … -- COMMAND")),
    }
}

fn not_installed(program: &str, adapter: &'static dyn Adapter, dir: &Path) -> Error {
    let error = Error::usage(format!("the agent was not found: {program}"));
    if program.contains('/') {
        match std::fs::metadata(dir.join(program)) {
            Ok(meta) if meta.is_dir() => {
                Error::usage(format!("the agent is a directory: {program}"))
                    .hint("name the program in it")
            }
            Ok(_) => Error::usage(format!("the agent may not be executed: {program}"))
                .hint(format!("chmod +x {}", shell_words::quote(program))),
            Err(_) if program.starts_with("~/") => {
                error.hint("no shell is involved, so ~ means nothing; write the whole path")
            }
            Err(_) => error.hint("there is no file of that name; check the path"),
        }
    } else if adapter.name() == "text" {
        error.hint("no program of that name is on the PATH; check its name, or give its whole path")
    } else {
        error.hint(format!("install it: {}", adapter.install()))
    }
}
