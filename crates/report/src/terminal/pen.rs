use std::io::Write as _;
use std::ops::Range;

use super::MAX_DETAIL;
use crate::style::TextRole;
use crate::width;

/// A clean line with the roles of its parts.
#[derive(Debug)]
pub(super) struct StyledLine {
    pub(super) text: String,
    /// The role of everything else.
    pub(super) base: Option<TextRole>,
    /// In order, without overlaps.
    pub(super) parts: Vec<(Range<usize>, TextRole)>,
    /// Bytes before the words, whose columns later rows keep: indentation and the mark of a list item.
    pub(super) hang: usize,
    pub(super) wraps: bool,
}

impl StyledLine {
    pub(super) fn new(text: &str) -> Self {
        let mut line = StyledLine {
            text: text.to_owned(),
            base: None,
            parts: Vec::new(),
            hang: 0,
            wraps: true,
        };
        line.measure_hang();
        line
    }

    pub(super) fn measure_hang(&mut self) {
        let words = self.text.trim_start();
        let indent = self.text.len() - words.len();
        let digits = words.bytes().take_while(u8::is_ascii_digit).count();
        let is_any = |marks: &[&str]| marks.iter().any(|mark| words[digits..].starts_with(mark));
        let mark = match digits {
            0 if is_any(&["- ", "* ", "+ ", "> "]) => "- ".len(),
            0 if is_any(&["• "]) => "• ".len(),
            1..=4 if is_any(&[". ", ") "]) => digits + ". ".len(),
            _ => 0,
        };
        self.hang = indent + mark;
    }

    pub(super) fn push(&mut self, role: TextRole, words: &str) {
        let start = self.text.len();
        self.text.push_str(words);
        if !words.is_empty() {
            self.parts.push((start..self.text.len(), role));
        }
    }

    /// Removes `**` at `start`; `first` is the first part after it.
    pub(super) fn remove_mark(&mut self, start: usize, first: usize) {
        self.text.drain(start..start + 2);
        for (range, _) in &mut self.parts[first..] {
            *range = range.start - 2..range.end - 2;
        }
    }
}

pub(super) struct LineWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Columns of a terminal; lines are not wrapped without it.
    pub(super) width: Option<usize>,
    pub(super) color: bool,
    pub(super) ellipsis: &'static str,
}

impl LineWriter<'_> {
    pub(super) fn text(&mut self, words: &str) -> &mut Self {
        self.out.extend_from_slice(words.as_bytes());
        self
    }

    pub(super) fn paint(&mut self, paint: TextRole, words: &str) -> &mut Self {
        self.start_style(paint).text(words).plain()
    }

    pub(super) fn mark(&mut self, mark: &str, paint: TextRole, words: &str) -> &mut Self {
        self.text(mark).text(" ").paint(paint, words)
    }

    pub(super) fn start_style(&mut self, paint: TextRole) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", paint.style().render());
        }
        self
    }

    pub(super) fn plain(&mut self) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", anstyle::Reset.render());
        }
        self
    }

    /// Text from outside, cleaned and on one line.
    pub(super) fn untrusted(&mut self, words: &str) -> &mut Self {
        self.untrusted_up_to(words, MAX_DETAIL)
    }

    pub(super) fn untrusted_up_to(&mut self, words: &str, max: usize) -> &mut Self {
        width::push_one_line(words, max, self.ellipsis, self.out);
        self
    }

    /// Like [`untrusted_up_to`](LineWriter::untrusted_up_to), wrapped at words after `column` columns.
    pub(super) fn untrusted_wrapped(
        &mut self,
        words: &str,
        max: usize,
        column: usize,
    ) -> &mut Self {
        let clean = width::one_line(words, max, self.ellipsis);
        self.wrapped(&StyledLine { hang: 0, ..StyledLine::new(&clean) }, column)
    }

    /// Writes a line after `column` columns, wrapped at words; later rows start there, too, plus the line's hang.
    pub(super) fn wrapped(&mut self, line: &StyledLine, column: usize) -> &mut Self {
        let Some(width) = self.width.filter(|_| line.wraps) else {
            self.row(line, 0..line.text.len());
            return self;
        };
        // Tabs stay tabs: their width depends on the column.
        let mut hang = " ".repeat(column);
        for c in line.text[..line.hang].chars() {
            match c {
                '\t' => hang.push('\t'),
                _ => hang.extend(std::iter::repeat_n(' ', width::char_width(c))),
            }
        }
        // Narrow columns are hard to read.
        if width::columns(&hang) > width / 2 {
            hang = " ".repeat(width / 2);
        }
        let room = width - width::columns(&hang);
        let rows = width::wrap(&line.text, width.saturating_sub(column), room);
        for (nth, row) in rows.into_iter().enumerate() {
            if nth > 0 {
                self.end();
                self.text(&hang);
            }
            self.row(line, row);
        }
        self
    }

    fn row(&mut self, line: &StyledLine, row: Range<usize>) {
        let restyle = |pen: &mut Self| {
            if let Some(base) = line.base {
                pen.start_style(base);
            }
        };
        restyle(self);
        let mut at = row.start;
        for (part, role) in &line.parts {
            let part = part.start.max(row.start)..part.end.min(row.end);
            if !part.is_empty() {
                self.text(&line.text[at..part.start]);
                self.paint(*role, &line.text[part.clone()]);
                restyle(self);
                at = part.end;
            }
        }
        self.text(&line.text[at..row.end]);
        if line.base.is_some() {
            self.plain();
        }
    }

    pub(super) fn end(&mut self) {
        self.out.push(b'\n');
    }
}
