//! `ralph plan`, `ralph build`, and what they share with `ralph prompt`: template prompts, a plan, session logs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::config::display_name;
use crate::config::loop_file::{self, LoopFile};
use ralph_driver::run_spec::{PromptSource, RequiredFile, RunSpec, Variables};
use ralph_engine::completion::CompletionRule;
use ralph_engine::template;
use ralph_events::error::Error;
use ralph_git as git;
use ralph_store::project::Project;

use crate::cli::args::{LoopArgs, PromptArgs};
use crate::launch::{self, LaunchAction, LaunchPlan, LaunchSpec, LoopCommand, prompt};
use crate::recover::{Recovery, recover};

/// Used if the project has no prompt of its own.
pub(super) const PLAN_PROMPT: &str = include_str!("prompts/plan.md");
pub(super) const BUILD_PROMPT: &str = include_str!("prompts/build.md");

/// What plan, build and prompt take.
#[derive(Debug, Args)]
pub struct ModeArgs {
    /// Stop after this many iterations.
    #[arg(
        value_name = "MAX_ITERATIONS",
        conflicts_with = "max_iterations",
        allow_negative_numbers = true,
        value_parser = crate::cli::args::parse_iterations
    )]
    pub limit: Option<u32>,

    /// Read agent, limits and variables from this file instead of `.ralph/config`.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub common: LoopArgs,
}

pub const PROMPTS_DIR: &str = ".ralph/prompts";

const NO_PLAN_MESSAGE: &str = "Implementation plan not found. Run 'ralph plan' first.";

/// The prompt of the command line, the project's own for this mode, or the built-in one.
pub(crate) fn select_prompt(
    project: &Project,
    args: &PromptArgs,
    command: LoopCommand,
) -> Result<PromptSource, Error> {
    if args.is_given() {
        return prompt::prompt_source(args);
    }
    let mode = command.name();
    let path = project.root().join(PROMPTS_DIR).join(format!("{mode}.md"));
    if path.symlink_metadata().is_ok() {
        return prompt::prompt_file(&path);
    }
    let text = if command == LoopCommand::Plan { PLAN_PROMPT } else { BUILD_PROMPT };
    let name = format!("the built-in {mode} prompt");
    Ok(PromptSource::BuiltIn { name: name.into(), text: text.into() })
}

pub(crate) fn plan_or_build(
    project: &Project,
    command: LoopCommand,
    args: ModeArgs,
) -> Result<u8, Error> {
    let recovery = recover(project, &args.common)?;
    let source = select_prompt(project, &args.common.prompt, command)?;
    run(project, command, args, source, recovery)
}

pub(super) fn run(
    project: &Project,
    command: LoopCommand,
    args: ModeArgs,
    source: PromptSource,
    recovery: Recovery,
) -> Result<u8, Error> {
    let ModeArgs { limit, config, mut common } = args;
    common.max_iterations = limit.or(common.max_iterations);
    let (mut file, path) = loop_file(project, config.clone())?;
    let overlay = std::mem::take(&mut file.overlay);
    let mut loaded = launch::load_settings(project, &common, overlay, Vec::new())?;
    loaded.files.extend(path);
    loaded.warnings.append(&mut file.warnings);
    let mut spec = LaunchSpec::new(command, project, &common, config.as_deref(), loaded, source)?;
    spec.variables = Some(given_variables(file.variables));
    launch(LaunchPlan::new(project, spec, common.action(), recovery))
}

pub(super) fn launch(mut plan: LaunchPlan<'_>) -> Result<u8, Error> {
    let variables = Variables::Template {
        mode: plan.spec.command.name(),
        given: plan.spec.variables.clone().unwrap_or_default(),
        environment: environment(),
    };
    let warnings = warnings(&plan, &variables);
    plan.spec.settings.warnings.extend(warnings);
    if plan.action == LaunchAction::PrintPrompt {
        return print_prompt(&plan, &variables);
    }
    git::require_repository(plan.project.root())
        .map_err(|error| git::add_init_hint(error, "the agent keeps its work in git"))?;
    let mut spec = run_spec(&plan)?;
    if !plan.needs_only_checks() {
        check_prompt(&plan, &spec, &variables)?;
    }
    spec.variables = Some(variables);
    plan.preflight(spec)?.start_or_show()
}

fn warnings(plan: &LaunchPlan<'_>, variables: &Variables) -> Vec<String> {
    let LaunchSpec { command, prompt, completion, .. } = &plan.spec;
    let mut warnings = Vec::new();
    // `ralph prompt` refuses to start without a signal.
    if (*command != LoopCommand::Prompt || plan.action == LaunchAction::PrintPrompt)
        && let Ok((template, name)) = prompt::read_prompt(prompt)
        && !completion.is_requested_by(&variables.expand(&template, 1, plan.max_iterations()).0)
    {
        let Error { message, hints, .. } = no_signal_error(&name, completion);
        warnings.push(format!("{message}; {}", hints.join("; ")));
    }
    if *command == LoopCommand::Plan
        && let Some(specs) = empty_specs(plan.project, variables)
    {
        warnings.push(format!("{specs}/ is empty: the agent has nothing to plan from"));
    }
    warnings
}

/// Missing files are only warnings: printing costs nothing.
fn print_prompt(plan: &LaunchPlan<'_>, variables: &Variables) -> Result<u8, Error> {
    let (template, _) = prompt::read_prompt(&plan.spec.prompt)?;
    if let Err(missing) = check_specs(plan.project, &template, variables) {
        crate::cli::warn(&missing.message);
    }
    if plan.spec.command == LoopCommand::Build
        && !plan.project.root().join(Project::PLAN_FILE).is_file()
    {
        crate::cli::warn(NO_PLAN_MESSAGE);
    }
    plan.print_prompt(Some(variables))
}

fn run_spec(plan: &LaunchPlan<'_>) -> Result<RunSpec, Error> {
    let mut spec = plan.run_spec()?;
    let name = Project::PLAN_FILE;
    let file = plan.project.root().join(name);
    match plan.spec.command {
        LoopCommand::Build => {
            let message = NO_PLAN_MESSAGE.to_owned();
            spec.required.push(RequiredFile { file, message });
        }
        LoopCommand::Plan => {
            let message = format!("the run has ended without {name}, which `ralph build` needs");
            spec.required_outputs.push(RequiredFile { file, message });
        }
        _ => {}
    }
    Ok(spec)
}

/// Reads `.ralph/config` or the named file, and returns its path.
fn loop_file(
    project: &Project,
    named: Option<PathBuf>,
) -> Result<(LoopFile, Option<PathBuf>), Error> {
    let is_named = named.is_some();
    let path = named.unwrap_or_else(|| project.ralph_dir().join(loop_file::FILE));
    match loop_file::read(&path, |name| std::env::var(name).ok())? {
        Some(file) => Ok((file, Some(path))),
        // A dangling link is an error, not a missing file.
        None if !is_named && path.symlink_metadata().is_err() => Ok((LoopFile::default(), None)),
        None => Err(Error::input(format!("config file not found: {}", display_name(&path)))
            .hint("it must have lines NAME=value")),
    }
}

fn environment() -> BTreeMap<String, String> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// The loop file overrides defaults, which override the environment.
fn given_variables(file: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut values = BTreeMap::from([("PLAN_FILE".to_owned(), Project::PLAN_FILE.to_owned())]);
    values.extend(file);
    // An empty directory name would point the agent at `/`.
    let specs = values.get("SPECS_DIR").cloned().or_else(|| environment().remove("SPECS_DIR"));
    let specs = specs.filter(|specs| !specs.trim().is_empty());
    // Prompts append a slash themselves.
    let specs = specs.map(|specs| match specs.trim_end_matches('/') {
        "" => specs,
        named => named.to_owned(),
    });
    values.insert("SPECS_DIR".to_owned(), specs.unwrap_or_else(|| "specs".to_owned()));
    values
}

fn check_specs(project: &Project, template: &str, variables: &Variables) -> Result<(), Error> {
    let Some(specs) = variables.value("SPECS_DIR") else { return Ok(()) };
    if !template::mentions(template, "SPECS_DIR") || project.root().join(specs).is_dir() {
        return Ok(());
    }
    if project.root().join(specs).exists() {
        return Err(Error::input(format!("specs directory is a file: {specs}"))
            .hint("to use another directory, set SPECS_DIR in .ralph/config"));
    }
    Err(Error::input(format!("specs directory not found: {specs}"))
        .hint(format!("create {specs}/ and describe there what you want"))
        .hint("to use another directory, set SPECS_DIR in .ralph/config"))
}

fn empty_specs<'v>(project: &Project, variables: &'v Variables) -> Option<&'v str> {
    let specs = variables.value("SPECS_DIR")?;
    let is_empty = std::fs::read_dir(project.root().join(specs)).ok()?.next().is_none();
    is_empty.then_some(specs)
}

/// Finds errors before anything is spent.
fn check_prompt(plan: &LaunchPlan<'_>, spec: &RunSpec, variables: &Variables) -> Result<(), Error> {
    let (template, name) = prompt::read_prompt(&spec.prompt)?;
    check_specs(plan.project, &template, variables)?;
    if let Some(missing) = spec.required.iter().find(|required| !required.file.is_file()) {
        let error = Error::input(missing.message.clone());
        return Err(match missing.file.symlink_metadata() {
            Ok(_) => error.hint(format!("{} is not a file", display_name(&missing.file))),
            Err(_) => error,
        });
    }
    let (filled, _) = variables.expand(&template, 1, spec.rules.max_iterations);
    if plan.spec.command == LoopCommand::Prompt && !spec.completion.is_requested_by(&filled) {
        // Piped prompts have no name.
        let name = match spec.prompt {
            PromptSource::Text(_) => "the prompt".to_owned(),
            _ => name,
        };
        return Err(no_signal_error(&name, &spec.completion));
    }
    Ok(())
}

fn no_signal_error(name: &str, completion: &CompletionRule) -> Error {
    let signal = completion.describe();
    Error::failed(format!("{name} does not contain the completion signal {signal}"))
        .hint("the loop ends when the agent answers with it, so the prompt must ask for it")
}
