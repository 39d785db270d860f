//! Commands and paths as a person wants to be told of them: short, on one line.

use crate::core::cleaner::is_hidden;

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

/// Without control characters, and with something to be seen for what is not known.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .take(400)
        .map(|c| match c {
            HOLE | BELOW => '…',
            c if is_hidden(c) => ' ',
            '`' => '\'',
            c => c,
        })
        .collect()
}
