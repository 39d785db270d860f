//! Strings of a JSON document, looked at where they stand.
//!
//! The output of a tool may be megabytes of which two thousand characters are shown, so it is
//! counted and cut without resolving all of its escapes. And programs written in JavaScript cut
//! texts in the middle of a surrogate pair, which a strict parser refuses together with the whole
//! line; here such a half becomes U+FFFD.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr_iter};
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A short string: an id, a name, a keyword. Borrowed if it holds no escapes, which `Option<Cow>`
/// never is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The inside of a JSON string as it is written: without the quotes, escapes unresolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RawText<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for RawText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        RawText::of(raw).ok_or_else(|| D::Error::custom("a string was expected"))
    }
}

/// How much text there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) lines: u64,
    pub(crate) chars: u64,
}

impl<'a> RawText<'a> {
    /// The string that `raw` is, if it is one.
    pub(crate) fn of(raw: &'a RawValue) -> Option<Self> {
        raw.get().strip_prefix('"')?.strip_suffix('"').map(RawText)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All of the text.
    pub(crate) fn text(self) -> Cow<'a, str> {
        resolve(self.0, usize::MAX)
    }

    /// The first `max` characters.
    pub(crate) fn head(self, max: usize) -> Cow<'a, str> {
        // No character is written with more than twelve bytes (a surrogate pair of escapes).
        let enough = self.0.floor_char_boundary(max.saturating_mul(12));
        resolve(&self.0[..enough], max)
    }

    /// Counts lines and characters of the text.
    pub(crate) fn size(self) -> Size {
        let bytes = self.0.as_bytes();
        let mut chars = self.0.chars().count();
        let mut newlines = 0;
        let mut after = 0;
        let mut ends_with_newline = false;
        for at in memchr_iter(b'\\', bytes) {
            if at < after {
                continue;
            }
            ends_with_newline = false;
            after = at + 2;
            match bytes.get(at + 1) {
                Some(b'n') => {
                    newlines += 1;
                    chars -= 1;
                    ends_with_newline = after == bytes.len();
                }
                Some(b'u') => {
                    let (_, length) = code_point(&self.0[at..]);
                    chars -= length - 1;
                    after = at + length;
                }
                _ => chars -= 1,
            }
        }
        let lines = newlines + u64::from(!bytes.is_empty() && !ends_with_newline);
        Size { lines, chars: chars as u64 }
    }
}

/// Resolves the escapes of at most `max` characters.
fn resolve(raw: &str, max: usize) -> Cow<'_, str> {
    let Some(first) = memchr(b'\\', raw.as_bytes()) else {
        return Cow::Borrowed(crate::core::text::head(raw, max));
    };
    let mut out = String::with_capacity(raw.len());
    let mut left = max;
    let mut rest = raw;
    let mut plain = first;
    while left > 0 {
        let text = &rest[..plain];
        if text.len() <= left {
            out.push_str(text);
            left -= text.chars().count();
        } else {
            let text = crate::core::text::head(text, left);
            out.push_str(text);
            left -= text.chars().count();
        }
        rest = &rest[plain..];
        if rest.is_empty() || left == 0 {
            break;
        }
        let (character, length) = escape(rest);
        out.push(character);
        left -= 1;
        rest = &rest[length..];
        plain = memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
    }
    Cow::Owned(out)
}

/// The character that an escape at the beginning of `raw` stands for, and the escape's length.
fn escape(raw: &str) -> (char, usize) {
    let character = match raw.as_bytes().get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return code_point(raw),
        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
        // No parser lets this through.
        _ => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (character, 2)
}

/// The same for `\uXXXX`, two of which may make one character.
fn code_point(raw: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = raw.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(high) = unit(0) else {
        return (char::REPLACEMENT_CHARACTER, raw.len().min(2));
    };
    if let Some(character) = char::from_u32(high) {
        return (character, 6);
    }
    let pair = unit(6)
        .filter(|low| (0xD800..0xDC00).contains(&high) && (0xDC00..0xE000).contains(low))
        .and_then(|low| char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)));
    match pair {
        Some(character) => (character, 12),
        None => (char::REPLACEMENT_CHARACTER, 6),
    }
}

/// A count that a program of JavaScript may write as `12`, `12.0`, `null` or not at all. Anything
/// else counts as nothing: a wrong figure must not cost the line that it stands in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;

        impl<'de> Visitor<'de> for AnyNumber {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }

            fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
                Ok(Count(count))
            }

            fn visit_i64<E>(self, count: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(count).unwrap_or(0)))
            }

            fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
                // A cast from a float saturates, and takes what is not a number for 0.
                Ok(Count(count as u64))
            }

            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_str<E>(self, _: &str) -> Result<Count, E> {
                Ok(Count(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }
        }

        deserializer.deserialize_any(AnyNumber)
    }
}

/// Reads a part of a line that may be missing or of another shape than is known.
pub(crate) fn lenient<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_a_surrogate_pair_costs_one_character_and_not_the_line() {
        for (raw, text) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""cut \ud83d!""#, "cut \u{fffd}!"),
            (r#""\ude00\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            let parsed: RawText<'_> = serde_json::from_str(raw).unwrap();
            assert_eq!(parsed.text(), text);
            assert_eq!(parsed.size().chars, text.chars().count() as u64, "{raw}");
        }
        assert!(serde_json::from_str::<RawText<'_>>("7").is_err());
    }

    #[test]
    fn odd_counts_are_no_reason_to_lose_a_line() {
        for (json, count) in [
            ("7", 7),
            ("7.9", 7),
            ("-1", 0),
            ("null", 0),
            ("\"x\"", 0),
            ("[1,[2]]", 0),
            ("{\"a\":1}", 0),
            ("1e300", u64::MAX),
        ] {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(count), "{json}");
        }
    }

    proptest! {
        #[test]
        fn counting_and_cutting_agree_with_the_whole_text(
            text in proptest::string::string_regex("([a-zé😀\n\r\t\"\\\\/\u{1}\u{7f}]|\n|x){0,60}").unwrap(),
            max in 0usize..70,
            ascii in any::<bool>(),
        ) {
            let mut json = serde_json::to_string(&text).unwrap();
            if ascii {
                json = json.chars().map(|c| if c.is_ascii() { c.to_string() } else {
                    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
                }).collect();
            }
            let raw: RawText<'_> = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(raw.text(), text.as_str());
            prop_assert_eq!(raw.head(max), crate::core::text::head(&text, max));
            // `str::lines` with the one exception that a lone carriage return at the end is text.
            let lines = text.split('\n').count() as u64 - u64::from(text.is_empty() || text.ends_with('\n'));
            prop_assert_eq!(raw.size(), Size { lines, chars: text.chars().count() as u64 });
        }
    }
}
