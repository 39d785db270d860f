//! Cost per day, at the lower left of a large screen.

use ratatui_core::layout::Rect;

use ralph_events::text::format_dollars;
use ralph_report::overview::DayCost;

use super::View;
use super::bars::block;
use crate::canvas::span;
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn cost_chart(&mut self, area: Rect) {
        let rule = Rect { width: area.width, height: 1, ..area };
        self.canvas.titled_rule(rule, &[span("cost per day", Role::Strong)], &[]);
        let days = &self.data.overview.cost_per_day;
        let highest = days.iter().map(|day| day.usd).fold(0.0, f64::max);
        let (labels, text) = (area.bottom() - 2, area.bottom() - 1);
        let rows = usize::from(labels - area.y - 2);
        for (at, day) in days.iter().enumerate() {
            let x = area.x + 3 + 6 * u16::try_from(at).unwrap_or_default();
            let role = if at + 1 == days.len() { Role::BarNow } else { Role::BarPassed };
            self.canvas.put_right(x + 3, labels, &day.day.to_string(), Role::Muted);
            if day.usd <= 0.0 || highest <= 0.0 {
                continue;
            }
            let mut eighths = eighths(day.usd / highest, rows);
            for y in (area.y + 2..labels).rev() {
                if eighths == 0 {
                    break;
                }
                let full = eighths.min(8);
                let text = if self.canvas.theme.ascii { "#" } else { block(full) };
                self.canvas.put(x, y, 4, &text.repeat(4), role);
                eighths -= full;
            }
        }
        let month = days.last().map(DayCost::month_name).unwrap_or_default();
        let week: f64 = days.iter().rev().take(7).map(|day| day.usd).sum();
        let sums = format!(
            "{month}. Today {}, seven days {}.",
            format_dollars(self.data.overview.today_usd),
            format_dollars(week)
        );
        self.canvas.put(area.x + 3, text, area.width - 4, &sums, Role::Muted);
    }
}

/// At least one, so that a cheap day is not an empty one.
fn eighths(share: f64, rows: usize) -> usize {
    let most = rows * 8;
    (1..most).find(|eighth| *eighth as f64 >= share * most as f64).unwrap_or(most)
}
