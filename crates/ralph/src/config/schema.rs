//! The JSON Schema of the settings.
//!
//! Supports only the part of JSON Schema that our types produce, which a test enforces.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::settings::Settings;
use ralph_events::json_writer;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    // Editors support draft 7 best.
    let generator = SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<Settings>().to_value();
    simplify_schema(&mut schema);
    schema
});

pub fn schema() -> &'static Value {
    &SCHEMA
}

pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}

/// Removes line breaks from descriptions, and object defaults, which editors would paste on
/// completion.
fn simplify_schema(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if map.contains_key("properties") {
                map.remove("default");
            }
            map.values_mut().for_each(simplify_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify_schema),
        _ => {}
    }
}

/// `agent.flags`, `agent.env["a b"]`.
pub(crate) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '-'));
    match (plain, parent.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{parent}.{key}"),
        (false, _) => format!("{parent}[{}]", quote(key)),
    }
}

pub(crate) fn keys(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
}

pub(crate) fn allows(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(names) => names.iter().any(|n| n == name),
        _ => literals(schema).is_some_and(|all| all.iter().any(|literal| type_of(literal) == name)),
    }
}

pub(super) fn literals(schema: &Value) -> Option<Vec<&Value>> {
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

pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Escapes invisible characters, which could steer a terminal.
pub(crate) fn quote(text: &str) -> String {
    json_writer::compact(&text).unwrap_or_default()
}

/// The path and schema of every key, parents first.
pub(crate) fn paths<'s>(schema: &'s Value, parent: &str) -> Vec<(String, &'s Value)> {
    let mut all = Vec::new();
    for (name, schema) in keys(schema) {
        let path = join(parent, name);
        all.push((path.clone(), schema));
        all.extend(paths(schema, &path));
    }
    all
}

pub(crate) fn nearest_name<'c>(
    name: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Option<&'c str> {
    let name = normalize_name(name);
    let similarity =
        |candidate: &str| strsim::normalized_damerau_levenshtein(&name, &normalize_name(candidate));
    candidates
        .map(|candidate| (candidate, similarity(candidate)))
        .filter(|(_, similarity)| *similarity > 0.6)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(candidate, _)| candidate)
}

/// Truncates: comparing is quadratic.
pub(super) fn normalize_name(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(100)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::duration::{self, Duration};
    use super::*;

    #[test]
    fn schema_uses_known_keywords_and_describes_every_key() {
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
            for (name, schema) in keys(schema) {
                hold(&join(path, name), schema, true);
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
    fn schema_duration_pattern_agrees_with_parser() {
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
