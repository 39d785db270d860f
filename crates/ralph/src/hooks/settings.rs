//! Hook settings, read without the full check, which a run does at its start.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

use crate::config;
use ralph_events::env_names;
use ralph_store::home::ralph_home;
use ralph_store::safe_fs;

const MAX_BYTES: u64 = 16 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HookRules {
    pub(super) always: bool,
    pub(super) allow: Vec<String>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HookLayer {
    always: Option<bool>,
    allow: Option<Vec<String>>,
}

impl HookRules {
    /// An unreadable layer is ignored: a mistake must not allow anything.
    pub(super) fn load(project: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> HookRules {
        let directory = project.join(config::DIRECTORY);
        // A sandbox hides the home.
        let home = ralph_home(variable).map(|home| home.join(config::FILE));
        let home = home.filter(|path| path.is_file());
        let files = [config::FILE, config::LOCAL_FILE].map(|name| directory.join(name));
        let mut hooks = HookRules::default();
        for path in home.into_iter().chain(files) {
            match from_file(&path) {
                Ok(layer) => hooks.add(layer),
                Err(why) => {
                    let name = path.strip_prefix(project).unwrap_or(&path).display();
                    hooks.error = Some(format!("{name}: {why}"));
                }
            }
        }
        hooks.add(from_environment(variable));
        hooks
    }

    fn add(&mut self, layer: HookLayer) {
        self.always = layer.always.unwrap_or(self.always);
        if let Some(allow) = layer.allow {
            self.allow = allow;
        }
    }
}

fn from_file(path: &Path) -> Result<HookLayer, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Document {
        hooks: HookLayer,
    }
    let file = safe_fs::open_file(path).and_then(|file| safe_fs::read_limited(file, MAX_BYTES));
    let document = match file {
        Ok(bytes) => serde_json::from_slice::<Document>(&bytes).map_err(|err| err.to_string())?,
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Document::default()
        }
        Err(err) => return Err(err.to_string()),
    };
    Ok(document.hooks)
}

fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> HookLayer {
    let text = |name| variable(name).and_then(|value| value.into_string().ok());
    let always = text("RALPH_HOOKS__ALWAYS").and_then(|word| match word.trim() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    });
    let allow = text(env_names::HOOKS_ALLOW).and_then(|words| {
        if words.trim_start().starts_with('[') {
            serde_json::from_str(&words).ok()
        } else {
            shell_words::split(&words).ok()
        }
    });
    HookLayer { always, allow }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(file: &str, local: &str) -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        let directory = project.path().join(config::DIRECTORY);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(config::FILE), file).unwrap();
        if !local.is_empty() {
            std::fs::write(directory.join(config::LOCAL_FILE), local).unwrap();
        }
        project
    }

    #[test]
    fn invalid_hook_settings_allow_nothing_and_are_reported() {
        for (file, local) in [
            ("{", ""),
            (r#"{"hooks": {"allow": "x"}}"#, ""),
            (r#"{"hooks": 7}"#, ""),
            ("{}", r#"{"hooks": {"always": true"#),
        ] {
            let hooks = HookRules::load(project(file, local).path(), &|_| None);
            assert_eq!((hooks.always, hooks.allow), (false, vec![]), "{file} {local}");
            let name = if local.is_empty() { "settings.json: " } else { "settings.local.json: " };
            let broken = hooks.error.unwrap_or_default();
            assert!(broken.starts_with(&format!(".ralph/{name}")), "{broken}");
        }
    }

    #[test]
    fn hook_settings_layers_override_by_key() {
        let both =
            r#"{"agent": {"command": "x"}, "hooks": {"always": true, "allow": ["a b", "c"]}}"#;
        let hooks = |always, allow: &[&str]| HookRules {
            always,
            allow: allow.iter().map(|entry| (*entry).to_owned()).collect(),
            error: None,
        };
        for (file, local, variables, expected) in [
            ("{}", "", &[][..], hooks(false, &[])),
            (both, "", &[], hooks(true, &["a b", "c"])),
            (both, r#"{"hooks": {"always": false}}"#, &[], hooks(false, &["a b", "c"])),
            (both, r#"{"hooks": {"allow": []}}"#, &[], hooks(true, &[])),
            (both, "", &[("RALPH_HOOKS__ALLOW", r#"["d e"]"#)], hooks(true, &["d e"])),
            (both, "", &[("RALPH_HOOKS__ALLOW", "'d e' f")], hooks(true, &["d e", "f"])),
            (both, "", &[("RALPH_HOOKS__ALLOW", "")], hooks(true, &[])),
            (both, "", &[("RALPH_HOOKS__ALWAYS", "0")], hooks(false, &["a b", "c"])),
        ] {
            let project = project(file, local);
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            let loaded = HookRules::load(project.path(), &variable);
            assert_eq!(loaded, expected, "{file} {local} {variables:?}");
        }
    }
}
