//! One agent process: its bytes become events, and its events become a report.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use ralph_agents::filter::{FilterAnswer, FilteredReader};
use ralph_agents::{Emit, OutputReader};
use ralph_engine::completion::{CompletionDetector, CompletionResult};
use ralph_engine::machine::{Input, Report};
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

/// How much of an answer is looked at for a commit message.
const MAX_ANSWER: usize = 64 * 1024;
/// Standard error is for people: its lines need not be held whole.
const MAX_STDERR_LINE: usize = 64 * 1024;

const IGNORED_SIGNAL_WARNING: &str =
    "A completion signal was ignored: it stands in a repetition of the prompt";

/// How many of its last lines are shown with a warning.
const MAX_STDERR_LINES: usize = 5;

/// How much of what was on an agent's screen is kept in the journal.
const MAX_SCREEN_LINES: usize = 200;

/// An agent that has printed nothing for so long may be done.
const QUIET_AFTER_COMPLETION_MS: u64 = 1_000;

/// An agent that is running.
pub(super) struct AgentProcess {
    pub(super) child: ChildId,
    pub(super) started_ms: u64,
    pub(super) ended_by: Option<EndCause>,
    pub(super) files: AgentFiles,
    /// What it shows, if it has a screen of its own.
    screen: Option<PtyScreen>,
    reader: Box<dyn OutputReader>,
    /// What tells which of it the agent said, if not the reader.
    filter: Option<FilteredReader>,
    stdout: LineSplitter,
    stderr: LineSplitter,
    /// What it prints is for people, also before the line ends.
    is_plain: bool,
    /// What completes the run stands once it is said, however the agent then leaves.
    completion_is_final: bool,
    /// Whether that was said can be told in time.
    can_report_completion: bool,
    /// When to look whether it has been said, if the agent is silent until then.
    check_at_ms: Option<u64>,
    summary: AttemptSummary,
}

/// Files that are there for one process and go with it.
#[derive(Debug, Default)]
pub(super) struct AgentFiles {
    /// What the agent leaves for its reader.
    pub(super) side: Option<PathBuf>,
    /// The prompt, if it went by file.
    pub(super) prompt: Option<PathBuf>,
}

/// Asks what the user's expression finds in a line; an error is why nobody can tell.
pub(super) type FilterQuery<'a> = dyn FnMut(&[u8]) -> Result<FilterAnswer, String> + 'a;

/// What the events of one process add up to.
struct AttemptSummary {
    purpose: Purpose,
    detector: CompletionDetector,
    /// What was said, for a commit message.
    answer_text: String,
    /// The agent's own verdict; the last one counts.
    result: Option<Option<Failure>>,
    usage: Usage,
    tools: u32,
    tool_errors: u32,
    denied: u32,
    /// The ids of the tools that are running.
    open_tools: HashSet<String>,
    /// The machine was told that a tool is running.
    tool_reported: bool,
    /// The last lines that it printed on standard error.
    stderr: VecDeque<String>,
    /// It has a screen, and something is on it.
    shows_anything: bool,
    /// It has a screen, and never got its prompt there, for this reason.
    prompt_not_delivered: Option<String>,
    /// What the machine has to hear of, in order.
    inputs: Vec<Input>,
}

/// What is known of an agent that has ended.
pub(super) struct AttemptEnd {
    pub(super) ended: Event<'static>,
    pub(super) report: Report,
    pub(super) commit_message: Option<String>,
    /// All that it said was what it had been asked.
    pub(super) repeats_prompt: bool,
    /// Whether it is done could not be told.
    pub(super) gave_up: bool,
    /// It has given a result, with tokens and without a price for them.
    pub(super) unpriced: bool,
    /// The last lines that it printed on standard error.
    pub(super) stderr: Vec<String>,
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
        let facts = AttemptSummary {
            purpose,
            detector,
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
        };
        let out = LineSplitter::new(reader.max_line());
        let err = LineSplitter::new(MAX_STDERR_LINE);
        AgentProcess {
            child,
            started_ms,
            ended_by: None,
            files,
            screen: None,
            reader,
            filter: None,
            stdout: out,
            stderr: err,
            is_plain: false,
            completion_is_final: false,
            can_report_completion: true,
            check_at_ms: None,
            summary: facts,
        }
    }

    /// What completes the run stands once it is said.
    pub(super) fn with_final_completion(mut self, stands: bool) -> Self {
        self.completion_is_final = stands;
        self
    }

    /// It prints plain text.
    pub(super) fn with_plain_text(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// What stands on its last line so far, if that is worth showing before it ends: a prompt, a bar that
    /// grows.
    pub(super) fn partial_line(&self) -> Option<&[u8]> {
        (self.is_plain && self.summary.purpose == Purpose::Work).then(|| self.stdout.unfinished())
    }

    /// Takes for the agent's words what the judge finds.
    pub(super) fn with_response_filter(mut self, judge: FilteredReader) -> Self {
        self.stdout = LineSplitter::new(judge.max_line().max(self.reader.max_line()));
        self.filter = Some(judge);
        self
    }

    /// What it prints is a screen, and the prompt is still to be typed there.
    pub(super) fn with_screen(mut self, screen: PtyScreen) -> Self {
        self.screen = Some(screen);
        self
    }

    pub(super) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    pub(super) fn screen(&mut self) -> Option<&mut PtyScreen> {
        self.screen.as_mut()
    }

    /// When there is something to be done about its screen, or to be looked for in what it said.
    pub(super) fn next_check_ms(&self) -> Option<u64> {
        self.screen.as_ref().and_then(PtyScreen::next_check_ms).or(self.check_at_ms)
    }

    /// It printed something just now.
    pub(super) fn note_output(&mut self, now_ms: u64) {
        if self.completion_is_final
            && self.can_report_completion
            && self.is_plain
            && self.summary.purpose == Purpose::Work
        {
            self.check_at_ms = Some(now_ms.saturating_add(QUIET_AFTER_COMPLETION_MS));
        }
    }

    /// It has been silent for a moment, and what it said before completes the run: the grace of those
    /// who have given their result begins, until it prints again.
    pub(super) fn is_silent_after_completion(&mut self, now_ms: u64) -> bool {
        if self.check_at_ms.is_none_or(|at| now_ms < at) {
            return false;
        }
        self.check_at_ms = None;
        let mut detector = self.summary.detector.clone();
        let line = String::from_utf8_lossy(self.stdout.unfinished());
        if !line.is_empty() {
            detector.push_text(&line, false);
        }
        let verdict = detector.finish();
        // It would take as long again each time.
        self.can_report_completion &= !verdict.pattern_too_slow;
        let done = verdict.complete && !matches!(self.summary.result, Some(Some(_)));
        if done {
            self.summary.result = Some(None);
        }
        done
    }

    /// What completes the run stands on its screen. The grace of those who have given their result
    /// begins, again with each change.
    pub(super) fn complete_on_screen(&mut self) {
        self.summary.result = Some(None);
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.summary.purpose
    }

    /// Takes what the agent printed.
    pub(super) fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        recorder: &mut Recorder,
        ask: &mut FilterQuery<'_>,
    ) {
        let AgentProcess {
            reader, filter: judge, stdout: out, stderr: err, summary: facts, ..
        } = self;
        let mut emit = |event: Event<'_>| {
            facts.handle_event(&event);
            recorder.record(&event);
        };
        match stream {
            Stream::Stdout => {
                out.push(bytes, |line| handle_stdout(line, reader.as_mut(), judge, ask, &mut emit));
            }
            Stream::Stderr => err.push(bytes, |line| reader.stderr(line, &mut emit)),
        }
        let running = !facts.open_tools.is_empty() || reader.may_run_tool();
        if std::mem::replace(&mut facts.tool_reported, running) != running {
            facts.inputs.push(Input::ToolRunning(running));
        }
    }

    /// What the machine has to hear of since it was last asked.
    pub(super) fn drain_inputs(&mut self) -> std::vec::Drain<'_, Input> {
        self.summary.inputs.drain(..)
    }

    /// The process is gone. `side_file` is what it left in that file.
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
        let AgentProcess {
            reader,
            filter: judge,
            stdout: out,
            stderr: err,
            summary: facts,
            ended_by,
            ..
        } = &mut self;
        let mut emit = |event: Event<'_>| {
            facts.handle_event(&event);
            recorder.record(&event);
        };
        out.finish(|line| handle_stdout(line, reader.as_mut(), judge, ask, &mut emit));
        err.finish(|line| reader.stderr(line, &mut emit));
        if let Some(text) = side_file {
            reader.side_file(text, &mut emit);
        }
        // A stream of which nothing but the words is known, by the user's filter, has no verdict of its own.
        let is_foreign = reader.is_unrecognized()
            && judge.as_ref().is_some_and(FilteredReader::has_seen_stream)
            && exit.is_some_and(Exit::success);
        if !is_foreign {
            reader.finish(exit, &mut emit);
        }
        let told = matches!(facts.result, Some(Some(_)));
        if let Some(judge) = judge {
            if ended_by.is_some() || !exit.is_some_and(Exit::success) {
                judge.mark_cut_short();
            }
            judge.finish(told, &mut |event| {
                facts.handle_event(&event);
                recorder.record(&event);
            });
        }
        let verdict = facts.detector.finish();
        // An answer that only repeats the prompt is warned of instead.
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
            // What it said on the way to one is none.
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
        let report = Report {
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
        let stderr = std::mem::take(&mut facts.stderr).into();
        AttemptEnd { ended, report, commit_message, repeats_prompt, gave_up, unpriced, stderr }
    }
}

/// Takes a line of standard output.
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
    fn handle_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Text { text, joined, subagent: false } => {
                self.detector.push_text(text, *joined);
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
                self.answer_text.clear();
            }
            Event::ToolStarted { id, .. } => {
                self.open_tools.insert(id.as_ref().to_owned());
                // What it says while it looks around is not yet the message.
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
                // In this order: what an agent has used up by its last word ends it no more.
                self.inputs.push(if refused { Input::Refused } else { Input::ResultSeen });
                if let Some(usage) = usage {
                    self.record_usage(*usage);
                }
            }
            _ => {}
        }
    }

    /// It goes on after what looked like its last word.
    fn note_activity(&mut self) {
        if self.result.is_some() && self.inputs.last() != Some(&Input::Working) {
            self.inputs.push(Input::Working);
        }
        // With credentials that are refused it could not.
        if self.result.as_ref().is_some_and(|result| is_credentials_failure(result.as_ref())) {
            self.result = None;
        }
    }

    /// Each count is of all so far, so that only the last one matters.
    fn record_usage(&mut self, usage: Usage) {
        self.usage = usage;
        match self.inputs.last_mut() {
            Some(Input::UsageReported(last)) => *last = usage,
            _ => self.inputs.push(Input::UsageReported(usage)),
        }
    }
}

/// The agent's credentials were refused.
fn is_credentials_failure(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.kind == FailureKind::Credentials)
}
