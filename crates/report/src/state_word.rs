//! The one word that every view uses for the state of a run.

use serde::Serialize;

use crate::style::TextRole;
use ralph_events::event::Outcome;
use ralph_events::run_state::{Activity, RunState};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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

impl StateWord {
    pub fn of(run: &RunState, is_running: bool) -> StateWord {
        match (run.outcome(), &run.activity) {
            (Some(Outcome::Complete), _) => StateWord::Complete,
            (Some(Outcome::LimitReached | Outcome::Budget | Outcome::Interrupted), _) => {
                StateWord::Ended
            }
            (Some(_), _) => StateWord::Failed,
            (None, _) if !is_running => StateWord::Interrupted,
            (None, _) if run.steering.open_questions().next().is_some() => StateWord::Asks,
            (None, Activity::Waiting { .. }) => StateWord::Waiting,
            (None, Activity::Paused { .. }) => StateWord::Paused,
            (None, Activity::Agent(agent)) if agent.dialog.is_some() => StateWord::Asks,
            (None, Activity::Parked { .. }) => StateWord::Asks,
            (None, _) => StateWord::Working,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.look().0
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
