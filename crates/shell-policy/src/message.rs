//! Commands and paths as a person wants to be told of them: short, on one line.

use super::value::{Arg, BELOW, HOLE};

/// The command as a person would want to be told of it.
pub(super) fn subject(argv: &[Arg]) -> String {
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
    const LENGTH: usize = 80;
    let text = visible(text.trim());
    if text.chars().count() <= LENGTH {
        return text;
    }
    text.chars().take(LENGTH - 1).chain(['…']).collect()
}

/// Whether a character changes how the text around it is shown: a control character, a line separator, a byte
/// order mark or a direction mark.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Without control characters, and with something to be seen for what is not known.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .take(400)
        .map(|c| match c {
            HOLE | BELOW => '…',
            c if is_invisible(c) => ' ',
            '`' => '\'',
            c => c,
        })
        .collect()
}
