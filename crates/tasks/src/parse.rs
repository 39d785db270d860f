//! Parses a task list and reports every problem.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{InvalidTaskList, Story, TaskList, TaskProblem};
use ralph_events::text;

const MAX_SHOWN: usize = 40;

/// The error has all problems, not only the first.
pub fn parse(bytes: &[u8]) -> Result<TaskList, InvalidTaskList> {
    let broken = |message: String| {
        let problem = TaskProblem { story: None, field: None, message };
        InvalidTaskList { problems: vec![problem] }
    };
    let bytes = strip_bom(bytes);
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] = bytes {
        return Err(broken("is UTF-16; save it as UTF-8".to_owned()));
    }
    if bytes.trim_ascii().is_empty() {
        return Err(broken("is empty".to_owned()));
    }
    let document: Value =
        serde_json::from_slice(bytes).map_err(|err| broken(format!("is not valid JSON: {err}")))?;
    let mut document = match document {
        Value::Object(document) => document,
        other => {
            return Err(broken(format!("must be an object, not {}", preview_value(&other))));
        }
    };
    let mut problems = Vec::new();
    let mut top = FieldReader { object: &document, story: None, problems: &mut problems };
    let project = top.text("project", Requirement::Required);
    let branch_name = top.text("branchName", Requirement::Required);
    let description = top.text("description", Requirement::Required);
    let verify_commands = top.texts("verifyCommands", Requirement::Optional);
    top.list("userStories", Requirement::Required);
    // Moved, not cloned: there may be thousands.
    let entries = match document.remove("userStories") {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let mut stories: Vec<Story> = Vec::with_capacity(entries.len());
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let position = format!("userStories[{index}]");
        let Value::Object(object) = &entry else {
            let message = format!("must be an object, not {}", preview_value(&entry));
            problems.push(TaskProblem { story: Some(position), field: None, message });
            continue;
        };
        let id = object.get("id").and_then(Value::as_str).filter(|id| !id.trim().is_empty());
        if let Some(id) = id
            && let Some(first) = seen.insert(id.to_owned(), index)
        {
            let message = format!("{id:?} is already used by userStories[{first}]");
            problems.push(TaskProblem::for_story(&position, "id", message));
        }
        let name = id.map_or(position, |id| text::truncate(id, MAX_SHOWN, "…").into_owned());
        let story = parse_story(object, name, &mut problems);
        stories.push(Story { source: entry, ..story });
    }
    if problems.is_empty() {
        Ok(TaskList { project, branch_name, description, verify_commands, stories })
    } else {
        Err(InvalidTaskList { problems })
    }
}

pub fn is_truncated(bytes: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(strip_bom(bytes));
    parsed.is_err_and(|err| err.is_eof())
}

fn strip_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// All but `source`.
fn parse_story(
    object: &Map<String, Value>,
    name: String,
    problems: &mut Vec<TaskProblem>,
) -> Story {
    let mut fields = FieldReader { object, story: Some(name), problems };
    Story {
        id: fields.text("id", Requirement::NotBlank),
        title: fields.text("title", Requirement::NotBlank),
        description: fields.text("description", Requirement::Optional),
        acceptance_criteria: fields.texts("acceptanceCriteria", Requirement::NotBlank),
        priority: fields.number("priority"),
        passes: fields.boolean("passes"),
        notes: fields.text("notes", Requirement::Optional),
        depends_on: fields.texts("dependsOn", Requirement::Optional),
        replaces: fields.texts("replaces", Requirement::Optional),
        source: Value::Null,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Requirement {
    /// May be missing or `null`.
    Optional,
    Required,
    NotBlank,
}

/// Reads fields of an object and collects problems.
struct FieldReader<'a, 'p> {
    object: &'a Map<String, Value>,
    story: Option<String>,
    problems: &'p mut Vec<TaskProblem>,
}

impl<'a> FieldReader<'a, '_> {
    fn add_problem(&mut self, field: &'static str, message: String) {
        let story = self.story.clone();
        self.problems.push(TaskProblem { story, field: Some(field), message });
    }

    /// `None` if the field is missing or of another kind, which is a problem unless it is optional.
    fn get<T>(
        &mut self,
        field: &'static str,
        need: Requirement,
        kind: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let is_optional = need == Requirement::Optional;
        let Some(value) = self.object.get(field).filter(|it| !(is_optional && it.is_null())) else {
            if !is_optional {
                self.add_problem(field, format!("missing; must be {kind}"));
            }
            return None;
        };
        let converted = convert(value);
        if converted.is_none() {
            self.add_problem(field, format!("must be {kind}, not {}", preview_value(value)));
        }
        converted
    }

    fn text(&mut self, field: &'static str, need: Requirement) -> String {
        let text = self.get(field, need, "a string", Value::as_str);
        if need == Requirement::NotBlank && text.is_some_and(|text| text.trim().is_empty()) {
            self.add_problem(field, "must not be empty".to_owned());
        }
        text.unwrap_or_default().to_owned()
    }

    fn list(&mut self, field: &'static str, need: Requirement) -> &'a [Value] {
        let kind = if need == Requirement::NotBlank { "a non-empty array" } else { "an array" };
        let entries = self.get(field, need, kind, Value::as_array);
        if need == Requirement::NotBlank && entries.is_some_and(Vec::is_empty) {
            self.add_problem(field, "must have at least one entry".to_owned());
        }
        entries.map_or(&[], Vec::as_slice)
    }

    fn texts(&mut self, field: &'static str, need: Requirement) -> Vec<String> {
        let entries = self.list(field, need);
        let mut texts = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            match entry {
                Value::String(text) => {
                    if text.trim().is_empty() {
                        self.add_problem(field, format!("entry {index} must not be empty"));
                    }
                    texts.push(text.clone());
                }
                other => {
                    let message =
                        format!("entry {index} must be a string, not {}", preview_value(other));
                    self.add_problem(field, message);
                }
            }
        }
        texts
    }

    fn number(&mut self, field: &'static str) -> f64 {
        let number = self.get(field, Requirement::Required, "a number", |value| match value {
            Value::Number(number) => Some(number.as_f64().unwrap_or(f64::MAX)),
            _ => None,
        });
        number.unwrap_or_default()
    }

    fn boolean(&mut self, field: &'static str) -> bool {
        let boolean = self.get(field, Requirement::Required, "true or false", Value::as_bool);
        boolean.unwrap_or_default()
    }
}

fn preview_value(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => {
            let shown = text::truncate(text, MAX_SHOWN, "…");
            format!("the string {:?}", &*shown)
        }
        other => other.to_string(),
    }
}
