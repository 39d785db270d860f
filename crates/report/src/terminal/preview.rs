//! Output and notes below a headline.

use super::pen::StyledLine;
use super::words::plural;
use super::{RETAINED_CAPACITY, TerminalReporter};
use crate::output::OutputTarget;
use crate::style::TextRole;
use crate::width;
use ralph_events::control_chars::ControlCharFilter;
use ralph_events::event::{FileEdit, Stamp};
use ralph_events::text;

const PREVIEW_INDENT: &str = "     ";
const MAX_DIFF_LINES: usize = 10;
/// Characters of a changed line.
const MAX_DIFF_COLUMNS: usize = 200;
const MAX_LAST_LINE: usize = 300;

impl TerminalReporter {
    /// Lines of output below a headline. `total` is the size of the whole output.
    pub(super) fn preview(&mut self, at: Stamp, indent: &str, shown: &str, total: (u64, u64)) {
        if self.style.max_output_lines == 0 || self.style.max_output_chars == 0 {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let clean = ControlCharFilter::default().filter(shown, &mut scratch).trim_end();
        let mut left = self.style.max_output_chars;
        let (mut lines, mut chars) = (0, 0);
        let mut cut = None;
        for line in clean.split('\n') {
            if lines == self.style.max_output_lines {
                let rest = total.0.saturating_sub(lines as u64).max(1);
                cut = Some((rest, "line"));
                break;
            }
            let head = text::prefix(line, left);
            let count = head.chars().count();
            if !clean.is_empty() {
                self.preview_line(at, indent, lines == 0, head.trim_end());
            }
            lines += 1;
            chars += count + 1;
            left -= count;
            if head.len() < line.len() || left == 0 {
                let shown = (chars - 1) as u64;
                let rest = total.1.max(clean.chars().count() as u64) - shown;
                cut = (rest > 0).then_some((rest, "character"));
                break;
            }
        }
        if let Some((count, unit)) = cut {
            let words = format!("{} {} more {unit}{}", self.marks.more, count, plural(count));
            self.preview_line(at, indent, false, &words);
        }
        scratch.clear();
        scratch.shrink_to(RETAINED_CAPACITY);
        self.scratch = scratch;
    }

    /// As [`preview`](Self::preview), plus the last lines if something was cut: most tools print failures last.
    pub(super) fn preview_both_ends(&mut self, at: Stamp, text: &str) {
        const LAST_LINES: usize = 3;
        let size = (text.lines().count() as u64, text.chars().count() as u64);
        self.preview(at, "", text, size);
        let shown = self.style.max_output_lines;
        if shown == 0 || text.lines().count() <= shown {
            return;
        }
        let last: Vec<&str> = text.lines().skip(shown).collect();
        let mut scratch = String::new();
        for line in &last[last.len().saturating_sub(LAST_LINES)..] {
            let clean = ControlCharFilter::default().filter(line, &mut scratch);
            let line = text::suffix(clean, MAX_LAST_LINE).to_owned();
            self.preview_line(at, "", false, &line);
        }
    }

    pub(super) fn note(&mut self, at: Stamp, label: &str, words: &str, max: usize) {
        let words = width::one_line(words, max, self.marks.more);
        self.preview_line(at, "", true, &format!("{label}{words}"));
    }

    pub(super) fn preview_line(&mut self, at: Stamp, indent: &str, first: bool, line: &str) {
        let line = StyledLine { base: Some(TextRole::Faint), ..StyledLine::new(line) };
        self.preview_row(at, indent, first, &line);
    }

    fn preview_row(&mut self, at: Stamp, indent: &str, first: bool, line: &StyledLine) {
        self.stamp(at, OutputTarget::Out);
        let column = self.stamp_width() + indent.len() + PREVIEW_INDENT.len();
        let mark = self.marks.preview;
        let mut pen = self.pen(OutputTarget::Out);
        pen.text(indent);
        if first {
            pen.text("  ").paint(TextRole::Faint, mark).text("  ");
        } else if !line.text.is_empty() {
            pen.text(PREVIEW_INDENT);
        }
        if !line.text.is_empty() {
            pen.wrapped(line, column);
        }
        pen.end();
    }

    /// The changed lines below a call; removed ones first. Returns whether any was shown.
    pub(super) fn diff(&mut self, at: Stamp, indent: &str, edit: &FileEdit) -> bool {
        let limit = self.style.max_output_lines.min(MAX_DIFF_LINES) as u64;
        // A side gets at least half of the room.
        let share = |own: u64, other: u64| own.min((limit / 2).max(limit.saturating_sub(other)));
        let sides = [
            ("-", TextRole::Bad, &edit.old, edit.removed, share(edit.removed, edit.added)),
            ("+", TextRole::Good, &edit.new, edit.added, share(edit.added, edit.removed)),
        ];
        let mut first = true;
        let mut scratch = String::new();
        for (sign, role, lines, total, shown) in sides {
            let mut count = 0;
            for line in lines.lines().take(usize::try_from(shown).unwrap_or(usize::MAX)) {
                let clean = ControlCharFilter::default().filter(line, &mut scratch).trim_end();
                let head = text::prefix(clean, MAX_DIFF_COLUMNS);
                let more = if head.len() < clean.len() { self.marks.more } else { "" };
                let mut line = StyledLine::new(&[sign, head, more].concat());
                line.base = Some(role);
                line.hang = sign.len() + head.len() - head.trim_start().len();
                self.preview_row(at, indent, std::mem::take(&mut first), &line);
                count += 1;
            }
            if let rest @ 1.. = total.saturating_sub(count)
                && limit > 0
            {
                let words = format!("{} {rest} more line{}", self.marks.more, plural(rest));
                self.preview_line(at, indent, std::mem::take(&mut first), &words);
            }
        }
        !first
    }
}
