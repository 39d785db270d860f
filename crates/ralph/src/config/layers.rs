//! Merges the layers of settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::file::SettingsFile;
use super::key_lines::SUGGESTION;
use super::{
    FlagSetting, LoadedSettings, SettingOrigin, Settings, check, leaf_values, nest_value, normalize,
};
use ralph_events::error::Error;

/// Settings that apply to one agent program only.
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

/// The layers merged so far, and their problems.
pub(super) struct SettingsLayers {
    merged: Value,
    origins: BTreeMap<String, SettingOrigin>,
    pub(super) problems: Vec<String>,
    pub(super) hints: Vec<String>,
}

impl SettingsLayers {
    pub(super) fn new() -> Self {
        SettingsLayers {
            merged: Value::Object(Map::new()),
            origins: BTreeMap::new(),
            problems: Vec::new(),
            hints: Vec::new(),
        }
    }

    pub(super) fn add_file(&mut self, mut file: SettingsFile, origin: &SettingOrigin) {
        normalize(&mut file.document);
        let problems = file.problems();
        self.add_checked(file.document, problems, origin);
    }

    pub(super) fn add(&mut self, mut document: Value, name: &str, origin: &SettingOrigin) {
        normalize(&mut document);
        let problems = check::find_problems(&document);
        let problems = problems.iter().map(|problem| format!("{name}: {problem}")).collect();
        self.add_checked(document, problems, origin);
    }

    /// Skips a document with problems.
    fn add_checked(&mut self, document: Value, problems: Vec<String>, origin: &SettingOrigin) {
        if !problems.is_empty() {
            self.problems.extend(problems);
            return;
        }
        for (path, value) in leaf_values(&document) {
            // An empty object replaces nothing.
            if !value.is_object() {
                self.origins.retain(|known, _| !is_path_inside(known, &path));
            }
            self.origins.insert(path, origin.clone());
        }
        merge_documents(&mut self.merged, document);
    }

    /// Drops agent-specific settings if the next layer names a different agent. Settings without an
    /// agent apply to any.
    pub(super) fn reset_agent_settings(
        &mut self,
        next: &[FlagSetting],
        origin: fn(String) -> SettingOrigin,
    ) {
        let Some(program) = next.iter().find(|flag| flag.key == "agent.command") else { return };
        let current = self.merged.pointer("/agent/command").and_then(Value::as_str);
        if current.is_none_or(|current| current.is_empty() || program.value == current) {
            return;
        }
        // A known agent is the same whatever path or name its program has.
        let kind = next.iter().find(|flag| flag.key == "agent.type");
        let next_agent =
            known_agent(kind.and_then(|kind| kind.value.as_str()), program.value.as_str());
        let kind = self.merged.pointer("/agent/type").and_then(Value::as_str);
        if next_agent.is_some() && next_agent == known_agent(kind, current) {
            return;
        }
        let origin = origin(program.name.clone());
        for key in AGENT_SPECIFIC_KEYS {
            let empty = if key == "agent.flags" { Value::Array(Vec::new()) } else { Value::Null };
            self.add(nest_value(key.split('.'), empty), &program.name, &origin);
        }
    }

    pub(super) fn finish(
        self,
        files: Vec<PathBuf>,
        warnings: Vec<String>,
    ) -> Result<LoadedSettings, Error> {
        if let [only] = self.problems.as_slice()
            && let Some((what, nearest)) = only.rsplit_once(SUGGESTION)
        {
            return Err(Error::config(what).hint(format!("did you mean {nearest}")));
        }
        if !self.problems.is_empty() {
            let error = Error::config(self.problems.join("\n"));
            return Err(self.hints.into_iter().fold(error, Error::hint));
        }
        // Documents that passed the check always deserialize.
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

/// By its type, or by its program's name.
fn known_agent<'a>(kind: Option<&'a str>, program: Option<&'a str>) -> Option<&'a str> {
    let name = || Path::new(program?).file_name()?.to_str();
    kind.or_else(name).filter(|name| *name != "text" && ralph_agents::by_name(name).is_some())
}

pub fn merge_documents(base: &mut Value, overlay: Value) {
    match (base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => {
            for (key, value) in overlay {
                match base.get_mut(&key) {
                    Some(existing) => merge_documents(existing, value),
                    None => drop(base.insert(key, value)),
                }
            }
        }
        (base, overlay) => *base = overlay,
    }
}

pub(super) fn is_path_inside(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
}
