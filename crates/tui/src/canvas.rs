//! Text on the screen: roles instead of colours, cut to width, aligned at either side.

use ralph_report::width::{display_width, prefix_within};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::{Modifier, Style};

use crate::theme::{Role, Theme};

/// A text with its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) role: Role,
}

pub(crate) fn span(text: impl Into<String>, role: Role) -> Span {
    Span { text: text.into(), role }
}

/// One line: text from the left, text at the right end, and what is between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) left: Vec<Span>,
    pub(crate) right: Vec<Span>,
    /// A hairline fills the gap.
    pub(crate) is_ruled: bool,
    /// `Some(true)` for an added line, `Some(false)` for a removed one.
    pub(crate) diff: Option<bool>,
}

impl Row {
    pub(crate) fn new(left: Vec<Span>) -> Row {
        Row { left, ..Row::default() }
    }

    pub(crate) fn of(text: impl Into<String>, role: Role) -> Row {
        Row::new(vec![span(text, role)])
    }

    pub(crate) fn blank() -> Row {
        Row::default()
    }

    /// Whether its text contains `wanted`, which is in lower case.
    pub(crate) fn matches(&self, wanted: &str) -> bool {
        let text: String = self.left.iter().map(|span| span.text.as_str()).collect();
        text.to_lowercase().contains(wanted)
    }

    pub(crate) fn with_right(self, right: Vec<Span>) -> Row {
        Row { right, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct Canvas<'b> {
    pub(crate) buffer: &'b mut Buffer,
    pub(crate) theme: Theme,
    pub(crate) cursor: Option<Position>,
}

impl Canvas<'_> {
    /// Writes at most `room` columns, with an ellipsis if there is more. Returns the columns used.
    pub(crate) fn put(&mut self, x: u16, y: u16, room: u16, text: &str, role: Role) -> u16 {
        self.put_styled(x, y, room, text, self.theme.style(role))
    }

    pub(crate) fn put_styled(
        &mut self,
        x: u16,
        y: u16,
        room: u16,
        text: &str,
        style: Style,
    ) -> u16 {
        let area = self.buffer.area;
        if !area.contains(Position { x, y }) {
            return 0;
        }
        let room = usize::from(room.min(area.right() - x));
        let text = cut(&self.theme.text(text), room, self.theme.ellipsis());
        self.buffer.set_stringn(x, y, &text, room, style);
        columns(&text)
    }

    /// Writes the text so that it ends before `right`.
    pub(crate) fn put_right(&mut self, right: u16, y: u16, text: &str, role: Role) {
        let width = columns(&self.theme.text(text));
        let x = right.saturating_sub(width);
        self.put(x, y, width, text, role);
    }

    pub(crate) fn put_spans(&mut self, x: u16, y: u16, room: u16, spans: &[Span]) -> u16 {
        let mut used = 0;
        for (at, part) in spans.iter().enumerate() {
            let rest = spans_width(&spans[at + 1..]);
            let left = room - used;
            // The ellipsis stands where the line is cut, not where a later part would start.
            let is_cut = columns(&part.text).saturating_add(rest) > left && rest > 0;
            let text = if is_cut && columns(&part.text) >= left {
                cut(&format!("{} ", part.text), usize::from(left), self.theme.ellipsis())
            } else {
                part.text.clone()
            };
            used += self.put(x + used, y, left, &text, part.role);
            if used >= room {
                break;
            }
        }
        used
    }

    /// Draws a line from `area.x` to its end. The left side gives way to the right one.
    pub(crate) fn row(&mut self, area: Rect, row: &Row) {
        if let Some(style) = row.diff.and_then(|is_added| self.theme.diff_background(is_added)) {
            self.buffer.set_style(area, style);
        }
        let right = spans_width(&row.right);
        let right = right.min(area.width);
        let gap = if right > 0 { right + 1 } else { 0 };
        let used = self.put_spans(area.x, area.y, area.width.saturating_sub(gap), &row.left);
        self.put_spans(area.right() - right, area.y, right, &row.right);
        if row.is_ruled && used + 2 + gap <= area.width {
            let width = area.width - used - 1 - gap;
            self.rule(area.x + used + 1, area.y, width);
        }
    }

    pub(crate) fn rule(&mut self, x: u16, y: u16, width: u16) {
        let line = "─".repeat(usize::from(width));
        self.put(x, y, width, &line, Role::Line);
    }

    /// A rule with a title at its left end and a remark at its right end.
    pub(crate) fn titled_rule(&mut self, area: Rect, title: &[Span], remark: &[Span]) {
        self.rule(area.x, area.y, area.width);
        if !title.is_empty() {
            let room = area.width.saturating_sub(4);
            self.put(area.x + 1, area.y, 1, " ", Role::Line);
            let used = self.put_spans(area.x + 2, area.y, room, title);
            self.put(area.x + 2 + used, area.y, 1, " ", Role::Line);
        }
        let wide = spans_width(remark);
        if wide > 0 && wide.saturating_add(spans_width(title)).saturating_add(7) <= area.width {
            let x = area.right() - wide - 2;
            self.put(x - 1, area.y, 1, " ", Role::Line);
            self.put_spans(x, area.y, wide, remark);
            self.put(x + wide, area.y, 1, " ", Role::Line);
        }
    }

    pub(crate) fn vertical_rule(&mut self, x: u16, top: u16, bottom: u16) {
        for y in top..bottom {
            self.put(x, y, 1, "│", Role::Line);
        }
    }

    /// Marks a selected line. Without a background for it, the whole line is reversed in one style.
    pub(crate) fn select(&mut self, area: Rect) {
        match self.theme.selected_background() {
            Some(style) => self.buffer.set_style(area, style),
            None => {
                for position in area.positions() {
                    if let Some(cell) = self.buffer.cell_mut(position) {
                        cell.set_style(Style::reset());
                        cell.modifier = Modifier::REVERSED;
                    }
                }
            }
        }
    }

    pub(crate) fn clear(&mut self, area: Rect) {
        for position in area.intersection(self.buffer.area).positions() {
            if let Some(cell) = self.buffer.cell_mut(position) {
                cell.reset();
            }
        }
    }

    /// A cleared box with a border. Returns its inside.
    pub(crate) fn dialog(&mut self, area: Rect, title: &str, remark: &str) -> Rect {
        self.clear(area);
        let Rect { x, y, width, height } = area;
        let line = "─".repeat(usize::from(width.saturating_sub(2)));
        self.put(x, y, width, &format!("┌{line}┐"), Role::Edge);
        self.put(x, area.bottom() - 1, width, &format!("└{line}┘"), Role::Edge);
        for y in y + 1..area.bottom() - 1 {
            self.put(x, y, 1, "│", Role::Edge);
            self.put(area.right() - 1, y, 1, "│", Role::Edge);
        }
        self.put(x + 2, y, width.saturating_sub(4), &format!(" {title} "), Role::Strong);
        if !remark.is_empty() {
            self.put_right(area.right() - 3, y, &format!(" {remark} "), Role::Muted);
        }
        Rect {
            x: x + 1,
            y: y + 1,
            width: width.saturating_sub(2),
            height: height.saturating_sub(2),
        }
    }
}

/// The text, cut to `room` columns with an ellipsis.
pub(crate) fn cut(text: &str, room: usize, ellipsis: &str) -> String {
    if display_width(text) <= room {
        return text.to_owned();
    }
    let kept = prefix_within(text, room.saturating_sub(display_width(ellipsis)));
    let cut = format!("{kept}{ellipsis}");
    prefix_within(&cut, room).to_owned()
}

/// A path cut from the left at a slash.
pub(crate) fn cut_path(path: &str, room: usize, ellipsis: &str) -> String {
    if display_width(path) <= room {
        return path.to_owned();
    }
    let end =
        ralph_report::width::suffix_within(path, room.saturating_sub(display_width(ellipsis)));
    let end = end.find('/').map_or(end, |slash| &end[slash..]);
    format!("{ellipsis}{end}")
}

/// The columns of spans, whose text may be endless.
pub(crate) fn spans_width(spans: &[Span]) -> u16 {
    spans.iter().fold(0, |sum, span| sum.saturating_add(columns(&span.text)))
}

pub(crate) fn columns(text: &str) -> u16 {
    u16::try_from(display_width(text)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_with_ellipsis() {
        assert_eq!(cut("reset-mail", 10, "…"), "reset-mail");
        assert_eq!(cut("search-index", 8, "…"), "search-…");
        assert_eq!(cut("search-index", 8, ".."), "search..");
        assert_eq!(cut("日本語", 5, "…"), "日本…");
        assert_eq!(cut("日本語", 4, "…"), "日…");
        assert_eq!(cut("abc", 1, ".."), ".");
        assert_eq!(cut("abc", 0, "…"), "");
        assert_eq!(cut_path("src/index/merge.rs", 12, "…"), "…/merge.rs");
        assert_eq!(cut_path("src/merge.rs", 12, "…"), "src/merge.rs");
    }
}
