//! The report: what `ralph report` prints.

use ratatui_core::layout::Rect;

use ralph_report::run_card::RunCard;
use ralph_report::summary::plain::{self, TextFormat};

use super::View;
use crate::canvas::Row;
use crate::data::RunData;
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn report(&mut self, area: Rect, run: &RunData<'_>, card: &RunCard) {
        let width = Some(usize::from(area.width) - 2);
        let format = TextFormat::Plain { color: false, width };
        let render = |summary| plain::render(summary, self.data.zone, format);
        let text = run.detail.summary.as_ref().map(render).unwrap_or_default();
        let mut rows: Vec<Row> = text.lines().map(report_row).collect();
        if card.cost.usd().is_none() {
            let text = format!("Cost unknown: {} does not report it.", card.agent);
            rows.extend([Row::blank(), Row::of(text, Role::Muted)]);
        }
        self.scrolled(area, &rows, self.model.pages.report_scroll);
    }
}

/// Headings stand further left than what belongs to them.
fn report_row(line: &str) -> Row {
    let indent = line.len() - line.trim_start().len();
    Row::of(line, if indent < 4 { Role::Ink } else { Role::Muted })
}
