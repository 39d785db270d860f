//! What a run needs from a person.

use serde::Serialize;

use crate::status_line::one_line;
use ralph_events::control_chars::strip_control_chars;
use ralph_events::event::Outcome;
use ralph_events::run_state::{Activity, Question, RunState};

/// What a person has to do about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attention {
    pub kind: AttentionKind,
    /// The question's first line, or what broke, as a sentence.
    pub text: String,
    /// The rest of the question.
    pub context: String,
    /// What to do before the run is resumed: `Sign in again`. May be empty.
    pub remedy: &'static str,
    pub since_ms: i64,
    pub iteration: u32,
    pub question_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    Question,
    /// A dialog on the agent's screen.
    Dialog,
    /// The run failed or was killed.
    Problem,
}

impl Attention {
    pub fn of_question(question: &Question) -> Attention {
        Attention {
            kind: AttentionKind::Question,
            text: one_line(question.headline()),
            context: strip_control_chars(question.context()),
            remedy: "",
            since_ms: question.asked_ms,
            iteration: question.iteration,
            question_id: Some(question.id.clone()),
        }
    }

    /// The oldest question, a dialog, or what broke.
    pub(super) fn of(run: &RunState, last_ms: i64) -> Attention {
        let problem = |text: String, remedy| Attention {
            kind: AttentionKind::Problem,
            text,
            context: String::new(),
            remedy,
            since_ms: last_ms,
            iteration: run.totals.iteration,
            question_id: None,
        };
        let agent = one_line(&run.info.agent);
        if let Some(end) = &run.end {
            return match end.outcome {
                Outcome::CredentialsRefused => {
                    problem(format!("{agent} refused its credentials."), "Sign in again")
                }
                Outcome::Stalled => problem(sentence(&end.message), "Make the prompt clearer"),
                Outcome::PromptMissing => {
                    problem(sentence(&end.message), "Restore the missing file")
                }
                Outcome::CompleteScmFailed => {
                    problem(sentence(&end.message), "Run the failed SCM task yourself")
                }
                _ => problem(sentence(&end.message), ""),
            };
        }
        if let Some(question) = run.steering.open_questions().next() {
            return Attention::of_question(question);
        }
        match &run.activity {
            Activity::Agent(agent) if agent.dialog.is_some() => Attention {
                kind: AttentionKind::Dialog,
                since_ms: agent.last_output_ms,
                ..problem(
                    sentence(&format!(
                        "A dialog waits on the agent's screen: {}",
                        agent.dialog.as_deref().unwrap_or_default()
                    )),
                    "Answer it in the run's tmux window",
                )
            },
            Activity::Parked { since_ms } => Attention {
                since_ms: *since_ms,
                ..problem("The run waits for an answer.".to_owned(), "")
            },
            _ => problem("The process of the run is gone.".to_owned(), ""),
        }
    }
}

fn sentence(message: &str) -> String {
    let mut line = one_line(message);
    if !line.ends_with(['.', '!', '?']) {
        line.push('.');
    }
    line
}
