//! The iteration bars of a run.

use serde::Serialize;

use crate::run_table::cost_text;
use crate::terminal::plural;
use ralph_events::run_state::{
    Activity, Cost, GuardrailResult, IterationRecord, IterationResult, RunState,
};
use ralph_events::text;

/// One iteration: height is time, colour the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bar {
    pub iteration: u32,
    pub duration_ms: u64,
    pub result: BarResult,
    pub cost: Cost,
    pub tools: u32,
    /// The last time that it was active.
    pub ended_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BarResult {
    Passed,
    Failed,
    Interrupted,
    Running,
}

impl BarResult {
    /// The bar where there are no block characters.
    pub fn ascii(self) -> char {
        match self {
            BarResult::Passed => '+',
            BarResult::Failed => '-',
            BarResult::Interrupted => '~',
            BarResult::Running => '*',
        }
    }
}

impl Bar {
    /// `8m54s · $0.21 · 11 tools`, without what is unknown.
    pub fn figures(&self, separator: &str) -> String {
        let tools = format!("{} tool{}", self.tools, plural(u64::from(self.tools)));
        let tools = (self.tools > 0).then_some(tools);
        let took = Some(text::format_duration(self.duration_ms));
        let parts = [took, cost_text(self.cost), tools];
        parts.into_iter().flatten().collect::<Vec<_>>().join(separator)
    }

    /// The height in eighths of a line, beside a run's longest iteration.
    pub fn eighths(&self, longest_ms: u64) -> u8 {
        let (own, longest) = (self.duration_ms.min(longest_ms), longest_ms.max(1));
        let share = u128::from(own) * 4 / u128::from(longest);
        2 + u8::try_from(share).unwrap_or(4)
    }
}

/// One bar per iteration. The money that no ended iteration accounts for belongs to the running one.
pub(super) fn bars(run: &RunState, is_alive: bool, now_ms: i64) -> Vec<Bar> {
    let bar = |record: &IterationRecord, is_open: bool| Bar {
        iteration: record.number,
        duration_ms: run.iteration_ms(record, is_open.then_some(now_ms)),
        result: bar_result(record, is_open),
        cost: run.iteration_cost(record),
        tools: record.tools,
        ended_ms: record.ended_ms.filter(|_| !is_open).unwrap_or(run.clock.last_ms),
    };
    let mut bars: Vec<Bar> = run.iterations.iter().map(|record| bar(record, false)).collect();
    let is_working = is_alive && run.end.is_none();
    if let Some((last, shown)) = run.iterations.last().zip(bars.last_mut())
        && is_working
        && !last.ended
    {
        *shown = bar(last, true);
    }
    if let Some((last, earlier)) = bars.split_last_mut()
        && last.result == BarResult::Running
    {
        let sum = |cost: fn(&Cost) -> Option<f64>| {
            earlier.iter().filter_map(|bar| cost(&bar.cost)).sum::<f64>()
        };
        if let Activity::Agent(agent) = &run.activity {
            last.tools = last.tools.saturating_add(agent.tool_calls);
        }
        let total = run.cost();
        let before = sum(Cost::usd);
        last.cost = Cost {
            reported: total.reported.map(|usd| (usd - sum(|cost| cost.reported)).max(0.0)),
            estimated: total.estimated.map(|usd| (usd - before).max(0.0)),
        };
    }
    bars
}

fn bar_result(record: &IterationRecord, is_open: bool) -> BarResult {
    if is_open {
        return BarResult::Running;
    }
    let Some(class) = record.class.filter(|_| record.ended) else { return BarResult::Interrupted };
    if record.guardrails.iter().any(GuardrailResult::has_failed) {
        return BarResult::Failed;
    }
    let checked = (!record.cut_off).then_some(true);
    match IterationResult::new(class, checked, false, record.cut_off) {
        IterationResult::Successful => BarResult::Passed,
        IterationResult::Failed => BarResult::Failed,
        IterationResult::Interrupted => BarResult::Interrupted,
    }
}
