//! Checks a document against the settings schema.
//!
//! Unlike deserializing, it finds all problems and names their keys.

use serde_json::{Map, Value};

use super::args;
use super::duration::{self, Duration};
use super::key_lines::SUGGESTION;
use super::schema::{
    allows, join, keys, literals, nearest_name, normalize_name, paths, quote, schema, type_of,
};
use ralph_events::redact;
use ralph_events::text;
use ralph_sandbox::hosts::HostAllowList;

/// As `key: problem`.
pub(crate) fn find_problems(document: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(schema(), document, "", &mut problems);
    let mut check_each = |key: &str, check: &dyn Fn(&str) -> Option<String>| {
        let items = document.pointer(&format!("/{}", key.replace('.', "/")));
        for (index, item) in items.and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(problem) = item.as_str().and_then(check) {
                problems.push(format!("{key}[{index}]: {problem}"));
            }
        }
    };
    check_each("agent.flags", &|flag| args::split(flag).err());
    check_each("scm.paths", &|path| {
        let leads_out = [":/", ":(top", "/"].iter().any(|start| path.starts_with(start))
            || path.split('/').any(|part| part == "..");
        leads_out.then(|| "must be a path inside the project".to_owned())
    });
    check_each("sandbox.allowedDomains", &|domain| {
        HostAllowList::default().add(domain).err().map(|bad| bad.to_string())
    });
    if document.pointer("/scm/paths").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        problems.push("scm.paths: must not be empty; use [\".\"] for the whole project".to_owned());
    }
    problems
}

fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    if let Some(literals) = literals(schema) {
        if !literals.contains(&value) {
            problems.push(unknown_value(&literals, value, path));
        }
        return;
    }
    let is_integer = value.is_i64() || value.is_u64();
    let fits = allows(schema, type_of(value)) || (is_integer && allows(schema, "integer"));
    if !fits {
        problems.push(mismatch(&describe_expected(schema), value, path));
        return;
    }
    match value {
        Value::String(text) => check_string(schema, text, value, path, problems),
        Value::Number(_) => check_number(schema, value, path, problems),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), problems);
            }
        }
        Value::Object(map) => check_object(schema, map, path, problems),
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_string(schema: &Value, text: &str, value: &Value, path: &str, problems: &mut Vec<String>) {
    if text.contains('\0') {
        problems.push(format!("{path}: must not contain a NUL character"));
    } else if schema["format"] == duration::FORMAT {
        check_duration(schema, value, path, problems);
    } else if schema["minLength"].as_u64() > Some(0) && text.trim().is_empty() {
        problems.push(format!("{path}: must not be blank"));
    }
}

fn check_number(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    if schema["format"] == duration::FORMAT {
        return check_duration(schema, value, path, problems);
    }
    let Some(number) = value.as_f64() else {
        return;
    };
    let largest = match schema["format"].as_str() {
        Some("uint32") => f64::from(u32::MAX),
        // The largest f64 below 2^64.
        Some("uint64") => 18_446_744_073_709_549_568.0,
        _ => f64::MAX,
    };
    let smallest = schema["minimum"].as_f64();
    let found = describe_value(path, value);
    if let Some(smallest) = smallest.filter(|&smallest| number < smallest) {
        problems.push(format!("{path}: must be at least {smallest}, not {found}"));
    } else if schema["exclusiveMinimum"].as_f64() >= Some(number) {
        problems.push(format!("{path}: must be more than 0, not {found}"));
    } else if number > largest {
        problems.push(format!("{path}: must be at most {largest}, not {found}"));
    }
}

fn check_duration(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    match Duration::from_value(value) {
        None => problems.push(mismatch(&describe_expected(schema), value, path)),
        Some(duration) if duration.is_zero() && schema.get("exclusiveMinimum").is_some() => {
            problems.push(format!("{path}: must be more than 0"));
        }
        Some(_) => {}
    }
}

fn check_object(schema: &Value, map: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    let known = schema["properties"].as_object();
    for (key, value) in map {
        let path_of_key = join(path, key);
        if let Some(schema) = known.and_then(|known| known.get(key)) {
            check(schema, value, &path_of_key, problems);
        } else if schema["additionalProperties"].is_object() {
            if key.is_empty() || key.contains(['=', '\0']) {
                problems.push(format!("{path_of_key}: not a valid variable name"));
            }
            check(&schema["additionalProperties"], value, &path_of_key, problems);
        } else {
            problems.push(unknown_key(path, key, schema));
        }
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if let Some(key) = key.as_str().filter(|key| !map.contains_key(*key)) {
            problems.push(format!("{}: missing", join(path, key)));
        }
    }
}

fn unknown_value(literals: &[&Value], value: &Value, path: &str) -> String {
    let names: Vec<&str> = literals.iter().filter_map(|literal| literal.as_str()).collect();
    let found = describe_value(path, value);
    let found = found.strip_prefix("the string ").unwrap_or(&found);
    let problem = format!("{path}: {found} is not one of {}", names.join(", "));
    match value.as_str().and_then(|found| nearest_name(found, names.into_iter())) {
        Some(nearest) => format!("{problem}{SUGGESTION}{nearest}?"),
        None => problem,
    }
}

fn mismatch(expected: &str, value: &Value, path: &str) -> String {
    let subject = if path.is_empty() { "the top level" } else { path };
    format!("{subject}: expected {expected}, found {}", describe_value(path, value))
}

fn describe_expected(schema: &Value) -> String {
    let has_objects = allows(&schema["items"], "object");
    let mut kinds = vec![
        ("boolean", "true or false"),
        ("integer", "a whole number"),
        ("number", "a number"),
        ("string", "a string"),
        ("object", "an object"),
        ("array", if has_objects { "an array of objects" } else { "an array of strings" }),
        ("null", "null"),
    ];
    if schema["format"] == duration::FORMAT {
        kinds = vec![
            ("string", "a duration such as \"90m\" or \"1h30m\""),
            ("number", "a number of seconds"),
            ("null", "null"),
        ];
    }
    kinds.retain(|(name, _)| allows(schema, name));
    alternatives(&kinds.into_iter().map(|(_, words)| words.to_owned()).collect::<Vec<_>>())
}

/// `a`, `a or b`, `a, b or c`.
fn alternatives(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// Shortened, and hidden if it may be a secret.
fn describe_value(path: &str, value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Array(items) if items.is_empty() => return "an empty array".to_owned(),
        Value::Array(_) => return "an array".to_owned(),
        Value::Object(_) => return "an object".to_owned(),
        Value::Bool(_) => "",
        Value::Number(_) => "the number ",
        Value::String(_) => "the string ",
    };
    if path.starts_with("agent.env") && redact::looks_secret(path) {
        return format!("{kind}(not shown)");
    }
    match value {
        Value::String(text) => {
            let text = redact::redact_command(text);
            format!("{kind}{}", quote(&text::truncate(&text, 40, "…")))
        }
        other => format!("{kind}{other}"),
    }
}

fn unknown_key(parent: &str, key: &str, schema: &Value) -> String {
    let path = join(parent, key);
    match nearest_key(parent, key, schema) {
        Some(nearest) => format!("{path}: unknown key{SUGGESTION}{nearest}?"),
        None => {
            let names = keys(schema).map(|(name, _)| name).filter(|name| *name != "$schema");
            let known = names.collect::<Vec<_>>().join(", ");
            let place = match parent {
                "" => "at the top level".to_owned(),
                _ => format!("in {parent}"),
            };
            format!("{path}: unknown key; keys {place}: {known}")
        }
    }
}

/// A similar sibling, or a key of this name elsewhere.
fn nearest_key(parent: &str, key: &str, siblings: &Value) -> Option<String> {
    if let Some(name) = nearest_name(key, keys(siblings).map(|(name, _)| name)) {
        return Some(join(parent, name));
    }
    let wanted = normalize_name(key);
    let mut paths = paths(schema(), "").into_iter().map(|(path, _)| path);
    paths.find(|path| path.rsplit('.').next().is_some_and(|name| normalize_name(name) == wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::settings::{AgentSettings, Settings};
    use super::*;

    /// Documents, each followed by its problems.
    const PROBLEMS: &str = r#"{}

[]
the top level: expected an object, found an empty array

"x"
the top level: expected an object, found the string "x"

null
the top level: expected an object, found null

{"agent": {"flags": "--x"}}
agent.flags: expected an array of strings, found the string "--x"

{"agent": {"flags": ["a", 1, null]}}
agent.flags[1]: expected a string, found the number 1
agent.flags[2]: expected a string, found null

{"agent": {"flags": ["-p", "--say it's"]}}
agent.flags[1]: unclosed quote in "--say it's"; write the flag and its value as two elements

{"agent": []}
agent: expected an object, found an empty array

{"agent": {"command": ["claude"]}}
agent.command: expected a string or null, found an array

{"agent": {"command": " "}}
agent.command: must not be blank

{"agent": {"command": "a\u0000b"}}
agent.command: must not contain a NUL character

{"agent": {"type": "klaude"}}
agent.type: "klaude" is not one of claude, codex, amp, cline, opencode, gemini, copilot, qwen, text; did you mean claude?

{"agent": {"env": {"API_KEY": 12345, "LEVEL": 3, "a b": true, "x=y": ""}}}
agent.env.API_KEY: expected a string, found the number (not shown)
agent.env.LEVEL: expected a string, found the number 3
agent.env["a b"]: expected a string, found true
agent.env["x=y"]: not a valid variable name

{"agent": {"comand": "claude"}}
agent.comand: unknown key; did you mean agent.command?

{"maxIterations": 3}
maxIterations: unknown key; did you mean maximumIterations?

{"maximum_iterations": 3}
maximum_iterations: unknown key; did you mean maximumIterations?

{"command": "claude"}
command: unknown key; did you mean agent.command?

{"stall": {"zzz\u001b": 1}}
stall["zzz\u001b"]: unknown key; keys in stall: iterations

{"maximumIterations": 0}
maximumIterations: must be at least 1, not the number 0

{"maximumIterations": -1}
maximumIterations: must be at least 1, not the number -1

{"maximumIterations": 4294967296}
maximumIterations: must be at most 4294967295, not the number 4294967296

{"maximumIterations": 1.5, "outputTruncateChars": "5000"}
maximumIterations: expected a whole number or null, found the number 1.5
outputTruncateChars: expected a whole number, found the string "5000"

{"streamAgentOutput": "yes"}
streamAgentOutput: expected true or false, found the string "yes"

{"guardrails": {"command": "x"}}
guardrails: expected an array of objects, found an object

{"guardrails": [{"failAction": "IGNORE"}, {"command": ""}, "make"]}
guardrails[0].failAction: "IGNORE" is not one of APPEND, PREPEND, REPLACE
guardrails[0].command: missing
guardrails[1].command: must not be blank
guardrails[2]: expected an object, found the string "make"

{"rateLimit": {"maxWait": "6 hours"}}
rateLimit.maxWait: expected a duration such as "90m" or "1h30m" or a number of seconds, found the string "6 hours"

{"inactivityTimeoutSeconds": -5}
inactivityTimeoutSeconds: expected a duration such as "90m" or "1h30m", a number of seconds or null, found the number -5

{"budget": {"costUsd": 0, "tokens": 0, "duration": "0s"}}
budget.costUsd: must be more than 0, not the number 0
budget.tokens: must be at least 1, not the number 0
budget.duration: must be more than 0

{"sandbox": {"backend": "vm"}}
sandbox.backend: "vm" is not one of none, auto, bwrap, seatbelt, docker, landlock"#;

    #[test]
    fn settings_problem_names_key_and_value() {
        for case in PROBLEMS.split("\n\n") {
            let (document, expected) = case.split_once('\n').unwrap_or((case, ""));
            let problems = find_problems(&serde_json::from_str(document).unwrap());
            assert_eq!(problems, expected.lines().collect::<Vec<_>>(), "{document}");
        }
    }

    #[test]
    fn settings_problem_truncates_long_value() {
        let problems = find_problems(&json!({"guardrails": "é".repeat(1000)}));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].chars().count() < 120, "{}", problems[0]);
    }

    #[test]
    fn null_is_accepted_for_optional_settings() {
        let document = json!({
            "maximumIterations": null, "scm": null, "inactivityTimeoutSeconds": null,
            "agent": {"command": null, "model": null, "type": null, "promptVia": null,
                      "responseFilter": null, "displayFilter": null},
            "budget": {"costUsd": null, "tokens": null, "duration": null, "perIteration": {}},
            "retry": {"max": null}, "sandbox": {"backend": null},
            "display": {"emoji": null, "color": null}, "notify": {"command": null},
            "guardrails": [{"command": "x", "hint": null, "timeoutSeconds": null}],
        });
        assert_eq!(find_problems(&document), [""; 0]);
        let settings: Settings = serde_json::from_value(document).unwrap();
        assert_eq!(settings.agent, AgentSettings::default());
    }

    #[test]
    fn default_settings_are_valid() {
        let defaults = serde_json::to_value(Settings::default()).unwrap();
        assert_eq!(find_problems(&defaults), [""; 0]);
    }
}
