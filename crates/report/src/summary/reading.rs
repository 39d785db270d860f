//! From a journal to what there is to tell of its run.

use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::sync::LazyLock;

use memchr::memmem;

use super::{
    CommitSummary, ContinuationSummary, GuardrailSummary, IterationSummary, MAX_LISTED,
    RemainingWork, RunActivity, ScmFailureSummary, ScmTaskSummary, Summary, Wait,
};
use crate::run_table::{RunSummary, silence_warning, stall_warning};
use ralph_events::attempt;
use ralph_events::event::{
    self, Class, Entry, Event, Outcome, Purpose, Stamp, Stream, TodoItem, TodoStatus, Usage,
};
use ralph_events::journal::{Entries, Want};
use ralph_events::spending::Spending;
use ralph_events::text;

/// Tool calls whose summaries are remembered until they end.
const MAX_OPEN_TOOLS: usize = 64;
/// How much of a line is kept that an agent printed last.
const MAX_LAST_WORDS: usize = 500;

/// Folds a journal into [`Facts`].
#[derive(Debug, Clone, Default)]
pub struct Reading {
    summary: RunSummary,
    facts: Summary,
    /// The tools that are running, by their id.
    tools: VecDeque<(String, String)>,
    /// What of the output of the agent that is running is not in the journal, and of those before it.
    left_out: u64,
    left_out_before: u64,
    /// What was used, as budgets count it, and what of it had no price, for each iteration.
    spending: Spending,
    unpriced: Vec<Usage>,
    /// Of the attempt that is running.
    running: Option<Usage>,
    /// When the iteration that is open was begun.
    begun_ms: Option<i64>,
    /// The last wait is not over.
    waiting: bool,
    paused_ms: Option<i64>,
    /// How long the run has paused in all.
    pauses_ms: i64,
    /// How long the run took by its own clock.
    took_ms: Option<u64>,
    head: Option<String>,
    /// The commits that were told.
    commits: HashSet<String>,
    /// What the agent printed last on its standard error, and when the limit ends that it met.
    last_words: String,
    /// They are a line of their own, not one of a stack trace.
    words_tell: bool,
    /// The unfinished line is left out.
    skips_words: bool,
    limit_ends_ms: Option<i64>,
    /// What asked the run to stop.
    stopped_by: Option<String>,
    /// How many warnings came before any work.
    early_warnings: usize,
}

impl Reading {
    /// Takes what a journal tells, without the agents' words.
    pub fn of<R: Read>(entries: Entries<R>) -> Reading {
        let mut reading = Reading::default();
        let mut entries = entries.filter_kinds(wanted);
        while let Some(entry) = entries.next() {
            reading.summary.note_event(entries.take_skipped_stamp());
            reading.fold(&entry);
        }
        reading.summary.note_event(entries.take_skipped_stamp());
        reading.facts.unreadable = entries.unreadable();
        reading
    }

    /// When the last event was that can be read.
    pub fn last_ms(&self) -> i64 {
        self.summary.last_ms
    }

    /// The run is known to have been there at this moment, by something that it wrote elsewhere.
    pub fn note_alive(&mut self, time_ms: i64) {
        self.summary.note_alive(time_ms);
    }

    pub fn fold(&mut self, entry: &Entry<'_>) {
        let known = self.facts.iterations.last().map_or(0, |last| last.number);
        if entry.at.iteration > known || matches!(entry.event, Event::IterationStarted { .. }) {
            // Where its beginning cannot be read, it began no later than this.
            self.begin_iteration(entry);
        }
        self.watch_time(entry);
        self.count(entry);
        let (at, facts) = (entry.at, &mut self.facts);
        match &entry.event {
            Event::RunStarted { prompt, completion, branch, .. } => {
                facts.branch = facts.branch.take().or(branch.as_deref().map(str::to_owned));
                facts.asked = prompt.as_ref().to_owned();
                facts.completion = completion.as_ref().to_owned();
            }
            Event::Repository { head, commits, by_others } => {
                self.commits(at.time_ms, head, commits, *by_others);
            }
            Event::RunContinued { after, cut_off, unchecked, .. } => {
                let (time_ms, after) = (at.time_ms, *after);
                let (cut_off, unchecked) = (*cut_off, *unchecked);
                facts.continued.push(ContinuationSummary { time_ms, after, cut_off, unchecked });
                let last = facts.iterations.last_mut();
                if let Some(open) = last.filter(|last| Some(last.number) == unchecked) {
                    self.begun_ms = Some(time_ms);
                    open.clear_checks();
                }
            }
            Event::ToolStarted { id, name, summary, .. } => {
                let call = if summary.is_empty() {
                    name.as_ref().to_owned()
                } else {
                    format!("{name}: {summary}")
                };
                self.tools.push_back((id.as_ref().to_owned(), call));
                if self.tools.len() > MAX_OPEN_TOOLS {
                    self.tools.pop_front();
                }
            }
            Event::ToolEnded { id, name, denied, .. } => {
                let running = self.tools.iter().position(|(known, _)| known == id);
                let call = running.and_then(|at| self.tools.remove(at)).map(|(_, call)| call);
                if *denied {
                    facts.denied.push(call.unwrap_or_else(|| name.as_ref().to_owned()));
                }
            }
            Event::NetworkRefused { host, port, why, .. } => {
                facts.denied.push(format!("network: {host}:{port}: {why}"));
            }
            Event::Todo { items } => facts.left.plan = open_items(items),
            Event::LeftOut { bytes, .. } => self.left_out = *bytes,
            Event::FeedbackSet { parts } => {
                facts.left.feedback = parts.iter().map(|part| part.message.clone()).collect();
            }
            Event::Tasks { done, total, story, title, problems, .. } => {
                // Whatever became of them: somebody may want to look at what the agent did there.
                let known = &facts.left.problems;
                let new = problems.iter().filter(|problem| !known.contains(problem));
                new.for_each(|problem| facts.warnings.push(problem.clone()));
                facts.left.problems.clone_from(problems);
                facts.left.stories = Some((*done, *total));
                facts.left.story = story.as_ref().map(|story| match title {
                    Some(title) => format!("{story}: {title}"),
                    None => story.as_ref().to_owned(),
                });
            }
            Event::Waiting { reason, until_ms } => facts.waits.push(Wait {
                iteration: at.iteration,
                reason: *reason,
                from_ms: at.time_ms,
                until_ms: *until_ms,
                ended_ms: None,
            }),
            Event::Stalling { reason, iterations, limit } => {
                facts.warnings.push(stall_warning(*reason, *iterations, *limit));
            }
            Event::ModelSilent { silent_ms, limit_ms } => {
                facts.warnings.push(silence_warning(*silent_ms, *limit_ms));
            }
            Event::ScmEnded { task, ok, detail, .. } => {
                facts.scm_ended(at.iteration, task, *ok, detail)
            }
            Event::Warning { message } => {
                facts.warnings.push(message.as_ref().to_owned());
                if facts.iterations.is_empty() {
                    self.early_warnings = facts.warnings.first.len();
                }
            }
            Event::RunEnded { branch, .. } => {
                facts.last_branch = branch.as_deref().map(str::to_owned);
                self.run_ended(at, &entry.event);
            }
            Event::Notified { .. } => facts.untold = false,
            Event::StopRequested { signal, .. } => {
                self.stopped_by = Some(signal.as_ref().to_owned());
            }
            event => {
                if let Some(iteration) = facts.iterations.last_mut() {
                    into_iteration(event, iteration, &self.last_words);
                }
            }
        }
        self.summary.fold(entry);
    }

    /// What is about time: it goes by between events, and not while the run is not there.
    fn watch_time(&mut self, entry: &Entry<'_>) {
        let now_ms = entry.at.time_ms;
        // Whoever waits does nothing else.
        let waits_no_more = matches!(
            entry.event,
            Event::AgentStarted { .. }
                | Event::IterationEnded { .. }
                | Event::Retrying { .. }
                | Event::StopRequested { .. }
                | Event::Paused
                | Event::GuardrailEnded { .. }
                | Event::RunEnded { .. }
        );
        if waits_no_more
            && std::mem::take(&mut self.waiting)
            && let Some(wait) = self.facts.waits.last_mut()
        {
            wait.ended_ms = Some(now_ms);
            let waited = u64::try_from(now_ms - wait.from_ms).unwrap_or(0);
            if let Some(iteration) = self.facts.iterations.last_mut() {
                iteration.waited_ms = iteration.waited_ms.saturating_add(waited);
            }
        }
        match &entry.event {
            Event::RunStarted { .. } => {
                self.end_part();
                self.took_ms = None;
                (self.facts.last_words, self.facts.limit_ends_ms) = (None, None);
                self.facts.untold = false;
                (self.stopped_by, self.facts.stopped_by) = (None, None);
            }
            Event::Waiting { .. } => self.waiting = true,
            Event::Paused => self.paused_ms = Some(now_ms),
            Event::Resumed { .. } => self.end_pause(now_ms),
            Event::IterationEnded { duration_ms, .. } => {
                self.begun_ms = None;
                if let Some(iteration) = self.facts.iterations.last_mut() {
                    iteration.duration_ms = iteration.duration_ms.saturating_add(*duration_ms);
                }
            }
            _ => {}
        }
    }

    fn end_pause(&mut self, now_ms: i64) {
        if let Some(since) = self.paused_ms.take() {
            let length = (now_ms - since).max(0);
            self.pauses_ms += length;
            // A pause is on nobody's time.
            self.begun_ms = self.begun_ms.map(|begun| begun + length);
        }
    }

    /// The journal goes no further, or only after the run had been left.
    fn end_part(&mut self) {
        let last_ms = self.summary.last_ms;
        self.end_pause(last_ms);
        // How long it was waited, nobody knows.
        self.waiting = false;
        self.end_iteration(last_ms);
        if let Some(usage) = self.running.take() {
            self.settle_usage(&usage);
        }
        self.left_out_before += std::mem::take(&mut self.left_out);
    }

    /// An iteration of whose end nothing is told.
    fn end_iteration(&mut self, last_ms: i64) {
        if let (Some(begun), Some(open)) = (self.begun_ms.take(), self.facts.iterations.last_mut())
        {
            let took = u64::try_from(last_ms - begun).unwrap_or(0);
            open.duration_ms = open.duration_ms.saturating_add(took);
        }
    }

    fn run_ended(&mut self, at: Stamp, event: &Event<'_>) {
        let Event::RunEnded { outcome, message, duration_ms, notify, .. } = event else { return };
        self.facts.untold = *notify;
        self.took_ms = Some(*duration_ms);
        let stopped_by = self.stopped_by.take();
        self.facts.stopped_by = stopped_by.filter(|_| *outcome == Outcome::Interrupted);
        let Some(last) = self.facts.iterations.last_mut() else { return };
        if let Outcome::AgentFailed | Outcome::CredentialsRefused = outcome {
            let words = &self.last_words;
            let is_told = words.is_empty() || message.contains(words.as_str());
            self.facts.last_words = Some(words.clone()).filter(|_| !is_told);
        }
        // Also of one that was stopped while it waited.
        let ended_ms = at.time_ms;
        self.facts.limit_ends_ms = self.limit_ends_ms.filter(|ms| *ms > ended_ms);
        if *outcome == Outcome::AgentFailed {
            // The last failure of a series is told by the end, since nothing is tried again after it.
            let why = attempt::why_it_gave_up(message);
            let ran = last.class != Some(Class::NotStarted);
            let words = if ran { self.last_words.as_str() } else { "" };
            last.failures.extend(why.map(|why| failure_with_stderr(why, words)));
            if why.is_some() && last.class == Some(Class::NotStarted) {
                last.attempts += 1;
            }
        }
    }

    /// The end of what an agent prints on its standard error.
    fn record_stderr(&mut self, text: &str, joined: bool) {
        if text.trim().is_empty() {
            return;
        }
        if !joined {
            // The end of a stack trace, or of an object, tells less than what came before it.
            let is_telling =
                !text.starts_with(char::is_whitespace) && text.chars().any(char::is_alphanumeric);
            self.skips_words = !is_telling && self.words_tell;
            if self.skips_words {
                return;
            }
            self.words_tell = is_telling;
            self.last_words.clear();
        } else if self.skips_words {
            return;
        }
        if self.last_words.len() < MAX_LAST_WORDS {
            self.last_words.push_str(text::prefix(text.trim_end(), MAX_LAST_WORDS));
        }
    }

    /// What is about money.
    fn count(&mut self, entry: &Entry<'_>) {
        match &entry.event {
            Event::AgentStarted { .. } => {
                self.running = Some(Usage::default());
                self.limit_ends_ms = None;
                self.last_words.clear();
                (self.words_tell, self.skips_words) = (false, false);
                self.left_out_before += std::mem::take(&mut self.left_out);
            }
            Event::Usage(usage) | Event::Result { usage: Some(usage), .. } => {
                self.running = Some(*usage);
            }
            Event::Output { stream: Stream::Stderr, text, joined } => {
                self.record_stderr(text, *joined)
            }
            Event::AgentEnded { class, usage, failure, .. } => {
                self.limit_ends_ms = attempt::rate_limit_reset_ms(*class, failure.as_ref());
                self.running = None;
                self.settle_usage(usage);
            }
            _ => {}
        }
    }

    /// What an attempt had used when it ended, or when it was cut off.
    fn settle_usage(&mut self, usage: &Usage) {
        self.spending.end_attempt(usage);
        if let Some(iteration) = self.facts.iterations.last_mut() {
            iteration.usage.add(usage);
            if usage.cost_usd.is_none()
                && let Some(unpriced) = self.unpriced.last_mut()
            {
                unpriced.add(usage);
            }
        }
    }

    fn begin_iteration(&mut self, entry: &Entry<'_>) {
        self.end_iteration(entry.at.time_ms);
        self.begun_ms = Some(entry.at.time_ms);
        let number = entry.at.iteration;
        match self.facts.iterations.last_mut().filter(|last| last.number == number) {
            // One that was cut off and is done again is one iteration; what its checks said then is not
            // what they say now.
            Some(again) => {
                again.begun += 1;
                again.clear_checks();
                again.class = None;
                (again.ended_by, again.failure) = (None, None);
                again.scm_done.clear();
            }
            None => {
                self.facts.iterations.push(IterationSummary {
                    number,
                    started_ms: entry.at.time_ms,
                    begun: 1,
                    ..IterationSummary::default()
                });
                self.unpriced.push(Usage::default());
            }
        }
    }

    fn commits(&mut self, time_ms: i64, head: &str, commits: &[event::Commit], by_others: bool) {
        let facts = &mut self.facts;
        // Where the first that can be read came with commits, nobody knows what was there before them.
        if commits.is_empty() && facts.head.is_none() && self.commits.is_empty() {
            facts.head = Some(head.to_owned());
        }
        let before = self.head.replace(head.to_owned());
        let made = |commit: &event::Commit| CommitSummary {
            id: commit.id.clone(),
            time_ms,
            subject: commit.subject.clone(),
            since: commit.since.clone(),
            gone: false,
            no_branch: false,
        };
        if by_others || facts.iterations.is_empty() {
            let new = commits.iter().filter(|commit| self.commits.insert(commit.id.clone()));
            return facts.others.extend(new.map(made));
        }
        for commit in commits {
            if let Some(replaced) = &commit.replaces {
                remove_commit(replaced, &mut facts.iterations);
                self.commits.remove(replaced);
            }
            // A branch that is merged brings what was told when it was made there.
            let new = self.commits.insert(commit.id.clone());
            if let Some(iteration) = facts.iterations.last_mut().filter(|_| new) {
                iteration.commits.push(made(commit));
            }
        }
        if let Some(iteration) = facts.iterations.last_mut().filter(|_| self.begun_ms.is_some()) {
            iteration.head = Some(head.to_owned()).filter(|head| before.as_ref() != Some(head));
        }
    }

    /// All that was found. `now_ms` for a run that is going on.
    pub fn facts(mut self, now_ms: Option<i64>) -> Summary {
        let doing = now_ms.filter(|_| self.summary.outcome.is_none()).map(|now_ms| {
            self.summary.last_ms = self.summary.last_ms.max(now_ms);
            match (self.paused_ms, self.facts.waits.last().filter(|_| self.waiting)) {
                (Some(since_ms), _) => RunActivity::Paused { since_ms },
                (None, Some(wait)) => RunActivity::Waiting { until_ms: wait.until_ms },
                (None, None) => RunActivity::Working,
            }
        });
        self.end_part();
        if let Some(last) = self.facts.iterations.last_mut() {
            last.under_way = doing.is_some() && !last.ended;
        }
        // What was said of the settings is known; what went wrong at work comes first.
        let early = self.early_warnings.min(self.facts.warnings.first.len());
        self.facts.warnings.first.rotate_left(early);
        let Reading { summary, mut facts, left_out_before, spending, unpriced, .. } = self;
        if let bytes @ 1.. = left_out_before {
            facts.warnings.push(format!(
                "{}B of what agents printed were left out of the journal, which has no room for them \
                 (runs.maxJournalMegabytes)",
                text::format_count(bytes)
            ));
        }
        let usage = summary.usage();
        let mut guessed = 0.0;
        for (iteration, unpriced) in facts.iterations.iter_mut().zip(unpriced) {
            if unpriced.total_tokens() > 0 {
                let (told, guess) = (iteration.usage.cost_usd, spending.estimate(&unpriced));
                iteration.estimated_cost_usd = Some(told.unwrap_or(0.0) + guess);
                guessed += guess;
            }
        }
        let complete =
            matches!(summary.outcome, Some(Outcome::Complete | Outcome::CompleteScmFailed));
        if complete {
            // The plan that the agent forgot to tick off is not work that is left.
            facts.left = RemainingWork { stories: facts.left.stories, ..RemainingWork::default() };
        }
        if summary.outcome.is_none() {
            let met = self.limit_ends_ms.filter(|_| doing.is_none());
            facts.limit_ends_ms = met.filter(|ms| *ms > summary.last_ms);
        }
        let by_events = summary.duration_ms(None);
        let pauses = u64::try_from(self.pauses_ms).unwrap_or(0);
        Summary {
            doing,
            duration_ms: self.took_ms.unwrap_or_else(|| by_events.saturating_sub(pauses)),
            usage,
            estimated_cost_usd: (guessed > 0.0).then(|| usage.cost_usd.unwrap_or(0.0) + guessed),
            outcome: summary.outcome,
            exit_code: summary.exit_code,
            started_ms: Some(summary.started_ms).filter(|ms| *ms != 0),
            ended_ms: Some(summary.last_ms).filter(|ms| *ms != 0),
            max_iterations: summary.max_iterations,
            run: summary.id,
            command: summary.command,
            directory: summary.directory,
            agent: summary.agent,
            message: summary.message,
            ..facts
        }
    }
}

impl Summary {
    fn scm_ended(&mut self, iteration: u32, task: &str, ok: bool, detail: &str) {
        let known = self.scm.iter().position(|known| known.task == task);
        if ok {
            if let Some(last) = self.iterations.last_mut()
                && !last.scm_done.iter().any(|done| done == task)
            {
                last.scm_done.push(task.to_owned());
            }
            if let Some(known) = known.and_then(|at| self.scm.get_mut(at)) {
                known.made_good = true;
            }
            return;
        }
        let (task, why) = (task.to_owned(), failure_line(detail).to_owned());
        if let Some(last) = self.iterations.last_mut() {
            last.scm_failed.push(ScmFailureSummary { task: task.clone(), why: why.clone() });
        }
        let at = known.unwrap_or_else(|| {
            let (iterations, why) = (Vec::new(), String::new());
            self.scm.push(ScmTaskSummary { task, iterations, why, made_good: false });
            self.scm.len() - 1
        });
        if let Some(known) = self.scm.get_mut(at) {
            if known.iterations.last() != Some(&iteration) {
                known.iterations.push(iteration);
            }
            (known.why, known.made_good) = (why, false);
        }
    }
}

/// The line that tells why a program failed: its last, but for git's advice below it.
fn failure_line(said: &str) -> &str {
    let lines = || said.lines().map(str::trim).rev().filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.starts_with("fatal: ") || line.starts_with("error: ");
    lines()
        .find(is_error)
        .or_else(|| lines().find(|line| !line.starts_with("hint: ")))
        .unwrap_or("it did not say why")
}

/// Why an attempt failed, with what the agent printed last on its standard error: an exit code alone tells little.
fn failure_with_stderr(why: &str, last_words: &str) -> String {
    match last_words.trim() {
        words if words.is_empty() || why.contains(words) => why.to_owned(),
        words => format!("{why}: {words}"),
    }
}

/// Takes a commit out that was amended.
fn remove_commit(id: &str, iterations: &mut [IterationSummary]) {
    for iteration in iterations.iter_mut().rev() {
        if let Some(at) = iteration.commits.iter().position(|commit| commit.id == id) {
            iteration.commits.remove(at);
            return;
        }
    }
}

/// What is told of the iteration that is open.
fn into_iteration(event: &Event<'_>, iteration: &mut IterationSummary, last_words: &str) {
    match event {
        Event::AgentStarted { purpose: Purpose::Work, .. } => {
            iteration.attempts += 1;
            iteration.scm_done.clear();
        }
        Event::AgentEnded {
            purpose,
            class,
            ended_by,
            failure,
            tools,
            tool_errors,
            denied,
            repeats_prompt,
            ..
        } => {
            iteration.tools = iteration.tools.saturating_add(*tools);
            iteration.tool_errors = iteration.tool_errors.saturating_add(*tool_errors);
            iteration.denied = iteration.denied.saturating_add(*denied);
            if *purpose == Purpose::Work {
                iteration.class = Some(*class);
                iteration.ended_by = *ended_by;
                iteration.failure = failure.as_ref().map(|failure| failure.kind);
                iteration.repeats_prompt = *repeats_prompt;
            }
        }
        Event::Retrying { class, message, .. } => {
            if *class == Class::NotStarted {
                iteration.attempts += 1;
            }
            // One that never ran has printed nothing.
            let words = if *class == Class::NotStarted { "" } else { last_words };
            iteration.failures.push(failure_with_stderr(message, words));
        }
        Event::GuardrailEnded { command, exit, passed, cut_off, log, .. } => {
            iteration.guardrails.push(GuardrailSummary {
                command: command.as_ref().to_owned(),
                passed: *passed,
                cut_off: *cut_off,
                exit: *exit,
                log: log.as_ref().to_owned(),
            });
        }
        Event::Vetoed { reason } => iteration.vetoed = Some(reason.as_ref().to_owned()),
        Event::IterationEnded { class, cut_off, .. } => {
            iteration.class = Some(*class);
            (iteration.ended, iteration.cut_off) = (true, *cut_off);
        }
        _ => {}
    }
}

static DENIED: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(br#""denied":true"#));

static STDERR: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(br#""stream":"stderr""#));

/// Which events can make a difference here.
fn wanted(event: &str, line: &[u8]) -> Want {
    match event {
        "output" if STDERR.find(line).is_some() => Want::Yes,
        "text" | "thinking" | "output" | "session" | "notice" | "retracted"
        | "background_tasks" | "prompt" | "note" | "completion_checked" | "looked"
        | "leftovers" | "scm_started" | "guardrail_started" => Want::No,
        // What a tool was about is told if it was denied, and what an agent told of its usage if it came to
        // no end.
        "tool_started" | "usage" | "result" => Want::Perhaps,
        "tool_ended" if DENIED.find(line).is_some() => Want::WithThose,
        "tool_ended" => Want::No,
        "run_started" => Want::WithThose,
        "agent_ended" => Want::WithoutThose,
        _ => Want::Yes,
    }
}

fn open_items(items: &[TodoItem]) -> Vec<String> {
    let open = items.iter().filter(|item| item.status != TodoStatus::Completed);
    open.take(MAX_LISTED).map(|item| item.text.clone()).collect()
}
