//! The few kinds of events that are nearly all of a journal, as JSON, written without detours.
//!
//! Escaping texts is what a general serializer spends most of its time on in a flood of output: it
//! looks at one byte after the other. Here whole lanes are copied and only what needs an escape is
//! looked at. The bytes are the same as serde's, which a property holds this to.

use crate::core::event::{Event, Stream, Usage};
use crate::core::scan::{LANE, needs_escape};

/// Adds the event to `out` as an object, if it is of a frequent kind; says whether it was.
pub(super) fn write(out: &mut Vec<u8>, event: &Event<'_>) -> bool {
    match event {
        Event::Text { text, joined, subagent } => {
            string(out, br#"{"event":"text","text":"#, text);
            flag(out, b"joined", *joined);
            flag(out, b"subagent", *subagent);
        }
        Event::Thinking { text, joined, subagent } => {
            string(out, br#"{"event":"thinking","text":"#, text);
            flag(out, b"joined", *joined);
            flag(out, b"subagent", *subagent);
        }
        Event::ToolStarted { id, name, summary, subagent } => {
            string(out, br#"{"event":"tool_started","id":"#, id);
            string(out, br#","name":"#, name);
            string(out, br#","summary":"#, summary);
            flag(out, b"subagent", *subagent);
        }
        Event::ToolEnded { id, name, failed, denied, lines, chars, preview, subagent } => {
            string(out, br#"{"event":"tool_ended","id":"#, id);
            string(out, br#","name":"#, name);
            out.extend_from_slice(if *failed {
                br#","failed":true"#
            } else {
                br#","failed":false"#
            });
            flag(out, b"denied", *denied);
            number(out, br#","lines":"#, *lines);
            number(out, br#","chars":"#, *chars);
            string(out, br#","preview":"#, preview);
            flag(out, b"subagent", *subagent);
        }
        Event::Usage(Usage {
            cost_usd: None,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
        }) => {
            number(out, br#"{"event":"usage","input_tokens":"#, *input_tokens);
            number(out, br#","output_tokens":"#, *output_tokens);
            number(out, br#","cache_read_tokens":"#, *cache_read_tokens);
            number(out, br#","cache_write_tokens":"#, *cache_write_tokens);
        }
        Event::Output { stream, text, joined } => {
            let stream: &[u8] = match stream {
                Stream::Stdout => br#"{"event":"output","stream":"stdout","text":"#,
                Stream::Stderr => br#"{"event":"output","stream":"stderr","text":"#,
            };
            string(out, stream, text);
            flag(out, b"joined", *joined);
        }
        _ => return false,
    }
    out.push(b'}');
    true
}

/// A member that is left out where it is `false`.
fn flag(out: &mut Vec<u8>, name: &[u8], value: bool) {
    if value {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":true");
    }
}

fn number(out: &mut Vec<u8>, before: &[u8], value: u64) {
    out.extend_from_slice(before);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn string(out: &mut Vec<u8>, before: &[u8], text: &str) {
    out.reserve(before.len() + text.len() + 2 * LANE);
    out.extend_from_slice(before);
    out.push(b'"');
    let (lanes, rest) = text.as_bytes().as_chunks::<LANE>();
    for lane in lanes {
        escape(out, lane, LANE);
    }
    let mut lane = [b' '; LANE];
    lane[..rest.len()].copy_from_slice(rest);
    escape(out, &lane, rest.len());
    out.push(b'"');
}

/// Adds the first `length` bytes of a lane. It is always copied as a whole, which is one instruction,
/// and what is too much is taken off again.
#[inline]
fn escape(out: &mut Vec<u8>, lane: &[u8; LANE], length: usize) {
    let mut found = needs_escape(lane);
    let excess = LANE - length;
    if found == 0 {
        out.extend_from_slice(lane);
        out.truncate(out.len() - excess);
        return;
    }
    // So that a whole lane can be copied from wherever a piece begins.
    let mut padded = [0; 2 * LANE];
    padded[..LANE].copy_from_slice(lane);
    let mut from = 0;
    loop {
        let at = if found == 0 { length } else { found.trailing_zeros() as usize };
        let (piece, _) = padded[from..].as_chunks::<LANE>();
        if let Some(piece) = piece.first() {
            out.extend_from_slice(piece);
            out.truncate(out.len() - (LANE - (at - from)));
        }
        if found == 0 {
            return;
        }
        let byte = lane[at];
        match LETTERS.get(usize::from(byte)) {
            Some(0) => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[high], HEX[low]]);
            }
            Some(letter) => out.extend_from_slice(&[b'\\', *letter]),
            // A quote, a backslash.
            None => out.extend_from_slice(&[b'\\', byte]),
        }
        found &= found - 1;
        from = at + 1;
    }
}

/// What follows the backslash for a control character; 0 if only its number can.
const LETTERS: [u8; 0x20] = {
    let mut table = [0; 0x20];
    table[0x08] = b'b';
    table[b'\t' as usize] = b't';
    table[b'\n' as usize] = b'n';
    table[0x0C] = b'f';
    table[b'\r' as usize] = b'r';
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        proptest::string::string_regex("([a-z ]{0,20}|[\u{0}-\u{7f}]|[é日😀\"\\\\\n]){0,40}")
            .unwrap()
    }

    fn event() -> impl Strategy<Value = Event<'static>> {
        let flags = any::<(bool, bool, bool)>();
        (0..6, text(), text(), text(), flags, any::<(u64, u64)>()).prop_map(
            |(kind, one, two, three, (a, b, c), (n, m))| match kind {
                0 => Event::Text { text: one.into(), joined: a, subagent: b },
                1 => Event::Thinking { text: one.into(), joined: a, subagent: b },
                2 => Event::ToolStarted {
                    id: one.into(),
                    name: two.into(),
                    summary: three.into(),
                    subagent: a,
                },
                3 => Event::ToolEnded {
                    id: one.into(),
                    name: two.into(),
                    failed: a,
                    denied: b,
                    lines: n,
                    chars: m,
                    preview: three.into(),
                    subagent: c,
                },
                4 => Event::Usage(Usage {
                    cost_usd: None,
                    input_tokens: n,
                    output_tokens: m,
                    cache_read_tokens: n / 7,
                    cache_write_tokens: m / 7,
                }),
                _ => Event::Output {
                    stream: if a { Stream::Stdout } else { Stream::Stderr },
                    text: one.into(),
                    joined: b,
                },
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_serde_writes(event in event()) {
            let mut out = b"before".to_vec();
            prop_assert!(write(&mut out, &event));
            let expected = format!("before{}", serde_json::to_string(&event).unwrap());
            prop_assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn the_others_are_left_to_serde() {
        let mut out = Vec::new();
        assert!(!write(&mut out, &Event::Paused));
        let told = Usage { cost_usd: Some(0.5), ..Usage::default() };
        assert!(!write(&mut out, &Event::Usage(told)));
        assert!(out.is_empty());
    }
}
