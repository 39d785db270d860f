//! One agent process: turns its bytes into events, and its events into a report.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use ralph_agents::filter::{FilterAnswer, FilteredReader};
use ralph_agents::{Emit, OutputReader};
use ralph_engine::completion::{CompletionDetector, CompletionResult, QuestionDetector};
use ralph_engine::machine::{AgentReport, Input};
use ralph_engine::prompt;
use ralph_events::attempt::{AttemptResult, classify, describe_end};
use ralph_events::event::{
    Class, EndCause, Event, Exit, Failure, FailureKind, Purpose, Stream, Usage,
};
use ralph_events::line_splitter::{Line, LineSplitter};
use ralph_events::text;
use ralph_process::ChildId;

use super::pty_agent::PtyScreen;
use super::recorder::Recorder;

/// Answer text considered for a commit message.
const MAX_ANSWER: usize = 64 * 1024;
const MAX_STDERR_LINE: usize = 64 * 1024;

const IGNORED_SIGNAL_WARNING: &str =
    "A completion signal was ignored: it is part of a repeated prompt";

/// Lines of standard error shown with a warning.
const MAX_STDERR_LINES: usize = 5;

/// Screen lines recorded in the journal.
const MAX_SCREEN_LINES: usize = 200;

pub(super) struct AgentProcess {
    pub(super) child: ChildId,
    pub(super) started_ms: u64,
    pub(super) ended_by: Option<EndCause>,
    pub(super) files: AgentFiles,
    /// The agent's screen, if it has one.
    pub(super) screen: Option<PtyScreen>,
    reader: Box<dyn OutputReader>,
    /// Extracts the agent's words, if the reader does not.
    filter: Option<FilteredReader>,
    stdout: LineSplitter,
    stderr: LineSplitter,
    /// Plain text: show partial lines.
    pub(super) is_plain: bool,
    /// The completion signal counts however the agent exits.
    pub(super) completion_is_final: bool,
    /// The completion pattern is fast enough to check while the agent runs.
    can_report_completion: bool,
    summary: AttemptSummary,
}

/// Temporary files of one process.
#[derive(Debug, Default)]
pub(super) struct AgentFiles {
    pub(super) side: Option<PathBuf>,
    pub(super) prompt: Option<PathBuf>,
}

/// Evaluates the user's expression on a line; the error says why that is impossible.
pub(super) type FilterQuery<'a> = dyn FnMut(&[u8]) -> Result<FilterAnswer, String> + 'a;

/// Totals over the events of one process.
struct AttemptSummary {
    purpose: Purpose,
    detector: CompletionDetector,
    questions: Option<QuestionDetector>,
    /// Text for a commit message.
    answer_text: String,
    /// The agent's reported result; the last one counts.
    result: Option<Option<Failure>>,
    usage: Usage,
    tools: u32,
    tool_errors: u32,
    denied: u32,
    open_tools: HashSet<String>,
    tool_reported: bool,
    stderr: VecDeque<String>,
    /// The screen is not empty.
    shows_anything: bool,
    /// Why the prompt was not typed.
    prompt_not_delivered: Option<String>,
    /// Inputs for the machine, in order.
    inputs: Vec<Input>,
}

pub(super) struct AttemptEnd {
    pub(super) ended: Event<'static>,
    pub(super) report: AgentReport,
    pub(super) commit_message: Option<String>,
    /// The agent only repeated its prompt.
    pub(super) repeats_prompt: bool,
    /// Completion could not be determined.
    pub(super) gave_up: bool,
    /// The result has tokens but no price.
    pub(super) unpriced: bool,
    pub(super) stderr: Vec<String>,
    /// What it asked with its last words.
    pub(super) questions: Vec<String>,
}

impl AgentProcess {
    pub(super) fn new(
        child: ChildId,
        purpose: Purpose,
        started_ms: u64,
        reader: Box<dyn OutputReader>,
        detector: CompletionDetector,
        files: AgentFiles,
    ) -> Self {
        AgentProcess {
            child,
            started_ms,
            ended_by: None,
            files,
            screen: None,
            stdout: LineSplitter::new(reader.max_line()),
            stderr: LineSplitter::new(MAX_STDERR_LINE),
            reader,
            filter: None,
            is_plain: false,
            completion_is_final: false,
            can_report_completion: true,
            summary: AttemptSummary::new(purpose, detector),
        }
    }

    /// The unfinished last line, if it is worth showing: a prompt, a progress bar.
    pub(super) fn partial_line(&self) -> Option<&[u8]> {
        (self.is_plain && self.summary.purpose == Purpose::Work).then(|| self.stdout.unfinished())
    }

    pub(super) fn with_response_filter(mut self, judge: FilteredReader) -> Self {
        self.stdout = LineSplitter::new(judge.max_line().max(self.reader.max_line()));
        self.filter = Some(judge);
        self
    }

    /// Returns whether the output so far has the completion signal. It counts as a result, until the agent prints
    /// again.
    pub(super) fn has_said_done(&mut self) -> bool {
        if !self.can_report_completion {
            return false;
        }
        let mut detector = self.summary.detector.clone();
        let line = String::from_utf8_lossy(self.stdout.unfinished());
        if !line.is_empty() {
            detector.push_text(&line, false);
        }
        let verdict = detector.finish();
        // Each check would take as long again.
        self.can_report_completion &= !verdict.pattern_too_slow;
        let done = verdict.complete && !matches!(self.summary.result, Some(Some(_)));
        if done {
            self.summary.result = Some(None);
        }
        done
    }

    /// The screen shows the completion signal. Each change restarts the grace period.
    pub(super) fn complete_on_screen(&mut self) {
        self.summary.result = Some(None);
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.summary.purpose
    }

    pub(super) fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        recorder: &mut Recorder,
        ask: &mut FilterQuery<'_>,
    ) {
        let AgentProcess { reader, filter, stdout, stderr, summary: facts, .. } = self;
        let mut emit = |event: Event<'_>| {
            facts.handle_event(&event);
            recorder.record(&event);
        };
        match stream {
            Stream::Stdout => stdout
                .push(bytes, |line| handle_stdout(line, reader.as_mut(), filter, ask, &mut emit)),
            Stream::Stderr => stderr.push(bytes, |line| reader.stderr(line, &mut emit)),
        }
        let running = !facts.open_tools.is_empty() || reader.may_run_tool();
        if std::mem::replace(&mut facts.tool_reported, running) != running {
            facts.inputs.push(Input::ToolRunning(running));
        }
    }

    pub(super) fn set_question_detector(&mut self, questions: Option<QuestionDetector>) {
        self.summary.questions = questions;
    }

    /// The questions that it asked since the last call.
    pub(super) fn take_questions(&mut self) -> Vec<String> {
        self.summary.questions.as_mut().map(QuestionDetector::take).unwrap_or_default()
    }

    pub(super) fn drain_inputs(&mut self) -> std::vec::Drain<'_, Input> {
        self.summary.inputs.drain(..)
    }

    /// Finishes after the process has exited. `side_file` has the contents of that file.
    pub(super) fn finish(
        mut self,
        exit: Option<Exit>,
        side_file: Option<&str>,
        duration_ms: u64,
        recorder: &mut Recorder,
        ask: &mut FilterQuery<'_>,
    ) -> AttemptEnd {
        if let Some(screen) = self.screen.take() {
            self.summary.shows_anything = screen.shows_anything();
            self.summary.prompt_not_delivered = screen.undelivered_reason();
            let (shown, found) = screen.finish();
            let lines: Vec<&str> = shown.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(MAX_SCREEN_LINES)) {
                let (stream, text) = (Stream::Stdout, line.trim_end().into());
                recorder.record(&Event::Output { stream, text, joined: false });
            }
            let complete = found.is_some();
            return self.build_end(
                CompletionResult { complete, signal: found, pattern_too_slow: false },
                exit,
                duration_ms,
            );
        }
        let AgentProcess { reader, filter, stdout, stderr, summary: facts, ended_by, .. } =
            &mut self;
        let mut emit = |event: Event<'_>| {
            facts.handle_event(&event);
            recorder.record(&event);
        };
        stdout.finish(|line| handle_stdout(line, reader.as_mut(), filter, ask, &mut emit));
        stderr.finish(|line| reader.stderr(line, &mut emit));
        if let Some(text) = side_file {
            reader.side_file(text, &mut emit);
        }
        // A stream known only through the user's filter reports no result.
        let is_foreign = reader.is_unrecognized()
            && filter.as_ref().is_some_and(FilteredReader::has_seen_stream)
            && exit.is_some_and(Exit::success);
        if !is_foreign {
            reader.finish(exit, &mut emit);
        }
        let has_failed = matches!(facts.result, Some(Some(_)));
        if let Some(filter) = filter {
            if ended_by.is_some() || !exit.is_some_and(Exit::success) {
                filter.mark_cut_short();
            }
            filter.finish(has_failed, &mut |event| {
                facts.handle_event(&event);
                recorder.record(&event);
            });
        }
        let verdict = facts.detector.finish();
        // A repeated prompt gets its own warning.
        if facts.purpose == Purpose::Work
            && facts.detector.ignored_signal()
            && !verdict.complete
            && !facts.detector.is_only_echo()
        {
            recorder.record(&Event::Notice { text: IGNORED_SIGNAL_WARNING.into() });
        }
        self.build_end(verdict, exit, duration_ms)
    }

    fn build_end(
        mut self,
        verdict: CompletionResult,
        exit: Option<Exit>,
        duration_ms: u64,
    ) -> AttemptEnd {
        let facts = &mut self.summary;
        let class = classify(&AttemptResult {
            exit,
            ended_by: self.ended_by,
            result: facts.result.as_ref().map(Option::as_ref),
            active: facts.detector.has_output() || facts.tools > 0 || facts.shows_anything,
            completed: self.completion_is_final && verdict.complete,
        });
        let ended_early = matches!(class, Class::Interrupted | Class::Limited);
        let without_prompt = facts.prompt_not_delivered.take().filter(|_| !ended_early);
        let class = if without_prompt.is_some() { Class::Failed } else { class };
        let unpriced = facts.result.is_some()
            && facts.usage.cost_usd.is_none()
            && facts.usage.total_tokens() > 0;
        let failure = without_prompt
            .map(|message| Failure { kind: FailureKind::Other, message, resets_at: None })
            .or_else(|| facts.result.take().flatten());
        let repeats_prompt = facts.purpose == Purpose::Work && facts.detector.is_only_echo();
        let commit_message = match facts.purpose {
            // A failed attempt gives no message.
            Purpose::CommitMessage if class == Class::Answered => {
                prompt::parse_commit_message(&facts.answer_text)
            }
            Purpose::CommitMessage | Purpose::Work => None,
        };
        let is_answer = facts.purpose == Purpose::Work && class == Class::Answered;
        let ended = Event::AgentEnded {
            purpose: facts.purpose,
            exit,
            ended_by: self.ended_by,
            class,
            failure: failure.clone(),
            duration_ms,
            usage: facts.usage,
            tools: facts.tools,
            tool_errors: facts.tool_errors,
            denied: facts.denied,
            repeats_prompt,
            filter_errors: self.filter.as_ref().map_or(0, FilteredReader::failures),
            complete: is_answer.then_some(verdict.complete),
            found: verdict.signal.clone().filter(|_| is_answer).map(Into::into),
            commit_message: commit_message.clone().map(Into::into),
        };
        let report = AgentReport {
            class,
            failure,
            exit: describe_end(exit, self.ended_by),
            usage: facts.usage,
            tools: facts.tools,
            tool_errors: facts.tool_errors,
            complete: verdict.complete,
            found: verdict.signal,
            has_message: commit_message.is_some(),
            repeats_prompt,
        };
        let gave_up = verdict.pattern_too_slow;
        let questions = facts.questions.take().map(|mut it| it.take()).unwrap_or_default();
        let stderr = std::mem::take(&mut facts.stderr).into();
        AttemptEnd {
            ended,
            report,
            commit_message,
            repeats_prompt,
            gave_up,
            unpriced,
            stderr,
            questions,
        }
    }
}

fn handle_stdout(
    line: Line<'_>,
    reader: &mut dyn OutputReader,
    judge: &mut Option<FilteredReader>,
    ask: &mut FilterQuery<'_>,
    emit: &mut Emit<'_>,
) {
    let Some(judge) = judge else { return reader.stdout(line, emit) };
    let words = if judge.needs_query(line) {
        judge.handle_answer(line, ask(line.bytes), emit)
    } else {
        Vec::new()
    };
    reader.stdout(line, &mut |event| judge.forward(event, &words, emit));
    for text in words {
        emit(Event::Text { text: text.into(), joined: false, subagent: false });
    }
}

impl AttemptSummary {
    fn new(purpose: Purpose, detector: CompletionDetector) -> Self {
        AttemptSummary {
            purpose,
            detector,
            questions: None,
            answer_text: String::new(),
            result: None,
            usage: Usage::default(),
            tools: 0,
            tool_errors: 0,
            denied: 0,
            open_tools: HashSet::new(),
            tool_reported: false,
            stderr: VecDeque::new(),
            shows_anything: false,
            prompt_not_delivered: None,
            inputs: Vec::new(),
        }
    }

    fn handle_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Text { text, joined, subagent: false } => {
                self.detector.push_text(text, *joined);
                if let Some(questions) = &mut self.questions {
                    questions.push_text(text, *joined);
                }
                if self.purpose == Purpose::CommitMessage && self.answer_text.len() < MAX_ANSWER {
                    if !joined && !self.answer_text.is_empty() {
                        self.answer_text.push('\n');
                    }
                    self.answer_text.push_str(text);
                }
                self.note_activity();
            }
            Event::Retracted { .. } => {
                self.detector.retract();
                if let Some(questions) = &mut self.questions {
                    questions.retract();
                }
                self.answer_text.clear();
            }
            Event::ToolStarted { id, .. } => {
                self.open_tools.insert(id.as_ref().to_owned());
                // Text before a tool call is not the message.
                self.answer_text.clear();
                self.tools += 1;
                self.note_activity();
            }
            Event::ToolEnded { id, failed, denied, .. } => {
                self.open_tools.remove(id.as_ref());
                self.tool_errors += u32::from(*failed);
                self.denied += u32::from(*denied);
            }
            Event::Output { stream: Stream::Stderr, text, joined: false }
                if !text.trim().is_empty() =>
            {
                if self.stderr.len() == MAX_STDERR_LINES {
                    self.stderr.pop_front();
                }
                self.stderr.push_back(text::truncate(text.trim_end(), 200, "…").into_owned());
            }
            Event::Usage(usage) => self.record_usage(*usage),
            Event::BackgroundTasks { running } => {
                self.inputs.push(Input::BackgroundTasks(*running))
            }
            Event::Result { failure, usage, .. } => {
                self.result = Some(failure.clone());
                let refused = is_credentials_failure(failure.as_ref());
                // The order matters: a result counts even if it uses up the budget.
                self.inputs.push(if refused { Input::Refused } else { Input::ResultSeen });
                if let Some(usage) = usage {
                    self.record_usage(*usage);
                }
            }
            _ => {}
        }
    }

    /// Handles activity after an apparent result.
    fn note_activity(&mut self) {
        if self.result.is_some() && self.inputs.last() != Some(&Input::Working) {
            self.inputs.push(Input::Working);
        }
        // Refused credentials rule out further work.
        if self.result.as_ref().is_some_and(|result| is_credentials_failure(result.as_ref())) {
            self.result = None;
        }
    }

    /// Counts are cumulative: only the last one matters.
    fn record_usage(&mut self, usage: Usage) {
        self.usage = usage;
        match self.inputs.last_mut() {
            Some(Input::UsageReported(last)) => *last = usage,
            _ => self.inputs.push(Input::UsageReported(usage)),
        }
    }
}

fn is_credentials_failure(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.kind == FailureKind::Credentials)
}
