//! The agent of a run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::settings::AgentOutputFormat;
use crate::config::{self, LoadedSettings, SettingOrigin};
use ralph_agents as agents;
use ralph_agents::{Adapter, ResponseFilter};
use ralph_driver::response_filter;
use ralph_driver::run_spec::{AgentLaunch, AgentSpec};
use ralph_events::error::Error;
use ralph_events::event::Purpose;
use ralph_git as git;
use ralph_process as process;
use ralph_process::trust;

use super::LaunchPlan;
use super::agent_version::installed_version;

pub(super) fn agent_spec(plan: &LaunchPlan<'_>) -> Result<AgentSpec, Error> {
    let (project, loaded) = (plan.project, &plan.spec.settings);
    let (settings, defaults) = (&loaded.settings, plan.spec.defaults());
    let agent = &settings.agent;
    let named = agent.command.as_deref().filter(|command| !command.is_empty());
    let Some(program) = named.or(defaults.agent).map(str::to_owned) else {
        // The warnings may name a mistyped setting.
        return Err(loaded
            .warnings
            .iter()
            .fold(no_agent_error(plan.spec.command.name()), Error::hint));
    };
    let adapter = match &agent.kind {
        None => agents::for_command(&program),
        Some(kind) => agents::by_name(kind).ok_or_else(|| {
            let names: Vec<&str> = agents::all().iter().map(|adapter| adapter.name()).collect();
            Error::config(format!("agent.type: no adapter for {kind}"))
                .hint(format!("use one of {}", names.join(", ")))
        })?,
    };
    // Search the `PATH` that the agent will get.
    let path = match agent.env.get("PATH") {
        Some(path) => Some(path.into()),
        None if agent.env_exclude.iter().any(|name| name == "PATH") => None,
        None => trust::user_path(),
    };
    let installed = process::find_program(program.as_ref(), path.as_deref(), project.root());
    if !plan.needs_only_checks() && installed.is_none() {
        return Err(not_installed_error(&program, adapter, project.root()));
    }
    // Arguments after `--` are already split.
    let flags = match &plan.spec.agent_args {
        Some(args) => args.clone(),
        None => config::agent_args(&agent.flags)
            .map_err(|err| Error::config(format!("agent.flags: {err}")))?,
    };
    let mut env: Vec<(OsString, Option<OsString>)> = agent
        .env
        .iter()
        .map(|(name, value)| (name.into(), Some(value.into())))
        .chain(agent.env_exclude.iter().map(|name| (name.into(), None)))
        .collect();
    // A Docker sandbox does not inherit these.
    for (name, value) in git::commit_identity_env(project.root()) {
        if !env.iter().any(|(chosen, _)| chosen == name) {
            env.push((name.into(), Some(value.into())));
        }
    }
    let response_filter = match &agent.response_filter {
        Some(expression) => Some(response_filter(expression, loaded, project.root())?),
        None => None,
    };
    let is_known = adapter.name() != "text";
    let stream = match agent.output_format {
        Some(format) => format == AgentOutputFormat::Json,
        None => settings.stream_agent_output || response_filter.is_some(),
    };
    if agent.output_format == Some(AgentOutputFormat::Json)
        && !is_known
        && response_filter.is_none()
    {
        let origin = origin_prefix(loaded, "agent.outputFormat");
        return Err(Error::config(format!(
            "{origin}agent.outputFormat: the JSON format of {program} is unknown"
        ))
        .hint(
            "set agent.responseFilter (AGENT_RESPONSE_FILTER) to a jq expression that selects \
               its answers",
        )
        .hint("or set agent.type (AGENT_TYPE) to a supported agent with the same format"));
    }
    if agent.args.is_some() && agent.model.is_some() {
        return Err(Error::config(
            "--model has no effect with agent.args, which replaces all \
                                  arguments",
        )
        .hint("put the model into agent.args, or use agent.flags, which adds arguments"));
    }
    let spec = AgentSpec {
        adapter,
        version: installed.filter(|_| is_known).and_then(|path| installed_version(&path)),
        program,
        flags,
        model: agent.model.clone(),
        autonomous: agent.autonomous,
        sandboxed: false,
        git_directories: git::git_directories(project.root()),
        has_hook: false,
        files: Vec::new(),
        stream,
        prompt_via: agent.prompt_via,
        keep_background: agent.keep_background,
        env,
        args: agent.args.clone(),
        response_filter,
        stderr_counts_as_output: defaults.stderr_counts_as_output
            && (!is_known || agent.args.is_some()),
        interactive: plan.spec.interactive,
    };
    Ok(spec)
}

/// Without a sandbox, only the hook checks tool calls. `agent.args` are all arguments, so they
/// exclude it.
pub(super) fn inject_hook(spec: &mut AgentSpec, allow: &[String], directory: &Path) {
    if spec.autonomous
        && !spec.sandboxed
        && spec.args.is_none()
        && let Ok(ralph) = std::env::current_exe()
    {
        spec.inject_hook(&ralph, allow, directory);
    }
}

pub(super) fn agent_warnings(agent: &AgentSpec) -> impl Iterator<Item = String> {
    let name = agent.adapter.name();
    let unused_filter = (agent.response_filter.is_some() && !agent.stream).then(|| {
        "agent.responseFilter has no effect, because the agent prints plain text".to_owned()
    });
    let unreadable = match (&agent.args, &agent.response_filter) {
        (Some(args), None) if agent.stream && name != "text" => {
            let path = Path::new("");
            let launch = AgentLaunch {
                purpose: Purpose::Work,
                prompt: "",
                prompt_file: path,
                side_file: path,
            };
            let default_args = AgentSpec { args: None, ..agent.clone() }.invocation(launch).args;
            let default_args = default_args.iter().filter_map(|arg| arg.to_str());
            let mut asks_for_json = default_args.filter(|arg| arg.contains("json"));
            // Any JSON option will do.
            let has_json_arg = args.iter().any(|arg| arg.contains("json"));
            asks_for_json.find(|_| !has_json_arg).map(|flag| {
                format!(
                    "agent.args replaces all arguments of {name}, and lacks {flag}: ralph cannot \
                     parse its output. Use agent.flags to add arguments"
                )
            })
        }
        _ => None,
    };
    unused_filter.into_iter().chain(unreadable)
}

fn origin_prefix(loaded: &LoadedSettings, key: &str) -> String {
    match loaded.origins.get(key) {
        None | Some(SettingOrigin::Default) => String::new(),
        Some(origin) => format!("{origin}: "),
    }
}

fn response_filter(
    expression: &str,
    loaded: &LoadedSettings,
    directory: &Path,
) -> Result<ResponseFilter, Error> {
    response_filter::check(expression, directory).map_err(|bad| {
        let origin = origin_prefix(loaded, "agent.responseFilter");
        let message = &bad.message;
        let marked = bad.with_marker(expression);
        Error::config(format!("{origin}agent.responseFilter: {message}\n{marked}"))
            .hint("it must be a jq expression; it gets each line of the agent's JSON")
    })
}

/// Supported agents on the `PATH`.
pub(crate) fn installed_agents() -> Vec<&'static str> {
    let path = trust::user_path();
    let here = PathBuf::from(".");
    agents::all()
        .iter()
        .map(|adapter| adapter.name())
        .filter(|name| *name != "text")
        .filter(|name| process::find_program(name.as_ref(), path.as_deref(), &here).is_some())
        .collect()
}

fn no_agent_error(command: &str) -> Error {
    let found = installed_agents();
    let error = Error::usage("no agent configured");
    match found.first() {
        Some(first) => error
            .hint(format!("found on the PATH: {}", found.join(", ")))
            .hint(format!("choose one: ralph {command} … -- {first}, or run `ralph init`")),
        None => error
            .hint("no supported agent is on the PATH; `ralph doctor` shows how to install one")
            .hint(format!("or use any command: ralph {command} … -- COMMAND")),
    }
}

const SEPARATE_ARGUMENTS_HINT: &str = "this names one program, including the spaces; put its \
                                       arguments into agent.flags, into AGENT_ARGS in \
                                       .ralph/config, or after `-- PROGRAM`";

fn not_installed_error(program: &str, adapter: &'static dyn Adapter, dir: &Path) -> Error {
    let has_blanks = program.contains(char::is_whitespace);
    let error = Error::input(format!("agent not found: {program}"));
    if program.contains('/') {
        match std::fs::metadata(dir.join(program)) {
            Ok(meta) if meta.is_dir() => Error::usage(format!("agent is a directory: {program}"))
                .hint("name the program in it"),
            Ok(_) => Error::usage(format!("agent is not executable: {program}"))
                .hint(format!("chmod +x {}", shell_words::quote(program))),
            Err(_) if program.starts_with("~/") => {
                error.hint("~ is not expanded here; use the absolute path")
            }
            Err(_) if has_blanks => error.hint(SEPARATE_ARGUMENTS_HINT),
            Err(_) => error.hint("check the path"),
        }
    } else if has_blanks {
        error.hint(SEPARATE_ARGUMENTS_HINT)
    } else if adapter.name() == "text" {
        error.hint("it is not on the PATH; check the name, or use the absolute path")
    } else {
        error.hint(format!("install it: {}", adapter.profile().install_command))
    }
}
