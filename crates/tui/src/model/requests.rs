//! Actions that were asked for, until an event confirms them.

use ralph_report::run_card::RunCard;
use ralph_report::state_word::StateWord;

use super::Model;
use crate::data::{Data, question_of};

/// A run that has not answered by then has a problem.
const ANSWER_MS: i64 = 5_000;
/// The complaint stays this long.
const FORGET_MS: i64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    Tell(String),
    /// The id of the question.
    Answer(String),
    Pause,
    Resume,
    Stop {
        now: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    pub run: String,
    pub kind: RequestKind,
    pub since_ms: i64,
}

impl PendingRequest {
    fn is_confirmed(&self, card: &RunCard, data: &Data<'_>) -> bool {
        let is_over = !card.is_alive;
        match &self.kind {
            RequestKind::Pause => is_over || card.is_pausing || card.state == StateWord::Paused,
            RequestKind::Stop { .. } => is_over || card.is_stopping,
            RequestKind::Resume => {
                card.is_alive && !card.is_pausing && card.state != StateWord::Paused
            }
            RequestKind::Answer(question) => match data.run(&self.run) {
                Some(run) => {
                    run.state.steering.question(question).is_none_or(|asked| !asked.is_open())
                }
                None => question_of(card) != Some(question),
            },
            RequestKind::Tell(text) => {
                let guidance =
                    data.run(&self.run).map(|run| run.state.steering.guidance.as_slice());
                let is_known = |given: &ralph_events::run_state::Guidance| {
                    given.received_ms + ANSWER_MS >= self.since_ms
                        && given.text.trim() == text.trim()
                };
                guidance.is_some_and(|guidance| guidance.iter().any(is_known))
            }
        }
    }
}

impl Model {
    pub(super) fn request(&mut self, run: &str, kind: RequestKind, now_ms: i64) {
        self.requests.retain(|request| request.run != run);
        self.requests.push(PendingRequest { run: run.to_owned(), kind, since_ms: now_ms });
    }

    pub(super) fn settle_requests(&mut self, data: &Data<'_>) {
        self.requests.retain(|request| {
            let age = data.now_ms - request.since_ms;
            let is_confirmed =
                data.card(&request.run).is_none_or(|card| request.is_confirmed(card, data));
            !is_confirmed && age < FORGET_MS
        });
    }

    /// When the screen has to say that a run does not answer.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        self.requests.iter().map(|request| request.since_ms + ANSWER_MS).min()
    }

    /// The request that a run has not confirmed yet, in words.
    pub fn requested_text(&self, card: &RunCard, now_ms: i64) -> Option<String> {
        let request = self.requests.iter().find(|request| request.run == card.id)?;
        if now_ms - request.since_ms >= ANSWER_MS && card.is_alive {
            return Some(format!("no answer from the run (pid {})", card.pid));
        }
        Some(match &request.kind {
            RequestKind::Tell(_) if card.is_alive => {
                format!("sent, waits for iteration {}", card.iteration + 1)
            }
            RequestKind::Tell(_) => "sent, waits until it is resumed".to_owned(),
            RequestKind::Answer(_) => "answer sent…".to_owned(),
            RequestKind::Pause => "pausing…".to_owned(),
            RequestKind::Resume => "resuming…".to_owned(),
            RequestKind::Stop { now: true } => "stopping…".to_owned(),
            RequestKind::Stop { now: false } => format!("stops after iteration {}", card.iteration),
        })
    }
}
