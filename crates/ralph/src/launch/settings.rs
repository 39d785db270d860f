//! The settings of a run.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::args::LoopArgs;
use crate::config::settings::{GuardrailSettings, ScmSettings};
use crate::config::{self, FlagSetting, LoadedSettings, Settings, Sources, loop_file};
use ralph_events::error::Error;
use ralph_events::event::FailAction;
use ralph_store::project::Project;

/// The project's settings, the local ones, and the loop file.
pub(crate) fn settings_files(
    project: &Project,
    args: &LoopArgs,
    config: Option<&PathBuf>,
) -> [PathBuf; 3] {
    let dir = project.ralph_dir();
    let settings = args.settings.clone().unwrap_or_else(|| dir.join(config::FILE));
    let local = settings.with_file_name(config::LOCAL_FILE);
    let config = config.cloned().unwrap_or_else(|| dir.join(loop_file::FILE));
    [settings, local, config]
}

pub(crate) fn named_settings_files(
    project: &Project,
    args: &LoopArgs,
    config: Option<&PathBuf>,
) -> Vec<(PathBuf, String)> {
    let files = settings_files(project, args, config).into_iter();
    files.map(|file| (file.clone(), config::display_name(&file))).collect()
}

/// Loads settings and flags, without side effects. `overlay` comes from another file, `extra` has
/// no flags. A worktree's `project` is the one it was spawned from: the worktree contains what was
/// committed, possibly by an agent.
pub(crate) fn load_settings(
    project: &Project,
    args: &LoopArgs,
    overlay: Vec<FlagSetting>,
    extra: Vec<FlagSetting>,
) -> Result<LoadedSettings, Error> {
    let mut flags = flag_settings(args);
    flags.extend(extra);
    // A resumed run keeps its settings.
    let is_new = args.resume.is_none();
    let env = std::env::vars_os().filter(|_| is_new).collect();
    let overlay = if is_new { overlay } else { Vec::new() };
    let mut loaded = config::load(&Sources {
        project_dir: project.root().to_owned(),
        settings_path: args.settings.clone(),
        env,
        flags,
        overlay,
    })?;
    if is_new {
        apply_check_flags(&mut loaded.settings, args)?;
    }
    loaded.warnings.extend(args.resume.iter().flat_map(|resume| resume.warnings.clone()));
    Ok(loaded)
}

fn flag_settings(args: &LoopArgs) -> Vec<FlagSetting> {
    let mut flags = Vec::new();
    let mut flag = |key, value, name: &str| {
        flags.push(FlagSetting { key, value, name: name.to_owned() });
    };
    if let Some(n) = args.max_iterations {
        flag("maximumIterations", json!(n), "--max-iterations");
    }
    let budget = &args.budget;
    if let Some(dollars) = budget.max_cost {
        flag("budget.costUsd", json!(dollars), "--max-cost");
    }
    if let Some(tokens) = budget.max_tokens {
        flag("budget.tokens", json!(tokens), "--max-tokens");
    }
    if let Some(time) = &budget.max_time {
        flag("budget.duration", json!(time), "--max-time");
    }
    let agent = match args.agent_command.split_first() {
        Some((program, rest)) => Some((program, Some(rest), "-- COMMAND")),
        None => args.agent.as_ref().map(|program| (program, None, "--agent")),
    };
    if let Some((program, rest, name)) = agent {
        flag("agent.command", json!(program), name);
        if let Some(rest) = rest {
            flag("agent.flags", json!(rest), name);
            flag("agent.args", json!(null), name);
        }
    }
    if let Some(model) = &args.model {
        flag("agent.model", json!(model), "--model");
    }
    if let Some(timeout) = args.inactivity_timeout {
        flag("inactivityTimeoutSeconds", json!(timeout.to_string()), "--inactivity-timeout");
    }
    if args.no_stream_agent_output {
        flag("streamAgentOutput", json!(false), "--no-stream-agent-output");
    } else if args.stream_agent_output {
        flag("streamAgentOutput", json!(true), "--stream-agent-output");
    }
    if args.no_sandbox {
        flag("sandbox.backend", json!("none"), "--no-sandbox");
        flag("sandbox.required", json!(false), "--no-sandbox");
    } else if let Some(backend) = &args.sandbox {
        // Without a name: any backend, but one is required.
        let any = backend.is_empty();
        flag("sandbox.backend", json!(if any { "auto" } else { backend }), "--sandbox");
        if any {
            flag("sandbox.required", json!(true), "--sandbox");
        }
    }
    flags
}

fn apply_check_flags(settings: &mut Settings, args: &LoopArgs) -> Result<(), Error> {
    for command in &args.check {
        if command.trim().is_empty() {
            return Err(Error::usage("--check is empty").hint("--check \"make test\""));
        }
        if !settings.guardrails.iter().any(|guardrail| guardrail.command == *command) {
            settings.guardrails.push(GuardrailSettings {
                command: command.clone(),
                fail_action: FailAction::Append,
                hint: None,
                timeout_seconds: None,
            });
        }
    }
    if args.commit {
        let tasks = &mut settings.scm.get_or_insert_with(ScmSettings::default).tasks;
        let commits = |task: &String| task.split_whitespace().next() == Some("commit");
        if !tasks.iter().any(commits) {
            tasks.insert(0, "commit".to_owned());
        }
    }
    Ok(())
}
