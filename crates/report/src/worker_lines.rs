//! The state of a worker, and the lines about its loop.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::state_word::{StateWord, end_cause};
use crate::warning_text::{delivery_text, undelivered_text};
use crate::width;
use ralph_events::event::{Class, EndCause, Event, Exit, Outcome, Purpose, Stamp, WaitReason};
use ralph_events::exit_code;
use ralph_events::run_state::{Activity, Cost, RunState};

/// The reason in [`Event::StopRequested`] for `ralph kill`.
pub const KILL_REASON: &str = "ralph kill";

/// Columns shown of a question, an answer or guidance.
const MAX_SAID: usize = 160;

/// The exit code of shells for a program that cannot be started.
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

    pub fn has_ended(self) -> bool {
        matches!(self, WorkerStatus::Stopped | WorkerStatus::Failed)
    }
}

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
            | Outcome::PromptMissing
            | Outcome::InternalError => WorkerOutcome::Failed,
        }
    }

    /// Why the run ended, in the words of every view; `None` if its message says so.
    fn cause(self) -> Option<&'static str> {
        end_cause(match self {
            WorkerOutcome::Limit => Outcome::LimitReached,
            WorkerOutcome::Budget => Outcome::Budget,
            WorkerOutcome::Stalled => Outcome::Stalled,
            WorkerOutcome::Killed => Outcome::Interrupted,
            WorkerOutcome::Complete | WorkerOutcome::Failed => return None,
        })
    }

    fn status(self) -> WorkerStatus {
        if self == WorkerOutcome::Failed { WorkerStatus::Failed } else { WorkerStatus::Stopped }
    }
}

/// The contents of a worker's `state.json`.
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
    /// Seconds; 0 for none.
    pub inactivity_timeout: u64,
    /// The process of the loop.
    pub pid: Option<u32>,
    pub run_id: Option<String>,
    pub directory: String,
    /// The command that started the run; empty in files of version 0.1, which knew `spawn` only.
    pub command: String,
    /// The run is in a terminal of the user, not in a window of its own.
    pub foreground: bool,
    /// The agent runs on a terminal of its own.
    pub interactive: bool,
    /// The exit code of the loop.
    pub exit_code: Option<u8>,
    pub message: Option<String>,
    pub outcome: Option<WorkerOutcome>,
    /// Iterations that ended, and the time they took.
    pub finished_iterations: u32,
    pub finished_ms: u64,
    /// Iterations that were started and never ended.
    pub cut_off_iterations: u32,
    /// The current iteration has not ended.
    pub iteration_open: bool,
    /// US dollars that the agent reported.
    pub cost_usd: Option<f64>,
    /// The same with an estimate of what the agent does not report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<f64>,
    /// The last line about the loop.
    pub last_event: Option<String>,
    pub last_event_time: Option<String>,
    /// A retry, the end of a rate limit or a person is waited for.
    pub waiting: bool,
    /// The state of the run while it lives, and after its end. Version 0.1 wrote none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word: Option<StateWord>,
    /// The run was asked to stop and has not ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// Start of the current pause, and the length of earlier ones. The time after an end counts as a pause.
    pub paused_since: Option<String>,
    pub paused_ms: u64,
    pub ended: Option<String>,
}

impl WorkerState {
    /// Returns the average time of an iteration.
    pub fn average_ms(&self) -> Option<u64> {
        self.finished_ms.checked_div(u64::from(self.finished_iterations))
    }

    /// Returns the time up to the limit of iterations, by the average so far.
    pub fn remaining_ms(&self) -> Option<u64> {
        if self.status.has_ended() {
            return None;
        }
        // The current iteration counts as a whole: its remaining time is unknown.
        let used_up = self.current_iteration.saturating_sub(u32::from(self.iteration_open));
        let left = self.max_iterations.saturating_sub(used_up);
        Some(self.average_ms()?.saturating_mul(u64::from(left)))
    }

    /// Started by `ralph spawn`.
    pub fn is_spawned(&self) -> bool {
        matches!(self.command.as_str(), "" | "spawn")
    }

    /// The end is known. After an interruption the run counts as paused.
    pub fn has_end(&self) -> bool {
        let interrupted = self.status == WorkerStatus::Paused && self.ended.is_some();
        self.status.has_ended() || interrupted
    }

    /// The word of every view.
    pub fn state_word(&self, is_alive: bool) -> StateWord {
        match (self.word, self.status, self.outcome) {
            _ if !is_alive && !self.has_end() => StateWord::Interrupted,
            (Some(word), ..) => word,
            (None, WorkerStatus::Running, _) => StateWord::Working,
            (None, WorkerStatus::Paused, _) => StateWord::Paused,
            (None, _, Some(WorkerOutcome::Complete)) => StateWord::Complete,
            (None, WorkerStatus::Failed, _) | (None, _, Some(WorkerOutcome::Stalled)) => {
                StateWord::Failed
            }
            (None, WorkerStatus::Stopped, _) => StateWord::Ended,
        }
    }

    /// The word of every view with why the run ended.
    pub fn state_text(&self, is_alive: bool) -> String {
        let word = self.state_word(is_alive);
        let has_cause = matches!(word, StateWord::Ended | StateWord::Failed);
        word.with_cause(self.cause().filter(|_| has_cause))
    }

    fn cause(&self) -> Option<&'static str> {
        match self.outcome {
            _ if self.exit_code == Some(exit_code::SCM_FAILED) => {
                end_cause(Outcome::CompleteScmFailed)
            }
            Some(outcome) => outcome.cause(),
            None if self.ended.is_some() => end_cause(Outcome::Interrupted),
            None => None,
        }
    }

    /// The state of a run that has ended, with its own words about that.
    pub fn end_text(&self) -> String {
        self.state_word(false).with_cause(self.end_message())
    }

    /// Completes "has ended".
    pub fn end_clause(&self) -> String {
        match (self.state_word(false), self.end_message()) {
            (StateWord::Ended, Some(message)) => message.to_owned(),
            _ => self.end_text(),
        }
    }

    fn end_message(&self) -> Option<&str> {
        let was_stopped = matches!(self.outcome, None | Some(WorkerOutcome::Killed));
        self.message.as_deref().filter(|_| !was_stopped).or_else(|| self.cause())
    }

    /// The pause begins after the current step.
    pub fn is_pausing(&self, is_alive: bool) -> bool {
        is_alive && self.status == WorkerStatus::Paused && self.paused_since.is_none()
    }

    /// The loop has ended, and nothing is left to do.
    pub fn is_complete(&self) -> bool {
        self.status.has_ended() && self.outcome == Some(WorkerOutcome::Complete)
    }

    /// For a run whose journal is gone.
    pub fn add_progress_to(&self, run: &mut RunState) {
        run.resume.iterations = self.current_iteration;
        run.resume.failures = self.consecutive_failures;
    }

    /// Returns the working time until `now`.
    pub fn elapsed_ms(&self, now: DateTime) -> Option<u64> {
        let ended = self.ended.as_ref().filter(|_| self.has_end());
        let until = match self.paused_since.as_ref().or(ended) {
            Some(time) => time.parse().ok()?,
            None => now,
        };
        Some(between_ms(&self.started, until)?.saturating_sub(self.paused_ms))
    }

    pub fn cost(&self) -> Cost {
        Cost { reported: self.cost_usd, estimated: self.estimated_cost_usd }
    }
}

/// The lines about one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkerLines {
    /// For the terminal, with the prefix `[ralph] NAME: `.
    pub messages: Vec<String>,
    /// For `iterations.log`.
    pub log_lines: Vec<String>,
}

/// Keeps the state of a worker and writes lines about its loop.
#[derive(Debug, Clone)]
pub struct WorkerTracker {
    pub state: WorkerState,
    zone: TimeZone,
    /// Failures in a file of an older version, which had no journal. Known from the first event on.
    earlier_failures: Option<u32>,
    /// Exit code of the last agent.
    exit: i32,
    killed: bool,
    /// The failure of the current iteration has a line already.
    failure_reported: bool,
}

impl WorkerTracker {
    pub fn new(state: WorkerState, zone: TimeZone) -> Self {
        WorkerTracker {
            state,
            zone,
            earlier_failures: None,
            exit: 0,
            killed: false,
            failure_reported: false,
        }
    }

    fn time(&self, time_ms: i64) -> DateTime {
        let time = jiff::Timestamp::from_millisecond(time_ms).unwrap_or_default();
        self.zone.to_datetime(time)
    }

    /// Takes the next event, and the state of the run after it.
    pub fn apply(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) -> WorkerLines {
        let was_open = self.state.iteration_open;
        self.update(at, event, run);
        let mut lines = WorkerLines::default();
        let name = self.state.worker_name.clone();
        let time = self.time(at.time_ms);
        let iteration = at.iteration;
        let mut say = |words: String| lines.messages.push(format!("[ralph] {name}: {words}"));
        let mut log = |word: &str, words: &str| lines.log_lines.push(log_line(time, word, words));
        let mut say_and_log = |word: &str, words: String| {
            log(word, &words);
            say(words);
        };
        match event {
            Event::RunContinued { unchecked, .. } => {
                let (word, words) = if let Some(iteration) = unchecked {
                    ("CHECK", format!("checking the work of iteration {iteration}"))
                } else if was_open {
                    let iteration = self.state.current_iteration;
                    ("CUT", format!("iteration {iteration} was interrupted"))
                } else {
                    return lines;
                };
                say_and_log(word, words);
            }
            Event::IterationStarted { max_iterations } => {
                self.failure_reported = false;
                self.exit = NOT_STARTED;
                say(format!("starting iteration {iteration}/{max_iterations}"));
                log("START", &format!("iteration {iteration}/{max_iterations}"));
            }
            Event::AgentEnded { purpose: Purpose::Work, exit, ended_by, class, .. } => {
                self.exit = match exit {
                    Some(Exit::Code(code)) => *code,
                    Some(Exit::Signal(signal)) => 128 + signal,
                    None => NOT_STARTED,
                };
                if *ended_by == Some(EndCause::Inactivity) && *class == Class::TimedOut {
                    let limit = self.state.inactivity_timeout;
                    say_and_log("TIMEOUT", format!("inactivity timeout ({limit}s), restarting"));
                }
            }
            Event::Retrying { delay_ms, failures, max_failures, .. } => {
                self.failure_reported = true;
                let next = match delay_ms {
                    Some(delay_ms) => format!("retrying in {}", format_duration(*delay_ms, " ")),
                    None => "not retrying".to_owned(),
                };
                let words = format!(
                    "iteration {iteration} failed (exit: {}), {next} (attempt {failures}/{max_failures})",
                    self.exit,
                );
                say_and_log("FAIL", words);
            }
            // A failure that ends the loop ends its iteration, too.
            Event::IterationEnded { cut_off: true, class, duration_ms, .. }
                if !is_failure(*class) =>
            {
                let time = format_duration(*duration_ms, " ");
                say_and_log("CUT", format!("iteration {iteration} was interrupted after {time}"));
            }
            Event::IterationEnded { class, duration_ms, .. } => {
                let exit = self.exit;
                let time = format_duration(*duration_ms, "");
                log("END", &format!("iteration {iteration} exit={exit} duration={time}"));
                let succeeded = !self.failure_reported && !is_failure(*class);
                if succeeded && *class != Class::TimedOut {
                    say(format!(
                        "iteration {iteration} completed (exit: {exit}, duration: {})",
                        format_duration(*duration_ms, " ")
                    ));
                }
            }
            Event::DialogOpened { dialog } => {
                let words = format!("waiting for you: ralph attach {name}");
                log("WAIT", &format!("{words} ({dialog})"));
                say(words);
            }
            // The terminal has a line of its own.
            Event::Waiting { reason: WaitReason::RateLimit, until_ms } => {
                let until = self.time(*until_ms).strftime("%H:%M");
                let words = format!("rate limit reached, waiting until {until}");
                log("WAIT", &words);
                self.state.last_event = Some(words);
                self.state.last_event_time = Some(format_time(time));
            }
            Event::DialogClosed => say_and_log("CONTINUE", "the dialog was answered".to_owned()),
            Event::QuestionAsked { id, text, .. } => {
                let text = width::one_line(text, MAX_SAID, "…");
                say_and_log("ASK", format!("asks: {text} (ralph answer {id} \"…\")"));
            }
            Event::QuestionAnswered { id, text } => {
                let text = width::one_line(text, MAX_SAID, "…");
                log("ANSWER", &format!("{id}: {text}"));
            }
            Event::GuidanceReceived { text, .. } => {
                log("TELL", &width::one_line(text, MAX_SAID, "…"));
            }
            Event::GuidanceCleared => log("TELL", "guidance dropped"),
            Event::GuidanceDelivered { guidance, answers } => {
                log("TELL", &delivery_text(guidance.len(), answers.len()));
            }
            Event::Parked => say_and_log("PARK", "waiting for your answer".to_owned()),
            Event::Unparked => say_and_log("CONTINUE", "no longer waiting".to_owned()),
            Event::PauseRequested => say_and_log("PAUSE", "paused".to_owned()),
            Event::Resumed { .. } => say_and_log("RESUME", "resumed".to_owned()),
            Event::RunEnded { outcome, message, iterations, .. } => {
                for said in run.steering.undelivered() {
                    log("TELL", &undelivered_text(said));
                }
                let words = self.describe_end(*outcome, *iterations, message, run);
                let word = match self.state.status {
                    WorkerStatus::Failed => "FAIL",
                    WorkerStatus::Paused => "PAUSE",
                    _ => "DONE",
                };
                log(word, &words);
                say(words);
            }
            _ => {}
        }
        self.remember_last(&lines, time);
        lines
    }

    /// Copies facts of the run into the state of the worker.
    fn update(&mut self, at: Stamp, event: &Event<'_>, run: &RunState) {
        let time = self.time(at.time_ms);
        let (state, totals) = (&mut self.state, &run.totals);
        if let Event::StopRequested { signal, .. } = event {
            self.killed |= signal == KILL_REASON;
        }
        state.current_iteration = state.current_iteration.max(totals.iteration);
        let failures = totals.failures.total;
        let before = state.total_failures.saturating_sub(failures);
        state.total_failures = failures + *self.earlier_failures.get_or_insert(before);
        state.finished_iterations = totals.iterations_ended;
        state.finished_ms = totals.ended_ms;
        state.cut_off_iterations = totals.cut_off;
        let cost = run.cost();
        state.cost_usd = cost.reported;
        state.estimated_cost_usd = cost.estimated;
        state.waiting = run.activity.is_waiting() && !run.requests.pause;
        state.word = Some(StateWord::of(run, true));
        state.stopping = run.requests.stop.is_some() && run.end.is_none();
        match event {
            Event::RunStarted { run: id, pid, .. } => {
                state.run_id = Some(id.as_ref().to_owned());
                state.pid = Some(*pid);
                if state.started.is_empty() {
                    state.started = format_time(time);
                }
            }
            Event::IterationStarted { .. } => {
                state.last_iteration_started = Some(format_time(time));
            }
            _ => {}
        }
        // The limit in the file may be edited meanwhile; only these events replace it.
        if let Event::RunStarted { .. } | Event::IterationStarted { .. } | Event::Resumed { .. } =
            event
        {
            state.max_iterations = run.info.max_iterations;
        }
        if let Event::RunContinued { .. }
        | Event::IterationStarted { .. }
        | Event::IterationEnded { .. } = event
        {
            state.iteration_open = totals.iteration_open;
        }
        if let Event::Retrying { .. }
        | Event::IterationEnded { .. }
        | Event::RunEnded { outcome: Outcome::AgentFailed, .. } = event
        {
            state.consecutive_failures = totals.failures.consecutive;
        }
        if let Event::RunStarted { .. }
        | Event::RunContinued { .. }
        | Event::Paused
        | Event::Resumed { .. }
        | Event::Parked
        | Event::Unparked
        | Event::RunEnded { .. } = event
        {
            self.update_clock(at.time_ms, run);
        }
        self.update_status(run);
    }

    /// Makes `elapsed_ms` return the working time of the run.
    fn update_clock(&mut self, now_ms: i64, run: &RunState) {
        let until = self.time(run.clock.idle_since_ms.unwrap_or(now_ms));
        let state = &mut self.state;
        let wall_ms = between_ms(&state.started, until).unwrap_or(0);
        state.paused_ms = wall_ms.saturating_sub(run.duration_ms(None));
        state.paused_since = run.clock.idle_since_ms.map(|_| format_time(until));
    }

    fn update_status(&mut self, run: &RunState) {
        let ended = run.end.as_ref().map(|end| format_time(self.time(end.time_ms)));
        let state = &mut self.state;
        // A loop that a signal interrupted can be resumed.
        let over =
            run.end.as_ref().filter(|end| end.outcome != Outcome::Interrupted || self.killed);
        state.outcome = over.map(|end| WorkerOutcome::of(end.outcome));
        let paused = run.requests.pause || matches!(run.activity, Activity::Paused { .. });
        state.status = match state.outcome {
            Some(outcome) => outcome.status(),
            None if paused || run.end.is_some() => WorkerStatus::Paused,
            None => WorkerStatus::Running,
        };
        state.exit_code = run.end.as_ref().map(|end| end.exit_code);
        state.message = run.end.as_ref().map(|end| end.message.clone());
        state.ended = ended;
    }

    fn remember_last(&mut self, lines: &WorkerLines, time: DateTime) {
        if let Some(last) = lines.messages.last() {
            let prefix = format!("[ralph] {}: ", self.state.worker_name);
            let words = last.strip_prefix(&prefix).unwrap_or(last);
            self.state.last_event = Some(words.to_owned());
            self.state.last_event_time = Some(format_time(time));
        }
    }

    /// Ends a worker whose loop is gone, with the lines that the loop would have written. `run` is what it has done.
    pub fn mark_killed(&mut self, time_ms: i64, run: &RunState) -> WorkerLines {
        let time = self.time(time_ms);
        if !run.is_empty() {
            self.update_clock(run.clock.last_ms, run);
            let last_alive = format_time(self.time(run.clock.last_ms));
            self.state.paused_since.get_or_insert(last_alive);
        }
        let mut lines = WorkerLines::default();
        let state = &mut self.state;
        if std::mem::take(&mut state.iteration_open) {
            state.cut_off_iterations = state.cut_off_iterations.saturating_add(1);
            let iteration = state.current_iteration;
            let words = format!("iteration {iteration} was interrupted");
            lines.log_lines.push(log_line(time, "CUT", &words));
        }
        state.outcome = Some(WorkerOutcome::Killed);
        state.status = WorkerOutcome::Killed.status();
        state.exit_code = Some(exit_code::INTERRUPTED);
        state.message = Some("interrupted".to_owned());
        (state.waiting, state.word) = (false, Some(StateWord::Ended));
        state.ended = Some(format_time(time));
        state.paused_since.get_or_insert_with(|| format_time(time));
        lines.log_lines.push(log_line(time, "DONE", "killed"));
        lines.messages.push(format!("[ralph] {}: killed", state.worker_name));
        self.remember_last(&lines, time);
        lines
    }

    fn describe_end(
        &self,
        outcome: Outcome,
        iterations: u32,
        message: &str,
        run: &RunState,
    ) -> String {
        let state = &self.state;
        let s = if iterations == 1 { "" } else { "s" };
        let last_class = run.iterations.last().and_then(|last| last.class);
        match outcome {
            // Elsewhere it would sound like completed work.
            Outcome::LimitReached if state.is_spawned() => {
                let cut_off = match state.cut_off_iterations {
                    0 => String::new(),
                    n => format!(", {n} interrupted"),
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
            Outcome::AgentFailed if last_class.is_none_or(is_failure) => {
                format!("{} consecutive failures, stopping loop", state.consecutive_failures)
            }
            Outcome::Interrupted if self.killed => "killed".to_owned(),
            _ => message.to_owned(),
        }
    }
}

fn log_line(time: DateTime, word: &str, words: &str) -> String {
    format!("{} [{word}] {words}", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Returns the time between two moments of `state.json`.
fn between_ms(from: &str, to: DateTime) -> Option<u64> {
    let from: DateTime = from.parse().ok()?;
    let span = to.duration_since(from).as_millis();
    u64::try_from(span).ok()
}

fn is_failure(class: Class) -> bool {
    matches!(class, Class::Failed | Class::NotStarted | Class::ContextExhausted)
}

/// Formats a time for `state.json`.
fn format_time(time: DateTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// Formats a duration: `3m 42s`, with `between` its parts.
pub fn format_duration(ms: u64, between: &str) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{between}{seconds}s"),
        _ => format!("{hours}h{between}{minutes}m{between}{seconds}s"),
    }
}

/// Names become tmux windows, directories and branches.
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests;
