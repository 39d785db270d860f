//! Settings from `RALPH_…` variables.
//!
//! `RALPH_MAXIMUM_ITERATIONS` is `maximumIterations`, `RALPH_AGENT__COMMAND` is `agent.command`:
//! underscores for camel case, two between levels. The schema gives the type of the value.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;

use super::schema;
use ralph_events::env_names::{self, PREFIX};

pub const RESERVED_VARIABLES: [&str; 9] = [
    env_names::RALPH_HOME,
    env_names::RUN_ID,
    env_names::ITERATION,
    env_names::MAX_ITERATIONS,
    env_names::STOP_CHECK,
    env_names::TMUX_SOCKET,
    env_names::GUARDED,
    env_names::QUESTIONS_DIR,
    env_names::PARKED_STORIES,
];

#[derive(Debug, PartialEq)]
pub(crate) struct EnvSetting {
    pub(crate) keys: Vec<String>,
    pub(crate) value: Value,
    pub(crate) variable: String,
}

#[derive(Debug, Default)]
pub(crate) struct EnvSettings {
    pub(crate) settings: Vec<EnvSetting>,
    pub(crate) warnings: Vec<String>,
    pub(crate) problems: Vec<String>,
}

/// `path` is such as `agent.command`.
pub fn variable_name(path: &str) -> String {
    let mut name = String::from(PREFIX);
    for c in path.replace('.', "__").chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// Keys and schema by variable.
type KnownVariables = BTreeMap<String, (Vec<String>, &'static Value)>;

pub(crate) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> EnvSettings {
    let mut known = KnownVariables::new();
    for (path, schema) in schema::paths(schema::schema(), "") {
        if path != "$schema" {
            let keys = path.split('.').map(str::to_owned).collect();
            known.insert(variable_name(&path), (keys, schema));
        }
    }
    let mut ours: Vec<(String, OsString)> = variables
        .into_iter()
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| !RESERVED_VARIABLES.contains(&name.as_str()))
        .collect();
    // Sorts an object before its members.
    ours.sort();

    let mut environment = EnvSettings::default();
    for (variable, value) in ours {
        let entry = known.get(&variable).cloned().or_else(|| map_entry(&known, &variable));
        let Some((keys, schema)) = entry else {
            environment.warnings.push(unknown(&known, &variable));
            continue;
        };
        let text = value.into_string().map_err(|_| "not valid UTF-8".to_owned());
        match text.and_then(|text| parse_value(schema, &text)) {
            Ok(value) => environment.settings.push(EnvSetting { keys, value, variable }),
            Err(problem) => environment.problems.push(format!("environment {variable}: {problem}")),
        }
    }
    environment
}

/// `RALPH_AGENT__ENV__NAME` is the entry `NAME` of `agent.env`.
fn map_entry(known: &KnownVariables, variable: &str) -> Option<(Vec<String>, &'static Value)> {
    known.iter().find_map(|(name, (keys, schema))| {
        let schema = schema.get("additionalProperties").filter(|s| s.is_object())?;
        let key = variable.strip_prefix(name)?.strip_prefix("__")?;
        let mut keys = keys.clone();
        keys.push(key.to_owned());
        Some((keys, schema))
    })
}

fn unknown(known: &KnownVariables, variable: &str) -> String {
    let names = known.keys().map(String::as_str);
    let shown = schema::quote(variable);
    let shown = shown.trim_matches('"');
    // The common prefix would make all names look alike.
    let candidates = names.map(|name| name.strip_prefix(PREFIX).unwrap_or(name));
    let own = variable.strip_prefix(PREFIX).unwrap_or(variable);
    match schema::nearest_name(own, candidates) {
        Some(nearest) => {
            format!("environment {shown}: no such setting; did you mean {PREFIX}{nearest}?")
        }
        None => format!("environment {shown}: no such setting"),
    }
}

/// Text that does not fit the schema stays text, for the check to report.
fn parse_value(schema: &Value, text: &str) -> Result<Value, String> {
    let allows = |name| schema::allows(schema, name);
    let trimmed = text.trim();
    if trimmed.is_empty() && allows("null") {
        return Ok(Value::Null);
    }
    if allows("boolean") {
        match trimmed {
            "true" | "1" => return Ok(Value::Bool(true)),
            "false" | "0" => return Ok(Value::Bool(false)),
            _ => {}
        }
    }
    if (allows("integer") || allows("number"))
        && let Ok(number @ Value::Number(_)) = serde_json::from_str(trimmed)
    {
        return Ok(number);
    }
    if allows("object") || (allows("array") && trimmed.starts_with('[')) {
        return serde_json::from_str(trimmed).map_err(|error| format!("not valid JSON: {error}"));
    }
    if allows("array") && schema::allows(&schema["items"], "string") {
        let words = shell_words::split(text).map_err(|_| "unclosed quote".to_owned())?;
        return Ok(Value::from(words));
    }
    Ok(Value::from(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_all(variables: &[(&str, &str)]) -> EnvSettings {
        read(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn environment_variables_map_to_settings() {
        for (variable, text, path, value) in [
            ("RALPH_MAXIMUM_ITERATIONS", "7", "maximumIterations", json!(7)),
            ("RALPH_MAXIMUM_ITERATIONS", " 7\n", "maximumIterations", json!(7)),
            ("RALPH_MAXIMUM_ITERATIONS", "", "maximumIterations", json!(null)),
            ("RALPH_MAXIMUM_ITERATIONS", "seven", "maximumIterations", json!("seven")),
            ("RALPH_AGENT__COMMAND", "my agent", "agent.command", json!("my agent")),
            ("RALPH_AGENT__COMMAND", "1", "agent.command", json!("1")),
            ("RALPH_AGENT__TYPE", "codex", "agent.type", json!("codex")),
            ("RALPH_AGENT__FLAGS", "", "agent.flags", json!([])),
            ("RALPH_AGENT__FLAGS", "--a 'b c'", "agent.flags", json!(["--a", "b c"])),
            ("RALPH_AGENT__FLAGS", "[\"--a b\"]", "agent.flags", json!(["--a b"])),
            ("RALPH_AGENT__ENV", "{\"A\":\"1\"}", "agent.env", json!({"A": "1"})),
            ("RALPH_AGENT__ENV__my_Var", "1", "agent.env.my_Var", json!("1")),
            ("RALPH_AGENT__AUTONOMOUS", "0", "agent.autonomous", json!(false)),
            ("RALPH_DISPLAY__EMOJI", "true", "display.emoji", json!(true)),
            ("RALPH_DISPLAY__EMOJI", "", "display.emoji", json!(null)),
            ("RALPH_BUDGET__COST_USD", "2.5", "budget.costUsd", json!(2.5)),
            ("RALPH_BUDGET__PER_ITERATION__TOKENS", "5", "budget.perIteration.tokens", json!(5)),
            ("RALPH_RATE_LIMIT__MAX_WAIT", "90m", "rateLimit.maxWait", json!("90m")),
            ("RALPH_RATE_LIMIT__MAX_WAIT", "90", "rateLimit.maxWait", json!(90)),
            ("RALPH_SANDBOX__BACKEND", "bwrap", "sandbox.backend", json!("bwrap")),
            ("RALPH_GUARDRAILS", "[{\"command\":\"x\"}]", "guardrails", json!([{"command": "x"}])),
            ("RALPH_GUARDRAILS", "make", "guardrails", json!("make")),
        ] {
            let environment = read_all(&[(variable, text)]);
            assert_eq!(environment.warnings, [""; 0], "{variable}");
            assert_eq!(environment.problems, [""; 0], "{variable}");
            assert_eq!(environment.settings.len(), 1, "{variable}");
            let given = &environment.settings[0];
            assert_eq!(
                (given.keys.join("."), &given.value),
                (path.to_owned(), &value),
                "{variable}={text}"
            );
        }
    }

    #[test]
    fn reserved_and_unrelated_variables_are_ignored() {
        let environment = read_all(&[
            ("RALPH_HOME", "/x"),
            ("RALPH_RUN_ID", "1"),
            ("RALPH_ITERATION", "1"),
            ("RALPH_MAX_ITERATIONS", "x"),
            ("RALPHABET", "x"),
            ("PATH", "x"),
        ]);
        assert!(environment.settings.is_empty());
        assert!(environment.warnings.is_empty());
    }

    #[test]
    fn unknown_variable_warns_with_nearest_name() {
        let environment = read_all(&[
            ("RALPH_AGENT_COMMAND", "x"),
            ("RALPH_LOG", "x"),
            ("RALPH_MAXIMUM_ITERATION", "x"),
            ("RALPH_AGENT__ENV__", "x"),
        ]);
        assert_eq!(
            environment.warnings,
            [
                "environment RALPH_AGENT_COMMAND: no such setting; did you mean RALPH_AGENT__COMMAND?",
                "environment RALPH_LOG: no such setting",
                "environment RALPH_MAXIMUM_ITERATION: no such setting; did you mean \
                 RALPH_MAXIMUM_ITERATIONS?",
            ]
        );
    }

    #[test]
    fn invalid_variable_value_is_reported() {
        let environment = read_all(&[
            ("RALPH_AGENT__ENV", "A=1"),
            ("RALPH_AGENT__FLAGS", "it's"),
            ("RALPH_GUARDRAILS", "[{]"),
        ]);
        assert_eq!(
            environment.problems,
            [
                "environment RALPH_AGENT__ENV: not valid JSON: expected value at line 1 column 1",
                "environment RALPH_AGENT__FLAGS: unclosed quote",
                "environment RALPH_GUARDRAILS: not valid JSON: key must be a string at line 1 column 3",
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn non_utf8_variable_is_reported() {
        use std::os::unix::ffi::OsStringExt as _;
        let environment = read([
            ("RALPH_AGENT__COMMAND".into(), OsString::from_vec(vec![0xff])),
            (OsString::from_vec(b"RALPH_\xff\x1b".to_vec()), "x".into()),
        ]);
        assert_eq!(environment.problems, ["environment RALPH_AGENT__COMMAND: not valid UTF-8"]);
        assert_eq!(environment.warnings, ["environment RALPH_\u{fffd}\\u001b: no such setting"]);
    }
}
