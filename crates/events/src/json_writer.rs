//! JSON as ralph writes it.
//!
//! People read it in terminals, too, where control characters act and direction marks mislead. Invisible
//! characters are written as `\uXXXX`, the same value to every parser.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Serialize;

/// Serializes to one line, without a newline.
///
/// # Errors The value has no JSON form.
pub fn compact(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(escaped)
}

/// Serializes to indented lines, without a final newline.
///
/// # Errors The value has no JSON form.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(escaped)
}

fn escaped(json: String) -> String {
    match escape(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(escaped) => escaped,
    }
}

/// Escapes invisible characters; JSON has them only in strings.
pub fn escape(json: &str) -> Cow<'_, str> {
    if !json.contains(is_invisible) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if !is_invisible(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// Escapes `bytes` from `start` on.
pub fn escape_from(bytes: &mut Vec<u8>, start: usize) {
    // Nearly every line is plain ASCII.
    if bytes[start..].is_ascii() && memchr::memchr(0x7f, &bytes[start..]).is_none() {
        return;
    }
    if let Ok(json) = std::str::from_utf8(&bytes[start..])
        && let Cow::Owned(escaped) = escape(json)
    {
        bytes.truncate(start);
        bytes.extend_from_slice(escaped.as_bytes());
    }
}

/// Every JSON writer escapes the characters below a space.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_writer_escapes_only_invisible_characters() {
        for (text, expected) in [
            ("plain — “text” é日😀", "plain — “text” é日😀"),
            ("\u{1b}[31m\u{7f}", r"\u001b[31m\u007f"),
            ("\u{85}\u{9b}2J\u{a0}", "\\u0085\\u009b2J\u{a0}"),
            (
                "a\u{202e}b\u{2066}c\u{2069}\u{200e}\u{200f}\u{61c}",
                r"a\u202eb\u2066c\u2069\u200e\u200f\u061c",
            ),
            ("\u{2028}\u{2029}", r"\u2028\u2029"),
            ("\u{feff}\u{200b}\u{200d}\u{2060}", r"\ufeff\u200b\u200d\u2060"),
            ("\u{e0041}", r"\udb40\udc41"),
        ] {
            let json = compact(&text).unwrap();
            assert_eq!(json, format!("\"{expected}\""));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            let mut bytes = "\u{202e}".as_bytes().to_vec();
            bytes.extend(serde_json::to_vec(text).unwrap());
            escape_from(&mut bytes, 3);
            assert_eq!(bytes, format!("\u{202e}{json}").into_bytes());
        }
        let document = serde_json::json!({"a\u{202e}": ["\u{9b}"]});
        assert_eq!(pretty(&document).unwrap(), "{\n  \"a\\u202e\": [\n    \"\\u009b\"\n  ]\n}");
    }

    proptest! {
        #[test]
        fn json_writer_round_trips_without_invisible_characters(text in any::<String>()) {
            let json = compact(&text).unwrap();
            prop_assert!(!json.chars().any(|c| c.is_control() || is_invisible(c)));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
