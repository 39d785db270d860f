//! What `plan`, `build` and `prompt` share: template prompts, a plan, session logs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::config::display_name;
use crate::config::loop_file::{self, LoopFile};
use ralph_driver::run_spec::{PromptSource, RequiredFile, RunSpec, Variables};
use ralph_engine::completion::CompletionRule;
use ralph_engine::template;
use ralph_events::error::Error;
use ralph_events::exit_code;
use ralph_git as git;
use ralph_store::project::Project;

use crate::cli::args::{CompletionArgs, LoopArgs, PromptArgs};
use crate::launch::{self, Defaults, LaunchPlan, prompt, rules};
use crate::recover::Recovery;

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
    pub prompt: PromptArgs,

    #[command(flatten)]
    pub completion: CompletionArgs,

    #[command(flatten)]
    pub common: LoopArgs,
}

pub const PROMPTS_DIR: &str = ".ralph/prompts";

const NO_PLAN_MESSAGE: &str = "Implementation plan not found. Run 'ralph plan' first.";

pub(super) const DEFAULTS: Defaults = Defaults {
    exit_at_limit: exit_code::SUCCESS,
    stderr_counts_as_output: true,
    session_log: true,
    ..Defaults::RUN
};

/// The prompt of the command line, the project's own for this mode, or the built-in one.
pub(super) fn select_prompt(
    project: &Project,
    args: &ModeArgs,
    mode: &str,
    built_in: PromptSource,
) -> Result<PromptSource, Error> {
    if args.prompt.prompt.is_some() || args.prompt.prompt_file.is_some() {
        return prompt::prompt_source(&args.prompt, &args.common);
    }
    let path = project.root().join(PROMPTS_DIR).join(format!("{mode}.md"));
    if path.symlink_metadata().is_ok() {
        prompt::prompt_file(&path, &args.common)
    } else {
        Ok(built_in)
    }
}

pub(super) struct Mode {
    pub(super) defaults: Defaults,
    pub(super) source: PromptSource,
    pub(super) needs_plan: bool,
    pub(super) needs_signal: bool,
}

impl Mode {
    pub(super) fn run(
        self,
        project: &Project,
        recovery: Recovery,
        args: ModeArgs,
    ) -> Result<u8, Error> {
        let ModeArgs { limit, config, completion, mut common, .. } = args;
        common.max_iterations = limit.or(common.max_iterations);
        let (mut file, path) = loop_file(project, &common, config.clone())?;
        let overlay = std::mem::take(&mut file.overlay);
        let mut loaded = launch::load_settings(project, &common, overlay, Vec::new())?;
        loaded.files.extend(path);
        loaded.warnings.append(&mut file.warnings);
        let promise = || Ok(CompletionRule::Promise("COMPLETE".to_owned()));
        let completion = rules::completion_rule(&completion, promise)?;
        let variables = template_variables(self.defaults.command, file.variables);
        let mut plan = LaunchPlan::new(project, &common, &self.defaults, loaded, recovery);
        let warnings = self.warnings(&plan, &completion, &variables);
        plan.settings.warnings.extend(warnings);
        if common.print_prompt {
            return self.print_prompt(&plan, &variables);
        }
        git::require_repository(project.root())
            .map_err(|error| git::add_init_hint(error, "the agent keeps its work in git"))?;
        let mut spec = self.spec(&plan, completion)?;
        spec.settings_files = launch::named_settings_files(project, &common, config.as_ref());
        if !common.only_checks {
            check_prompt(project, &spec, &variables, self.needs_signal)?;
        }
        spec.variables = Some(variables);
        plan.preflight(spec)?.start_or_show()
    }

    fn is_plan(&self) -> bool {
        self.defaults.command == "plan"
    }

    fn warnings(
        &self,
        plan: &LaunchPlan<'_>,
        completion: &CompletionRule,
        variables: &Variables,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if (!self.needs_signal || plan.args.print_prompt)
            && let Ok((template, name)) = prompt::read_prompt(&self.source)
            && !completion.is_requested_by(&variables.expand(&template, 1, plan.max_iterations()).0)
        {
            let Error { message, hints, .. } = no_signal_error(&name, completion);
            warnings.push(format!("{message}; {}", hints.join("; ")));
        }
        if self.is_plan()
            && let Some(specs) = empty_specs(plan.project, variables)
        {
            warnings.push(format!(
                "{specs}/ holds no specifications, so the agent has nothing to plan from"
            ));
        }
        warnings
    }

    /// Missing files are only warnings: printing costs nothing.
    fn print_prompt(&self, plan: &LaunchPlan<'_>, variables: &Variables) -> Result<u8, Error> {
        let (template, _) = prompt::read_prompt(&self.source)?;
        if let Err(missing) = check_specs(plan.project, &template, variables) {
            crate::cli::warn(&missing.message);
        }
        if self.needs_plan && !plan.project.root().join(Project::PLAN_FILE).is_file() {
            crate::cli::warn(NO_PLAN_MESSAGE);
        }
        plan.print_prompt(&self.source, Some(variables))
    }

    fn spec(&self, plan: &LaunchPlan<'_>, completion: CompletionRule) -> Result<RunSpec, Error> {
        let mut spec = plan.spec(self.source.clone(), completion)?;
        let name = Project::PLAN_FILE;
        let file = plan.project.root().join(name);
        if self.needs_plan {
            let message = NO_PLAN_MESSAGE.to_owned();
            spec.required.push(RequiredFile { file: file.clone(), message });
        }
        if self.is_plan() {
            let message =
                format!("the run is over, but {name} is not there; `ralph build` needs it");
            spec.required_outputs.push(RequiredFile { file, message });
        }
        Ok(spec)
    }
}

/// Reads `.ralph/config` or the named file, and returns its path. A resumed run keeps the variables
/// that it started with.
fn loop_file(
    project: &Project,
    args: &LoopArgs,
    named: Option<PathBuf>,
) -> Result<(LoopFile, Option<PathBuf>), Error> {
    if let Some(variables) = args.resume.as_ref().and_then(|resume| resume.variables.clone()) {
        return Ok((LoopFile { variables, ..LoopFile::default() }, None));
    }
    let is_named = named.is_some();
    let path = named.unwrap_or_else(|| project.ralph_dir().join(loop_file::FILE));
    match loop_file::read(&path, |name| std::env::var(name).ok())? {
        Some(file) => Ok((file, Some(path))),
        // A dangling link is an error, not a missing file.
        None if !is_named && path.symlink_metadata().is_err() => Ok((LoopFile::default(), None)),
        None => Err(Error::input(format!("config file not found: {}", display_name(&path)))
            .hint("it is a file of lines NAME=value")),
    }
}

/// The loop file overrides defaults, which override the environment.
fn template_variables(mode: &'static str, file: BTreeMap<String, String>) -> Variables {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let environment: BTreeMap<String, String> =
        std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let mut values = BTreeMap::from([("PLAN_FILE".to_owned(), Project::PLAN_FILE.to_owned())]);
    values.extend(file);
    // An empty directory name would point the agent at `/`.
    let specs = values.get("SPECS_DIR").or_else(|| environment.get("SPECS_DIR"));
    let specs = specs.filter(|specs| !specs.trim().is_empty()).cloned();
    // Prompts append a slash themselves.
    let specs = specs.map(|specs| match specs.trim_end_matches('/') {
        "" => specs,
        named => named.to_owned(),
    });
    values.insert("SPECS_DIR".to_owned(), specs.unwrap_or_else(|| "specs".to_owned()));
    Variables::Template { mode, given: values, environment }
}

fn check_specs(project: &Project, template: &str, variables: &Variables) -> Result<(), Error> {
    let Some(specs) = variables.value("SPECS_DIR") else { return Ok(()) };
    if !template::mentions(template, "SPECS_DIR") || project.root().join(specs).is_dir() {
        return Ok(());
    }
    if project.root().join(specs).exists() {
        return Err(Error::input(format!(
            "what should hold the specifications is a file, and no directory: {specs}"
        ))
        .hint("SPECS_DIR in .ralph/config names another directory"));
    }
    Err(Error::input(format!("the directory of the specifications is not there: {specs}"))
        .hint(format!("write what is wanted into files in {specs}/"))
        .hint("SPECS_DIR in .ralph/config names another directory"))
}

fn empty_specs<'v>(project: &Project, variables: &'v Variables) -> Option<&'v str> {
    let specs = variables.value("SPECS_DIR")?;
    let is_empty = std::fs::read_dir(project.root().join(specs)).ok()?.next().is_none();
    is_empty.then_some(specs)
}

/// Finds errors before anything is spent.
fn check_prompt(
    project: &Project,
    spec: &RunSpec,
    variables: &Variables,
    needs_signal: bool,
) -> Result<(), Error> {
    let (template, name) = prompt::read_prompt(&spec.prompt)?;
    check_specs(project, &template, variables)?;
    if let Some(missing) = spec.required.iter().find(|required| !required.file.is_file()) {
        let error = Error::input(missing.message.clone());
        return Err(match missing.file.symlink_metadata() {
            Ok(_) => error.hint(format!("{} is no file", display_name(&missing.file))),
            Err(_) => error,
        });
    }
    let (filled, _) = variables.expand(&template, 1, spec.rules.max_iterations);
    if needs_signal && !spec.completion.is_requested_by(&filled) {
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
        .hint("the loop ends when the agent answers with it, so that the prompt must tell it to")
}
