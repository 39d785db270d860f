//! The report as text or Markdown.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration::{self, IterationDetail};
use super::overview::{TextPart, summary_rows, text_parts};
use super::sections::{Section, SectionKind, sections};
use super::words::sanitize;
use super::{IterationSummary, Summary};
use ralph_events::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    Plain,
    Markdown,
}

pub fn render(facts: &Summary, zone: &TimeZone, form: TextFormat) -> String {
    let mut page = TextPage { out: String::new(), form };
    page.title(&format!("Run {}", facts.info.run));
    for (name, value) in summary_rows(facts, zone) {
        page.item(name, &value);
    }
    let sections = sections(facts, zone);
    let is_ahead =
        |section: &&Section| form == TextFormat::Markdown && section.kind == SectionKind::Remaining;
    sections.iter().filter(is_ahead).for_each(|section| page.section(section));
    page.iterations(&facts.iterations);
    let rest = sections.iter().filter(|section| !is_ahead(section));
    rest.for_each(|section| page.section(section));
    page.out
}

struct TextPage {
    out: String,
    form: TextFormat,
}

impl TextPage {
    fn title(&mut self, title: &str) {
        let title = sanitize(title);
        let _ = match self.form {
            TextFormat::Plain => writeln!(self.out, "{title}\n"),
            TextFormat::Markdown => writeln!(self.out, "# {}\n", escape(&title)),
        };
    }

    fn heading(&mut self, heading: &str) {
        let _ = match self.form {
            TextFormat::Plain => writeln!(self.out, "\n{heading}"),
            TextFormat::Markdown => writeln!(self.out, "\n## {heading}\n"),
        };
    }

    fn item(&mut self, name: &str, value: &str) {
        let value = sanitize(value);
        if self.form == TextFormat::Plain {
            let _ = writeln!(self.out, "{:<10} {value}", format!("{name}:"));
            return;
        }
        let value = text_parts(name, &value).into_iter().map(|piece| match piece {
            TextPart::Text(text) => escape(text),
            TextPart::Command(command) => format!("`{command}`"),
        });
        let _ = writeln!(self.out, "- **{name}:** {}", value.collect::<String>());
    }

    fn bullet(&mut self, line: &str) {
        let line = sanitize(line);
        let _ = match self.form {
            TextFormat::Plain => writeln!(self.out, "  {line}"),
            TextFormat::Markdown => writeln!(self.out, "- {}", escape(&line)),
        };
    }

    fn section(&mut self, section: &Section) {
        self.heading(&section.heading);
        section.lines.iter().for_each(|line| self.bullet(line));
    }

    fn iterations(&mut self, iterations: &[IterationSummary]) {
        if iterations.is_empty() {
            return;
        }
        self.heading("Iterations");
        let (first, last) = match self.form {
            TextFormat::Plain => (10, 40),
            TextFormat::Markdown => (50, 150),
        };
        if self.form == TextFormat::Markdown {
            self.out.push_str("| # | outcome | time | cost | tools | commits |\n");
            self.out.push_str("|--:|---|--:|--:|--:|---|\n");
        }
        let (first, middle, last) = iteration::collapse_middle(iterations, first, last);
        first.iter().for_each(|iteration| self.iteration(iteration));
        if !middle.is_empty() {
            let middle = iteration::brief(middle);
            let _ = match self.form {
                TextFormat::Plain => writeln!(self.out, "    …  {middle}"),
                TextFormat::Markdown => writeln!(self.out, "| … | {middle} | | | | |"),
            };
        }
        last.iter().for_each(|iteration| self.iteration(iteration));
    }

    fn iteration(&mut self, iteration: &IterationSummary) {
        let (state, tries) =
            (iteration::state_label(iteration), iteration::attempts_text(iteration));
        let (cost, time) =
            (iteration::cost(iteration), text::format_duration(iteration.record.duration_ms));
        let (number, tools, details) =
            (iteration.record.number, iteration.record.tools, iteration::details(iteration));
        if self.form == TextFormat::Markdown {
            let details = details.iter().map(|detail| match detail {
                IterationDetail::Commit(text)
                | IterationDetail::Plain(text)
                | IterationDetail::Bad(text) => escape(&sanitize(text)),
            });
            let details = details.collect::<Vec<String>>().join("<br>");
            let tries = tries.map(|tries| format!(" ({tries})")).unwrap_or_default();
            let _ = writeln!(
                self.out,
                "| {number} | {state}{tries} | {time} | {} | {tools} | {details} |",
                escape(&cost)
            );
            return;
        }
        let tries = tries.map(|tries| format!(", {tries}")).unwrap_or_default();
        let s = if tools == 1 { "" } else { "s" };
        let _ = writeln!(
            self.out,
            "  {number:>3}  {state:<19}  {time:>8}  {cost:>8}  {tools:>4} tool{s}{tries}"
        );
        for detail in details {
            let (IterationDetail::Commit(text)
            | IterationDetail::Plain(text)
            | IterationDetail::Bad(text)) = detail;
            let _ = writeln!(self.out, "       {}", sanitize(&text));
        }
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
