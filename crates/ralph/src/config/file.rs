//! Reads settings files and explains syntax errors.

use std::fmt;
use std::io;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use unicode_width::UnicodeWidthStr as _;

use super::check;
use super::key_lines::locate;
use super::schema::quote;
use ralph_events::error::Error;
use ralph_store::user_files;

/// Guards against devices and log files.
const MAX_BYTES: u64 = 4 << 20;

const EXCERPT_COLUMNS: usize = 120;

pub(crate) struct SettingsFile {
    pub(crate) document: Value,
    text: String,
    /// For messages.
    name: String,
}

impl SettingsFile {
    /// Call it after changes of the document that keep its keys.
    pub(super) fn problems(&self) -> Vec<String> {
        let problems = check::find_problems(&self.document);
        problems.iter().map(|problem| locate(problem, &self.text, &self.name)).collect()
    }
}

/// `name` is for messages. `None` if the file does not exist.
pub(crate) fn read(path: &Path, name: &str) -> Result<Option<SettingsFile>, Error> {
    let bytes = match user_files::read_user_file(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            let problem = match error.kind() {
                io::ErrorKind::NotFound => return Ok(None),
                io::ErrorKind::IsADirectory => "is a directory, not a file".to_owned(),
                io::ErrorKind::FileTooLarge => format!("is larger than {} MiB", MAX_BYTES >> 20),
                _ => format!("cannot be read: {error}"),
            };
            return Err(Error::config(format!("{name}: {problem}")));
        }
    };
    parse(bytes, name).map(Some)
}

fn parse(bytes: Vec<u8>, name: &str) -> Result<SettingsFile, Error> {
    let text = utf8_text(bytes, name)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(
            Error::config(format!("{name}: is empty")).hint("put {} into it, or run `ralph init`")
        );
    }
    match serde_json::from_str::<StrictValue>(text) {
        Ok(StrictValue(document)) => {
            Ok(SettingsFile { document, text: text.to_owned(), name: name.to_owned() })
        }
        Err(error) => Err(malformed(text, name, &error)),
    }
}

pub(super) fn utf8_text(bytes: Vec<u8>, name: &str) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        Error::config(format!("{name}:{line}: not valid UTF-8")).hint("save the file as UTF-8")
    })
}

fn malformed(text: &str, name: &str, error: &serde_json::Error) -> Error {
    let problem = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let problem = problem.strip_suffix(&position).unwrap_or(&problem);

    // At the end of the text, it may be past the last line.
    let number = error.line().max(1);
    let line = text.split('\n').nth(number - 1).unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    // serde_json counts bytes from 1 and names the last byte read.
    let mut start = error.column().saturating_sub(1).min(line.len());
    while !line.is_char_boundary(start) {
        start -= 1;
    }
    let (before, after) = line.split_at(start);

    let hint = if after.starts_with("//") || after.starts_with("/*") || after.starts_with('#') {
        Some("JSON does not allow comments")
    } else if problem == "trailing comma" {
        Some("remove the comma before the closing bracket")
    } else if after.starts_with('\'') {
        Some("JSON needs double quotes")
    } else {
        None
    };
    let column = before.chars().count() + 1;
    let (before, after) = excerpt(before, after);
    let gutter = " ".repeat(number.to_string().len());
    let caret = " ".repeat(before.width());
    let error = Error::config(format!(
        "{name}:{number}:{column}: not valid JSON: {problem}\n  \
         {number} | {before}{after}\n  {gutter} | {caret}^"
    ));
    hint.into_iter().fold(error, Error::hint)
}

/// Without control characters, which could move the caret or steer the terminal.
fn excerpt(before: &str, after: &str) -> (String, String) {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let length = before.chars().count();
    let skipped = length.saturating_sub(EXCERPT_COLUMNS / 2);
    let mut head: String = before.chars().skip(skipped).map(clean).collect();
    if skipped > 0 {
        head.insert(0, '…');
    }
    let mut tail: String = after.chars().take(EXCERPT_COLUMNS / 2).map(clean).collect();
    if after.chars().nth(EXCERPT_COLUMNS / 2).is_some() {
        tail.push('…');
    }
    (head, tail)
}

/// Refuses duplicate keys; [`Value`] would silently keep the last one.
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictValue)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(StrictValue(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                let message = format!("duplicate key {}", quote(&key));
                return Err(serde::de::Error::custom(message));
            }
            map.insert(key, access.next_value::<StrictValue>()?.0);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let unreadable = parse(text.into(), "s.json").err().unwrap();
        match unreadable.hints.first() {
            Some(hint) => format!("{}\nhint: {hint}", unreadable.message),
            None => unreadable.message,
        }
    }

    #[test]
    fn malformed_settings_file_error_shows_position() {
        for (text, expected) in [
            ("", "s.json: is empty\nhint: put {} into it, or run `ralph init`"),
            ("\u{feff} \n", "s.json: is empty\nhint: put {} into it, or run `ralph init`"),
            (
                "{\n  \"agent\": {\n    \"flags\": [],\n  }\n}\n",
                "s.json:4:3: not valid JSON: trailing comma\n  4 |   }\n    |   ^\n\
                 hint: remove the comma before the closing bracket",
            ),
            (
                "{\n  // mine\n  \"a\": 1\n}",
                "s.json:2:3: not valid JSON: key must be a string\n  2 |   // mine\n    |   ^\n\
                 hint: JSON does not allow comments",
            ),
            (
                "{\"a\": /* x */ 1}",
                "s.json:1:7: not valid JSON: expected value\n  1 | {\"a\": /* x */ 1}\n    |       ^\n\
                 hint: JSON does not allow comments",
            ),
            (
                "{\"é世\": x}",
                "s.json:1:8: not valid JSON: expected value\n  1 | {\"é世\": x}\n    |         ^",
            ),
            (
                "{'a': 1}",
                "s.json:1:2: not valid JSON: key must be a string\n  1 | {'a': 1}\n    |  ^\n\
                 hint: JSON needs double quotes",
            ),
            (
                "{\"a\": 1",
                "s.json:1:7: not valid JSON: EOF while parsing an object\n  1 | {\"a\": 1\n    |       ^",
            ),
            ("{}\n{}", "s.json:2:1: not valid JSON: trailing characters\n  2 | {}\n    | ^"),
            (
                "{\"a\": 1e999}",
                "s.json:1:11: not valid JSON: number out of range\n  1 | {\"a\": 1e999}\n    |           ^",
            ),
            (
                "{\r\n\t\"a\": 1,\r\n\t\"a\": 2\r\n}",
                "s.json:3:4: not valid JSON: duplicate key \"a\"\n  3 |  \"a\": 2\n    |    ^",
            ),
        ] {
            assert_eq!(problem(text), expected, "{text:?}");
        }
    }

    #[test]
    fn malformed_file_error_truncates_long_line() {
        let text =
            format!("{{\"a\": \"{}\" x, \"b\": \"{}\"}}", "y".repeat(5000), "z".repeat(5000));
        let message = problem(&text);
        assert!(message.len() < 400, "{message}");
        let lines: Vec<&str> = message.lines().collect();
        let caret = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(caret), Some('x'), "{message}");
    }

    #[test]
    fn deeply_nested_settings_file_is_error() {
        assert!(problem(&"[".repeat(100_000)).contains("recursion limit exceeded"));
    }

    #[test]
    fn byte_order_mark_is_accepted_but_invalid_utf8_is_not() {
        let file = parse("\u{feff}{}".into(), "s.json").unwrap();
        assert_eq!(file.document, Value::Object(Map::new()));
        assert_eq!(
            parse(b"{\n\"a\": \"\xff\"}".into(), "s.json").err().unwrap().message,
            "s.json:2: not valid UTF-8"
        );
    }

    #[test]
    fn missing_directory_and_oversized_files_are_handled() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(&dir.path().join("none"), "n").unwrap().is_none());
        let error = |path: &Path, name| read(path, name).err().unwrap().message;
        assert_eq!(error(dir.path(), "d"), "d: is a directory, not a file");
        let large = dir.path().join("large");
        std::fs::File::create(&large).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(error(&large, "l"), "l: is larger than 4 MiB");
        let below_a_file = large.join("settings.json");
        assert!(error(&below_a_file, "b").starts_with("b: cannot be read: "));
    }

    proptest::proptest! {
        #[test]
        fn file_parser_never_panics_on_bytes(bytes: Vec<u8>) {
            let _ = parse(bytes, "s.json");
        }

        #[test]
        fn file_parser_never_panics_on_near_json(text in "[\\[\\]{}\",:/ \n\r\té世0-9a-z\\\\]{0,60}") {
            let _ = parse(text.into_bytes(), "s.json");
        }
    }
}
