//! Short forms of commands and paths, for messages.

use super::value::{Argument, UNKNOWN, UNKNOWN_NAME};

pub(super) fn subject(argv: &[Argument]) -> String {
    let mut out = String::new();
    for arg in argv {
        if out.len() > 200 {
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(arg.text.chars().take(200));
    }
    excerpt(&out)
}

pub(super) fn excerpt(text: &str) -> String {
    const MAX_SUBJECT_CHARS: usize = 80;
    let text = printable(text.trim());
    if text.chars().count() <= MAX_SUBJECT_CHARS {
        return text;
    }
    text.chars().take(MAX_SUBJECT_CHARS - 1).chain(['…']).collect()
}

fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

pub(super) fn printable(text: &str) -> String {
    text.chars()
        .take(400)
        .map(|c| match c {
            UNKNOWN | UNKNOWN_NAME => '…',
            c if is_invisible(c) => ' ',
            '`' => '\'',
            c => c,
        })
        .collect()
}
