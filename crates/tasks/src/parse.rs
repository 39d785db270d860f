//! From text to a task list, with every complaint that there is.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Broken, Problem, Story, TaskList};
use ralph_events::text;

/// How much of a wrong value is repeated.
const MAX_SHOWN: usize = 40;

/// Reads a task list.
///
/// # Errors
/// Everything that is wrong with it, not only the first thing.
pub fn parse(bytes: &[u8]) -> Result<TaskList, Broken> {
    let broken = |message: String, torn| {
        let problem = Problem { story: None, field: None, message };
        Broken { problems: vec![problem], torn }
    };
    let bytes = without_mark(bytes);
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] = bytes {
        return Err(broken("is UTF-16, and has to be UTF-8: save it as that".to_owned(), false));
    }
    if bytes.trim_ascii().is_empty() {
        return Err(broken("is empty".to_owned(), true));
    }
    let document: Value = serde_json::from_slice(bytes)
        .map_err(|err| broken(format!("is not valid JSON: {err}"), err.is_eof()))?;
    let mut document = match document {
        Value::Object(document) => document,
        other => return Err(broken(format!("must be an object, not {}", shown(&other)), false)),
    };
    let mut problems = Vec::new();
    let mut top = Fields { object: &document, story: None, problems: &mut problems };
    let project = top.text("project", Need::Required);
    let branch_name = top.text("branchName", Need::Required);
    let description = top.text("description", Need::Required);
    let verify_commands = top.texts("verifyCommands", Need::Optional);
    top.list("userStories", Need::Required);
    // Taken, not copied: there may be thousands.
    let entries = match document.remove("userStories") {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let mut stories: Vec<Story> = Vec::with_capacity(entries.len());
    let mut places: HashMap<String, usize> = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let place = format!("userStories[{index}]");
        let Value::Object(object) = &entry else {
            let message = format!("must be an object, not {}", shown(&entry));
            problems.push(Problem { story: Some(place), field: None, message });
            continue;
        };
        let id = object.get("id").and_then(Value::as_str).filter(|id| !id.trim().is_empty());
        if let Some(id) = id
            && let Some(first) = places.insert(id.to_owned(), index)
        {
            let message = format!("is {id:?}, as that of userStories[{first}]; give it another");
            problems.push(Problem::of_story(&place, "id", message));
        }
        let name = id.map_or(place, |id| text::truncate(id, MAX_SHOWN, "…").into_owned());
        let story = story(object, name, &mut problems);
        stories.push(Story { source: entry, ..story });
    }
    if problems.is_empty() {
        Ok(TaskList { project, branch_name, description, verify_commands, stories })
    } else {
        Err(Broken { problems, torn: false })
    }
}

/// Whether a text ends too early, as a file does that is being written.
pub fn is_torn(bytes: &[u8]) -> bool {
    let whole = serde_json::from_slice::<serde::de::IgnoredAny>(without_mark(bytes));
    whole.is_err_and(|err| err.is_eof())
}

/// Some editors begin a file with a mark.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// A story, but for its source.
fn story(object: &Map<String, Value>, name: String, problems: &mut Vec<Problem>) -> Story {
    let mut fields = Fields { object, story: Some(name), problems };
    Story {
        id: fields.text("id", Need::NotBlank),
        title: fields.text("title", Need::NotBlank),
        description: fields.text("description", Need::Optional),
        acceptance_criteria: fields.texts("acceptanceCriteria", Need::NotBlank),
        priority: fields.number("priority"),
        passes: fields.truth("passes"),
        notes: fields.text("notes", Need::Optional),
        depends_on: fields.texts("dependsOn", Need::Optional),
        replaces: fields.texts("replaces", Need::Optional),
        source: Value::Null,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It may be missing, or `null`.
    Optional,
    Required,
    /// Required, and with something in it.
    NotBlank,
}

/// The fields of an object, and what is wrong with them.
struct Fields<'a, 'p> {
    object: &'a Map<String, Value>,
    story: Option<String>,
    problems: &'p mut Vec<Problem>,
}

impl<'a> Fields<'a, '_> {
    fn wrong(&mut self, field: &'static str, message: String) {
        let story = self.story.clone();
        self.problems.push(Problem { story, field: Some(field), message });
    }

    fn get(&mut self, field: &'static str, need: Need, kind: &str) -> Option<&'a Value> {
        let value = self.object.get(field);
        match value {
            None if need != Need::Optional => {
                self.wrong(field, format!("is missing; it must be {kind}"));
                None
            }
            Some(Value::Null) if need == Need::Optional => None,
            other => other,
        }
    }

    fn not(&mut self, field: &'static str, kind: &str, value: &Value) {
        self.wrong(field, format!("must be {kind}, not {}", shown(value)));
    }

    fn text(&mut self, field: &'static str, need: Need) -> String {
        match self.get(field, need, "a string") {
            None => String::new(),
            Some(Value::String(text)) => {
                if need == Need::NotBlank && text.trim().is_empty() {
                    self.wrong(field, "must not be empty".to_owned());
                }
                text.clone()
            }
            Some(other) => {
                self.not(field, "a string", other);
                String::new()
            }
        }
    }

    fn list(&mut self, field: &'static str, need: Need) -> &'a [Value] {
        let kind = if need == Need::NotBlank { "an array with entries" } else { "an array" };
        match self.get(field, need, kind) {
            None => &[],
            Some(Value::Array(entries)) => {
                if need == Need::NotBlank && entries.is_empty() {
                    self.wrong(field, "must have at least one entry".to_owned());
                }
                entries
            }
            Some(other) => {
                self.not(field, kind, other);
                &[]
            }
        }
    }

    fn texts(&mut self, field: &'static str, need: Need) -> Vec<String> {
        let entries = self.list(field, need);
        let mut texts = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            match entry {
                Value::String(text) => {
                    if text.trim().is_empty() {
                        self.wrong(field, format!("entry {index} must not be empty"));
                    }
                    texts.push(text.clone());
                }
                other => {
                    let message = format!("entry {index} must be a string, not {}", shown(other));
                    self.wrong(field, message);
                }
            }
        }
        texts
    }

    fn number(&mut self, field: &'static str) -> f64 {
        match self.get(field, Need::Required, "a number") {
            None => 0.0,
            Some(Value::Number(number)) => number.as_f64().unwrap_or(f64::MAX),
            Some(other) => {
                self.not(field, "a number", other);
                0.0
            }
        }
    }

    fn truth(&mut self, field: &'static str) -> bool {
        match self.get(field, Need::Required, "true or false") {
            None => false,
            Some(Value::Bool(truth)) => *truth,
            Some(other) => {
                self.not(field, "true or false", other);
                false
            }
        }
    }
}

/// A value as it is repeated in a complaint.
fn shown(value: &Value) -> String {
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
