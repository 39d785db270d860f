//! What a person sees of a run: the agent's work and the run's own steps on standard output, warnings
//! and `[ralph] …` details on standard error, and the status line beneath.

use std::io::Write;

use jiff::tz::TimeZone;

use super::Reporter;
use super::screen::{Output, Screen, Target};
use super::status::Status;
use super::style::{Marks, Paint, Style};
use super::visible::{self, Cleaner};
use crate::core::event::{
    Class, EndCause, Event, Exit, FailAction, Leftover, Outcome, Purpose, Stamp, Stream, TodoItem,
    TodoStatus, Usage, WaitReason,
};
use crate::core::text;

/// Characters of one text of the agent's that are shown.
const MAX_TEXT: usize = 100_000;
/// Characters of one thought that are shown.
const MAX_THOUGHT: usize = 300;
/// Characters of what a tool works on, of a command, of a message, in a line of ours.
const MAX_DETAIL: usize = 500;
/// Characters of a prompt in a line of details.
const MAX_PROMPT: usize = 200;
/// Entries of a todo list that are shown.
const MAX_TODOS: usize = 100;
/// Processes that are named one by one.
const MAX_PROCESSES: usize = 5;

/// What a line belongs to. An empty line stands between lines that belong to different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paragraph {
    Said,
    Thought,
    Tool,
    Todo,
    Attempt,
    Run,
    Iteration,
    Guardrail,
    Scm,
    End,
}

/// What a stretch of streamed text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    Agent,
    Subagent,
    Thought,
    SubagentThought,
    Output(Stream),
}

/// A streamed text that may go on.
#[derive(Debug)]
struct Block {
    speaker: Speaker,
    cleaner: Cleaner,
    /// Characters that may still be shown, and those that were not.
    left: usize,
    omitted: usize,
    /// The line has not been ended, and something has been written to it.
    open: bool,
    begun: bool,
}

/// The terminal face.
#[derive(Debug)]
pub struct Human {
    style: Style,
    marks: &'static Marks,
    zone: TimeZone,
    screen: Screen,
    status: Option<Status>,
    last: Option<Paragraph>,
    block: Option<Block>,
    /// The last line on standard output was empty, or there was none.
    blank: bool,
    run: String,
    max_iterations: u32,
    purpose: Purpose,
    scratch: String,
    finished: bool,
}

/// Appends to a line of one of the outputs.
struct Pen<'a> {
    out: &'a mut Vec<u8>,
    color: bool,
    more: &'static str,
}

impl Pen<'_> {
    /// Our own words.
    fn say(&mut self, words: &str) -> &mut Self {
        self.out.extend_from_slice(words.as_bytes());
        self
    }

    fn paint(&mut self, paint: Paint, words: &str) -> &mut Self {
        self.turn(paint).say(words).plain()
    }

    fn turn(&mut self, paint: Paint) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", paint.style().render());
        }
        self
    }

    fn plain(&mut self) -> &mut Self {
        if self.color {
            let _ = write!(self.out, "{}", anstyle::Reset.render());
        }
        self
    }

    /// Somebody else's words, clean and on this line.
    fn quote(&mut self, words: &str) -> &mut Self {
        self.quote_up_to(words, MAX_DETAIL)
    }

    fn quote_up_to(&mut self, words: &str, max: usize) -> &mut Self {
        visible::one_line(words, max, self.more, self.out);
        self
    }

    fn end(&mut self) {
        self.out.push(b'\n');
    }
}

impl Human {
    /// The face on standard output and standard error, in local time.
    pub fn stdio(style: Style) -> Self {
        let (status, color) = (style.status && !style.quiet, style.color_errors);
        let screen = Screen::new(Output::stdout(), Output::stderr(), status, color);
        Human::new(style, TimeZone::system(), screen)
    }

    pub fn new(style: Style, zone: TimeZone, screen: Screen) -> Self {
        let marks = Marks::of(style.emoji);
        let status = screen
            .has_status()
            .then(|| Status::new(marks, zone.clone()));
        Human {
            style,
            marks,
            zone,
            screen,
            status,
            last: None,
            block: None,
            blank: true,
            run: String::new(),
            max_iterations: 0,
            purpose: Purpose::Work,
            scratch: String::new(),
            finished: false,
        }
    }

    // Lines.

    fn pen(&mut self, target: Target) -> Pen<'_> {
        Pen {
            color: match target {
                Target::Out => self.style.color,
                Target::Err => self.style.color_errors,
            },
            more: self.marks.more,
            out: self.screen.to(target),
        }
    }

    /// Begins a line on standard output.
    fn line(&mut self, at: Stamp, paragraph: Paragraph) -> Pen<'_> {
        self.paragraph(paragraph);
        self.blank = false;
        self.stamp(at, Target::Out);
        self.pen(Target::Out)
    }

    /// Begins a line on standard error.
    fn aside(&mut self, at: Stamp) -> Pen<'_> {
        self.end_block();
        self.stamp(at, Target::Err);
        self.pen(Target::Err)
    }

    /// Begins a line of details.
    fn detail(&mut self, at: Stamp) -> Pen<'_> {
        let mut pen = self.aside(at);
        pen.say("[ralph] ");
        pen
    }

    fn paragraph(&mut self, paragraph: Paragraph) {
        self.end_block();
        if self.last.replace(paragraph) != Some(paragraph) && !self.blank && !self.style.quiet {
            self.screen.to(Target::Out).push(b'\n');
            self.blank = true;
        }
    }

    fn stamp(&mut self, at: Stamp, target: Target) {
        if self.style.timestamps
            && let Ok(time) = jiff::Timestamp::from_millisecond(at.time_ms)
        {
            let time = self.zone.to_datetime(time);
            let (hour, minute, second) = (time.hour(), time.minute(), time.second());
            let out = self.screen.to(target);
            let _ = write!(out, "[{hour:02}:{minute:02}:{second:02}] ");
        }
    }

    // The agent's words, which come in pieces.

    fn speak(&mut self, at: Stamp, speaker: Speaker, words: &str, joined: bool) {
        let goes_on = joined && self.block.as_ref().is_some_and(|it| it.speaker == speaker);
        if !goes_on {
            let (paragraph, left) = match speaker {
                Speaker::Thought | Speaker::SubagentThought => (Paragraph::Thought, MAX_THOUGHT),
                _ => (Paragraph::Said, MAX_TEXT),
            };
            self.paragraph(paragraph);
            self.block = Some(Block {
                speaker,
                cleaner: Cleaner::default(),
                left,
                omitted: 0,
                // An empty text is an empty line.
                open: true,
                begun: false,
            });
        }
        let Some(mut block) = self.block.take() else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut words = block.cleaner.clean(words, &mut scratch);
        if block.left == 0 {
            block.omitted += words.chars().count();
            words = "";
        } else if words.len() > block.left {
            let shown = text::head(words, block.left);
            block.omitted += words[shown.len()..].chars().count();
            words = shown;
        }
        block.left = block.left.saturating_sub(words.chars().count());
        while !words.is_empty() {
            let end = memchr::memchr(b'\n', words.as_bytes());
            let line = &words[..end.unwrap_or(words.len())];
            if !line.is_empty() {
                if !block.begun {
                    self.begin_spoken_line(at, speaker);
                    block.begun = true;
                }
                self.screen
                    .to(Target::Out)
                    .extend_from_slice(line.as_bytes());
                self.blank = false;
                block.open = true;
            }
            let Some(end) = end else { break };
            self.end_spoken_line(&mut block);
            words = &words[end + 1..];
        }
        scratch.clear();
        scratch.shrink_to(256 * 1024);
        self.scratch = scratch;
        self.block = Some(block);
    }

    fn begin_spoken_line(&mut self, at: Stamp, speaker: Speaker) {
        self.stamp(at, Target::Out);
        let thinking = self.marks.thinking;
        let mut pen = self.pen(Target::Out);
        match speaker {
            Speaker::Agent => {}
            Speaker::Subagent => {
                pen.say("  ").turn(Paint::Faint);
            }
            Speaker::Thought => {
                pen.turn(Paint::Faint).say(thinking).say(" ");
            }
            Speaker::SubagentThought => {
                pen.say("  ").turn(Paint::Faint).say(thinking).say(" ");
            }
            Speaker::Output(_) => {
                pen.turn(Paint::Faint);
            }
        }
    }

    fn end_spoken_line(&mut self, block: &mut Block) {
        let begun = std::mem::take(&mut block.begun);
        block.open = false;
        let mut pen = self.pen(Target::Out);
        if begun && block.speaker != Speaker::Agent {
            pen.plain();
        }
        pen.end();
        self.blank = !begun;
    }

    fn end_block(&mut self) {
        let Some(mut block) = self.block.take() else {
            return;
        };
        if block.omitted > 0 {
            let more = self.marks.more;
            let omitted = block.omitted;
            let space = if block.begun { " " } else { "" };
            let out = self.screen.to(Target::Out);
            let _ = write!(out, "{space}{more} [{omitted} more characters]");
            block.begun = true;
            block.open = true;
        }
        if block.open {
            self.end_spoken_line(&mut block);
        }
    }

    /// Lines of a tool's or a command's output beneath its headline. `total` is the size of all of it.
    fn preview(&mut self, at: Stamp, indent: &str, shown: &str, total: (u64, u64)) {
        if self.style.max_output_lines == 0 || self.style.max_output_chars == 0 {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let clean = Cleaner::default().clean(shown, &mut scratch).trim_end();
        let mut left = self.style.max_output_chars;
        let (mut lines, mut chars) = (0, 0);
        let mut cut = None;
        for line in clean.split('\n') {
            if lines == self.style.max_output_lines {
                let rest = total.0.saturating_sub(lines as u64).max(1);
                cut = Some((rest, "line"));
                break;
            }
            let head = text::head(line, left);
            let count = head.chars().count();
            if !clean.is_empty() {
                self.preview_line(at, indent, lines == 0, head.trim_end());
            }
            lines += 1;
            chars += count + 1;
            left -= count;
            if head.len() < line.len() || left == 0 {
                let shown = (chars - 1) as u64;
                let rest = total.1.max(clean.chars().count() as u64) - shown;
                cut = (rest > 0).then_some((rest, "character"));
                break;
            }
        }
        if let Some((count, unit)) = cut {
            let words = format!("{} {} more {unit}{}", self.marks.more, count, plural(count));
            self.preview_line(at, indent, false, &words);
        }
        scratch.clear();
        self.scratch = scratch;
    }

    fn preview_line(&mut self, at: Stamp, indent: &str, first: bool, line: &str) {
        self.stamp(at, Target::Out);
        let mark = self.marks.preview;
        let mut pen = self.pen(Target::Out);
        pen.say(indent);
        if first {
            pen.say("  ").paint(Paint::Faint, mark).say("  ");
        } else if !line.is_empty() {
            pen.say("     ");
        }
        if !line.is_empty() {
            pen.paint(Paint::Faint, line);
        }
        pen.end();
    }

    // What happened, in order of the vocabulary.

    fn run_started(&mut self, at: Stamp, agent: &str, prompt: &str, completion: &str, max: u32) {
        let (mark, run) = (self.marks.run, self.run.clone());
        let mut pen = self.line(at, Paragraph::Run);
        pen.say(mark)
            .say(" ")
            .turn(Paint::Heading)
            .say("Run ")
            .quote(&run)
            .plain();
        pen.say(": ").quote(agent);
        if max > 0 {
            pen.say(&format!(
                ", at most {max} iteration{}",
                plural(u64::from(max))
            ));
        }
        if !completion.is_empty() {
            pen.say(", done when ").quote(completion);
        }
        pen.end();
        if !prompt.is_empty() {
            let mut line = Vec::new();
            visible::one_line(prompt, MAX_PROMPT, self.marks.more, &mut line);
            let line = String::from_utf8(line).unwrap_or_default();
            self.preview_line(at, "", true, &line);
        }
    }

    fn tool_started(&mut self, at: Stamp, name: &str, summary: &str, subagent: bool) {
        let mark = self.marks.tool;
        let mut pen = self.line(at, Paragraph::Tool);
        pen.say(if subagent { "  " } else { "" });
        pen.paint(Paint::Tool, mark)
            .say(" ")
            .turn(Paint::Heading)
            .quote(name)
            .plain();
        if !summary.is_empty() {
            pen.say("(").quote(summary).say(")");
        }
        pen.end();
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    fn tool_ended(
        &mut self,
        at: Stamp,
        name: &str,
        failed: bool,
        denied: bool,
        lines: u64,
        chars: u64,
        preview: &str,
        subagent: bool,
    ) {
        let marks = self.marks;
        let (mark, word, paint) = match (denied, failed) {
            (true, _) => (marks.denied, "Denied", Paint::Bad),
            (_, true) => (marks.error, "Error", Paint::Bad),
            _ => (marks.ok, "Result", Paint::Good),
        };
        let indent = if subagent { "  " } else { "" };
        let mut pen = self.line(at, Paragraph::Tool);
        pen.say(indent).say(mark).say(" ").paint(paint, word);
        pen.say(" ").say(marks.from).say(" ").quote(name);
        let size = format!(
            " ({lines} line{}, {chars} char{})",
            plural(lines),
            plural(chars)
        );
        pen.paint(Paint::Faint, &size).end();
        self.preview(at, indent, preview, (lines, chars));
    }

    fn todo(&mut self, at: Stamp, items: &[TodoItem]) {
        if items.is_empty() {
            return;
        }
        let marks = self.marks;
        let mut pen = self.line(at, Paragraph::Todo);
        pen.say(marks.todo)
            .say(" ")
            .paint(Paint::Heading, "Todo List")
            .end();
        for item in items.iter().take(MAX_TODOS) {
            let mut pen = self.line(at, Paragraph::Todo);
            pen.say("  ");
            match item.status {
                TodoStatus::Completed => {
                    pen.say(marks.done)
                        .say(" ")
                        .turn(Paint::Faint)
                        .quote(&item.text)
                        .plain();
                }
                TodoStatus::InProgress => {
                    pen.say(marks.active)
                        .say(" ")
                        .turn(Paint::Heading)
                        .quote(&item.text)
                        .plain();
                    pen.say(" ").say(marks.from).say(" ACTIVE");
                }
                TodoStatus::Pending => {
                    pen.say(marks.pending).say(" ").quote(&item.text);
                }
            }
            pen.end();
        }
        if items.len() > MAX_TODOS {
            let rest = items.len() - MAX_TODOS;
            let more = self.marks.more;
            self.line(at, Paragraph::Todo)
                .say(&format!("  {more} {rest} more"))
                .end();
        }
        let done = items
            .iter()
            .filter(|item| item.status == TodoStatus::Completed)
            .count();
        let (all, percent) = (items.len(), done * 100 / items.len());
        let progress = format!("  {}Progress: {done}/{all} ({percent}%)", marks.progress);
        self.line(at, Paragraph::Todo).say(&progress).end();
    }

    fn warn(&mut self, at: Stamp, message: &str) {
        let mark = self.marks.warning;
        let mut pen = self.aside(at);
        pen.paint(Paint::Caution, mark)
            .say(" ")
            .quote_up_to(message, 4 * MAX_DETAIL)
            .end();
    }

    fn leftovers(&mut self, at: Stamp, processes: &[Leftover], kept: bool) {
        let count = processes.len();
        let what = if count == 1 { "process" } else { "processes" };
        let mut message = if kept {
            format!("Left running {count} {what} of the agent's: ")
        } else {
            format!("Ended {count} {what} that the agent had left running: ")
        };
        for (number, process) in processes.iter().take(MAX_PROCESSES).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let command = text::truncate(&process.command, 80, self.marks.more);
            message.push_str(&format!("{comma}{} {command}", process.pid));
        }
        if count > MAX_PROCESSES {
            message.push_str(&format!(" and {} more", count - MAX_PROCESSES));
        }
        self.warn(at, &message);
    }

    fn guardrail_ended(&mut self, at: Stamp, command: &str, log: &str, end: GuardrailEnd) {
        if self.style.quiet && end.passed {
            return;
        }
        let marks = self.marks;
        let (mark, paint, word) = match (end.passed, end.timed_out) {
            (true, _) => (marks.ok, Paint::Good, "Guardrail passed"),
            (false, true) => (marks.error, Paint::Bad, "Guardrail timed out"),
            (false, false) => (marks.error, Paint::Bad, "Guardrail failed"),
        };
        let mut pen = self.line(at, Paragraph::Guardrail);
        pen.say(mark)
            .say(" ")
            .paint(paint, word)
            .say(": ")
            .quote(command);
        pen.say(&format!(
            " ({}, {}",
            exit_words(end.exit),
            text::duration(end.duration_ms)
        ));
        if !end.passed {
            pen.say(", fail action: ").say(end.fail_action.as_str());
        }
        pen.say(")").end();
        if !end.passed && !log.is_empty() {
            let mut line = b"Log: ".to_vec();
            visible::one_line(log, MAX_DETAIL, self.marks.more, &mut line);
            let line = String::from_utf8(line).unwrap_or_default();
            self.preview_line(at, "", true, &line);
        }
    }

    fn agent_ended(&mut self, at: Stamp, end: &AgentEnd<'_>) {
        let marks = self.marks;
        let answered = end.class == Class::Answered;
        if answered && self.style.quiet {
            return;
        }
        let figures = figures(
            &[],
            end.usage,
            end.tools,
            end.tool_errors,
            end.denied,
            end.duration_ms,
        );
        if end.purpose == Purpose::CommitMessage && answered {
            self.line(at, Paragraph::Scm)
                .say(marks.scm)
                .say(" Commit message written ")
                .say(&figures)
                .end();
            return;
        }
        let (mark, paint) = match end.class {
            Class::Answered => (marks.ok, Paint::Good),
            Class::Limited | Class::Interrupted => (marks.stopped, Paint::Caution),
            _ => (marks.error, Paint::Bad),
        };
        let words = match end.class {
            Class::Answered => "Complete",
            other => class_words(other),
        };
        let mut pen = self.line(at, Paragraph::Attempt);
        pen.say(mark).say(" ").paint(paint, words);
        if !answered {
            if let Some(message) = end.message.filter(|message| !message.is_empty()) {
                pen.say(": ").quote(message);
            }
            if let Some(exit) = end.exit.filter(|exit| !exit.success()) {
                pen.say(&format!(" [{exit}]"));
            }
        }
        pen.say(" ").say(&figures).end();
        if let Some(cause) = end.ended_by {
            self.preview_line(at, "", true, cause_words(cause));
        }
    }

    fn waiting(&mut self, at: Stamp, reason: WaitReason, until_ms: i64) {
        // A back-off was announced with its reason by the event before it.
        if reason == WaitReason::Backoff {
            return;
        }
        let zoned = |ms| {
            let time = jiff::Timestamp::from_millisecond(ms).ok()?;
            Some(self.zone.to_datetime(time))
        };
        let until = zoned(until_ms).map_or_else(
            || "an unknown time".to_owned(),
            |until| {
                let today = zoned(at.time_ms).map(|now| now.date());
                let format = if today == Some(until.date()) {
                    "%H:%M:%S"
                } else {
                    "%Y-%m-%d %H:%M:%S"
                };
                until.strftime(format).to_string()
            },
        );
        let left = text::duration(u64::try_from(until_ms - at.time_ms).unwrap_or(0));
        let mark = self.marks.wait;
        self.line(at, Paragraph::Run)
            .say(mark)
            .say(" ")
            .paint(Paint::Caution, "Rate limit")
            .say(&format!(": waiting until {until} ({left})"))
            .end();
    }

    fn scm_ended(&mut self, at: Stamp, task: &str, ok: bool, detail: &str, duration_ms: u64) {
        if ok && self.style.quiet {
            return;
        }
        let marks = self.marks;
        let (mark, paint, word) = if ok {
            (marks.ok, Paint::Good, "SCM ")
        } else {
            (marks.error, Paint::Bad, "SCM failed: ")
        };
        let mut pen = self.line(at, Paragraph::Scm);
        pen.say(mark)
            .say(" ")
            .turn(paint)
            .say(word)
            .quote(task)
            .plain();
        pen.say(&format!(" ({})", text::duration(duration_ms)))
            .end();
        if !detail.is_empty() {
            let size = (detail.lines().count() as u64, detail.chars().count() as u64);
            self.preview(at, "", detail, size);
        }
    }

    fn run_ended(&mut self, at: Stamp, end: &RunEnd<'_>) {
        let marks = self.marks;
        let (mark, paint) = match end.outcome {
            Outcome::Complete => (marks.ok, Paint::Good),
            Outcome::CompleteScmFailed => (marks.warning, Paint::Caution),
            Outcome::LimitReached | Outcome::Interrupted | Outcome::Budget | Outcome::Stalled => {
                (marks.stopped, Paint::Caution)
            }
            _ => (marks.error, Paint::Bad),
        };
        let iterations = [("iterations", end.iterations.to_string())];
        let figures = figures(
            &iterations,
            end.usage,
            end.tools,
            end.tool_errors,
            0,
            end.duration_ms,
        );
        let mut pen = self.line(at, Paragraph::End);
        pen.say(mark)
            .say(" ")
            .paint(paint, outcome_words(end.outcome));
        if !end.message.is_empty() {
            pen.say(": ").quote(end.message);
        }
        pen.say(" ").say(&figures).end();
        if !self.style.quiet
            && let Some(next) = next_step(end.outcome, &self.run)
        {
            self.preview_line(at, "", true, &format!("Next: {next}"));
        }
    }

    /// The agent's own output: shown unless the user does not want it, or it is only about a message.
    fn shows_agent(&self) -> bool {
        self.style.show_stream && !self.style.quiet && self.purpose == Purpose::Work
    }

    fn agent_event(&mut self, at: Stamp, event: &Event<'_>) {
        match event {
            Event::Text {
                text,
                joined,
                subagent,
            } => {
                let speaker = if *subagent {
                    Speaker::Subagent
                } else {
                    Speaker::Agent
                };
                self.speak(at, speaker, text, *joined);
            }
            Event::Thinking {
                text,
                joined,
                subagent,
            } => {
                let speaker = if *subagent {
                    Speaker::SubagentThought
                } else {
                    Speaker::Thought
                };
                self.speak(at, speaker, text, *joined);
            }
            Event::Output {
                stream,
                text,
                joined,
            } => self.speak(at, Speaker::Output(*stream), text, *joined),
            Event::ToolStarted {
                name,
                summary,
                subagent,
                ..
            } => self.tool_started(at, name, summary, *subagent),
            Event::ToolEnded {
                name,
                failed,
                denied,
                lines,
                chars,
                preview,
                subagent,
                ..
            } => self.tool_ended(
                at, name, *failed, *denied, *lines, *chars, preview, *subagent,
            ),
            Event::Todo { items } => self.todo(at, items),
            Event::Notice { text } => {
                let mark = self.marks.notice;
                let mut pen = self.line(at, Paragraph::Said);
                pen.say(mark)
                    .say(" ")
                    .turn(Paint::Faint)
                    .quote(text)
                    .plain()
                    .end();
            }
            _ => {}
        }
    }

    /// The run's own steps.
    fn run_event(&mut self, at: Stamp, event: &Event<'_>) {
        let marks = self.marks;
        let loud = !self.style.quiet;
        match event {
            Event::RunStarted {
                agent,
                prompt,
                completion,
                max_iterations,
                ..
            } if loud => self.run_started(at, agent, prompt, completion, *max_iterations),
            Event::IterationStarted { max_iterations } if loud => {
                let title = format!("Iteration {}", of(at.iteration, *max_iterations));
                let rule = marks.rule;
                self.line(at, Paragraph::Iteration)
                    .paint(Paint::Heading, &format!("{rule} {title} {rule}"))
                    .end();
            }
            Event::AgentStarted {
                purpose: Purpose::CommitMessage,
                ..
            } if loud => self
                .line(at, Paragraph::Scm)
                .say(marks.scm)
                .say(" Asking the agent for a commit message")
                .end(),
            Event::AgentEnded {
                purpose,
                exit,
                ended_by,
                class,
                failure,
                duration_ms,
                usage,
                tools,
                tool_errors,
                denied,
            } => self.agent_ended(
                at,
                &AgentEnd {
                    purpose: *purpose,
                    exit: *exit,
                    ended_by: *ended_by,
                    class: *class,
                    message: failure.as_ref().map(|failure| failure.message.as_str()),
                    duration_ms: *duration_ms,
                    usage,
                    tools: *tools,
                    tool_errors: *tool_errors,
                    denied: *denied,
                },
            ),
            Event::Leftovers { processes, kept } if !processes.is_empty() => {
                self.leftovers(at, processes, *kept);
            }
            Event::Retrying {
                class,
                message,
                delay_ms,
                failures,
                max_failures,
            } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.say(marks.retry)
                    .say(" ")
                    .paint(Paint::Caution, "Retrying");
                pen.say(&format!(" in {}: ", text::duration(*delay_ms)));
                if message.is_empty() {
                    pen.say(class_words(*class));
                } else {
                    pen.quote(message);
                }
                pen.say(&format!(" (failure {failures} of {max_failures})"))
                    .end();
            }
            Event::Waiting { reason, until_ms } => self.waiting(at, *reason, *until_ms),
            Event::GuardrailStarted { command, .. } if loud => {
                let mut pen = self.line(at, Paragraph::Guardrail);
                pen.say(marks.guardrail)
                    .say(" Guardrail: ")
                    .quote(command)
                    .end();
            }
            Event::GuardrailEnded {
                command,
                exit,
                timed_out,
                passed,
                fail_action,
                log,
                duration_ms,
                ..
            } => self.guardrail_ended(
                at,
                command,
                log,
                GuardrailEnd {
                    exit: *exit,
                    timed_out: *timed_out,
                    passed: *passed,
                    fail_action: *fail_action,
                    duration_ms: *duration_ms,
                },
            ),
            Event::ScmStarted { argv, .. } if loud => {
                let mut pen = self.line(at, Paragraph::Scm);
                pen.say(marks.scm)
                    .say(" SCM: ")
                    .quote(&shell_words::join(argv))
                    .end();
            }
            Event::ScmEnded {
                task,
                ok,
                detail,
                duration_ms,
            } => self.scm_ended(at, task, *ok, detail, *duration_ms),
            Event::CompletionChecked {
                complete: true,
                found,
            } if loud => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.say(marks.ok).say(" The agent says that it is done");
                if let Some(found) = found {
                    pen.say(": ").quote(found);
                }
                pen.end();
            }
            Event::Vetoed { reason } => {
                let mut pen = self.line(at, Paragraph::Run);
                pen.say(marks.denied)
                    .say(" ")
                    .paint(Paint::Bad, "Not complete")
                    .say(": ");
                pen.quote(reason).end();
            }
            // To the letter, so that scripts can wait for it.
            Event::StopRequested { now: false, .. } => {
                self.aside(at)
                    .say("Received signal, shutting down...")
                    .end();
            }
            Event::StopRequested { now: true, signal } => {
                let mut pen = self.aside(at);
                pen.say("Received ")
                    .quote(signal)
                    .say(", ending the agent now...")
                    .end();
            }
            Event::Warning { message } => self.warn(at, message),
            Event::RunEnded {
                outcome,
                message,
                iterations,
                duration_ms,
                usage,
                tools,
                tool_errors,
                ..
            } => self.run_ended(
                at,
                &RunEnd {
                    outcome: *outcome,
                    message,
                    iterations: *iterations,
                    duration_ms: *duration_ms,
                    usage,
                    tools: *tools,
                    tool_errors: *tool_errors,
                },
            ),
            _ => {}
        }
    }

    /// The details that `--verbose` adds.
    fn details(&mut self, at: Stamp, event: &Event<'_>) {
        let max = self.max_iterations;
        match event {
            Event::RunStarted {
                run,
                version,
                directory,
                pid,
                ..
            } => {
                let mut pen = self.detail(at);
                pen.say("Run ")
                    .quote(run)
                    .say(" of ralph ")
                    .quote(version)
                    .say(" in ");
                pen.quote(directory).say(&format!(" (pid {pid})")).end();
            }
            Event::IterationStarted { max_iterations } => {
                let number = of(at.iteration, *max_iterations);
                self.detail(at)
                    .say(&format!("Iteration {number} starting"))
                    .end();
            }
            Event::Prompt {
                bytes,
                preview,
                feedback,
            } => {
                let with = if *feedback { ", with feedback" } else { "" };
                let mut pen = self.detail(at);
                pen.say(&format!("Prompt ({bytes} bytes{with}): "));
                pen.quote_up_to(preview, MAX_PROMPT).end();
            }
            Event::AgentStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at)
                    .say("Agent command: ")
                    .quote_up_to(&command, 4 * MAX_DETAIL)
                    .end();
            }
            Event::Session { id, model } => {
                let mut pen = self.detail(at);
                pen.say("Session: ").quote(id.as_deref().unwrap_or("-"));
                if let Some(model) = model {
                    pen.say(", model: ").quote(model);
                }
                pen.end();
            }
            Event::BackgroundTasks { running } => {
                self.detail(at)
                    .say(&format!("Background tasks of the agent: {running}"))
                    .end();
            }
            Event::AgentEnded {
                exit, duration_ms, ..
            } => self.exited(at, "Agent", *exit, *duration_ms),
            Event::GuardrailStarted { command, .. } => {
                self.detail(at)
                    .say("Running guardrail: ")
                    .quote(command)
                    .end();
            }
            Event::GuardrailEnded {
                exit, duration_ms, ..
            } => self.exited(at, "Guardrail", *exit, *duration_ms),
            Event::FeedbackSet { parts } => {
                let actions: Vec<_> = parts.iter().map(|part| part.action.as_str()).collect();
                let actions = if actions.is_empty() {
                    "none".to_owned()
                } else {
                    actions.join(", ")
                };
                self.detail(at)
                    .say("Feedback for the next prompt: ")
                    .say(&actions)
                    .end();
            }
            Event::ScmStarted { argv, .. } => {
                let command = shell_words::join(argv);
                self.detail(at).say("SCM command: ").quote(&command).end();
            }
            Event::ScmEnded {
                task,
                ok,
                duration_ms,
                ..
            } => {
                let word = if *ok { "done" } else { "failed" };
                let mut pen = self.detail(at);
                pen.say("SCM task ").quote(task);
                pen.say(&format!(" {word} ({})", text::duration(*duration_ms)))
                    .end();
            }
            Event::CompletionChecked { complete, found } => {
                let mut pen = self.detail(at);
                pen.say("Completion check: ");
                match found {
                    Some(found) => pen.say("found \"").quote(found).say("\", "),
                    None => pen.say("nothing found, "),
                };
                pen.say(if *complete {
                    "complete"
                } else {
                    "not complete"
                })
                .end();
            }
            Event::IterationEnded { duration_ms, .. } => {
                let (number, time) = (of(at.iteration, max), text::duration(*duration_ms));
                self.detail(at)
                    .say(&format!("Iteration {number} ended ({time})"))
                    .end();
            }
            Event::Note { message } => {
                self.detail(at).quote_up_to(message, 4 * MAX_DETAIL).end();
            }
            _ => {}
        }
    }

    fn exited(&mut self, at: Stamp, who: &str, exit: Option<Exit>, duration_ms: u64) {
        let time = text::duration(duration_ms);
        let words = match exit {
            Some(Exit::Code(code)) => format!("{who} exited with code {code} ({time})"),
            Some(Exit::Signal(signal)) => format!("{who} was ended by signal {signal} ({time})"),
            None => format!("{who} ended ({time})"),
        };
        self.detail(at).say(&words).end();
    }
}

impl Reporter for Human {
    fn event(&mut self, at: Stamp, event: &Event<'_>) {
        if let Some(status) = &mut self.status {
            status.event(at, event);
        }
        if self.screen.is_gone() {
            return;
        }
        match event {
            Event::RunStarted { run, .. } => self.run = run.as_ref().to_owned(),
            Event::IterationStarted { max_iterations } => self.max_iterations = *max_iterations,
            Event::AgentStarted { purpose, .. } => self.purpose = *purpose,
            _ => {}
        }
        if event_is_agents(event) {
            if self.shows_agent() {
                self.agent_event(at, event);
            }
        } else {
            if self.style.verbose {
                self.details(at, event);
            }
            self.run_event(at, event);
        }
        if let Event::AgentEnded { .. } = event {
            self.purpose = Purpose::Work;
        }
    }

    fn flush(&mut self) {
        let room = self.screen.room();
        let status = self.status.as_mut().map_or("", |it| it.render(room));
        self.screen.flush(status);
    }

    fn next_tick(&self) -> Option<i64> {
        if self.screen.is_gone() {
            return None;
        }
        self.status.as_ref()?.next_tick()
    }

    fn tick(&mut self, now_ms: i64) {
        if let Some(status) = &mut self.status {
            status.tick(now_ms);
            self.flush();
        }
    }

    fn resized(&mut self) {
        self.screen.resized();
        self.flush();
    }

    fn finish(&mut self) {
        self.finished = true;
        self.end_block();
        if let Some(status) = &mut self.status {
            status.end();
        }
        self.flush();
    }
}

impl Drop for Human {
    /// An error on the way out must not leave a status line behind.
    fn drop(&mut self) {
        if !self.finished {
            self.finish();
        }
    }
}

struct GuardrailEnd {
    exit: Option<Exit>,
    timed_out: bool,
    passed: bool,
    fail_action: FailAction,
    duration_ms: u64,
}

struct AgentEnd<'a> {
    purpose: Purpose,
    exit: Option<Exit>,
    ended_by: Option<EndCause>,
    class: Class,
    message: Option<&'a str>,
    duration_ms: u64,
    usage: &'a Usage,
    tools: u32,
    tool_errors: u32,
    denied: u32,
}

struct RunEnd<'a> {
    outcome: Outcome,
    message: &'a str,
    iterations: u32,
    duration_ms: u64,
    usage: &'a Usage,
    tools: u32,
    tool_errors: u32,
}

/// What came out of the agent's streams, rather than from the run itself.
fn event_is_agents(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::Text { .. }
            | Event::Thinking { .. }
            | Event::Output { .. }
            | Event::ToolStarted { .. }
            | Event::ToolEnded { .. }
            | Event::Todo { .. }
            | Event::Usage(_)
            | Event::Notice { .. }
            | Event::Result { .. }
    )
}

/// `(cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)`, without
/// what nobody told.
fn figures(
    first: &[(&str, String)],
    usage: &Usage,
    tools: u32,
    errors: u32,
    denied: u32,
    duration_ms: u64,
) -> String {
    let mut parts: Vec<String> = first
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    if let Some(cost) = usage.cost_usd {
        parts.push(format!("cost: {}", text::dollars(cost)));
    }
    if usage.total_tokens() > 0 {
        let cached = match usage.cache_read_tokens {
            0 => String::new(),
            cached => format!(" ({} cached)", text::count(cached)),
        };
        parts.push(format!(
            "tokens: {} in{cached} / {} out",
            text::count(usage.total_input()),
            text::count(usage.output_tokens)
        ));
    }
    for (name, count) in [("tools", tools), ("errors", errors), ("denied", denied)] {
        if count > 0 {
            parts.push(format!("{name}: {count}"));
        }
    }
    parts.push(format!("time: {}", text::duration(duration_ms)));
    format!("({})", parts.join(", "))
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `2/10`, or `2` where there is no limit.
fn of(iteration: u32, max_iterations: u32) -> String {
    match max_iterations {
        0 => iteration.to_string(),
        max => format!("{iteration}/{max}"),
    }
}

fn exit_words(exit: Option<Exit>) -> String {
    exit.map_or_else(|| "no exit code".to_owned(), |exit| exit.to_string())
}

fn class_words(class: Class) -> &'static str {
    match class {
        Class::Answered => "The agent answered",
        Class::Empty => "The agent said nothing",
        Class::Failed => "The agent failed",
        Class::RateLimited => "The agent's rate limit is used up",
        Class::Overloaded => "The agent's service is overloaded",
        Class::Credentials => "The agent's credentials were refused",
        Class::ContextExhausted => "The agent's context is full",
        Class::Limited => "The agent was stopped by a limit",
        Class::TimedOut => "The agent timed out",
        Class::Interrupted => "The agent was interrupted",
        Class::NotStarted => "The agent could not be started",
    }
}

fn cause_words(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Inactivity => "Ended: it printed nothing for the inactivity limit",
        EndCause::IterationTimeout => "Ended: the iteration's time limit",
        EndCause::ResultGrace => "Ended: it had given its result and did not leave",
        EndCause::Budget => "Ended: the run's budget is used up",
        EndCause::IterationBudget => "Ended: the iteration's budget is used up",
        EndCause::Interrupt => "Ended: a stop was asked for",
        EndCause::Broken => "Ended: the run's journal cannot be written any more",
    }
}

fn outcome_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "Run complete",
        Outcome::CompleteScmFailed => "Run complete, but an SCM task failed",
        Outcome::LimitReached => "Run not complete, iteration limit reached",
        Outcome::Interrupted => "Run interrupted",
        Outcome::Budget => "Run stopped by its budget",
        Outcome::Stalled => "Run stopped, nothing changed in the repository any more",
        Outcome::AgentFailed => "Run failed, the agent kept failing",
        Outcome::CredentialsRefused => "Run failed, the agent's credentials were refused",
        Outcome::PromptLost => "Run failed, the prompt could not be read",
        Outcome::Broken => "Run failed, ralph could not go on",
    }
}

/// What somebody who comes back in the morning can do about it.
fn next_step(outcome: Outcome, run: &str) -> Option<String> {
    let shows = format!("`ralph replay {run}` shows what happened");
    Some(match outcome {
        Outcome::Complete => return None,
        Outcome::CompleteScmFailed => {
            "the work is done; carry out the failed SCM task by hand".to_owned()
        }
        Outcome::LimitReached => {
            format!("run again, with more iterations (-n) if need be; {shows}")
        }
        Outcome::Interrupted => "`ralph resume` goes on from here".to_owned(),
        Outcome::Budget => "raise `budget` in the settings, then `ralph resume`".to_owned(),
        Outcome::Stalled => format!("{shows}; make the prompt clearer, then run again"),
        Outcome::AgentFailed => format!("{shows}; then `ralph resume`"),
        Outcome::CredentialsRefused => {
            "sign in with the agent's own program, then `ralph resume`".to_owned()
        }
        Outcome::PromptLost => "put the prompt's file back, then `ralph resume`".to_owned(),
        Outcome::Broken => "see the message above, then `ralph resume`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::Entry;
    use crate::report::replay::replay;
    use crate::report::screen::tests::Sink;

    const START: i64 = 1_794_774_472_000;

    fn at(time_ms: i64) -> Stamp {
        Stamp {
            time_ms,
            iteration: 1,
            attempt: 1,
        }
    }

    fn emoji() -> Style {
        Style {
            emoji: true,
            ..Style::default()
        }
    }

    /// What appears on standard output and standard error.
    fn render(style: Style, events: &[Event<'_>]) -> (String, String) {
        let (out, err) = (Sink::default(), Sink::default());
        let screen = Screen::fake(out.output(), err.output(), false, None);
        let mut human = Human::new(style, TimeZone::UTC, screen);
        for event in events {
            human.event(at(START), event);
        }
        human.finish();
        (out.text(), err.text())
    }

    fn out(style: Style, events: &[Event<'_>]) -> String {
        render(style, events).0
    }

    fn said(text: &str, joined: bool) -> Event<'_> {
        Event::Text {
            text: text.into(),
            joined,
            subagent: false,
        }
    }

    fn tool_ended(failed: bool, denied: bool, preview: &str) -> Event<'_> {
        Event::ToolEnded {
            id: "1".into(),
            name: "Bash".into(),
            failed,
            denied,
            lines: preview.lines().count() as u64,
            chars: preview.chars().count() as u64,
            preview: preview.into(),
            subagent: false,
        }
    }

    fn seed() -> Vec<Event<'static>> {
        let item = |text: &str, status| TodoItem {
            text: text.to_owned(),
            status,
        };
        vec![
            Event::ToolStarted {
                id: "1".into(),
                name: "Read".into(),
                summary: "/path/to/file.go".into(),
                subagent: false,
            },
            Event::ToolEnded {
                id: "1".into(),
                name: "Read".into(),
                failed: false,
                denied: false,
                lines: 45,
                chars: 1234,
                preview: "package main\n".into(),
                subagent: false,
            },
            Event::Todo {
                items: vec![
                    item("Read the file", TodoStatus::Completed),
                    item("Edit the code", TodoStatus::InProgress),
                    item("Run tests", TodoStatus::Pending),
                ],
            },
            Event::AgentEnded {
                purpose: Purpose::Work,
                exit: Some(Exit::Code(0)),
                ended_by: None,
                class: Class::Answered,
                failure: None,
                duration_ms: 367_000,
                usage: Usage {
                    cost_usd: Some(5.76),
                    input_tokens: 300_000,
                    output_tokens: 45_000,
                    cache_read_tokens: 850_000,
                    cache_write_tokens: 50_000,
                },
                tools: 58,
                tool_errors: 4,
                denied: 0,
            },
        ]
    }

    #[test]
    fn the_example_to_the_letter() {
        assert_eq!(
            out(emoji(), &seed()),
            "\
⏺ Read(/path/to/file.go)
✅ Result ← Read (45 lines, 1234 chars)
  ⎿  package main

📋 Todo List
  ✅ Read the file
  🔄 Edit the code ← ACTIVE
  ⏸️ Run tests
  📊 Progress: 1/3 (33%)

✅ Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"
        );
    }

    #[test]
    fn the_example_in_plain_signs() {
        assert_eq!(
            out(Style::default(), &seed()),
            "\
[TOOL] Read(/path/to/file.go)
[OK] Result <- Read (45 lines, 1234 chars)
  |  package main

[TODO] Todo List
  [x] Read the file
  [>] Edit the code <- ACTIVE
  [ ] Run tests
  Progress: 1/3 (33%)

[OK] Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)
"
        );
    }

    #[test]
    fn pieces_of_a_text_are_one_text() {
        let usage = Event::Usage(Usage::default());
        for (events, expected) in [
            (vec![said("a", false), said("b", true)], "ab\n"),
            (vec![said("a", false), said("b", false)], "a\nb\n"),
            (vec![said("a\n", false), said("b", false)], "a\nb\n"),
            (vec![said("a\n", false), said("b", true)], "a\nb\n"),
            // An event that shows nothing does not break a line.
            (vec![said("a", false), usage, said("b", true)], "ab\n"),
            // An empty line of plain output is an empty line.
            (
                vec![said("a", false), said("", false), said("b", false)],
                "a\n\nb\n",
            ),
            // A sequence that is split over two pieces is still taken out.
            (vec![said("a\x1b[3", false), said("1mb", true)], "ab\n"),
            // A new text starts anew, whatever the one before left open.
            (vec![said("a\x1b]0;", false), said("b", false)], "a\nb\n"),
            (
                vec![
                    said("a", false),
                    tool_ended(false, false, "x"),
                    said("b", true),
                ],
                "a\n\n[OK] Result <- Bash (1 line, 1 char)\n  |  x\n\nb\n",
            ),
        ] {
            assert_eq!(out(Style::default(), &events), expected, "{events:?}");
        }
    }

    #[test]
    fn a_text_of_any_length_is_cut_and_counted() {
        let long = "é".repeat(MAX_TEXT + 7);
        let shown = out(emoji(), &[said(&long, false), said("12\n3", true)]);
        assert_eq!(
            shown,
            format!("{} … [11 more characters]\n", "é".repeat(MAX_TEXT))
        );
        let thought = Event::Thinking {
            text: "x".repeat(MAX_THOUGHT + 1).into(),
            joined: false,
            subagent: false,
        };
        assert_eq!(
            out(Style::default(), &[thought]),
            format!(
                "[THINK] {} ... [1 more characters]\n",
                "x".repeat(MAX_THOUGHT)
            )
        );
    }

    #[test]
    fn a_tools_output_is_cut_by_lines_and_by_characters() {
        let style = |lines, chars| Style {
            max_output_lines: lines,
            max_output_chars: chars,
            ..Style::default()
        };
        let head = "[OK] Result <- Bash (4 lines, 15 chars)\n";
        let event = [tool_ended(false, false, "one\ntwo\n\nthree\n")];
        for (style, expected) in [
            (style(9, 99), "  |  one\n     two\n\n     three\n"),
            (style(2, 99), "  |  one\n     two\n     ... 2 more lines\n"),
            (
                style(9, 5),
                "  |  one\n     tw\n     ... 9 more characters\n",
            ),
            (style(0, 99), ""),
            (style(9, 0), ""),
        ] {
            assert_eq!(out(style, &event), format!("{head}{expected}"));
        }
        assert_eq!(
            out(style(9, 99), &[tool_ended(false, false, "")]),
            "[OK] Result <- Bash (0 lines, 0 chars)\n"
        );
    }

    #[test]
    fn failed_and_denied_tools_are_told_apart() {
        assert_eq!(
            out(emoji(), &[tool_ended(true, false, "boom")]),
            "❌ Error ← Bash (1 line, 4 chars)\n  ⎿  boom\n"
        );
        assert_eq!(
            out(emoji(), &[tool_ended(true, true, "no")]),
            "⛔ Denied ← Bash (1 line, 2 chars)\n  ⎿  no\n"
        );
    }

    #[test]
    fn nothing_of_the_agents_steers_the_terminal() {
        let evil = "a\x1b[2J\x1b]0;t\x07b\rc\x08\u{9b}5n";
        let events = [
            said(evil, false),
            Event::Thinking {
                text: evil.into(),
                joined: false,
                subagent: true,
            },
            Event::Output {
                stream: Stream::Stderr,
                text: evil.into(),
                joined: false,
            },
            Event::ToolStarted {
                id: evil.into(),
                name: evil.into(),
                summary: evil.into(),
                subagent: false,
            },
            tool_ended(true, false, evil),
            Event::Todo {
                items: vec![TodoItem {
                    text: evil.to_owned(),
                    status: TodoStatus::Pending,
                }],
            },
            Event::Notice { text: evil.into() },
            Event::Warning {
                message: evil.into(),
            },
            Event::Note {
                message: evil.into(),
            },
            Event::Vetoed {
                reason: evil.into(),
            },
            Event::CompletionChecked {
                complete: true,
                found: Some(evil.into()),
            },
            Event::GuardrailStarted {
                index: 0,
                command: evil.into(),
            },
            Event::ScmStarted {
                task: evil.into(),
                argv: vec![evil.to_owned()],
            },
            Event::ScmEnded {
                task: evil.into(),
                ok: false,
                detail: evil.into(),
                duration_ms: 1,
            },
            Event::Leftovers {
                processes: vec![Leftover {
                    pid: 1,
                    command: evil.to_owned(),
                }],
                kept: true,
            },
            Event::Session {
                id: Some(evil.into()),
                model: Some(evil.into()),
            },
            Event::Prompt {
                bytes: 1,
                preview: evil.into(),
                feedback: false,
            },
            Event::StopRequested {
                signal: evil.into(),
                now: true,
            },
            Event::Retrying {
                class: Class::Failed,
                message: evil.into(),
                delay_ms: 1,
                failures: 1,
                max_failures: 2,
            },
            Event::AgentStarted {
                purpose: Purpose::Work,
                pid: 1,
                argv: vec![evil.to_owned()],
            },
            Event::RunStarted {
                run: evil.into(),
                version: evil.into(),
                command: evil.into(),
                directory: evil.into(),
                pid: 1,
                agent: evil.into(),
                prompt: evil.into(),
                completion: evil.into(),
                max_iterations: 1,
            },
            Event::RunEnded {
                outcome: Outcome::Broken,
                exit_code: 1,
                message: evil.into(),
                iterations: 1,
                duration_ms: 1,
                usage: Usage::default(),
                tools: 0,
                tool_errors: 0,
            },
        ];
        let style = Style {
            verbose: true,
            ..emoji()
        };
        let (out, err) = render(style, &events);
        for text in [out, err] {
            let control = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(control, None, "{text:?}");
        }
    }

    #[test]
    fn a_limit_that_ends_on_another_day_says_which() {
        let waiting = |until_ms| Event::Waiting {
            reason: WaitReason::RateLimit,
            until_ms,
        };
        assert_eq!(
            out(emoji(), &[waiting(START + 754_000)]),
            "⏳ Rate limit: waiting until 20:40:26 (12m34s)\n"
        );
        assert_eq!(
            out(emoji(), &[waiting(START + 36_000_000)]),
            "⏳ Rate limit: waiting until 2026-11-16 06:27:52 (10h0m)\n"
        );
    }

    #[test]
    fn every_end_says_what_to_do_next() {
        for outcome in [
            Outcome::CompleteScmFailed,
            Outcome::LimitReached,
            Outcome::Interrupted,
            Outcome::Budget,
            Outcome::Stalled,
            Outcome::AgentFailed,
            Outcome::CredentialsRefused,
            Outcome::PromptLost,
            Outcome::Broken,
        ] {
            let event = Event::RunEnded {
                outcome,
                exit_code: 1,
                message: "why".into(),
                iterations: 1,
                duration_ms: 1000,
                usage: Usage::default(),
                tools: 0,
                tool_errors: 0,
            };
            let shown = out(Style::default(), &[event]);
            let (first, next) = shown.split_once('\n').unwrap();
            assert!(
                first.contains(": why (iterations: 1, time: 1.0s)"),
                "{shown}"
            );
            assert!(next.starts_with("  |  Next: "), "{shown}");
            assert_eq!(
                first.starts_with("[OK]"),
                outcome == Outcome::Complete,
                "{shown}"
            );
        }
    }

    #[test]
    fn the_status_line_stays_beneath_the_text_and_leaves_nothing_behind() {
        let sink = Sink::default();
        let screen = Screen::fake(sink.output(), Sink::default().output(), true, Some(60));
        let mut human = Human::new(Style::default(), TimeZone::UTC, screen);
        assert_eq!(human.next_tick(), None);
        human.event(at(START), &Event::IterationStarted { max_iterations: 3 });
        human.flush();
        assert_eq!(
            sink.take(),
            ["=== Iteration 1/3 ===\niteration 1/3 | 0s | working\r"]
        );
        assert_eq!(human.next_tick(), Some(START + 1000));
        human.event(at(START + 100), &said("He", false));
        human.flush();
        human.event(at(START + 200), &said("llo", true));
        human.flush();
        assert_eq!(
            sink.take(),
            [
                "\r\x1b[J\nHe\niteration 1/3 | 0s | working\r",
                "\r\x1b[1A\x1b[JHello\niteration 1/3 | 0s | working\r",
            ]
        );
        human.tick(START + 1200);
        assert_eq!(
            sink.take(),
            ["\r\x1b[1A\x1b[JHello\niteration 1/3 | 1s | working\r"]
        );
        drop(human);
        assert_eq!(sink.take(), ["\r\x1b[1A\x1b[JHello\n"]);
    }

    #[test]
    fn a_face_without_a_status_line_asks_for_no_wake_up() {
        let screen = Screen::fake(
            Sink::default().output(),
            Sink::default().output(),
            false,
            None,
        );
        let mut human = Human::new(emoji(), TimeZone::UTC, screen);
        human.event(at(START), &Event::IterationStarted { max_iterations: 3 });
        human.flush();
        assert_eq!(human.next_tick(), None);
    }

    /// A whole run in every style. After a deliberate change, `UPDATE_GOLDEN=1 cargo test golden`
    /// writes the files anew; the difference is for review.
    #[test]
    fn golden_runs() {
        let journal = include_str!("testdata/run.jsonl");
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/testdata");
        let color = Style {
            color: true,
            color_errors: true,
            ..emoji()
        };
        for (name, style) in [
            ("emoji", emoji()),
            ("plain", Style::default()),
            ("color", color),
            (
                "verbose",
                Style {
                    verbose: true,
                    timestamps: true,
                    ..emoji()
                },
            ),
            (
                "quiet",
                Style {
                    quiet: true,
                    ..emoji()
                },
            ),
            (
                "no_stream",
                Style {
                    show_stream: false,
                    ..emoji()
                },
            ),
        ] {
            let sink = Sink::default();
            // Both outputs into one, as in a terminal.
            let screen = Screen::fake(sink.output(), sink.output(), false, None);
            let mut human = Human::new(style, TimeZone::UTC, screen);
            let entries = journal
                .lines()
                .map(|line| serde_json::from_str::<Entry<'static>>(line).unwrap());
            replay(entries, &mut human);
            let shown = sink.text();
            let path = format!("{directory}/run.{name}.txt");
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&path, &shown).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(shown == expected, "{path} differs; now:\n{shown}");
        }
    }
}
