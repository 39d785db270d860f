//! The report as a self-contained page.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration::{self, IterationDetail};
use super::overview::Row;
use super::plain::output_line;
use super::sections::{Section, SectionKind, report};
use super::words::sanitize;
use super::{IterationSummary, Summary};
use crate::next_steps::NextSteps;
use crate::state_word::StateWord;
use crate::width;
use ralph_events::run_state::GuardrailResult;
use ralph_events::text;

const MAX_BARS: usize = 300;
/// Up to this many bars have their number below them.
const MAX_NUMBERED_BARS: usize = 30;

/// The page may load only its own style, so agent text that became markup could do nothing.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("report.css");

pub fn render(facts: &Summary, zone: &TimeZone) -> String {
    let report = report(facts, zone);
    let (title, state) = (escape(report.title), facts.state.as_str());
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} — {state} · ralph</title>\n<style>\n{STYLE}</style>\n<main>\n\
         <header><h1>{title}</h1>\n<p class=\"sub\"><b class=\"{state}\">{}{state}</b> {}</p></header>\n\
         <p class=\"lead\">{}</p>\n",
        sign(facts.state),
        escape(&subtitle(facts)),
        as_text(&width::one_line(&report.lead, 1_000, "…")),
    );
    rows(&report.rows, &mut out);
    chart(&facts.iterations, &TIME, &mut out);
    report.findings.iter().for_each(|one| section(one, &mut out));
    let NextSteps { notes, commands } = &report.next;
    if !(notes.is_empty() && commands.is_empty()) {
        out.push_str("<h2>Next</h2>\n");
        for note in notes {
            let _ = writeln!(out, "<p>{}</p>", escape(note));
        }
        if !commands.is_empty() {
            block(commands, &mut out);
        }
    }
    if !facts.iterations.is_empty() {
        out.push_str("<h2>Iterations</h2>\n");
        chart(&facts.iterations, &COST, &mut out);
        table(&facts.iterations, &mut out);
    }
    report.history.iter().for_each(|one| section(one, &mut out));
    out.push_str("<h2>Details</h2>\n");
    rows(&report.details, &mut out);
    out.push_str("</main>\n");
    out
}

/// `run a3f1 · claude · ralph/password-reset`
fn subtitle(facts: &Summary) -> String {
    let run = format!("run {}", super::overview::short_run_id(facts));
    let parts = [run.as_str(), &facts.info.agent, facts.branch().unwrap_or_default()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

/// Drawn, because fonts show the characters in different sizes.
fn sign(state: StateWord) -> String {
    let path = match state {
        StateWord::Complete => "M2 6.5 5 9.5 10 3",
        StateWord::Failed | StateWord::Interrupted => "M6 2v5M6 9v1.5",
        StateWord::Asks => "M4 4.5a2 2 0 1 1 2 2.2v.8M6 9v1.5",
        StateWord::Paused => "M4 3v6M8 3v6",
        StateWord::Waiting => "M6 2.5a3.5 3.5 0 1 0 .01 0Z",
        StateWord::Working => "M6 5a1 1 0 1 0 .01 0Z",
        StateWord::Ended => "M3 4h6M3 6h6M3 8h6",
    };
    format!(
        "<svg class=\"sign\" width=\"12\" height=\"12\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">\
         <path d=\"{path}\"/></svg>"
    )
}

fn rows(rows: &[Row], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    out.push_str("<dl>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    }
    out.push_str("</dl>\n");
}

fn section(section: &Section, out: &mut String) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(&section.heading));
    match section.kind {
        SectionKind::Output => block(&section.lines, out),
        SectionKind::Quote => {
            let lines: Vec<String> = section.lines.iter().map(|line| escape(line)).collect();
            let _ = writeln!(out, "<blockquote>{}</blockquote>", lines.join("<br>\n"));
        }
        SectionKind::List | SectionKind::Commits => {
            out.push_str("<ul>\n");
            for line in &section.lines {
                let (code, rest) = match line.split_once(' ') {
                    Some((id, rest)) if section.kind == SectionKind::Commits => (id, rest),
                    _ => ("", line.as_str()),
                };
                let code = match code {
                    "" => String::new(),
                    id => format!("<code>{}</code> ", escape(id)),
                };
                let _ = writeln!(out, "<li>{code}{}", escape(rest));
            }
            out.push_str("</ul>\n");
        }
    }
}

fn block(lines: &[String], out: &mut String) {
    let lines: Vec<String> = lines.iter().map(|line| as_text(&output_line(line))).collect();
    let _ = writeln!(out, "<pre tabindex=\"0\">{}</pre>", lines.join("\n"));
}

/// A figure of iterations that bars show.
struct Measure {
    name: &'static str,
    value: fn(&IterationSummary) -> f64,
    format: fn(f64) -> String,
}

const TIME: Measure = Measure {
    name: "Time per iteration",
    value: |it| it.record.duration_ms.saturating_sub(it.record.waited_ms) as f64,
    format: |ms| text::format_duration(ms as u64),
};

const COST: Measure = Measure {
    name: "Cost per iteration",
    value: |it| it.estimated_cost_usd.or(it.record.usage.cost_usd).unwrap_or(0.0),
    format: text::format_dollars,
};

/// One bar per iteration; with many iterations, a bar is the maximum of several.
fn chart(iterations: &[IterationSummary], measure: &Measure, out: &mut String) {
    const HEIGHT: f64 = 56.0;
    let Measure { name, value, format } = measure;
    let most_of = |bar: &[IterationSummary]| bar.iter().map(value).fold(0.0, f64::max);
    let most = most_of(iterations);
    if most <= 0.0 {
        return;
    }
    let bars: Vec<&[IterationSummary]> =
        iterations.chunks(iterations.len().div_ceil(MAX_BARS).max(1)).collect();
    // In percent, so that the page can be as narrow as a phone.
    let step = (100.0 / bars.len().max(1) as f64).min(7.0);
    let is_numbered = bars.len() <= MAX_NUMBERED_BARS;
    let _ = writeln!(
        out,
        "<p class=\"key\">{name} (max {}){}</p>\n\
         <svg class=\"bars\" width=\"100%\" height=\"{}\" role=\"img\" aria-label=\"{name}\">",
        escape(&format(most)),
        legend(iterations),
        if is_numbered { 76 } else { 58 },
    );
    for (at, bar) in bars.iter().enumerate() {
        let (Some(first), Some(last)) = (bar.first(), bar.last()) else { continue };
        let value = most_of(bar);
        let height = (value / most * HEIGHT).max(2.0);
        let label = if bar.len() == 1 {
            let state = iteration::state_label(first);
            format!("iteration {}: {}, {state}", first.record.number, format(value))
        } else {
            let (first, last) = (first.record.number, last.record.number);
            format!("iterations {first} to {last}: max {}", format(value))
        };
        let x = at as f64 * step;
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{:.2}%\" y=\"{:.1}\" width=\"{:.2}%\" height=\"{height:.1}\" \
             rx=\"1\"><title>{}</title></rect>",
            bar_class(bar),
            x + step * 0.15,
            HEIGHT - height,
            step * 0.7,
            escape(&label)
        );
        if is_numbered {
            let middle = x + step / 2.0;
            let _ =
                writeln!(out, "<text x=\"{middle:.2}%\" y=\"72\">{}</text>", first.record.number);
        }
    }
    out.push_str("</svg>\n");
}

fn bar_class(bar: &[IterationSummary]) -> &'static str {
    let has_failed =
        |it: &IterationSummary| it.record.guardrails.iter().any(GuardrailResult::has_failed);
    match bar {
        _ if bar.iter().any(has_failed) => "f",
        [.., last] if last.is_current => "n",
        _ => "p",
    }
}

fn legend(iterations: &[IterationSummary]) -> String {
    let kinds = [("f", "a check failed"), ("n", "running")];
    let has = |class: &str| iterations.chunks(1).any(|bar| bar_class(bar) == class);
    let shown = kinds.into_iter().filter(|(class, _)| has(class));
    shown.map(|(class, words)| format!("<span class=\"{class}\">{words}</span>")).collect()
}

fn table(iterations: &[IterationSummary], out: &mut String) {
    out.push_str(
        "<table>\n<thead><tr><th class=\"n\">#<th>outcome<th class=\"n\">time\
         <th class=\"n\">cost<th class=\"n\">tools<th>notes</thead>\n<tbody>\n",
    );
    // A size that any browser can handle.
    let (first, middle, last) = iteration::collapse_middle(iterations, 100, 400);
    first.iter().for_each(|iteration| row(iteration, out));
    if !middle.is_empty() {
        let middle = escape(&iteration::brief(middle));
        let _ = writeln!(out, "<tr><td class=\"n\">…<td colspan=\"5\" class=\"dim\">{middle}</tr>");
    }
    last.iter().for_each(|iteration| row(iteration, out));
    out.push_str("</tbody></table>\n");
}

fn row(iteration: &IterationSummary, out: &mut String) {
    let _ = write!(
        out,
        "<tr><td class=\"n\">{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>",
        iteration.record.number,
        iteration::state_label(iteration),
        text::format_duration(iteration.record.duration_ms),
        iteration::cost(iteration),
        iteration.record.tools
    );
    for check in iteration.record.guardrails.iter().filter(|check| !check.passed) {
        let (class, word) = if check.cut_off { ("dim", "interrupted") } else { ("bad", "failed") };
        let command = escape(&check.command);
        let _ = write!(out, "<div class=\"{class}\"><code>{command}</code> {word}</div>");
    }
    let counts = iteration::counts_text(iteration);
    if !counts.is_empty() {
        let _ = write!(out, "<div class=\"dim\">{counts}</div>");
    }
    for detail in iteration::details(iteration) {
        let class = if let IterationDetail::Bad(_) = detail { "bad" } else { "dim" };
        let _ = write!(out, "<div class=\"{class}\">{}</div>", escape(detail.text()));
    }
    out.push_str("</tr>\n");
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
