//! `ralph settings`: the effective settings, and where each value came from.

use std::io::{self, Write};

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::config::{self, Loaded, Origin, Sources, schema, secret};
use crate::error::Error;

/// Where the comment with the origin starts, unless a value is longer.
const COMMENT_COLUMN: usize = 44;

/// What `ralph settings` was asked for.
#[derive(Debug, Clone, Default)]
pub struct SettingsOptions {
    /// Print the JSON Schema rather than the settings.
    pub schema: bool,
    /// Print for a program rather than for a person.
    pub json: bool,
    pub sources: Sources,
}

/// Carries out `ralph settings`. Warnings go to `err`.
///
/// # Errors
/// Settings that are wrong, or an output that cannot be written to.
pub fn settings(
    options: &SettingsOptions,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Error> {
    let text = if options.schema {
        schema::schema_text()
    } else {
        let loaded = config::load(&options.sources)?;
        for warning in &loaded.warnings {
            // Nobody to warn is no reason not to answer.
            let _ = writeln!(err, "ralph: warning: {warning}");
        }
        if options.json { as_json(&loaded) } else { as_table(&loaded) }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough, such as `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Error::failed(format!("the settings could not be printed: {error}"))),
        Ok(()) => Ok(0),
    }
}

/// All settings as a document, without what must not be shown.
fn effective(loaded: &Loaded) -> Value {
    // Settings came from JSON and have no keys but strings: they always serialize.
    let mut document = serde_json::to_value(&loaded.settings).unwrap_or_default();
    secret::redact(&mut document);
    document
}

fn as_json(loaded: &Loaded) -> String {
    let origins: serde_json::Map<String, Value> = loaded
        .origins
        .iter()
        .map(|(key, origin)| (key.clone(), origin.to_string().into()))
        .collect();
    let files: Vec<String> = loaded.files.iter().map(|path| path.display().to_string()).collect();
    let document = json!({
        "settings": effective(loaded),
        "origins": origins,
        "files": files,
        "warnings": loaded.warnings,
    });
    format!("{document:#}\n")
}

fn as_table(loaded: &Loaded) -> String {
    let mut table = String::new();
    for (key, value) in config::leaves(&effective(loaded)) {
        if key == "$schema" {
            continue;
        }
        let origin = loaded.origins.get(&key).unwrap_or(&Origin::Default);
        let setting = format!("{key} = {value}");
        let space = COMMENT_COLUMN.saturating_sub(setting.width() + 2);
        table.push_str(&setting);
        table.extend(std::iter::repeat_n(' ', space + 2));
        table.push_str("# ");
        table.push_str(&origin.to_string());
        if *origin == Origin::Default
            && let Some(by_command) = default_by_command(&key)
        {
            table.push_str(": ");
            table.push_str(by_command);
        }
        table.push('\n');
    }
    table
}

/// What commands make of a setting that nobody gave, where that is not in the value itself.
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
    use std::path::PathBuf;

    use super::*;
    use crate::config::Flag;

    fn printed(options: &SettingsOptions) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(settings(options, &mut out, &mut err).unwrap(), 0);
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
                flags: vec![Flag {
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
    fn the_table_says_where_each_value_came_from() {
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
    fn json_holds_the_same() {
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
    fn the_schema_needs_no_valid_settings() {
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
    fn a_reader_that_went_away_is_no_error() {
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
        assert_eq!(settings(&options, &mut Gone, &mut Vec::new()).unwrap(), 0);
    }
}
