//! Every key, every sign, and what the bars mean.

use ratatui_core::layout::Rect;

use super::View;
use crate::canvas::{Row, span, spans_width};
use crate::keys::{BINDINGS, Binding, KeyGroup};
use crate::theme::Role;

/// The signs, in two columns.
const SIGNS: [[(&str, Role, &str); 2]; 5] = [
    [
        ("?", Role::Attention, "asks you something"),
        ("✓", Role::Done, "complete: the checks prove it"),
    ],
    [("!", Role::Failed, "stopped; a person has to act"), ("✗", Role::Failed, "failed")],
    [("●", Role::Working, "working"), ("~", Role::Attention, "claimed by the agent, not proven")],
    [
        ("○", Role::Muted, "waiting: a limit, a retry, a start time"),
        ("■", Role::Muted, "ended: a limit, or you stopped it"),
    ],
    [("=", Role::Muted, "paused by you"), ("◌", Role::Muted, "story that waits for another")],
];

const BARS: [(&str, Role); 6] = [
    ("▃▂", Role::BarPassed),
    ("▅", Role::BarFailed),
    ("▃", Role::BarPassed),
    ("▂", Role::BarNow),
    ("  one for each iteration. Height: time. Red: a check failed. Blue: running now.", Role::Ink),
    ("", Role::Ink),
];

const ASCII_BARS: &str =
    "++-+*  one for each iteration: + passed, - a check failed, * running now.";

impl View<'_, '_> {
    pub(super) fn help(&mut self, screen: Rect, scroll: usize) {
        let has_columns = screen.width >= 100;
        let rows = if has_columns { self.help_columns() } else { self.help_column() };
        let height = u16::try_from(rows.len() + 4).unwrap_or(u16::MAX);
        let area = self.open_box(screen, 100, height, "keys", "");
        let (top, room) = (area.y + 1, usize::from(area.height - 2));
        let first = scroll.min(rows.len().saturating_sub(room));
        let x = area.x + u16::from(has_columns);
        for (row, y) in rows[first..].iter().zip(top..area.bottom() - 1) {
            self.canvas.row(Rect { x, y, width: area.right() - x + 1, height: 1 }, row);
        }
        let (bottom, right) = (area.bottom(), area.right() - 1);
        let close = [span(" Esc", Role::Strong), span(" close ", Role::Muted)];
        let scrolls = if rows.len() > room {
            [span(" ↑↓", Role::Strong), span(" scroll", Role::Muted)].to_vec()
        } else {
            Vec::new()
        };
        let line = [scrolls, close.to_vec()].concat();
        let width = spans_width(&line);
        self.canvas.put_spans(right - width, bottom, width, &line);
    }

    /// Moving and finding at the left, the rest at the right.
    fn help_columns(&self) -> Vec<Row> {
        let left = [
            section_rows(KeyGroup::Move, 17),
            vec![Row::blank()],
            section_rows(KeyGroup::Find, 17),
        ]
        .concat();
        let right = [
            section_rows(KeyGroup::Steer, 12),
            vec![Row::blank()],
            section_rows(KeyGroup::Elsewhere, 12),
            vec![Row::blank()],
            section_rows(KeyGroup::Leave, 12),
        ]
        .concat();
        let mut rows: Vec<Row> = Vec::new();
        for at in 0..left.len().max(right.len()) {
            let mut row = left.get(at).cloned().unwrap_or_default();
            if let Some(right) = right.get(at) {
                pad(&mut row, 54);
                row.left.extend(right.left.clone());
            }
            rows.push(row);
        }
        rows.push(Row::of("signs", Role::Muted));
        for signs in SIGNS {
            let mut row = Row::default();
            for (at, (sign, role, text)) in signs.into_iter().enumerate() {
                pad(&mut row, 54 * at);
                row.left.extend([span(sign, role), span(format!("  {text}"), Role::Ink)]);
            }
            rows.push(row);
        }
        rows.extend(self.help_end());
        rows
    }

    fn help_column(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for section in KeyGroup::ALL {
            rows.extend(section_rows(section, 16));
            rows.push(Row::blank());
        }
        rows.push(Row::of("signs", Role::Muted));
        for (sign, role, text) in SIGNS.into_iter().flatten() {
            rows.push(Row::new(vec![span(sign, role), span(format!("  {text}"), Role::Ink)]));
        }
        rows.extend(self.help_end());
        rows
    }

    fn help_end(&self) -> Vec<Row> {
        let bars = match self.canvas.theme.ascii {
            true => Row::of(ASCII_BARS, Role::Ink),
            false => Row::new(BARS.iter().map(|(text, role)| span(*text, *role)).collect()),
        };
        let promise = "Closing this screen never touches a run. All of this is also in ralph help.";
        vec![
            Row::blank(),
            Row::of("bars", Role::Muted),
            bars,
            Row::blank(),
            Row::of(promise, Role::Muted),
        ]
    }
}

fn section_rows(section: KeyGroup, column: usize) -> Vec<Row> {
    // The help itself is open already.
    let is_listed = |binding: &&Binding| binding.section == section && binding.label != "?";
    let bindings = BINDINGS.iter().filter(is_listed);
    let row = |binding: &Binding| {
        let mut row = Row::of(binding.label, Role::Strong);
        pad(&mut row, column);
        row.left.push(span(binding.help, Role::Ink));
        row
    };
    std::iter::once(Row::of(section.title(), Role::Muted)).chain(bindings.map(row)).collect()
}

/// Fills a row up to a column.
fn pad(row: &mut Row, column: usize) {
    let used = spans_width(&row.left);
    row.left.push(span(" ".repeat(column.saturating_sub(usize::from(used))), Role::Ink));
}
