//! The report as a page of its own: no script, no font, no picture from anywhere else.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::{Check, Facts, Iteration, plain};
use crate::core::text;

const STYLE: &str = "\
:root{color-scheme:light dark;--bar:#3b82c4;--bad:#c4483b;--dim:#8884}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--dim);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
dt{float:left;clear:left;width:7rem;font-weight:600}dd{margin:0 0 .2rem 7.5rem;overflow-wrap:anywhere}
code{font-family:ui-monospace,monospace}.bad{color:var(--bad)}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}";

/// Draws the facts.
pub fn draw(facts: &Facts, zone: &TimeZone) -> String {
    let mut out = String::new();
    let title = format!("Run {}", facts.run);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0}</title>\n<style>\n{STYLE}\n</style>\n<h1>{0}</h1>\n<dl>\n",
        escape(&title)
    );
    let took = format!("{}, {}", text::duration(facts.duration_ms), plain::iterations(facts));
    for (name, value) in [
        ("Asked", facts.asked.clone()),
        ("Outcome", plain::outcome(facts)),
        ("Command", format!("ralph {} with {}", facts.command, facts.agent)),
        ("Directory", facts.directory.clone()),
        ("Started", plain::moment(facts.started_ms, zone)),
        ("Took", took),
        ("Used", plain::used(facts)),
    ] {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    out.push_str("</dl>\n");
    if !facts.iterations.is_empty() {
        out.push_str("<h2>Time and cost of each iteration</h2>\n");
        chart(&facts.iterations, &mut out);
        table(&facts.iterations, &mut out);
    }
    whole_list("Went on", &plain::went_on(facts, zone), &mut out);
    whole_list("Limits waited for", &plain::limits_waited_for(facts, zone), &mut out);
    list("Denied to the agent", facts.denied.total, &facts.denied.first, &mut out);
    list("Warnings", facts.warnings.total, &facts.warnings.first, &mut out);
    whole_list("Left to do", &plain::left_to_do(&facts.left), &mut out);
    out
}

/// Two rows of bars over the same iterations: how long each took, and what it cost.
fn chart(iterations: &[Iteration], out: &mut String) {
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 90.0;
    let times: Vec<f64> = iterations.iter().map(|it| it.duration_ms as f64).collect();
    let costs: Vec<f64> = iterations.iter().map(|it| it.usage.cost_usd.unwrap_or(0.0)).collect();
    let rows = [
        ("time", times, (|ms| text::duration(ms as u64)) as fn(f64) -> String),
        ("cost", costs, text::dollars),
    ];
    let step = WIDTH / iterations.len().max(1) as f64;
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"time and cost of each iteration\">",
        rows.len() as f64 * (ROW + 30.0)
    );
    for (nth, (name, values, word)) in rows.into_iter().enumerate() {
        let most = values.iter().copied().fold(0.0, f64::max);
        let base = (nth as f64).mul_add(ROW + 30.0, ROW + 18.0);
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{name}, at most {}</text>",
            base - ROW - 4.0,
            escape(&word(most))
        );
        for (iteration, (at, value)) in iterations.iter().zip(values.iter().enumerate()) {
            let height = if most > 0.0 { (value / most * (ROW - 10.0)).max(1.0) } else { 1.0 };
            let bad = iteration.guardrails.iter().any(Check::failed);
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
                 fill=\"var(--{})\"><title>iteration {}: {}, {}</title></rect>",
                at as f64 * step,
                base - height,
                (step * 0.8).max(0.5),
                if bad { "bad" } else { "bar" },
                iteration.number,
                escape(&word(*value)),
                plain::state(iteration)
            );
        }
    }
    out.push_str("</svg>\n");
}

fn table(iterations: &[Iteration], out: &mut String) {
    out.push_str(
        "<table>\n<tr><th class=\"n\">#<th>outcome<th class=\"n\">time<th class=\"n\">cost\
         <th class=\"n\">tools<th>guardrails<th>commits</tr>\n",
    );
    for iteration in iterations {
        let cost = iteration.usage.cost_usd.map_or("-".to_owned(), text::dollars);
        let _ = write!(
            out,
            "<tr><td class=\"n\">{}<td>{}<td class=\"n\">{}<td class=\"n\">{cost}<td class=\"n\">{}<td>",
            iteration.number,
            plain::state(iteration),
            text::duration(iteration.duration_ms),
            iteration.tools
        );
        for check in &iteration.guardrails {
            let (class, word) = match (check.passed, check.cut_off) {
                (true, _) => ("", "passed"),
                (false, true) => ("", "interrupted"),
                (false, false) => ("bad", "failed"),
            };
            let _ = write!(
                out,
                "<div class=\"{class}\"><code>{}</code> {word}</div>",
                escape(&check.command)
            );
        }
        out.push_str("<td>");
        for commit in &iteration.commits {
            let _ = write!(
                out,
                "<div><code>{}</code> {}</div>",
                escape(&commit.id),
                escape(&commit.subject)
            );
        }
        for reason in iteration.failures.iter().chain(&iteration.vetoed) {
            let _ = write!(out, "<div class=\"bad\">{}</div>", escape(reason));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// A list that is all there.
fn whole_list(heading: &str, lines: &[String], out: &mut String) {
    list(heading, u32::try_from(lines.len()).unwrap_or(u32::MAX), lines, out);
}

fn list(heading: &str, total: u32, first: &[String], out: &mut String) {
    if total == 0 {
        return;
    }
    let _ = writeln!(out, "<h2>{heading} ({total})</h2>\n<ul>");
    for entry in first {
        let _ = writeln!(out, "<li>{}", escape(entry));
    }
    let more = (total as usize).saturating_sub(first.len());
    if more > 0 {
        let _ = writeln!(out, "<li>and {more} more");
    }
    out.push_str("</ul>\n");
}

/// Text that cannot be taken for anything else.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
