//! The line beneath the text that says where the run is and what it is waiting for.
//!
//! It is a fold of events and of the clock into one line of text; where and when it is drawn is the
//! business of [`super::screen`] and [`super::terminal`].

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::style::Marks;
use super::width;
use ralph_events::event::{Event, Purpose, Stamp, Usage, WaitReason};
use ralph_events::text;

/// What the run is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusActivity {
    Idle,
    Agent(Purpose),
    Guardrail,
    Scm,
    Waiting { reason: WaitReason, until_ms: i64 },
    Paused,
}

/// A tool call that has not ended.
#[derive(Debug)]
struct OpenTool {
    id: String,
    call: String,
    since_ms: i64,
}

/// Tool calls that are remembered at once; an agent that never ends its calls must not fill memory.
const MAX_TOOLS: usize = 64;

/// What is kept of a tool's or a guardrail's description; no terminal shows more in one line.
const MAX_DETAIL: usize = 200;

/// Where the run is, as far as its events tell.
#[derive(Debug)]
pub struct StatusLine {
    marks: &'static Marks,
    zone: fn() -> TimeZone,
    /// `None` before the run and after it: then there is nothing to show.
    started_ms: Option<i64>,
    now_ms: i64,
    drawn_ms: i64,
    iteration: u32,
    max_iterations: u32,
    /// How many stories pass, and how many there are; none if it is not about stories.
    stories: (u32, u32),
    /// What ended attempts used, and what the current one has used so far.
    spent: Usage,
    current: Usage,
    doing: StatusActivity,
    since_ms: i64,
    detail: String,
    tools: Vec<OpenTool>,
    stopping: bool,
    pausing: bool,
    line: String,
}

impl StatusLine {
    pub(crate) fn new(marks: &'static Marks, zone: fn() -> TimeZone) -> Self {
        StatusLine {
            marks,
            zone,
            started_ms: None,
            now_ms: 0,
            drawn_ms: 0,
            iteration: 0,
            max_iterations: 0,
            stories: (0, 0),
            spent: Usage::default(),
            current: Usage::default(),
            doing: StatusActivity::Idle,
            since_ms: 0,
            detail: String::new(),
            tools: Vec::new(),
            stopping: false,
            pausing: false,
            line: String::new(),
        }
    }

    pub fn event(&mut self, at: Stamp, event: &Event<'_>) {
        self.now_ms = self.now_ms.max(at.time_ms);
        match event {
            Event::RunStarted { max_iterations, .. } => {
                self.started_ms.get_or_insert(at.time_ms);
                self.max_iterations = *max_iterations;
                self.set_activity(StatusActivity::Idle, "");
            }
            Event::RunContinued { usage, duration_ms, unchecked, .. } => {
                self.iteration = unchecked.unwrap_or(self.iteration);
                self.started_ms = Some(at.time_ms.saturating_sub_unsigned(*duration_ms));
                self.spent = *usage;
                self.current = Usage::default();
            }
            Event::IterationStarted { max_iterations } => {
                self.started_ms.get_or_insert(at.time_ms);
                self.iteration = at.iteration;
                self.max_iterations = *max_iterations;
                self.set_activity(StatusActivity::Idle, "");
            }
            Event::AgentStarted { purpose, .. } => {
                self.tools.clear();
                self.set_activity(StatusActivity::Agent(*purpose), "");
            }
            Event::ToolStarted { id, name, summary, .. } => {
                self.since_ms = self.now_ms;
                if self.tools.len() < MAX_TOOLS {
                    let mut call = Vec::new();
                    width::push_one_line(name, MAX_DETAIL, "", &mut call);
                    if !summary.is_empty() {
                        call.push(b'(');
                        width::push_one_line(summary, MAX_DETAIL, "", &mut call);
                        call.push(b')');
                    }
                    self.tools.push(OpenTool {
                        id: id.as_ref().to_owned(),
                        call: String::from_utf8(call).unwrap_or_default(),
                        since_ms: self.now_ms,
                    });
                }
            }
            Event::ToolEnded { id, .. } => {
                self.since_ms = self.now_ms;
                self.tools.retain(|tool| tool.id != id.as_ref());
            }
            // How long the agent has been silent is what one wants to know of it.
            Event::Text { .. }
            | Event::Thinking { .. }
            | Event::Notice { .. }
            | Event::Retracted { .. }
            | Event::LeftOut { .. }
            | Event::Output { .. }
            | Event::Todo { .. } => self.since_ms = self.now_ms,
            Event::Usage(usage) => self.current = *usage,
            Event::AgentEnded { usage, .. } => {
                self.spent.add(usage);
                self.current = Usage::default();
                self.tools.clear();
                self.set_activity(StatusActivity::Idle, "");
            }
            Event::Waiting { reason, until_ms } => self
                .set_activity(StatusActivity::Waiting { reason: *reason, until_ms: *until_ms }, ""),
            Event::GuardrailStarted { command, .. } => {
                self.set_activity(StatusActivity::Guardrail, command)
            }
            Event::ScmStarted { task, .. } => self.set_activity(StatusActivity::Scm, task),
            Event::GuardrailEnded { .. } | Event::ScmEnded { .. } => {
                self.set_activity(StatusActivity::Idle, "");
            }
            Event::Tasks { done, total, .. } => self.stories = (*done, *total),
            Event::StopRequested { .. } => self.stopping = true,
            Event::PauseRequested => self.pausing = true,
            Event::Paused => self.set_activity(StatusActivity::Paused, ""),
            Event::Resumed { max_iterations } => {
                self.pausing = false;
                self.max_iterations = *max_iterations;
                if matches!(self.doing, StatusActivity::Paused) {
                    self.set_activity(StatusActivity::Idle, "");
                }
            }
            Event::RunEnded { .. } => self.started_ms = None,
            _ => {}
        }
    }

    fn set_activity(&mut self, doing: StatusActivity, detail: &str) {
        self.doing = doing;
        self.since_ms = self.now_ms;
        let mut bytes = std::mem::take(&mut self.detail).into_bytes();
        bytes.clear();
        width::push_one_line(detail, MAX_DETAIL, "", &mut bytes);
        self.detail = String::from_utf8(bytes).unwrap_or_default();
    }

    pub fn tick(&mut self, now_ms: i64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// A second after it was last drawn, as long as there is something to show.
    pub fn next_tick(&self) -> Option<i64> {
        self.started_ms.map(|_| self.drawn_ms + 1000)
    }

    /// The run is over, whatever the events said.
    pub fn finish(&mut self) {
        self.started_ms = None;
    }

    /// The line, no wider than `room` columns; empty when there is nothing to show.
    pub fn render(&mut self, room: usize) -> &str {
        self.line.clear();
        let Some(started_ms) = self.started_ms else {
            return &self.line;
        };
        self.drawn_ms = self.now_ms;
        let (activity, ends) = self.format_activity();
        // What matters least goes first when there is not enough room: tokens, then the cost.
        for figures in (0..=2).rev() {
            self.line.clear();
            self.format_head(started_ms, figures);
            let head = width::display_width(&self.line);
            let whole = width::display_width(&activity) + width::display_width(&ends);
            let least = whole.min(16 + width::display_width(&ends));
            if head + least > room && figures > 0 {
                continue;
            }
            let rest = room.saturating_sub(head + width::display_width(&ends));
            if width::display_width(&activity) > rest {
                let more = self.marks.more;
                let rest = rest.saturating_sub(width::display_width(more));
                let _ = write!(self.line, "{}{more}{ends}", width::prefix_within(&activity, rest));
            } else {
                let _ = write!(self.line, "{activity}{ends}");
            }
            break;
        }
        let fits = width::prefix_within(&self.line, room).len();
        self.line.truncate(fits);
        &self.line
    }

    fn format_head(&mut self, started_ms: i64, figures: u8) {
        let separator = self.marks.separator;
        let line = &mut self.line;
        if self.iteration > 0 {
            let _ = write!(line, "iteration {}", self.iteration);
            if self.max_iterations > 0 {
                let _ = write!(line, "/{}", self.max_iterations);
            }
            line.push_str(separator);
        }
        if let (done, total @ 1..) = self.stories {
            let _ = write!(line, "{done}/{total} stories{separator}");
        }
        line.push_str(&format_span(self.now_ms - started_ms));
        line.push_str(separator);
        let mut usage = self.spent;
        usage.add(&self.current);
        if figures >= 1
            && let Some(cost) = usage.cost_usd
        {
            let _ = write!(line, "{}{separator}", text::format_dollars(cost));
        }
        if figures >= 2 && usage.total_tokens() > 0 {
            let _ = write!(line, "{} tokens{separator}", text::format_count(usage.total_tokens()));
        }
        if self.stopping {
            let _ = write!(line, "stopping{separator}");
        } else if self.pausing && !matches!(self.doing, StatusActivity::Paused) {
            let _ = write!(line, "pausing{separator}");
        }
    }

    /// What is being waited for: a part that may be cut, and a part that may not.
    fn format_activity(&self) -> (String, String) {
        let since = |ms: i64| format!(" {}", format_span(self.now_ms - ms));
        match self.doing {
            StatusActivity::Idle => ("working".to_owned(), String::new()),
            StatusActivity::Agent(Purpose::CommitMessage) => {
                ("commit message".to_owned(), since(self.since_ms))
            }
            StatusActivity::Agent(Purpose::Work) => match self.tools.as_slice() {
                [] => ("agent thinking".to_owned(), since(self.since_ms)),
                [tool] => (tool.call.clone(), since(tool.since_ms)),
                [tool, others @ ..] => (
                    tool.call.clone(),
                    format!("{} and {} more", since(tool.since_ms), others.len()),
                ),
            },
            StatusActivity::Guardrail => {
                (format!("guardrail `{}`", self.detail), since(self.since_ms))
            }
            StatusActivity::Paused => ("paused".to_owned(), since(self.since_ms)),
            StatusActivity::Scm => (format!("SCM {}", self.detail), since(self.since_ms)),
            StatusActivity::Waiting { reason, until_ms } => {
                let left = until_ms - self.now_ms;
                match reason {
                    WaitReason::Backoff => {
                        ("back-off".to_owned(), format!(" {}", format_span(left)))
                    }
                    WaitReason::RateLimit => (
                        String::new(),
                        format!(
                            "rate limit until {} ({} left)",
                            clock(until_ms, &(self.zone)()),
                            countdown(left)
                        ),
                    ),
                }
            }
        }
    }
}

/// A time span in whole seconds: a line that changes more often is not redrawn for it.
fn format_span(ms: i64) -> String {
    let seconds = u64::try_from(ms / 1000).unwrap_or(0);
    if seconds < 60 { format!("{seconds}s") } else { text::format_duration(seconds * 1000) }
}

/// `12:34`, `1:02:03`. What is left is rounded up: at zero it is over.
fn countdown(ms: i64) -> String {
    let seconds = u64::try_from(ms).unwrap_or(0).div_ceil(1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}

/// The local time of day, `14:05`.
fn clock(ms: i64, zone: &TimeZone) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| "?".to_owned(),
        |time| {
            let time = zone.to_datetime(time);
            format!("{:02}:{:02}", time.hour(), time.minute())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{ASCII, EMOJI};
    use proptest::prelude::*;
    use ralph_events::run_state::{Activity, RunState};

    fn at(time_ms: i64) -> Stamp {
        Stamp { time_ms, iteration: 2, attempt: 1 }
    }

    fn tool(id: &'static str, name: &'static str, summary: &'static str) -> Event<'static> {
        Event::ToolStarted {
            id: id.into(),
            name: name.into(),
            summary: summary.into(),
            subagent: false,
        }
    }

    fn tool_ended(id: &'static str) -> Event<'static> {
        Event::ToolEnded {
            id: id.into(),
            name: "Bash".into(),
            failed: false,
            denied: false,
            lines: 0,
            chars: 0,
            preview: "".into(),
            subagent: false,
        }
    }

    fn stories(done: u32, total: u32) -> Event<'static> {
        Event::Tasks { done, total, story: None, title: None, problems: vec![], unreadable: false }
    }

    fn agent() -> Event<'static> {
        Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: vec![] }
    }

    fn started() -> StatusLine {
        let mut status = StatusLine::new(&EMOJI, || TimeZone::UTC);
        status.event(at(0), &Event::IterationStarted { max_iterations: 10 });
        status
    }

    fn usage(cost: f64, tokens: u64) -> Event<'static> {
        Event::Usage(Usage { cost_usd: Some(cost), input_tokens: tokens, ..Usage::default() })
    }

    /// The status line ignores the usage of a `result`, which the end of its agent repeats. Nothing else differs.
    #[test]
    fn run_state_of_recorded_run_agrees_with_status_line() {
        let journal = include_bytes!("testdata/run.jsonl").as_slice();
        let mut status = StatusLine::new(&EMOJI, || TimeZone::UTC);
        let mut state = RunState::default();
        for entry in ralph_events::journal::entries(journal) {
            status.event(entry.at, &entry.event);
            state.apply(&entry);
            let mut usage = status.spent;
            usage.add(&status.current);
            assert_eq!(usage.total_tokens(), state.usage().total_tokens(), "{entry:?}");
            let cost = |usage: Usage| usage.cost_usd.map(text::format_dollars);
            assert_eq!(cost(usage), state.cost().reported.map(text::format_dollars), "{entry:?}");
            let figures = (status.iteration, status.max_iterations, status.stories);
            let tasks = state.tasks.as_ref().map_or((0, 0), |tasks| (tasks.done, tasks.total));
            assert_eq!(figures, (state.totals.iteration, state.info.max_iterations, tasks));
            assert_eq!(status.started_ms.is_none(), state.end.is_some());
            let calls = status.tools.iter().map(|tool| (tool.id.clone(), tool.since_ms));
            let calls: Vec<_> = calls.collect();
            let (doing, tools) = match &state.activity {
                Activity::Idle => (StatusActivity::Idle, Vec::new()),
                Activity::Agent(agent) => {
                    let tools = agent.tools.iter().map(|tool| (tool.id.clone(), tool.since_ms));
                    (StatusActivity::Agent(agent.purpose), tools.collect())
                }
                Activity::Guardrail { .. } => (StatusActivity::Guardrail, Vec::new()),
                Activity::Scm { .. } => (StatusActivity::Scm, Vec::new()),
                Activity::Waiting { reason, until_ms } => {
                    (StatusActivity::Waiting { reason: *reason, until_ms: *until_ms }, Vec::new())
                }
                Activity::Paused { .. } => (StatusActivity::Paused, Vec::new()),
                // Nothing is shown any more.
                Activity::Ended => continue,
            };
            assert_eq!((status.doing, calls), (doing, tools), "{entry:?}");
        }
    }

    #[test]
    fn status_line_shows_current_activity() {
        let mut status = started();
        let mut shows = |time: i64, event: Option<Event<'_>>, expected: &str| {
            match event {
                Some(event) => status.event(at(time), &event),
                None => status.tick(time),
            }
            let line = status.render(79);
            assert_eq!(line, expected, "at {time}");
        };
        shows(1_000, Some(agent()), "iteration 2/10 · 1s · agent thinking 0s");
        shows(61_000, None, "iteration 2/10 · 1m1s · agent thinking 1m0s");
        shows(
            62_000,
            Some(tool("1", "Bash", "cargo\ntest")),
            "iteration 2/10 · 1m2s · Bash(cargo test) 0s",
        );
        shows(74_000, None, "iteration 2/10 · 1m14s · Bash(cargo test) 12s");
        shows(
            74_500,
            Some(tool("2", "Read", "")),
            "iteration 2/10 · 1m14s · Bash(cargo test) 12s and 1 more",
        );
        shows(75_000, Some(tool_ended("1")), "iteration 2/10 · 1m15s · Read 0s");
        shows(76_000, Some(tool_ended("2")), "iteration 2/10 · 1m16s · agent thinking 0s");
        shows(
            76_500,
            Some(usage(1.234, 450_000)),
            "iteration 2/10 · 1m16s · $1.23 · 450K tokens · agent thinking 0s",
        );
        shows(
            80_000,
            Some(Event::GuardrailStarted { index: 0, command: "make test".into() }),
            "iteration 2/10 · 1m20s · $1.23 · 450K tokens · guardrail `make test` 0s",
        );
        shows(
            90_000,
            Some(Event::Waiting { reason: WaitReason::RateLimit, until_ms: 50_700_000 }),
            "iteration 2/10 · 1m30s · $1.23 · rate limit until 14:05 (14:03:30 left)",
        );
        shows(
            49_946_000,
            None,
            "iteration 2/10 · 13h52m · $1.23 · rate limit until 14:05 (12:34 left)",
        );
        shows(
            49_950_000,
            Some(Event::Waiting { reason: WaitReason::Backoff, until_ms: 49_953_000 }),
            "iteration 2/10 · 13h52m · $1.23 · 450K tokens · back-off 3s",
        );
        shows(
            49_950_500,
            Some(Event::StopRequested { signal: "SIGINT".into(), now: false }),
            "iteration 2/10 · 13h52m · $1.23 · 450K tokens · stopping · back-off 2s",
        );
    }

    #[test]
    fn status_line_counts_stories_if_there_are_any() {
        let mut status = started();
        status.event(at(0), &stories(0, 0));
        assert_eq!(status.render(79), "iteration 2/10 · 0s · working");
        status.event(at(0), &stories(3, 12));
        assert_eq!(status.render(79), "iteration 2/10 · 3/12 stories · 0s · working");
    }

    #[test]
    fn status_line_counts_ended_attempt_once() {
        let mut status = started();
        status.event(at(0), &usage(1.0, 1000));
        let spent = Usage { cost_usd: Some(1.5), input_tokens: 2000, ..Usage::default() };
        status.event(
            at(0),
            &Event::AgentEnded {
                purpose: Purpose::Work,
                exit: None,
                ended_by: None,
                class: ralph_events::event::Class::Answered,
                failure: None,
                duration_ms: 0,
                usage: spent,
                tools: 0,
                tool_errors: 0,
                denied: 0,
                repeats_prompt: false,
                filter_errors: 0,
                complete: None,
                found: None,
                commit_message: None,
            },
        );
        status.event(at(0), &usage(0.25, 500));
        assert_eq!(status.render(79), "iteration 2/10 · 0s · $1.75 · 2.5K tokens · working");
    }

    #[test]
    fn status_line_requests_tick_only_while_shown() {
        let mut status = StatusLine::new(&ASCII, || TimeZone::UTC);
        assert_eq!(status.next_tick(), None);
        assert_eq!(status.render(79), "");
        status.event(at(5_000), &Event::IterationStarted { max_iterations: 0 });
        assert_eq!(status.render(79), "iteration 2 | 0s | working");
        assert_eq!(status.next_tick(), Some(6_000));
        status.tick(6_100);
        status.render(79);
        assert_eq!(status.next_tick(), Some(7_100));
        status.finish();
        assert_eq!((status.next_tick(), status.render(79)), (None, ""));
    }

    #[test]
    fn status_line_drops_least_important_parts_first() {
        let mut status = started();
        status.event(at(0), &agent());
        status.event(at(0), &usage(1.0, 1000));
        status.event(at(0), &tool("1", "Bash", "cargo test --workspace --all-features"));
        for (room, expected) in [
            (
                80,
                "iteration 2/10 · 0s · $1.00 · 1K tokens · Bash(cargo test --workspace --all-… 0s",
            ),
            (62, "iteration 2/10 · 0s · $1.00 · 1K tokens · Bash(cargo test … 0s"),
            (52, "iteration 2/10 · 0s · $1.00 · Bash(cargo test --… 0s"),
            (42, "iteration 2/10 · 0s · Bash(cargo test … 0s"),
            (24, "iteration 2/10 · 0s · … "),
            (9, "iteration"),
            (0, ""),
        ] {
            assert_eq!(status.render(room), expected, "{room}");
        }
    }

    proptest! {
        #[test]
        fn status_line_never_exceeds_width(
            room in 0usize..200,
            name in any::<String>(),
            summary in any::<String>(),
            time in any::<i32>(),
        ) {
            let mut status = started();
            status.event(at(0), &agent());
            status.event(at(i64::from(time)), &Event::ToolStarted {
                id: "1".into(), name: name.into(), summary: summary.into(), subagent: false,
            });
            let line = status.render(room);
            prop_assert!(width::display_width(line) <= room);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
