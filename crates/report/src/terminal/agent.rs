use super::pen::StyledLine;
use super::speech::Speaker;
use super::words::plural;
use super::{MAX_DETAIL, Paragraph, TerminalReporter};
use crate::style::TextRole;
use crate::width;
use ralph_events::event::{Event, Stamp, Stream, TodoItem, TodoStatus};
use ralph_events::text;

const MAX_STDERR_LINES: usize = 5;

/// Calls that an agent makes at the same time.
const MAX_SHOWN_EDITS: usize = 32;

const MAX_TODOS: usize = 100;

impl TerminalReporter {
    pub(super) fn agent_event(&mut self, at: Stamp, event: &Event<'_>) {
        match event {
            Event::Text { text, joined, subagent } => {
                let speaker = if *subagent { Speaker::Subagent } else { Speaker::Agent };
                self.write_text(at, speaker, text, *joined);
            }
            Event::Thinking { text, joined, subagent } => {
                let speaker = if *subagent { Speaker::SubagentThinking } else { Speaker::Thinking };
                self.write_text(at, speaker, text, *joined);
            }
            Event::Output { stream: Stream::Stderr, joined, .. }
                if self.folds_stderr_line(*joined) => {}
            Event::Output { stream, text, joined } => {
                self.write_text(at, Speaker::Output(*stream), text, *joined)
            }
            Event::ToolStarted { id, name, summary, edit, subagent } => {
                self.tool_started(at, name, summary, indent(*subagent));
                if let Some(edit) = edit
                    && self.diff(at, indent(*subagent), edit)
                {
                    self.shown_edits.truncate(MAX_SHOWN_EDITS - 1);
                    self.shown_edits.push_front(id.as_ref().to_owned());
                }
            }
            Event::ToolEnded { .. } => self.tool_ended(at, event),
            Event::Todo { items } => self.todo(at, items),
            Event::Notice { text } | Event::Retracted { reason: text } => {
                let mark = self.marks.notice;
                let mut pen = self.line(at, Paragraph::Text);
                pen.text(mark).text(" ").start_style(TextRole::Faint).untrusted(text).plain().end();
            }
            Event::OutputOmitted { events, bytes } => {
                let words = format!(
                    "{}B of the agent's output ({events} event{}) left out: more than the journal has \
                     room for (runs.maxJournalMegabytes)",
                    text::format_count(*bytes),
                    plural(*events)
                );
                let mark = self.marks.more;
                self.line(at, Paragraph::Text).mark(mark, TextRole::Faint, &words).end();
            }
            _ => {}
        }
    }

    fn folds_stderr_line(&mut self, joined: bool) -> bool {
        if !joined {
            self.stderr_lines += 1;
            self.folded += usize::from(self.folds_stderr && self.stderr_lines > MAX_STDERR_LINES);
        }
        self.folded > 0
    }

    pub(super) fn show_folded_count(&mut self, at: Stamp) {
        self.stderr_lines = 0;
        let lines = std::mem::take(&mut self.folded);
        if lines == 0 {
            return;
        }
        let words = format!(
            "{} {lines} more line{} on stderr (the journal has them)",
            self.marks.more,
            plural(lines as u64)
        );
        self.line(at, Paragraph::Text).paint(TextRole::Faint, &words).end();
    }

    fn tool_started(&mut self, at: Stamp, name: &str, summary: &str, indent: &str) {
        let marks = self.marks;
        let clean = |words: &str| width::one_line(words, MAX_DETAIL, marks.more);
        let mut call = StyledLine::new("");
        call.push(TextRole::Heading, &clean(name));
        if !summary.is_empty() {
            call.text.extend(["(", &clean(&self.paths.relative(summary)), ")"]);
        }
        let before = [indent, marks.tool, " "].concat();
        let column = self.stamp_width() + width::display_width(&before);
        let mut pen = self.line(at, Paragraph::Tool);
        pen.text(indent).paint(TextRole::Tool, marks.tool).text(" ");
        pen.wrapped(&call, column).end();
    }

    fn tool_ended(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::ToolEnded { id, name, failed, denied, lines, chars, preview, subagent } = event
        else {
            return;
        };
        let marks = self.marks;
        let (mark, word, paint) = match (denied, failed) {
            (true, _) => (marks.denied, "Denied", TextRole::Bad),
            (_, true) => (marks.error, "Error", TextRole::Bad),
            _ => (marks.ok, "Result", TextRole::Good),
        };
        let (line_s, char_s) = (plural(*lines), plural(*chars));
        let size = format!(" ({lines} line{line_s}, {chars} char{char_s})");
        let indent = indent(*subagent);
        let mut pen = self.line(at, Paragraph::Tool);
        pen.text(indent).mark(mark, paint, word);
        pen.text(" ").text(marks.from).text(" ").untrusted(name);
        pen.paint(TextRole::Faint, &size).end();
        let shown_edit = self.shown_edits.iter().position(|shown| *shown == **id);
        shown_edit.map(|nth| self.shown_edits.remove(nth));
        if shown_edit.is_none() || *failed {
            self.preview(at, indent, preview, (*lines, *chars));
        }
    }

    fn todo(&mut self, at: Stamp, items: &[TodoItem]) {
        if items.is_empty() {
            return;
        }
        let marks = self.marks;
        self.line(at, Paragraph::Todo).mark(marks.todo, TextRole::Heading, "Todo List").end();
        for item in items.iter().take(MAX_TODOS) {
            let mut pen = self.line(at, Paragraph::Todo);
            pen.text("  ");
            match item.status {
                TodoStatus::Completed => {
                    pen.text(marks.done).text(" ").start_style(TextRole::Faint);
                    pen.untrusted(&item.text).plain();
                }
                TodoStatus::InProgress => {
                    pen.text(marks.active).text(" ").start_style(TextRole::Heading);
                    pen.untrusted(&item.text).plain();
                    pen.text(" ").text(marks.from).text(" ACTIVE");
                }
                TodoStatus::Pending => {
                    pen.text(marks.pending).text(" ").untrusted(&item.text);
                }
            }
            pen.end();
        }
        if items.len() > MAX_TODOS {
            let rest = format!("  {} {} more", marks.more, items.len() - MAX_TODOS);
            self.line(at, Paragraph::Todo).text(&rest).end();
        }
        let done = items.iter().filter(|item| item.status == TodoStatus::Completed).count();
        let (all, percent) = (items.len(), done * 100 / items.len());
        let progress = format!("  {}Progress: {done}/{all} ({percent}%)", marks.progress);
        self.line(at, Paragraph::Todo).text(&progress).end();
    }
}

/// Subagents are indented.
fn indent(subagent: bool) -> &'static str {
    if subagent { "  " } else { "" }
}
