//! JSON strings, measured and cut without full decoding.

use std::borrow::Cow;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use memchr::{memchr, memchr_iter};

/// The inside of a string as written, with escapes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawText<'a>(&'a [u8]);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextSize {
    pub lines: u64,
    pub chars: u64,
}

impl<'a> RawText<'a> {
    pub fn from_quoted(bytes: &'a [u8]) -> Self {
        RawText(bytes)
    }

    pub fn from_keyword(word: &'static str) -> Self {
        RawText(word.as_bytes())
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn text(self) -> Cow<'a, str> {
        resolve(self.0, usize::MAX)
    }

    pub fn prefix(self, max: usize) -> Cow<'a, str> {
        // A character takes at most 12 bytes (an escaped surrogate pair).
        let enough = self.0.len().min(max.saturating_mul(12));
        resolve(&self.0[..enough], max)
    }

    pub fn size(self) -> TextSize {
        let bytes = self.0;
        let tally = CharTally::of(bytes);
        if tally.backslashes == 0 {
            return TextSize { lines: u64::from(!bytes.is_empty()), chars: tally.chars };
        }
        if tally.long_escapes == 0 {
            return TextSize {
                lines: tally.newlines + u64::from(!bytes.ends_with(b"\\n")),
                chars: tally.chars - tally.backslashes,
            };
        }
        self.size_with_escapes(tally.chars)
    }

    /// Counts with `\\` and `\uXXXX`, too.
    fn size_with_escapes(self, written: u64) -> TextSize {
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
            // Escapes are ASCII, so each byte was counted.
            chars = chars.saturating_sub(length as u64 - 1);
            after = at + length;
            newlines += u64::from(character == '\n');
            ends_with_newline = character == '\n' && after == bytes.len();
        }
        TextSize { lines: newlines + u64::from(!ends_with_newline), chars }
    }
}

#[derive(Default)]
struct CharTally {
    /// With escapes undecoded.
    chars: u64,
    backslashes: u64,
    newlines: u64,
    /// `\\` and `\u`.
    long_escapes: u64,
}

impl CharTally {
    /// Counts in blocks that fit `u8` counters, which the compiler vectorizes.
    fn of(bytes: &[u8]) -> Self {
        let mut tally = CharTally::default();
        let after = bytes.get(1..).unwrap_or_default();
        for (block, next) in bytes.chunks(128).zip(after.chunks(128).chain([&[][..]])) {
            let (mut chars, mut backslashes, mut newlines, mut long_escapes) = (0u8, 0u8, 0u8, 0u8);
            for byte in block {
                chars += u8::from(begins_character(*byte));
                backslashes += u8::from(*byte == b'\\');
            }
            for (byte, next) in block.iter().zip(next) {
                let escape = *byte == b'\\';
                newlines += u8::from(escape & (*next == b'n'));
                long_escapes += u8::from(escape & ((*next == b'\\') | (*next == b'u')));
            }
            tally.chars += u64::from(chars);
            tally.backslashes += u64::from(backslashes);
            tally.newlines += u64::from(newlines);
            tally.long_escapes += u64::from(long_escapes);
        }
        tally
    }
}

fn resolve(raw: &[u8], max: usize) -> Cow<'_, str> {
    let Some(first) = memchr(b'\\', raw) else {
        return match utf8(raw) {
            Cow::Borrowed(text) => Cow::Borrowed(prefix(text, max)),
            Cow::Owned(text) => Cow::Owned(prefix(&text, max).to_owned()),
        };
    };
    let mut out = Vec::with_capacity(raw.len().min(max.saturating_mul(2)));
    out.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    // One more than wanted, because the last may be incomplete.
    let (mut counted, mut remaining) = (0, max.saturating_add(1));
    loop {
        if out.len() - counted >= remaining {
            // A character has at least one byte.
            remaining = remaining.saturating_sub(characters(&out[counted..]));
            counted = out.len();
        }
        if remaining == 0 || rest.is_empty() {
            break;
        }
        let (plain, escaped) = rest.split_at(memchr(b'\\', rest).unwrap_or(rest.len()));
        out.extend_from_slice(plain);
        rest = escaped;
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
    if remaining == 0 {
        out.truncate(out.iter().rposition(|byte| begins_character(*byte)).unwrap_or(0));
    }
    let mut text = String::from_utf8(out)
        .unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned());
    text.truncate(prefix(&text, max).len());
    Cow::Owned(text)
}

/// Counts characters; too low for invalid UTF-8.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins_character(**byte)).count()
}

fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

/// Like `String::from_utf8_lossy`, but several times faster for valid text.
pub fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    // simdutf8 detects CPU features first, which takes as long as a whole hook.
    const DETAILED_COUNT_BYTES: usize = 1 << 20;
    static BYTES_READ: AtomicUsize = AtomicUsize::new(0);
    let read = BYTES_READ.load(Relaxed);
    let text = if read < DETAILED_COUNT_BYTES {
        BYTES_READ.store(read + bytes.len(), Relaxed);
        std::str::from_utf8(bytes).ok()
    } else {
        simdutf8::basic::from_utf8(bytes).ok()
    };
    text.map_or_else(|| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn prefix(text: &str, max: usize) -> &str {
    if text.len() <= max { text } else { ralph_events::text::prefix(text, max) }
}

/// Returns the escaped character and the length of the escape.
fn escape(raw: &[u8]) -> (char, usize) {
    match raw.get(1) {
        Some(b'u') => code_point(raw),
        Some(byte) if SIMPLE_ESCAPES[usize::from(*byte)] != 0 => {
            (char::from(SIMPLE_ESCAPES[usize::from(*byte)]), 2)
        }
        // Invalid JSON.
        _ => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// The character for the letter after a backslash; 0 if invalid.
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

/// Decodes `\uXXXX` or a surrogate pair.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::RawJson;

    #[test]
    fn lone_surrogate_is_replaced_by_one_character() {
        for (raw, text) in [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""cut \ud83d!""#, "cut \u{fffd}!"),
            (r#""\ude00\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            let parsed = RawJson::from_document(raw.as_bytes()).as_text().unwrap();
            assert_eq!(parsed.text(), text);
            assert_eq!(parsed.size().chars, text.chars().count() as u64, "{raw}");
        }
        assert_eq!(RawJson::from_document(b"7").as_text(), None);
    }

    proptest! {
        #[test]
        fn raw_text_size_and_head_agree_with_decoded_text(
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
            let raw = RawJson::from_document(json.as_bytes()).as_text().unwrap();
            prop_assert_eq!(raw.text(), text.as_str());
            prop_assert_eq!(raw.prefix(max), ralph_events::text::prefix(&text, max));
            // Unlike `str::lines`, a final carriage return is text.
            let lines = text.split('\n').count() as u64 - u64::from(text.is_empty() || text.ends_with('\n'));
            prop_assert_eq!(raw.size(), TextSize { lines, chars: text.chars().count() as u64 });
        }
    }
}
