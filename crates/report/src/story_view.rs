//! The stories of a task list: what the agent claims, and what checks prove.

use serde::Serialize;

use crate::check_view::CheckRun;
use crate::status_line::one_line;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::run_state::{CommitRecord, Cost, GuardrailResult, IterationRecord, RunState};

/// A story as the task list has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoryInput {
    pub id: String,
    pub title: String,
    pub criteria: Vec<String>,
    pub notes: String,
    pub passes: bool,
    /// Stories that must pass first.
    pub waits_for: Vec<String>,
    /// The first story that can start.
    pub is_next: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoryView {
    pub id: String,
    pub title: String,
    pub state: StoryState,
    /// Stories that must pass first.
    pub waits_for: Vec<String>,
    pub criteria: Vec<String>,
    /// The agent's notes.
    pub claim: String,
    /// The iteration in which it was proven.
    pub proven_in: Option<u32>,
    /// The checks of the iteration in which it was claimed last, by command.
    pub checks: Vec<(String, CheckRun)>,
    /// The commits of that iteration: id and subject.
    pub commits: Vec<(String, String)>,
    pub history: Vec<Claim>,
    /// Of the iterations that worked on it.
    pub cost: Cost,
    pub iterations: Vec<u32>,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryState {
    /// Marked, and every check passed in that iteration.
    Proven,
    /// Marked by the agent in an iteration whose checks failed or were cut off.
    Claimed,
    InWork,
    Next,
    CanStart,
    WaitsFor,
}

impl StoryState {
    pub fn as_str(self) -> &'static str {
        match self {
            StoryState::Proven => "proven",
            StoryState::Claimed => "claimed",
            StoryState::InWork => "in work",
            StoryState::Next => "next",
            StoryState::CanStart => "can start",
            StoryState::WaitsFor => "waits",
        }
    }

    pub fn sign(self) -> &'static str {
        self.signs().0
    }

    pub fn ascii_sign(self) -> &'static str {
        self.signs().1
    }

    fn signs(self) -> (&'static str, &'static str) {
        match self {
            StoryState::Proven => ("✓", "+"),
            StoryState::Claimed => ("~", "~"),
            StoryState::InWork => ("●", "*"),
            StoryState::Next | StoryState::CanStart => ("○", "o"),
            StoryState::WaitsFor => ("◌", "."),
        }
    }
}

/// The agent marked the story in an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    pub iteration: u32,
    pub proven: bool,
    /// Checks that failed.
    pub failed: Vec<String>,
}

impl Claim {
    fn of(record: &IterationRecord) -> Claim {
        let failed = record.guardrails.iter().filter(|check| check.has_failed());
        Claim {
            iteration: record.number,
            proven: proves(record),
            failed: failed.map(|check| one_line(&check.command)).collect(),
        }
    }

    /// `claimed, all checks passed: proven`.
    pub fn text(&self) -> String {
        match (self.proven, self.failed.is_empty()) {
            (true, _) => "claimed, all checks passed: proven".to_owned(),
            (false, false) => {
                format!("claimed, but {} failed: not counted", self.failed.join(", "))
            }
            (false, true) => "claimed, but the checks did not finish: not counted".to_owned(),
        }
    }
}

/// Every check ran to its end and passed. An iteration without checks proves nothing.
fn proves(record: &IterationRecord) -> bool {
    record.ended
        && !record.cut_off
        && !record.guardrails.is_empty()
        && record.guardrails.iter().all(|check| check.passed)
}

/// The stories of a run, in the order of its list.
pub fn stories(list: &[StoryInput], run: &RunState, is_alive: bool) -> Vec<StoryView> {
    let in_work = run.iterations.last().filter(|last| is_alive && !last.ended);
    let in_work = in_work.and_then(|last| last.story.as_ref()).map(|story| story.id.as_str());
    list.iter().map(|story| view(story, run, in_work)).collect()
}

fn view(story: &StoryInput, run: &RunState, in_work: Option<&str>) -> StoryView {
    let marked = |record: &&IterationRecord| record.marked.contains(&story.id);
    let worked_on = |record: &&IterationRecord| {
        marked(record) || record.story.as_ref().is_some_and(|it| it.id == story.id)
    };
    let claims: Vec<&IterationRecord> = run.iterations.iter().filter(marked).collect();
    let iterations: Vec<&IterationRecord> = run.iterations.iter().filter(worked_on).collect();
    let last = claims.last();
    // A story that passed before this run was judged then.
    let is_proven = story.passes && last.is_none_or(|record| proves(record));
    let state = match story {
        _ if is_proven => StoryState::Proven,
        _ if in_work == Some(&story.id) => StoryState::InWork,
        story if story.passes => StoryState::Claimed,
        story if !story.waits_for.is_empty() => StoryState::WaitsFor,
        story if story.is_next => StoryState::Next,
        _ => StoryState::CanStart,
    };
    let check = |record: &IterationRecord, result: &GuardrailResult| {
        (one_line(&result.command), CheckRun::of(record.number, result))
    };
    let commit = |commit: &CommitRecord| (short_id(&commit.id), one_line(&commit.subject));
    StoryView {
        id: one_line(&story.id),
        title: one_line(&story.title),
        state,
        waits_for: story.waits_for.iter().map(|id| one_line(id)).collect(),
        criteria: story.criteria.iter().map(|text| one_line(text)).collect(),
        claim: strip_control_chars(&story.notes),
        proven_in: last.filter(|_| is_proven).map(|record| record.number),
        checks: last.map_or_else(Vec::new, |record| {
            record.guardrails.iter().map(|result| check(record, result)).collect()
        }),
        commits: last.map_or_else(Vec::new, |record| record.commits.iter().map(commit).collect()),
        history: claims.iter().map(|record| Claim::of(record)).collect(),
        cost: total_cost(run, &iterations),
        iterations: iterations.iter().map(|record| record.number).collect(),
        duration_ms: iterations.iter().map(|record| record.duration_ms).sum(),
    }
}

pub(crate) fn short_id(id: &str) -> String {
    ralph_events::text::prefix(id, 7).to_owned()
}

fn total_cost(run: &RunState, iterations: &[&IterationRecord]) -> Cost {
    let costs = || iterations.iter().map(|record| run.iteration_cost(record));
    let add = |sum: Option<f64>, usd: f64| Some(sum.unwrap_or(0.0) + usd);
    let reported = costs().filter_map(|cost| cost.reported).fold(None, add);
    let has_estimate = costs().any(|cost| cost.estimated.is_some());
    let estimated = costs().filter_map(|cost| cost.usd()).fold(None, add);
    Cost { reported, estimated: estimated.filter(|_| has_estimate) }
}
