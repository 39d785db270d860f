//! JSON for the few kinds of events that make up nearly all of a journal.
//!
//! Writing their members directly is faster than the derived serializer. The bytes are the same, which a property
//! test checks.

use crate::core::event::{Event, Stream, Usage};

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
    out.extend_from_slice(before);
    // Neither a string nor a write to a vector can fail.
    let _ = serde_json::to_writer(out, text);
}

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
