//! A field for text of several lines.

use ralph_report::width::{char_width, display_width};

use crate::input::Key;

/// Larger texts are refused by every command anyway.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextField {
    text: String,
    /// A byte offset, always between characters.
    cursor: usize,
}

/// The visible rows of a field.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldRows {
    pub rows: Vec<String>,
    /// Row and column of the cursor among them.
    pub cursor: (usize, usize),
}

impl TextField {
    pub fn new(text: String) -> TextField {
        TextField { cursor: text.len(), text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Returns whether the field uses this key. `Enter`, `Esc` and `Tab` belong to the dialog.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            Key::Ctrl('j') | Key::AltEnter => self.insert("\n"),
            Key::Backspace => self.delete(self.previous()..self.cursor),
            Key::Delete | Key::Ctrl('d') => self.delete(self.cursor..self.next()),
            Key::Ctrl('w') => self.delete(self.word_start()..self.cursor),
            Key::Ctrl('u') => self.delete(self.line_start()..self.cursor),
            Key::Ctrl('k') => self.delete(self.cursor..self.line_end()),
            Key::Left | Key::Ctrl('b') => self.cursor = self.previous(),
            Key::Right | Key::Ctrl('f') => self.cursor = self.next(),
            Key::WordLeft | Key::Alt('b') => self.cursor = self.word_start(),
            Key::WordRight | Key::Alt('f') => self.cursor = self.word_end(),
            Key::Home | Key::Ctrl('a') => self.cursor = self.line_start(),
            Key::End => self.cursor = self.line_end(),
            Key::Up => self.move_line(true),
            Key::Down => self.move_line(false),
            _ => return false,
        }
        true
    }

    /// Inserts text, without control characters and within the limit.
    pub fn insert(&mut self, text: &str) {
        let text = text.replace('\t', "    ");
        let clean = ralph_events::control_chars::strip_control_chars(&text);
        let room = MAX_BYTES.saturating_sub(self.text.len());
        let piece = &clean[..clean.floor_char_boundary(room)];
        self.text.insert_str(self.cursor, piece);
        self.cursor += piece.len();
    }

    fn delete(&mut self, range: std::ops::Range<usize>) {
        self.cursor = range.start;
        self.text.drain(range);
    }

    fn previous(&self) -> usize {
        self.text[..self.cursor].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn next(&self) -> usize {
        let rest = &self.text[self.cursor..];
        self.cursor + rest.chars().next().map_or(0, char::len_utf8)
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_start(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
    }

    fn word_end(&self) -> usize {
        let rest = &self.text[self.cursor..];
        let blank = rest.len() - rest.trim_start().len();
        let word = rest[blank..].find(char::is_whitespace).unwrap_or(rest.len() - blank);
        self.cursor + blank + word
    }

    fn move_line(&mut self, up: bool) {
        let start = self.line_start();
        let column = display_width(&self.text[start..self.cursor]);
        let target = match up {
            true if start == 0 => return,
            true => self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1),
            false => match self.line_end() {
                end if end == self.text.len() => return,
                end => end + 1,
            },
        };
        let line = self.text[target..].split('\n').next().unwrap_or_default();
        self.cursor = target + ralph_report::width::prefix_within(line, column).len();
    }

    /// The rows around the cursor, at most `height` of them, each at most `width` columns.
    pub fn rows(&self, width: usize, height: usize) -> FieldRows {
        let (width, height) = (width.max(2), height.max(1));
        // A megabyte is not wrapped at each key: the rows of nearby lines are enough.
        let from = ralph_events::text::suffix(&self.text[..self.cursor], width * height * 8).len();
        let from = self.cursor - from;
        let to = self.cursor
            + ralph_events::text::prefix(&self.text[self.cursor..], width * height * 8).len();
        let (mut rows, mut cursor) = (vec![String::new()], (0, 0));
        let mut used = 0;
        for (at, c) in self.text[from..to].char_indices() {
            if from + at == self.cursor {
                cursor = (rows.len() - 1, used);
            }
            if c == '\n' {
                rows.push(String::new());
                used = 0;
                continue;
            }
            if used + char_width(c) > width {
                used = break_row(&mut rows);
                if from + at == self.cursor {
                    cursor = (rows.len() - 1, used);
                }
            }
            used += char_width(c);
            if let Some(row) = rows.last_mut() {
                row.push(c);
            }
        }
        if self.cursor == to {
            if used >= width {
                used = break_row(&mut rows);
            }
            cursor = (rows.len() - 1, used);
        }
        let first = (cursor.0 + 1).saturating_sub(height);
        let rows = rows.into_iter().skip(first).take(height).collect();
        FieldRows { rows, cursor: (cursor.0 - first, cursor.1) }
    }
}

/// Starts a row with the last word of the row before. Returns its columns.
fn break_row(rows: &mut Vec<String>) -> usize {
    let Some(row) = rows.last_mut() else { return 0 };
    let word = match row.rfind(' ') {
        Some(space) if space + 1 < row.len() => row.split_off(space + 1),
        _ => String::new(),
    };
    let used = display_width(&word);
    rows.push(word);
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[Key]) -> TextField {
        let mut field = TextField::default();
        for key in keys {
            assert!(field.press(*key), "{key:?}");
        }
        field
    }

    fn chars(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).collect()
    }

    #[test]
    fn keys_edit_text_at_cursor() {
        let rows: &[(&str, &[Key], &str)] = &[
            ("ab", &[Key::Left, Key::Char('x')], "axb"),
            ("ab", &[Key::Ctrl('j'), Key::Char('c')], "ab\nc"),
            ("日本", &[Key::Backspace], "日"),
            ("日本", &[Key::Home, Key::Delete], "本"),
            ("one two", &[Key::Ctrl('w')], "one "),
            ("one two", &[Key::WordLeft, Key::WordLeft, Key::Char('x')], "xone two"),
            ("one two", &[Key::Home, Key::WordRight, Key::Char('x')], "onex two"),
            ("one", &[Key::Ctrl('u'), Key::Backspace, Key::Char('x')], "x"),
            ("one", &[Key::Home, Key::Right, Key::Ctrl('k')], "o"),
            ("ab", &[Key::Ctrl('j'), Key::Char('c'), Key::Up, Key::Char('x')], "axb\nc"),
            ("ab", &[Key::Down, Key::Up, Key::Char('x')], "abx"),
        ];
        for (start, keys, expected) in rows {
            let mut field = typed(&chars(start));
            for key in *keys {
                field.press(*key);
            }
            assert_eq!(field.text(), *expected, "{start} {keys:?}");
        }
        assert!(!TextField::default().press(Key::Enter));
        assert!(!TextField::default().press(Key::Esc));
    }

    #[test]
    fn pasted_text_is_clean_and_bounded() {
        let mut field = TextField::default();
        field.insert("a\x1b[31mb\u{7}\tc\n");
        assert_eq!(field.text(), "ab    c\n");
        field.insert(&"ä".repeat(MAX_BYTES));
        assert!(field.text().len() <= MAX_BYTES);
        assert!(field.text().len() > MAX_BYTES - 8);
        field.insert("more");
        assert!(field.text().len() <= MAX_BYTES);
    }

    #[test]
    fn rows_wrap_at_words_and_follow_cursor() {
        let field = TextField::new("say what happened, then".to_owned());
        let shown = field.rows(12, 5);
        assert_eq!(shown.rows, ["say what ", "happened, ", "then"]);
        assert_eq!(shown.cursor, (2, 4));
        let shown = field.rows(12, 2);
        assert_eq!(shown.rows, ["happened, ", "then"]);
        let wide = TextField::new("日本語".to_owned()).rows(4, 5);
        assert_eq!(wide.rows, ["日本", "語"]);
        assert_eq!(wide.cursor, (1, 2));
        assert_eq!(TextField::default().rows(4, 5).cursor, (0, 0));
        let full = TextField::new("abcd".to_owned()).rows(4, 2);
        assert_eq!((full.rows, full.cursor), (vec!["abcd".to_owned(), String::new()], (1, 0)));
    }
}
