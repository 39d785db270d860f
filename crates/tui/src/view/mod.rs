//! Draws the model. Pure: the same model and data make the same screen.

mod activity;
mod bars;
mod checks;
mod cost_chart;
mod dialogs;
mod diff;
mod fleet;
mod help;
mod report;
mod run;
mod stories;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use fleet::{FleetLine, fleet_lines};

use ralph_report::width::{suffix_within, wrap};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};

use ralph_monitor::actions::Delivery;

use crate::canvas::{Canvas, Span, columns, cut, span};
use crate::data::Data;
use crate::input::Key;
use crate::keys::{Command, Place, footer_entries};
use crate::model::{Model, NewRunField, Screen, Tab};
use crate::text_field::TextField;
use crate::theme::{Role, Theme};

pub const MIN_WIDTH: u16 = 60;
pub const MIN_HEIGHT: u16 = 20;
/// From here on, the run stands beside the fleet.
pub const WIDE: u16 = 160;
const FLEET_WIDTH: u16 = 97;

/// Columns of a search or filter beside what it found.
const SHOWN_PATTERN: usize = 24;

/// Something that reacts to the mouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Run(String),
    OlderRuns,
    Tab(Tab),
    Command(Command),
    Story(usize),
    File(usize),
    Check(usize),
    /// The wheel scrolls this pane.
    Fleet,
    Detail,
    /// In a dialog: the same as this key, a choice, a field.
    Key(Key),
    Delivery(Delivery),
    Field(NewRunField),
}

/// Where things were drawn, and how far they can be scrolled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    pub hits: Vec<(Rect, Target)>,
    pub is_wide: bool,
    pub is_too_small: bool,
    /// Rows of the fleet's list.
    pub fleet_height: usize,
    /// Blank lines separate its groups.
    pub is_spaced: bool,
    /// The lines of the scrolled pane: an item, and a line within it.
    pub anchors: Vec<(u64, u16)>,
    /// The first line that is shown, how many there are in all, and how many fit.
    pub top: usize,
    pub total: usize,
    pub height: usize,
    /// Lines of the scrolled pane with the text that is searched for.
    pub matches: Vec<u64>,
    /// Lines of the diff at which a change starts.
    pub changes: Vec<usize>,
}

impl Layout {
    /// The target under the mouse that `wanted` accepts, the innermost first.
    pub fn hit(&self, at: Position, wanted: impl Fn(&Target) -> bool) -> Option<&Target> {
        self.hits
            .iter()
            .rev()
            .find(|(area, target)| area.contains(at) && wanted(target))
            .map(|(_, target)| target)
    }
}

pub(crate) struct View<'a, 'b> {
    pub(crate) canvas: Canvas<'b>,
    pub(crate) model: &'a Model,
    pub(crate) data: &'a Data<'a>,
    pub(crate) layout: Layout,
}

/// Draws a whole frame. Returns the layout, and where the cursor is.
pub fn draw<'a>(
    model: &'a Model,
    data: &'a Data<'a>,
    theme: Theme,
    buffer: &mut Buffer,
) -> (Layout, Option<Position>) {
    let area = buffer.area;
    let canvas = Canvas { buffer, theme, cursor: None };
    let mut view = View { canvas, model, data, layout: Layout::default() };
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        view.too_small(area);
    } else {
        view.screen(area);
        view.dialog(area);
    }
    (view.layout, view.canvas.cursor)
}

impl View<'_, '_> {
    fn screen(&mut self, area: Rect) {
        let is_wide = area.width >= WIDE;
        self.layout.is_wide = is_wide;
        self.first_line(area);
        let body = Rect { y: area.y + 2, height: area.height - 3, ..area };
        if let Some(filter) = self.model.fleet.filter.as_ref().filter(|filter| !filter.is_typing) {
            let ellipsis = self.canvas.theme.ellipsis();
            let line = [
                span("filter ", Role::Muted),
                span(cut(filter.field.text(), SHOWN_PATTERN, ellipsis), Role::Strong),
                span("   Esc", Role::Strong),
                span(" shows all runs", Role::Muted),
            ];
            let margin = margin(area.width);
            self.canvas.put_spans(margin, area.y + 1, area.width - margin, &line);
        }
        let place = if !self.data.has_runs() {
            self.no_runs(body);
            Place::NoRuns
        } else if is_wide {
            let body = Rect { height: body.height - 1, ..body };
            self.fleet_and_run(body);
            match self.model.screen {
                Screen::Fleet => Place::Wide,
                Screen::Run => self.model.tab.place(),
            }
        } else {
            match self.model.screen {
                Screen::Fleet => {
                    self.fleet_with_preview(body);
                    Place::Fleet
                }
                Screen::Run => {
                    self.run_page(Rect { height: body.height - 1, ..body });
                    self.model.tab.place()
                }
            }
        };
        if is_wide || self.model.screen == Screen::Run {
            self.status_rule(Rect { y: area.bottom() - 2, height: 1, ..area });
        }
        self.footer(Rect { y: area.bottom() - 1, height: 1, ..area }, place);
    }

    fn fleet_and_run(&mut self, body: Rect) {
        let left = Rect { width: FLEET_WIDTH, ..body };
        self.fleet(left);
        self.canvas.vertical_rule(body.x + FLEET_WIDTH + 1, body.y, body.bottom());
        let x = body.x + FLEET_WIDTH + 3;
        self.run_page(Rect { x, width: body.right() - x, ..body });
    }

    /// Counts, money and the next reset.
    fn first_line(&mut self, area: Rect) {
        let margin = margin(area.width);
        let separator = if self.canvas.theme.ascii { " | " } else { " · " };
        let room = usize::from(area.width - margin);
        let overview = &self.data.overview;
        let parts = overview.first_line(room, separator, self.data.zone);
        let mut spans: Vec<Span> = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            if at > 0 {
                spans.push(span(separator, Role::Muted));
            }
            match at {
                0 if part.attention => spans.push(span(part.text, Role::Attention)),
                1 if overview.working > 0 => spans.push(span(part.text, Role::Working)),
                0..3 => spans.push(span(part.text, Role::Muted)),
                // Money: the figure comes first, of a reset last.
                3 => spans.extend(split_roles(&part.text, part.text.find(' '), false)),
                _ => spans.extend(split_roles(&part.text, part.text.rfind(' '), true)),
            }
        }
        let used = self.canvas.put_spans(margin, area.y, area.width - margin, &spans);
        let clock = self.data.clock(self.data.now_ms);
        if used + columns(&clock) + 24 <= area.width {
            self.canvas.put_right(area.right() - 1, area.y, &clock, Role::Muted);
        }
    }

    fn footer(&mut self, area: Rect, place: Place) {
        let margin = margin(area.width);
        if let Some(line) = self.prompt_line(area.width - margin) {
            let used = self.canvas.put_spans(margin, area.y, area.width - margin, &line.0);
            if line.1 {
                self.canvas.cursor = Some(Position { x: margin + used, y: area.y });
            }
            return;
        }
        if let Some(note) = &self.model.note {
            let role = if note.is_failure { Role::Failed } else { Role::Ink };
            self.note(Rect { x: margin, width: area.width - margin, ..area }, &note.text, role);
            return;
        }
        let mut x = margin;
        let works = |command| self.model.works(command, self.data);
        for entry in footer_entries(place, usize::from(area.width - margin), works) {
            let width = u16::try_from(entry.width()).unwrap_or(u16::MAX);
            let key = self.canvas.put(x, area.y, width, entry.label, Role::Strong);
            self.canvas.put(x + key + 1, area.y, width, entry.word, Role::Muted);
            let hit = Rect { x, width, ..area };
            self.layout.hits.push((hit, Target::Command(entry.command)));
            x += width + 2;
        }
    }

    /// The last lines of the screen, as many as the text needs.
    fn note(&mut self, last: Rect, text: &str, role: Role) {
        const MAX_LINES: usize = 4;
        let width = usize::from(last.width);
        let mut lines: Vec<&str> =
            wrap(text, width, width).into_iter().map(|range| text[range].trim_end()).collect();
        lines.truncate(MAX_LINES);
        let above = u16::try_from(lines.len().saturating_sub(1)).unwrap_or_default();
        let top = last.y - above;
        self.canvas.clear(Rect { x: 0, y: top, width: last.right(), height: above + 1 });
        for (y, line) in (top..).zip(lines) {
            self.canvas.put(last.x, y, last.width, line, role);
        }
    }

    /// The line of a search or filter that is typed, and whether it has the cursor.
    fn prompt_line(&self, width: u16) -> Option<(Vec<Span>, bool)> {
        let key = |text: &str| span(text, Role::Strong);
        let word = |text: &str| span(text, Role::Muted);
        // The end of what is typed stays visible, with the cursor behind it.
        let typed = |field: &TextField| {
            let room = usize::from(width).saturating_sub(12);
            span(suffix_within(field.text(), room), Role::Ink)
        };
        if let Some(search) = &self.model.search {
            if search.is_typing {
                return Some((vec![key("/"), typed(&search.field)], true));
            }
            let text = cut(search.field.text(), SHOWN_PATTERN, self.canvas.theme.ellipsis());
            let mut line = vec![key("/"), span(text, Role::Ink)];
            line.push(word(&format!("   {}   ", search.result_text())));
            line.extend([
                key("↓↑"),
                word(" next, previous  "),
                key("Esc"),
                word(" ends the search"),
            ]);
            return Some((line, false));
        }
        let field = self.model.fleet.filter.as_ref().filter(|filter| filter.is_typing)?;
        Some((vec![key("f"), word(" filter: "), typed(&field.field)], true))
    }

    fn no_runs(&mut self, area: Rect) {
        let text: [(&str, Role); 11] = [
            ("No runs on this machine yet.", Role::Strong),
            ("", Role::Ink),
            ("n   start one here: agent, prompt, check, limit, sandbox", Role::Ink),
            ("", Role::Ink),
            ("or in a shell, in a git repository:", Role::Muted),
            ("ralph run -n 5 --check \"make test\" -f PROMPT.md -- claude", Role::Ink),
            ("", Role::Ink),
            ("or watch an example (no account, no cost, twenty seconds):", Role::Muted),
            ("ralph demo --ui", Role::Ink),
            ("", Role::Ink),
            ("Runs of every project show up here as soon as they start.", Role::Muted),
        ];
        let height = u16::try_from(text.len()).unwrap_or_default();
        let y = area.y + area.height.saturating_sub(height).saturating_sub(3) / 2 + 1;
        let x = area.x + (area.width.saturating_sub(56) / 2).clamp(1, 12);
        for (y, (line, role)) in (y..area.bottom()).zip(text) {
            self.canvas.put(x, y, area.right() - x, line, role);
        }
    }

    /// Counts, the size that is needed, and what works meanwhile.
    fn too_small(&mut self, area: Rect) {
        self.layout.is_too_small = true;
        let overview = &self.data.overview;
        let (needs, working, waiting) = (overview.needs_you, overview.working, overview.waiting);
        let attention = if needs > 0 { Role::Attention } else { Role::Muted };
        let lines: Vec<Span> = if area.width < 36 || area.height < 7 {
            vec![
                span(format!("{needs} need you"), attention),
                span(format!("{working} working"), Role::Ink),
                span(format!("{MIN_WIDTH}×{MIN_HEIGHT} ↔"), Role::Muted),
            ]
        } else {
            let counts = format!("needs you {needs} · working {working} · waiting {waiting}");
            vec![
                span(counts, attention),
                span("", Role::Ink),
                span(format!("This terminal is {}×{}.", area.width, area.height), Role::Ink),
                span(format!("ralph ui needs {MIN_WIDTH}×{MIN_HEIGHT} to show more."), Role::Ink),
                span("", Role::Ink),
                span("Runs continue. Make the window larger,", Role::Muted),
                span("or use: ralph ls --watch", Role::Muted),
                span("q quit", Role::Muted),
            ]
        };
        for (y, line) in (area.y..area.bottom()).zip(&lines) {
            self.canvas.put(area.x, y, area.width, &line.text, line.role);
        }
    }

    /// The line above the footer of a run.
    fn status_rule(&mut self, area: Rect) {
        let is_activity = self.model.tab == Tab::Activity && self.data.run.is_some();
        let card = self.model.shown_run().and_then(|id| self.data.card(id));
        let is_over = card.is_some_and(|card| !card.is_alive);
        let is_following = self.model.pages.activity.is_following();
        let remark = match () {
            () if !is_activity || is_over && is_following => String::new(),
            () if is_over => "G shows the end".to_owned(),
            () if self.model.pages.activity.is_following() => "following".to_owned(),
            () => match self.model.pages.activity.new_items {
                0 => "G follows".to_owned(),
                new => format!("{new} new, G follows"),
            },
        };
        self.canvas.titled_rule(area, &[], &[span(remark, Role::Muted)]);
        if self.model.search.is_none() && is_activity && !self.model.pages.activity.is_following() {
            self.layout.hits.push((area, Target::Command(Command::Last)));
        }
    }
}

/// Narrow screens have no margin.
pub(crate) fn margin(width: u16) -> u16 {
    u16::from(width >= 64)
}

/// Splits a text in two at a space: the figure in ink, the words muted.
fn split_roles(text: &str, at: Option<usize>, figure_last: bool) -> Vec<Span> {
    let Some(at) = at else { return vec![span(text, Role::Ink)] };
    let (first, last) = text.split_at(at);
    let roles = if figure_last { [Role::Muted, Role::Ink] } else { [Role::Ink, Role::Muted] };
    vec![span(first, roles[0]), span(last, roles[1])]
}
