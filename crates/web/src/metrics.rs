//! Figures in the format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use ralph_events::run_state::{GuardrailResult, RunState};
use ralph_monitor::Monitor;
use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;

use crate::app::App;

pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let now_ms = app.now_ms();
    let text = app.hub.ask(move |monitor| render(monitor, now_ms)).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Name, meaning, and value of a figure of each run.
type Figure = (&'static str, &'static str, fn(&RunCard, &RunState) -> f64);

const FIGURES: [Figure; 5] = [
    ("ralph_run_cost_usd", "Cost of the run, with estimates.", |card, _| {
        card.cost.usd().unwrap_or(0.0)
    }),
    ("ralph_run_tokens", "Tokens that the run has used.", |card, _| card.tokens as f64),
    ("ralph_run_iterations", "Iterations that the run has started.", |card, _| {
        f64::from(card.iteration)
    }),
    ("ralph_run_guardrail_failures", "Checks that have failed.", |_, state| {
        let checks = state.iterations.iter().flat_map(|iteration| &iteration.guardrails);
        checks.filter(|check| GuardrailResult::has_failed(check)).count() as f64
    }),
    ("ralph_run_waited_seconds", "Time spent waiting for rate limits and retries.", |_, state| {
        state.iterations.iter().map(|iteration| iteration.waited_ms).sum::<u64>() as f64 / 1000.0
    }),
];

/// Runs on the monitor's thread.
fn render(monitor: &Monitor, now_ms: i64) -> String {
    let cards = monitor.cards(now_ms);
    let mut states: BTreeMap<&str, usize> = StateWord::ALL.map(|state| (state.as_str(), 0)).into();
    for card in &cards {
        *states.entry(card.state.as_str()).or_default() += 1;
    }
    let mut out = String::new();
    header_lines(
        &mut out,
        "ralph_runs",
        "Runs by state: active ones, and those of the last two weeks.",
    );
    for (state, count) in states {
        let _ = writeln!(out, "ralph_runs{{state=\"{state}\"}} {count}");
    }
    for (name, help, value) in FIGURES {
        header_lines(&mut out, name, help);
        for card in &cards {
            let Some(state) = monitor.state(&card.id) else { continue };
            let labels = format!(
                "run=\"{}\",name=\"{}\",project=\"{}\",agent=\"{}\"",
                escape(&card.id),
                escape(&card.name),
                escape(&card.project),
                escape(&card.agent)
            );
            let _ = writeln!(out, "{name}{{{labels}}} {}", value(card, state));
        }
    }
    out
}

fn header_lines(out: &mut String, name: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
