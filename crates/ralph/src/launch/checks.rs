//! Checks before anything is spent.

use ralph_driver::run_spec::RunSpec;
use ralph_engine::rules::Budget;
use ralph_events::error::Error;
use ralph_events::run_state::{Pending, RunState};

/// Refuses a budget that nothing is counted against, because users rely on it.
pub(super) fn check_budgets_enforceable(spec: &RunSpec) -> Result<(), Error> {
    let adapter = spec.agent.adapter;
    let (run, iteration) = (&spec.rules.budget, &spec.rules.iteration_budget);
    let cost = run.cost_usd.or(iteration.cost_usd).is_some();
    let tokens = run.tokens.or(iteration.tokens).is_some();
    // Modes that report no usage, and the remedy.
    let mute = match &spec.agent {
        agent if agent.interactive => Some((" on its own screen", "drop --interactive")),
        agent if !agent.stream => Some((" in plain mode", "leave streamAgentOutput on")),
        _ => None,
    };
    let (key, unit) = if cost && (mute.is_some() || !adapter.profile().cost_is_verified) {
        ("costUsd", "costs")
    } else if tokens && (mute.is_some() || adapter.profile().tokens.is_none()) {
        ("tokens", "tokens")
    } else {
        return Ok(());
    };
    let error = Error::config(format!(
        "budget: {key} has no effect: {} does not report {unit}{}",
        if adapter.name() == "text" { &spec.agent.program } else { adapter.name() },
        mute.map_or("", |(how, _)| how)
    ));
    let has_tokens = run.tokens.or(iteration.tokens).is_some();
    let has_duration = run.duration_ms.or(iteration.duration_ms).is_some();
    let can_count = mute.is_none() && key == "costUsd" && adapter.profile().tokens.is_some();
    let others: Vec<&str> = [("tokens", can_count && !has_tokens), ("duration", !has_duration)]
        .into_iter()
        .filter_map(|(key, is_advice)| is_advice.then_some(key))
        .collect();
    let advice = match others.as_slice() {
        [] => format!("remove {key} from the budget"),
        others => format!("set {} instead", others.join(" or ")),
    };
    Err(match mute {
        Some((_, instead)) => error.hint(format!("{instead}, or {advice}")),
        None => error.hint(advice),
    })
}

/// The completion signal, if the prompt never mentions it.
pub(super) fn missing_signal(spec: &RunSpec) -> Option<String> {
    if spec.tasks.is_some() {
        return None;
    }
    // Reported elsewhere.
    let (prompt, _) = super::prompt::read_prompt(&spec.prompt).ok()?;
    (!spec.completion.is_mentioned_in(&prompt)).then(|| spec.completion.describe())
}

pub(super) fn check_budget_left(spec: &RunSpec, run: &str, state: &RunState) -> Result<(), Error> {
    if state.end.is_none() {
        // Let a run that was killed before it could report its end do so.
        return Ok(());
    }
    let (done, limit_count) = (state.resume.iterations, spec.rules.max_iterations);
    if done >= limit_count {
        let s = if done == 1 { "" } else { "s" };
        let message =
            format!("run {run} has reached its limit: {done} of {limit_count} iteration{s}");
        let more = done.saturating_add(10);
        return Err(
            Error::input(message).hint(format!("raise the total: ralph resume {run} -n {more}"))
        );
    }
    let used = state.totals.spending.budget_usage();
    let mut budget = spec.rules.budget;
    if let Pending::Unchecked(_) = state.resume.pending {
        // Work that is already paid for is still checked, if there is time.
        budget = Budget { duration_ms: budget.duration_ms, ..Budget::default() };
    }
    let Some(used_up) = budget.exceeded(&used, &state.usage(), state.clock.active_ms) else {
        return Ok(());
    };
    let flag = [
        (spec.rules.budget.cost_usd.is_some(), "--max-cost USD"),
        (spec.rules.budget.tokens.is_some(), "--max-tokens N"),
        (spec.rules.budget.duration_ms.is_some(), "--max-time DURATION"),
    ];
    let flags: Vec<&str> = flag.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect();
    Err(Error::input(format!("the budget of run {run} is used up: {used_up}"))
        .hint(format!("raise the total: ralph resume {run} {}", flags.join(" or "))))
}
