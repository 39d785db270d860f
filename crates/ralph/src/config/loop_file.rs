//! `.ralph/config`: shell assignments for `plan`, `build` and `prompt`. All of them are prompt
//! variables; some also change settings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::file::utf8_text;
use super::schema::quote;
use super::shell::{self, EnvAssignment};
use super::{FlagSetting, display_name};
use ralph_events::error::Error;
use ralph_events::text;
use ralph_store::user_files;

pub const FILE: &str = "config";

/// Guards against devices and log files.
const MAX_BYTES: u64 = 4 << 20;

const DEFAULT_TEXT_AGENT: &str = "cline";

const KNOWN_VARIABLES: [&str; 9] = [
    "AGENT_TYPE",
    "AGENT_CLI",
    "AGENT_ARGS",
    "AGENT_OUTPUT_FORMAT",
    "AGENT_RESPONSE_FILTER",
    "AGENT_DISPLAY_FILTER",
    "MAX_RETRIES",
    "MAX_ITERATIONS",
    "SPECS_DIR",
];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoopFile {
    pub variables: BTreeMap<String, String>,
    /// Exported variables are in `agent.env`.
    pub overlay: Vec<FlagSetting>,
    pub warnings: Vec<String>,
}

pub fn read(
    path: &Path,
    known: impl Fn(&str) -> Option<String>,
) -> Result<Option<LoopFile>, Error> {
    let name = display_name(path);
    let bytes = match user_files::read_user_file(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) if err.kind() == io::ErrorKind::IsADirectory => {
            return Err(Error::config(format!("config file is a directory: {name}"))
                .hint("it must have lines NAME=value"));
        }
        Err(err) => return Err(Error::config(format!("cannot read {name}: {err}"))),
    };
    let text = utf8_text(bytes, &name)?;
    parse(&text, &name, known).map(Some)
}

fn parse(
    content: &str,
    name: &str,
    known: impl Fn(&str) -> Option<String>,
) -> Result<LoopFile, Error> {
    let (assignments, warnings) = shell::parse(content, known).map_err(|problem| {
        Error::config(format!("{name}:{}: {}", problem.line, problem.message)).hint(problem.hint)
    })?;
    let warnings: Vec<String> =
        warnings.into_iter().map(|it| format!("{name}:{}: {}", it.line, it.message)).collect();
    // The last assignment counts; empty means unset.
    let assigned: BTreeMap<&str, &EnvAssignment> =
        assignments.iter().map(|set| (set.name.as_str(), set)).collect();
    let value = |name: &str| assigned.get(name).copied().filter(|set| !set.value.is_empty());
    let mut overlay = Vec::new();
    let mut override_setting = |key, value: Value, set: &EnvAssignment| {
        overlay.push(FlagSetting {
            key,
            value,
            name: format!("{name}:{} ({})", set.line, set.name),
        });
    };

    let (kind, cli) = (value("AGENT_TYPE"), value("AGENT_CLI"));
    if let Some(set) = cli.or(kind) {
        let is_text = kind.is_some_and(|kind| kind.value == "text");
        let command = match (cli, is_text) {
            (Some(cli), _) => cli.value.as_str(),
            (None, true) => DEFAULT_TEXT_AGENT,
            (None, false) => set.value.as_str(),
        };
        override_setting("agent.command", json!(command), set);
        // `text` describes the output, not the agent.
        let named = kind.filter(|_| !is_text);
        override_setting(
            "agent.type",
            named.map_or(Value::Null, |kind| json!(kind.value)),
            kind.unwrap_or(set),
        );
        if let Some(kind) = kind.filter(|_| is_text) {
            override_setting("agent.outputFormat", json!("text"), kind);
        }
    }
    if let Some(set) = value("AGENT_ARGS") {
        let args = shell_words::split(&set.value).map_err(|_| {
            Error::config(format!("{name}:{}: AGENT_ARGS: unclosed quote", set.line))
                .hint("its words are split as a shell would")
        })?;
        override_setting("agent.args", json!(args), set);
    }
    for (variable, key) in [
        ("AGENT_OUTPUT_FORMAT", "agent.outputFormat"),
        ("AGENT_RESPONSE_FILTER", "agent.responseFilter"),
        ("AGENT_DISPLAY_FILTER", "agent.displayFilter"),
    ] {
        if let Some(set) = value(variable) {
            override_setting(key, json!(set.value), set);
        }
    }
    for (variable, key, minimum) in
        [("MAX_RETRIES", "retry.max", 0), ("MAX_ITERATIONS", "maximumIterations", 1)]
    {
        let Some(set) = value(variable) else { continue };
        match set.value.trim().parse::<u32>() {
            Ok(number) if number >= minimum => override_setting(key, json!(number), set),
            _ => {
                let (line, max) = (set.line, u32::MAX);
                let found = quote(&text::truncate(&set.value, 40, "…"));
                return Err(Error::config(format!(
                    "{name}:{line} ({variable}): must be a whole number from {minimum} to {max}, not {found}",
                )));
            }
        }
    }

    let lookalikes = assigned.values().filter_map(|set| {
        let known = nearest_variable(&set.name)?;
        Some(format!(
            "{name}:{}: {} is not a setting, only a prompt variable; did you mean {known}?",
            set.line, set.name
        ))
    });
    let warnings = warnings.into_iter().chain(lookalikes).collect();

    for set in assigned.values().filter(|set| set.exported) {
        override_setting("agent.env", json!({ &set.name: set.value }), set);
    }
    let variables = assigned.values().map(|set| (set.name.clone(), set.value.clone())).collect();
    Ok(LoopFile { variables, overlay, warnings })
}

fn nearest_variable(name: &str) -> Option<&'static str> {
    if KNOWN_VARIABLES.contains(&name) {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    let upper_singular = singular(&upper);
    KNOWN_VARIABLES.into_iter().find(|known| {
        strsim::osa_distance(&upper, known) <= 1
            || strsim::osa_distance(&upper_singular, &singular(known)) <= 1
    })
}

/// `MAX_RETRIES` becomes `MAX_RETRY`.
fn singular(name: &str) -> String {
    match name.strip_suffix('S') {
        None => name.to_owned(),
        Some(one) => match one.strip_suffix("IE") {
            Some(stem) => format!("{stem}Y"),
            None => one.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_config_warns_about_misspelled_names() {
        for (name, known) in [
            ("AGNET_CLI", Some("AGENT_CLI")),
            ("agent_type", Some("AGENT_TYPE")),
            ("AGENT_TYP", Some("AGENT_TYPE")),
            ("MAX_RETRY", Some("MAX_RETRIES")),
            ("MAX_RETRYS", Some("MAX_RETRIES")),
            ("MAX_RETIRES", Some("MAX_RETRIES")),
            ("MAX_ITERATION", Some("MAX_ITERATIONS")),
            ("MAXITERATIONS", Some("MAX_ITERATIONS")),
            ("AGENT_ARG", Some("AGENT_ARGS")),
            ("SPEC_DIR", Some("SPECS_DIR")),
            ("AGENT_NAME", None),
            ("MAX_FILES", None),
            ("SPECS", None),
            ("MODE", None),
            ("MINE", None),
        ] {
            let file = parse(&format!("AGENT_CLI=y\n{name}=1\n"), "config", |_| None).unwrap();
            let expected: Vec<String> = known
                .map(|known| {
                    format!(
                        "config:2: {name} is not a setting, only a prompt variable; did you mean {known}?"
                    )
                })
                .into_iter()
                .collect();
            assert_eq!(file.warnings, expected);
        }
    }

    fn overlay(text: &str) -> BTreeMap<&'static str, Value> {
        let file = parse(text, "config", |_| None).unwrap();
        file.overlay.into_iter().map(|flag| (flag.key, flag.value)).collect()
    }

    #[test]
    fn loop_config_selects_agent_by_type_or_program() {
        for (text, command, kind, format) in [
            ("AGENT_TYPE=claude", "claude", json!("claude"), Value::Null),
            (
                "AGENT_TYPE=codex\nAGENT_CLI='/my tools/codex 2'",
                "/my tools/codex 2",
                json!("codex"),
                Value::Null,
            ),
            ("AGENT_CLI=amp", "amp", Value::Null, Value::Null),
            ("AGENT_TYPE=text", "cline", Value::Null, json!("text")),
            ("AGENT_TYPE=text\nAGENT_CLI=./mine", "./mine", Value::Null, json!("text")),
            ("AGENT_TYPE=amp\nAGENT_OUTPUT_FORMAT=text", "amp", json!("amp"), json!("text")),
            ("AGENT_TYPE=amp\nAGENT_TYPE=cline\nAGENT_CLI=", "cline", json!("cline"), Value::Null),
        ] {
            let said = overlay(text);
            assert_eq!(said["agent.command"], command, "{text}");
            assert_eq!(said["agent.type"], kind, "{text}");
            assert_eq!(said.get("agent.outputFormat").unwrap_or(&Value::Null), &format, "{text}");
        }
    }

    #[test]
    fn loop_config_without_agent_keeps_agent_settings() {
        let said =
            overlay("AGENT_ARGS=\"-p 'a b'\"\nMAX_RETRIES=0\nMAX_ITERATIONS=5\nMINE=1\nAGENT_CLI=");
        let expected: BTreeMap<&str, Value> = [
            ("agent.args", json!(["-p", "a b"])),
            ("retry.max", json!(0)),
            ("maximumIterations", json!(5)),
        ]
        .into();
        assert_eq!(said, expected);
    }

    #[test]
    fn loop_config_problem_has_line_number() {
        for (text, message) in [
            ("A=1\nB=$(x)", "config:2: $(…)"),
            ("A=1\n\nAGENT_ARGS=\"-p 'x\"", "config:3: AGENT_ARGS"),
        ] {
            let error = parse(text, "config", |_| None).unwrap_err();
            assert!(error.message.starts_with(message), "{error}");
        }
        let file = parse("A=1\nB=$NOBODY", "config", |_| None).unwrap();
        assert!(file.warnings[0].starts_with("config:2: variable NOBODY is not set"));
    }
}
