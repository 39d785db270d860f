//! Loads the settings and records the origin of each value.
//!
//! Layers, lowest first: defaults, `$RALPH_HOME/settings.json`, `.ralph/settings.json`,
//! `.ralph/settings.local.json`, `RALPH_…` variables, flags. Objects merge, arrays and scalars replace. All problems of all layers are
//! reported together.

pub mod args;
pub(crate) mod check;
pub mod duration;
pub mod env;
mod file;
mod key_lines;
mod layers;
pub mod loop_file;
pub mod schema;
pub mod settings;
pub mod shell;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::args::agent_args;
pub use self::duration::Duration;
pub use self::layers::merge_documents;
use self::layers::{SettingsLayers, is_path_inside};
pub use self::settings::Settings;
use ralph_events::error::Error;
use ralph_events::event::FailAction;
use ralph_store::home::ralph_home;
use ralph_store::saved_path;

pub const DIRECTORY: &str = ".ralph";
pub const FILE: &str = "settings.json";
/// Merged over [`FILE`].
pub const LOCAL_FILE: &str = "settings.local.json";

#[derive(Debug, Clone, PartialEq)]
pub struct FlagSetting {
    /// Such as `agent.command`.
    pub key: &'static str,
    pub value: Value,
    /// Such as `--max-iterations`.
    pub name: String,
}

#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub project_dir: PathBuf,
    /// `--settings`. Local settings are then read beside it.
    pub settings_path: Option<PathBuf>,
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<FlagSetting>,
    /// Settings from another file, such as `.ralph/config`; they override the settings files.
    pub overlay: Vec<FlagSetting>,
}

impl Sources {
    pub fn files(&self) -> (PathBuf, PathBuf) {
        let project = match &self.settings_path {
            Some(path) => path.clone(),
            None => self.project_dir.join(DIRECTORY).join(FILE),
        };
        let local = project.with_file_name(LOCAL_FILE);
        (project, local)
    }

    /// The user's own settings, for every project.
    fn home_file(&self) -> Option<PathBuf> {
        let variable = |name: &str| {
            let mut set = self.env.iter();
            set.find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        Some(ralph_home(variable)?.join(FILE))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingOrigin {
    #[default]
    Default,
    File(String),
    Environment(String),
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::File(name) => f.write_str(name),
            SettingOrigin::Environment(variable) => write!(f, "environment {variable}"),
            SettingOrigin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// By path. An array is one value.
    pub origins: BTreeMap<String, SettingOrigin>,
    #[serde(with = "saved_path::list")]
    pub files: Vec<PathBuf>,
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl LoadedSettings {
    pub fn is_set(&self, key: &str) -> bool {
        self.origins.iter().any(|(path, origin)| {
            *origin != SettingOrigin::Default && (path == key || is_path_inside(path, key))
        })
    }
}

/// The settings files, valid or not.
#[derive(Debug, Clone, PartialEq)]
pub struct ExistingSettings {
    /// As far as they are valid JSON.
    pub document: Value,
    pub with_overlay: bool,
    pub problems: Vec<String>,
}

/// For `init`, which replaces the settings. `None` if the project has none; local settings do not
/// count.
pub fn read_existing(sources: &Sources) -> Option<ExistingSettings> {
    let (project, local) = sources.files();
    let mut existing = ExistingSettings {
        document: Value::Object(Map::new()),
        with_overlay: false,
        problems: Vec::new(),
    };
    for (path, is_local) in [(project, false), (local, true)] {
        let name = display_name(&path);
        match file::read(&path, &name) {
            Ok(Some(mut file)) => {
                normalize(&mut file.document);
                existing.problems.extend(file.problems());
                merge_documents(&mut existing.document, file.document);
                existing.with_overlay = is_local;
            }
            Ok(None) if !is_local => return None,
            Ok(None) => {}
            Err(unreadable) => existing.problems.push(unreadable.message),
        }
    }
    Some(existing)
}

/// Loads all layers. The error lists all problems.
pub fn load(sources: &Sources) -> Result<LoadedSettings, Error> {
    let mut layers = SettingsLayers::new();
    let mut files = Vec::new();

    let (project, local) = sources.files();
    let optional = sources.settings_path.is_none();
    // With `--settings .ralph/settings.local.json`, the file is not its own overlay.
    let overlay = (local != project).then_some((&local, true));
    // A run reports a home that is unusable.
    let exists = |home: &PathBuf| *home != project && home.symlink_metadata().is_ok();
    let home = sources.home_file().filter(exists);
    let home = home.as_ref().map(|home| (home, true));
    for (path, optional) in home.into_iter().chain([(&project, optional)]).chain(overlay) {
        let name = display_name(path);
        match file::read(path, &name) {
            Ok(Some(file)) => {
                if path == &project {
                    let agent = agent_settings(&file.document, &name);
                    layers.reset_agent_settings(&agent, SettingOrigin::File);
                }
                files.push(path.clone());
                layers.add_file(file, &SettingOrigin::File(name.clone()));
            }
            // A dangling link is an error, not a missing file.
            Ok(None) if optional && path.symlink_metadata().is_err() => {}
            Ok(None) => layers.problems.push(format!("{name}: no such file")),
            Err(unreadable) => {
                layers.problems.push(unreadable.message);
                layers.hints.extend(unreadable.hints);
            }
        }
    }

    layers.reset_agent_settings(&sources.overlay, SettingOrigin::Flag);
    for entry in &sources.overlay {
        let origin = SettingOrigin::File(entry.name.clone());
        layers.add(nest_value(entry.key.split('.'), entry.value.clone()), &entry.name, &origin);
    }

    // A variable set for one run means that run's agent.
    layers.reset_agent_settings(&sources.flags, SettingOrigin::Flag);
    let environment = env::read(sources.env.iter().cloned());
    if !sources.flags.iter().any(|flag| flag.key == "agent.command") {
        let mut entry = environment.settings.iter();
        let command =
            entry.find(|entry| entry.keys == ["agent", "command"]).map(|entry| FlagSetting {
                key: "agent.command",
                value: entry.value.clone(),
                name: entry.variable.clone(),
            });
        layers.reset_agent_settings(command.as_slice(), SettingOrigin::Environment);
    }
    layers.problems.extend(environment.problems);
    for entry in environment.settings {
        let origin = SettingOrigin::Environment(entry.variable);
        let document = nest_value(entry.keys.iter().map(String::as_str), entry.value);
        layers.add(document, &origin.to_string(), &origin);
    }
    for flag in &sources.flags {
        let origin = SettingOrigin::Flag(flag.name.clone());
        let document = nest_value(flag.key.split('.'), flag.value.clone());
        layers.add(document, &flag.name, &origin);
    }

    layers.finish(files, environment.warnings)
}

/// Arrays and empty objects are values.
pub fn leaf_values(document: &Value) -> Vec<(String, &Value)> {
    fn leaves<'v>(value: &'v Value, path: &str) -> Vec<(String, &'v Value)> {
        match value {
            Value::Object(map) if !map.is_empty() || path.is_empty() => map
                .iter()
                .flat_map(|(key, value)| leaves(value, &schema::join(path, key)))
                .collect(),
            leaf => vec![(path.to_owned(), leaf)],
        }
    }
    leaves(document, "")
}

fn nest_value<'k>(keys: impl DoubleEndedIterator<Item = &'k str>, value: Value) -> Value {
    keys.rev().fold(value, |value, key| Value::Object(Map::from_iter([(key.to_owned(), value)])))
}

/// Fail actions are case-insensitive in files.
fn normalize(document: &mut Value) {
    let guardrails = document.get_mut("guardrails").and_then(Value::as_array_mut);
    for guardrail in guardrails.into_iter().flatten() {
        if let Some(Value::String(action)) = guardrail.get_mut("failAction")
            && let Some(known) = fail_action(action)
        {
            known.as_str().clone_into(action);
        }
    }
}

pub fn fail_action(name: &str) -> Option<FailAction> {
    [FailAction::Append, FailAction::Prepend, FailAction::Replace]
        .into_iter()
        .find(|action| action.as_str().eq_ignore_ascii_case(name))
}

/// The agent that a file names, which may differ from that of the user's own settings.
fn agent_settings(document: &Value, name: &str) -> Vec<FlagSetting> {
    let agent = document.get("agent");
    let keys = [("agent.command", "command"), ("agent.type", "type")];
    let named = keys.into_iter().filter_map(|(key, last)| {
        let value = agent?.get(last)?.clone();
        Some(FlagSetting { key, value, name: name.to_owned() })
    });
    named.collect()
}

pub fn display_name(path: &Path) -> String {
    relative_name(std::env::current_dir().ok().as_deref(), path)
}

fn relative_name(directory: Option<&Path>, path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    let path = match directory {
        Some(directory) => path.strip_prefix(directory).unwrap_or(path),
        None => path,
    };
    path.display().to_string()
}

#[cfg(test)]
mod tests;
