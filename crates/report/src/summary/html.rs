//! The report as a self-contained page.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration::{self, COLUMNS, IterationRow};
use super::overview::short_run_id;
use super::sections::{Line, LineKind, Section, report};
use super::words::{output_line, sanitize};
use super::{IterationSummary, Summary};
use ralph_events::run_state::GuardrailResult;
use ralph_events::text;

const MAX_BARS: usize = 300;

/// The page may load only its own style, so agent text that became markup could do nothing.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("report.css");

pub fn render(facts: &Summary, zone: &TimeZone) -> String {
    let report = report(facts, zone);
    let (title, state) = (escape(&facts.title), facts.state.as_str());
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} — {state} · ralph</title>\n<style>\n{STYLE}</style>\n<main>\n\
         <header><h1>{title}</h1>\n<p class=\"sub\"><b class=\"{state}\">{state}</b> {}</p></header>\n\
         <p class=\"lead\">{}</p>\n",
        escape(&format!("run {} · {}", short_run_id(facts), facts.info.agent)),
        escape(&report.lead),
    );
    if !facts.iterations.is_empty() {
        chart(&facts.iterations, &mut out);
    }
    report.findings.iter().chain(&report.next).for_each(|one| section(one, &mut out));
    if !facts.iterations.is_empty() {
        out.push_str("<h2>Iterations</h2>\n");
        table(&facts.iterations, &mut out);
    }
    report.history.iter().for_each(|one| section(one, &mut out));
    out.push_str("</main>\n");
    out
}

fn section(section: &Section, out: &mut String) {
    if !section.heading.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&section.heading));
    }
    for group in section.lines.chunk_by(|a, b| a.kind.is_like(b.kind)) {
        let (start, end) = match group.first().map(|line| line.kind) {
            Some(LineKind::Row(_)) => ("<dl>\n", "</dl>"),
            Some(LineKind::Quote) => ("<blockquote>", "</blockquote>"),
            Some(LineKind::Code) => ("<pre tabindex=\"0\">", "</pre>"),
            _ => ("<ul>\n", "</ul>"),
        };
        let lines: Vec<String> = group.iter().map(line).collect();
        let _ = writeln!(out, "{start}{}{end}", lines.join("\n"));
    }
}

fn line(Line { kind, text }: &Line) -> String {
    let words = escape(text);
    match kind {
        LineKind::Row(name) => format!("<div><dt>{name}</dt><dd>{words}</dd></div>"),
        LineKind::Item => format!("<li>{words}"),
        LineKind::Commit => {
            let (id, subject) = words.split_once(' ').unwrap_or((&words, ""));
            format!("<li><code>{id}</code> {subject}")
        }
        LineKind::Quote => format!("<p>{words}</p>"),
        LineKind::Code => as_text(&output_line(text)),
    }
}

/// One bar per iteration: its time at work. With many iterations, a bar is the maximum of several.
fn chart(iterations: &[IterationSummary], out: &mut String) {
    const HEIGHT: f64 = 56.0;
    let time = |it: &IterationSummary| it.record.duration_ms.saturating_sub(it.record.waited_ms);
    let longest = |bar: &[IterationSummary]| bar.iter().map(time).max().unwrap_or(0);
    let most = longest(iterations);
    let bars: Vec<&[IterationSummary]> =
        iterations.chunks(iterations.len().div_ceil(MAX_BARS).max(1)).collect();
    // In percent, so that the page can be as narrow as a phone.
    let step = (100.0 / bars.len().max(1) as f64).min(7.0);
    let _ = writeln!(
        out,
        "<p class=\"key\">Time per iteration (max {}). <span class=\"bad\">Red</span>: a check failed.</p>\n\
         <svg class=\"bars\" width=\"100%\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"Time per iteration\">",
        text::format_duration(most),
    );
    for (at, bar) in bars.iter().enumerate() {
        let Some(first) = bar.first() else { continue };
        let height = (longest(bar) as f64 / most.max(1) as f64 * HEIGHT).max(2.0);
        let has_failed =
            |it: &IterationSummary| it.record.guardrails.iter().any(GuardrailResult::has_failed);
        let class = match bar {
            _ if bar.iter().any(has_failed) => "f",
            [.., last] if last.is_current => "n",
            _ => "p",
        };
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{:.2}%\" y=\"{:.1}\" width=\"{:.2}%\" \
             height=\"{height:.1}\" rx=\"1\"><title>iteration {}: {}</title></rect>",
            at as f64 * step,
            HEIGHT - height,
            step * 0.75,
            first.record.number,
            text::format_duration(longest(bar))
        );
    }
    out.push_str("</svg>\n");
}

fn table(iterations: &[IterationSummary], out: &mut String) {
    let _ = writeln!(out, "<table>\n<thead><tr><th>{}<th>notes</thead>", COLUMNS.join("<th>"));
    // A size that any browser can handle.
    for IterationRow { cells, notes } in iteration::rows(iterations, 100, 400) {
        let notes = notes.iter().map(|note| {
            let class = if note.is_failure { "bad" } else { "dim" };
            format!("<div class=\"{class}\">{}</div>", escape(&note.text))
        });
        let notes: String = notes.collect();
        let cells = cells.map(|cell| escape(&cell)).join("<td>");
        let _ = writeln!(out, "<tr><td>{cells}<td>{notes}</tr>");
    }
    out.push_str("</table>\n");
}

fn escape(text: &str) -> String {
    as_text(&sanitize(text))
}

fn as_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
