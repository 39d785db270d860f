//! The changes of a run: files at the left, one of them at the right.

use ratatui_core::layout::Rect;

use ralph_monitor::diff::{DiffFile, FileDiff, LineKind, RunDiff};

use ralph_report::run_card::RunCard;

use super::{Target, View};
use crate::canvas::{Row, cut_path, span};
use crate::data::{DiffState, RunData};
use crate::theme::Role;

/// For a run that has ended, on a narrow screen and on others.
const TREE_OF_TODAY: (&str, &str) = (
    "The work tree as it is now.",
    "The work tree as it is now. It may have changed since the run ended.",
);

impl View<'_, '_> {
    pub(super) fn diff(&mut self, area: Rect, run: &RunData<'_>, card: &RunCard) {
        let mut area = area;
        if !card.is_alive {
            let text = if area.width < 72 { TREE_OF_TODAY.0 } else { TREE_OF_TODAY.1 };
            self.canvas.put(area.x + 1, area.y, area.width - 2, text, Role::Muted);
            area = Rect { y: area.y + 1, height: area.height - 1, ..area };
        }
        let text = match &run.detail.diff {
            DiffState::Ready(diff) if !diff.files.is_empty() => {
                self.files(area, diff, run);
                return;
            }
            DiffState::Ready(_) => "Nothing has changed since the run started.",
            DiffState::Unknown | DiffState::Loading => "reading the work tree",
            DiffState::Failed(error) => error,
        };
        self.sentence(area, text);
    }

    fn files(&mut self, area: Rect, diff: &RunDiff, run: &RunData<'_>) {
        let selected = self.model.pages.diff.at.min(diff.files.len() - 1);
        let (list, detail) = self.split(area, 42, diff.files.len() + 4);
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let files = plural(diff.files.len() + diff.omitted, "file");
        let left = vec![span(format!("{files}  {}", plural(diff.commits, "commit")), Role::Muted)];
        let right = vec![span(totals(diff.added, diff.removed), Role::Ink)];
        let inner = |y: u16| Rect { x: list.x + 1, y, width: list.width - 3, height: 1 };
        self.canvas.row(inner(list.y), &Row::new(left).with_right(right));
        let lines = file_lines(diff);
        let height = usize::from(list.height - 1);
        let at = lines.iter().position(|line| *line == ListLine::File(selected)).unwrap_or(0);
        let first = (at + 1).saturating_sub(height);
        for (line, y) in lines.iter().skip(first).zip(list.y + 1..list.bottom()) {
            match line {
                ListLine::Blank => {}
                ListLine::Heading(text) => {
                    self.canvas.put(list.x + 1, y, list.width - 2, text, Role::Muted);
                }
                ListLine::File(file) => {
                    let row = Rect { x: list.x, y, width: list.width - 1, height: 1 };
                    self.file_line(inner(y), &diff.files[*file]);
                    if *file == selected {
                        self.select_row(row);
                    }
                    self.layout.hits.push((row, Target::File(*file)));
                }
            }
        }
        self.file(detail, &diff.files[selected], run);
    }

    fn file_line(&mut self, area: Rect, file: &DiffFile) {
        let letter = file.status.letter();
        let role = match letter {
            'A' => Role::Done,
            'D' => Role::Failed,
            _ => Role::Muted,
        };
        let figure = |sign: &str, count: u64| {
            if count == 0 { String::new() } else { format!("{sign}{count}") }
        };
        let (added, removed) = match file.is_binary {
            true => (String::new(), "binary".to_owned()),
            false => (figure("+", file.added), figure("−", file.removed)),
        };
        self.canvas.put_right(area.right(), area.y, &removed, Role::Failed);
        self.canvas.put_right(area.right() - 5, area.y, &added, Role::Done);
        let room = area.width.saturating_sub(2 + 12);
        let path = cut_path(&file.path, usize::from(room), self.canvas.theme.ellipsis());
        self.canvas.put(area.x, area.y, 1, &letter.to_string(), role);
        self.canvas.put(area.x + 2, area.y, room, &path, Role::Ink);
    }

    fn file(&mut self, area: Rect, file: &DiffFile, run: &RunData<'_>) {
        // Beside the list, numbers stand one column nearer than other details.
        let shift = area.x.min(1);
        let page = Rect { x: area.x - shift, width: area.width + shift, ..area };
        let inner = Rect { x: page.x + 1, width: page.width - 2, height: 1, ..page };
        let right = vec![span(totals(file.added, file.removed), Role::Muted)];
        self.canvas.row(inner, &Row::of(&file.path, Role::Strong).with_right(right));
        let gap = if page.height > 8 { 2 } else { 1 };
        let page = Rect { y: page.y + gap, height: page.height.saturating_sub(gap), ..page };
        let rows = match &run.detail.file_diff {
            Some((path, Ok(diff))) if *path == file.path => {
                let (rows, changes) = file_rows(diff);
                self.layout.changes = changes;
                rows
            }
            Some((path, Err(error))) if *path == file.path => vec![Row::of(error, Role::Muted)],
            _ => vec![Row::of("reading", Role::Muted)],
        };
        self.scrolled(page, &rows, self.model.pages.diff.scroll);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ListLine {
    Blank,
    Heading(&'static str),
    File(usize),
}

fn file_lines(diff: &RunDiff) -> Vec<ListLine> {
    let mut lines = Vec::new();
    for (is_committed, heading) in [(false, "not committed yet"), (true, "committed")] {
        let files: Vec<usize> = (0..diff.files.len())
            .filter(|at| diff.files[*at].is_committed == is_committed)
            .collect();
        if files.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(ListLine::Blank);
        }
        lines.push(ListLine::Heading(heading));
        lines.extend(files.into_iter().map(ListLine::File));
    }
    lines
}

fn totals(added: u64, removed: u64) -> String {
    format!("+{added} −{removed}")
}

/// The rows of a file, and those at which a change starts.
fn file_rows(diff: &FileDiff) -> (Vec<Row>, Vec<usize>) {
    let mut rows = Vec::new();
    let mut changes = Vec::new();
    for hunk in &diff.hunks {
        changes.push(rows.len());
        let text = format!("@@ {},{} @@ {}", hunk.new_start, hunk.new_lines, hunk.section);
        rows.push(Row::of(text.trim_end(), Role::Muted));
        for line in &hunk.lines {
            let number =
                |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
            let (sign, role, is_added) = match line.kind {
                LineKind::Context => (' ', Role::Ink, None),
                LineKind::Added => ('+', Role::Done, Some(true)),
                LineKind::Removed => ('-', Role::Failed, Some(false)),
            };
            let numbers = format!("{:>3} {:>3} ", number(line.old), number(line.new));
            let text = line.text.replace('\t', "    ");
            let left = vec![span(numbers, Role::Muted), span(format!("{sign}{text}"), role)];
            rows.push(Row { diff: is_added, ..Row::new(left) });
        }
    }
    if diff.omitted > 0 {
        rows.push(Row::of(format!("{} more lines are not shown", diff.omitted), Role::Muted));
    }
    if rows.is_empty() {
        rows.push(Row::of("No text to show.", Role::Muted));
    }
    (rows, changes)
}
