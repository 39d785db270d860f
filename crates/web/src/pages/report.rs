//! The report of a run, in the words of `ralph report`.

use jiff::tz::TimeZone;
use maud::{Markup, html};
use ralph_report::summary::Summary;
use ralph_report::summary::sections::{Line, LineKind, Section, report};

pub(crate) fn body(facts: &Summary, zone: &TimeZone, markdown_link: &str) -> Markup {
    let report = report(facts, zone);
    html! {
        h2 class="vh" { "Report" }
        div class="doc" {
            p class="lead" { (report.lead) }
            @for one in report.findings.iter().chain(&report.next).chain(&report.history) { (section(one)) }
            div class="acts end" { a class="btn" href=(markdown_link) download { "Download as Markdown" } }
        }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        @if !section.heading.is_empty() { h2 { (section.heading) } }
        @for group in section.lines.chunk_by(|a, b| a.kind.is_like(b.kind)) {
            @match group.first().map(|line| line.kind) {
                Some(LineKind::Row(_)) => table class="ev kv" { tbody { @for line in group { tr { td { (name(line)) } td { (line.text) } } } } },
                Some(LineKind::Commit) => table class="ev ci" { tbody { @for line in group { (commit(line)) } } },
                Some(LineKind::Quote) => blockquote { @for line in group { p { (line.text) } } },
                Some(LineKind::Code) => pre tabindex="0" { @for line in group { (line.text) "\n" } },
                _ => ul class="crit" { @for line in group { li { (super::signs::sign("·", "m")) (line.text) } } },
            }
        }
    }
}

fn name(line: &Line) -> &'static str {
    if let LineKind::Row(name) = line.kind { name } else { "" }
}

fn commit(line: &Line) -> Markup {
    let (id, subject) = line.text.split_once(' ').unwrap_or((&line.text, ""));
    let iteration = subject.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (iteration "));
    let (subject, iteration) = iteration.map_or((subject, None), |(it, n)| (it, Some(n)));
    html! {
        tr {
            td { code { (id) } " " (subject) }
            td { @if let Some(number) = iteration { "iteration " (number) } }
        }
    }
}
