//! One guardrail that is running: its output goes to its log, the beginning of it to the agent.

use crate::core::event::{Event, Exit, FailAction, Feedback};
use crate::core::prompt::{GuardrailFailure, guardrail_message};
use crate::process::ChildId;

use super::spec::GuardrailSpec;

pub(super) struct GuardrailTask {
    pub(super) child: ChildId,
    pub(super) index: usize,
    pub(super) started_ms: u64,
    pub(super) timed_out: bool,
    /// It is being ended because the run is.
    pub(super) cut_off: bool,
    /// The log's path as people are told of it.
    pub(super) log: String,
    head: Vec<u8>,
    max_head: usize,
}

impl GuardrailTask {
    pub(super) fn new(
        child: ChildId,
        index: usize,
        started_ms: u64,
        log: String,
        max_chars: usize,
    ) -> Self {
        // A character is at most four bytes, and one more tells that something was cut off.
        let max_head = max_chars.saturating_add(1).saturating_mul(4);
        let head = Vec::new();
        let (timed_out, cut_off) = (false, false);
        GuardrailTask { child, index, started_ms, timed_out, cut_off, log, head, max_head }
    }

    pub(super) fn output(&mut self, bytes: &[u8]) {
        let room = self.max_head - self.head.len();
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    /// What is known of a guardrail that has ended, and what the agent is told if it failed.
    pub(super) fn finish(
        self,
        exit: Option<Exit>,
        spec: &GuardrailSpec,
        max_chars: usize,
        now_ms: u64,
    ) -> (Event<'static>, Option<Feedback>) {
        let passed = !self.timed_out && exit.is_some_and(Exit::success);
        // One that had come to its end by itself was not cut off, whatever was asked for.
        let cut_off = self.cut_off && matches!(exit, None | Some(Exit::Signal(_)));
        let ended = Event::GuardrailEnded {
            index: self.index as u32,
            command: spec.shown_command().into_owned().into(),
            exit,
            timed_out: self.timed_out,
            cut_off,
            passed,
            fail_action: spec.fail_action,
            log: self.log.clone().into(),
            duration_ms: now_ms.saturating_sub(self.started_ms),
        };
        let feedback = (!passed).then(|| {
            let failure = match spec.timeout_ms {
                Some(ms) if self.timed_out => GuardrailFailure::TimedOut { limit_ms: ms },
                _ => GuardrailFailure::Exit(exit),
            };
            let output = String::from_utf8_lossy(&self.head);
            feedback(spec, failure, &self.log, &output, max_chars)
        });
        (ended, feedback)
    }
}

pub(super) fn feedback(
    spec: &GuardrailSpec,
    failure: GuardrailFailure,
    log: &str,
    output: &str,
    max_chars: usize,
) -> Feedback {
    let hint = spec.hint.as_deref().filter(|hint| !hint.is_empty());
    let message = guardrail_message(&spec.shown_command(), failure, hint, log, output, max_chars);
    let action: FailAction = spec.fail_action;
    Feedback { action, message }
}
