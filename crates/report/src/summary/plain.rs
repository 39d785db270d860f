//! The report as text or Markdown.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration::{self, COLUMNS, IterationRow};
use super::overview::short_run_id;
use super::sections::{Line, LineKind, Section, report};
use super::words::{output_line, sanitize, wrap};
use super::{IterationSummary, Summary};
use crate::style::TextRole;
use crate::width;

/// Lines on a terminal are wrapped here, or at its width if it is narrower.
const MAX_WIDTH: usize = 80;
const MIN_WIDTH: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Lines are wrapped for a terminal of this width; programs that search them get them whole.
    Plain {
        color: bool,
        width: Option<usize>,
    },
    Markdown,
}

pub fn render(facts: &Summary, zone: &TimeZone, format: TextFormat) -> String {
    let report = report(facts, zone);
    let (title, state) = (sanitize(&facts.title), facts.state.as_str());
    let TextFormat::Plain { color, width } = format else {
        let mut page = MarkdownPage { out: format!("# {} — {state}\n\n", escape(&title)) };
        let _ = writeln!(page.out, "{}\n", escape(&sanitize(&report.lead)));
        report.findings.iter().chain(&report.next).for_each(|section| page.section(section));
        page.iterations(&facts.iterations);
        report.history.iter().for_each(|section| page.section(section));
        return page.out;
    };
    let width = width.map(|width| width.clamp(MIN_WIDTH, MAX_WIDTH));
    let mut page = TextPage { out: String::new(), color, width };
    page.title(facts, &title);
    page.paragraph("", "", &report.lead);
    report.findings.iter().for_each(|section| page.section("  ", section));
    page.iterations(&facts.iterations);
    report.history.iter().for_each(|section| page.section("  ", section));
    report.next.iter().for_each(|section| page.section("", section));
    page.out
}

struct TextPage {
    out: String,
    color: bool,
    width: Option<usize>,
}

impl TextPage {
    fn paint(&self, role: TextRole, words: &str) -> String {
        if !self.color {
            return words.to_owned();
        }
        let style = role.style();
        format!("{style}{words}{style:#}")
    }

    fn title(&mut self, facts: &Summary, title: &str) {
        let (state, run) = (facts.state.as_str(), format!("run {}", sanitize(short_run_id(facts))));
        let used = width::display_width(&format!("{title} — {state}{run}"));
        let gap = self.width.unwrap_or(MAX_WIDTH).saturating_sub(used).max(2);
        let title = self.paint(TextRole::Heading, title);
        let state = self.paint(facts.state.role(), state);
        let run = self.paint(TextRole::Faint, &run);
        let _ = writeln!(self.out, "{title} — {state}{:gap$}{run}", "");
    }

    /// `rest` is the indent of all lines but the first.
    fn paragraph(&mut self, first: &str, rest: &str, words: &str) {
        let room = self.width.unwrap_or(usize::MAX).saturating_sub(rest.len());
        for (at, line) in wrap(&sanitize(words), room).iter().enumerate() {
            let indent = if at == 0 { first } else { rest };
            let _ = writeln!(self.out, "{indent}{line}");
        }
    }

    fn heading(&mut self, indent: &str, heading: &str) {
        self.out.push('\n');
        if !heading.is_empty() {
            let heading = self.paint(TextRole::Heading, &sanitize(heading));
            let _ = writeln!(self.out, "{indent}{heading}");
        }
    }

    fn section(&mut self, indent: &str, section: &Section) {
        self.heading(indent, &section.heading);
        // The first rows stand without a heading.
        let indent = if section.heading.is_empty() { "  " } else { &format!("{indent}  ") };
        let names = section.lines.iter().map(|line| line.kind.name().len()).max().unwrap_or(0);
        for line in &section.lines {
            match line.kind {
                LineKind::Row(name) => {
                    let name = self.paint(TextRole::Faint, &format!("{name:<names$}"));
                    let rest = " ".repeat(indent.len() + names + 2);
                    self.paragraph(&format!("{indent}{name}  "), &rest, &line.text);
                }
                LineKind::Quote => self.paragraph(indent, indent, &line.text),
                LineKind::Item => self.paragraph(indent, &format!("{indent}  "), &line.text),
                LineKind::Code | LineKind::Commit => {
                    let _ = writeln!(self.out, "{indent}{}", output_line(&line.text));
                }
            }
        }
    }

    fn iterations(&mut self, iterations: &[IterationSummary]) {
        if iterations.is_empty() {
            return;
        }
        self.heading("  ", "Iterations");
        self.cells(&COLUMNS.map(str::to_owned), "");
        for IterationRow { cells, notes } in iteration::rows(iterations, 5, 25) {
            let (failures, remarks): (Vec<_>, Vec<_>) =
                notes.into_iter().partition(|note| note.is_failure);
            let remarks: Vec<String> = remarks.into_iter().map(|note| note.text).collect();
            self.cells(&cells, &remarks.join(", "));
            for note in failures {
                self.paragraph("         ", "           ", &note.text);
            }
        }
    }

    fn cells(&mut self, [number, state, time, cost, tools]: &[String; 5], remarks: &str) {
        let row = format!("{number:>3}  {state:<19}  {time:>8}  {cost:>8}  {tools:>5}  {remarks}");
        let _ = writeln!(self.out, "    {}", row.trim_end());
    }
}

struct MarkdownPage {
    out: String,
}

impl MarkdownPage {
    fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.out, "## {}\n", escape(&sanitize(heading)));
    }

    fn section(&mut self, section: &Section) {
        if !section.heading.is_empty() {
            self.heading(&section.heading);
        }
        for group in section.lines.chunk_by(|a, b| a.kind.is_like(b.kind)) {
            for Line { kind, text } in group {
                let words = escape(&sanitize(text));
                let _ = match kind {
                    LineKind::Row(name) => writeln!(self.out, "- **{name}:** {words}"),
                    LineKind::Item | LineKind::Commit => writeln!(self.out, "- {words}"),
                    LineKind::Quote => writeln!(self.out, "> {words}  "),
                    // Indented, because a fence could occur in the text.
                    LineKind::Code => writeln!(self.out, "    {}", output_line(text)),
                };
            }
            self.out.push('\n');
        }
    }

    fn iterations(&mut self, iterations: &[IterationSummary]) {
        if iterations.is_empty() {
            return;
        }
        self.heading("Iterations");
        let _ = writeln!(self.out, "| {} | notes |", COLUMNS.join(" | "));
        self.out.push_str("|--:|---|--:|--:|--:|---|\n");
        for IterationRow { cells, notes } in iteration::rows(iterations, 50, 150) {
            let notes: Vec<String> = notes.iter().map(|it| escape(&sanitize(&it.text))).collect();
            let cells = cells.map(|cell| escape(&cell)).join(" | ");
            let _ = writeln!(self.out, "| {cells} | {} |", notes.join("<br>"));
        }
        self.out.push('\n');
    }
}

/// Escapes Markdown, including line starts.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mark = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in text.char_indices() {
        let begins_a_list = at == mark && matches!(c, '-' | '+' | '.' | ')' | '=');
        let links = c == '@' || (c == ':' && text[at..].starts_with("://"));
        let before = text.get(at.saturating_sub(3)..at).unwrap_or_default();
        let www = c == '.' && before.eq_ignore_ascii_case("www");
        let always = "\\`*_<>[]#|&~$!".contains(c);
        if always || begins_a_list || links || www {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
