//! How far a run had come, told by its journal: all that it takes to go on with it.

use super::event::{Class, Entry, Event, Feedback, Outcome, Purpose, Usage};
use super::spending::Spending;
use super::stall::Seen;

/// Where a run stands.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Iterations that came to their end.
    pub iterations: u32,
    /// An iteration that was begun and not ended, and how many attempts were made at it.
    pub open: Option<Open>,
    /// Failures in a row that the retry policy counts.
    pub failures: u32,
    /// What the next prompt is to carry.
    pub feedback: Vec<Feedback>,
    pub scm_failed: bool,
    pub tools: u32,
    pub tool_errors: u32,
    /// What was used up, as budgets count it.
    pub spending: Spending,
    /// What it knew of the repository.
    pub seen: Seen,
    /// The commit that was checked out when that was last told.
    pub head: Option<String>,
    /// How long the run has been at work, pauses and the time after a cut left out.
    pub active_ms: u64,
    /// How it ended; `None` if it was cut off.
    pub outcome: Option<Outcome>,
}

/// An iteration that has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub iteration: u32,
    pub attempts: u32,
}

/// Reads the entries of a run's journal, from the first to the last whole one.
#[derive(Debug, Default)]
pub struct Tracker {
    progress: Progress,
    /// What the attempt that is open has used so far.
    running: Option<Usage>,
    /// The retry policy has counted the last attempt as a failure.
    failed: bool,
    last_ms: Option<i64>,
    idle: bool,
}

impl Tracker {
    pub fn fold(&mut self, entry: &Entry<'_>) {
        self.pass_time(entry);
        let progress = &mut self.progress;
        match &entry.event {
            Event::RunStarted { .. } => {
                self.cut();
                self.progress.outcome = None;
            }
            Event::IterationStarted { .. } => {
                progress.spending.iteration_starts();
                progress.open = Some(Open { iteration: entry.at.iteration, attempts: 0 });
            }
            Event::AgentStarted { purpose, .. } => {
                self.running = Some(Usage::default());
                if let (Purpose::Work, Some(open)) = (purpose, &mut progress.open) {
                    open.attempts = entry.at.attempt;
                }
            }
            Event::Usage(usage) => {
                if let Some(running) = &mut self.running {
                    *running = *usage;
                }
            }
            Event::AgentEnded { purpose, class, usage, tools, tool_errors, .. } => {
                self.running = None;
                progress.spending.attempt_ends(usage);
                progress.tools = progress.tools.saturating_add(*tools);
                progress.tool_errors = progress.tool_errors.saturating_add(*tool_errors);
                if *purpose == Purpose::Work {
                    self.failed = false;
                    if *class == Class::Answered {
                        progress.failures = 0;
                    }
                }
            }
            Event::Retrying { failures, .. } => {
                self.failed = true;
                progress.failures = *failures;
            }
            Event::FeedbackSet { parts } => progress.feedback.clone_from(parts),
            Event::ScmEnded { ok, .. } => progress.scm_failed = !ok,
            Event::IterationEnded { cut_off: true, .. } => {
                let open = Open { iteration: entry.at.iteration, attempts: entry.at.attempt };
                progress.open = Some(open);
            }
            Event::IterationEnded { .. } => {
                progress.iterations = entry.at.iteration;
                progress.open = None;
                // Whatever it came to, it was none of those that count: silence may be none.
                if !self.failed {
                    progress.failures = 0;
                }
            }
            Event::Looked { unchanged, same_failures, fingerprint } => {
                let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
                progress.seen = Seen {
                    fingerprint: fingerprint.as_deref().and_then(number),
                    unchanged: *unchanged,
                    same_failures: *same_failures,
                };
            }
            Event::Repository { head, .. } => progress.head = Some(head.as_ref().to_owned()),
            Event::RunEnded { outcome, .. } => {
                progress.outcome = Some(*outcome);
                if *outcome == Outcome::Stalled {
                    // Whoever goes on has done something about it.
                    progress.seen = Seen::default();
                }
            }
            _ => {}
        }
    }

    /// The journal goes no further.
    pub fn end(mut self) -> Progress {
        self.cut();
        self.progress
    }

    /// What an agent had used when it was cut off is used up all the same.
    fn cut(&mut self) {
        if let Some(usage) = self.running.take() {
            self.progress.spending.attempt_ends(&usage);
        }
    }

    fn pass_time(&mut self, entry: &Entry<'_>) {
        let now_ms = entry.at.time_ms;
        let resumes = matches!(entry.event, Event::RunStarted { .. });
        if let Some(last_ms) = self.last_ms.filter(|_| !self.idle && !resumes) {
            // A clock that was set back takes no time away.
            let passed = u64::try_from(now_ms.saturating_sub(last_ms)).unwrap_or(0);
            self.progress.active_ms = self.progress.active_ms.saturating_add(passed);
        }
        self.last_ms = Some(now_ms);
        match entry.event {
            Event::Paused => self.idle = true,
            Event::Resumed { .. } | Event::RunStarted { .. } => self.idle = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::{FailAction, Stamp};

    fn fold(events: Vec<(i64, u32, u32, Event<'static>)>) -> Progress {
        let mut tracker = Tracker::default();
        for (time_ms, iteration, attempt, event) in events {
            tracker.fold(&Entry { at: Stamp { time_ms, iteration, attempt }, event });
        }
        tracker.end()
    }

    fn run_started() -> Event<'static> {
        Event::RunStarted {
            run: "r".into(),
            version: "0".into(),
            command: "run".into(),
            directory: "/p".into(),
            pid: 1,
            agent: "claude".into(),
            prompt: "p".into(),
            completion: "c".into(),
            max_iterations: 5,
        }
    }

    fn agent_started() -> Event<'static> {
        Event::AgentStarted { purpose: Purpose::Work, pid: 2, argv: Vec::new() }
    }

    fn usage(tokens: u64) -> Usage {
        Usage { input_tokens: tokens, cost_usd: Some(0.5), ..Usage::default() }
    }

    fn agent_ended(class: Class, tokens: u64) -> Event<'static> {
        Event::AgentEnded {
            purpose: Purpose::Work,
            exit: None,
            ended_by: None,
            class,
            failure: None,
            duration_ms: 1,
            usage: usage(tokens),
            tools: 2,
            tool_errors: 1,
            denied: 0,
            repeats_prompt: false,
            filter_errors: 0,
        }
    }

    fn iteration_ended(class: Class, cut_off: bool) -> Event<'static> {
        Event::IterationEnded {
            class,
            guardrails_passed: None,
            complete: false,
            cut_off,
            duration_ms: 1,
            usage: Usage::default(),
        }
    }

    fn retrying(failures: u32) -> Event<'static> {
        let message = "exit 1".into();
        Event::Retrying { class: Class::Failed, message, delay_ms: 1, failures, max_failures: 4 }
    }

    #[test]
    fn what_was_cut_off_is_done_again_and_what_it_used_is_counted() {
        let part = Feedback { action: FailAction::Append, message: "red".into() };
        let parts = vec![part.clone()];
        let progress = fold(vec![
            (0, 0, 0, run_started()),
            (10, 1, 0, Event::IterationStarted { max_iterations: 5 }),
            (20, 1, 1, agent_started()),
            (30, 1, 1, agent_ended(Class::Answered, 100)),
            (35, 1, 1, Event::FeedbackSet { parts: parts.clone() }),
            (40, 1, 1, iteration_ended(Class::Answered, false)),
            (50, 2, 0, Event::IterationStarted { max_iterations: 5 }),
            (60, 2, 1, agent_started()),
            (70, 2, 1, Event::Usage(usage(7))),
        ]);
        assert_eq!(progress.iterations, 1);
        assert_eq!(progress.open, Some(Open { iteration: 2, attempts: 1 }));
        assert_eq!(progress.feedback, parts);
        assert_eq!(progress.spending.total().input_tokens, 107);
        assert_eq!((progress.tools, progress.tool_errors), (2, 1));
        assert_eq!((progress.active_ms, progress.outcome), (70, None));
    }

    #[test]
    fn failures_in_a_row_are_counted_on() {
        let mut events = vec![
            (0, 0, 0, run_started()),
            (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
            (2, 1, 1, agent_started()),
            (3, 1, 1, agent_ended(Class::Failed, 0)),
            (4, 1, 1, retrying(1)),
            (5, 1, 2, agent_started()),
            (6, 1, 2, agent_ended(Class::Failed, 0)),
            (7, 1, 2, retrying(2)),
        ];
        assert_eq!(fold(events.clone()).failures, 2);
        let mut silent = events.clone();
        events.push((8, 1, 3, agent_started()));
        events.push((9, 1, 3, agent_ended(Class::Answered, 0)));
        assert_eq!(fold(events).failures, 0);
        // Where a failure uses its iteration up, and silence is none.
        silent.push((8, 1, 2, iteration_ended(Class::Failed, false)));
        assert_eq!(fold(silent.clone()).failures, 2);
        silent.push((9, 2, 1, agent_started()));
        silent.push((10, 2, 1, agent_ended(Class::TimedOut, 0)));
        assert_eq!(fold(silent.clone()).failures, 2, "not decided yet");
        silent.push((11, 2, 1, iteration_ended(Class::TimedOut, false)));
        assert_eq!(fold(silent).failures, 0);
    }

    #[test]
    fn an_iteration_that_was_not_checked_to_its_end_is_begun_again() {
        for class in [Class::Interrupted, Class::Answered, Class::Failed, Class::Credentials] {
            let ends = |cut_off| {
                fold(vec![
                    (0, 0, 0, run_started()),
                    (1, 1, 0, Event::IterationStarted { max_iterations: 5 }),
                    (2, 1, 1, agent_started()),
                    (3, 1, 1, agent_ended(class, 0)),
                    (4, 1, 1, iteration_ended(class, cut_off)),
                ])
            };
            let (cut, whole) = (ends(true), ends(false));
            assert_eq!(cut.iterations, 0, "{class:?}");
            assert_eq!(cut.open, Some(Open { iteration: 1, attempts: 1 }));
            // One that failed is used up where the next iteration is the next attempt.
            assert_eq!((whole.iterations, whole.open), (1, None), "{class:?}");
        }
    }

    #[test]
    fn time_passes_only_while_the_run_is_at_work() {
        let progress = fold(vec![
            (1_000, 0, 0, run_started()),
            (2_000, 1, 0, Event::IterationStarted { max_iterations: 5 }),
            (3_000, 1, 1, iteration_ended(Class::Answered, false)),
            (3_000, 1, 1, Event::Paused),
            (9_000, 1, 1, Event::Resumed { max_iterations: 5 }),
            (10_000, 2, 0, Event::IterationStarted { max_iterations: 5 }),
            // Cut off, and resumed a day later.
            (90_000_000, 0, 0, run_started()),
            (90_001_000, 2, 0, Event::IterationStarted { max_iterations: 5 }),
        ]);
        assert_eq!(progress.active_ms, 4_000);
    }
}
