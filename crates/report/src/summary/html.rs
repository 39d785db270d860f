//! The report as a self-contained page.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::iteration::{self, IterationDetail};
use super::overview::{TextPart, summary_rows, text_parts};
use super::sections::{Section, SectionKind, sections};
use super::words::sanitize;
use super::{IterationSummary, Summary};
use ralph_events::run_state::GuardrailResult;
use ralph_events::text;

const MAX_BARS: usize = 300;

/// The page may load only its own style, so agent text that became markup could do nothing.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark;--bar:#3b82c4;--bad:#c4483b;--dim:#8884}
@media(prefers-color-scheme:dark){:root{--bar:#5a9bd8;--bad:#f07b6e}}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--dim);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td,li{overflow-wrap:anywhere}td:nth-child(2){white-space:nowrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}
ul{padding-left:1.2rem}ul.signs{font-family:ui-monospace,monospace;list-style:none;padding:0}
code{font-family:ui-monospace,monospace}.bad{color:var(--bad)}.dim{opacity:.7}
svg{width:100%;height:5rem}p.label{font-size:.8rem;margin:.8rem 0 .2rem}
@media(max-width:36rem){dl{display:block}dd{margin-bottom:.4rem}
table,tbody{display:block}tr{display:grid;grid-template-columns:2rem 1fr auto auto;border-bottom:1px solid var(--dim)}
tr:first-child,td:nth-child(5){display:none}td{border:0;padding:.15rem .3rem}td:nth-child(n+6){grid-column:2/-1}}";

pub fn render(facts: &Summary, zone: &TimeZone) -> String {
    let mut out = String::new();
    let title = format!("Run {}", facts.info.run);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0}</title>\n<style>\n{STYLE}\n</style>\n<h1>{0}</h1>\n<dl>\n",
        escape(&title)
    );
    for (name, value) in summary_rows(facts, zone) {
        let value = sanitize(&value);
        let value = text_parts(name, &value).into_iter().map(|piece| match piece {
            TextPart::Text(text) => as_text(text),
            TextPart::Command(command) => format!("<code>{}</code>", as_text(command)),
        });
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", value.collect::<String>());
    }
    out.push_str("</dl>\n");
    let (left, rest): (Vec<Section>, Vec<Section>) = sections(facts, zone)
        .into_iter()
        .partition(|section| section.kind == SectionKind::Remaining);
    left.iter().for_each(|section| list(section, &mut out));
    if !facts.iterations.is_empty() {
        out.push_str("<h2>Time and cost of each iteration</h2>\n");
        chart(&facts.iterations, &mut out);
        table(&facts.iterations, &mut out);
    }
    rest.iter().for_each(|section| list(section, &mut out));
    out
}

fn list(section: &Section, out: &mut String) {
    let class = if section.kind == SectionKind::Guardrails { " class=\"signs\"" } else { "" };
    let _ = writeln!(out, "<h2>{}</h2>\n<ul{class}>", escape(&section.heading));
    for line in &section.lines {
        let _ = writeln!(out, "<li>{}", escape(line));
    }
    out.push_str("</ul>\n");
}

/// Two rows of bars: duration and cost per iteration. With many iterations, a bar is the maximum of several.
fn chart(iterations: &[IterationSummary], out: &mut String) {
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 90.0;
    let rows = [
        (
            "time at work",
            (|it| it.record.duration_ms.saturating_sub(it.record.waited_ms) as f64)
                as fn(&IterationSummary) -> f64,
            (|ms| text::format_duration(ms as u64)) as fn(f64) -> String,
        ),
        (
            "cost",
            |it| it.estimated_cost_usd.or(it.record.usage.cost_usd).unwrap_or(0.0),
            text::format_dollars,
        ),
    ];
    let bars: Vec<&[IterationSummary]> =
        iterations.chunks(iterations.len().div_ceil(MAX_BARS).max(1)).collect();
    // Limits the width of a bar.
    let step = (WIDTH / bars.len().max(1) as f64).min(75.0);
    let width = (step * 0.8).max(0.5);
    for (name, value, word) in rows {
        let most_of = |bar: &[IterationSummary]| bar.iter().map(value).fold(0.0, f64::max);
        let most = most_of(iterations);
        if most <= 0.0 {
            continue;
        }
        let any_bad = iterations.iter().any(is_bad);
        let red = if any_bad { "; <span class=\"bad\">red</span>: a guardrail failed" } else { "" };
        let _ = writeln!(
            out,
            "<p class=\"label\">{name}, at most {}{red}</p>\n<svg viewBox=\"0 0 {WIDTH} {ROW}\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{name} of each iteration\">",
            escape(&word(most))
        );
        for (at, bar) in bars.iter().enumerate() {
            let value = most_of(bar);
            let height = (value / most * ROW).max(1.0);
            let bad = bar.iter().any(is_bad);
            let told = match bar {
                [one] => {
                    format!(
                        "iteration {}: {}, {}",
                        one.record.number,
                        word(value),
                        iteration::state_label(one)
                    )
                }
                [first, .., last] => {
                    let (first, last) = (first.record.number, last.record.number);
                    format!("iterations {first} to {last}: at most {}", word(value))
                }
                [] => continue,
            };
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill=\"var(--{})\"><title>{}</title></rect>",
                at as f64 * step,
                ROW - height,
                if bad { "bad" } else { "bar" },
                escape(&told)
            );
        }
        out.push_str("</svg>\n");
    }
}

fn is_bad(iteration: &IterationSummary) -> bool {
    iteration.record.guardrails.iter().any(GuardrailResult::has_failed)
}

fn table(iterations: &[IterationSummary], out: &mut String) {
    out.push_str(
        "<div class=\"wide\"><table>\n<tr><th class=\"n\">#<th>outcome<th class=\"n\">time\
         <th class=\"n\">cost<th class=\"n\">tools<th>guardrails<th>commits</tr>\n",
    );
    // A size that any browser can handle.
    let (first, middle, last) = iteration::collapse_middle(iterations, 100, 400);
    first.iter().for_each(|iteration| row(iteration, out));
    if !middle.is_empty() {
        let middle = escape(&iteration::brief(middle));
        let _ = writeln!(out, "<tr><td class=\"n\">…<td colspan=\"6\" class=\"dim\">{middle}</tr>");
    }
    last.iter().for_each(|iteration| row(iteration, out));
    out.push_str("</table></div>\n");
}

fn row(iteration: &IterationSummary, out: &mut String) {
    let tries = iteration::attempts_text(iteration);
    let tries = tries.map(|tries| format!("<div class=\"dim\">{tries}</div>")).unwrap_or_default();
    let _ = write!(
        out,
        "<tr><td class=\"n\">{}<td>{}{tries}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>",
        iteration.record.number,
        iteration::state_label(iteration),
        text::format_duration(iteration.record.duration_ms),
        iteration::cost(iteration),
        iteration.record.tools
    );
    let passed = iteration.record.guardrails.iter().filter(|check| check.passed).count();
    if passed > 0 {
        let _ = write!(out, "<div>{passed} passed</div>");
    }
    for check in iteration.record.guardrails.iter().filter(|check| !check.passed) {
        let (class, word) = if check.cut_off { ("dim", "interrupted") } else { ("bad", "failed") };
        let command = escape(&check.command);
        let _ = write!(out, "<div class=\"{class}\"><code>{command}</code> {word}</div>");
    }
    out.push_str("<td>");
    for detail in iteration::details(iteration) {
        let _ = match detail {
            IterationDetail::Commit(text) => {
                let (id, subject) = text.split_once(' ').unwrap_or((&text, ""));
                write!(out, "<div><code>{}</code> {}</div>", escape(id), escape(subject))
            }
            IterationDetail::Plain(text) => {
                write!(out, "<div class=\"dim\">{}</div>", escape(&text))
            }
            IterationDetail::Bad(text) => write!(out, "<div class=\"bad\">{}</div>", escape(&text)),
        };
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
