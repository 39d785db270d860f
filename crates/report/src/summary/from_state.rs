//! The facts of a report, taken from a [`RunState`].

use super::{CommitSummary, EndSummary, IterationSummary, RemainingWork, RunActivity, Summary};
use crate::state_word::StateWord;
use crate::warning_text::{planted_warning, recovered_warning, silence_warning, stall_warning};
use ralph_events::event::Outcome;
use ralph_events::run_state::{
    Activity, CommitRecord, IterationRecord, Listed, Repeated, RunEnd, RunState, TaskProgress,
    Warning,
};
use ralph_events::text;

const MAX_TITLE: usize = 50;

impl Summary {
    /// Returns the facts of a run. Pass `now_ms` if the run is alive.
    pub fn of(state: &RunState, now_ms: Option<i64>) -> Summary {
        let mut state = state.clone();
        let word = StateWord::of(&state, now_ms.is_some());
        let activity = now_ms.filter(|_| state.end.is_none()).map(|now_ms| {
            state.alive_at(now_ms);
            match state.activity {
                Activity::Paused { since_ms } => RunActivity::Paused { since_ms },
                Activity::Parked { since_ms } => RunActivity::Parked { since_ms },
                Activity::Waiting { until_ms, .. } => RunActivity::Waiting { until_ms },
                _ => RunActivity::Working,
            }
        });
        state.close();
        let mut iterations: Vec<IterationSummary> =
            state.iterations.iter().map(|record| iteration(&state, record)).collect();
        if let Some(last) = iterations.last_mut() {
            last.is_current = activity.is_some() && !last.record.ended;
        }
        Summary {
            title: title(&state.info.prompt),
            state: word,
            answer: None,
            diff_stat: None,
            default_branch: None,
            started_ms: state.clock.started_ms,
            ended_ms: Some(state.clock.last_ms).filter(|last_ms| *last_ms != 0),
            duration_ms: state.duration_ms(None),
            head: state.repository.first_head.clone(),
            end: end(&state, activity),
            usage: state.usage(),
            estimated_cost_usd: state.cost().estimated,
            range_counts: None,
            repository_gone: false,
            commits_by_others: state.repository.by_others.iter().map(commit).collect(),
            warnings: warnings(&state),
            remaining: remaining(&state),
            unreadable: state.unreadable,
            activity,
            iterations,
            info: state.info,
            continued: state.continued,
            waits: state.waits,
            denied: state.notices.denied,
            scm: state.scm,
            steering: state.steering,
        }
    }
}

/// Returns the first line of a prompt as a title, without the count of iterations that may stand before it.
pub fn title(prompt: &str) -> String {
    let lines = prompt.lines().map(|line| line.trim_start_matches(['#', ' ']).trim());
    let mut lines = lines.filter(|line| !line.is_empty() && !line.ends_with(" remaining."));
    let line = lines.next().unwrap_or("Untitled run").replace('`', "");
    text::truncate(&line, MAX_TITLE, "…").into_owned()
}

fn end(state: &RunState, activity: Option<RunActivity>) -> EndSummary {
    let limit_ends_ms = limit_ends_ms(state, activity);
    let Some(end) = &state.end else {
        return EndSummary { limit_ends_ms, ..EndSummary::default() };
    };
    EndSummary {
        outcome: Some(end.outcome),
        exit_code: Some(end.exit_code),
        message: end.message.clone(),
        budget_used_up: end.used_up.is_some(),
        last_words: last_words(state, end),
        stopped_by: end.stopped_by.clone(),
        limit_ends_ms,
        notify_pending: end.notify_pending,
    }
}

fn iteration(state: &RunState, record: &IterationRecord) -> IterationSummary {
    IterationSummary {
        estimated_cost_usd: state.iteration_cost(record).estimated,
        commits: record.commits.iter().map(commit).collect(),
        is_current: false,
        record: record.clone(),
    }
}

fn commit(record: &CommitRecord) -> CommitSummary {
    CommitSummary {
        id: record.id.clone(),
        time_ms: record.time_ms,
        subject: record.subject.clone(),
        since: record.since.clone(),
        is_unreachable: false,
        is_detached: false,
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
fn limit_ends_ms(state: &RunState, activity: Option<RunActivity>) -> Option<i64> {
    let since_ms = match &state.end {
        Some(_) if state.iterations.is_empty() => return None,
        Some(end) => end.time_ms,
        None if activity.is_some() => return None,
        None => state.clock.last_ms,
    };
    state.notices.limit_ends_ms.filter(|ends_ms| *ends_ms > since_ms)
}

/// Warnings about the work come first; those from before it are mostly about the settings.
fn warnings(state: &RunState) -> Listed<String> {
    let notices = &state.notices;
    let mut first: Vec<Repeated<String>> = Vec::new();
    for warning in &notices.warnings.first {
        let item = warning_text(&warning.item);
        match first.iter_mut().find(|known| known.item == item) {
            Some(known) => known.times = known.times.saturating_add(warning.times),
            None => first.push(Repeated { item, times: warning.times }),
        }
    }
    let early = notices.early_warnings.min(first.len());
    first.rotate_left(early);
    let mut listed = Listed { total: notices.warnings.total, first };
    if let bytes @ 1.. = state.totals.omitted_bytes {
        listed.push(format!(
            "{}B of agent output were left out of the journal, which is full \
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

fn remaining(state: &RunState) -> RemainingWork {
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
