//! Reads lines without parsing all of them.
//!
//! A journal is mostly text of agents. Every line starts in the same way, so its stamp and kind are known from its
//! first bytes. The rest is an event by itself, which serde reads faster than a flattened entry.

use std::sync::LazyLock;

use memchr::{memchr, memmem};

use crate::event::{Entry, Event, Stamp, Stream};

/// The first bytes of a line. Inside a text they would be escaped.
const TIME_PREFIX: &[u8] = br#"{"time":""#;

const EVENT_PREFIX: &[u8] = br#","event":""#;

static SECOND_ENTRY: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(TIME_PREFIX));

/// The beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHeader<'l> {
    time: &'l str,
    iteration: u32,
    attempt: u32,
    pub(super) event: &'l str,
    /// The position of the comma before the event.
    join: usize,
}

impl<'l> EntryHeader<'l> {
    /// Returns `None` for a line that starts in another way.
    pub(super) fn parse(line: &'l [u8]) -> Option<EntryHeader<'l>> {
        // Longer than any beginning: two numbers and the name of an event.
        let start = &line[..line.len().min(160)];
        let rest = start.strip_prefix(TIME_PREFIX)?;
        let (time, rest) = rest.split_at_checked(memchr(b'"', rest)?)?;
        let rest = rest.strip_prefix(br#"","iteration":"#)?;
        let (iteration, rest) = number(rest)?;
        let rest = rest.strip_prefix(br#","attempt":"#)?;
        let (attempt, rest) = number(rest)?;
        let join = start.len() - rest.len();
        let rest = rest.strip_prefix(EVENT_PREFIX)?;
        let event = rest.get(..memchr(b'"', rest)?)?;
        let (time, event) = (std::str::from_utf8(time).ok()?, std::str::from_utf8(event).ok()?);
        Some(EntryHeader { time, iteration, attempt, event, join })
    }

    pub(super) fn stamp(&self) -> Option<Stamp> {
        let EntryHeader { iteration, attempt, .. } = *self;
        let time: jiff::Timestamp = self.time.parse().ok()?;
        Some(Stamp { time_ms: time.as_millisecond(), iteration, attempt })
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = bytes.split_at_checked(end)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Parses a line. Overwrites one byte of it.
pub(super) fn entry(line: &mut [u8]) -> Option<Entry<'static>> {
    if let Some((at, join)) =
        EntryHeader::parse(line).and_then(|head| Some((head.stamp()?, head.join)))
    {
        let (_, event) = line.split_at_mut(join);
        // With a brace for the comma, the rest is an object.
        let comma = event.first_mut().map(|byte| std::mem::replace(byte, b'{'));
        if let Ok(event) = serde_json::from_slice::<Event<'static>>(event) {
            return Some(Entry { at, event });
        }
        if let (Some(byte), Some(comma)) = (event.first_mut(), comma) {
            *byte = comma;
        }
    }
    serde_json::from_slice(line).ok()
}

static STDERR: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(br#""stream":"stderr""#));

/// Returns the entry of a line that is nothing but text, without that text. Standard error is kept: it explains
/// failures.
pub(super) fn entry_without_text(line: &[u8]) -> Option<Entry<'static>> {
    let head = EntryHeader::parse(line)?;
    let text = "".into();
    let event = match head.event {
        "text" => Event::Text { text, joined: false, subagent: false },
        "thinking" => Event::Thinking { text, joined: false, subagent: false },
        "notice" => Event::Notice { text },
        "note" => Event::Note { message: text, important: false },
        "prompt" => Event::Prompt { bytes: 0, preview: text, feedback: false },
        "output" if STDERR.find(line).is_none() => {
            Event::Output { stream: Stream::Stdout, text, joined: false }
        }
        _ => return None,
    };
    looks_complete(line).then_some(())?;
    Some(Entry { at: head.stamp()?, event })
}

/// Checks a line that is not parsed for damage.
pub(super) fn looks_complete(line: &[u8]) -> bool {
    let Some(object) = line.strip_suffix(b"}\n") else { return false };
    // A file system returns zeros for lost blocks. A line that contains the start of another was torn.
    let inner = object.get(1..).unwrap_or_default();
    memchr(0, object).is_none()
        && SECOND_ENTRY.find(inner).is_none()
        && std::str::from_utf8(object).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skimmed_journal_line_agrees_with_serde() {
        let lines: [&str; 9] = [
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1,"event":"text","text":"a \"b\" é"}"#,
            // Another order, spaces, a later version's field, and what is no entry.
            r#"{"event":"paused","time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1}"#,
            r#"{"time": "2026-11-15T20:27:52.123Z", "iteration": 3, "attempt": 1, "event": "paused"}"#,
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1,"event":"paused","more":[1]}"#,
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1,"event":"of a later version"}"#,
            r#"{"time":"never","iteration":3,"attempt":1,"event":"paused"}"#,
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":99999999999,"attempt":1,"event":"paused"}"#,
            r#"{"time":"2026-11-15T20:27:52.123Z","iteration":3,"attempt":1,"event":"pau"#,
            "",
        ];
        for line in lines {
            let whole: Option<Entry<'static>> = serde_json::from_str(line).ok();
            for end in 0..=line.len() {
                let mut torn = line.as_bytes()[..end].to_vec();
                let expected = if end == line.len() { whole.clone() } else { None };
                assert_eq!(entry(&mut torn), expected, "{:?}", &line.as_bytes()[..end]);
            }
        }
    }

    #[test]
    fn damaged_journal_line_does_not_look_whole() {
        assert!(looks_complete(b"{\"text\":\"a\xc3\xa9\"}\n"));
        for damaged in [
            &b"{\"text\":\"a\"}"[..],
            b"{\"te\n",
            b"{\"te\0xt\":1}\n",
            b"{\"\xff\"}\n",
            b"",
            b"{\"text\":\"a{\"time\":\"}\n",
        ] {
            assert!(!looks_complete(damaged), "{damaged:?}");
        }
    }
}
