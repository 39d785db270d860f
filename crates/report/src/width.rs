//! Text width on a terminal.

use unicode_width::UnicodeWidthChar;

use ralph_events::control_chars::ControlCharFilter;

/// Appends at most `max` characters of `text`, clean and on one line, and `mark` if there were more.
pub fn push_one_line(text: &str, max: usize, mark: &str, out: &mut Vec<u8>) {
    // Bounds the work: control sequences are longer than what remains.
    let window = ralph_events::text::prefix(text, max.saturating_mul(4).saturating_add(64));
    let mut clean = String::new();
    ControlCharFilter::default().push(window, &mut clean);
    let mut cut = window.len() < text.len();
    let mut written = 0;
    let mut space = false;
    for c in clean.chars() {
        if c.is_whitespace() {
            space = written > 0;
            continue;
        }
        if written + usize::from(space) >= max {
            cut = true;
            break;
        }
        if std::mem::take(&mut space) {
            out.push(b' ');
            written += 1;
        }
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        written += 1;
    }
    if cut {
        out.extend_from_slice(mark.as_bytes());
    }
}

/// The text as by [`push_one_line`].
pub fn one_line(text: &str, max: usize, mark: &str) -> String {
    let mut out = Vec::new();
    push_one_line(text, max, mark, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Columns of a character, never fewer than a terminal uses.
fn char_width(c: char) -> usize {
    match c {
        // Some terminals widen the previous character to two columns.
        '\u{fe0f}' => 1,
        // A tab becomes one space.
        _ => c.width().unwrap_or(1),
    }
}

/// The columns that a text takes on one line.
pub fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// The beginning of `text` that fits into `room` columns.
pub fn prefix_within(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += char_width(c);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// The end of `text` that fits into `room` columns.
pub fn suffix_within(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += char_width(c);
        if used > room {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, max: usize) -> String {
        one_line(text, max, "...")
    }

    #[test]
    fn line_is_collapsed_and_marks_truncation() {
        assert_eq!(line("a\n\n  b\tc ", 10), "a b c");
        assert_eq!(line("abcdef", 3), "abc...");
        assert_eq!(line("ab cdef", 3), "ab...");
        assert_eq!(line("abc", 3), "abc");
        assert_eq!(line("\x1b[31mabc\x1b[0m", 3), "abc");
        assert_eq!(line(&"x".repeat(1000), 2), "xx...");
    }

    #[test]
    fn column_cut_never_exceeds_width() {
        assert_eq!(display_width("日本"), 4);
        assert_eq!(prefix_within("日本", 3), "日");
        assert_eq!(suffix_within("日本", 3), "本");
        assert_eq!(prefix_within("abc", 9), "abc");
        assert_eq!(suffix_within("abc", 0), "");
        assert_eq!(display_width("⏸️"), 2);
    }
}
