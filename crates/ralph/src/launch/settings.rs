//! The settings of a run.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::args::LoopArgs;
use crate::config::settings::{GuardrailSettings, ScmSettings};
use crate::config::{self, FlagSetting, LoadedSettings, Settings, Sources, loop_file};
use ralph_events::error::Error;
use ralph_events::event::FailAction;
use ralph_store::project::Project;

/// The project's settings, the local ones, and the loop file.
pub(super) fn settings_files(
    project: &Project,
    settings: Option<&Path>,
    config: Option<&Path>,
) -> [PathBuf; 3] {
    let dir = project.ralph_dir();
    let settings = settings.map_or_else(|| dir.join(config::FILE), Path::to_owned);
    let local = settings.with_file_name(config::LOCAL_FILE);
    let config = config.map_or_else(|| dir.join(loop_file::FILE), Path::to_owned);
    [settings, local, config]
}

/// Loads settings and flags, without side effects. `overlay` comes from another file, `extra` has
/// no flags.
pub(crate) fn load_settings(
    project: &Project,
    args: &LoopArgs,
    overlay: Vec<FlagSetting>,
    extra: Vec<FlagSetting>,
) -> Result<LoadedSettings, Error> {
    let mut flags = flag_settings(args);
    flags.extend(extra);
    let mut loaded = config::load(&Sources {
        project_dir: project.root().to_owned(),
        settings_path: args.settings.clone(),
        env: std::env::vars_os().collect(),
        flags,
        overlay,
    })?;
    apply_check_flags(&mut loaded.settings, args)?;
    Ok(loaded)
}

fn flag_settings(args: &LoopArgs) -> Vec<FlagSetting> {
    let mut flags = Vec::new();
    let mut flag = |key, value, name: &str| {
        flags.push(FlagSetting { key, value, name: name.to_owned() });
    };
    let (budget, timeout) = (&args.budget, args.inactivity_timeout.map(|it| it.to_string()));
    for (key, value, name) in [
        ("maximumIterations", json!(args.max_iterations), "--max-iterations"),
        ("budget.costUsd", json!(budget.max_cost), "--max-cost"),
        ("budget.tokens", json!(budget.max_tokens), "--max-tokens"),
        ("budget.duration", json!(budget.max_time), "--max-time"),
        ("agent.model", json!(args.model), "--model"),
        ("inactivityTimeoutSeconds", json!(timeout), "--inactivity-timeout"),
    ] {
        if !value.is_null() {
            flag(key, value, name);
        }
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
