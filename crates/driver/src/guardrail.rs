//! A running guardrail: its output goes to a log, and both ends of it to the agent.

use ralph_engine::prompt::{GuardrailFailure, GuardrailOutput, OutputLimits, guardrail_message};
use ralph_events::event::{Event, Exit, Feedback};

use super::run_spec::GuardrailSpec;

pub(super) struct GuardrailRun {
    index: usize,
    started_ms: u64,
    pub(super) timed_out: bool,
    /// Ended because the run is ending.
    pub(super) cut_off: bool,
    /// Display path of the log.
    log: String,
    output: OutputExcerpt,
}

/// The start and end of an output of any length.
#[derive(Debug)]
struct OutputExcerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
    max_head: usize,
    max_tail: usize,
    has_gap: bool,
}

impl OutputExcerpt {
    fn new(limits: OutputLimits) -> OutputExcerpt {
        // A character has at most four bytes. One more shows that something was cut.
        let bytes = |chars: usize| chars.saturating_add(1).saturating_mul(4);
        let (max_head, max_tail) = (bytes(limits.head), bytes(limits.tail));
        OutputExcerpt { head: Vec::new(), tail: Vec::new(), max_head, max_tail, has_gap: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.max_head - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        // Trimming rarely keeps a flood of small pieces cheap.
        if self.tail.len() > self.max_tail.saturating_mul(4) {
            self.tail.drain(..self.tail.len() - self.max_tail);
            self.has_gap = true;
        }
    }

    fn into_text(mut self) -> (String, String) {
        if !self.has_gap {
            self.head.append(&mut self.tail);
        }
        // The tail may start inside a character.
        let inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
        let start = self.tail.iter().take(3).take_while(|byte| inside(byte)).count();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&self.head), text(&self.tail[start..]))
    }
}

impl GuardrailRun {
    pub(super) fn new(index: usize, started_ms: u64, log: String, limits: OutputLimits) -> Self {
        let (timed_out, cut_off) = (false, false);
        let output = OutputExcerpt::new(limits);
        GuardrailRun { index, started_ms, timed_out, cut_off, log, output }
    }

    pub(super) fn output(&mut self, bytes: &[u8]) {
        self.output.push(bytes);
    }

    /// Returns the result, and the feedback if it failed.
    pub(super) fn finish(
        self,
        exit: Option<Exit>,
        specs: &[GuardrailSpec],
        limits: OutputLimits,
        now_ms: u64,
    ) -> (Event<'static>, Option<Feedback>) {
        let spec = &specs[self.index];
        let passed = !self.timed_out && exit.is_some_and(Exit::success);
        // A guardrail that exited by itself was not cut off.
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
            let (start, end) = self.output.into_text();
            let output = GuardrailOutput { start: &start, end: &end };
            let (command, log) = (spec.shown_command(), &self.log);
            let hint = spec.hint.as_deref().filter(|hint| !hint.is_empty());
            let message = guardrail_message(&command, failure, hint, log, output, limits);
            Feedback { action: spec.fail_action, message }
        });
        (ended, feedback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_keeps_both_ends_of_any_output() {
        let limits = OutputLimits { head: 3, tail: 5 };
        let excerpt = |pieces: &[&[u8]]| {
            let mut excerpt = OutputExcerpt::new(limits);
            pieces.iter().for_each(|piece| excerpt.push(piece));
            excerpt.into_text()
        };
        assert_eq!(excerpt(&[b"short"]), ("short".to_owned(), String::new()));
        // Split in the middle of a character, between head and tail.
        let text = "é".repeat(20);
        let (start, end) = text.as_bytes().split_at(13);
        assert_eq!(excerpt(&[start, end]), (text.clone(), String::new()));
        let long = "0123456789é".repeat(1_000);
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(7).collect();
        let (start, end) = excerpt(&pieces);
        assert!(long.starts_with(&start) && long.ends_with(&end), "{start} {end}");
        assert!(start.chars().count() > 3 && end.chars().count() > 5 && end.len() < 200);
    }
}
