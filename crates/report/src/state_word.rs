//! The one word that every view uses for the state of a run.

use serde::{Deserialize, Serialize};

use crate::style::TextRole;
use ralph_events::event::Outcome;
use ralph_events::run_state::{Activity, RunState};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateWord {
    Working,
    /// For a rate limit, or before a retry.
    Waiting,
    Paused,
    /// A question or a dialog needs a person.
    Asks,
    Complete,
    /// A limit or budget of the user, or the user stopped it.
    Ended,
    Failed,
    /// Without an end in the journal, and its process is gone.
    #[default]
    Interrupted,
}

/// A failure needs a person until the run is resumed, or for this long.
pub const ATTENTION_MS: i64 = 24 * 3600 * 1000;

/// The groups of every list of runs, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    NeedsYou,
    Working,
    Waiting,
    Done,
}

impl Group {
    pub fn as_str(self) -> &'static str {
        match self {
            Group::NeedsYou => "needs you",
            Group::Working => "working",
            Group::Waiting => "waiting",
            Group::Done => "done",
        }
    }
}

/// Why a run ended, in the words of every view; `None` if it is complete.
pub fn end_cause(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Complete => return None,
        Outcome::CompleteScmFailed => "SCM task failed",
        Outcome::LimitReached => "iteration limit",
        Outcome::Interrupted => "stopped by you",
        Outcome::Budget => "budget used up",
        Outcome::Stalled => "no progress",
        Outcome::AgentFailed => "agent kept failing",
        Outcome::CredentialsRefused => "credentials refused",
        Outcome::PromptMissing => "prompt is gone",
        Outcome::InternalError => "ralph failed",
    })
}

impl StateWord {
    pub const ALL: [StateWord; 8] = [
        StateWord::Working,
        StateWord::Waiting,
        StateWord::Paused,
        StateWord::Asks,
        StateWord::Complete,
        StateWord::Ended,
        StateWord::Failed,
        StateWord::Interrupted,
    ];

    pub fn of(run: &RunState, is_running: bool) -> StateWord {
        match (run.outcome(), &run.activity) {
            (Some(outcome), _) => StateWord::of_outcome(outcome),
            (None, _) if !is_running => StateWord::Interrupted,
            (None, _) if run.steering.open_questions().next().is_some() => StateWord::Asks,
            (None, Activity::Waiting { .. }) => StateWord::Waiting,
            (None, Activity::Paused { .. }) => StateWord::Paused,
            (None, Activity::Agent(agent)) if agent.dialog.is_some() => StateWord::Asks,
            (None, Activity::Parked { .. }) => StateWord::Asks,
            (None, _) => StateWord::Working,
        }
    }

    pub fn of_outcome(outcome: Outcome) -> StateWord {
        match outcome {
            Outcome::Complete => StateWord::Complete,
            Outcome::LimitReached | Outcome::Budget | Outcome::Interrupted => StateWord::Ended,
            _ => StateWord::Failed,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.look().0
    }

    /// The word with why the run ended: `ended (stopped by you)`.
    pub fn with_cause(self, cause: Option<&str>) -> String {
        let word = self.as_str();
        cause.map_or_else(|| word.to_owned(), |cause| format!("{word} ({cause})"))
    }

    /// The group of a run that ended, or was last alive, at `last_ms`.
    pub fn group(self, last_ms: i64, now_ms: i64) -> Group {
        match self {
            StateWord::Asks => Group::NeedsYou,
            StateWord::Failed | StateWord::Interrupted
                if now_ms.saturating_sub(last_ms) < ATTENTION_MS =>
            {
                Group::NeedsYou
            }
            StateWord::Working => Group::Working,
            StateWord::Waiting | StateWord::Paused => Group::Waiting,
            _ => Group::Done,
        }
    }

    /// One column wide.
    pub fn sign(self, group: Group) -> &'static str {
        self.signs(group).0
    }

    pub fn ascii_sign(self, group: Group) -> &'static str {
        self.signs(group).1
    }

    fn signs(self, group: Group) -> (&'static str, &'static str) {
        match self {
            StateWord::Asks => ("?", "?"),
            StateWord::Working => ("●", "*"),
            StateWord::Waiting => ("○", "o"),
            StateWord::Paused => ("=", "="),
            StateWord::Complete => ("✓", "+"),
            StateWord::Ended => ("■", "#"),
            StateWord::Failed | StateWord::Interrupted if group == Group::NeedsYou => ("!", "!"),
            StateWord::Failed | StateWord::Interrupted => ("✗", "x"),
        }
    }

    pub(crate) fn role(self) -> TextRole {
        self.look().1
    }

    fn look(self) -> (&'static str, TextRole) {
        match self {
            StateWord::Working => ("working", TextRole::Faint),
            StateWord::Waiting => ("waiting", TextRole::Faint),
            StateWord::Paused => ("paused", TextRole::Faint),
            StateWord::Asks => ("asks", TextRole::Caution),
            StateWord::Complete => ("complete", TextRole::Good),
            StateWord::Ended => ("ended", TextRole::Faint),
            StateWord::Failed => ("failed", TextRole::Bad),
            StateWord::Interrupted => ("interrupted", TextRole::Bad),
        }
    }
}
