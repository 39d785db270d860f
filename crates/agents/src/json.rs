//! JSON read in place.
//!
//! A line may contain megabytes of tool output, twice, of which 2,000 characters are shown. So
//! values are skipped by finding their end, and only the needed ones are decoded: about twice as
//! fast as a full parse into borrowed values.
//!
//! Invalid UTF-8 and half a surrogate pair, which JavaScript programs produce, become U+FFFD. A
//! `result` line is still parsed strictly.

mod text;

use std::borrow::Cow;

use memchr::memchr;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use self::text::{RawText, TextSize, utf8};

/// A value as written in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawJson<'a>(&'a [u8]);

impl Default for RawJson<'_> {
    fn default() -> Self {
        RawJson(b"null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        Ok(RawJson(raw.get().as_bytes()))
    }
}

impl<'a> RawJson<'a> {
    pub fn from_document(bytes: &'a [u8]) -> Self {
        RawJson(bytes.trim_ascii())
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0 == b"null"
    }

    pub fn non_null(self) -> Option<Self> {
        (!self.is_null()).then_some(self)
    }

    pub fn is_true(self) -> bool {
        self.0 == b"true"
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    pub fn as_text(self) -> Option<RawText<'a>> {
        let inside = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(RawText::from_quoted(inside))
    }

    /// The number, or 0 for anything else. JavaScript may write `12` or `12.0`.
    pub fn as_count(self) -> u64 {
        // Always fits into a `u64`.
        if self.0.len() <= 19 && self.0.iter().all(u8::is_ascii_digit) {
            return self.0.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
        }
        let text = std::str::from_utf8(self.0).unwrap_or_default();
        // The cast saturates and turns NaN into 0.
        text.parse().unwrap_or_else(|_| text.parse::<f64>().unwrap_or_default() as u64)
    }

    /// Like [`RawJson::as_count`]; saturates.
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.as_count()).unwrap_or(u32::MAX)
    }

    pub fn as_f64(self) -> Option<f64> {
        serde_json::from_slice(self.0).ok()
    }

    /// The elements of an array.
    pub fn elements(self) -> Option<Vec<RawJson<'a>>> {
        let mut elements = Vec::new();
        self.for_each_element(|element| elements.push(element))?;
        Some(elements)
    }

    /// The member of an object, or `null`.
    pub fn member(self, name: &str) -> RawJson<'a> {
        let mut found = RawJson::default();
        let read = self.for_each_member(|key, value| {
            if key == name.as_bytes() {
                found = value;
            }
        });
        read.map(|()| found).unwrap_or_default()
    }

    /// The text of a string, or nothing.
    pub fn text(self) -> Cow<'a, str> {
        self.text_or("")
    }

    pub fn text_or(self, default: &'static str) -> Cow<'a, str> {
        self.as_text().map_or(Cow::Borrowed(default), RawText::text)
    }

    /// Calls `each` with every key, as written, and value. `None` if this is not exactly one
    /// object.
    pub fn for_each_member(self, mut each: impl FnMut(&'a [u8], RawJson<'a>)) -> Option<()> {
        let mut walk = Walk::new(self.0);
        walk.object(|key, walk| {
            each(key, walk.value()?);
            Some(())
        })?;
        walk.end()
    }

    /// Calls `each` with every element. `None` if this is not exactly one array.
    pub fn for_each_element(self, mut each: impl FnMut(RawJson<'a>)) -> Option<()> {
        let mut walk = Walk::new(self.0);
        walk.array(|walk| {
            each(walk.value()?);
            Some(())
        })?;
        walk.end()
    }
}

/// A cursor over a document. Steps return `None` on unexpected input.
#[derive(Debug)]
pub struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Walk<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Walk { bytes, position: 0 }
    }

    /// The first byte of the next value.
    pub fn next(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    pub fn value(&mut self) -> Option<RawJson<'a>> {
        let start = self.position;
        self.position = value_end(self.bytes, start)?;
        Some(RawJson(&self.bytes[start..self.position]))
    }

    /// Reads an object. `each` gets the key, as written, and must read the value.
    pub fn object(
        &mut self,
        mut each: impl FnMut(&'a [u8], &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.advance(b'{')?;
        if self.next() == Some(b'}') {
            self.position += 1;
            return Some(());
        }
        loop {
            let start = self.position;
            self.position = string_end(self.bytes, start)?;
            let key = &self.bytes[start + 1..self.position - 1];
            self.skip_space();
            self.advance(b':')?;
            each(key, self)?;
            if !self.has_next(b'}')? {
                return Some(());
            }
        }
    }

    /// Reads an array. `each` must read the element.
    pub fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.advance(b'[')?;
        if self.next() == Some(b']') {
            self.position += 1;
            return Some(());
        }
        loop {
            each(self)?;
            if !self.has_next(b']')? {
                return Some(());
            }
        }
    }

    /// Skips a value up to `member`, which follows it. The search runs from the end: strings
    /// contain no unescaped quotes, so a match is the member.
    pub fn skip_value_before(&mut self, member: &[u8]) -> Option<()> {
        match memchr::memmem::rfind(&self.bytes[self.position..], member) {
            Some(length) => self.position += length,
            None => {
                self.value()?;
            }
        }
        Some(())
    }

    pub fn end(mut self) -> Option<()> {
        self.skip_space();
        (self.position == self.bytes.len()).then_some(())
    }

    fn has_next(&mut self, closing: u8) -> Option<bool> {
        self.skip_space();
        let next = self.next()?;
        if next == closing {
            self.position += 1;
            Some(false)
        } else {
            self.advance(b',')?;
            Some(true)
        }
    }

    fn advance(&mut self, byte: u8) -> Option<()> {
        if self.next() != Some(byte) {
            return None;
        }
        self.position += 1;
        self.skip_space();
        Some(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.position += 1;
        }
    }
}

fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            loop {
                match bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let end = bytes[at..]
                .iter()
                .position(|byte| {
                    matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r')
                })
                .map_or(bytes.len(), |length| at + length);
            (end > at).then_some(end)
        }
    }
}

/// The end of the string whose opening quote is at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    find_closing_quote(bytes, at + 1).map(|quote| quote + 1)
}

fn find_closing_quote(bytes: &[u8], from: usize) -> Option<usize> {
    let mut start = from;
    loop {
        let quote = start + memchr(b'"', bytes.get(start..)?)?;
        // Looking back from quotes is faster than searching for backslashes: most belong to `\n`.
        let backslashes =
            bytes[start..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(quote);
        }
        start = quote + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_counts_parse_to_zero_or_saturate() {
        for (json, count) in [
            ("7", 7),
            ("7.9", 7),
            ("-1", 0),
            ("null", 0),
            ("\"x\"", 0),
            ("[1,[2]]", 0),
            ("{\"a\":1}", 0),
            ("1e300", u64::MAX),
            ("9999999999999999999", 9_999_999_999_999_999_999),
            ("18446744073709551615", u64::MAX),
            ("99999999999999999999", u64::MAX),
        ] {
            assert_eq!(RawJson(json.as_bytes()).as_count(), count, "{json}");
        }
    }

    fn walk(raw: RawJson<'_>) -> serde_json::Value {
        if let Some(text) = raw.as_text() {
            return text.text().into_owned().into();
        }
        let mut object = serde_json::Map::new();
        let mut array = Vec::new();
        let members = raw.for_each_member(|key, value| {
            object.insert(RawText::from_quoted(key).text().into_owned(), walk(value));
        });
        let elements = raw.for_each_element(|value| array.push(walk(value)));
        match (members, elements) {
            (Some(()), _) => object.into(),
            (_, Some(())) => array.into(),
            _ => serde_json::from_slice(raw.bytes()).unwrap(),
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let text = || proptest::string::string_regex("[a-z\"\\\\{}\\[\\],:é😀\n ]{0,30}").unwrap();
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            text().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::vec((text(), inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn closing_quote_after_escapes_is_first_unescaped_one(
            bytes in proptest::collection::vec(
                prop_oneof![8 => Just(b'\\'), 2 => Just(b'"'), 8 => Just(b'x')], 0..300),
            from in 0usize..20,
        ) {
            let mut at = from;
            let step_by_step = loop {
                match bytes.get(at) {
                    None => break None,
                    Some(b'"') => break Some(at),
                    Some(b'\\') => at += 2,
                    Some(_) => at += 1,
                }
            };
            prop_assert_eq!(find_closing_quote(&bytes, from), step_by_step);
        }

        #[test]
        fn json_walk_agrees_with_serde_json(value in any_json(), pretty in any::<bool>(), cut in any::<prop::sample::Index>()) {
            let json = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                serde_json::to_string(&value).unwrap()
            };
            prop_assert_eq!(walk(RawJson(json.as_bytes())), value.clone());
            // A truncated object is no object.
            let cut = RawJson(&json.as_bytes()[..cut.index(json.len())]);
            prop_assert_eq!(cut.for_each_member(|_, _| {}).or(cut.for_each_element(|_| {})), None);
        }

        #[test]
        fn json_walk_never_panics_on_garbage(bytes in proptest::collection::vec(prop_oneof![
            Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b','), Just(b':'), Just(b'u'), any::<u8>(),
        ], 0..60)) {
            let raw = RawJson(&bytes);
            let _ = raw.for_each_member(|key, value| { RawText::from_quoted(key).text(); value.as_count(); });
            let _ = raw.for_each_element(|value| { value.as_text(); });
            let text = RawText::from_quoted(&bytes);
            let (size, head) = (text.size(), text.prefix(5));
            prop_assert!(head.chars().count() <= 5 && size.chars <= 60);
        }
    }
}
