//! Settings: files, environment and flags become one [`Settings`], and each value's origin is known.
//!
//! Layers, each over the one before: defaults, `.ralph/settings.json`, `.ralph/settings.local.json`,
//! `RALPH_…` variables, flags. Objects merge, arrays and scalars replace. Every layer is checked
//! against the same [`schema`], and all problems of all layers are reported together.

pub mod args;
pub(crate) mod check;
pub mod duration;
pub mod env;
mod file;
pub mod loop_file;
pub mod schema;
pub mod settings;
pub mod shell;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use self::args::agent_args;
pub use self::duration::Duration;
pub use self::settings::Settings;
use ralph_events::error::Error;
use ralph_events::event::FailAction;

/// The directory in a project that belongs to ralph.
pub const DIRECTORY: &str = ".ralph";
/// The settings of a project, inside of [`DIRECTORY`].
pub const FILE: &str = "settings.json";
/// The settings of one person, merged over [`FILE`].
pub const LOCAL_FILE: &str = "settings.local.json";

/// Settings that are only about the program that they were made for.
const AGENT_SPECIFIC_KEYS: [&str; 8] = [
    "agent.flags",
    "agent.type",
    "agent.model",
    "agent.promptVia",
    "agent.args",
    "agent.outputFormat",
    "agent.responseFilter",
    "agent.displayFilter",
];

/// A setting that a flag gave.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagSetting {
    /// The setting's path, such as `agent.command`.
    pub key: &'static str,
    pub value: Value,
    /// The flag as the user knows it: `--max-iterations`.
    pub name: String,
}

/// Where settings come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub project_dir: PathBuf,
    /// `--settings`: this file rather than the project's. The local settings are then those beside
    /// it.
    pub settings_path: Option<PathBuf>,
    /// The whole environment, as from [`std::env::vars_os`].
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<FlagSetting>,
    /// What another file than the settings says, over the settings files; a flag's name is then that of
    /// the file.
    pub overlay: Vec<FlagSetting>,
}

impl Sources {
    /// The file of the project's settings and the file of local ones.
    pub fn files(&self) -> (PathBuf, PathBuf) {
        let project = match &self.settings_path {
            Some(path) => path.clone(),
            None => self.project_dir.join(DIRECTORY).join(FILE),
        };
        let local = project.with_file_name(LOCAL_FILE);
        (project, local)
    }
}

/// Where the value of a setting came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SettingOrigin {
    #[default]
    Default,
    /// A file, by the name that a person in the current directory would use.
    File(String),
    /// The variable.
    Environment(String),
    /// The flag.
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

/// Settings with their history.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// Where each value came from, by its path. Arrays are one value.
    pub origins: BTreeMap<String, SettingOrigin>,
    /// The files that were there, in order.
    pub files: Vec<PathBuf>,
    /// What is odd but not wrong.
    pub warnings: Vec<String>,
}

impl LoadedSettings {
    /// Whether somebody gave the setting at this path, or one inside of it, a value.
    pub fn is_set(&self, key: &str) -> bool {
        self.origins.iter().any(|(path, origin)| {
            *origin != SettingOrigin::Default && (path == key || is_path_inside(path, key))
        })
    }
}

/// The settings files of a project as they are, right or wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct ExistingSettings {
    /// The project's settings with the local ones merged over them, as far as they are JSON.
    pub document: Value,
    /// Whether there were local settings to merge.
    pub with_overlay: bool,
    /// What is wrong with them, a line each.
    pub problems: Vec<String>,
}

/// What is there of settings, for somebody who is about to replace them; `None` if the project has
/// none, whether or not there are local ones.
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
            Ok(Some(mut document)) => {
                normalize(&mut document);
                let problems = check::find_problems(&document);
                let named = problems.iter().map(|problem| format!("{name}: {problem}"));
                existing.problems.extend(named);
                merge_documents(&mut existing.document, document);
                existing.with_overlay = is_local;
            }
            Ok(None) if !is_local => return None,
            Ok(None) => {}
            Err(unreadable) => existing.problems.push(unreadable.message),
        }
    }
    Some(existing)
}

/// Collects the settings of all layers.
///
/// # Errors
/// Everything that is wrong in any layer, a line each.
pub fn load(sources: &Sources) -> Result<LoadedSettings, Error> {
    let mut layers = SettingsLayers::new();
    let mut files = Vec::new();

    let (project, local) = sources.files();
    let optional = sources.settings_path.is_none();
    // With `--settings .ralph/settings.local.json` the file is not its own overlay.
    let overlay = (local != project).then_some((&local, true));
    for (path, optional) in std::iter::once((&project, optional)).chain(overlay) {
        let name = display_name(path);
        match file::read(path, &name) {
            Ok(Some(document)) => {
                files.push(path.clone());
                layers.add(document, &name, &SettingOrigin::File(name.clone()));
            }
            // A link that leads nowhere is a mistake, and no reason to do without.
            Ok(None) if optional && path.symlink_metadata().is_err() => {}
            Ok(None) => layers.problems.push(format!("{name}: no such file")),
            Err(unreadable) => {
                layers.problems.push(unreadable.message);
                layers.hints.extend(unreadable.hint);
            }
        }
    }

    layers.reset_agent_settings(&sources.overlay, SettingOrigin::Flag);
    for given in &sources.overlay {
        let origin = SettingOrigin::File(given.name.clone());
        layers.add(nest_value(given.key.split('.'), given.value.clone()), &given.name, &origin);
    }

    // Whoever sets a variable for one run means the agent of that run.
    layers.reset_agent_settings(&sources.flags, SettingOrigin::Flag);
    let environment = env::read(sources.env.iter().cloned());
    if !sources.flags.iter().any(|flag| flag.key == "agent.command") {
        let mut given = environment.settings.iter();
        let command =
            given.find(|given| given.keys == ["agent", "command"]).map(|given| FlagSetting {
                key: "agent.command",
                value: given.value.clone(),
                name: given.variable.clone(),
            });
        layers.reset_agent_settings(command.as_slice(), SettingOrigin::Environment);
    }
    layers.problems.extend(environment.problems);
    for given in environment.settings {
        let origin = SettingOrigin::Environment(given.variable);
        let document = nest_value(given.keys.iter().map(String::as_str), given.value);
        layers.add(document, &origin.to_string(), &origin);
    }
    for flag in &sources.flags {
        let origin = SettingOrigin::Flag(flag.name.clone());
        let document = nest_value(flag.key.split('.'), flag.value.clone());
        layers.add(document, &flag.name, &origin);
    }

    layers.finish(files, environment.warnings)
}

/// The merge of the documents of several layers over the defaults, and what was wrong with them.
struct SettingsLayers {
    merged: Value,
    origins: BTreeMap<String, SettingOrigin>,
    problems: Vec<String>,
    hints: Vec<String>,
}

impl SettingsLayers {
    fn new() -> Self {
        SettingsLayers {
            merged: Value::Object(Map::new()),
            origins: BTreeMap::new(),
            problems: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Puts a document over the layers so far, unless it has problems, which are then reported
    /// under `name`.
    fn add(&mut self, mut document: Value, name: &str, origin: &SettingOrigin) {
        normalize(&mut document);
        let problems = check::find_problems(&document);
        if problems.is_empty() {
            merge(&mut self.merged, document, "", &mut |path| {
                record_origin(&mut self.origins, path, origin);
            });
        } else {
            let named = problems.iter().map(|problem| format!("{name}: {problem}"));
            self.problems.extend(named);
        }
    }

    /// If what comes next names an agent, and it is another than the one of the layers so far, what these say
    /// of theirs is not for it. Where they name none, they mean whichever is run.
    fn reset_agent_settings(&mut self, next: &[FlagSetting], origin: fn(String) -> SettingOrigin) {
        let Some(program) = next.iter().find(|flag| flag.key == "agent.command") else { return };
        let named = self.merged.pointer("/agent/command").and_then(Value::as_str);
        if named.is_none_or(|named| named.is_empty() || program.value == named) {
            return;
        }
        // One that is known is the same wherever its program is, and whatever that is called.
        let kind = next.iter().find(|flag| flag.key == "agent.type");
        let next_one =
            known_agent(kind.and_then(|kind| kind.value.as_str()), program.value.as_str());
        let kind = self.merged.pointer("/agent/type").and_then(Value::as_str);
        if next_one.is_some() && next_one == known_agent(kind, named) {
            return;
        }
        let origin = origin(program.name.clone());
        for key in AGENT_SPECIFIC_KEYS {
            let nothing = if key == "agent.flags" { Value::Array(Vec::new()) } else { Value::Null };
            self.add(nest_value(key.split('.'), nothing), &program.name, &origin);
        }
    }

    fn finish(self, files: Vec<PathBuf>, warnings: Vec<String>) -> Result<LoadedSettings, Error> {
        if !self.problems.is_empty() {
            let error = Error::config(self.problems.join("\n"));
            return Err(self.hints.into_iter().fold(error, Error::hint));
        }
        // What every layer's check let pass deserializes, and settings are always JSON. Should a
        // new key ever break that, it is an error like any other.
        let broken = |error: serde_json::Error| Error::config(format!("settings: {error}"));
        let settings: Settings = serde_json::from_value(self.merged).map_err(broken)?;
        let effective = serde_json::to_value(&settings).map_err(broken)?;
        let mut origins = BTreeMap::new();
        for (path, _) in leaf_values(&effective) {
            let origin = self.origins.get(&path).cloned().unwrap_or_default();
            origins.insert(path, origin);
        }
        Ok(LoadedSettings { settings, origins, files, warnings })
    }
}

/// The agent that is meant, if it is one that is known: by its type, or else by the name of its program.
fn known_agent<'a>(kind: Option<&'a str>, program: Option<&'a str>) -> Option<&'a str> {
    let name = || Path::new(program?).file_name()?.to_str();
    kind.or_else(name).filter(|name| *name != "text" && ralph_agents::by_name(name).is_some())
}

/// Merges documents as the layers of settings are merged.
pub fn merge_documents(base: &mut Value, overlay: Value) {
    merge(base, overlay, "", &mut |_| {});
}

/// Puts `overlay` over `base`: objects merge, anything else replaces. `written` is told the path of
/// every value that was replaced or added as a whole.
fn merge(base: &mut Value, overlay: Value, path: &str, written: &mut dyn FnMut(&str)) {
    match (base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => {
            for (key, value) in overlay {
                let path = schema::join(path, &key);
                match base.get_mut(&key) {
                    Some(existing) => merge(existing, value, &path, written),
                    None => {
                        notify_written(&value, &path, written);
                        base.insert(key, value);
                    }
                }
            }
        }
        (base, overlay) => {
            notify_written(&overlay, path, written);
            *base = overlay;
        }
    }
}

/// Tells `written` of a new value and of all that is in it.
fn notify_written(value: &Value, path: &str, written: &mut dyn FnMut(&str)) {
    written(path);
    if let Value::Object(map) = value {
        for (key, value) in map {
            notify_written(value, &schema::join(path, key), written);
        }
    }
}

/// Records the origin of a value, and forgets those of values that it took the place of.
fn record_origin(
    origins: &mut BTreeMap<String, SettingOrigin>,
    path: &str,
    origin: &SettingOrigin,
) {
    origins.retain(|known, _| !is_path_inside(known, path));
    origins.insert(path.to_owned(), origin.clone());
}

/// Whether `path` leads to something inside of the value at `outer`.
fn is_path_inside(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// All values of a document by their paths, in order. An array, and an object with nothing in it,
/// is one value.
pub fn leaf_values(document: &Value) -> Vec<(String, &Value)> {
    fn collect<'v>(value: &'v Value, path: &str, all: &mut Vec<(String, &'v Value)>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    collect(value, &schema::join(path, key), all);
                }
            }
            Value::Object(_) if path.is_empty() => {}
            leaf => all.push((path.to_owned(), leaf)),
        }
    }
    let mut all = Vec::new();
    collect(document, "", &mut all);
    all
}

/// A document that holds one value.
fn nest_value<'k>(keys: impl DoubleEndedIterator<Item = &'k str>, value: Value) -> Value {
    keys.rev().fold(value, |value, key| Value::Object(Map::from_iter([(key.to_owned(), value)])))
}

/// Fail actions are taken in any case; from here on they are in capitals.
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

/// The fail action of this name, in any case.
pub fn fail_action(name: &str) -> Option<FailAction> {
    [FailAction::Append, FailAction::Prepend, FailAction::Replace]
        .into_iter()
        .find(|action| action.as_str().eq_ignore_ascii_case(name))
}

/// A path as a person in the current directory would name it.
pub fn display_name(path: &Path) -> String {
    relative_name(std::env::current_dir().ok().as_deref(), path)
}

/// A path as a person in the directory `here` would name it.
fn relative_name(here: Option<&Path>, path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    let path = match here {
        Some(here) => path.strip_prefix(here).unwrap_or(path),
        None => path,
    };
    path.display().to_string()
}

#[cfg(test)]
mod tests;
