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

use super::pty_agent::Screen;
use super::recorder::Recorder;

/// How much of an answer is looked at for a commit message.
const MAX_ANSWER: usize = 64 * 1024;
/// Standard error is for people: its lines need not be held whole.
const MAX_STDERR_LINE: usize = 64 * 1024;

const IGNORED_SIGNAL: &str =
    "A completion signal was ignored: it stands in a repetition of the prompt";

/// How many of its last lines are shown with a warning.
const MAX_STDERR_LINES: usize = 5;

/// How much of what was on an agent's screen is kept in the journal.
const MAX_SCREEN_LINES: usize = 200;

/// An agent that has printed nothing for so long may be done.
const SILENT_MS: u64 = 1_000;

/// An agent that is running.
pub(super) struct AgentTask {
    pub(super) child: ChildId,
    pub(super) started_ms: u64,
    pub(super) ended_by: Option<EndCause>,
    pub(super) files: Files,
    /// What it shows, if it has a screen of its own.
    screen: Option<Screen>,
    reader: Box<dyn OutputReader>,
    /// What tells which of it the agent said, if not the reader.
    judge: Option<FilteredReader>,
    out: LineSplitter,
    err: LineSplitter,
    /// What it prints is for people, also before the line ends.
    is_plain: bool,
    /// What completes the run stands once it is said, however the agent then leaves.
    done_stands: bool,
    /// Whether that was said can be told in time.
    done_is_told: bool,
    /// When to look whether it has been said, if the agent is silent until then.
    look_at: Option<u64>,
    facts: Gathered,
}

/// Files that are there for one process and go with it.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// What the agent leaves for its reader.
    pub(super) side: Option<PathBuf>,
    /// The prompt, if it went by file.
    pub(super) prompt: Option<PathBuf>,
}

/// Asks what the user's expression finds in a line; an error is why nobody can tell.
pub(super) type Ask<'a> = dyn FnMut(&[u8]) -> Result<FilterAnswer, String> + 'a;

/// What the events of one process add up to.
struct Gathered {
    purpose: Purpose,
    detector: CompletionDetector,
    /// What was said, for a commit message.
    answer: String,
    /// The agent's own verdict; the last one counts.
    result: Option<Option<Failure>>,
    usage: Usage,
    tools: u32,
    tool_errors: u32,
    denied: u32,
    /// The ids of the tools that are running.
    running: HashSet<String>,
    /// The machine was told that a tool is running.
    tool_told: bool,
    /// The last lines that it printed on standard error.
    stderr: VecDeque<String>,
    /// It has a screen, and something is on it.
    shows_anything: bool,
    /// It has a screen, and never got its prompt there, for this reason.
    without_prompt: Option<String>,
    /// What the machine has to hear of, in order.
    news: Vec<Input>,
}

/// What is known of an agent that has ended.
pub(super) struct Finished {
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

impl AgentTask {
    pub(super) fn new(
        child: ChildId,
        purpose: Purpose,
        started_ms: u64,
        reader: Box<dyn OutputReader>,
        detector: CompletionDetector,
        files: Files,
    ) -> Self {
        let facts = Gathered {
            purpose,
            detector,
            answer: String::new(),
            result: None,
            usage: Usage::default(),
            tools: 0,
            tool_errors: 0,
            denied: 0,
            running: HashSet::new(),
            tool_told: false,
            stderr: VecDeque::new(),
            shows_anything: false,
            without_prompt: None,
            news: Vec::new(),
        };
        let out = LineSplitter::new(reader.max_line());
        let err = LineSplitter::new(MAX_STDERR_LINE);
        AgentTask {
            child,
            started_ms,
            ended_by: None,
            files,
            screen: None,
            reader,
            judge: None,
            out,
            err,
            is_plain: false,
            done_stands: false,
            done_is_told: true,
            look_at: None,
            facts,
        }
    }

    /// What completes the run stands once it is said.
    pub(super) fn whose_word_stands(mut self, stands: bool) -> Self {
        self.done_stands = stands;
        self
    }

    /// It prints plain text.
    pub(super) fn in_plain_text(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// What stands on its last line so far, if that is worth showing before it ends: a prompt, a bar that
    /// grows.
    pub(super) fn unfinished(&self) -> Option<&[u8]> {
        (self.is_plain && self.facts.purpose == Purpose::Work).then(|| self.out.unfinished())
    }

    /// Takes for the agent's words what the judge finds.
    pub(super) fn judged_by(mut self, judge: FilteredReader) -> Self {
        self.out = LineSplitter::new(judge.max_line().max(self.reader.max_line()));
        self.judge = Some(judge);
        self
    }

    /// What it prints is a screen, and the prompt is still to be typed there.
    pub(super) fn on_screen(mut self, screen: Screen) -> Self {
        self.screen = Some(screen);
        self
    }

    pub(super) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    pub(super) fn screen(&mut self) -> Option<&mut Screen> {
        self.screen.as_mut()
    }

    /// When there is something to be done about its screen, or to be looked for in what it said.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.screen.as_ref().and_then(Screen::next_ms).or(self.look_at)
    }

    /// It printed something just now.
    pub(super) fn printed(&mut self, now_ms: u64) {
        if self.done_stands
            && self.done_is_told
            && self.is_plain
            && self.facts.purpose == Purpose::Work
        {
            self.look_at = Some(now_ms.saturating_add(SILENT_MS));
        }
    }

    /// It has been silent for a moment, and what it said before completes the run: the grace of those
    /// who have given their result begins, until it prints again.
    pub(super) fn has_fallen_silent_done(&mut self, now_ms: u64) -> bool {
        if self.look_at.is_none_or(|at| now_ms < at) {
            return false;
        }
        self.look_at = None;
        let mut detector = self.facts.detector.clone();
        let line = String::from_utf8_lossy(self.out.unfinished());
        if !line.is_empty() {
            detector.push_text(&line, false);
        }
        let verdict = detector.finish();
        // It would take as long again each time.
        self.done_is_told &= !verdict.pattern_too_slow;
        let done = verdict.complete && !matches!(self.facts.result, Some(Some(_)));
        if done {
            self.facts.result = Some(None);
        }
        done
    }

    /// What completes the run stands on its screen. The grace of those who have given their result
    /// begins, again with each change.
    pub(super) fn done_on_screen(&mut self) {
        self.facts.result = Some(None);
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.facts.purpose
    }

    /// Takes what the agent printed.
    pub(super) fn output(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        recorder: &mut Recorder,
        ask: &mut Ask<'_>,
    ) {
        let AgentTask { reader, judge, out, err, facts, .. } = self;
        let mut emit = |event: Event<'_>| {
            facts.take(&event);
            recorder.record(&event);
        };
        match stream {
            Stream::Stdout => {
                out.push(bytes, |line| stdout(line, reader.as_mut(), judge, ask, &mut emit));
            }
            Stream::Stderr => err.push(bytes, |line| reader.stderr(line, &mut emit)),
        }
        let running = !facts.running.is_empty() || reader.may_run_tool();
        if std::mem::replace(&mut facts.tool_told, running) != running {
            facts.news.push(Input::ToolRunning(running));
        }
    }

    /// What the machine has to hear of since it was last asked.
    pub(super) fn news(&mut self) -> std::vec::Drain<'_, Input> {
        self.facts.news.drain(..)
    }

    /// The process is gone. `side_file` is what it left in that file.
    pub(super) fn finish(
        mut self,
        exit: Option<Exit>,
        side_file: Option<&str>,
        duration_ms: u64,
        recorder: &mut Recorder,
        ask: &mut Ask<'_>,
    ) -> Finished {
        if let Some(screen) = self.screen.take() {
            self.facts.shows_anything = screen.shows_anything();
            self.facts.without_prompt = screen.why_without_prompt();
            let (shown, found) = screen.end();
            let lines: Vec<&str> = shown.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(MAX_SCREEN_LINES)) {
                let (stream, text) = (Stream::Stdout, line.trim_end().into());
                recorder.record(&Event::Output { stream, text, joined: false });
            }
            let complete = found.is_some();
            return self.conclude(
                CompletionResult { complete, signal: found, pattern_too_slow: false },
                exit,
                duration_ms,
            );
        }
        let AgentTask { reader, judge, out, err, facts, ended_by, .. } = &mut self;
        let mut emit = |event: Event<'_>| {
            facts.take(&event);
            recorder.record(&event);
        };
        out.finish(|line| stdout(line, reader.as_mut(), judge, ask, &mut emit));
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
                facts.take(&event);
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
            recorder.record(&Event::Notice { text: IGNORED_SIGNAL.into() });
        }
        self.conclude(verdict, exit, duration_ms)
    }

    fn conclude(
        mut self,
        verdict: CompletionResult,
        exit: Option<Exit>,
        duration_ms: u64,
    ) -> Finished {
        let facts = &mut self.facts;
        let class = classify(&AttemptResult {
            exit,
            ended_by: self.ended_by,
            result: facts.result.as_ref().map(Option::as_ref),
            active: facts.detector.has_output() || facts.tools > 0 || facts.shows_anything,
            completed: self.done_stands && verdict.complete,
        });
        let ended_early = matches!(class, Class::Interrupted | Class::Limited);
        let without_prompt = facts.without_prompt.take().filter(|_| !ended_early);
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
                prompt::parse_commit_message(&facts.answer)
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
            filter_errors: self.judge.as_ref().map_or(0, FilteredReader::failures),
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
        Finished { ended, report, commit_message, repeats_prompt, gave_up, unpriced, stderr }
    }
}

/// Takes a line of standard output.
fn stdout(
    line: Line<'_>,
    reader: &mut dyn OutputReader,
    judge: &mut Option<FilteredReader>,
    ask: &mut Ask<'_>,
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

impl Gathered {
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Text { text, joined, subagent: false } => {
                self.detector.push_text(text, *joined);
                if self.purpose == Purpose::CommitMessage && self.answer.len() < MAX_ANSWER {
                    if !joined && !self.answer.is_empty() {
                        self.answer.push('\n');
                    }
                    self.answer.push_str(text);
                }
                self.working();
            }
            Event::Retracted { .. } => {
                self.detector.retract();
                self.answer.clear();
            }
            Event::ToolStarted { id, .. } => {
                self.running.insert(id.as_ref().to_owned());
                // What it says while it looks around is not yet the message.
                self.answer.clear();
                self.tools += 1;
                self.working();
            }
            Event::ToolEnded { id, failed, denied, .. } => {
                self.running.remove(id.as_ref());
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
            Event::Usage(usage) => self.used(*usage),
            Event::BackgroundTasks { running } => self.news.push(Input::BackgroundTasks(*running)),
            Event::Result { failure, usage, .. } => {
                self.result = Some(failure.clone());
                let refused = is_refusal(failure.as_ref());
                // In this order: what an agent has used up by its last word ends it no more.
                self.news.push(if refused { Input::Refused } else { Input::ResultSeen });
                if let Some(usage) = usage {
                    self.used(*usage);
                }
            }
            _ => {}
        }
    }

    /// It goes on after what looked like its last word.
    fn working(&mut self) {
        if self.result.is_some() && self.news.last() != Some(&Input::Working) {
            self.news.push(Input::Working);
        }
        // With credentials that are refused it could not.
        if self.result.as_ref().is_some_and(|result| is_refusal(result.as_ref())) {
            self.result = None;
        }
    }

    /// Each count is of all so far, so that only the last one matters.
    fn used(&mut self, usage: Usage) {
        self.usage = usage;
        match self.news.last_mut() {
            Some(Input::UsageReported(last)) => *last = usage,
            _ => self.news.push(Input::UsageReported(usage)),
        }
    }
}

/// The agent's credentials were refused.
fn is_refusal(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.kind == FailureKind::Credentials)
}
