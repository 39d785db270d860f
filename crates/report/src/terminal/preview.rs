//! Output and notes below a headline.

use super::words::plural;
use super::{RETAINED_CAPACITY, TerminalReporter};
use crate::output::OutputTarget;
use crate::style::TextRole;
use crate::width;
use ralph_events::control_chars::ControlCharFilter;
use ralph_events::event::Stamp;
use ralph_events::text;

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
        self.stamp(at, OutputTarget::Out);
        let mark = self.marks.preview;
        let mut pen = self.pen(OutputTarget::Out);
        pen.text(indent);
        if first {
            pen.text("  ").paint(TextRole::Faint, mark).text("  ");
        } else if !line.is_empty() {
            pen.text("     ");
        }
        if !line.is_empty() {
            pen.paint(TextRole::Faint, line);
        }
        pen.end();
    }
}
