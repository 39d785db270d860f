//! Text width on a terminal.

use std::ops::Range;

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
pub fn char_width(c: char) -> usize {
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

/// The width of each column of a table.
pub fn column_widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    let width = |column: usize| rows.iter().map(|row| display_width(&row[column])).max();
    std::array::from_fn(|column| width(column).unwrap_or(0))
}

/// Adds a line of a table, at most `room` columns wide. Each cell has its width, and whether it is aligned to the right.
pub fn push_row<'c>(
    cells: impl IntoIterator<Item = (&'c String, usize, bool)>,
    room: Option<usize>,
    out: &mut String,
) {
    let pad = |(cell, width, right): (&String, usize, bool)| {
        let space = " ".repeat(width - display_width(cell));
        if right { space + cell } else { cell.clone() + &space }
    };
    let cells: Vec<String> = cells.into_iter().map(pad).collect();
    let line = cells.join("  ");
    let shown = room.map_or(&*line, |room| prefix_within(&line, room));
    out.push_str(shown.trim_end());
    out.push('\n');
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

/// Splits a line into rows of `first` and then `rest` columns, between words. A wider word stays whole.
pub fn wrap(text: &str, first: usize, rest: usize) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let (mut start, mut room) = (0, first);
    let mut used = 0;
    // The last place to break: end of the row, start of the next one, and the columns up to there.
    let mut gap = None;
    let (mut before, mut has_word) = (' ', false);
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        if is_space(c) {
            used += wrap_width(c);
            gap = match gap {
                Some((end, _, _)) if is_space(before) => Some((end, next, used)),
                _ => has_word.then_some((at, next, used)),
            };
        } else {
            has_word = true;
            if can_break_between(before, c) {
                gap = Some((at, at, used));
            }
            used += wrap_width(c);
            if used > room
                && let Some((end, begin, columns)) = gap.take()
            {
                rows.push(start..end);
                (start, room) = (begin, rest);
                used -= columns;
            }
        }
        before = c;
    }
    rows.push(start..text.len());
    rows
}

/// The columns of a text that starts anywhere on a row.
pub fn columns(text: &str) -> usize {
    text.chars().map(wrap_width).sum()
}

/// A tab takes at most eight columns.
fn wrap_width(c: char) -> usize {
    if c == '\t' { 8 } else { char_width(c) }
}

/// Other spaces do not allow a break.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Chinese and Japanese have no spaces; punctuation stays with the character before it.
fn can_break_between(before: char, after: char) -> bool {
    char_width(before) == 2 && char_width(after) == 2 && after.is_alphanumeric()
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

    #[test]
    fn lines_are_wrapped_between_words() {
        let rows = |text, first, rest| -> Vec<&str> {
            wrap(text, first, rest).into_iter().map(|row| &text[row]).collect()
        };
        assert_eq!(rows("one two three", 7, 7), ["one two", "three"]);
        assert_eq!(rows("one two three", 6, 20), ["one", "two three"]);
        assert_eq!(rows("  one   two", 5, 5), ["  one", "two"]);
        assert_eq!(rows("        word", 4, 4), ["        word"], "no row without a word");
        assert_eq!(
            rows("a https://example.com/long b", 6, 6),
            ["a", "https://example.com/long", "b"]
        );
        assert_eq!(rows("a\tb c", 9, 9), ["a", "b c"]);
        assert_eq!(rows("ab\u{a0}cd", 3, 3), ["ab\u{a0}cd"]);
        assert_eq!(rows("日本語です。", 5, 5), ["日本", "語で", "す。"]);
        assert_eq!(rows("🎉🎉 ok", 5, 5), ["🎉🎉", "ok"]);
        assert_eq!(rows("ab ", 2, 2), ["ab "], "blanks at the end start no row");
        assert_eq!(rows("", 3, 3), [""]);
    }

    proptest::proptest! {
        #[test]
        fn wrap_drops_only_spaces_and_fits(text in "([a-z日]| |\t){0,40}", room in 2usize..12) {
            let rows: Vec<&str> = wrap(&text, room, room).into_iter().map(|row| &text[row]).collect();
            let words = |text: &str| text.replace([' ', '\t'], "");
            proptest::prop_assert_eq!(words(&rows.concat()), words(&text));
            for row in rows.iter().map(|row| row.trim()) {
                let is_one_word = !row.contains([' ', '\t']) && !row.contains("日日");
                proptest::prop_assert!(display_width(row) <= room || is_one_word, "{row:?}");
            }
        }
    }
}
