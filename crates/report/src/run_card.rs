//! One run in a list: what every screen shows of it.

mod attention;
mod bar;
mod estimate;
mod now_text;

pub use attention::{Attention, AttentionKind};
pub use bar::{Bar, BarResult};
pub use estimate::Estimate;
pub use now_text::NowText;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::check_view;
use crate::state_word::{Group, StateWord};
use crate::status_line::one_line;
use ralph_events::event::{Isolation, WaitReason};
use ralph_events::run_state::{Activity, Cost, RunState};
use ralph_events::text;

/// What a journal does not say about its run.
#[derive(Debug, Clone, Copy)]
pub struct CardContext<'a> {
    /// The name of the run's directory.
    pub id: &'a str,
    /// The name of the project's directory.
    pub project: &'a str,
    /// For journals without a name.
    pub fallback_name: Option<&'a str>,
    /// The process of the run is alive.
    pub is_alive: bool,
    /// The run directory was removed.
    pub is_removed: bool,
    /// Percent of the journal that was read, while figures are not final.
    pub reading: Option<u8>,
    pub now_ms: i64,
    pub zone: &'a TimeZone,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunCard {
    pub id: String,
    pub name: String,
    pub project: String,
    pub directory: String,
    pub branch: Option<String>,
    pub agent: String,
    pub sandboxed: bool,
    pub state: StateWord,
    pub group: Group,
    /// It pauses or stops once the current step has ended.
    pub is_pausing: bool,
    pub is_stopping: bool,
    /// It waits for the answer to its question.
    pub is_parked: bool,
    pub is_alive: bool,
    pub pid: u32,
    pub iteration: u32,
    /// 0 for no limit.
    pub max_iterations: u32,
    /// Working time, without pauses.
    pub elapsed_ms: u64,
    pub cost: Cost,
    pub budget_usd: Option<f64>,
    pub tokens: u64,
    pub bars: Vec<Bar>,
    pub now: NowText,
    pub attention: Option<Attention>,
    /// Done, and all.
    pub stories: Option<(u32, u32)>,
    /// Checks whose last result is a pass, and all.
    pub checks: Option<(u32, u32)>,
    pub started_ms: Option<i64>,
    /// When it ended, or was last alive if it was killed.
    pub ended_ms: Option<i64>,
    /// When a wait for a rate limit, or before a retry, ends.
    pub wait_until_ms: Option<i64>,
    /// The wait is for a rate limit.
    pub is_rate_limited: bool,
    /// A remark on the files: removed, or written by a newer version.
    pub note: Option<String>,
    /// Percent of the journal that was read, while figures are not final.
    pub reading: Option<u8>,
    /// The run directory was removed while it was shown.
    pub is_removed: bool,
}

impl RunCard {
    pub fn of(run: &RunState, context: &CardContext<'_>) -> RunCard {
        let CardContext { is_alive, now_ms, .. } = *context;
        let state = StateWord::of(run, is_alive);
        let last_ms = run.end.as_ref().map_or(run.clock.last_ms, |end| end.time_ms);
        // Files that are gone need no action.
        let group = if context.is_removed { Group::Done } else { state.group(last_ms, now_ms) };
        let info = &run.info;
        let setup = info.setup.as_deref();
        let is_over = run.end.is_some() || !is_alive;
        let (passing, checks) = check_view::passing_checks(run);
        let (wait_until_ms, is_rate_limited) = match run.activity {
            Activity::Waiting { reason, until_ms } if is_alive => {
                (Some(until_ms), reason == WaitReason::RateLimit)
            }
            _ => (None, false),
        };
        let is_waiting_for_pause = !matches!(run.activity, Activity::Paused { .. });
        RunCard {
            id: context.id.to_owned(),
            name: run_name(run, context),
            project: one_line(context.project),
            directory: one_line(&info.directory),
            branch: info.last_branch.as_ref().or(info.branch.as_ref()).map(|it| one_line(it)),
            agent: one_line(&info.agent),
            sandboxed: setup.is_some_and(|it| matches!(it.isolation, Isolation::Sandbox { .. })),
            state,
            group,
            is_pausing: !is_over && run.requests.pause && is_waiting_for_pause,
            is_stopping: !is_over && run.requests.stop.is_some(),
            is_parked: matches!(run.activity, Activity::Parked { .. }),
            is_alive,
            pid: info.pid,
            iteration: run.totals.iteration,
            max_iterations: info.max_iterations,
            elapsed_ms: run.duration_ms(is_alive.then_some(now_ms)),
            cost: run.cost(),
            budget_usd: setup.and_then(|setup| setup.max_cost_usd),
            tokens: run.usage().total_tokens(),
            bars: bar::bars(run, is_alive, now_ms),
            now: now_text::now_text(run, state, context),
            attention: (group == Group::NeedsYou).then(|| Attention::of(run, last_ms)),
            stories: run.tasks.as_ref().map(|tasks| (tasks.done, tasks.total)),
            checks: (checks > 0).then_some((passing, checks)),
            started_ms: run.clock.started_ms,
            ended_ms: is_over.then_some(last_ms),
            wait_until_ms,
            is_rate_limited,
            note: note(run, context.is_removed),
            reading: context.reading,
            is_removed: context.is_removed,
        }
    }

    pub fn sign(&self) -> &'static str {
        self.state.sign(self.group)
    }

    pub fn ascii_sign(&self) -> &'static str {
        self.state.ascii_sign(self.group)
    }

    /// The state in one word; `pausing` and `stopping` until the run has done so.
    pub fn word(&self) -> &'static str {
        match () {
            () if self.is_stopping => "stopping",
            () if self.is_pausing => "pausing",
            () => self.state.as_str(),
        }
    }

    /// `9/20`, or `9` without a limit.
    pub fn progress(&self) -> String {
        crate::terminal::format_progress(self.iteration, self.max_iterations)
    }

    /// `1h51m`.
    pub fn elapsed(&self) -> String {
        text::format_minutes(self.elapsed_ms)
    }

    pub fn longest_bar_ms(&self) -> u64 {
        self.bars.iter().map(|bar| bar.duration_ms).max().unwrap_or(0)
    }
}

fn run_name(run: &RunState, context: &CardContext<'_>) -> String {
    let known = Some(run.info.name.as_str()).filter(|name| !name.is_empty());
    let name = known.or(context.fallback_name).unwrap_or(context.id);
    one_line(name)
}

fn note(run: &RunState, is_removed: bool) -> Option<String> {
    if is_removed {
        return Some("files removed".to_owned());
    }
    let version = &run.info.version;
    if run.unreadable == 0 || version_numbers(version) <= version_numbers(OWN_VERSION) {
        return None;
    }
    Some(format!("written by ralph {}, some entries are not shown", one_line(version)))
}

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

fn version_numbers(version: &str) -> Vec<u64> {
    let part = |part: &str| part.split('-').next().and_then(|number| number.parse().ok());
    version.split('.').map(|it| part(it).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests;
