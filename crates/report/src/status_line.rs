//! The line below the text that shows where the run is and what it waits for.
//!
//! [`super::screen`] and [`super::terminal`] draw it.

use std::fmt::Write;

use jiff::tz::TimeZone;

use super::style::{ASCII, Marks};
use super::width;
use crate::run_table::cost_text;
use crate::terminal::ProjectPaths;
use crate::time_text::format_local;
use ralph_events::event::{Purpose, WaitReason};
use ralph_events::run_state::{Activity, Clock, Cost, OpenTool, RunState};
use ralph_events::text;

/// Characters kept of a description; no terminal shows more in one line.
const MAX_DETAIL: usize = 200;

/// The line, and the facts it shows.
#[derive(Debug)]
pub struct StatusLine {
    marks: &'static Marks,
    zone: fn() -> TimeZone,
    /// `false` before the run and after it.
    shown: bool,
    now_ms: i64,
    drawn_ms: i64,
    facts: StatusFacts,
    line: String,
}

#[derive(Debug, Default)]
struct StatusFacts {
    iteration: u32,
    max_iterations: u32,
    /// Stories done, and all stories.
    stories: (u32, u32),
    clock: Clock,
    cost: Cost,
    tokens: u64,
    activity: Activity,
    is_stopping: bool,
    is_pausing: bool,
    open_questions: usize,
}

impl StatusLine {
    pub(crate) fn new(marks: &'static Marks, zone: fn() -> TimeZone) -> Self {
        StatusLine {
            marks,
            zone,
            shown: false,
            now_ms: 0,
            drawn_ms: 0,
            facts: StatusFacts::default(),
            line: String::new(),
        }
    }

    pub fn ascii(zone: fn() -> TimeZone) -> Self {
        StatusLine::new(&ASCII, zone)
    }

    /// Takes the state of the run after an event at `now_ms`.
    pub fn update(&mut self, now_ms: i64, run: &RunState) {
        self.now_ms = self.now_ms.max(now_ms);
        self.shown = run.end.is_none();
        self.facts = StatusFacts {
            iteration: run.totals.iteration,
            max_iterations: run.info.max_iterations,
            stories: run.tasks.as_ref().map_or((0, 0), |tasks| (tasks.done, tasks.total)),
            clock: run.clock.clone(),
            cost: run.cost(),
            tokens: run.usage().total_tokens(),
            activity: run.activity.clone(),
            is_stopping: run.requests.stop.is_some(),
            is_pausing: run.requests.pause,
            open_questions: run.steering.open_questions().count(),
        };
    }

    pub fn tick(&mut self, now_ms: i64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Returns when to redraw: a second after the last time.
    pub fn next_tick(&self) -> Option<i64> {
        self.shown.then_some(self.drawn_ms + 1000)
    }

    /// Hides the line for good.
    pub fn finish(&mut self) {
        self.shown = false;
    }

    /// Returns the line, at most `room` columns wide.
    pub fn render(&mut self, room: usize) -> &str {
        self.line.clear();
        if !self.shown {
            return &self.line;
        }
        self.drawn_ms = self.now_ms;
        let (activity, ends) = self.format_activity();
        // Tokens go first if room is short, then the cost.
        for figures in (0..=2).rev() {
            self.line.clear();
            self.format_head(figures);
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

    fn format_head(&mut self, figures: u8) {
        let separator = self.marks.separator;
        let line = &mut self.line;
        if self.facts.iteration > 0 {
            let _ = write!(line, "iteration {}", self.facts.iteration);
            if self.facts.max_iterations > 0 {
                let _ = write!(line, "/{}", self.facts.max_iterations);
            }
            line.push_str(separator);
        }
        if let (done, total @ 1..) = self.facts.stories {
            let _ = write!(line, "{done}/{total} stories{separator}");
        }
        let active_ms = self.facts.clock.active_until(Some(self.now_ms));
        line.push_str(&format_span(i64::try_from(active_ms).unwrap_or(i64::MAX)));
        line.push_str(separator);
        if figures >= 1
            && let Some(cost) = cost_text(self.facts.cost)
        {
            let _ = write!(line, "{cost}{separator}");
        }
        if figures >= 2 && self.facts.tokens > 0 {
            let _ = write!(line, "{} tokens{separator}", text::format_count(self.facts.tokens));
        }
        match self.facts.open_questions {
            0 => {}
            1 => {
                let _ = write!(line, "1 question{separator}");
            }
            many => {
                let _ = write!(line, "{many} questions{separator}");
            }
        }
        if self.facts.is_stopping {
            let _ = write!(line, "stopping{separator}");
        } else if self.facts.is_pausing && !matches!(self.facts.activity, Activity::Paused { .. }) {
            let _ = write!(line, "pausing{separator}");
        }
    }

    /// Returns a part that may be cut and a part that may not.
    fn format_activity(&self) -> (String, String) {
        let since = |ms: i64| format!(" {}", format_span(self.now_ms - ms));
        match &self.facts.activity {
            Activity::Idle | Activity::Ended => ("working".to_owned(), String::new()),
            Activity::Agent(agent) => match (agent.purpose, agent.tools.as_slice()) {
                (Purpose::CommitMessage, _) => {
                    ("commit message".to_owned(), since(agent.last_output_ms))
                }
                (Purpose::Work, []) => ("agent thinking".to_owned(), since(agent.last_output_ms)),
                (Purpose::Work, [tool]) => (tool_call(tool), since(tool.since_ms)),
                (Purpose::Work, [tool, others @ ..]) => {
                    (tool_call(tool), format!("{} and {} more", since(tool.since_ms), others.len()))
                }
            },
            Activity::Guardrail { command, since_ms } => {
                (format!("check `{}`", one_line(command)), since(*since_ms))
            }
            Activity::Scm { task, since_ms } => {
                (format!("SCM {}", one_line(task)), since(*since_ms))
            }
            Activity::Paused { since_ms } => ("paused".to_owned(), since(*since_ms)),
            Activity::Parked { since_ms } => ("waiting for you".to_owned(), since(*since_ms)),
            Activity::Waiting { reason, until_ms } => {
                let left = *until_ms - self.now_ms;
                match reason {
                    WaitReason::Backoff => {
                        ("back-off".to_owned(), format!(" {}", format_span(left)))
                    }
                    WaitReason::RateLimit => (
                        String::new(),
                        format!(
                            "rate limit until {} ({} left)",
                            format_local(*until_ms, &(self.zone)(), "%H:%M"),
                            countdown(left)
                        ),
                    ),
                }
            }
        }
    }
}

/// `Bash(cargo test)`.
fn tool_call(tool: &OpenTool) -> String {
    let name = one_line(&tool.name);
    if tool.summary.is_empty() { name } else { format!("{name}({})", one_line(&tool.summary)) }
}

/// The subject of a tool call in one line, with paths relative to the run's directory.
pub(crate) fn tool_subject(summary: &str, directory: &str) -> String {
    let mut paths = ProjectPaths::default();
    if !directory.is_empty() {
        paths.set_project(directory);
    }
    one_line(&paths.relative(summary))
}

pub(crate) fn one_line(text: &str) -> String {
    width::one_line(text, MAX_DETAIL, "")
}

/// Formats a span in whole seconds, so the line changes at most once a second.
pub(crate) fn format_span(ms: i64) -> String {
    let seconds = u64::try_from(ms / 1000).unwrap_or(0);
    if seconds < 60 { format!("{seconds}s") } else { text::format_duration(seconds * 1000) }
}

/// `12:34`, `1:02:03`, rounded up.
fn countdown(ms: i64) -> String {
    let seconds = u64::try_from(ms).unwrap_or(0).div_ceil(1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_events::agent_ended;
    use crate::style::EMOJI;
    use proptest::prelude::*;
    use ralph_events::event::{Class, Event, Stamp, Usage};

    fn at(time_ms: i64) -> Stamp {
        Stamp { time_ms, iteration: 2, attempt: 1 }
    }

    fn tool(id: &'static str, name: &'static str, summary: &'static str) -> Event<'static> {
        Event::ToolStarted {
            id: id.into(),
            name: name.into(),
            summary: summary.into(),
            edit: None,
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
        Event::Tasks {
            done,
            total,
            story: None,
            title: None,
            problems: vec![],
            unreadable: false,
            marked: vec![],
        }
    }

    fn agent() -> Event<'static> {
        Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: vec![] }
    }

    struct Shown {
        run: RunState,
        line: StatusLine,
    }

    impl Shown {
        fn new(marks: &'static Marks) -> Shown {
            Shown { run: RunState::live(), line: StatusLine::new(marks, || TimeZone::UTC) }
        }

        fn event(&mut self, at: Stamp, event: &Event<'_>) {
            self.run.apply_event(at, event);
            self.line.update(at.time_ms, &self.run);
        }

        fn render(&mut self, room: usize) -> &str {
            self.line.render(room)
        }
    }

    fn started() -> Shown {
        let mut status = Shown::new(&EMOJI);
        status.event(at(0), &Event::IterationStarted { max_iterations: 10 });
        status
    }

    fn usage(cost: f64, tokens: u64) -> Event<'static> {
        Event::Usage(Usage { cost_usd: Some(cost), input_tokens: tokens, ..Usage::default() })
    }

    #[test]
    fn status_line_shows_current_activity() {
        let mut status = started();
        let mut shows = |time: i64, event: Option<Event<'_>>, expected: &str| {
            match event {
                Some(event) => status.event(at(time), &event),
                None => status.line.tick(time),
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
            "iteration 2/10 · 1m20s · $1.23 · 450K tokens · check `make test` 0s",
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
            "iteration 2/10 · 13h52m · $1.23 · 450K tokens · stopping · working",
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
        status.event(at(0), &agent());
        status.event(at(0), &usage(1.0, 1000));
        let spent = Usage { cost_usd: Some(1.5), input_tokens: 2000, ..Usage::default() };
        status.event(at(0), &agent_ended(None, None, Class::Answered, spent));
        status.event(at(0), &agent());
        status.event(at(0), &usage(0.25, 500));
        let expected = "iteration 2/10 · 0s · $1.75 · 2.5K tokens · agent thinking 0s";
        assert_eq!(status.render(79), expected);
    }

    #[test]
    fn status_line_requests_tick_only_while_shown() {
        let mut status = Shown::new(&ASCII);
        assert_eq!(status.line.next_tick(), None);
        assert_eq!(status.render(79), "");
        status.event(at(5_000), &Event::IterationStarted { max_iterations: 0 });
        assert_eq!(status.render(79), "iteration 2 | 0s | working");
        assert_eq!(status.line.next_tick(), Some(6_000));
        status.line.tick(6_100);
        status.render(79);
        assert_eq!(status.line.next_tick(), Some(7_100));
        status.line.finish();
        assert_eq!((status.line.next_tick(), status.render(79)), (None, ""));
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
                id: "1".into(), name: name.into(), summary: summary.into(), edit: None, subagent: false,
            });
            let line = status.render(room);
            prop_assert!(width::display_width(line) <= room);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
