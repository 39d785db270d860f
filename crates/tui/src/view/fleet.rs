//! The list of every run, and the preview below it.

use ratatui_core::layout::Rect;

use ralph_events::run_state::Cost;
use ralph_events::text::format_dollars;
use ralph_report::overview::{CardGroup, SectionKind, UnreadableProject};
use ralph_report::run_card::{AttentionKind, RunCard};
use ralph_report::state_word::{Group, StateWord};
use ralph_report::width::display_width;

use super::bars::bars;
use super::{Target, View, margin};
use crate::canvas::{Row, cut, span};
use crate::data::Data;
use crate::model::{Model, Selection};
use crate::theme::Role;

/// A line of the list.
#[derive(Debug, PartialEq)]
pub(crate) enum FleetLine<'d> {
    Blank,
    Heading(SectionKind),
    Card(&'d RunCard),
    /// The need of the run above.
    Attention(&'d RunCard),
    Older(usize),
    /// Older runs that are opened, but not read yet.
    Reading(usize),
    Unreadable(&'d UnreadableProject),
}

impl FleetLine<'_> {
    pub(crate) fn selection(&self) -> Option<Selection> {
        match self {
            FleetLine::Card(card) => Some(Selection::Run(card.id.clone())),
            FleetLine::Older(_) => Some(Selection::Older),
            _ => None,
        }
    }
}

/// The lines of the list. Finished runs are cut to what fits, unless they are opened or a filter is set.
pub(crate) fn fleet_lines<'d>(
    data: &'d Data<'_>,
    model: &Model,
    height: usize,
    is_spaced: bool,
) -> Vec<FleetLine<'d>> {
    let mut lines: Vec<FleetLine<'d>> =
        data.overview.unreadable.iter().map(FleetLine::Unreadable).collect();
    let shows_all = model.fleet.older_open || model.fleet.filter.is_some();
    let gap = |lines: &[FleetLine<'_>]| usize::from(is_spaced && !lines.is_empty());
    let mut hidden = data.overview.older - data.overview.section(SectionKind::Older).len();
    for CardGroup { kind, cards } in &data.overview.sections {
        let cards: Vec<&RunCard> = cards.iter().filter(|card| model.matches(card)).collect();
        let is_active = *kind < SectionKind::DoneToday;
        let room = height.saturating_sub(lines.len() + gap(&lines) + 2);
        let shown = match kind {
            _ if is_active || shows_all => cards.len(),
            SectionKind::DoneToday => cards.len().min(room),
            // All of it, or nothing.
            SectionKind::Yesterday if cards.len() <= room => cards.len(),
            _ => 0,
        };
        hidden += cards.len() - shown;
        if shown == 0 {
            continue;
        }
        lines.extend((gap(&lines) > 0).then_some(FleetLine::Blank));
        lines.push(FleetLine::Heading(*kind));
        for card in cards.into_iter().take(shown) {
            lines.push(FleetLine::Card(card));
            lines.extend(card.attention.is_some().then_some(FleetLine::Attention(card)));
        }
    }
    match () {
        () if hidden == 0 || model.fleet.filter.is_some() => {}
        () if model.fleet.older_open => lines.push(FleetLine::Reading(hidden)),
        () => lines.push(FleetLine::Older(hidden)),
    }
    lines
}

/// Where each column starts or, for figures, ends. Columns without room are `None`.
struct Columns {
    sign: u16,
    name: (u16, u16),
    project: Option<(u16, u16)>,
    branch: Option<(u16, u16)>,
    iteration_end: u16,
    time_end: u16,
    cost_end: u16,
    bars: Option<(u16, u16)>,
    now: u16,
    is_roomy: bool,
}

impl Columns {
    fn for_width(width: u16) -> Columns {
        if width >= 96 {
            let branch = (width >= 118).then_some((40, 22));
            let x = if branch.is_some() { 23 } else { 0 };
            return Columns {
                sign: 1,
                name: (3, 23),
                project: Some((27, 12)),
                branch,
                iteration_end: x + 44,
                time_end: x + 52,
                cost_end: x + 61,
                bars: Some((x + 63, 10)),
                now: x + 75,
                is_roomy: true,
            };
        }
        let margin = margin(width);
        let (with_project, with_bars) = (width >= 71, width >= 80);
        let extra = match (with_bars, with_project) {
            (true, _) => width - 80,
            (false, true) => width - 71,
            (false, false) => width - 60 - margin,
        };
        let name = if with_project { 17 + extra.min(6) } else { 18 + extra.min(5) };
        let name = (margin + 2, name);
        let after_name = name.0 + name.1 + 1;
        let project = with_project.then_some((after_name, 10));
        let iteration_end = after_name + if with_project { 11 } else { 0 } + 5;
        let cost_end = iteration_end + 13;
        let bars = with_bars.then_some((cost_end + 1, 8));
        let now = cost_end + if with_bars { 10 } else { 2 };
        Columns {
            sign: margin,
            name,
            project,
            branch: None,
            iteration_end,
            time_end: iteration_end + 6,
            cost_end,
            bars,
            now,
            is_roomy: false,
        }
    }
}

impl View<'_, '_> {
    pub(super) fn fleet_with_preview(&mut self, area: Rect) {
        let full = area.height + 3;
        let preview = match (area.width, full) {
            (120.., 36..) => 13,
            (80.., 24..) => 5,
            _ => 0,
        };
        let list = Rect { height: area.height - preview, ..area };
        let used = self.fleet(list);
        if preview > 0 {
            // Rows that the list leaves empty show more of the run.
            let y = list.y + (used + 1).min(list.height);
            self.preview(Rect { y, height: area.bottom() - y, ..area });
        }
    }

    /// The list, scrolled so that the selected run is visible, and the chart below if there is room.
    /// Returns the rows of the list.
    pub(super) fn fleet(&mut self, area: Rect) -> u16 {
        let has_costs = self.data.overview.cost_per_day.iter().any(|day| day.usd > 0.0);
        let has_chart = self.layout.is_wide && area.height >= 46 && has_costs;
        let chart = if has_chart { 15 } else { 0 };
        let area = Rect { height: area.height - chart, ..area };
        if has_chart {
            self.cost_chart(Rect { y: area.bottom(), height: chart, ..area });
        }
        let columns = Columns::for_width(area.width);
        let is_spaced = columns.is_roomy && area.height >= 20;
        // Room between the list and what follows.
        let height = usize::from(area.height) - usize::from(!is_spaced);
        let lines = fleet_lines(self.data, self.model, height, is_spaced);
        (self.layout.fleet_height, self.layout.is_spaced) = (height, is_spaced);
        self.layout.hits.push((area, Target::Fleet));
        let selected = self.model.selected_line(&lines);
        let last = selected.map_or(0, |at| {
            at + usize::from(matches!(lines.get(at + 1), Some(FleetLine::Attention(_))))
        });
        let first = (last + 1).saturating_sub(height);
        let mut has_heads = !columns.is_roomy;
        for ((at, line), y) in lines.iter().enumerate().skip(first).zip(area.y..area.bottom()) {
            let row = Rect { y, height: 1, ..area };
            self.fleet_line(row, line, &columns, selected == Some(at));
            if matches!(line, FleetLine::Heading(_)) && !std::mem::replace(&mut has_heads, true) {
                self.column_heads(row, &columns);
            }
        }
        if lines.is_empty() {
            self.canvas.put(
                area.x + 1,
                area.y,
                area.width,
                "No run matches the filter.",
                Role::Muted,
            );
        }
        u16::try_from(lines.len()).unwrap_or(u16::MAX).clamp(1, area.height)
    }

    fn fleet_line(&mut self, row: Rect, line: &FleetLine<'_>, columns: &Columns, selected: bool) {
        let x = row.x + columns.sign;
        let room = row.width - columns.sign;
        match line {
            FleetLine::Blank => {}
            FleetLine::Heading(kind) => {
                let is_needy = *kind == SectionKind::NeedsYou;
                let role = if is_needy { Role::Attention } else { Role::Strong };
                self.canvas.put(x, row.y, room, kind.title(), role);
            }
            FleetLine::Card(card) => self.card(row, card, columns),
            FleetLine::Attention(card) => self.attention(row, card, columns),
            FleetLine::Older(count) => {
                self.canvas.put(x + 2, row.y, room, &older_runs(*count), Role::Muted);
                self.layout.hits.push((row, Target::OlderRuns));
            }
            FleetLine::Reading(count) => {
                let text = format!("reading {}", older_runs(*count));
                self.canvas.put(x + 2, row.y, room, &text, Role::Muted);
            }
            FleetLine::Unreadable(project) => {
                let text = format!("{}: {}", project.path, project.reason);
                self.canvas.put(x, row.y, 1, "!", Role::Failed);
                self.canvas.put(x + 2, row.y, room - 2, &text, Role::Muted);
            }
        }
        if selected {
            self.select_row(row);
        }
    }

    /// The bar and the background of a selected line.
    pub(super) fn select_row(&mut self, row: Rect) {
        self.canvas.select(row);
        // A narrow screen has no room for the bar.
        let is_free =
            self.canvas.buffer.cell((row.x, row.y)).is_some_and(|cell| cell.symbol() == " ");
        if is_free {
            let style = self.canvas.theme.style(Role::Attention);
            let style = match self.canvas.theme.selected_background() {
                Some(background) => style.patch(background),
                None => ratatui_core::style::Style::new(),
            };
            self.canvas.put_styled(row.x, row.y, 1, "▌", style);
        }
    }

    fn column_heads(&mut self, row: Rect, columns: &Columns) {
        let y = row.y;
        let mut head = |x: u16, text: &str| self.canvas.put(row.x + x, y, 12, text, Role::Muted);
        if let Some((x, _)) = columns.project {
            head(x, "project");
        }
        if let Some((x, _)) = columns.branch {
            head(x, "branch");
        }
        head(columns.iteration_end - 4, "iter");
        head(columns.time_end - 4, "time");
        head(columns.cost_end - 4, "cost");
        if let Some((x, _)) = columns.bars {
            head(x, "iterations");
        }
        head(columns.now, "now");
    }

    fn card(&mut self, row: Rect, card: &RunCard, columns: &Columns) {
        let Rect { x, y, .. } = row;
        let is_done = card.group == Group::Done || card.is_removed;
        let text = if is_done { Role::Muted } else { Role::Ink };
        let sign = if self.canvas.theme.ascii { card.ascii_sign() } else { card.sign() };
        let style = self.canvas.theme.style(sign_role(card));
        let style = if card.group == Group::NeedsYou { style.bold() } else { style };
        self.canvas.put_styled(x + columns.sign, y, 1, sign, style);
        let name = if is_done { Role::Muted } else { Role::Strong };
        self.canvas.put(x + columns.name.0, y, columns.name.1, &card.name, name);
        if let Some((at, width)) = columns.project {
            self.canvas.put(x + at, y, width, &card.project, text);
        }
        if let (Some((at, width)), Some(branch)) = (columns.branch, &card.branch) {
            self.canvas.put(x + at, y, width, branch, Role::Muted);
        }
        let progress = card.progress();
        let progress = if progress.len() > 7 { card.iteration.to_string() } else { progress };
        self.canvas.put_right(x + columns.iteration_end, y, &progress, text);
        self.canvas.put_right(x + columns.time_end, y, &card.elapsed(), text);
        self.canvas.put_right(x + columns.cost_end, y, &cost_text(card.cost), text);
        if let Some((at, count)) = columns.bars {
            let spans = bars(card, usize::from(count), self.canvas.theme);
            self.canvas.put_spans(x + at, y, count, &spans);
        }
        let room = row.width.saturating_sub(columns.now + margin(row.width));
        let now = self.now_text(card, usize::from(room));
        let role = if card.state == StateWord::Working { Role::Ink } else { Role::Muted };
        self.canvas.put(x + columns.now, y, room, &now, role);
        self.layout.hits.push((row, Target::Run(card.id.clone())));
    }

    /// A request that was just made, a remark on the files, or what the run does now.
    pub(super) fn now_text(&self, card: &RunCard, room: usize) -> String {
        if let Some(text) = self.model.requested_text(card, self.data.now_ms) {
            return text;
        }
        match (&card.note, self.data.reading_text(card)) {
            (_, Some(reading)) => reading,
            (Some(note), _) => cut(note, room, self.canvas.theme.ellipsis()),
            _ => {
                let ellipsis = if self.canvas.theme.ascii { "." } else { "…" };
                let word = card.word();
                if !matches!(word, "pausing" | "stopping") {
                    return card.now.fit(room, ellipsis);
                }
                let whole = format!("{word}, {}", card.now);
                if display_width(&whole) <= room {
                    return whole;
                }
                format!("{word} {}", card.now.time).trim_end().to_owned()
            }
        }
    }

    fn attention(&mut self, row: Rect, card: &RunCard, columns: &Columns) {
        let Some(attention) = &card.attention else { return };
        let x = row.x + columns.name.0;
        let width = row.width - columns.name.0 - 1;
        let has_time = columns.project.is_some();
        let ago = if has_time { self.data.ago(attention.since_ms) } else { String::new() };
        let left = match attention.kind {
            AttentionKind::Question => {
                vec![span("asks ", Role::Attention), span(&attention.text, Role::Ink)]
            }
            kind => {
                let (long, short) = match (kind, attention.remedy) {
                    (AttentionKind::Dialog, remedy) => (format!("{remedy}: t."), "Press t."),
                    (_, "") => ("Press r to resume.".to_owned(), "Press r."),
                    (_, remedy) => (format!("{remedy}, then press r."), "Press r."),
                };
                let gap = if ago.is_empty() { 0 } else { ago.len() + 1 };
                let room = usize::from(width).saturating_sub(gap);
                let is_short = display_width(&attention.text) + 1 + long.len() > room;
                let action = if is_short { short.to_owned() } else { long };
                // What to do is never cut.
                let room = room.saturating_sub(action.len() + 1);
                let cause = cut(&attention.text, room, self.canvas.theme.ellipsis());
                vec![span(format!("{cause} "), Role::Failed), span(action, Role::Ink)]
            }
        };
        let line = Row::new(left).with_right(vec![span(ago, Role::Muted)]);
        self.canvas.row(Rect { x, width, ..row }, &line);
        self.layout.hits.push((row, Target::Run(card.id.clone())));
    }

    /// The end of the selected run's activity.
    fn preview(&mut self, area: Rect) {
        let Some(card) = self.model.shown_run().and_then(|id| self.data.card(id)) else {
            self.canvas.rule(area.x, area.y, area.width);
            return;
        };
        let title = [span(&card.name, Role::Strong)];
        let rule = Rect { height: 1, ..area };
        let is_large = area.height > 8;
        let mut top = area.y + 1;
        if is_large {
            self.canvas.titled_rule(rule, &title, &[]);
            let tabs = Rect { y: top, height: 1, ..area };
            let used = self.tab_titles(tabs, card, 3);
            if used + 14 < area.width {
                self.canvas.put_right(area.right() - 1, top, "Enter opens", Role::Muted);
            }
            top += 2;
        } else {
            self.canvas.titled_rule(rule, &title, &[span("activity", Role::Muted)]);
        }
        let bottom = area.bottom() - u16::from(is_large);
        let rows = self.preview_rows(card, area.width - 2, usize::from(bottom - top));
        for (y, row) in (top..bottom).zip(&rows) {
            let line = Rect { x: area.x + 1, y, width: area.width - 2, height: 1 };
            self.canvas.row(line, row);
        }
        self.layout.hits.push((area, Target::Run(card.id.clone())));
    }
}

fn older_runs(count: usize) -> String {
    format!("{count} older run{}", if count == 1 { "" } else { "s" })
}

pub(super) fn sign_role(card: &RunCard) -> Role {
    match (card.state, card.group) {
        _ if card.is_removed => Role::Muted,
        (StateWord::Asks, _) => Role::Attention,
        (StateWord::Failed | StateWord::Interrupted, _) => Role::Failed,
        (StateWord::Working, _) => Role::Working,
        (StateWord::Complete, _) => Role::Done,
        (StateWord::Waiting | StateWord::Paused | StateWord::Ended, _) => Role::Muted,
    }
}

/// `$4.37`, at most six columns; without cents from a hundred dollars on; empty if unknown.
pub(super) fn cost_text(cost: Cost) -> String {
    match cost.usd() {
        Some(usd) if usd >= 99.995 => format!("${usd:.0}"),
        Some(usd) if usd > 0.0 && usd < 0.01 => "<$0.01".to_owned(),
        Some(usd) => format_dollars(usd),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_leaves_a_space_after_the_time() {
        for usd in [0.0, 0.003, 0.01, 9.999, 99.994, 99.999, 1234.0] {
            let text = cost_text(Cost { reported: Some(usd), estimated: None });
            for width in [60, 80, 120] {
                let columns = Columns::for_width(width);
                let room = usize::from(columns.cost_end - columns.time_end);
                assert!(text.len() < room, "{text} at {width}");
            }
        }
        let small = Cost { reported: Some(0.003), estimated: None };
        assert_eq!(cost_text(small), "<$0.01");
    }
}
