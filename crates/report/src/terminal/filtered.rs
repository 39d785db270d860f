//! The agent's output as shown by the user's display filter.

use std::collections::VecDeque;

use memchr::memmem;

use super::speech::Speaker;
use super::words::plural;
use super::{Paragraph, TerminalReporter};
use ralph_events::control_chars::ControlCharFilter;
use ralph_events::event::{Entry, Event, Stamp};
use ralph_events::line_splitter::{Line, LineSplitter};

const MAX_LINE: usize = 64 * 1024;
/// Held bytes that the filter has perhaps not shown.
const MAX_BACKLOG_BYTES: usize = 1 << 20;
/// Bytes kept of the filter's last output.
const MAX_PRINTED: usize = 64 * 1024;
/// Events searched for in that output.
const MAX_MATCHED_EVENTS: usize = 1_000;
/// Shorter texts match almost anywhere, except as whole lines.
const MIN_MATCH_CHARS: usize = 4;
/// How long a filter may take to show its input.
const FILTER_LAG_MS: i64 = 1_000;

/// Events that only the display filter shows, as journal lines.
///
/// A filter does not report its progress. It has passed an event if the event's words, or those of a later one,
/// appear in its output; if it prints some time after the event; or if it printed after the event and then
/// stopped for a while. The rest was perhaps not shown.
#[derive(Debug, Default)]
pub(super) struct FilterBacklog {
    events: VecDeque<HeldEvent>,
    bytes: usize,
    dropped_events: u64,
    /// The end of the filter's output, and the total size.
    printed: Vec<u8>,
    printed_bytes: usize,
    printed_ms: Option<i64>,
}

#[derive(Debug)]
struct HeldEvent {
    at: Stamp,
    line: Vec<u8>,
    printed_bytes: usize,
}

impl FilterBacklog {
    pub(super) fn hold(&mut self, at: Stamp, line: &[u8]) {
        self.bytes += line.len();
        let (line, printed_bytes) = (line.to_vec(), self.printed_bytes);
        self.events.push_back(HeldEvent { at, line, printed_bytes });
        while self.bytes > MAX_BACKLOG_BYTES {
            self.dropped_events += 1;
            self.drop_first();
        }
    }

    fn record_output(&mut self, now_ms: i64, bytes: &[u8]) {
        self.drop_until(now_ms.saturating_sub(FILTER_LAG_MS));
        self.printed_ms = Some(now_ms);
        self.printed_bytes += bytes.len();
        self.printed.extend_from_slice(bytes);
        if self.printed.len() > 2 * MAX_PRINTED {
            self.printed.drain(..self.printed.len() - MAX_PRINTED);
        }
    }

    /// Drops what the failed filter has shown.
    fn drop_shown(&mut self, now_ms: i64) {
        if let Some(printed_ms) = self.printed_ms
            && printed_ms <= now_ms.saturating_sub(FILTER_LAG_MS)
        {
            self.drop_until(printed_ms.saturating_add(1));
        }
        let printed = FilterOutput::new(&self.printed, self.printed_bytes);
        let first = self.events.len().saturating_sub(MAX_MATCHED_EVENTS);
        let shown = self.events.iter().enumerate().skip(first).rev().find(|(_, held)| {
            let Ok(Entry { event, .. }) = serde_json::from_slice(&held.line) else { return false };
            match_key(&event).is_some_and(|words| printed.contains_line(&words, held.printed_bytes))
        });
        if let Some((last, _)) = shown {
            self.events.drain(..=last);
            self.dropped_events = 0;
        }
    }

    fn drop_until(&mut self, before_ms: i64) {
        while self.events.front().is_some_and(|held| held.at.time_ms < before_ms) {
            self.drop_first();
            self.dropped_events = 0;
        }
    }

    fn drop_first(&mut self) {
        match self.events.pop_front() {
            Some(held) => self.bytes -= held.line.len(),
            None => self.bytes = 0,
        }
    }
}

/// The text to search for: the last line of the event that says anything.
fn match_key(event: &Event<'_>) -> Option<String> {
    let text = match event {
        Event::Text { text, .. } | Event::Thinking { text, .. } | Event::Output { text, .. } => {
            text.as_ref()
        }
        Event::ToolStarted { summary, .. } => summary.as_ref(),
        _ => return None,
    };
    let (mut words, mut scratch) = (String::new(), String::new());
    let mut lines = ControlCharFilter::default().filter(text, &mut scratch).lines();
    push_normalized(lines.rfind(|line| !line.trim().is_empty())?, &mut words);
    Some(words)
}

/// Appends a line without capitals and blanks, which filters change.
fn push_normalized(line: &str, out: &mut String) {
    for (at, word) in line.split_whitespace().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.extend(word.chars().flat_map(char::to_lowercase));
    }
}

struct FilterOutput {
    text: String,
    /// Line starts: offset in the whole output, and in `text`.
    line_starts: Vec<(usize, usize)>,
}

impl FilterOutput {
    fn new(end: &[u8], bytes: usize) -> Self {
        let mut printed = FilterOutput { text: "\n".to_owned(), line_starts: Vec::new() };
        let mut at = bytes - end.len();
        let mut scratch = String::new();
        for line in end.split_inclusive(|byte| *byte == b'\n') {
            printed.line_starts.push((at, printed.text.len() - 1));
            at += line.len();
            let line = String::from_utf8_lossy(line);
            push_normalized(
                ControlCharFilter::default().filter(&line, &mut scratch),
                &mut printed.text,
            );
            printed.text.push('\n');
        }
        printed
    }

    /// Returns whether a line after `after` bytes is, or contains, these words.
    fn contains_line(&self, words: &str, after: usize) -> bool {
        let first = self.line_starts.partition_point(|(at, _)| *at < after);
        let Some((_, from)) = self.line_starts.get(first) else { return false };
        let text = &self.text.as_bytes()[*from..];
        if words.chars().count() < MIN_MATCH_CHARS {
            memmem::find(text, format!("\n{words}\n").as_bytes()).is_some()
        } else {
            memmem::find(text, words.as_bytes()).is_some()
        }
    }
}

impl TerminalReporter {
    pub(super) fn show_filtered(&mut self, at: Stamp, bytes: &[u8]) {
        if !self.style.show_stream || self.style.quiet {
            return;
        }
        self.filter_backlog.record_output(at.time_ms, bytes);
        let mut lines = self.filter.take().unwrap_or_else(|| LineSplitter::new(MAX_LINE));
        lines.push(bytes, |line| self.write_filtered_line(at, line));
        self.filter = Some(lines);
    }

    fn write_filtered_line(&mut self, at: Stamp, line: Line<'_>) {
        self.write_text(at, Speaker::Filter, &String::from_utf8_lossy(line.bytes), line.joined);
    }

    pub(super) fn set_filtering(&mut self, at: Stamp, on: bool) {
        self.filter_backlog = FilterBacklog::default();
        match (self.filter.take(), on) {
            (None, true) => self.filter = Some(LineSplitter::new(MAX_LINE)),
            (Some(mut lines), false) => {
                lines.finish(|line| self.write_filtered_line(at, line));
                self.end_block();
            }
            (lines, _) => self.filter = lines,
        }
    }

    /// Shows events that the filter perhaps did not show.
    pub(super) fn show_backlog(&mut self, at: Stamp, mut held: FilterBacklog) {
        held.drop_shown(at.time_ms);
        if held.dropped_events > 0 {
            let (more, lost) = (self.marks.more, held.dropped_events);
            let were = if lost == 1 { "was" } else { "were" };
            let mut pen = self.line(at, Paragraph::Run);
            pen.text(&format!(
                "{more} {lost} event{} {were} not shown; `ralph replay` has them",
                plural(lost)
            ));
            pen.end();
        }
        for HeldEvent { at, line, .. } in held.events {
            if let Ok(Entry { event, .. }) = serde_json::from_slice(&line) {
                self.agent_event(at, &event);
            }
        }
        self.end_block();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Event<'static> {
        Event::Text { text: text.into(), joined: false, subagent: false }
    }

    fn left(story: &[(i64, Result<&'static str, &str>)], failed_ms: i64) -> Vec<String> {
        let mut held = FilterBacklog::default();
        for (time_ms, what) in story {
            let at = Stamp { time_ms: *time_ms, iteration: 1, attempt: 1 };
            match what {
                Ok(given) => {
                    held.hold(at, &serde_json::to_vec(&Entry { at, event: text(given) }).unwrap());
                }
                Err(printed) => held.record_output(*time_ms, printed.as_bytes()),
            }
        }
        held.drop_shown(failed_ms);
        let words = |held: &HeldEvent| match serde_json::from_slice(&held.line).unwrap() {
            Entry { event: Event::Text { text, .. }, .. } => text.into_owned(),
            other => panic!("{other:?}"),
        };
        held.events.iter().map(words).collect()
    }

    #[test]
    fn failed_filter_leaves_only_unshown_text() {
        let given = [(0, Ok("one")), (0, Ok("a second\nthing\n")), (0, Ok("the third"))];
        let after = |printed: &'static [(i64, Result<&'static str, &str>)]| {
            given.iter().copied().chain(printed.iter().copied()).collect::<Vec<_>>()
        };
        let all = ["one", "a second\nthing\n", "the third"];
        for (story, failed_ms, expected) in [
            // It shows nothing.
            (after(&[]), 5, &all[..]),
            // Everything, as it is or in its own way.
            (after(&[(1, Err("one\na second\nthing\nthe third\n"))]), 5, &[]),
            (after(&[(1, Err("> \x1b[1mTHE  THIRD\x1b[0m <"))]), 5, &[]),
            // A part of it; the first was left out on purpose.
            (after(&[(1, Err("a second\nthing\n")), (2, Err("the th"))]), 5, &all[2..]),
            (after(&[(1, Err("one\n"))]), 5, &all[1..]),
            // Three letters may be in any word.
            (after(&[(1, Err("someone\n"))]), 5, &all),
            // What cannot be known again: it has had its time, or it has not.
            (after(&[(1, Err("3 lines\n"))]), 5, &all),
            (after(&[(1, Err("3 lines\n"))]), 1_001, &[]),
            (after(&[(1_001, Err("3 lines\n"))]), 1_002, &[]),
        ] {
            assert_eq!(left(&story, failed_ms), expected, "{story:?}");
        }
        // What was printed before says nothing of what came later.
        let before = [(0, Err("again\n")), (1, Ok("again")), (1, Ok("and again"))];
        assert_eq!(left(&before, 5), ["again", "and again"]);
    }
}
