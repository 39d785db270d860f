//! The report: what `ralph report` prints.

use ratatui_core::layout::Rect;

use ralph_report::run_card::RunCard;
use ralph_report::width::wrap;

use super::View;
use crate::canvas::Row;
use crate::data::RunData;
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn report(&mut self, area: Rect, run: &RunData<'_>, card: &RunCard) {
        let width = usize::from(area.width) - 2;
        let mut rows: Vec<Row> = Vec::new();
        for line in &run.detail.report {
            // Continued lines keep the indentation.
            let indent = line.len() - line.trim_start().len();
            for (at, range) in
                wrap(line, width, width.saturating_sub(indent)).into_iter().enumerate()
            {
                let start = if at == 0 { String::new() } else { " ".repeat(indent) };
                let role = if indent == 0 { Role::Ink } else { Role::Muted };
                rows.push(Row::of(format!("{start}{}", &line[range]), role));
            }
        }
        if card.cost.estimated.or(card.cost.reported).is_none() {
            let text = format!("Cost unknown: {} does not report it.", card.agent);
            rows.extend([Row::blank(), Row::of(text, Role::Muted)]);
        }
        self.scrolled(area, &rows, self.model.report_scroll);
    }
}
