//! Edits the text of a task list in place. Every other character stays, so layout, unknown keys and
//! small diffs survive.

use std::ops::Range;

use serde::Deserialize as _;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

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
pub fn add_story(text: &str, story: &Map<String, Value>) -> Option<String> {
    let array = field_range(text, whole_range(text), "userStories")?;
    let stories = element_ranges(text, array.clone())?;
    let unit = indent_unit(text);
    let (at, gap, end) = match (stories.first(), stories.last()) {
        (Some(first), Some(last)) => {
            (last.end, format!(",{}", text.get(array.start + 1..first.start)?), "")
        }
        _ => {
            let inner = array.start + 1..array.end.checked_sub(1)?;
            let indent = indent_of_line(text, array.start);
            let (gap, end) = if unit.is_empty() {
                (String::new(), String::new())
            } else {
                let eol = line_end(text);
                (format!("{eol}{indent}{unit}"), format!("{eol}{indent}"))
            };
            // Only white space is between the brackets.
            let text = format!("{}{}", text.get(..inner.start)?, text.get(inner.end..)?);
            let story = render_value(&Value::Object(story.clone()), &gap, unit);
            return splice(&text, inner.start..inner.start, &format!("{gap}{story}{end}"));
        }
    };
    let story = render_value(&Value::Object(story.clone()), &gap, unit);
    splice(text, at..at, &format!("{gap}{story}{end}"))
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
    // Of duplicate keys, the last one counts.
    if let Some((_, span)) = fields.iter().rev().find(|(name, _)| name == key) {
        let line = format!("{}{}", line_end(text), indent_of_line(text, span.start));
        let gap = if first_gap(text, &object)?.contains('\n') { line } else { String::new() };
        return splice(text, span.clone(), &render_value(value, &gap, unit));
    }
    let gap = first_gap(text, &object)?;
    let comma = if fields.is_empty() { "" } else { "," };
    let name = Value::from(key);
    let at = match fields.last() {
        Some((_, last)) => last.end,
        None => object.start + text.get(object)?.find('{')? + 1,
    };
    let space = if comma.is_empty() { "" } else { gap };
    let space = if space.is_empty() && !comma.is_empty() { " " } else { space };
    let value = render_value(value, gap, unit);
    splice(text, at..at, &format!("{comma}{space}{name}: {value}"))
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
    let mut fields = field_ranges(text, object)?;
    fields.reverse();
    fields.into_iter().find(|(name, _)| name == key).map(|(_, span)| span)
}

fn field_ranges(text: &str, object: Range<usize>) -> Option<Vec<(String, Range<usize>)>> {
    let part = text.get(object)?;
    let JsonFields(fields) = serde_json::from_str(part).ok()?;
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

/// An object whose values are not parsed.
struct JsonFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for JsonFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;
        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = JsonFields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    fields.push((name, map.next_value::<&RawValue>()?));
                }
                Ok(JsonFields(fields))
            }
        }
        deserializer.deserialize_map(FieldVisitor)
    }
}

pub fn value(text: &str) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text.get(whole_range(text))?);
    Value::deserialize(&mut deserializer).ok()
}
