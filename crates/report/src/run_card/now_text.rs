//! What a run does now, or how it ended, as one line.

use serde::Serialize;

use super::CardContext;
use crate::check_view;
use crate::state_word::{StateWord, end_cause};
use crate::status_line::{format_span, one_line, tool_subject};
use crate::time_text::format_local;
use crate::width;
use ralph_events::event::{Outcome, Purpose, WaitReason};
use ralph_events::run_state::{Activity, OpenTool, RunState};
use ralph_events::text;

/// What a run does now, or how it ended. `before`, `subject` and `after` stand together; the time never goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NowText {
    before: String,
    subject: String,
    after: String,
    /// `12s`; empty if there is none.
    pub time: String,
    /// When `time` started, if it is a running span.
    pub since_ms: Option<i64>,
    /// A shorter text for narrow columns; empty if there is none.
    short: String,
    /// Paths are cut from the left.
    is_path: bool,
}

impl NowText {
    fn plain(text: impl Into<String>) -> NowText {
        NowText { subject: text.into(), ..NowText::default() }
    }

    /// A step that has lasted since a time.
    fn since(text: impl Into<String>, since_ms: i64, now_ms: i64) -> NowText {
        let time = format_span(now_ms - since_ms);
        NowText { time, since_ms: Some(since_ms), ..NowText::plain(text) }
    }

    /// The whole text, without the time.
    pub fn text(&self) -> String {
        [&*self.before, &self.subject, &self.after].concat()
    }

    /// The text, at most `room` columns wide. Commands lose their end, paths their beginning.
    pub fn fit(&self, room: usize, ellipsis: &str) -> String {
        let time = if self.time.is_empty() { String::new() } else { format!(" {}", self.time) };
        let whole = self.text() + &time;
        if width::display_width(&whole) <= room {
            return whole;
        }
        if !self.short.is_empty() {
            return width::prefix_within(&self.short, room).to_owned();
        }
        let around = [&*self.before, ellipsis, &self.after, &time];
        let around: usize = around.into_iter().map(width::display_width).sum();
        let left = room.saturating_sub(around);
        let cut = if self.is_path {
            format!("{ellipsis}{}", path_end(&self.subject, left))
        } else {
            format!("{}{ellipsis}", width::prefix_within(&self.subject, left).trim_end())
        };
        let fitted = [&*self.before, &cut, &self.after, &time].concat();
        width::prefix_within(&fitted, room).to_owned()
    }
}

impl std::fmt::Display for NowText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = if self.time.is_empty() { "" } else { " " };
        write!(f, "{}{}{}{space}{}", self.before, self.subject, self.after, self.time)
    }
}

/// The end of a path that fits, from a slash on if there is one.
fn path_end(path: &str, room: usize) -> &str {
    let end = width::suffix_within(path, room);
    end.find('/').map_or(end, |slash| &end[slash..])
}

pub(super) fn now_text(run: &RunState, state: StateWord, context: &CardContext<'_>) -> NowText {
    if let Some(end) = &run.end {
        return end_text(run, end.outcome);
    }
    if context.is_removed {
        return NowText::plain("files removed");
    }
    if state == StateWord::Interrupted {
        return NowText::plain("process is gone");
    }
    let now_ms = context.now_ms;
    match &run.activity {
        Activity::Idle | Activity::Ended => NowText::plain("working"),
        Activity::Agent(agent) => match (agent.purpose, agent.tools.first()) {
            (Purpose::CommitMessage, _) => {
                NowText::since("commit message", agent.last_output_ms, now_ms)
            }
            (Purpose::Work, None) => NowText::since("agent thinking", agent.last_output_ms, now_ms),
            (Purpose::Work, Some(tool)) => tool_text(tool, &run.info.directory, now_ms),
        },
        Activity::Guardrail { command, since_ms } => NowText {
            before: "check ".to_owned(),
            ..NowText::since(one_line(command), *since_ms, now_ms)
        },
        Activity::Scm { task, since_ms } => NowText {
            before: "SCM ".to_owned(),
            ..NowText::since(one_line(task), *since_ms, now_ms)
        },
        Activity::Paused { since_ms } => {
            let time = format_local(*since_ms, context.zone, "%H:%M");
            NowText { short: "paused by you".to_owned(), time, ..NowText::plain("paused by you") }
        }
        Activity::Parked { since_ms } => NowText::since("waits for you", *since_ms, now_ms),
        Activity::Waiting { reason, until_ms } => {
            let left = u64::try_from(until_ms - now_ms).unwrap_or(0);
            let left = format!("{} left", text::format_minutes(left));
            let (word, short) = match reason {
                WaitReason::RateLimit => ("rate limit", format!("limit, {left}")),
                WaitReason::Backoff => ("back-off", left.clone()),
            };
            NowText { short, ..NowText::plain(format!("{word}, {left}")) }
        }
    }
}

fn tool_text(tool: &OpenTool, directory: &str, now_ms: i64) -> NowText {
    let name = one_line(&tool.name);
    let subject = tool_subject(&tool.summary, directory);
    if subject.is_empty() {
        return NowText::since(name, tool.since_ms, now_ms);
    }
    let is_path = subject.contains('/') && !subject.contains(char::is_whitespace);
    NowText {
        before: format!("{name}("),
        after: ")".to_owned(),
        is_path,
        ..NowText::since(subject, tool.since_ms, now_ms)
    }
}

fn end_text(run: &RunState, outcome: Outcome) -> NowText {
    if let Some(cause) = end_cause(outcome) {
        return NowText::plain(cause);
    }
    let proof = match (&run.tasks, check_view::passing_checks(run).1) {
        (Some(tasks), _) => format!("{}/{} stories", tasks.done, tasks.total),
        (None, 0) => "no checks".to_owned(),
        (None, _) => "checks pass".to_owned(),
    };
    let text = format!("complete, {proof}");
    NowText { short: proof, ..NowText::plain(text) }
}
