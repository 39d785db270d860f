//! What is known of a worker, and what is said of its loop: both follow from the events of its run.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use ralph_events::event::{Class, EndCause, Event, Exit, Outcome, Purpose, Stamp, Usage};
use ralph_events::exit_code;

/// The word in [`Event::StopRequested`] for `ralph kill`, which is no signal.
pub const KILL_REASON: &str = "ralph kill";

/// What a program shows that could not be started, as shells have it.
const NOT_STARTED: i32 = 127;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStatus {
    #[default]
    Running,
    Paused,
    Stopped,
    Failed,
}

impl WorkerStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerStatus::Running => "running",
            WorkerStatus::Paused => "paused",
            WorkerStatus::Stopped => "stopped",
            WorkerStatus::Failed => "failed",
        }
    }

    /// Its loop has come to its end.
    pub fn has_ended(self) -> bool {
        matches!(self, WorkerStatus::Stopped | WorkerStatus::Failed)
    }
}

/// How a worker's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerOutcome {
    #[serde(alias = "complete_scm_failed")]
    Complete,
    #[serde(alias = "limit_reached")]
    Limit,
    Budget,
    Stalled,
    #[serde(alias = "interrupted")]
    Killed,
    #[serde(alias = "agent_failed", alias = "credentials_refused")]
    #[serde(alias = "prompt_lost", alias = "broken")]
    Failed,
}

impl WorkerOutcome {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerOutcome::Complete => "complete",
            WorkerOutcome::Limit => "limit",
            WorkerOutcome::Budget => "budget",
            WorkerOutcome::Stalled => "stalled",
            WorkerOutcome::Killed => "killed",
            WorkerOutcome::Failed => "failed",
        }
    }

    fn of(outcome: Outcome) -> WorkerOutcome {
        match outcome {
            Outcome::Complete | Outcome::CompleteScmFailed => WorkerOutcome::Complete,
            Outcome::LimitReached => WorkerOutcome::Limit,
            Outcome::Budget => WorkerOutcome::Budget,
            Outcome::Stalled => WorkerOutcome::Stalled,
            Outcome::Interrupted => WorkerOutcome::Killed,
            Outcome::AgentFailed
            | Outcome::CredentialsRefused
            | Outcome::PromptLost
            | Outcome::Broken => WorkerOutcome::Failed,
        }
    }

    fn status(self) -> WorkerStatus {
        if self == WorkerOutcome::Failed { WorkerStatus::Failed } else { WorkerStatus::Stopped }
    }
}

/// A worker, as its `state.json` tells of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerState {
    pub worker_name: String,
    pub prompt_file: String,
    pub max_iterations: u32,
    pub current_iteration: u32,
    pub status: WorkerStatus,
    pub started: String,
    pub last_iteration_started: Option<String>,
    pub consecutive_failures: u32,
    pub total_failures: u32,
    pub done_pattern: Option<String>,
    /// Seconds; 0 is none.
    pub inactivity_timeout: u64,
    /// The process of the loop.
    pub pid: Option<u32>,
    pub run_id: Option<String>,
    /// Where it works.
    pub directory: String,
    /// Its agent has a screen of its own.
    pub interactive: bool,
    /// What the loop ended with.
    pub exit_code: Option<u8>,
    /// How it ended, in words.
    pub message: Option<String>,
    pub outcome: Option<WorkerOutcome>,
    /// Iterations that came to their end, and how long they took in all.
    pub finished_iterations: u32,
    pub finished_ms: u64,
    /// Iterations that were begun and never came to one: somebody ended them, or the loop with them.
    pub cut_off_iterations: u32,
    /// The current iteration has been begun and has no end yet.
    pub iteration_open: bool,
    /// US dollars, as far as the agent tells them.
    pub cost_usd: Option<f64>,
    /// What was said of the loop last, and when.
    pub last_event: Option<String>,
    pub last_event_time: Option<String>,
    /// Nothing is done for the moment: a retry or a rate limit is waited for, or a person.
    pub waiting: bool,
    /// Since when it is paused, and how long it was before. That is no time of its work.
    pub paused_since: Option<String>,
    pub paused_ms: u64,
    /// When it came to its end.
    pub ended: Option<String>,
}

impl WorkerState {
    /// How long an iteration takes.
    pub fn average_ms(&self) -> Option<u64> {
        self.finished_ms.checked_div(u64::from(self.finished_iterations))
    }

    /// How long it may still take to the limit, if the iterations to come are as those that were.
    pub fn remaining_ms(&self) -> Option<u64> {
        if self.status.has_ended() {
            return None;
        }
        // The one that is under way is counted as a whole: how much of it is left nobody knows.
        let used_up = self.current_iteration.saturating_sub(u32::from(self.iteration_open));
        let left = self.max_iterations.saturating_sub(used_up);
        Some(self.average_ms()?.saturating_mul(u64::from(left)))
    }
}

impl WorkerState {
    /// It has come to its end, and there is nothing left for it to do.
    pub fn is_complete(&self) -> bool {
        self.status.has_ended() && self.outcome == Some(WorkerOutcome::Complete)
    }

    /// How long it has been at work until `now`, pauses left out.
    pub fn elapsed_ms(&self, now: DateTime) -> Option<u64> {
        let until = match &self.paused_since {
            Some(paused) => paused.parse().ok()?,
            None => now,
        };
        Some(between_ms(&self.started, until)?.saturating_sub(self.paused_ms))
    }

    fn end_pause(&mut self, now: DateTime) {
        let paused_ms = self.paused_since.take().and_then(|since| between_ms(&since, now));
        self.paused_ms = self.paused_ms.saturating_add(paused_ms.unwrap_or(0));
    }

    /// The iteration that is open, if there is one, will never come to its end. Says whether there is.
    fn close_open_iteration(&mut self) -> bool {
        let open = std::mem::take(&mut self.iteration_open);
        self.cut_off_iterations = self.cut_off_iterations.saturating_add(u32::from(open));
        open
    }
}

/// What is to be said of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkerLines {
    /// For whoever watches, behind `[ralph] NAME: `.
    pub messages: Vec<String>,
    /// For `iterations.log`.
    pub log_lines: Vec<String>,
}

/// Follows a worker's run.
#[derive(Debug, Clone)]
pub struct WorkerTracker {
    pub state: WorkerState,
    zone: TimeZone,
    exit: i32,
    class: Class,
    killed: bool,
    /// The iteration has failed, and that has been told.
    failure_reported: bool,
}

impl WorkerTracker {
    pub fn new(state: WorkerState, zone: TimeZone) -> Self {
        WorkerTracker {
            state,
            zone,
            exit: 0,
            class: Class::NotStarted,
            killed: false,
            failure_reported: false,
        }
    }

    fn time(&self, at: Stamp) -> DateTime {
        let time = jiff::Timestamp::from_millisecond(at.time_ms).unwrap_or_default();
        self.zone.to_datetime(time)
    }

    /// Takes the next event.
    pub fn apply(&mut self, at: Stamp, event: &Event<'_>) -> WorkerLines {
        let mut told = WorkerLines::default();
        let name = self.state.worker_name.clone();
        let time = self.time(at);
        let iteration = at.iteration;
        let mut say = |words: String| told.messages.push(format!("[ralph] {name}: {words}"));
        let mut log = |words: String| {
            told.log_lines.push(format!("{} {words}", time.strftime("%Y-%m-%dT%H:%M:%S")));
        };
        let state = &mut self.state;
        match event {
            Event::Waiting { .. } | Event::DialogOpened { .. } => state.waiting = true,
            Event::DialogClosed
            | Event::AgentEnded { .. }
            | Event::IterationStarted { .. }
            | Event::AgentStarted { .. }
            | Event::PauseRequested
            | Event::RunEnded { .. } => state.waiting = false,
            _ => {}
        }
        match event {
            Event::RunStarted { run, pid, max_iterations, .. } => {
                state.end_pause(time);
                state.run_id = Some(run.clone().into_owned());
                state.pid = Some(*pid);
                state.max_iterations = *max_iterations;
                state.status = WorkerStatus::Running;
                (state.exit_code, state.message, state.outcome) = (None, None, None);
                if state.started.is_empty() {
                    state.started = format_time(time);
                }
                state.ended = None;
            }
            Event::RunContinued { unchecked, .. } => {
                let (word, words) = if let Some(iteration) = unchecked {
                    // Its agent had come to its end, and so will the iteration.
                    if !std::mem::replace(&mut state.iteration_open, true) {
                        state.cut_off_iterations = state.cut_off_iterations.saturating_sub(1);
                    }
                    ("CHECK", format!("checking what iteration {iteration} did"))
                } else if state.close_open_iteration() {
                    let iteration = state.current_iteration;
                    ("CUT", format!("iteration {iteration} was cut off with its loop"))
                } else {
                    return told;
                };
                log(format!("[{word}] {words}"));
                say(words);
            }
            Event::IterationStarted { max_iterations } => {
                state.current_iteration = iteration;
                state.iteration_open = true;
                state.max_iterations = *max_iterations;
                state.last_iteration_started = Some(format_time(time));
                self.failure_reported = false;
                (self.exit, self.class) = (NOT_STARTED, Class::NotStarted);
                say(format!("starting iteration {iteration}/{max_iterations}"));
                log(format!("[START] iteration {iteration}/{max_iterations}"));
            }
            Event::AgentEnded { purpose: Purpose::CommitMessage, usage, .. } => {
                state.cost_usd = add(state.cost_usd, usage.cost_usd);
            }
            Event::AgentEnded { purpose: Purpose::Work, exit, ended_by, class, usage, .. } => {
                state.cost_usd = add(state.cost_usd, usage.cost_usd);
                self.class = *class;
                self.exit = match exit {
                    Some(Exit::Code(code)) => *code,
                    Some(Exit::Signal(signal)) => 128 + signal,
                    None => NOT_STARTED,
                };
                if *ended_by == Some(EndCause::Inactivity) && *class == Class::TimedOut {
                    let words =
                        format!("inactivity timeout ({}s), restarting", state.inactivity_timeout);
                    log(format!("[TIMEOUT] {words}"));
                    say(words);
                }
            }
            Event::Retrying { delay_ms, failures, max_failures, .. } => {
                state.consecutive_failures = *failures;
                state.total_failures = state.total_failures.saturating_add(1);
                self.failure_reported = true;
                let next = match delay_ms {
                    Some(delay_ms) => format!("retrying in {}", format_duration(*delay_ms, " ")),
                    None => "no retry follows".to_owned(),
                };
                let words = format!(
                    "iteration {iteration} failed (exit: {}), {next} (attempt {failures}/{max_failures})",
                    self.exit,
                );
                log(format!("[FAIL] {words}"));
                say(words);
            }
            // The failure that ends the loop is an end of its iteration all the same.
            Event::IterationEnded { cut_off: true, class, duration_ms, .. }
                if !is_failure(*class) =>
            {
                state.close_open_iteration();
                let words = format!(
                    "iteration {iteration} was cut off after {}",
                    format_duration(*duration_ms, " ")
                );
                log(format!("[CUT] {words}"));
                say(words);
            }
            Event::IterationEnded { class, duration_ms, .. } => {
                let exit = self.exit;
                state.iteration_open = false;
                state.finished_iterations = state.finished_iterations.saturating_add(1);
                state.finished_ms = state.finished_ms.saturating_add(*duration_ms);
                log(format!(
                    "[END] iteration {iteration} exit={exit} duration={}",
                    format_duration(*duration_ms, "")
                ));
                if !self.failure_reported && !is_failure(*class) {
                    state.consecutive_failures = 0;
                    if *class != Class::TimedOut {
                        say(format!(
                            "iteration {iteration} completed (exit: {exit}, duration: {})",
                            format_duration(*duration_ms, " ")
                        ));
                    }
                }
            }
            Event::DialogOpened { dialog } => {
                let words = format!("waiting for you: ralph attach {name}");
                log(format!("[WAIT] {words} ({dialog})"));
                say(words);
            }
            Event::DialogClosed => {
                log("[CONTINUE] the dialog was answered".to_owned());
                say("the dialog was answered".to_owned());
            }
            // At once: what is running only comes to its end.
            Event::PauseRequested => {
                state.status = WorkerStatus::Paused;
                log("[PAUSE] paused".to_owned());
                say("paused".to_owned());
            }
            // Its agent has come to its end.
            Event::Paused => state.paused_since = Some(format_time(time)),
            Event::Resumed { max_iterations } => {
                state.end_pause(time);
                state.status = WorkerStatus::Running;
                state.max_iterations = *max_iterations;
                log("[RESUME] resumed".to_owned());
                say("resumed".to_owned());
            }
            Event::StopRequested { signal, .. } => self.killed |= signal == KILL_REASON,
            Event::RunEnded { outcome, exit_code, message, iterations, .. } => {
                let words = self.finish(*outcome, *iterations, message);
                let state = &mut self.state;
                state.exit_code = Some(*exit_code);
                state.message = Some(message.clone().into_owned());
                state.ended = Some(format_time(time));
                state.paused_since.get_or_insert_with(|| format_time(time));
                let word = match state.status {
                    WorkerStatus::Failed => "FAIL",
                    WorkerStatus::Paused => "PAUSE",
                    _ => "DONE",
                };
                log(format!("[{word}] {words}"));
                say(words);
            }
            _ => {}
        }
        if let Some(said) = told.messages.last() {
            let prefix = format!("[ralph] {name}: ");
            let words = said.strip_prefix(&prefix).unwrap_or(said);
            self.state.last_event = Some(words.to_owned());
            self.state.last_event_time = Some(format_time(time));
        }
        told
    }

    /// Its loop is gone, and somebody ends the worker in the place of it: the same is written as if the
    /// loop had done it.
    pub fn mark_killed(&mut self, time_ms: i64) -> WorkerLines {
        let iterations = self.state.current_iteration;
        let at = Stamp { time_ms, iteration: iterations, attempt: 0 };
        let mut told = WorkerLines::default();
        let cut_off = self.state.close_open_iteration();
        if cut_off {
            let time = self.time(at).strftime("%Y-%m-%dT%H:%M:%S").to_string();
            told.log_lines
                .push(format!("{time} [CUT] iteration {iterations} was cut off with its loop"));
        }
        self.killed = true;
        let end = self.apply(
            at,
            &Event::RunEnded {
                branch: None,
                last_failure: None,
                used_up: None,
                outcome: Outcome::Interrupted,
                exit_code: exit_code::INTERRUPTED,
                message: "interrupted".into(),
                iterations,
                cut_off,
                duration_ms: 0,
                usage: Usage::default(),
                tools: 0,
                tool_errors: 0,
                notify: false,
            },
        );
        told.messages.extend(end.messages);
        told.log_lines.extend(end.log_lines);
        told
    }

    /// The run is over: how is it with the worker, and what is said of it?
    fn finish(&mut self, outcome: Outcome, iterations: u32, message: &str) -> String {
        let state = &mut self.state;
        let s = if iterations == 1 { "" } else { "s" };
        // A loop that a signal interrupted can be resumed.
        let is_over = outcome != Outcome::Interrupted || self.killed;
        state.outcome = is_over.then(|| WorkerOutcome::of(outcome));
        state.status = state.outcome.map_or(WorkerStatus::Paused, WorkerOutcome::status);
        match outcome {
            Outcome::LimitReached => {
                let cut_off = match state.cut_off_iterations {
                    0 => String::new(),
                    n => format!(", {n} of them cut off"),
                };
                format!("loop complete after {iterations} iteration{s}{cut_off}")
            }
            Outcome::Complete if state.done_pattern.is_some() => {
                "done pattern matched, stopping loop".to_owned()
            }
            Outcome::AgentFailed if self.failure_reported => {
                let which =
                    if iterations == 1 { "the only".into() } else { format!("all {iterations}") };
                format!("{which} iteration{s} failed, stopping loop")
            }
            Outcome::AgentFailed if is_failure(self.class) => {
                state.consecutive_failures = state.consecutive_failures.saturating_add(1);
                state.total_failures = state.total_failures.saturating_add(1);
                format!("{} consecutive failures, stopping loop", state.consecutive_failures)
            }
            Outcome::Interrupted if self.killed => "killed".to_owned(),
            _ => message.to_owned(),
        }
    }
}

fn add(sum: Option<f64>, more: Option<f64>) -> Option<f64> {
    match (sum, more) {
        (None, more) => more,
        (sum, None) => sum,
        (Some(sum), Some(more)) => Some(sum + more),
    }
}

/// How long it was from one moment of `state.json` to another.
fn between_ms(from: &str, to: DateTime) -> Option<u64> {
    let from: DateTime = from.parse().ok()?;
    let span = to.duration_since(from).as_millis();
    u64::try_from(span).ok()
}

/// An iteration that came to this has failed.
fn is_failure(class: Class) -> bool {
    matches!(class, Class::Failed | Class::NotStarted | Class::ContextExhausted)
}

/// A moment as `state.json` has it.
fn format_time(time: DateTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// `3m 42s`, with whatever is to stand between the two.
pub fn format_duration(ms: u64, between: &str) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{between}{seconds}s"),
        _ => format!("{hours}h{between}{minutes}m{between}{seconds}s"),
    }
}

/// Whether a worker may be called this: it is the name of a window, a directory and a branch.
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests;
