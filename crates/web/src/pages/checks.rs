//! The checks of a run, each with its result by iteration and the output of the last failure.

use maud::{Markup, html};
use ralph_events::text;
use ralph_monitor::CheckLog;
use ralph_report::check_view::{CheckMark, CheckRun, CheckView};

use super::signs::sign;
use super::stories::check_sign;

/// Lines of output that are shown at once.
pub(crate) const OUTPUT_LINES: usize = 14;
/// Iterations in the history.
const MAX_HISTORY: usize = 30;

/// A check, and the output of its last failure if it is still there.
pub(crate) struct CheckPart {
    pub view: CheckView,
    pub output: Option<CheckLog>,
}

/// `log_link` is the address of a log in full.
pub(crate) fn body(checks: &[CheckPart], log_link: impl Fn(&CheckRun) -> String) -> Markup {
    // What broke last comes first.
    let mut checks: Vec<&CheckPart> = checks.iter().collect();
    checks.sort_by_key(|check| {
        std::cmp::Reverse(check.view.last_failure.as_ref().map_or(0, |run| run.iteration))
    });
    html! {
        h2 class="vh" { "Checks" }
        @if checks.is_empty() {
            p class="sub nothing" { "This run has no checks: nothing proves it. Add guardrails to .ralph/settings.json." }
        }
        @for check in checks { (section(check, &log_link)) }
    }
}

fn section(check: &CheckPart, log_link: &impl Fn(&CheckRun) -> String) -> Markup {
    let view = &check.view;
    let latest = view.latest.as_ref();
    let mark = latest.map_or(CheckMark::NotRun, |run| run.mark);
    html! {
        section class="chk" {
            header {
                h2 { (check_sign(mark)) code { (view.command) } }
                span class="sub" { "passed " (view.passed) " of " (view.runs) }
                @if view.running_since_ms.is_some() {
                    span class="sub r" { (sign("●", "w")) "running" }
                } @else if let Some(run) = latest {
                    span class="sub r" { (text::format_duration(run.duration_ms)) }
                }
            }
            (history(view))
            @if let Some(failure) = &view.last_failure { (last_failure(check, failure, log_link)) }
        }
    }
}

fn history(view: &CheckView) -> Markup {
    let skipped = view.history.len().saturating_sub(MAX_HISTORY);
    html! {
        ol class="hist" start=(skipped + 1) {
            @for (at, mark) in view.history.iter().enumerate().skip(skipped) {
                li class=(match mark { CheckMark::Passed => "p", CheckMark::Failed => "f", _ => "n" }) title={ "iteration " (at + 1) } {
                    (check_sign(*mark))
                    span class="vh" { "iteration " (at + 1) " " (mark.as_str()) }
                }
            }
        }
    }
}

fn last_failure(
    check: &CheckPart,
    failure: &CheckRun,
    log_link: &impl Fn(&CheckRun) -> String,
) -> Markup {
    let exit = failure.exit.map(|exit| exit.to_string()).unwrap_or_default();
    let is_current = !check.view.passes_since_failure();
    let Some(log) = &check.output else {
        return html! {
            p class="sub after" {
                "Last failure: iteration " (failure.iteration) @if !exit.is_empty() { ", " (exit) } "."
                @if !is_current { " Passes since." }
            }
        };
    };
    html! {
        div class="tools" {
            details class="tl bad" id={ "fail-" (failure.ended_ms) } open {
                summary {
                    (sign("✗", "f"))
                    code { "Last failure: iteration " (failure.iteration) }
                    span class="sub" { (exit) }
                }
                pre tabindex="0" { (log.lines.join("\n")) }
                @if log.total > log.lines.len() {
                    a class="more" href=(log_link(failure)) { "Show all " (log.total) " lines" }
                }
            }
        }
        p class="sub after" {
            @if is_current { "Fed back to the next iteration." }
            @else { "Fed back to iteration " (failure.iteration + 1) ". Passes since." }
        }
    }
}
