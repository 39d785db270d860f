//! The terminal view: agent and run on standard output, warnings and `[ralph] …` details on standard error, the
//! status line below.

mod agent;
mod filtered;
mod header;
mod markdown;
mod paths;
mod pen;
mod preview;
mod run;
mod speech;
mod verbose;
mod words;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use jiff::tz::TimeZone;

use self::filtered::FilterBacklog;
pub(crate) use self::header::short_id;
pub(crate) use self::paths::ProjectPaths;
use self::pen::LineWriter;
use self::speech::TextBlock;
pub(crate) use self::words::{
    describe_cause, describe_class, describe_outcome, format_progress, plural,
};
use super::output::{OutputStream, OutputTarget};
use super::screen::TerminalOutput;
use super::status_line::StatusLine;
use super::style::{Marks, Style};
use super::{Backpressure, LiveOutput, Problem, Recorded, Redraw, Reporter};
use crate::time_text::local_time;
use crate::worker_lines::WorkerTracker;
use ralph_events::event::{Event, Purpose, Stamp, Stream};
use ralph_events::line_splitter::LineSplitter;

/// Characters of a tool subject, command or message.
const MAX_DETAIL: usize = 500;
const MAX_PROMPT: usize = 200;
const RETAINED_CAPACITY: usize = 256 * 1024;

/// Output that waits for a slow terminal or pager.
const QUEUE_BYTES: usize = 4 << 20;
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The topic of a line. An empty line separates topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paragraph {
    Text,
    Thinking,
    Tool,
    Todo,
    Attempt,
    Run,
    Iteration,
    Guardrail,
    Scm,
    End,
}

#[derive(Debug)]
pub struct TerminalReporter {
    style: Style,
    /// A text may continue the previous one.
    streams_fragments: bool,
    /// The output of an unknown agent may be anything; that of others is Markdown.
    plain_text: bool,
    paths: ProjectPaths,
    /// Calls whose changes were shown; their results say nothing new.
    shown_edits: VecDeque<String>,
    /// Standard error of a known agent is noise of its program: banners, warnings, stack traces.
    folds_stderr: bool,
    /// Consecutive lines of standard error, and how many were hidden.
    stderr_lines: usize,
    folded: usize,
    marks: &'static Marks,
    /// Called only when a time is shown: loading the time zone database takes longer than everything else before
    /// the first agent.
    zone: fn() -> TimeZone,
    screen: TerminalOutput,
    status: Option<StatusLine>,
    last: Option<Paragraph>,
    block: Option<TextBlock>,
    /// The user's display filter, split into lines.
    filter: Option<LineSplitter>,
    /// Events that the display filter has perhaps not shown.
    filter_backlog: FilterBacklog,
    /// The last line on standard output is blank, or there is none.
    blank: bool,
    /// Task list problems, as last shown.
    task_problems: Vec<String>,
    purpose: Purpose,
    /// Waiting or paused.
    idle: bool,
    scratch: String,
    finished: bool,
    /// A worker's run has its own messages.
    worker_tracker: Option<WorkerTracker>,
}

impl TerminalReporter {
    pub fn stdio(style: Style, pace: Backpressure) -> Self {
        let (status, color) = (style.status && !style.quiet, style.color_errors);
        let mut screen =
            TerminalOutput::new(OutputStream::stdout(), OutputStream::stderr(), status, color);
        if pace == Backpressure::DropWhenSlow {
            let notice = if style.emoji { omitted_notice } else { omitted_notice_plain };
            screen = screen.with_async_writer(QUEUE_BYTES, notice);
        }
        let mut reporter = TerminalReporter::new(style, TimeZone::system, screen);
        reporter.paths.shell_directory = std::env::var("PWD").ok();
        reporter
    }

    pub fn new(style: Style, zone: fn() -> TimeZone, screen: TerminalOutput) -> Self {
        let marks = Marks::for_emoji(style.emoji);
        let status = screen.has_status().then(|| StatusLine::new(marks, zone));
        TerminalReporter {
            style,
            streams_fragments: false,
            plain_text: false,
            paths: ProjectPaths::default(),
            shown_edits: VecDeque::new(),
            folds_stderr: false,
            stderr_lines: 0,
            folded: 0,
            marks,
            zone,
            screen,
            status,
            last: None,
            block: None,
            filter: None,
            filter_backlog: FilterBacklog::default(),
            blank: true,
            task_problems: Vec::new(),
            purpose: Purpose::Work,
            idle: false,
            scratch: String::new(),
            finished: false,
            worker_tracker: None,
        }
    }

    #[must_use]
    pub fn for_worker(mut self, follower: WorkerTracker) -> Self {
        self.worker_tracker = Some(follower);
        self
    }

    /// Returns whether to show the agent's output: not in quiet mode, and not for commit messages.
    fn shows_agent(&self) -> bool {
        let is_wanted = self.style.show_stream && !self.style.quiet;
        is_wanted && self.purpose == Purpose::Work
    }

    fn pen(&mut self, target: OutputTarget) -> LineWriter<'_> {
        LineWriter {
            color: match target {
                OutputTarget::Out => self.style.color,
                OutputTarget::Err => self.style.color_errors,
            },
            width: self.screen.text_width().filter(|_| target == OutputTarget::Out),
            ellipsis: self.marks.more,
            out: self.screen.buffer_for(target),
        }
    }

    fn line(&mut self, at: Stamp, paragraph: Paragraph) -> LineWriter<'_> {
        self.paragraph(paragraph);
        self.blank = false;
        self.stamp(at, OutputTarget::Out);
        self.pen(OutputTarget::Out)
    }

    fn stderr_line(&mut self, at: Stamp) -> LineWriter<'_> {
        self.end_block();
        self.stamp(at, OutputTarget::Err);
        self.pen(OutputTarget::Err)
    }

    fn paragraph(&mut self, paragraph: Paragraph) {
        self.end_block();
        if self.last.replace(paragraph) != Some(paragraph) && !self.blank && !self.style.quiet {
            self.screen.buffer_for(OutputTarget::Out).push(b'\n');
            self.blank = true;
        }
    }

    /// Columns before a line on standard output.
    fn stamp_width(&self) -> usize {
        if self.style.timestamps { "[00:00:00] ".len() } else { 0 }
    }

    fn stamp(&mut self, at: Stamp, target: OutputTarget) {
        if self.style.timestamps
            && let Some(time) = local_time(at.time_ms, &(self.zone)())
        {
            let _ = write!(self.screen.buffer_for(target), "{}", time.strftime("[%H:%M:%S] "));
        }
    }
}

impl Reporter for TerminalReporter {
    fn event(&mut self, Recorded { at, event, line, run }: Recorded<'_>) {
        if let Some(status) = &mut self.status {
            status.update(at.time_ms, run);
        }
        if self.screen.is_closed() {
            return;
        }
        match event {
            Event::RunStarted { streams_text, plain_text, .. } => {
                self.streams_fragments = *streams_text;
                self.plain_text = *plain_text;
                self.folds_stderr = !*plain_text && !self.style.verbose;
            }
            Event::AgentStarted { purpose, .. } => {
                self.purpose = *purpose;
                self.paths.set_project(&run.info.directory);
            }
            Event::Waiting { .. } | Event::Paused => self.idle = true,
            Event::IterationStarted { .. } | Event::Prompt { .. } | Event::Resumed { .. } => {
                self.idle = false;
            }
            _ => {}
        }
        if !matches!(event, Event::Output { stream: Stream::Stderr, .. } | Event::Usage(_)) {
            self.show_folded_count(at);
        }
        if is_agent_event(event) {
            match &self.filter {
                _ if !self.shows_agent() => {}
                Some(_) => self.filter_backlog.hold(at, line),
                None => self.agent_event(at, event),
            }
        } else {
            if self.style.verbose {
                self.details(at, event, run);
            }
            self.run_event(at, event, run);
        }
        if let Event::AgentEnded { .. } = event {
            self.purpose = Purpose::Work;
            self.screen.set_partial_line(b"");
        }
    }

    fn output(&mut self, at: Stamp, output: LiveOutput<'_>) {
        match output {
            LiveOutput::Raw(..) => {}
            LiveOutput::PartialLine(line) => {
                let is_shown = self.shows_agent() && self.filter.is_none();
                self.screen.set_partial_line(if is_shown { line } else { b"" });
            }
            LiveOutput::Filtering(on) => self.set_filtering(at, on),
            LiveOutput::Filtered(bytes) => {
                if !self.screen.is_closed() {
                    self.show_filtered(at, bytes);
                }
            }
            LiveOutput::FilterFailed => {
                let held = std::mem::take(&mut self.filter_backlog);
                self.set_filtering(at, false);
                if !self.screen.is_closed() {
                    self.show_backlog(at, held);
                }
            }
        }
    }

    fn take_problem(&mut self) -> Option<Problem> {
        self.screen.take_warning().map(Problem::Warning)
    }

    fn flush(&mut self) {
        // A finished line appears without waiting for the next one.
        if !self.streams_fragments && self.block.as_ref().is_some_and(|block| !block.cut) {
            self.end_block();
        }
        self.show_partial_text();
        let room = self.screen.status_width();
        let status = self.status.as_mut().map_or("", |it| it.render(room));
        self.screen.flush(status);
    }

    fn next_tick(&self) -> Option<i64> {
        if self.screen.is_closed() {
            return None;
        }
        self.status.as_ref()?.next_tick()
    }

    fn redraw(&mut self, cause: Redraw) {
        match (cause, &mut self.status) {
            (Redraw::Tick { now_ms }, Some(status)) => status.tick(now_ms),
            (Redraw::Tick { .. }, None) => return,
            (Redraw::Resized, _) => self.screen.resized(),
        }
        self.flush();
    }

    fn finish(&mut self) {
        self.finished = true;
        self.end_block();
        if let Some(status) = &mut self.status {
            status.finish();
        }
        self.screen.finish();
    }

    fn has_pending_output(&mut self, patience: Duration) -> bool {
        self.screen.has_pending_output(patience)
    }
}

impl Drop for TerminalReporter {
    /// An early exit must not leave a status line behind.
    fn drop(&mut self) {
        if !self.finished {
            self.finish();
            while self.has_pending_output(FINAL_FLUSH_TIMEOUT) {}
        }
    }
}

fn omitted_notice(lines: u64, out: &mut Vec<u8>) {
    write_omitted_notice("…", lines, out);
}

fn omitted_notice_plain(lines: u64, out: &mut Vec<u8>) {
    write_omitted_notice("...", lines, out);
}

fn write_omitted_notice(more: &str, lines: u64, out: &mut Vec<u8>) {
    let were = if lines == 1 { "line was" } else { "lines were" };
    let _ = writeln!(out, "{more} {lines} {were} not shown; `ralph replay` has them");
}

fn is_agent_event(event: &Event<'_>) -> bool {
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
            | Event::Retracted { .. }
            | Event::OutputOmitted { .. }
            | Event::Result { .. }
    )
}
