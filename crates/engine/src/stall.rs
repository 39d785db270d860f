//! Stall detection. Any change of the repository is progress; repeated guardrail failures count only without a
//! fingerprint.

use ralph_events::event::{Feedback, StallReason};
pub use ralph_events::run_state::StallSeen;

/// When to warn about a stalled loop and when to stop it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallRule {
    /// Iterations in a row until the warning, repeated whenever they have doubled.
    pub warn_after: Option<u32>,
    pub stop_after: Option<u32>,
}

impl StallRule {
    /// The warning threshold of loops that are never stopped.
    const DEFAULT_WARN_AFTER: u32 = 3;

    /// Stops after this many iterations and warns before; 0 only warns.
    pub fn stop_after(iterations: u32) -> StallRule {
        match iterations {
            0 => StallRule { warn_after: Some(Self::DEFAULT_WARN_AFTER), stop_after: None },
            n => StallRule {
                warn_after: Some((n - 1).clamp(1, Self::DEFAULT_WARN_AFTER)),
                stop_after: Some(n),
            },
        }
    }

    fn is_off(self) -> bool {
        self.warn_after.is_none() && self.stop_after.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallDecision {
    Continue,
    Warn { reason: StallReason, iterations: u32 },
    Stop { reason: StallReason, iterations: u32 },
}

/// Shorter iterations are not checked just for a warning: agents do nothing in that time, and the check takes time.
const MIN_CHECK_MS: u64 = 1_000;

#[derive(Debug, Clone, Default)]
pub struct StallWatch {
    rule: StallRule,
    seen: StallSeen,
    /// The last guardrail failure, normalized.
    failure: Option<String>,
    /// No iteration since the last check.
    is_idle: bool,
    /// An iteration has ended, and was not cut off, since the last check.
    is_counting: bool,
    last_took_ms: u64,
}

impl StallWatch {
    pub fn new(rule: StallRule) -> StallWatch {
        StallWatch { rule, is_counting: true, ..StallWatch::default() }
    }

    /// `counts` if an iteration has ended since the last check.
    pub fn resumed(
        rule: StallRule,
        seen: StallSeen,
        feedback: &[Feedback],
        counts: bool,
    ) -> StallWatch {
        let has_failed = seen.same_failures > 0 && !feedback.is_empty();
        StallWatch {
            rule,
            seen,
            failure: has_failed.then(|| normalize_failure(feedback)),
            is_counting: counts,
            ..StallWatch::default()
        }
    }

    pub fn snapshot(&self) -> StallSeen {
        self.seen
    }

    pub fn needs_check(&self) -> bool {
        let worth_it = self.rule.stop_after.is_some() || self.last_took_ms >= MIN_CHECK_MS;
        worth_it && !self.rule.is_off() && !self.is_idle
    }

    pub fn start_iteration(&mut self) {
        self.is_idle = false;
        self.is_counting = true;
    }

    pub fn end_iteration(&mut self, duration_ms: u64) {
        self.last_took_ms = duration_ms;
    }

    pub fn record_guardrails(&mut self, failed: &[Feedback]) {
        let failure = (!failed.is_empty()).then(|| normalize_failure(failed));
        let same_failures = &mut self.seen.same_failures;
        *same_failures = match (&failure, &self.failure) {
            (Some(now), Some(before)) if now == before => same_failures.saturating_add(1),
            (Some(_), _) => 1,
            (None, _) => 0,
        };
        self.failure = failure;
    }

    /// Without a fingerprint, only repeated failures count.
    pub fn record_fingerprint(&mut self, fingerprint: Option<u64>) -> StallDecision {
        self.is_idle = true;
        let before = self.seen.fingerprint;
        self.seen.fingerprint = fingerprint.or(before);
        let (reason, count) = match fingerprint {
            None => (StallReason::SameFailure, self.seen.same_failures),
            Some(_) if before.is_none() => return StallDecision::Continue,
            now if now == before && !self.is_counting => {
                // The stop still applies; the warning was given already.
                return match self.decide(StallReason::Unchanged, self.seen.unchanged) {
                    stop @ StallDecision::Stop { .. } => stop,
                    _ => StallDecision::Continue,
                };
            }
            now if now == before => {
                self.seen.unchanged = self.seen.unchanged.saturating_add(1);
                (StallReason::Unchanged, self.seen.unchanged)
            }
            Some(_) => {
                self.seen.unchanged = 0;
                self.seen.same_failures = self.seen.same_failures.min(1);
                return StallDecision::Continue;
            }
        };
        self.decide(reason, count)
    }

    fn decide(&self, reason: StallReason, iterations: u32) -> StallDecision {
        let StallRule { warn_after, stop_after } = self.rule;
        if stop_after.is_some_and(|most| iterations >= most) {
            return StallDecision::Stop { reason, iterations };
        }
        match warn_after.filter(|first| *first > 0) {
            Some(first)
                if iterations.is_multiple_of(first) && (iterations / first).is_power_of_two() =>
            {
                StallDecision::Warn { reason, iterations }
            }
            _ => StallDecision::Continue,
        }
    }

    pub fn stops_after(&self) -> Option<u32> {
        self.rule.stop_after
    }
}

/// Drops the log names, which differ each time.
fn normalize_failure(failed: &[Feedback]) -> String {
    let lines = failed.iter().flat_map(|part| part.message.lines());
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("Output file: ")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_events::event::FailAction;

    fn watch(stop_after: u32) -> StallWatch {
        StallWatch::new(StallRule::stop_after(stop_after))
    }

    fn look(watch: &mut StallWatch, fingerprint: Option<u64>) -> StallDecision {
        watch.start_iteration();
        watch.record_fingerprint(fingerprint)
    }

    const UNCHANGED: StallReason = StallReason::Unchanged;

    fn fail(message: &str) -> [Feedback; 1] {
        [Feedback { action: FailAction::Append, message: message.to_owned() }]
    }

    #[test]
    fn stall_check_warns_before_stopping() {
        let mut watch = watch(3);
        let verdicts: Vec<StallDecision> = (0..4).map(|_| look(&mut watch, Some(7))).collect();
        assert_eq!(
            verdicts,
            [
                StallDecision::Continue,
                StallDecision::Continue,
                StallDecision::Warn { reason: UNCHANGED, iterations: 2 },
                StallDecision::Stop { reason: UNCHANGED, iterations: 3 },
            ]
        );
    }

    #[test]
    fn stall_check_without_limit_warns_at_growing_intervals() {
        let mut watch = watch(0);
        let warned =
            |watch: &mut StallWatch| matches!(look(watch, Some(7)), StallDecision::Warn { .. });
        let warned: Vec<u32> = (0..30).filter(|_| warned(&mut watch)).collect();
        assert_eq!(warned, [3, 6, 12, 24]);
    }

    #[test]
    fn stall_check_counts_any_change_as_progress() {
        let mut watch = watch(2);
        for change in 0..20 {
            watch.record_guardrails(&fail("red"));
            assert_eq!(look(&mut watch, Some(change)), StallDecision::Continue);
        }
        assert_eq!(look(&mut watch, Some(1)), StallDecision::Continue);
        assert_eq!(look(&mut watch, Some(2)), StallDecision::Continue);
    }

    #[test]
    fn stall_check_without_fingerprint_compares_failures() {
        let reason = StallReason::SameFailure;
        let mut watch = watch(2);
        watch.record_guardrails(&fail("red\nOutput file: log_001"));
        assert_eq!(look(&mut watch, None), StallDecision::Warn { reason, iterations: 1 });
        watch.record_guardrails(&fail("other"));
        assert_eq!(look(&mut watch, None), StallDecision::Warn { reason, iterations: 1 });
        watch.record_guardrails(&[]);
        assert_eq!(look(&mut watch, None), StallDecision::Continue);
        watch.record_guardrails(&fail("red\nOutput file: log_004"));
        look(&mut watch, None);
        watch.record_guardrails(&fail("red\nOutput file: log_005"));
        assert_eq!(look(&mut watch, None), StallDecision::Stop { reason, iterations: 2 });
    }

    #[test]
    fn stall_check_continues_counting_after_resume() {
        let rule = StallRule::stop_after(3);
        let seen = StallSeen { fingerprint: Some(7), unchanged: 1, same_failures: 0 };
        // Iterations that were killed neither count nor reset the count.
        let mut watch = StallWatch::resumed(rule, seen, &[], false);
        assert_eq!(watch.record_fingerprint(Some(7)), StallDecision::Continue);
        assert_eq!(watch.snapshot(), seen);
        assert_eq!(
            look(&mut watch, Some(7)),
            StallDecision::Warn { reason: UNCHANGED, iterations: 2 }
        );
        let seen = watch.snapshot();
        let mut watch = StallWatch::resumed(rule, seen, &[], false);
        assert_eq!(
            watch.record_fingerprint(Some(8)),
            StallDecision::Continue,
            "the one that was cut off had done something"
        );
        assert_eq!(watch.snapshot().unchanged, 0);
        let mut watch = StallWatch::resumed(rule, seen, &[], true);
        assert_eq!(
            watch.record_fingerprint(Some(7)),
            StallDecision::Stop { reason: UNCHANGED, iterations: 3 }
        );
        let seen = StallSeen { fingerprint: None, unchanged: 0, same_failures: 2 };
        let mut watch = StallWatch::resumed(rule, seen, &fail("red\nOutput file: log_001"), false);
        watch.record_guardrails(&fail("red\nOutput file: log_002"));
        let reason = StallReason::SameFailure;
        assert_eq!(look(&mut watch, None), StallDecision::Stop { reason, iterations: 3 });
    }

    #[test]
    fn stall_check_runs_once_per_iteration() {
        let mut watch = watch(2);
        let needs_check = |watch: &StallWatch, duration_ms| {
            let mut watch = watch.clone();
            watch.end_iteration(duration_ms);
            watch.needs_check()
        };
        assert!(needs_check(&watch, 0));
        watch.record_fingerprint(Some(1));
        assert!(!needs_check(&watch, 9_999), "a pause lies between");
        watch.start_iteration();
        assert!(needs_check(&watch, 0));
        let quiet = StallWatch::new(StallRule::stop_after(0));
        assert!(
            !needs_check(&quiet, 999) && needs_check(&quiet, 1_000),
            "a warning costs no instant loop"
        );
        assert!(!needs_check(&StallWatch::new(StallRule::default()), 9_999));
    }
}
