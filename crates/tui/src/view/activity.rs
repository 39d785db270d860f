//! The transcript: iterations, text, tools, checks, commits, questions and your messages.

use std::borrow::Cow;

use ratatui_core::layout::Rect;

use ralph_events::event::{FileEdit, TodoStatus};
use ralph_events::run_state::IterationRecord;
use ralph_events::text::format_duration;
use ralph_monitor::CheckLog;
use ralph_report::check_view::CheckMark;
use ralph_report::run_card::RunCard;
use ralph_report::transcript::{
    CheckItem, Item, ItemKind, Level, ToolItem, ToolStatus, Voice, Wait,
};
use ralph_report::width::wrap;

use super::fleet::cost_text;
use super::{Target, View};
use crate::canvas::{Row, Span, span, spans_width};
use crate::data::{Data, RunData};
use crate::model::can_tell;
use crate::theme::Role;

/// Where texts start, after the time.
const INDENT: usize = 7;
/// Lines of a failed tool's output, and of a change.
const OUTPUT_LINES: usize = 2;
const REMOVED_LINES: usize = 2;
const ADDED_LINES: usize = 3;
/// From so many on, reads and searches in a row are one line.
const COLLAPSE_FROM: usize = 4;

/// A line and the item that it belongs to.
pub(crate) struct AnchoredRow {
    pub(crate) anchor: (u64, u16),
    pub(crate) row: Row,
}

impl View<'_, '_> {
    pub(super) fn activity(&mut self, area: Rect, run: &RunData<'_>, card: &RunCard) {
        let width = usize::from(area.width) - 2;
        let mut lines = self.lines(run, card, width);
        if lines.is_empty() {
            let text = match card.reading {
                Some(percent) => format!("reading {percent}%"),
                None => "Nothing has happened yet.".to_owned(),
            };
            self.canvas.put(area.x + 1, area.y + 1, area.width - 2, &text, Role::Muted);
        }
        if card.is_alive && !run.has_newer && !run.todo.is_empty() {
            let last = lines.last().map_or((0, 0), |line| line.anchor);
            lines.push(AnchoredRow { anchor: (last.0, last.1 + 1), row: Row::blank() });
            lines.push(AnchoredRow { anchor: (last.0, last.1 + 2), row: todo_row(run) });
        }
        // A line of air below the tabs; a transcript that is longer than the screen starts there, too.
        let height = usize::from(area.height);
        let last_top = lines.len().saturating_sub(height);
        let top = match self.model.pages.activity.top {
            None => last_top,
            Some(anchor) => lines
                .iter()
                .position(|line| line.anchor >= anchor)
                .unwrap_or(last_top)
                .min(last_top),
        };
        let hit = self.model.search.as_ref().and_then(|search| search.shown);
        for (line, y) in lines[top..].iter().zip(area.y..area.bottom()) {
            let row = Rect { x: area.x + 1, y, width: area.width - 2, height: 1 };
            self.canvas.row(row, &line.row);
            if hit == Some(line.anchor.0) {
                self.mark_matches(row);
            }
        }
        self.layout.hits.push((area, Target::Detail));
        self.layout.anchors = lines.iter().map(|line| line.anchor).collect();
        (self.layout.top, self.layout.total, self.layout.height) = (top, lines.len(), height);
    }

    /// Reverses the text that is searched for.
    pub(super) fn mark_matches(&mut self, row: Rect) {
        let Some(search) = &self.model.search else { return };
        let wanted: Vec<char> = search.field.text().to_lowercase().chars().collect();
        let cell = |view: &Self, x: u16| {
            let cell = view.canvas.buffer.cell((x, row.y));
            cell.and_then(|cell| cell.symbol().chars().next()).unwrap_or(' ')
        };
        let shown: Vec<char> = (row.x..row.right())
            .map(|x| cell(self, x).to_lowercase().next().unwrap_or(' '))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let starts = shown.windows(wanted.len()).enumerate().filter(|(_, part)| *part == wanted);
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        for x in starts.iter().flat_map(|at| *at..*at + wanted.len()) {
            let x = row.x + u16::try_from(x).unwrap_or_default();
            if let Some(cell) = self.canvas.buffer.cell_mut((x, row.y)) {
                cell.modifier.insert(ratatui_core::style::Modifier::REVERSED);
            }
        }
    }

    fn lines(&self, run: &RunData<'_>, card: &RunCard, width: usize) -> Vec<AnchoredRow> {
        let mut lines: Vec<AnchoredRow> = Vec::new();
        let mut at = 0;
        while let Some(item) = run.items.get(at) {
            let lookups = run.items[at..].iter().take_while(|item| is_done_lookup(item)).count();
            let (rows, count) = if lookups >= COLLAPSE_FROM {
                (vec![lookups_row(&run.items[at..at + lookups])], lookups)
            } else {
                (self.item_rows(item, run, card, width), 1)
            };
            if let (ItemKind::Iteration { .. }, Some(last)) = (&item.kind, lines.last()) {
                // The gap belongs to what is above: jumps to an iteration start at its line.
                let (id, line) = last.anchor;
                lines.push(AnchoredRow { anchor: (id, line + 1), row: Row::blank() });
            }
            for (row, line) in rows.into_iter().zip(0..) {
                lines.push(AnchoredRow { anchor: (item.id, line), row });
            }
            at += count;
        }
        lines
    }

    /// The last lines of a run, each item as short as possible.
    pub(super) fn preview_rows(&self, card: &RunCard, width: u16, height: usize) -> Vec<Row> {
        let Some(run) = self.data.run(&card.id) else {
            let text = self.data.reading_text(card).unwrap_or_default();
            return vec![Row::of(text, Role::Muted)];
        };
        let mut rows: Vec<Row> = Vec::new();
        for item in run.items.iter().rev() {
            let mut short = self.item_rows(item, run, card, usize::from(width));
            match &item.kind {
                ItemKind::Tool(tool) if tool.status == ToolStatus::Failed => {
                    short.truncate(2);
                    if let Some(row) = short.get_mut(1) {
                        // No bar beside a single line.
                        if let Some(bar) = row.left.first_mut() {
                            bar.text = " ".repeat(INDENT + 2);
                        }
                    }
                }
                ItemKind::Tool(_) | ItemKind::Check(_) => short.truncate(1),
                _ if short.len() > 1 => {
                    short.truncate(1);
                    if let Some(text) = short[0].left.last_mut() {
                        text.text.truncate(text.text.trim_end().len());
                        text.text.push_str(self.canvas.theme.ellipsis());
                    }
                }
                _ => {}
            }
            if width < 100
                && matches!(item.kind, ItemKind::You { .. })
                && let Some(note) = short.first_mut().and_then(|row| row.right.first_mut())
                && note.text.starts_with("delivered")
            {
                "delivered".clone_into(&mut note.text);
            }
            if rows.len() + short.len() > height {
                break;
            }
            short.reverse();
            rows.extend(short);
        }
        rows.reverse();
        rows
    }

    fn item_rows(&self, item: &Item, run: &RunData<'_>, card: &RunCard, width: usize) -> Vec<Row> {
        match &item.kind {
            ItemKind::Iteration { number } => vec![self.iteration_row(*number, run, card)],
            ItemKind::Text { voice, text, .. } => {
                let role = match voice {
                    Voice::Agent => Role::Ink,
                    _ => Role::Muted,
                };
                self.text_rows(item.time_ms, &[], &without_tags(text), role, width)
            }
            ItemKind::Tool(tool) => self.tool_rows(tool, item.time_ms),
            ItemKind::Check(check) => check_rows(check, run.detail.check_logs.get(&check.log)),
            ItemKind::Commit { id, subject } => {
                let before = [span("Committed ", Role::Ink), span(format!("{id} "), Role::Strong)];
                self.text_rows(item.time_ms, &before, subject, Role::Ink, width)
            }
            ItemKind::Question { text, is_answered, .. } => {
                let word = if *is_answered { "asked " } else { "asks " };
                let role = if *is_answered { Role::Muted } else { Role::Attention };
                self.text_rows(
                    item.time_ms,
                    &[span("?  ", role), span(word, role)],
                    text,
                    Role::Ink,
                    width,
                )
            }
            ItemKind::You { text, every, delivered_in, .. } => {
                let note = match (delivered_in, every) {
                    (Some(iteration), _) => format!("delivered with iteration {iteration}"),
                    (None, _) if !can_tell(card) => "not delivered".to_owned(),
                    (None, true) => "for every iteration".to_owned(),
                    (None, false) => format!("waits for iteration {}", card.iteration + 1),
                };
                let room = width.saturating_sub(note.len() + 1);
                let mut rows = self.text_rows(
                    item.time_ms,
                    &[span("you  ", Role::Strong)],
                    text,
                    Role::Ink,
                    room,
                );
                rows[0].right = vec![span(note, Role::Muted)];
                rows
            }
            ItemKind::Claim { stories, failed } => {
                let is = if stories.len() == 1 { "is" } else { "are" };
                let reason = match failed.as_slice() {
                    [] => "the checks did not finish.".to_owned(),
                    failed => format!(
                        "{} failed. Iteration {} gets the reason.",
                        failed.join(", "),
                        item.iteration + 1
                    ),
                };
                let text = format!("{} {is} claimed, not proven: {reason}", stories.join(", "));
                self.text_rows(
                    item.time_ms,
                    &[span("~ ", Role::Attention)],
                    &text,
                    Role::Ink,
                    width,
                )
            }
            ItemKind::Wait { reason, until_ms, ended_ms } => {
                let text = self.wait_text(*reason, *until_ms, *ended_ms, item.time_ms);
                self.text_rows(item.time_ms, &[span("○ ", Role::Muted)], &text, Role::Muted, width)
            }
            ItemKind::Notice { level, text } => {
                let role = match level {
                    Level::Info => Role::Muted,
                    Level::Warning => Role::Ink,
                    Level::Failure => Role::Failed,
                };
                self.text_rows(item.time_ms, &[], text, role, width)
            }
        }
    }

    fn iteration_row(&self, number: u32, run: &RunData<'_>, card: &RunCard) -> Row {
        let record = run.state.iterations.iter().rfind(|record| record.number == number);
        let bar = card.bars.iter().rfind(|bar| bar.iteration == number);
        let mut left = vec![span(format!("iteration {number}"), Role::Strong)];
        if let Some(story) = record.and_then(|record| record.story.as_ref()) {
            left.push(span(format!("  {} {}", story.id, story.title), Role::Muted));
        }
        let separator = if self.canvas.theme.ascii { " | " } else { " · " };
        let facts = [
            bar.map(|bar| format_duration(bar.duration_ms)).unwrap_or_default(),
            bar.map(|bar| cost_text(bar.cost)).unwrap_or_default(),
            tools_text(number, record, run),
        ];
        let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        let right = vec![span(facts.join(separator), Role::Muted)];
        Row { left, right, is_ruled: true, diff: None }
    }

    /// A text after its time, wrapped. `before` stands on its first line.
    fn text_rows(
        &self,
        time_ms: i64,
        before: &[Span],
        text: &str,
        role: Role,
        width: usize,
    ) -> Vec<Row> {
        let room = width.saturating_sub(INDENT).max(8);
        let used = spans_width(before);
        let mut rows = Vec::new();
        for line in text.trim_end().lines() {
            let first = if rows.is_empty() { room.saturating_sub(usize::from(used)) } else { room };
            for range in wrap(line, first, room) {
                let start = match rows.is_empty() {
                    true => format!("{}  ", self.data.clock(time_ms)),
                    false => " ".repeat(INDENT),
                };
                let mut left = vec![span(start, Role::Muted)];
                if rows.is_empty() {
                    left.extend_from_slice(before);
                }
                left.push(span(&line[range], role));
                rows.push(Row::new(left));
            }
        }
        if rows.is_empty() {
            rows.push(Row::of(self.data.clock(time_ms), Role::Muted));
        }
        rows
    }

    fn tool_rows(&self, tool: &ToolItem, started_ms: i64) -> Vec<Row> {
        let (sign, note) = match tool.status {
            ToolStatus::Running => (Role::Working, Role::Working),
            ToolStatus::Done => (Role::Done, Role::Muted),
            ToolStatus::Failed | ToolStatus::Denied => (Role::Failed, Role::Failed),
            ToolStatus::Abandoned => (Role::Muted, Role::Muted),
        };
        let mut left = indented(tool.status.sign(), sign);
        if tool.is_subagent {
            left.push(span("in a subagent: ", Role::Muted));
        }
        left.push(span(tool.text(), Role::Ink));
        let right = match tool.status {
            ToolStatus::Running => Data::span(self.data.now_ms - started_ms),
            _ => tool.note.clone(),
        };
        let mut rows = vec![Row::new(left).with_right(vec![span(right, note)])];
        if let (ToolStatus::Done, Some(edit)) = (tool.status, &tool.edit) {
            rows.extend(edit_rows(edit));
        }
        if matches!(tool.status, ToolStatus::Failed | ToolStatus::Denied) {
            let lines: Vec<&str> = tool.preview.lines().collect();
            rows.extend(output_rows(&lines, usize::try_from(tool.lines).unwrap_or(0)));
        }
        rows
    }

    fn wait_text(
        &self,
        reason: Wait,
        until_ms: i64,
        ended_ms: Option<i64>,
        since_ms: i64,
    ) -> String {
        let word = match reason {
            Wait::RateLimit => "rate limit",
            Wait::Backoff => "back-off before a retry",
            Wait::Paused => "paused by you",
            Wait::Parked => "waits for your answer",
        };
        match ended_ms {
            Some(ended) => format!("{word}, {}", Data::span(ended - since_ms)),
            None if until_ms < i64::MAX => format!("{word} until {}", self.data.clock(until_ms)),
            None => word.to_owned(),
        }
    }
}

/// The agent's verdict without its tags, after the text before it.
fn without_tags(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once("<response>") else { return text.into() };
    let Some((verdict, after)) = rest.split_once("</response>") else { return text.into() };
    let space = if before.trim().is_empty() { "" } else { " " };
    format!("{}{space}{}{}", before.trim_end(), verdict.trim(), without_tags(after)).into()
}

/// A running attempt is counted when it ends: until then, its calls are.
fn tools_text(number: u32, record: Option<&IterationRecord>, run: &RunData<'_>) -> String {
    let is_call =
        |item: &&&Item| item.iteration == number && matches!(item.kind, ItemKind::Tool(_));
    let calls = || u32::try_from(run.items.iter().filter(is_call).count()).unwrap_or(u32::MAX);
    match record.map(|record| record.tools).filter(|tools| *tools > 0).unwrap_or_else(calls) {
        0 => String::new(),
        1 => "1 tool".to_owned(),
        tools => format!("{tools} tools"),
    }
}

fn indented(sign: &str, role: Role) -> Vec<Span> {
    vec![span(" ".repeat(INDENT), Role::Ink), span(format!("{sign} "), role)]
}

fn is_done_lookup(item: &Item) -> bool {
    matches!(&item.kind, ItemKind::Tool(tool) if tool.is_lookup && tool.status == ToolStatus::Done)
}

/// Reads and searches in a row.
fn lookups_row(items: &[&Item]) -> Row {
    let names: Vec<String> = items
        .iter()
        .filter_map(|item| match &item.kind {
            ItemKind::Tool(tool) => Some(tool.text()),
            _ => None,
        })
        .collect();
    let mut left = indented(ToolStatus::Done.sign(), Role::Done);
    left.push(span(names[..2].join(", "), Role::Ink));
    left.push(span(format!(" and {} more", names.len() - 2), Role::Muted));
    Row::new(left).with_right(vec![span("reads and searches", Role::Muted)])
}

fn bar_row(text: impl Into<String>, role: Role) -> Row {
    let bar = format!("{}│ ", " ".repeat(INDENT + 2));
    Row::new(vec![span(bar, Role::Line), span(text, role)])
}

/// The first lines of a change. A new file shows none.
fn edit_rows(edit: &FileEdit) -> Vec<Row> {
    let rows = |text: &str, count: usize, sign: &str, role: Role| -> Vec<Row> {
        let lines = text.lines().take(count);
        lines.map(|line| bar_row(format!("{sign}{line}"), role)).collect()
    };
    if edit.old.is_empty() {
        return Vec::new();
    }
    [
        rows(&edit.old, REMOVED_LINES, "-", Role::Failed),
        rows(&edit.new, ADDED_LINES, "+", Role::Done),
    ]
    .concat()
}

/// The first lines of an output, and how many more there are.
fn output_rows(lines: &[&str], total: usize) -> Vec<Row> {
    let lines: Vec<&str> = lines.iter().filter(|line| !line.trim().is_empty()).copied().collect();
    let mut rows: Vec<Row> =
        lines.iter().take(OUTPUT_LINES).map(|line| bar_row(line.trim(), Role::Muted)).collect();
    let more = total.max(lines.len()).saturating_sub(rows.len());
    if more > 0 && !rows.is_empty() {
        let plural = if more == 1 { "" } else { "s" };
        rows.push(bar_row(format!("{more} more line{plural}"), Role::Muted));
    }
    rows
}

fn check_rows(check: &CheckItem, log: Option<&CheckLog>) -> Vec<Row> {
    let (sign, role) = match check.mark {
        None => ("●", Role::Working),
        Some(CheckMark::Passed) => ("✓", Role::Done),
        Some(CheckMark::Failed) => ("✗", Role::Failed),
        Some(CheckMark::Interrupted) => ("~", Role::Muted),
        Some(CheckMark::NotRun) => ("·", Role::Muted),
    };
    let mut left = indented(sign, role);
    left.push(span(&check.command, Role::Ink));
    let note = if check.mark == Some(CheckMark::Failed) { Role::Failed } else { Role::Muted };
    let mut rows = vec![Row::new(left).with_right(vec![span(&check.note, note)])];
    if let (Some(CheckMark::Failed), Some(log)) = (check.mark, log) {
        // The end of an output says what failed.
        let lines: Vec<&str> =
            log.lines.iter().map(String::as_str).filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(OUTPUT_LINES)..];
        rows.extend(output_rows(last, log.total));
    }
    rows
}

fn todo_row(run: &RunData<'_>) -> Row {
    let done = run.todo.iter().filter(|item| item.status == TodoStatus::Completed).count();
    let mut left = vec![
        span(" ".repeat(INDENT), Role::Ink),
        span(format!("todo {done}/{}", run.todo.len()), Role::Muted),
    ];
    for item in run.todo {
        let (sign, sign_role, role) = match item.status {
            TodoStatus::Completed => ("✓", Role::Done, Role::Muted),
            TodoStatus::InProgress => ("●", Role::Working, Role::Ink),
            TodoStatus::Pending => ("○", Role::Muted, Role::Muted),
        };
        left.push(span(format!("  {sign}"), sign_role));
        left.push(span(format!(" {}", item.text), role));
    }
    Row::new(left)
}
