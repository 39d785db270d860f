//! The report as text or Markdown.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration;
use super::overview::{Row, short_run_id};
use super::sections::{Report, Section, SectionKind, report};
use super::words::{sanitize, wrap};
use super::{IterationSummary, Summary};
use crate::next_steps::NextSteps;
use crate::style::TextRole;
use crate::width;
use ralph_events::text;

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
    match format {
        TextFormat::Plain { color, width } => {
            let width = width.map(|width| width.clamp(MIN_WIDTH, MAX_WIDTH));
            TextPage { out: String::new(), color, width }.render(facts, &report)
        }
        TextFormat::Markdown => MarkdownPage { out: String::new() }.render(facts, &report),
    }
}

struct TextPage {
    out: String,
    color: bool,
    width: Option<usize>,
}

impl TextPage {
    fn render(mut self, facts: &Summary, report: &Report<'_>) -> String {
        self.title(facts, report.title);
        self.paragraph("", &report.lead);
        self.rows("", &report.rows);
        report.findings.iter().for_each(|section| self.section(section));
        self.iterations(&facts.iterations);
        report.history.iter().for_each(|section| self.section(section));
        self.heading("Details");
        self.rows("  ", &report.details);
        let NextSteps { notes, commands } = &report.next;
        if !(notes.is_empty() && commands.is_empty()) {
            let heading = self.paint(TextRole::Heading, "Next");
            let _ = writeln!(self.out, "\n{heading}");
            notes.iter().for_each(|note| self.paragraph("  ", note));
            for command in commands {
                let _ = writeln!(self.out, "  {}", sanitize(command));
            }
        }
        self.out
    }

    fn paint(&self, role: TextRole, words: &str) -> String {
        if !self.color {
            return words.to_owned();
        }
        let style = role.style();
        format!("{style}{words}{style:#}")
    }

    fn title(&mut self, facts: &Summary, title: &str) {
        let (title, state) = (sanitize(title), facts.state.as_str());
        let run = format!("run {}", sanitize(short_run_id(facts)));
        let used = width::display_width(&title) + state.len() + run.len() + " — ".chars().count();
        let gap = self.width.unwrap_or(MAX_WIDTH).saturating_sub(used).max(2);
        let (title, run) =
            (self.paint(TextRole::Heading, &title), self.paint(TextRole::Faint, &run));
        let state = self.paint(facts.state.role(), state);
        let _ = writeln!(self.out, "{title} — {state}{:gap$}{run}", "");
    }

    fn paragraph(&mut self, indent: &str, words: &str) {
        self.hanging(indent, indent, words);
    }

    fn hanging(&mut self, first: &str, rest: &str, words: &str) {
        let words = width::one_line(words, 1_000, "…");
        let room = self.width.unwrap_or(usize::MAX).saturating_sub(rest.len());
        for (at, line) in wrap(&words, room).iter().enumerate() {
            let indent = if at == 0 { first } else { rest };
            let _ = writeln!(self.out, "{indent}{line}");
        }
    }

    fn rows(&mut self, indent: &str, rows: &[Row]) {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        if indent.is_empty() && !rows.is_empty() {
            self.out.push('\n');
        }
        for (name, value) in rows {
            let label = self.paint(TextRole::Faint, &format!("{name:<width$}"));
            let (first, rest) =
                (format!("{indent}  {label}  "), " ".repeat(indent.len() + width + 4));
            self.hanging(&first, &rest, value);
        }
    }

    fn heading(&mut self, heading: &str) {
        let heading = self.paint(TextRole::Heading, &sanitize(heading));
        let _ = writeln!(self.out, "\n  {heading}");
    }

    fn section(&mut self, section: &Section) {
        self.heading(&section.heading);
        for line in &section.lines {
            match section.kind {
                SectionKind::Quote => self.paragraph("    ", line),
                SectionKind::List => self.hanging("    ", "      ", line),
                SectionKind::Output | SectionKind::Commits => {
                    let _ = writeln!(self.out, "    {}", output_line(line));
                }
            }
        }
    }

    fn iterations(&mut self, iterations: &[IterationSummary]) {
        if iterations.is_empty() {
            return;
        }
        self.heading("Iterations");
        let (first, middle, last) = iteration::collapse_middle(iterations, 3, 12);
        first.iter().for_each(|iteration| self.iteration(iteration));
        if !middle.is_empty() {
            let _ = writeln!(self.out, "      …  {}", iteration::brief(middle));
        }
        last.iter().for_each(|iteration| self.iteration(iteration));
    }

    fn iteration(&mut self, iteration: &IterationSummary) {
        let IterationSummary { record, .. } = iteration;
        let counts = iteration::counts_text(iteration);
        let comma = if counts.is_empty() { "" } else { ", " };
        let s = if record.tools == 1 { "" } else { "s" };
        let _ = writeln!(
            self.out,
            "    {:>3}  {:<19}  {:>8}  {:>8}  {:>4} tool{s}{comma}{counts}",
            record.number,
            iteration::state_label(iteration),
            text::format_duration(record.duration_ms),
            iteration::cost(iteration),
            record.tools,
        );
        for detail in iteration::details(iteration) {
            self.hanging("         ", "           ", detail.text());
        }
    }
}

struct MarkdownPage {
    out: String,
}

impl MarkdownPage {
    fn render(mut self, facts: &Summary, report: &Report<'_>) -> String {
        let (title, state) = (escape(&sanitize(report.title)), facts.state.as_str());
        let lead = escape(&width::one_line(&report.lead, 1_000, "…"));
        let _ = writeln!(self.out, "# {title} — {state}\n\n{lead}\n");
        self.rows(&report.rows);
        report.findings.iter().for_each(|section| self.section(section));
        let NextSteps { notes, commands } = &report.next;
        if !(notes.is_empty() && commands.is_empty()) {
            self.heading("Next");
            notes.iter().for_each(|note| self.bullet(note));
            if !(notes.is_empty() || commands.is_empty()) {
                self.out.push('\n');
            }
            commands.iter().for_each(|command| self.code(command));
        }
        self.iterations(&facts.iterations);
        report.history.iter().for_each(|section| self.section(section));
        self.heading("Details");
        self.rows(&report.details);
        self.out
    }

    fn rows(&mut self, rows: &[Row]) {
        for (name, value) in rows {
            let _ = writeln!(self.out, "- **{name}:** {}", escape(&sanitize(value)));
        }
    }

    fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.out, "\n## {}\n", escape(&sanitize(heading)));
    }

    fn bullet(&mut self, line: &str) {
        let _ = writeln!(self.out, "- {}", escape(&sanitize(line)));
    }

    /// Indented, because a fence could occur in the text.
    fn code(&mut self, line: &str) {
        let _ = writeln!(self.out, "    {}", output_line(line));
    }

    fn section(&mut self, section: &Section) {
        self.heading(&section.heading);
        for line in &section.lines {
            match section.kind {
                SectionKind::List | SectionKind::Commits => self.bullet(line),
                SectionKind::Output => self.code(line),
                SectionKind::Quote => {
                    let _ = writeln!(self.out, "> {}  ", escape(&sanitize(line)));
                }
            }
        }
    }

    fn iterations(&mut self, iterations: &[IterationSummary]) {
        if iterations.is_empty() {
            return;
        }
        self.heading("Iterations");
        self.out.push_str("| # | outcome | time | cost | tools | notes |\n");
        self.out.push_str("|--:|---|--:|--:|--:|---|\n");
        let (first, middle, last) = iteration::collapse_middle(iterations, 50, 150);
        first.iter().for_each(|iteration| self.iteration(iteration));
        if !middle.is_empty() {
            let _ = writeln!(self.out, "| … | {} | | | | |", iteration::brief(middle));
        }
        last.iter().for_each(|iteration| self.iteration(iteration));
    }

    fn iteration(&mut self, iteration: &IterationSummary) {
        let counts = Some(iteration::counts_text(iteration)).filter(|counts| !counts.is_empty());
        let details = iteration::details(iteration);
        let details = details.iter().map(|detail| escape(&sanitize(detail.text())));
        let notes: Vec<String> = counts.into_iter().chain(details).collect();
        let _ = writeln!(
            self.out,
            "| {} | {} | {} | {} | {} | {} |",
            iteration.record.number,
            iteration::state_label(iteration),
            text::format_duration(iteration.record.duration_ms),
            escape(&iteration::cost(iteration)),
            iteration.record.tools,
            notes.join("<br>")
        );
    }
}

/// Returns a line of a program's output, with its indent.
pub(super) fn output_line(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
    format!("{:width$}{}", "", sanitize(line), width = indent.min(20))
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
