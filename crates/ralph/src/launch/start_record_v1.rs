//! Reads how runs and workers of version 0.1 were started: a command line, which is parsed again.
//! Delete this with the next release.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Deserialize;

use crate::cli::args::{ProjectArgs, PromptArgs};
use crate::cli::{Cli, CliCommand};
use crate::commands::prompt::AdHocArgs;
use crate::commands::{mode, work, worker};
use crate::config::{self, Duration, LoadedSettings, Sources};
use crate::project_dir;
use crate::workers::worktree::Worktree;
use ralph_engine::rules::Budget;
use ralph_events::error::Error;
use ralph_store::project::Project;
use ralph_store::runs::RunDir;
use ralph_store::safe_fs::read_own;
use ralph_store::saved_path;

use super::{LaunchSpec, LoopCommand, prompt};

const MAX_RECORD_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize)]
struct StartRecord {
    args: Vec<String>,
    /// The directory that relative paths in `args` refer to.
    directory: PathBuf,
    /// Set if it was piped in and cannot be read again.
    prompt: Option<String>,
    variables: Option<BTreeMap<String, String>>,
}

pub(crate) fn exists(run: &RunDir) -> bool {
    ["start.json", "settings.json"].iter().all(|name| run.path.join(name).exists())
}

/// Returns the spec and the file that the settings are from, or `None` if there is no record.
/// `began_in` is the project's root at the first start.
pub(crate) fn run_spec(
    project: &Project,
    run: &RunDir,
    began_in: Option<&Path>,
) -> Result<Option<(LaunchSpec, PathBuf)>, Error> {
    let refused = |why: String| {
        Error::input(format!("cannot resume run {}: {why}", run.id))
            .hint("start over with the command that started it")
    };
    if !exists(run) {
        return Ok(None);
    }
    let path = run.path.join("start.json");
    let record: StartRecord = read_own(&path, MAX_RECORD_BYTES)
        .and_then(|text| Ok(serde_json::from_slice(&text)?))
        .map_err(|err| refused(format!("cannot read {}: {err}", path.display())))?;
    let settings_path = run.path.join("settings.json");
    let settings = config::load(&Sources {
        project_dir: project.root().to_owned(),
        settings_path: Some(settings_path.clone()),
        ..Sources::default()
    })?;
    let Cli { project: place, mut command, .. } = parse(&record.args).map_err(refused)?;
    let root = began_in.unwrap_or(project.root());
    let mut base = record.directory;
    saved_path::rebase(&mut base, root, project.root());
    let base = if place.project_dir.is_some() { project.root().to_owned() } else { base };
    resolve_paths(base, &mut command);
    let spec = run_spec_of(project, command, record.prompt, settings)?;
    let spec = LaunchSpec { directory: root.to_owned(), variables: record.variables, ..spec };
    Ok(Some((spec, settings_path)))
}

fn parse(args: &[String]) -> Result<Cli, String> {
    Cli::try_parse_from(args).map_err(|err| {
        let message = err.to_string();
        let message = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
        format!("this version of ralph cannot parse its command line: {message}")
    })
}

fn resolve_paths(base: PathBuf, command: &mut CliCommand) {
    let place = ProjectArgs { project_dir: Some(base) };
    project_dir::resolve_paths_from_project(&place, command);
}

fn run_spec_of(
    project: &Project,
    command: CliCommand,
    piped_prompt: Option<String>,
    settings: LoadedSettings,
) -> Result<LaunchSpec, Error> {
    let restore_piped = |args: &mut PromptArgs| {
        if let (Some(_), Some(text)) = (&args.prompt_file, piped_prompt) {
            *args = PromptArgs { prompt: Some(text), prompt_file: None };
        }
    };
    let (command, mut args) = match command {
        CliCommand::Run(mut args) => {
            restore_piped(&mut args.prompt);
            let prompt = prompt::prompt_source(&args.prompt)?;
            return LaunchSpec::new(LoopCommand::Run, project, &args, None, settings, prompt);
        }
        CliCommand::Work(mut args) => {
            restore_piped(&mut args.common.prompt);
            return work::launch_spec(project, &args, settings);
        }
        CliCommand::Plan(args) => (LoopCommand::Plan, *args),
        CliCommand::Build(args) => (LoopCommand::Build, *args),
        CliCommand::Prompt(args) => {
            let AdHocArgs { file, mut mode } = *args;
            let prompt = &mut mode.common.prompt;
            prompt.prompt_file = file.or_else(|| prompt.prompt_file.take());
            (LoopCommand::Prompt, mode)
        }
        _ => {
            return Err(Error::input("its command cannot be resumed").hint("start it again"));
        }
    };
    restore_piped(&mut args.common.prompt);
    let prompt = mode::select_prompt(project, &args.common.prompt, command)?;
    LaunchSpec::new(command, project, &args.common, args.config.as_deref(), settings, prompt)
}

#[derive(Debug, Deserialize)]
struct LaunchRecord {
    args: Vec<String>,
    directory: PathBuf,
    worktree: Option<Worktree>,
    #[serde(default)]
    budget: Budget,
}

/// The spec of a worker from its `launch.json`, with the settings of today.
pub(crate) fn worker_spec(text: &[u8]) -> Result<LaunchSpec, Error> {
    let record: LaunchRecord = serde_json::from_slice(text)
        .map_err(|err| Error::failed(format!("cannot read its launch.json: {err}")))?;
    project_dir::refuse_link_out(&record.directory)?;
    let Cli { project: place, mut command, .. } = parse(&record.args).map_err(Error::failed)?;
    let base = record.directory.join(place.project_dir.unwrap_or_default());
    resolve_paths(base.clone(), &mut command);
    let CliCommand::Spawn(args) = command else {
        return Err(Error::failed("it was not spawned"));
    };
    let project = project_dir::open_project(&ProjectArgs { project_dir: Some(base) })?;
    let mut spec = worker::launch_spec(&project, &args)?;
    let duration = record.budget.duration_ms.and_then(|ms| Duration::parse(&format!("{ms}ms")));
    let budget = &mut spec.settings.settings.budget;
    budget.cost_usd = record.budget.cost_usd.or(budget.cost_usd);
    budget.tokens = record.budget.tokens.or(budget.tokens);
    budget.duration = duration.or(budget.duration);
    spec.worktree = record.worktree;
    Ok(spec)
}
