//! The task list: what is proven, claimed, in work and next, and the proof of one story.

use ratatui_core::layout::Rect;

use ralph_events::text::format_duration;
use ralph_report::check_view::CheckMark;
use ralph_report::story_view::{StoryState, StoryView};
use ralph_report::width::wrap;

use super::fleet::cost_text;
use super::{Target, View};
use crate::canvas::{Row, span};
use crate::data::RunData;
use crate::theme::Role;

impl View<'_, '_> {
    pub(super) fn stories(&mut self, area: Rect, run: &RunData<'_>) {
        if run.detail.stories.is_empty() {
            let text = run.detail.stories_error.as_deref().unwrap_or("This run has no task list.");
            self.sentence(area, text);
            return;
        }
        let selected = self.model.pages.stories.at.min(run.detail.stories.len() - 1);
        let rows = story_lines(run);
        let (list, detail) = self.split(area, 54, rows.len() + 2);
        let summary =
            summary(&run.detail.stories, if self.canvas.theme.ascii { " | " } else { " · " });
        self.canvas.put(list.x + 1, list.y, list.width - 2, &summary, Role::Muted);
        let top = list.y + if list.height > 10 { 2 } else { 1 };
        let height = usize::from(list.bottom() - top);
        let at = rows.iter().position(|(story, _)| *story == selected).unwrap_or(0);
        let first = (at + 2).saturating_sub(height);
        for ((story, row), y) in rows.iter().skip(first).zip(top..list.bottom()) {
            let line = Rect { y, height: 1, ..list };
            self.canvas.row(Rect { x: list.x + 1, width: list.width - 3, ..line }, row);
            if *story == selected && !row.right.is_empty() {
                self.select_row(Rect { width: list.width - 1, ..line });
            }
            self.layout.hits.push((line, Target::Story(*story)));
        }
        let rows = self.story_rows(&run.detail.stories[selected], usize::from(detail.width) - 2);
        self.scrolled(detail, &rows, self.model.pages.stories.scroll);
    }

    /// A list at the left and a detail at the right; below 80 columns, one above the other.
    pub(super) fn split(&mut self, area: Rect, list: u16, rows: usize) -> (Rect, Rect) {
        if area.width < 80 {
            let half = area.height / 2;
            let height = u16::try_from(rows).unwrap_or(half).min(half);
            let upper = Rect { height, ..area };
            self.canvas.rule(area.x, upper.bottom(), area.width);
            let top = upper.bottom() + 1;
            return (upper, Rect { y: top, height: area.bottom() - top, ..area });
        }
        let list = if area.width < 110 { (area.width * 2 / 5).min(list) } else { list };
        self.canvas.vertical_rule(area.x + list, area.y, area.bottom());
        let x = area.x + list + 2;
        (Rect { width: list, ..area }, Rect { x, width: area.right() - x, ..area })
    }

    /// Says why a page is empty.
    pub(super) fn sentence(&mut self, area: Rect, text: &str) {
        let area = Rect { x: area.x + 1, width: area.width - 2, ..area };
        self.paragraph(area, area.y + 1, text, Role::Muted);
    }

    /// Rows from `top` on; remembers how far they can be scrolled.
    pub(super) fn scrolled(&mut self, area: Rect, rows: &[Row], top: usize) {
        let height = usize::from(area.height);
        let top = top.min(rows.len().saturating_sub(height));
        if let Some(search) = self.model.search.as_ref().filter(|it| !it.field.is_blank()) {
            let wanted = search.field.text().to_lowercase();
            let lines = rows.iter().enumerate().filter(|(_, row)| row.matches(&wanted));
            self.layout.matches = lines.map(|(at, _)| at as u64).collect();
        }
        for (row, y) in rows[top..].iter().zip(area.y..area.bottom()) {
            let line = Rect { x: area.x + 1, y, width: area.width - 2, height: 1 };
            self.canvas.row(line, row);
            if self.model.search.is_some() {
                self.mark_matches(line);
            }
        }
        self.layout.hits.push((area, Target::Detail));
        (self.layout.top, self.layout.total, self.layout.height) = (top, rows.len(), height);
    }

    fn story_rows(&self, story: &StoryView, width: usize) -> Vec<Row> {
        let heading = |text: &str| Row::of(text, Role::Muted);
        let title =
            vec![span(format!("{}  ", story.id), Role::Muted), span(&story.title, Role::Strong)];
        let state = vec![span(story.state.as_str(), state_role(story.state))];
        let mut rows = vec![Row::new(title).with_right(state), Row::blank()];
        rows.push(heading("criteria"));
        for text in &story.criteria {
            rows.extend(paragraph(text, "· ", width));
        }
        if !story.claim.trim().is_empty() {
            rows.extend([Row::blank(), heading("claimed by the agent")]);
            rows.extend(story.claim.trim().lines().flat_map(|line| paragraph(line, "", width)));
        }
        if let Some((_, first)) = story.checks.first() {
            let right = vec![span(format!("iteration {}", first.iteration), Role::Muted)];
            rows.extend([Row::blank(), heading("checked by ralph").with_right(right)]);
        }
        for (command, check) in &story.checks {
            let sign =
                if self.canvas.theme.ascii { check.mark.ascii_sign() } else { check.mark.sign() };
            let left =
                vec![span(format!("{sign} "), mark_role(check.mark)), span(command, Role::Ink)];
            let right = vec![span(format_duration(check.duration_ms), Role::Muted)];
            rows.push(Row::new(left).with_right(right));
        }
        for (id, subject) in &story.commits {
            rows.push(Row::new(vec![
                span(format!("{id} "), Role::Strong),
                span(subject, Role::Ink),
            ]));
        }
        if !story.history.is_empty() {
            rows.extend([Row::blank(), heading("history")]);
        }
        for claim in &story.history {
            let (sign, role) =
                if claim.proven { ("✓", Role::Done) } else { ("~", Role::Attention) };
            rows.push(Row::new(vec![
                span(format!("iter {}  ", claim.iteration), Role::Muted),
                span(format!("{sign} "), role),
                span(claim.text(), Role::Ink),
            ]));
        }
        if !story.waits_for.is_empty() {
            let text = format!("Waits for {}.", story.waits_for.join(", "));
            rows.extend([Row::blank(), Row::of(text, Role::Ink)]);
        }
        rows.extend(cost_rows(story));
        rows
    }
}

fn cost_rows(story: &StoryView) -> Vec<Row> {
    if story.iterations.is_empty() {
        return Vec::new();
    }
    let count = story.iterations.len();
    let plural = if count == 1 { "" } else { "s" };
    let numbers: Vec<String> = story.iterations.iter().map(u32::to_string).collect();
    let cost = match cost_text(story.cost) {
        cost if cost.is_empty() => "Cost unknown".to_owned(),
        cost => cost,
    };
    let text = format!(
        "{cost} in {count} iteration{plural} ({}), {}",
        numbers.join(", "),
        format_duration(story.duration_ms)
    );
    vec![Row::blank(), Row::of("cost", Role::Muted), Row::of(text, Role::Ink)]
}

/// A text wrapped to a width; later lines stand below the first.
pub(super) fn paragraph(text: &str, bullet: &str, width: usize) -> Vec<Row> {
    let indent = bullet.chars().count();
    let room = width.saturating_sub(indent).max(8);
    wrap(text, room, room)
        .into_iter()
        .enumerate()
        .map(|(at, range)| {
            let start = if at == 0 { bullet.to_owned() } else { " ".repeat(indent) };
            Row::new(vec![span(start, Role::Muted), span(&text[range], Role::Ink)])
        })
        .collect()
}

/// One line for each story, and one for what it waits for.
fn story_lines(run: &RunData<'_>) -> Vec<(usize, Row)> {
    let mut lines = Vec::new();
    // The list calls the story in work the next one.
    let next = run
        .detail
        .stories
        .iter()
        .position(|story| matches!(story.state, StoryState::Next | StoryState::CanStart));
    for (at, story) in run.detail.stories.iter().enumerate() {
        let sign = story.state.sign();
        let role = if story.state == StoryState::WaitsFor { Role::Muted } else { Role::Ink };
        let left = vec![
            span(format!("{sign} "), state_role(story.state)),
            span(format!("{}  {}", story.id, story.title), role),
        ];
        let right = match story.state {
            StoryState::Proven => {
                story.proven_in.map_or("proven".to_owned(), |it| format!("iter {it}"))
            }
            StoryState::InWork => "now".to_owned(),
            StoryState::Next | StoryState::CanStart if next == Some(at) => "next".to_owned(),
            StoryState::CanStart => " ".to_owned(),
            state => state.as_str().to_owned(),
        };
        lines.push((at, Row::new(left).with_right(vec![span(right, Role::Muted)])));
        if story.state == StoryState::WaitsFor {
            let text =
                format!("{}after {}", " ".repeat(story.id.len() + 4), story.waits_for.join(", "));
            lines.push((at, Row::of(text, Role::Muted)));
        }
    }
    lines
}

/// `4 proven · 1 in work · 2 to do`.
fn summary(stories: &[StoryView], separator: &str) -> String {
    let count =
        |wanted: &[StoryState]| stories.iter().filter(|it| wanted.contains(&it.state)).count();
    let parts = [
        (count(&[StoryState::Proven]), "proven"),
        (count(&[StoryState::Claimed]), "claimed"),
        (count(&[StoryState::InWork]), "in work"),
        (count(&[StoryState::Next, StoryState::CanStart, StoryState::WaitsFor]), "to do"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(separator)
}

fn state_role(state: StoryState) -> Role {
    match state {
        StoryState::Proven => Role::Done,
        StoryState::Claimed => Role::Attention,
        StoryState::InWork => Role::Working,
        StoryState::Next | StoryState::CanStart => Role::Ink,
        StoryState::WaitsFor => Role::Muted,
    }
}

pub(super) fn mark_role(mark: CheckMark) -> Role {
    match mark {
        CheckMark::Passed => Role::Done,
        CheckMark::Failed => Role::Failed,
        CheckMark::Interrupted | CheckMark::NotRun => Role::Muted,
    }
}
