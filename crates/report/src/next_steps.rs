//! What to do after a run: at the end of its display, and in its report.

use ralph_events::event::{Outcome, RunSetup};

/// Iterations that a resumed run is offered beyond its limit.
const MORE_ITERATIONS: u32 = 10;

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunEnding<'a> {
    pub run: &'a str,
    pub outcome: Outcome,
    /// The run ended because a budget was used up, not because a wait would outlast it.
    pub budget_used_up: bool,
    pub iterations: u32,
    pub max_iterations: u32,
    /// The last iteration did not finish.
    pub cut_off: bool,
    /// The SCM tasks of the last iteration that succeeded.
    pub scm_done: &'a [String],
    /// When the agent's rate limit ends.
    pub limit_ends: Option<&'a str>,
    pub setup: Option<&'a RunSetup>,
}

/// Advice for the user: sentences, then commands to type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextSteps {
    pub notes: Vec<String>,
    pub commands: Vec<String>,
}

impl RunEnding<'_> {
    pub fn next_steps(&self) -> NextSteps {
        let mut steps = NextSteps::default();
        if let Some(time) = self.limit_ends {
            steps.notes.push(format!("The rate limit ends at {time}."));
        }
        // An agent that was refused has done nothing.
        if self.cut_off && self.outcome == Outcome::Budget && self.limit_ends.is_none() {
            steps.notes.push(unchecked_work_note(self.iterations, self.scm_done));
        }
        steps.notes.extend(self.note().map(str::to_owned));
        steps.commands.extend(self.command());
        steps
    }

    fn note(&self) -> Option<&'static str> {
        Some(match self.outcome {
            Outcome::CompleteScmFailed => "The work is done. Run the failed SCM task yourself.",
            Outcome::Stalled => "Make the prompt clearer, then resume.",
            Outcome::CredentialsRefused => "Sign in with the agent's own program, then resume.",
            Outcome::PromptMissing => "Restore the missing file, then resume.",
            Outcome::InternalError => "Fix the cause above, then resume.",
            _ => return None,
        })
    }

    fn command(&self) -> Option<String> {
        let resume = format!("ralph resume {}", self.run);
        Some(match self.outcome {
            Outcome::Complete | Outcome::CompleteScmFailed => return None,
            Outcome::Budget if self.budget_used_up => format!("{resume}{}", self.larger_budget()),
            Outcome::LimitReached => format!("{resume} -n {}", self.higher_limit()),
            // A run stopped after its last iteration needs a higher limit, too.
            Outcome::Interrupted if !self.cut_off && self.is_at_limit() => {
                format!("{resume} -n {}", self.higher_limit())
            }
            _ => resume,
        })
    }

    fn is_at_limit(&self) -> bool {
        self.max_iterations > 0 && self.iterations >= self.max_iterations
    }

    fn higher_limit(&self) -> u32 {
        self.iterations.max(self.max_iterations).saturating_add(MORE_ITERATIONS)
    }

    /// Flags that double each limit of the budget.
    fn larger_budget(&self) -> String {
        let Some(setup) = self.setup else { return String::new() };
        let flags = [
            setup.max_cost_usd.map(|dollars| format!(" --max-cost {}", dollars * 2.0)),
            setup.max_tokens.map(|tokens| format!(" --max-tokens {}", tokens.saturating_mul(2))),
            setup.max_duration_ms.map(|ms| format!(" --max-time {}", (ms / 1000).max(1) * 2)),
        ];
        flags.into_iter().flatten().collect()
    }
}

pub fn unchecked_work_note(iteration: u32, scm_done: &[String]) -> String {
    if scm_done.is_empty() {
        return format!(
            "The work of iteration {iteration} is in the work tree, unchecked and uncommitted."
        );
    }
    let done = scm_done.join(", ");
    format!("Iteration {iteration} passed its checks and was interrupted after: {done}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(outcome: Outcome) -> RunEnding<'static> {
        RunEnding {
            run: "a3f1",
            outcome,
            budget_used_up: true,
            iterations: 10,
            max_iterations: 10,
            cut_off: false,
            scm_done: &[],
            limit_ends: None,
            setup: None,
        }
    }

    fn text(ending: &RunEnding<'_>) -> String {
        let NextSteps { notes, commands } = ending.next_steps();
        [notes, commands].concat().join(" | ")
    }

    #[test]
    fn next_steps_name_a_command_for_every_outcome() {
        let setup = RunSetup { max_cost_usd: Some(5.0), ..RunSetup::default() };
        for (ending, expected) in [
            (ending(Outcome::Complete), ""),
            (ending(Outcome::LimitReached), "ralph resume a3f1 -n 20"),
            (ending(Outcome::Interrupted), "ralph resume a3f1 -n 20"),
            (
                RunEnding { iterations: 3, cut_off: true, ..ending(Outcome::Interrupted) },
                "ralph resume a3f1",
            ),
            (
                RunEnding { setup: Some(&setup), ..ending(Outcome::Budget) },
                "ralph resume a3f1 --max-cost 10",
            ),
            (
                RunEnding { cut_off: true, setup: Some(&setup), ..ending(Outcome::Budget) },
                "The work of iteration 10 is in the work tree, unchecked and uncommitted. | \
                 ralph resume a3f1 --max-cost 10",
            ),
            (
                RunEnding {
                    budget_used_up: false,
                    limit_ends: Some("03:00"),
                    ..ending(Outcome::Budget)
                },
                "The rate limit ends at 03:00. | ralph resume a3f1",
            ),
            (ending(Outcome::AgentFailed), "ralph resume a3f1"),
            (
                ending(Outcome::CredentialsRefused),
                "Sign in with the agent's own program, then resume. | ralph resume a3f1",
            ),
        ] {
            assert_eq!(text(&ending), expected, "{:?}", ending.outcome);
        }
    }
}
