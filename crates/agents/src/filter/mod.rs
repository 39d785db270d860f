//! The user's jq expression that finds the agent's text.
//!
//! It can run forever, overflow the stack or use up memory, so a child process evaluates it and can
//! be killed.

pub mod expression;

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthStr;

use super::text::output_event;
use super::{Emit, failure};
use crate::json::utf8;
use ralph_events::event::{Event, FailureKind, Stream};
use ralph_events::line_splitter::Line;
use ralph_events::text;

const MAX_LINE: usize = 64 * 1024 * 1024;
/// Lines without an answer after which the agent fails.
const MAX_UNANSWERED_LINES: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseFilter {
    expression: String,
}

impl ResponseFilter {
    pub fn of_checked(expression: &str) -> ResponseFilter {
        ResponseFilter { expression: expression.to_owned() }
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }
}

/// An error message and the faulty byte range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidExpression {
    pub message: String,
    pub place: std::ops::Range<usize>,
}

impl InvalidExpression {
    /// The faulty line, with a marker below it.
    pub fn with_marker(&self, expression: &str) -> String {
        let start = expression[..self.place.start].rfind('\n').map_or(0, |at| at + 1);
        let number = expression[..start].matches('\n').count() + 1;
        let line = expression[start..].lines().next().unwrap_or_default();
        // Control characters would reach the terminal or shift the marker.
        let clean = |text: &str| text.replace(char::is_control, " ");
        let (before, after) = line.split_at((self.place.start - start).min(line.len()));
        let wrong = &after[..self.place.len().min(after.len())];
        let gap = " ".repeat(clean(before).width());
        let carets = "^".repeat(clean(wrong).width().max(1));
        let gutter = " ".repeat(number.to_string().len());
        let line = clean(line);
        format!("  {number} | {line}\n  {gutter} | {gap}{carets}")
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterAnswer {
    pub is_json: bool,
    pub said: Vec<String>,
    /// The type of a value that is not a string.
    unsaid: Option<String>,
    /// The error after these values.
    pub failure: Option<String>,
    /// The line was not evaluated.
    #[serde(default)]
    unasked: bool,
}

impl FilterAnswer {
    pub fn none() -> FilterAnswer {
        FilterAnswer { is_json: true, unasked: true, ..FilterAnswer::default() }
    }
}

/// Takes only what the expression finds for the agent's text.
#[derive(Debug, Default)]
pub struct FilteredReader {
    /// The other reader accepts any line, so a missing stream is reported here.
    replaces_reader: bool,
    queried_lines: u64,
    failures: u64,
    first_failure: Option<String>,
    has_matched: bool,
    /// The adapter found text here, the expression did not.
    has_missed_text: bool,
    /// Lines were not evaluated or did not arrive.
    has_skipped_lines: bool,
    expression: String,
    warned_of_value: bool,
    unanswered: u32,
    give_up_reason: Option<String>,
    streamed: bool,
    has_printed: bool,
}

impl FilteredReader {
    pub fn new(stands_alone: bool, expression: &str) -> Self {
        let expression = text::truncate(expression, 200, "…").into_owned();
        FilteredReader { replaces_reader: stands_alone, expression, ..FilteredReader::default() }
    }

    pub fn max_line(&self) -> usize {
        MAX_LINE
    }

    pub fn needs_query(&mut self, line: Line<'_>) -> bool {
        self.has_printed |= !line.bytes.trim_ascii().is_empty();
        self.give_up_reason.is_none()
            && line.is_complete()
            && matches!(expression::strip_prefix(line.bytes).first(), Some(b'{' | b'['))
            // The protocol is one line per question.
            && !line.bytes.contains(&b'\n')
    }

    /// Returns the text found in the line. `Err` says why there is no answer.
    pub fn handle_answer(
        &mut self,
        line: Line<'_>,
        answer: Result<FilterAnswer, String>,
        emit: &mut Emit<'_>,
    ) -> Vec<String> {
        let line = || text::truncate(&utf8(line.bytes), 100, "…").into_owned();
        match answer {
            Ok(FilterAnswer { is_json, said, unsaid, failure, unasked }) => {
                self.streamed |= is_json;
                self.has_skipped_lines |= unasked;
                self.queried_lines += u64::from(is_json);
                self.has_matched |= !said.is_empty();
                if let Some(message) = failure {
                    self.failures += 1;
                    if self.first_failure.is_none() {
                        let message = text::truncate(&message, 200, "…").into_owned();
                        let why = format!("failed ({message})");
                        warn(emit, &why, &line());
                        self.first_failure = Some(message);
                    }
                }
                if let Some(kind) = unsaid
                    && !std::mem::replace(&mut self.warned_of_value, true)
                {
                    let why = format!("returned {kind} instead of a string");
                    warn(emit, &why, &line());
                }
                said
            }
            Err(reason) => {
                self.streamed = true;
                self.queried_lines += 1;
                self.failures += 1;
                self.unanswered += 1;
                if self.unanswered < MAX_UNANSWERED_LINES {
                    warn(emit, &reason, &line());
                } else {
                    let reason = format!(
                        "the response filter {reason}, {MAX_UNANSWERED_LINES} times; fix \
                         agent.responseFilter (AGENT_RESPONSE_FILTER)"
                    );
                    self.give_up_reason = Some(reason);
                    self.finish(false, emit);
                }
                Vec::new()
            }
        }
    }

    /// Passes on the adapter's event for a line in which the expression found `texts`.
    pub fn forward(&mut self, event: Event<'_>, texts: &[String], emit: &mut Emit<'_>) {
        match event {
            // What the expression does not find is kept as output.
            Event::Text { text, joined, .. } => {
                if texts.is_empty() {
                    self.has_missed_text = true;
                    emit(output_event(Stream::Stdout, text, joined));
                }
            }
            other => emit(other),
        }
    }

    pub fn has_seen_stream(&self) -> bool {
        self.streamed
    }

    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The agent was cut off, perhaps before its first text.
    pub fn mark_cut_short(&mut self) {
        self.has_skipped_lines = true;
    }

    fn lines(&self, all: &str) -> String {
        match self.queried_lines {
            1 => "the only line".to_owned(),
            n => format!("{all} {n} lines"),
        }
    }

    /// Fails an agent whose text was never found, unless it reported its own failure.
    pub fn finish(&self, has_failure: bool, emit: &mut Emit<'_>) {
        let message = match (&self.give_up_reason, &self.first_failure) {
            (Some(reason), _) => reason.clone(),
            (None, _) if self.replaces_reader && self.has_printed && !self.streamed => {
                "the agent did not print JSON".to_owned()
            }
            // A filter that always fails must not look like a silent agent.
            (None, Some(reason))
                if self.failures == self.queried_lines && !self.has_matched && !has_failure =>
            {
                let lines = self.lines("all");
                format!(
                    "the response filter failed for {lines} of the stream ({reason}); fix \
                     agent.responseFilter (AGENT_RESPONSE_FILTER)"
                )
            }
            // Nor may one that never matches while the agent speaks.
            (None, None)
                if self.has_missed_text
                    && self.queried_lines > 0
                    && !self.has_matched
                    && !self.has_skipped_lines
                    && !has_failure =>
            {
                let lines = self.lines("any of the");
                format!(
                    "the response filter found nothing in {lines} of the stream; fix \
                     agent.responseFilter (AGENT_RESPONSE_FILTER): {}",
                    self.expression
                )
            }
            _ => return,
        };
        let failure = Some(failure(FailureKind::Other, message));
        emit(Event::Result { failure, usage: None, turns: None });
    }
}

fn warn(emit: &mut Emit<'_>, why: &str, line: &str) {
    let message = format!("the response filter {why} for this line: {line}");
    emit(Event::Warning { message: message.into() });
}

#[cfg(test)]
mod tests {
    use super::expression::Expression;
    use super::*;
    use crate::by_name;
    use ralph_events::line_splitter::LineSplitter;

    #[derive(Debug, Default, PartialEq)]
    struct Read {
        said: Vec<String>,
        kept: Vec<String>,
        warned: Vec<String>,
        failed: Vec<String>,
    }

    fn read_with(
        adapter: &str,
        mut answer: impl FnMut(&[u8]) -> Result<FilterAnswer, String>,
        lines: &str,
    ) -> Read {
        let mut reader = by_name(adapter).unwrap().reader(adapter != "text");
        let mut filter = FilteredReader::new(true, "EXPRESSION");
        let mut read = Read::default();
        let mut emit = |event: Event<'_>| match event {
            Event::Text { text, .. } => read.said.push(text.into_owned()),
            Event::Output { text, .. } => read.kept.push(text.into_owned()),
            Event::Warning { message } => read.warned.push(message.into_owned()),
            Event::Result { failure: Some(failure), .. } => read.failed.push(failure.message),
            _ => {}
        };
        let mut take = |line: Line<'_>| {
            let texts = if filter.needs_query(line) {
                filter.handle_answer(line, answer(line.bytes), &mut emit)
            } else {
                Vec::new()
            };
            reader.stdout(line, &mut |event| filter.forward(event, &texts, &mut emit));
            for text in texts {
                emit(Event::Text { text: text.into(), joined: false, subagent: false });
            }
        };
        let mut splitter = LineSplitter::new(judge_max());
        splitter.push(lines.as_bytes(), &mut take);
        splitter.finish(&mut take);
        filter.finish(false, &mut emit);
        read
    }

    fn judge_max() -> usize {
        FilteredReader::new(true, "").max_line()
    }

    fn read(adapter: &str, expression: &str, lines: &str) -> Read {
        let expression = Expression::new(expression).unwrap();
        read_with(adapter, |line| Ok(expression.evaluate(line)), lines)
    }

    const ASSISTANT: &str =
        r#"select(.type == "assistant") | .message.content[]? | select(.type == "text") | .text"#;

    #[test]
    fn filter_passes_only_matched_text() {
        let lines = concat!(
            r#"{"type":"user","message":{"content":[{"type":"text","text":"the prompt"}]}}"#,
            "\n",
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a\nb"},{"type":"tool_use"},{"type":"text","text":"c"}]}}"#,
            "\nnot JSON\n{\"broken\": \n",
        );
        let Read { said, kept, warned, failed } = read("text", ASSISTANT, lines);
        assert_eq!(said, ["a\nb", "c"]);
        assert_eq!(kept.len(), 3, "{kept:?}");
        assert!(kept[0].contains("the prompt"));
        assert_eq!(kept[1..], ["not JSON", "{\"broken\": "]);
        assert_eq!((warned, failed), (vec![], vec![]));
    }

    #[test]
    fn filter_applies_to_text_of_known_agent() {
        let lines = concat!(
            r#"{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"yes"}]},"who":"a"}"#,
            "\n",
            r#"{"type":"assistant","message":{"id":"2","content":[{"type":"text","text":"no"}]},"who":"b"}"#,
            "\n",
        );
        let read = read("claude", r#"select(.who == "a") | .message.content[].text"#, lines);
        assert_eq!(read.said, ["yes"]);
        assert!(read.kept.contains(&"no".to_owned()), "{read:?}");
    }

    #[test]
    fn filter_skips_whitespace_and_bom_before_json() {
        for before in [" ", "\t  ", "\u{feff}", "\u{feff} "] {
            let lines = format!("{before}{{\"a\": \"x\"}}\n");
            assert_eq!(read("text", ".a", &lines).said, ["x"], "{before:?}");
        }
    }

    #[test]
    fn filter_truncates_endless_output_with_warning() {
        let read = read("text", "range(infinite) | tostring", "{\"a\": \"x\"}\n");
        assert!(read.warned[0].contains("more than 10000 values"), "{:?}", read.warned);
        assert!(!read.said.is_empty());
    }

    #[test]
    fn filter_warns_once_per_kind_of_problem() {
        let lines = "{\"a\": \"x\"}\n{\"a\": \"y\"}\n";
        let read = read("text", ".a, ., .a[]", lines);
        assert_eq!(read.said, ["x", "y"]);
        assert_eq!(read.warned.len(), 2, "{read:?}");
        assert!(read.warned[0].contains("failed (") && read.warned[0].contains("{\"a\": \"x\"}"));
        assert!(read.warned[1].contains("returned an object instead of a string"), "{read:?}");
    }

    #[test]
    fn filter_timing_out_three_times_fails_agent() {
        let mut asked = 0;
        let never = |_: &[u8]| {
            asked += 1;
            Err("took longer than 3 s".to_owned())
        };
        let read = read_with("text", never, &"{\"a\": 1}\n".repeat(5));
        assert_eq!(asked, 3, "the filter is not used again");
        assert_eq!(read.warned.len(), 2, "{read:?}");
        assert_eq!(read.kept.len(), 5, "no line is lost");
        // At the third line and at the end.
        assert_eq!(read.failed.len(), 2);
        assert!(read.failed[0].contains("took longer than 3 s, 3 times"), "{read:?}");
    }

    #[test]
    fn filter_failing_on_every_line_fails_agent() {
        let lines = "{\"a\": \"x\"}\nplain\n{\"a\": \"y\"}\n";
        for (expression, lines, failed) in [
            (".a[]", lines, Some("failed for all 2 lines of the stream (")),
            (".a[]", "{\"a\": 1}\n", Some("failed for the only line")),
            (".a, .a[]", lines, None),
            ("if .a == \"x\" then .a[] else empty end", lines, None),
        ] {
            let read = read("text", expression, lines);
            let message = read.failed.first().map(String::as_str);
            assert_eq!(message.is_some(), failed.is_some(), "{expression}: {read:?}");
            assert!(
                message.unwrap_or_default().contains(failed.unwrap_or_default()),
                "{message:?}"
            );
            assert_eq!(read.warned.len(), 1, "{read:?}");
        }
    }

    #[test]
    fn filter_without_json_input_fails_text_agent() {
        assert_eq!(read("text", ".a", "plain\n").failed.len(), 1);
        assert_eq!(read("text", ".a", "").failed.len(), 0);
        assert_eq!(read("text", ".a", "plain\n{\"a\": \"x\"}\n").failed.len(), 0);
    }

    #[test]
    fn filter_that_matches_nothing_fails_agent() {
        let spoken =
            r#"{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"yes"}]}}"#;
        let silent = r#"{"type":"assistant","message":{"id":"1","content":[{"type":"tool_use","id":"2","name":"Bash","input":{}}]}}"#;
        for (adapter, expression, line, failed) in [
            ("text", ".mesage.content", spoken, true),
            ("text", "empty", spoken, true),
            ("text", ".message", spoken, true),
            ("text", ".type", spoken, false),
            ("claude", ".mesage.content", spoken, true),
            // The agent said nothing.
            ("claude", ".mesage.content", silent, false),
        ] {
            let read = read(adapter, expression, &format!("{line}\n{line}\n"));
            assert_eq!(read.failed.len(), usize::from(failed), "{adapter} {expression}: {read:?}");
            if failed {
                let message = &read.failed[0];
                assert!(message.contains("found nothing in any of the 2 lines"), "{message}");
                assert!(message.ends_with("EXPRESSION"), "{message}");
            }
        }
    }
}
