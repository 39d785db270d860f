//! The costs of a run, as charts and as a table.

use maud::{Markup, html};
use ralph_events::text;
use ralph_report::run_card::RunCard;

use super::charts;
use super::signs::{CheckedIterations, clock, money};
use crate::app::App;

pub(crate) fn body(app: &App, card: &RunCard, checked: &CheckedIterations, now_ms: i64) -> Markup {
    let total = money(&card.cost);
    if card.bars.is_empty() {
        return html! { h2 class="vh" { "Costs" } p class="sub nothing" { "No iteration has started yet." } };
    }
    html! {
        h2 class="vh" { "Costs" }
        div class="fig" {
            @if total.is_empty() {
                h2 { "Cost unknown " span class="sub" { (card.agent) " does not report it here." } }
            } @else {
                h2 {
                    (total)
                    @if let Some(budget) = card.budget_usd { " of " (text::format_dollars(budget)) }
                    @if card.ended_ms.is_none() { " so far " }
                    @if let Some(pace) = pace(app, card, now_ms) { " " span class="sub" { (pace) } }
                }
                (charts::cumulative(card, now_ms, &app.zone))
            }
        }
        div class="figs" {
            figure class="fig" {
                figcaption { "Time per iteration " span class="sub" { "red: failed, blue: running" } }
                (charts::time_per_iteration(card, checked))
            }
            @if !total.is_empty() {
                figure class="fig" { figcaption { "Cost per iteration" } (charts::cost_per_iteration(card, checked)) }
            }
        }
        (table(card, checked))
    }
}

/// How long the budget lasts at the average cost so far.
fn pace(app: &App, card: &RunCard, now_ms: i64) -> Option<String> {
    let (budget, spent) = (card.budget_usd?, card.cost.usd()?);
    if card.ended_ms.is_some() || spent <= 0.0 || card.elapsed_ms == 0 {
        return None;
    }
    let left_ms = (budget - spent).max(0.0) / spent * card.elapsed_ms as f64;
    let at = now_ms.saturating_add(left_ms as i64);
    let time = match left_ms < 20.0 * 3_600_000.0 {
        true => clock(at, &app.zone),
        false => super::signs::local(at, &app.zone, "%-d %B"),
    };
    Some(format!("At this pace the budget lasts until about {time}."))
}

fn table(card: &RunCard, checked: &CheckedIterations) -> Markup {
    html! {
        details class="plain" id="costs-table" {
            summary { "Show as a table" }
            table class="tbl" {
                thead { tr { th scope="col" { "Iteration" } th scope="col" { "Time" } th scope="col" { "Cost" } th scope="col" { "Checks" } } }
                tbody {
                    @for bar in &card.bars {
                        tr {
                            td { (bar.iteration) }
                            td { (text::format_duration(bar.duration_ms)) }
                            td { (money(&bar.cost)) }
                            td { (checked.word(bar)) }
                        }
                    }
                }
            }
        }
    }
}
