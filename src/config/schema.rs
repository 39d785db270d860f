//! The JSON Schema of the settings, and the check of a document against it.
//!
//! Only the part of JSON Schema that our own types produce is understood; a test holds the schema to
//! that part. What is gained over deserializing at once: all problems of a file rather than the
//! first, each with the path of its key, and the same check for files, environment and flags.

use std::fmt::Write as _;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::duration::{self, Duration};
use super::settings::Settings;
use super::{args, secret};
use crate::core::text;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    // Draft 7 is what editors understand best, and without references a walk is a plain recursion.
    let generator = SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<Settings>().to_value();
    tidy(&mut schema);
    schema
});

/// The JSON Schema of a settings file.
pub fn schema() -> &'static Value {
    &SCHEMA
}

/// The schema as `ralph settings --schema` prints it and `ralph init` writes it.
pub fn schema_text() -> String {
    // Alternate formatting of a `Value` is pretty-printed JSON and cannot fail.
    format!("{:#}\n", schema())
}

/// Takes out what helps nobody in an editor: line breaks of source code in descriptions, and whole
/// objects as defaults, which completion would paste.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if map.contains_key("properties") {
                map.remove("default");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// The path of `key` inside of the object at `parent`: `agent.flags`, `agent.env["a b"]`.
pub(crate) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '-'));
    match (plain, parent.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{parent}.{key}"),
        (false, _) => format!("{parent}[{}]", quote(key)),
    }
}

/// A key of the settings as the schema has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'s> {
    pub(crate) name: &'s str,
    pub(crate) schema: &'s Value,
}

/// The keys that an object may have.
pub(crate) fn keys(schema: &Value) -> impl Iterator<Item = Key<'_>> {
    schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| Key { name, schema })
}

/// Whether values may be of the given type, in the words of JSON Schema.
pub(crate) fn allows(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(names) => names.iter().any(|n| n == name),
        _ => literals(schema).is_some_and(|all| all.iter().any(|literal| type_of(literal) == name)),
    }
}

/// Everything that is wrong with a document of settings, each as `key: what is wrong`.
pub(crate) fn problems(document: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(schema(), document, "", &mut problems);
    if let Some(flags) = document.pointer("/agent/flags").and_then(Value::as_array) {
        for (index, flag) in flags.iter().enumerate() {
            if let Some(Err(problem)) = flag.as_str().map(args::split) {
                problems.push(format!("agent.flags[{index}]: {problem}"));
            }
        }
    }
    problems
}

fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    if let Some(literals) = literals(schema) {
        if !literals.contains(&value) {
            let expected: Vec<String> = literals.iter().map(ToString::to_string).collect();
            problems.push(format!(
                "{path}: expected {}, found {}",
                alternatives(&expected),
                found(path, value)
            ));
        }
        return;
    }
    let is_integer = value.is_i64() || value.is_u64();
    let fits = allows(schema, type_of(value)) || (is_integer && allows(schema, "integer"));
    if !fits {
        problems.push(mismatch(schema, value, path));
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
        problems.push(format!("{path}: must not hold a NUL character"));
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
        // The next float below 2^64 is what a JSON number can hold without doubt.
        Some("uint64") => 18_446_744_073_709_549_568.0,
        _ => f64::MAX,
    };
    let smallest = schema["minimum"].as_f64();
    let found = found(path, value);
    if let Some(smallest) = smallest.filter(|&smallest| number < smallest) {
        problems.push(format!("{path}: must be at least {smallest}, {found} is not"));
    } else if schema["exclusiveMinimum"].as_f64() >= Some(number) {
        problems.push(format!("{path}: must be more than 0, {found} is not"));
    } else if number > largest {
        problems.push(format!("{path}: must be at most {largest}, {found} is not"));
    }
}

fn check_duration(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    match Duration::from_value(value) {
        None => problems.push(mismatch(schema, value, path)),
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
                problems.push(format!("{path_of_key}: not the name of a variable"));
            }
            check(&schema["additionalProperties"], value, &path_of_key, problems);
        } else {
            problems.push(unknown(path, key, schema));
        }
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if let Some(key) = key.as_str().filter(|key| !map.contains_key(*key)) {
            problems.push(format!("{}: missing", join(path, key)));
        }
    }
}

/// All values that a schema lists one by one, if that is what it does.
fn literals(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(all) = schema["enum"].as_array() {
        return Some(all.iter().collect());
    }
    if let Some(only) = schema.get("const") {
        return Some(vec![only]);
    }
    if schema["type"] == "null" {
        return Some(vec![&Value::Null]);
    }
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array())?;
    let mut all = Vec::new();
    for choice in choices {
        all.extend(literals(choice)?);
    }
    Some(all)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(schema: &Value, value: &Value, path: &str) -> String {
    let subject = if path.is_empty() { "the top level" } else { path };
    format!("{subject}: expected {}, found {}", expected(schema), found(path, value))
}

fn expected(schema: &Value) -> String {
    let mut names = Vec::new();
    if schema["format"] == duration::FORMAT {
        names.push("a duration such as \"90m\" or \"1h30m\"".to_owned());
        names.push("a number of seconds".to_owned());
    } else {
        for (name, words) in [
            ("boolean", "true or false"),
            ("integer", "a whole number"),
            ("number", "a number"),
            ("string", "a string"),
            ("object", "an object"),
        ] {
            if allows(schema, name) {
                names.push(words.to_owned());
            }
        }
        if allows(schema, "array") {
            let of = if allows(&schema["items"], "object") { "objects" } else { "strings" };
            names.push(format!("an array of {of}"));
        }
    }
    if allows(schema, "null") {
        names.push("null".to_owned());
    }
    alternatives(&names)
}

/// `a`, `a or b`, `a, b or c`.
fn alternatives(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// A value as an error names it: short, and not at all if it may be a secret.
fn found(path: &str, value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Array(items) if items.is_empty() => return "an empty array".to_owned(),
        Value::Array(_) => return "an array".to_owned(),
        Value::Object(_) => return "an object".to_owned(),
        Value::Bool(_) => "",
        Value::Number(_) => "the number ",
        Value::String(_) => "the string ",
    };
    if path.starts_with("agent.env") && secret::looks_secret(path) {
        return format!("{kind}(not shown)");
    }
    match value {
        Value::String(text) => format!("{kind}{}", quote(&text::truncate(text, 40, "…"))),
        other => format!("{kind}{other}"),
    }
}

/// Text in double quotes, on one line, with nothing in it that a terminal would act upon.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a `String` cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn unknown(parent: &str, key: &str, schema: &Value) -> String {
    let path = join(parent, key);
    match nearest_key(parent, key, schema) {
        Some(nearest) => format!("{path}: unknown key; did you mean {nearest}?"),
        None => {
            let known: Vec<String> = keys(schema)
                .filter(|key| key.name != "$schema")
                .map(|key| key.name.to_owned())
                .collect();
            let place = if parent.is_empty() {
                "at the top level".to_owned()
            } else {
                format!("in {parent}")
            };
            format!("{path}: unknown key; {place} there is {}", known.join(", "))
        }
    }
}

/// The known key that was most likely meant: a sibling that is spelt alike, else a key of the same
/// name that belongs elsewhere.
fn nearest_key(parent: &str, key: &str, siblings: &Value) -> Option<String> {
    let sibling = nearest(key, keys(siblings).map(|key| key.name));
    if let Some((name, _)) = sibling {
        return Some(join(parent, name));
    }
    let mut all = Vec::new();
    walk(schema(), "", &mut |path, _| all.push(path.to_owned()));
    let wanted = plain(key);
    all.into_iter().find(|path| path.rsplit('.').next().is_some_and(|name| plain(name) == wanted))
}

/// Calls `visit` with every key of the settings, objects before what is in them.
pub(crate) fn walk<'s>(schema: &'s Value, parent: &str, visit: &mut dyn FnMut(&str, Key<'s>)) {
    for key in keys(schema) {
        let path = join(parent, key.name);
        visit(&path, key);
        walk(key.schema, &path, visit);
    }
}

/// The candidate that is spelt most like `name`, if any is close, and how close, from 0 to 1.
pub(crate) fn nearest<'c>(
    name: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Option<(&'c str, f64)> {
    let name = plain(name);
    candidates
        .map(|candidate| {
            let likeness = strsim::normalized_damerau_levenshtein(&name, &plain(candidate));
            (candidate, likeness)
        })
        .filter(|(_, likeness)| *likeness > 0.6)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// A name without what people vary: case and separators. Cut, because comparing takes time in
/// proportion to both lengths.
fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(100)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_problem_is_named_by_its_key_and_put_in_words() {
        for (document, expected) in [
            (json!({}), &[][..]),
            (json!([]), &["the top level: expected an object, found an empty array"]),
            (json!("x"), &["the top level: expected an object, found the string \"x\""]),
            (json!(null), &["the top level: expected an object, found null"]),
            (
                json!({"agent": {"flags": "--x"}}),
                &["agent.flags: expected an array of strings, found the string \"--x\""],
            ),
            (
                json!({"agent": {"flags": ["a", 1, null]}}),
                &[
                    "agent.flags[1]: expected a string, found the number 1",
                    "agent.flags[2]: expected a string, found null",
                ],
            ),
            (
                json!({"agent": {"flags": ["-p", "--say it's"]}}),
                &["agent.flags[1]: a quote is not closed in \"--say it's\"; \
                   give the flag and its value as two elements"],
            ),
            (json!({"agent": []}), &["agent: expected an object, found an empty array"]),
            (
                json!({"agent": {"command": ["claude"]}}),
                &["agent.command: expected a string or null, found an array"],
            ),
            (json!({"agent": {"command": " "}}), &["agent.command: must not be blank"]),
            (
                json!({"agent": {"command": "a\0b"}}),
                &["agent.command: must not hold a NUL character"],
            ),
            (
                json!({"agent": {"type": "klaude"}}),
                &["agent.type: expected \"claude\", \"codex\", \"amp\", \"cline\", \"opencode\", \
                   \"gemini\", \"copilot\", \"qwen\", \"text\" or null, found the string \"klaude\""],
            ),
            (
                json!({"agent": {"env": {"API_KEY": 12345, "LEVEL": 3, "a b": true, "x=y": ""}}}),
                &[
                    "agent.env.API_KEY: expected a string, found the number (not shown)",
                    "agent.env.LEVEL: expected a string, found the number 3",
                    "agent.env[\"a b\"]: expected a string, found true",
                    "agent.env[\"x=y\"]: not the name of a variable",
                ],
            ),
            (
                json!({"agent": {"comand": "claude"}}),
                &["agent.comand: unknown key; did you mean agent.command?"],
            ),
            (
                json!({"maxIterations": 3}),
                &["maxIterations: unknown key; did you mean maximumIterations?"],
            ),
            (
                json!({"maximum_iterations": 3}),
                &["maximum_iterations: unknown key; did you mean maximumIterations?"],
            ),
            (json!({"command": "claude"}), &["command: unknown key; did you mean agent.command?"]),
            (
                json!({"stall": {"zzz\u{1b}": 1}}),
                &["stall[\"zzz\\u001b\"]: unknown key; in stall there is iterations"],
            ),
            (
                json!({"maximumIterations": 0}),
                &["maximumIterations: must be at least 1, the number 0 is not"],
            ),
            (
                json!({"maximumIterations": -1}),
                &["maximumIterations: must be at least 1, the number -1 is not"],
            ),
            (
                json!({"maximumIterations": 4_294_967_296_u64}),
                &["maximumIterations: must be at most 4294967295, the number 4294967296 is not"],
            ),
            (
                json!({"maximumIterations": 1.5, "outputTruncateChars": "5000"}),
                &[
                    "maximumIterations: expected a whole number or null, found the number 1.5",
                    "outputTruncateChars: expected a whole number, found the string \"5000\"",
                ],
            ),
            (
                json!({"streamAgentOutput": "yes"}),
                &["streamAgentOutput: expected true or false, found the string \"yes\""],
            ),
            (
                json!({"guardrails": {"command": "x"}}),
                &["guardrails: expected an array of objects, found an object"],
            ),
            (
                json!({"guardrails": [{"failAction": "IGNORE"}, {"command": ""}, "make"]}),
                &[
                    "guardrails[0].failAction: expected \"APPEND\", \"PREPEND\" or \"REPLACE\", \
                     found the string \"IGNORE\"",
                    "guardrails[0].command: missing",
                    "guardrails[1].command: must not be blank",
                    "guardrails[2]: expected an object, found the string \"make\"",
                ],
            ),
            (
                json!({"rateLimit": {"maxWait": "6 hours"}}),
                &[
                    "rateLimit.maxWait: expected a duration such as \"90m\" or \"1h30m\" or a number \
                   of seconds, found the string \"6 hours\"",
                ],
            ),
            (
                json!({"inactivityTimeoutSeconds": -5}),
                &["inactivityTimeoutSeconds: expected a duration such as \"90m\" or \"1h30m\", a \
                   number of seconds or null, found the number -5"],
            ),
            (
                json!({"budget": {"costUsd": 0, "tokens": 0, "duration": "0s"}}),
                &[
                    "budget.costUsd: must be more than 0, the number 0 is not",
                    "budget.tokens: must be at least 1, the number 0 is not",
                    "budget.duration: must be more than 0",
                ],
            ),
            (
                json!({"sandbox": {"backend": "vm"}}),
                &["sandbox.backend: expected \"none\", \"auto\", \"bwrap\", \"docker\", \
                   \"landlock\" or null, found the string \"vm\""],
            ),
        ] {
            assert_eq!(problems(&document), expected, "{document}");
        }
    }

    #[test]
    fn a_long_value_is_cut_in_an_error() {
        let problems = problems(&json!({"guardrails": "é".repeat(1000)}));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].chars().count() < 120, "{}", problems[0]);
    }

    #[test]
    fn null_is_allowed_where_a_setting_may_be_unset() {
        let document = json!({
            "maximumIterations": null, "scm": null, "inactivityTimeoutSeconds": null,
            "agent": {"command": null, "model": null, "type": null, "promptVia": null,
                      "responseFilter": null, "displayFilter": null},
            "budget": {"costUsd": null, "tokens": null, "duration": null, "perIteration": {}},
            "retry": {"max": null}, "sandbox": {"backend": null},
            "display": {"emoji": null, "color": null}, "notify": {"command": null},
            "guardrails": [{"command": "x", "hint": null, "timeoutSeconds": null}],
        });
        assert_eq!(problems(&document), [""; 0]);
        let settings: Settings = serde_json::from_value(document).unwrap();
        assert_eq!(settings.agent, super::super::settings::Agent::default());
    }

    #[test]
    fn the_defaults_are_valid() {
        let defaults = serde_json::to_value(Settings::default()).unwrap();
        assert_eq!(problems(&defaults), [""; 0]);
    }

    /// The check would let pass what it does not understand.
    #[test]
    fn the_schema_keeps_to_what_the_check_understands_and_describes_every_key() {
        fn hold(path: &str, schema: &Value, described: bool) {
            for keyword in schema.as_object().unwrap().keys() {
                let known = [
                    "$schema",
                    "title",
                    "description",
                    "type",
                    "properties",
                    "items",
                    "required",
                    "additionalProperties",
                    "enum",
                    "const",
                    "oneOf",
                    "anyOf",
                    "minimum",
                    "exclusiveMinimum",
                    "minLength",
                    "format",
                    "pattern",
                    "default",
                    "x-default",
                ];
                assert!(known.contains(&keyword.as_str()), "{path}: {keyword}");
            }
            if described {
                assert!(
                    schema["description"].as_str().is_some_and(|text| text.len() > 10),
                    "{path}"
                );
            }
            assert!(literals(schema).is_some() || schema.get("type").is_some(), "{path}");
            if schema.get("pattern").is_some() {
                assert_eq!(schema["format"], duration::FORMAT, "{path}");
            }
            for key in keys(schema) {
                hold(&join(path, key.name), key.schema, true);
            }
            if allows(schema, "array") {
                hold(&format!("{path}[]"), &schema["items"], false);
            }
            if allows(schema, "object") {
                match &schema["additionalProperties"] {
                    Value::Bool(false) => {}
                    any => hold(&format!("{path}.*"), any, false),
                }
            }
        }
        hold("", schema(), true);
    }

    #[test]
    fn the_pattern_that_editors_see_agrees_with_what_is_read() {
        let pattern = schema()["properties"]["rateLimit"]["properties"]["maxWait"]["pattern"]
            .as_str()
            .unwrap();
        let pattern = fancy_regex::Regex::new(pattern).unwrap();
        for text in
            ["6h", "1h30m", "1h 30m", "90", "0.5", "500ms", "", " ", "h", "30m1h", "6 hours"]
        {
            assert_eq!(
                pattern.is_match(text).unwrap(),
                Duration::parse(text).is_some(),
                "{text:?}"
            );
        }
    }
}
