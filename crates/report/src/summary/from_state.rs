//! The facts of a report, taken from a [`RunState`].

use super::{
    CappedList, CommitSummary, ContinuationSummary, CountedText, GuardrailSummary,
    IterationSummary, RemainingWork, RunActivity, ScmFailureSummary, ScmTaskSummary, Summary, Wait,
};
use crate::warning_text::{planted_warning, recovered_warning, silence_warning, stall_warning};
use ralph_events::event::Outcome;
use ralph_events::run_state::{
    Activity, CommitRecord, IterationRecord, Repeated, RunEnd, RunState, TaskProgress, Warning,
};
use ralph_events::text;

impl Summary {
    /// Returns the facts of a run. Pass `now_ms` if the run is alive.
    pub fn of(state: &RunState, now_ms: Option<i64>) -> Summary {
        let mut state = state.clone();
        let doing = now_ms.filter(|_| state.end.is_none()).map(|now_ms| {
            state.alive_at(now_ms);
            match state.activity {
                Activity::Paused { since_ms } => RunActivity::Paused { since_ms },
                Activity::Waiting { until_ms, .. } => RunActivity::Waiting { until_ms },
                _ => RunActivity::Working,
            }
        });
        state.close();
        let mut iterations: Vec<IterationSummary> =
            state.iterations.iter().map(|record| iteration(&state, record)).collect();
        if let Some(last) = iterations.last_mut() {
            last.under_way = doing.is_some() && !last.ended;
        }
        let end = state.end.as_ref();
        let info = &state.info;
        Summary {
            run: info.run.clone(),
            command: info.command.clone(),
            directory: info.directory.clone(),
            agent: info.agent.clone(),
            asked: info.prompt.clone(),
            completion: info.completion.clone(),
            started_ms: state.clock.started_ms,
            ended_ms: Some(state.clock.last_ms).filter(|last_ms| *last_ms != 0),
            duration_ms: state.duration_ms(None),
            head: state.repository.first_head.clone(),
            branch: info.branch.clone(),
            last_branch: info.last_branch.clone(),
            outcome: end.map(|end| end.outcome),
            exit_code: end.map(|end| end.exit_code),
            message: end.map(|end| end.message.clone()).unwrap_or_default(),
            last_words: end.and_then(|end| last_words(&state, end)),
            budget_used_up: end.is_some_and(|end| end.used_up.is_some()),
            stopped_by: end.and_then(|end| end.stopped_by.clone()),
            limit_ends_ms: limit_ends_ms(&state, doing),
            max_iterations: info.max_iterations,
            usage: state.usage(),
            estimated_cost_usd: state.cost().estimated,
            shown: None,
            repository_gone: false,
            others: state.repository.by_others.iter().map(commit).collect(),
            continued: continued(&state),
            waits: waits(&state),
            denied: denied(&state),
            warnings: warnings(&state),
            scm: scm(&state),
            left: left(&state),
            untold: end.is_some_and(|end| end.notify_pending),
            unreadable: state.unreadable,
            doing,
            iterations,
        }
    }
}

fn iteration(state: &RunState, record: &IterationRecord) -> IterationSummary {
    let guardrails = record.guardrails.iter().map(|result| GuardrailSummary {
        command: result.command.clone(),
        passed: result.passed,
        cut_off: result.cut_off,
        exit: result.exit,
        log: result.log.clone(),
    });
    let scm_failed = record
        .scm_failed
        .iter()
        .map(|failure| ScmFailureSummary { task: failure.task.clone(), why: failure.why.clone() });
    IterationSummary {
        number: record.number,
        started_ms: record.started_ms,
        duration_ms: record.duration_ms,
        waited_ms: record.waited_ms,
        begun: record.starts,
        ended: record.ended,
        under_way: false,
        cut_off: record.cut_off,
        class: record.class,
        ended_by: record.ended_by,
        failure: record.failure,
        repeats_prompt: record.repeats_prompt,
        attempts: record.attempts,
        usage: record.usage,
        estimated_cost_usd: state.iteration_cost(record).estimated,
        tools: record.tools,
        tool_errors: record.tool_errors,
        denied: record.denied,
        guardrails: guardrails.collect(),
        vetoed: record.vetoed.clone(),
        scm_failed: scm_failed.collect(),
        scm_done: record.scm_done.clone(),
        failures: record.failures.clone(),
        commits: record.commits.iter().map(commit).collect(),
        head: record.head.clone(),
    }
}

fn commit(record: &CommitRecord) -> CommitSummary {
    CommitSummary {
        id: record.id.clone(),
        time_ms: record.time_ms,
        subject: record.subject.clone(),
        since: record.since.clone(),
        gone: false,
        no_branch: false,
    }
}

/// Returns the agent's last words if they explain the end and its message does not contain them.
fn last_words(state: &RunState, end: &RunEnd) -> Option<String> {
    let words = &state.notices.last_words.line;
    let agent_failed = matches!(end.outcome, Outcome::AgentFailed | Outcome::CredentialsRefused);
    let adds_something = !words.is_empty() && !end.message.contains(words.as_str());
    (agent_failed && adds_something && !state.iterations.is_empty()).then(|| words.clone())
}

/// Returns the end of a rate limit that outlasts the run.
fn limit_ends_ms(state: &RunState, doing: Option<RunActivity>) -> Option<i64> {
    let since_ms = match &state.end {
        Some(_) if state.iterations.is_empty() => return None,
        Some(end) => end.time_ms,
        None if doing.is_some() => return None,
        None => state.clock.last_ms,
    };
    state.notices.limit_ends_ms.filter(|ends_ms| *ends_ms > since_ms)
}

fn continued(state: &RunState) -> Vec<ContinuationSummary> {
    let continued = state.continued.iter().map(|it| ContinuationSummary {
        time_ms: it.time_ms,
        after: it.after,
        cut_off: it.cut_off,
        unchecked: it.unchecked,
    });
    continued.collect()
}

fn waits(state: &RunState) -> Vec<Wait> {
    let waits = state.waits.iter().map(|wait| Wait {
        iteration: wait.iteration,
        reason: wait.reason,
        from_ms: wait.from_ms,
        until_ms: wait.until_ms,
        ended_ms: wait.ended_ms,
    });
    waits.collect()
}

fn denied(state: &RunState) -> CappedList {
    let denied = &state.notices.denied;
    let told = |it: &Repeated<String>| CountedText { text: it.item.clone(), times: it.times };
    CappedList { total: denied.total, first: denied.first.iter().map(told).collect() }
}

/// Warnings about the work come first; those from before it are mostly about the settings.
fn warnings(state: &RunState) -> CappedList {
    let notices = &state.notices;
    let mut first: Vec<CountedText> = Vec::new();
    for warning in &notices.warnings.first {
        let text = warning_text(&warning.item);
        match first.iter_mut().find(|known| known.text == text) {
            Some(known) => known.times = known.times.saturating_add(warning.times),
            None => first.push(CountedText { text, times: warning.times }),
        }
    }
    let early = notices.early_warnings.min(first.len());
    first.rotate_left(early);
    let mut listed = CappedList { total: notices.warnings.total, first };
    if let bytes @ 1.. = state.totals.left_out_bytes {
        listed.push(format!(
            "{}B of what agents printed were left out of the journal, which has no room for them \
             (runs.maxJournalMegabytes)",
            text::format_count(bytes)
        ));
    }
    listed
}

fn warning_text(warning: &Warning) -> String {
    match warning {
        Warning::Message { message } => message.clone(),
        Warning::Recovered { run, processes } => recovered_warning(run, processes),
        Warning::Planted { message } => planted_warning(message),
        Warning::Stalling { reason, iterations, limit } => {
            stall_warning(*reason, *iterations, *limit)
        }
        Warning::ModelSilent { silent_ms, limit_ms } => silence_warning(*silent_ms, *limit_ms),
    }
}

fn scm(state: &RunState) -> Vec<ScmTaskSummary> {
    let tasks = state.scm.iter().map(|task| ScmTaskSummary {
        task: task.task.clone(),
        iterations: task.failed_in.clone(),
        why: task.why.clone(),
        made_good: task.made_good,
    });
    tasks.collect()
}

fn left(state: &RunState) -> RemainingWork {
    let tasks = state.tasks.as_ref();
    let stories = tasks.map(|tasks| (tasks.done, tasks.total));
    let outcome = state.end.as_ref().map(|end| end.outcome);
    if let Some(Outcome::Complete | Outcome::CompleteScmFailed) = outcome {
        // Nothing is left to do, even if the agent did not tick off its plan.
        return RemainingWork { stories, ..RemainingWork::default() };
    }
    RemainingWork {
        feedback: state.resume.feedback.iter().map(|part| part.message.clone()).collect(),
        plan: state.plan.iter().map(|item| item.text.clone()).collect(),
        stories,
        problems: tasks.map(|tasks| tasks.problems.clone()).unwrap_or_default(),
        story: tasks.and_then(story),
    }
}

fn story(tasks: &TaskProgress) -> Option<String> {
    let story = tasks.story.as_deref()?;
    Some(match &tasks.title {
        Some(title) => format!("{story}: {title}"),
        None => story.to_owned(),
    })
}
