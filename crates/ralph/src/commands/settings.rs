//! `ralph settings`: the effective settings and their origins.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::config::loop_file::{self, LoopFile};
use crate::config::{self, LoadedSettings, SettingOrigin, Sources, schema};
use ralph_events::control_chars::strip_control_chars;
use ralph_events::error::Error;
use ralph_events::json_writer;
use ralph_events::redact;

use crate::cli::args::ProjectArgs;
use crate::{project_dir, recover};

#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// Read this file instead of `.ralph/settings.json`.
    #[arg(long, value_name = "PATH")]
    pub settings: Option<PathBuf>,

    /// Print JSON.
    #[arg(long, conflicts_with = "schema")]
    pub json: bool,

    /// Print the JSON Schema of the settings file.
    #[arg(long)]
    pub schema: bool,
}

const COMMENT_COLUMN: usize = 44;

pub fn settings(place: &ProjectArgs, args: &SettingsArgs) -> Result<u8, Error> {
    let alone = args.settings.is_some() || args.schema;
    let sources = Sources {
        project_dir: project_dir::require_project(place, alone)?.root().to_owned(),
        settings_path: args.settings.clone(),
        env: std::env::vars_os().collect(),
        ..Sources::default()
    };
    recover::remove_planted_files(&sources.project_dir)?;
    if args.schema {
        return crate::cli::print(&schema::schema_text());
    }
    let (text, warnings) = render(&sources, args.json)?;
    warnings.iter().for_each(|warning| crate::cli::warn(warning));
    crate::cli::print(&text)
}

/// Also returns warnings.
fn render(sources: &Sources, as_json: bool) -> Result<(String, Vec<String>), Error> {
    let loaded = config::load(sources)?;
    let loop_file = LoopFileView::at(sources);
    let format = if as_json { json_text } else { table };
    let text = format(&loaded, loop_file.as_ref());
    let mut warnings = loaded.warnings;
    warnings.extend(loop_file.iter().flat_map(LoopFileView::warnings).cloned());
    Ok((text, warnings))
}

fn effective_settings(loaded: &LoadedSettings) -> Value {
    // Settings come from JSON, so they always serialize.
    let mut document = serde_json::to_value(&loaded.settings).unwrap_or_default();
    redact::redact(&mut document);
    document
}

/// `.ralph/config` and the settings with it.
pub(super) struct LoopFileView {
    pub(super) path: PathBuf,
    read: Result<(LoopFile, LoadedSettings), Error>,
}

impl LoopFileView {
    pub(super) fn at(sources: &Sources) -> Option<LoopFileView> {
        let path = sources.project_dir.join(config::DIRECTORY).join(loop_file::FILE);
        let known = |name: &str| {
            let value = sources.env.iter().find(|(known, _)| known == name);
            value.and_then(|(_, value)| value.to_str()).map(str::to_owned)
        };
        let file = loop_file::read(&path, known).transpose()?;
        let read = file.and_then(|file| {
            let overlay = file.overlay.clone();
            let loaded = config::load(&Sources { overlay, ..sources.clone() })?;
            Ok((file, loaded))
        });
        Some(LoopFileView { path, read })
    }

    pub(super) fn problem(&self) -> Option<&Error> {
        self.read.as_ref().err()
    }

    fn warnings(&self) -> &[String] {
        self.read.as_ref().map_or(&[], |(file, _)| &file.warnings)
    }

    fn settings(&self) -> Vec<(String, Value, &SettingOrigin)> {
        let Ok((file, loaded)) = &self.read else { return Vec::new() };
        let is_its = |origin: &SettingOrigin| match origin {
            SettingOrigin::File(name) => file.overlay.iter().any(|entry| entry.name == *name),
            _ => false,
        };
        let document = effective_settings(loaded);
        config::leaf_values(&document)
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .filter_map(|(key, value)| {
                let origin = loaded.origins.get(&key).filter(|origin| is_its(origin))?;
                Some((key, value.clone(), origin))
            })
            .collect()
    }

    fn variables(&self) -> Vec<&str> {
        let files = self.read.iter();
        files.flat_map(|(file, _)| file.variables.keys()).map(String::as_str).collect()
    }
}

fn json_text(loaded: &LoadedSettings, loop_file: Option<&LoopFileView>) -> String {
    let origins: serde_json::Map<String, Value> = loaded
        .origins
        .iter()
        .map(|(key, origin)| (key.clone(), origin.to_string().into()))
        .collect();
    let files: Vec<String> = loaded.files.iter().map(|path| path.display().to_string()).collect();
    let mut document = json!({
        "settings": effective_settings(loaded),
        "origins": origins,
        "files": files,
        "warnings": loaded.warnings,
    });
    if let Some(view) = loop_file {
        let settings: Vec<Value> = view
            .settings()
            .into_iter()
            .map(|(key, value, origin)| {
                json!({"key": key, "value": value, "origin": origin.to_string()})
            })
            .collect();
        document["config"] = json!({
            "file": view.path.display().to_string(),
            "problem": view.problem().map(|problem| problem.message.clone()),
            "settings": settings,
            "variables": view.variables(),
            "warnings": view.warnings(),
        });
    }
    json_writer::pretty(&document).unwrap_or_default() + "\n"
}

fn table(loaded: &LoadedSettings, loop_file: Option<&LoopFileView>) -> String {
    let mut table = String::new();
    for (key, value) in config::leaf_values(&effective_settings(loaded)) {
        if key == "$schema" {
            continue;
        }
        let origin = loaded.origins.get(&key).unwrap_or(&SettingOrigin::Default);
        let by_command = default_by_command(&key).filter(|_| *origin == SettingOrigin::Default);
        table.push_str(&row(&key, value, origin));
        table.extend(by_command.map(|by_command| format!(": {by_command}")));
        table.push('\n');
    }
    if let Some(view) = loop_file {
        let name = config::display_name(&view.path);
        let Some(problem) = view.problem() else {
            table.push_str(&format!("\n# plan, build and prompt, from {name}:\n"));
            for (key, value, origin) in view.settings() {
                table.push_str(&row(&key, &value, origin));
                table.push('\n');
            }
            let variables = view.variables();
            if !variables.is_empty() {
                table.push_str(&format!("# variables for prompts: {}\n", variables.join(", ")));
            }
            return table;
        };
        table.push_str("\n# plan, build and prompt cannot start: invalid config:\n");
        for line in problem.message.lines() {
            table.push_str(&format!("# {line}\n"));
        }
    }
    table
}

fn row(key: &str, value: &Value, origin: &SettingOrigin) -> String {
    let value = json_writer::compact(value).unwrap_or_default();
    let setting = format!("{} = {value}", strip_control_chars(key));
    let space = " ".repeat(COMMENT_COLUMN.saturating_sub(setting.width() + 2));
    format!("{setting}{space}  # {origin}")
}

/// The per-command default, for settings whose default is not a value.
fn default_by_command(key: &str) -> Option<&'static str> {
    let mut schema = schema::schema();
    for key in key.split('.') {
        schema = schema.get("properties")?.get(key)?;
    }
    schema.get("x-default")?.as_str()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::FlagSetting;

    fn project() -> (tempfile::TempDir, Sources) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".ralph")).unwrap();
        fs::write(
            dir.path().join(".ralph/settings.json"),
            r#"{"agent": {"command": "claude", "env": {"MY_TOKEN": "s3cret", "LEVEL": "3"}}}"#,
        )
        .unwrap();
        fs::write(dir.path().join(".ralph/settings.local.json"), r#"{"agent": {"model": "opus"}}"#)
            .unwrap();
        let sources = Sources {
            project_dir: dir.path().to_owned(),
            env: vec![
                ("RALPH_STALL__ITERATIONS".into(), "3".into()),
                ("RALPH_STAL".into(), "3".into()),
            ],
            flags: vec![FlagSetting {
                key: "maximumIterations",
                value: 5.into(),
                name: "--max-iterations".into(),
            }],
            ..Sources::default()
        };
        (dir, sources)
    }

    #[test]
    fn settings_table_shows_origin_of_each_value() {
        let (dir, sources) = project();
        let (out, warnings) = render(&sources, false).unwrap();
        let out = out.replace(&dir.path().display().to_string(), "DIR");
        for line in [
            "maximumIterations = 5                       # flag --max-iterations",
            "completionResponse = \"DONE\"                 # default",
            "agent.command = \"claude\"                    # DIR/.ralph/settings.json",
            "agent.model = \"opus\"                        # DIR/.ralph/settings.local.json",
            "agent.env.MY_TOKEN = \"(redacted)\"           # DIR/.ralph/settings.json",
            "agent.env.LEVEL = \"3\"                       # DIR/.ralph/settings.json",
            "stall.iterations = 3                        # environment RALPH_STALL__ITERATIONS",
            "sandbox.backend = null                      # default: none; work auto",
            "scm = null                                  # default",
        ] {
            assert!(out.lines().any(|l| l == line), "{line}\n{out}");
        }
        assert!(!out.contains("s3cret"));
        assert_eq!(
            warnings,
            ["environment RALPH_STAL: no such setting; did you mean RALPH_STALL?"]
        );
    }

    #[test]
    fn settings_json_matches_table() {
        let (_dir, sources) = project();
        let (out, _) = render(&sources, true).unwrap();
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["settings"]["agent"]["command"], "claude");
        assert_eq!(document["settings"]["agent"]["env"]["MY_TOKEN"], "(redacted)");
        assert_eq!(document["origins"]["maximumIterations"], "flag --max-iterations");
        assert_eq!(document["files"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn settings_lists_loop_config_separately() {
        let (dir, sources) = project();
        let config = dir.path().join(".ralph/config");
        fs::write(
            &config,
            "AGENT_TYPE=codex\nWHO=me\nexport MY_KEY=s3cret\nMAX_ITERATIONS=7\nMAX_RETRY=1\n",
        )
        .unwrap();
        let (out, warnings) = render(&sources, false).unwrap();
        let out = out.replace(&dir.path().display().to_string(), "DIR");
        let (of_all, of_modes) = out.split_once("\n# plan, build and prompt, from").unwrap();
        assert!(of_all.contains("agent.command = \"claude\""), "{out}");
        for line in [
            "agent.command = \"codex\"                     # DIR/.ralph/config:1 (AGENT_TYPE)",
            "agent.env.MY_KEY = \"(redacted)\"             # DIR/.ralph/config:3 (MY_KEY)",
            "# variables for prompts: AGENT_TYPE, MAX_ITERATIONS, MAX_RETRY, MY_KEY, WHO",
        ] {
            assert!(of_modes.lines().any(|l| l == line), "{line}\n{out}");
        }
        assert!(!of_modes.contains("maximumIterations"), "the flag goes over it: {out}");
        let warnings = warnings.concat();
        assert!(warnings.contains("did you mean MAX_RETRIES?") && !out.contains("s3cret"));
        let document: Value = serde_json::from_str(&render(&sources, true).unwrap().0).unwrap();
        assert_eq!(document["settings"]["agent"]["command"], "claude");
        assert_eq!(document["config"]["settings"][0]["value"], "codex");

        fs::write(&config, "A=1\nB=$(x)\n").unwrap();
        let document: Value = serde_json::from_str(&render(&sources, true).unwrap().0).unwrap();
        let problem = document["config"]["problem"].as_str().unwrap();
        assert!(problem.contains("config:2: $(…)"), "{problem}");
        assert!(render(&sources, false).unwrap().0.contains("config:2: $(…) would run a command"));
    }
}
