//! `ralph settings`: the effective settings and their origins.

use std::io::{self, Write};
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

pub const EXAMPLES: &str = "\
Examples:
  ralph settings
  RALPH_AGENT__MODEL=opus ralph settings
  ralph settings --schema > settings.schema.json";

#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// Read settings from this file instead of `.ralph/settings.json`.
    #[arg(long, value_name = "PATH")]
    pub settings: Option<PathBuf>,

    /// Print as JSON.
    #[arg(long, conflicts_with = "schema")]
    pub json: bool,

    /// Print the JSON Schema of the settings file.
    #[arg(long)]
    pub schema: bool,
}

const COMMENT_COLUMN: usize = 44;

#[derive(Debug, Clone, Default)]
struct SettingsOptions {
    schema: bool,
    json: bool,
    sources: Sources,
}

pub fn settings(place: &ProjectArgs, args: SettingsArgs) -> Result<u8, Error> {
    let alone = args.settings.is_some() || args.schema;
    let sources = Sources {
        project_dir: project_dir::require_project(place, alone)?.root().to_owned(),
        settings_path: args.settings,
        env: std::env::vars_os().collect(),
        ..Sources::default()
    };
    recover::remove_planted_files(&sources.project_dir)?;
    let options = SettingsOptions { schema: args.schema, json: args.json, sources };
    print_settings(&options, &mut io::stdout().lock(), &mut io::stderr().lock())
}

fn print_settings(
    options: &SettingsOptions,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Error> {
    let text = if options.schema {
        schema::schema_text()
    } else {
        let loaded = config::load(&options.sources)?;
        let loop_file = LoopFileView::at(&options.sources);
        let warnings = loop_file.iter().flat_map(LoopFileView::warnings);
        for warning in loaded.warnings.iter().chain(warnings) {
            let _ = writeln!(err, "ralph: warning: {warning}");
        }
        if options.json {
            as_json(&loaded, loop_file.as_ref())
        } else {
            as_table(&loaded, loop_file.as_ref())
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A closed pipe, such as `head`'s.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Error::failed(format!("the settings could not be printed: {error}"))),
        Ok(()) => Ok(0),
    }
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
        let leaves =
            config::leaf_values(&document).into_iter().filter(|(_, value)| !value.is_null());
        leaves
            .filter_map(|(key, value)| {
                let origin = loaded.origins.get(&key).filter(|origin| is_its(origin))?;
                Some((key, value.clone(), origin))
            })
            .collect()
    }

    fn variables(&self) -> Vec<&str> {
        self.read
            .as_ref()
            .map_or(Vec::new(), |(file, _)| file.variables.keys().map(String::as_str).collect())
    }
}

fn as_json(loaded: &LoadedSettings, loop_file: Option<&LoopFileView>) -> String {
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

fn as_table(loaded: &LoadedSettings, loop_file: Option<&LoopFileView>) -> String {
    let mut table = String::new();
    for (key, value) in config::leaf_values(&effective_settings(loaded)) {
        if key == "$schema" {
            continue;
        }
        let origin = loaded.origins.get(&key).unwrap_or(&SettingOrigin::Default);
        row(&mut table, &key, value, origin);
        if *origin == SettingOrigin::Default
            && let Some(by_command) = default_by_command(&key)
        {
            table.push_str(": ");
            table.push_str(by_command);
        }
        table.push('\n');
    }
    if let Some(view) = loop_file {
        let name = config::display_name(&view.path);
        let Some(problem) = view.problem() else {
            table.push_str(&format!("\n# for plan, build and prompt, by {name}:\n"));
            for (key, value, origin) in view.settings() {
                row(&mut table, &key, &value, origin);
                table.push('\n');
            }
            let variables = view.variables();
            if !variables.is_empty() {
                table.push_str(&format!("# variables for prompts: {}\n", variables.join(", ")));
            }
            return table;
        };
        table.push_str("\n# plan, build and prompt cannot start, because their config is wrong:\n");
        for line in problem.message.lines() {
            table.push_str(&format!("# {line}\n"));
        }
    }
    table
}

fn row(table: &mut String, key: &str, value: &Value, origin: &SettingOrigin) {
    let value = json_writer::compact(value).unwrap_or_default();
    let setting = format!("{} = {value}", strip_control_chars(key));
    let space = COMMENT_COLUMN.saturating_sub(setting.width() + 2);
    table.push_str(&setting);
    table.extend(std::iter::repeat_n(' ', space + 2));
    table.push_str("# ");
    table.push_str(&origin.to_string());
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

    fn printed(options: &SettingsOptions) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(print_settings(options, &mut out, &mut err).unwrap(), 0);
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn project() -> (tempfile::TempDir, SettingsOptions) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".ralph")).unwrap();
        fs::write(
            dir.path().join(".ralph/settings.json"),
            r#"{"agent": {"command": "claude", "env": {"MY_TOKEN": "s3cret", "LEVEL": "3"}}}"#,
        )
        .unwrap();
        fs::write(dir.path().join(".ralph/settings.local.json"), r#"{"agent": {"model": "opus"}}"#)
            .unwrap();
        let options = SettingsOptions {
            sources: Sources {
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
            },
            ..SettingsOptions::default()
        };
        (dir, options)
    }

    #[test]
    fn settings_table_shows_origin_of_each_value() {
        let (dir, options) = project();
        let (out, err) = printed(&options);
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
            err,
            "ralph: warning: environment RALPH_STAL: no such setting; did you mean RALPH_STALL?\n"
        );
    }

    #[test]
    fn settings_json_matches_table() {
        let (_dir, mut options) = project();
        options.json = true;
        let (out, _) = printed(&options);
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["settings"]["agent"]["command"], "claude");
        assert_eq!(document["settings"]["agent"]["env"]["MY_TOKEN"], "(redacted)");
        assert_eq!(document["origins"]["maximumIterations"], "flag --max-iterations");
        assert_eq!(document["files"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn settings_lists_loop_config_separately() {
        let (dir, mut options) = project();
        let config = dir.path().join(".ralph/config");
        fs::write(
            &config,
            "AGENT_TYPE=codex\nWHO=me\nexport MY_KEY=s3cret\nMAX_ITERATIONS=7\nMAX_RETRY=1\n",
        )
        .unwrap();
        let (out, err) = printed(&options);
        let out = out.replace(&dir.path().display().to_string(), "DIR");
        let (of_all, of_modes) = out.split_once("\n# for plan, build and prompt, by").unwrap();
        assert!(of_all.contains("agent.command = \"claude\""), "{out}");
        for line in [
            "agent.command = \"codex\"                     # DIR/.ralph/config:1 (AGENT_TYPE)",
            "agent.env.MY_KEY = \"(redacted)\"             # DIR/.ralph/config:3 (MY_KEY)",
            "# variables for prompts: AGENT_TYPE, MAX_ITERATIONS, MAX_RETRY, MY_KEY, WHO",
        ] {
            assert!(of_modes.lines().any(|l| l == line), "{line}\n{out}");
        }
        assert!(!of_modes.contains("maximumIterations"), "the flag goes over it: {out}");
        assert!(err.contains("did you mean MAX_RETRIES?") && !out.contains("s3cret"), "{err}");
        options.json = true;
        let document: Value = serde_json::from_str(&printed(&options).0).unwrap();
        assert_eq!(document["settings"]["agent"]["command"], "claude");
        assert_eq!(document["config"]["settings"][0]["value"], "codex");

        fs::write(&config, "A=1\nB=$(x)\n").unwrap();
        let document: Value = serde_json::from_str(&printed(&options).0).unwrap();
        let problem = document["config"]["problem"].as_str().unwrap();
        assert!(problem.contains("config:2: $(…)"), "{problem}");
        options.json = false;
        assert!(printed(&options).0.contains("config:2: $(…) would run a command"));
    }

    #[test]
    fn settings_schema_prints_without_valid_settings() {
        let options = SettingsOptions {
            schema: true,
            sources: Sources {
                settings_path: Some(PathBuf::from("/does/not/exist")),
                ..Sources::default()
            },
            ..SettingsOptions::default()
        };
        let (out, _) = printed(&options);
        let schema: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    }

    #[test]
    fn settings_ignores_closed_output() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (_dir, options) = project();
        assert_eq!(print_settings(&options, &mut Gone, &mut Vec::new()).unwrap(), 0);
    }
}
