//! How a run ended, and how it was resumed.

use serde::Serialize;

use crate::attempt;
use crate::event::{Event, Outcome};

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEnd {
    pub time_ms: i64,
    pub outcome: Outcome,
    pub exit_code: u8,
    pub message: String,
    /// Iterations that were started.
    pub iterations: u32,
    /// The last iteration was not finished.
    pub cut_off: bool,
    /// Working time by the run's own clock.
    pub duration_ms: u64,
    /// The signal or command that interrupted the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// How the last attempt failed, if the run gave up after failed attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// How much of which budget was used, if the run ended because a budget was used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_up: Option<String>,
    /// `notify.command` has not been run for this end.
    pub notify_pending: bool,
}

impl RunEnd {
    /// `stop` is the request that was open when the run ended.
    pub(super) fn new(time_ms: i64, event: &Event<'_>, stop: Option<String>) -> Option<RunEnd> {
        let Event::RunEnded {
            outcome,
            exit_code,
            message,
            iterations,
            cut_off,
            duration_ms,
            notify,
            last_failure,
            used_up,
            ..
        } = event
        else {
            return None;
        };
        let mut end = RunEnd {
            time_ms,
            outcome: *outcome,
            exit_code: *exit_code,
            message: message.as_ref().to_owned(),
            iterations: *iterations,
            cut_off: *cut_off,
            duration_ms: *duration_ms,
            stopped_by: stop.filter(|_| *outcome == Outcome::Interrupted),
            last_failure: last_failure.as_deref().map(str::to_owned),
            used_up: used_up.as_deref().map(str::to_owned),
            notify_pending: *notify,
        };
        end.read_message_of_0_1();
        Some(end)
    }

    /// Journals of ralph 0.1.0 lack `last_failure` and `used_up`, but its messages contain them.
    fn read_message_of_0_1(&mut self) {
        if self.outcome == Outcome::AgentFailed && self.last_failure.is_none() {
            self.last_failure = attempt::why_it_gave_up(&self.message).map(str::to_owned);
        }
        if self.outcome == Outcome::Budget && self.used_up.is_none() {
            self.used_up = attempt::how_much_was_used_up(&self.message).map(str::to_owned);
        }
    }
}

/// A resume of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Continuation {
    pub time_ms: i64,
    /// How the run had ended; `None` if it was killed.
    pub after: Option<Outcome>,
    /// The iteration that started again.
    pub cut_off: Option<u32>,
    /// The iteration whose agent had finished, so that only its checks were left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<u32>,
}
