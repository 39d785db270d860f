//! Edits the text of a task list in place. Every other character stays, so layout, unknown keys and
//! small diffs survive.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::value::RawValue;

pub type FieldChange<'a> = (&'a str, Value);

/// `None` if the text is no JSON object.
pub fn set(text: &str, changes: &[FieldChange<'_>]) -> Option<String> {
    apply(text, whole_range(text), changes)
}

/// `None` if there is no such story.
pub fn set_in_story(text: &str, id: &str, changes: &[FieldChange<'_>]) -> Option<String> {
    let stories = element_ranges(text, field_range(text, whole_range(text), "userStories")?)?;
    let is_wanted = |span: &Range<usize>| {
        let value = field_range(text, span.clone(), "id").and_then(|id| text.get(id));
        value.and_then(|value| serde_json::from_str::<String>(value).ok()).as_deref() == Some(id)
    };
    apply(text, stories.into_iter().find(is_wanted)?, changes)
}

/// `None` if there is no list.
pub fn add_story(text: &str, story: &Value) -> Option<String> {
    let array = field_range(text, whole_range(text), "userStories")?;
    let stories = element_ranges(text, array.clone())?;
    let unit = indent_unit(text);
    let (span, gap, end) = match (stories.first(), stories.last()) {
        (Some(first), Some(last)) => {
            let gap = format!(",{}", text.get(array.start + 1..first.start)?);
            (last.end..last.end, gap, String::new())
        }
        _ => {
            // Only white space is between the brackets.
            let inner = array.start + 1..array.end.checked_sub(1)?;
            let end = match unit {
                "" => String::new(),
                _ => format!("{}{}", line_end(text), indent_of_line(text, array.start)),
            };
            (inner, format!("{end}{unit}"), end)
        }
    };
    let story = render_value(story, &gap, unit);
    splice(text, span, &format!("{gap}{story}{end}"))
}

fn whole_range(text: &str) -> Range<usize> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    start..text.len()
}

fn apply(text: &str, object: Range<usize>, changes: &[FieldChange<'_>]) -> Option<String> {
    let length = object.end - object.start;
    let mut text = text.to_owned();
    let before = text.len() - length;
    for (key, value) in changes {
        // Edits only change the length of the object.
        let object = object.start..object.start + (text.len() - before);
        text = set_field(&text, object, key, value)?;
    }
    Some(text)
}

fn set_field(text: &str, object: Range<usize>, key: &str, value: &Value) -> Option<String> {
    let fields = field_ranges(text, object.clone())?;
    let unit = indent_unit(text);
    if let Some(span) = fields.get(key) {
        let line = format!("{}{}", line_end(text), indent_of_line(text, span.start));
        let gap = if first_gap(text, &object)?.contains('\n') { line } else { String::new() };
        return splice(text, span.clone(), &render_value(value, &gap, unit));
    }
    let gap = first_gap(text, &object)?;
    let value = render_value(value, gap, unit);
    let (at, separator) = match fields.values().map(|span| span.end).max() {
        Some(end) if gap.is_empty() => (end, ", ".to_owned()),
        Some(end) => (end, format!(",{gap}")),
        None => (object.start + text.get(object)?.find('{')? + 1, String::new()),
    };
    splice(text, at..at, &format!("{separator}{}: {value}", Value::from(key)))
}

/// The white space before the first key, which precedes each key.
fn first_gap<'a>(text: &'a str, object: &Range<usize>) -> Option<&'a str> {
    let inner = text.get(object.clone())?.trim_start().strip_prefix('{')?;
    let gap = inner.len() - inner.trim_start().len();
    inner.get(..gap)
}

/// Renders a value, indented for a position after `gap`; on one line if `gap` has no line break.
fn render_value(value: &Value, gap: &str, unit: &str) -> String {
    let Some((before, indent)) = gap.rsplit_once('\n') else { return one_line_value(value) };
    let eol = if before.ends_with('\r') { "\r\n" } else { "\n" };
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
    if serde::Serialize::serialize(value, &mut serializer).is_err() {
        return value.to_string();
    }
    // Line breaks in strings are escaped, so all of these are between values.
    String::from_utf8_lossy(&bytes).replace('\n', &format!("{eol}{indent}"))
}

fn one_line_value(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            format!("[{}]", values.iter().map(one_line_value).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), one_line_value(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The indentation of one level; empty if the file is one line.
fn indent_unit(text: &str) -> &str {
    let gap = first_gap(text, &whole_range(text)).unwrap_or_default();
    gap.rsplit_once('\n').map_or("", |(_, indent)| indent)
}

fn line_end(text: &str) -> &'static str {
    match text.split_once('\n') {
        Some((line, _)) if line.ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

fn indent_of_line(text: &str, at: usize) -> &str {
    let head = text.get(..at).unwrap_or_default();
    let line = head.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(line..).unwrap_or_default();
    let content = line.trim_start_matches([' ', '\t']);
    line.get(..line.len() - content.len()).unwrap_or_default()
}

fn splice(text: &str, span: Range<usize>, new: &str) -> Option<String> {
    Some(format!("{}{new}{}", text.get(..span.start)?, text.get(span.end..)?))
}

fn field_range(text: &str, object: Range<usize>, key: &str) -> Option<Range<usize>> {
    field_ranges(text, object)?.remove(key)
}

/// Of duplicate keys, the last one counts.
fn field_ranges(text: &str, object: Range<usize>) -> Option<HashMap<String, Range<usize>>> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(text.get(object)?).ok()?;
    fields.into_iter().map(|(name, value)| Some((name, range_of(text, value)?))).collect()
}

fn element_ranges(text: &str, array: Range<usize>) -> Option<Vec<Range<usize>>> {
    let values: Vec<&RawValue> = serde_json::from_str(text.get(array)?).ok()?;
    values.into_iter().map(|value| range_of(text, value)).collect()
}

/// The position of a value that was read from `text`.
fn range_of(text: &str, value: &RawValue) -> Option<Range<usize>> {
    let value = value.get();
    let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let span = start..start.checked_add(value.len())?;
    (text.get(span.clone()) == Some(value)).then_some(span)
}

pub fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text.get(whole_range(text))?).ok()
}
