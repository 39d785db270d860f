//! JSON looked at where it stands.
//!
//! A line of an agent's stream may hold megabytes of a tool's output, twice, of which two thousand
//! characters are shown. So a line is not parsed: its members are found by walking over them, a
//! string is walked over by looking for its closing quote, and only what is needed is resolved.
//! That is about twice as fast as a full parse into borrowed values; `benches/parse.rs` measures it.
//!
//! It is also more forgiving where a strict parser would refuse the whole line. Programs written in
//! JavaScript cut texts in the middle of a surrogate pair; here such a half becomes U+FFFD, and so
//! do bytes that are not UTF-8. What decides over success (a `result`) is parsed strictly by its
//! reader all the same.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use memchr::memchr_iter;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::core::scan::{LANE, find, find_closing_quote};

/// A value as it is written in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw<'a>(&'a [u8]);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'a RawValue>::deserialize(deserializer)?;
        Ok(Raw(raw.get().as_bytes()))
    }
}

impl<'a> Raw<'a> {
    /// The value that is all of a document, which is not looked at yet.
    pub(crate) fn document(bytes: &'a [u8]) -> Self {
        Raw(bytes.trim_ascii())
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == b"null"
    }

    pub(crate) fn is_true(self) -> bool {
        self.0 == b"true"
    }

    /// What this says, if it is `true` or `false`.
    pub(crate) fn flag(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The string that this is, if it is one.
    pub(crate) fn text(self) -> Option<RawText<'a>> {
        let inside = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(RawText(inside))
    }

    /// The count that this is; anything but a number counts as nothing.
    pub(crate) fn count(self) -> u64 {
        // Nineteen digits always fit.
        if self.0.len() <= 19 && self.0.iter().all(u8::is_ascii_digit) {
            return self.0.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
        }
        let text = std::str::from_utf8(self.0).unwrap_or_default();
        // A cast from a float saturates, and takes what is not a number for 0.
        text.parse().unwrap_or_else(|_| text.parse::<f64>().unwrap_or_default() as u64)
    }

    /// Hands the members of an object to `each`: the key as it is written, and the value. `None` if
    /// this is not an object and nothing else, however many members there seemed to be.
    pub(crate) fn members(self, mut each: impl FnMut(&'a [u8], Raw<'a>)) -> Option<()> {
        let mut walk = Walk::over(self.0);
        walk.object(|key, walk| {
            each(key, walk.value()?);
            Some(())
        })?;
        walk.end()
    }

    /// Hands the elements of an array to `each`. `None` if this is not an array and nothing else.
    pub(crate) fn elements(self, mut each: impl FnMut(Raw<'a>)) -> Option<()> {
        let mut walk = Walk::over(self.0);
        walk.array(|walk| {
            each(walk.value()?);
            Some(())
        })?;
        walk.end()
    }
}

/// A walk over a document, from its beginning to its end, once. `None` is said by any step that
/// does not find what it should.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn over(bytes: &'a [u8]) -> Self {
        Walk { bytes, at: 0 }
    }

    /// The byte that the next value begins with.
    pub(crate) fn next(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes a value of any kind.
    pub(crate) fn value(&mut self) -> Option<Raw<'a>> {
        let start = self.at;
        self.at = value_end(self.bytes, start)?;
        Some(Raw(&self.bytes[start..self.at]))
    }

    /// Takes an object. `each` gets a key, as it is written, and has to take the value.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&'a [u8], &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.step(b'{')?;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Some(());
        }
        loop {
            let start = self.at;
            self.at = string_end(self.bytes, start)?;
            let key = &self.bytes[start + 1..self.at - 1];
            self.skip_space();
            self.step(b':')?;
            each(key, self)?;
            if !self.goes_on(b'}')? {
                return Some(());
            }
        }
    }

    /// Takes an array. `each` has to take the element.
    pub(crate) fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.step(b'[')?;
        if self.next() == Some(b']') {
            self.at += 1;
            return Some(());
        }
        loop {
            each(self)?;
            if !self.goes_on(b']')? {
                return Some(());
            }
        }
    }

    /// Passes over a value that nobody needs, up to the member that is known to follow it. It is looked
    /// for from the end of the document: no string can hold a quote that is not escaped, so what looks
    /// like the member is one. Without it the value is walked over as any other.
    pub(crate) fn skip_value_before(&mut self, member: &[u8]) -> Option<()> {
        match memchr::memmem::rfind(&self.bytes[self.at..], member) {
            Some(length) => self.at += length,
            None => {
                self.value()?;
            }
        }
        Some(())
    }

    /// There is nothing more.
    pub(crate) fn end(mut self) -> Option<()> {
        self.skip_space();
        (self.at == self.bytes.len()).then_some(())
    }

    /// After a member or an element: is there another one?
    fn goes_on(&mut self, closing: u8) -> Option<bool> {
        self.skip_space();
        let next = self.next()?;
        if next == closing {
            self.at += 1;
            Some(false)
        } else {
            self.step(b',')?;
            Some(true)
        }
    }

    fn step(&mut self, byte: u8) -> Option<()> {
        if self.next() != Some(byte) {
            return None;
        }
        self.at += 1;
        self.skip_space();
        Some(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.at += 1;
        }
    }
}

/// Where the value ends that begins at `at`.
fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            loop {
                at = find(bytes, at, *b"\"{}[]")?;
                match bytes[at] {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    _ => depth -= 1,
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

/// Where the string ends whose opening quote is at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    find_closing_quote(bytes, at + 1).map(|quote| quote + 1)
}

/// A short string of a known form: an id, a name, a keyword. Borrowed if it holds no escapes, which
/// `Option<Cow>` never is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The inside of a string as it is written: without the quotes, escapes unresolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RawText<'a>(&'a [u8]);

impl<'de: 'a, 'a> Deserialize<'de> for RawText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Raw::deserialize(deserializer)?.text();
        text.ok_or_else(|| D::Error::custom("a string was expected"))
    }
}

/// How much text there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) lines: u64,
    pub(crate) chars: u64,
}

impl<'a> RawText<'a> {
    /// What is inside of the quotes of a string: a key, for one.
    pub(crate) fn written(bytes: &'a [u8]) -> Self {
        RawText(bytes)
    }

    /// A word that needs no escapes.
    pub(crate) fn keyword(word: &'static str) -> Self {
        RawText(word.as_bytes())
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// As it is written, for comparing with words that need no escapes.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// All of the text.
    pub(crate) fn text(self) -> Cow<'a, str> {
        resolve(self.0, usize::MAX)
    }

    /// The first `max` characters.
    pub(crate) fn head(self, max: usize) -> Cow<'a, str> {
        // No character is written with more than twelve bytes (a surrogate pair of escapes). A
        // character that is cut here is beyond the ones that are asked for.
        let enough = self.0.len().min(max.saturating_mul(12));
        resolve(&self.0[..enough], max)
    }

    /// Counts lines and characters of the text.
    pub(crate) fn size(self) -> Size {
        let bytes = self.0;
        let tally = Tally::of(bytes);
        if tally.backslashes == 0 {
            return Size { lines: u64::from(!bytes.is_empty()), chars: tally.chars };
        }
        if tally.hard == 0 {
            // Every backslash makes one character of two.
            return Size {
                lines: tally.newlines + u64::from(!bytes.ends_with(b"\\n")),
                chars: tally.chars - tally.backslashes,
            };
        }
        self.size_step_by_step(tally.chars)
    }

    /// The same where an escape may be longer, or be a backslash itself.
    fn size_step_by_step(self, written: u64) -> Size {
        let bytes = self.0;
        let mut chars = written;
        let mut newlines = 0;
        let mut after = 0;
        let mut ends_with_newline = false;
        for at in memchr_iter(b'\\', bytes) {
            if at < after {
                continue;
            }
            let (character, length) = escape(&bytes[at..]);
            // The bytes of an escape are ASCII, so that each of them was counted as a character.
            chars = chars.saturating_sub(length as u64 - 1);
            after = at + length;
            newlines += u64::from(character == '\n');
            ends_with_newline = character == '\n' && after == bytes.len();
        }
        Size { lines: newlines + u64::from(!ends_with_newline), chars }
    }
}

/// What a fast look at a string tells.
#[derive(Default)]
struct Tally {
    /// Characters as they are written, escapes unresolved.
    chars: u64,
    backslashes: u64,
    newlines: u64,
    /// Backslashes before another one, or before a `u`.
    hard: u64,
}

impl Tally {
    /// Counts in blocks small enough for a byte to hold the sums, which the compiler turns into
    /// vector instructions.
    fn of(bytes: &[u8]) -> Self {
        let mut tally = Tally::default();
        let after = bytes.get(1..).unwrap_or_default();
        for (block, next) in bytes.chunks(128).zip(after.chunks(128).chain([&[][..]])) {
            let (mut chars, mut backslashes, mut newlines, mut hard) = (0u8, 0u8, 0u8, 0u8);
            for byte in block {
                chars += u8::from(begins_character(*byte));
                backslashes += u8::from(*byte == b'\\');
            }
            for (byte, next) in block.iter().zip(next) {
                let escape = *byte == b'\\';
                newlines += u8::from(escape & (*next == b'n'));
                hard += u8::from(escape & ((*next == b'\\') | (*next == b'u')));
            }
            tally.chars += u64::from(chars);
            tally.backslashes += u64::from(backslashes);
            tally.newlines += u64::from(newlines);
            tally.hard += u64::from(hard);
        }
        tally
    }
}

/// Resolves the escapes of at most `max` characters.
fn resolve(raw: &[u8], max: usize) -> Cow<'_, str> {
    let Some(first) = find(raw, 0, [b'\\']) else {
        return match utf8(raw) {
            Cow::Borrowed(text) => Cow::Borrowed(head(text, max)),
            Cow::Owned(text) => Cow::Owned(head(&text, max).to_owned()),
        };
    };
    let mut out = Vec::with_capacity(raw.len().min(max.saturating_mul(2)) + LANE);
    out.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    // What has been counted of `out`, and how many characters may still come: one more than are wanted,
    // because the last one may not be all there.
    let (mut counted, mut left) = (0, max.saturating_add(1));
    loop {
        if out.len() - counted >= left {
            // There may be enough of them by now; a character has at least one byte.
            left = left.saturating_sub(characters(&out[counted..]));
            counted = out.len();
        }
        let plain = match rest.split_first_chunk::<LANE>() {
            _ if left == 0 => break,
            // Copied as a whole, which is one instruction, and what is too much taken off again.
            Some((lane, _)) => {
                let plain = find(lane, 0, [b'\\']).unwrap_or(LANE);
                out.extend_from_slice(lane);
                out.truncate(out.len() - (LANE - plain));
                plain
            }
            None if rest.is_empty() => break,
            None => {
                let plain = find(rest, 0, [b'\\']).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..plain]);
                plain
            }
        };
        rest = &rest[plain..];
        if rest.first() == Some(&b'\\') {
            let simple = rest.get(1).map_or(0, |byte| SIMPLE_ESCAPES[usize::from(*byte)]);
            if simple != 0 {
                out.push(simple);
                rest = &rest[2..];
            } else {
                let (character, length) = escape(rest);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[length..];
            }
        }
    }
    if left == 0 {
        out.truncate(out.iter().rposition(|byte| begins_character(*byte)).unwrap_or(0));
    }
    let mut text = String::from_utf8(out)
        .unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned());
    text.truncate(head(&text, max).len());
    Cow::Owned(text)
}

/// How many characters begin in these bytes. Of bytes that are no text it may be fewer than are made
/// of them.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins_character(**byte)).count()
}

fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

/// The same as `String::from_utf8_lossy`, which takes a multiple of the time where nothing is wrong.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    // The quick way asks the processor first what it can, which takes as long as all else that a hook does. Only
    // whoever reads much has something of it.
    const MUCH: usize = 1 << 20;
    static READ: AtomicUsize = AtomicUsize::new(0);
    let read = READ.load(Relaxed);
    let text = if read < MUCH {
        READ.store(read + bytes.len(), Relaxed);
        std::str::from_utf8(bytes).ok()
    } else {
        simdutf8::basic::from_utf8(bytes).ok()
    };
    text.map_or_else(|| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn head(text: &str, max: usize) -> &str {
    if text.len() <= max { text } else { crate::core::text::head(text, max) }
}

/// The character that an escape at the beginning of `raw` stands for, and the escape's length.
fn escape(raw: &[u8]) -> (char, usize) {
    match raw.get(1) {
        Some(b'u') => code_point(raw),
        Some(byte) if SIMPLE_ESCAPES[usize::from(*byte)] != 0 => {
            (char::from(SIMPLE_ESCAPES[usize::from(*byte)]), 2)
        }
        // No JSON; one backslash is all that is known to belong to it.
        _ => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// What a letter after a backslash stands for; 0 if it is no such letter.
const SIMPLE_ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    table[b'n' as usize] = b'\n';
    table[b't' as usize] = b'\t';
    table[b'r' as usize] = b'\r';
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0C;
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table
};

/// The same for `\uXXXX`, two of which may make one character.
fn code_point(raw: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let Some(high) = unit(0) else {
        return (char::REPLACEMENT_CHARACTER, 2);
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
pub(crate) fn lenient<'a, T: Deserialize<'a> + Default>(raw: Option<Raw<'a>>) -> T {
    raw.and_then(|raw| serde_json::from_slice(raw.bytes()).ok()).unwrap_or_default()
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
            ("9999999999999999999", 9_999_999_999_999_999_999),
            ("18446744073709551615", u64::MAX),
            ("99999999999999999999", u64::MAX),
        ] {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(count), "{json}");
            assert_eq!(Raw(json.as_bytes()).count(), count, "{json}");
        }
    }

    /// Every member and element of a document, as the walk finds them.
    fn walk(raw: Raw<'_>) -> serde_json::Value {
        if let Some(text) = raw.text() {
            return text.text().into_owned().into();
        }
        let mut object = serde_json::Map::new();
        let mut array = Vec::new();
        let members = raw.members(|key, value| {
            object.insert(RawText(key).text().into_owned(), walk(value));
        });
        let elements = raw.elements(|value| array.push(walk(value)));
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
        fn the_walk_finds_what_a_parser_finds(value in any_json(), pretty in any::<bool>(), cut in any::<prop::sample::Index>()) {
            let json = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                serde_json::to_string(&value).unwrap()
            };
            prop_assert_eq!(walk(Raw(json.as_bytes())), value.clone());
            // An object that is not all there is no object.
            let cut = Raw(&json.as_bytes()[..cut.index(json.len())]);
            prop_assert_eq!(cut.members(|_, _| {}).or(cut.elements(|_| {})), None);
        }

        #[test]
        fn garbage_does_no_harm(bytes in proptest::collection::vec(prop_oneof![
            Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b','), Just(b':'), Just(b'u'), any::<u8>(),
        ], 0..60)) {
            let raw = Raw(&bytes);
            let _ = raw.members(|key, value| { RawText(key).text(); value.count(); });
            let _ = raw.elements(|value| { value.text(); });
            let text = RawText(&bytes);
            let (size, head) = (text.size(), text.head(5));
            prop_assert!(head.chars().count() <= 5 && size.chars <= 60);
        }

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
