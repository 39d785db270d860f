//! One run: its header, tabs, and the page of the chosen tab.

use ratatui_core::layout::Rect;

use ralph_events::text::format_dollars;
use ralph_report::run_card::{AttentionKind, RunCard};
use ralph_report::state_word::StateWord;

use super::bars::bars;
use super::fleet::{cost_text, sign_role};
use super::{Target, View};
use crate::canvas::{Row, Span, columns, span, spans_width};
use crate::data::{DiffState, RunData};
use crate::model::{Screen, Tab};
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn run_page(&mut self, area: Rect) {
        let Some(card) = self.model.shown_run().and_then(|id| self.data.card(id)) else {
            let text = "Select a run.";
            self.canvas.put(area.x + 1, area.y, area.width, text, Role::Muted);
            return;
        };
        self.run_header(Rect { height: 2, ..area }, card);
        let tabs = Rect { y: area.y + 3, height: 1, ..area };
        self.tab_line(tabs, card);
        let page = Rect { y: area.y + 5, height: area.height - 5, ..area };
        let Some(run) = self.data.run(&card.id) else {
            let text = self.data.reading_text(card).unwrap_or_default();
            self.canvas.put(page.x + 1, page.y + 1, page.width, &text, Role::Muted);
            return;
        };
        match self.model.tab {
            Tab::Activity => {
                // A line of air below the tabs, if there is room for it.
                let gap = u16::from(page.height > 16);
                let page = Rect { y: page.y + gap, height: page.height - gap, ..page };
                self.activity(page, run, card);
            }
            Tab::Stories => self.stories(page, run),
            Tab::Diff => self.diff(page, run, card),
            Tab::Checks => self.checks(page, run),
            Tab::Report => self.report(page, run, card),
        }
    }

    fn run_header(&mut self, area: Rect, card: &RunCard) {
        let line = Rect { x: area.x + 1, width: area.width - 2, height: 1, ..area };
        let sign = if self.canvas.theme.ascii { card.ascii_sign() } else { card.sign() };
        let separator = if self.canvas.theme.ascii { " | " } else { " · " };
        let right = run_figures(card, area.width);
        let right_width = spans_width(&right);
        let name = [span(format!("{sign} "), sign_role(card)), span(&card.name, Role::Strong)];
        let name_width = spans_width(&name);
        let mut facts = vec![card.project.clone()];
        facts.extend(card.branch.clone());
        facts.push(card.agent.clone());
        facts.extend(card.sandboxed.then(|| "sandbox".to_owned()));
        // The last facts go first.
        let room =
            line.width.saturating_sub(name_width.saturating_add(right_width).saturating_add(4));
        while facts.len() > 1 && columns(&facts.join(separator)) > room {
            facts.pop();
        }
        let mut left = name.to_vec();
        if room > 8 {
            left.push(span(format!("   {}", facts.join(separator)), Role::Muted));
        }
        self.canvas.row(line, &Row::new(left).with_right(right));
        let second = Rect { x: line.x + 2, y: area.y + 1, width: line.width - 2, height: 1 };
        let row = self.state_row(card, usize::from(second.width));
        self.canvas.row(second, &row);
    }

    /// The question or problem of a run; otherwise what it does now.
    fn state_row(&self, card: &RunCard, width: usize) -> Row {
        if let Some(text) = self.model.requested_text(card, self.data.now_ms) {
            return Row::of(text, Role::Ink);
        }
        let Some(attention) = &card.attention else {
            let role = if card.state == StateWord::Working { Role::Working } else { Role::Muted };
            let now = self.now_text(card, width.saturating_sub(card.word().len() + 2));
            if now.starts_with(card.word()) {
                return Row::of(now, role);
            }
            return Row::new(vec![
                span(format!("{}  ", card.word()), role),
                span(now, Role::Muted),
            ]);
        };
        let ago = self.data.ago(attention.since_ms);
        let dot = if self.canvas.theme.ascii { " | " } else { " · " };
        let (left, key, does): (Vec<Span>, _, _) = match attention.kind {
            AttentionKind::Question => (
                vec![span("asks ", Role::Attention), span(&attention.text, Role::Ink)],
                "a",
                "answer",
            ),
            AttentionKind::Dialog => (vec![span(&attention.text, Role::Attention)], "t", "tmux"),
            AttentionKind::Problem => {
                let remedy = match attention.remedy {
                    "" => String::new(),
                    remedy => format!(" {remedy}, then press r."),
                };
                let left = vec![span(&attention.text, Role::Failed), span(remedy, Role::Ink)];
                (left, "r", "resume")
            }
        };
        let right = vec![
            span(format!("{ago}{dot}"), Role::Muted),
            span(key, Role::Strong),
            span(format!(" {does}"), Role::Muted),
        ];
        Row::new(left).with_right(right)
    }

    fn tab_line(&mut self, area: Rect, card: &RunCard) {
        let gap = if area.width >= 90 { 4 } else { 2 };
        let used = self.tab_titles(area, card, gap);
        let bars = bars(card, 20, self.canvas.theme);
        let width = u16::try_from(bars.len()).unwrap_or_default();
        let label = if area.width >= 110 { "iterations  " } else { "" };
        let wide = width + columns(label);
        if width > 0 && used + wide + 3 < area.width {
            let x = area.right() - 1 - wide;
            self.canvas.put(x, area.y, wide, label, Role::Muted);
            self.canvas.put_spans(x + columns(label), area.y, width, &bars);
        }
        let line = Rect { y: area.y + 1, ..area };
        self.canvas.rule(line.x, line.y, line.width);
        let active = self
            .layout
            .hits
            .iter()
            .rev()
            .find_map(|(hit, target)| (*target == Target::Tab(self.model.tab)).then_some(*hit));
        if let Some(active) = active {
            let underline = if self.canvas.theme.ascii { "=" } else { "━" };
            let underline = underline.repeat(usize::from(active.width));
            self.canvas.put(active.x, line.y, active.width, &underline, Role::Strong);
        }
    }

    /// Returns the columns used.
    pub(super) fn tab_titles(&mut self, area: Rect, card: &RunCard, gap: u16) -> u16 {
        let mut x = area.x + 1;
        for tab in Tab::ALL {
            let title = self.tab_title(tab, card);
            let is_active = match (self.model.screen, self.layout.is_wide) {
                (Screen::Fleet, false) => tab == Tab::Activity,
                _ => tab == self.model.tab,
            };
            let style = self.canvas.theme.style(if is_active { Role::Strong } else { Role::Muted });
            // The preview has no line below its tabs.
            let is_preview = self.model.screen == Screen::Fleet && !self.layout.is_wide;
            let style = if is_active && is_preview { style.underlined() } else { style };
            let width = self.canvas.put_styled(x, area.y, area.right() - x, &title, style);
            self.layout.hits.push((Rect { x, width, ..area }, Target::Tab(tab)));
            x += width + gap;
        }
        x - area.x - gap
    }

    fn tab_title(&self, tab: Tab, card: &RunCard) -> String {
        let counts = |counts: Option<(u32, u32)>| {
            counts.map_or(String::new(), |(done, all)| format!(" {done}/{all}"))
        };
        let run: Option<&RunData<'_>> = self.data.run(&card.id);
        let figures = match tab {
            Tab::Activity | Tab::Report => String::new(),
            Tab::Stories => counts(card.stories),
            Tab::Checks => counts(card.checks),
            Tab::Diff => match run.map(|run| &run.detail.diff) {
                Some(DiffState::Ready(diff)) => format!(" +{} −{}", diff.added, diff.removed),
                _ => String::new(),
            },
        };
        format!("{}{figures}", tab.title())
    }
}

/// `iteration 9/20   1h51m   $4.37 of $10.00`.
fn run_figures(card: &RunCard, width: u16) -> Vec<Span> {
    let word = if width >= 110 { "iteration " } else { "iter " };
    let progress = card.progress();
    let (number, limit) = progress.split_at(progress.find('/').unwrap_or(progress.len()));
    let mut spans =
        vec![span(word, Role::Muted), span(number, Role::Ink), span(limit, Role::Muted)];
    spans.push(span(format!("   {}", card.elapsed()), Role::Ink));
    let cost = cost_text(card.cost);
    if !cost.is_empty() {
        spans.push(span(format!("   {cost}"), Role::Ink));
        if let Some(budget) = card.budget_usd.filter(|_| width >= 80) {
            spans.push(span(format!(" of {}", format_dollars(budget)), Role::Muted));
        }
    }
    spans
}
