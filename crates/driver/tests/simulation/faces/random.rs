//! Random journals: plausible ones, in the order of a real run, and arbitrary ones.

use proptest::prelude::*;

use ralph_events::event::{
    Class, Commit, Entry, Event, Exit, FailAction, Failure, FailureKind, Feedback, Leftover,
    Outcome, Purpose, StallReason, Stamp, Stream, TodoItem, TodoStatus, Usage, WaitReason,
};
use ralph_events::run_state::RunState;

/// Journals of runs that start, work, pause, fail, are killed and are resumed, as the engine writes them.
pub(super) fn plausible() -> impl Strategy<Value = Vec<Entry<'static>>> {
    prop::collection::vec(any::<u16>(), 10..400).prop_map(|choices| {
        let mut writer = Writer::new(choices);
        for _ in 0..4 {
            writer.life();
        }
        writer.entries
    })
}

/// Entries in any order, with any stamp.
pub(super) fn arbitrary() -> impl Strategy<Value = Vec<Entry<'static>>> {
    let entry = (any::<u16>(), 0..30_000_i64, 0..4_u32, 0..3_u32);
    prop::collection::vec(entry, 1..60).prop_map(|choices| {
        let mut writer = Writer::new(Vec::new());
        for (choice, time_ms, iteration, attempt) in choices {
            let event = writer.any_event(choice);
            let at = Stamp { time_ms: START_MS + time_ms, iteration, attempt };
            writer.entries.push(Entry { at, event });
        }
        writer.entries
    })
}

const START_MS: i64 = 1_794_774_472_000;

/// Writes a journal. Every decision takes the next random number, so that shorter lists make simpler journals.
struct Writer {
    choices: std::vec::IntoIter<u16>,
    exhausted: bool,
    entries: Vec<Entry<'static>>,
    state: RunState,
    at: Stamp,
    /// Entries until the process is killed.
    left: u32,
    /// Reported by the running agent so far.
    used: Usage,
    commits: u32,
    agents: u32,
    started_ms: i64,
    over: bool,
}

impl Writer {
    fn new(choices: Vec<u16>) -> Writer {
        Writer {
            choices: choices.into_iter(),
            exhausted: false,
            entries: Vec::new(),
            state: RunState::default(),
            at: Stamp { time_ms: START_MS, iteration: 0, attempt: 0 },
            left: 0,
            used: Usage::default(),
            commits: 0,
            agents: 0,
            started_ms: 0,
            over: false,
        }
    }

    fn below(&mut self, n: u16) -> u16 {
        let choice = self.choices.next();
        self.exhausted |= choice.is_none();
        choice.unwrap_or(0) % n
    }

    fn chance(&mut self, one_in: u16) -> bool {
        self.below(one_in) == 1
    }

    fn emit(&mut self, event: Event<'static>) {
        if self.left == 0 || self.exhausted {
            return;
        }
        self.left -= 1;
        let entry = Entry { at: self.at, event };
        self.state.apply(&entry);
        self.entries.push(entry);
    }

    fn pass_time(&mut self) {
        let ms = i64::from(self.below(5_000));
        self.at.time_ms += ms;
    }

    fn closed(&self) -> RunState {
        self.state.clone().closed()
    }

    /// One process, until the run ends or the process is killed.
    fn life(&mut self) {
        let resumes = !self.entries.is_empty();
        // An agent may work on after its last entry, which the files show.
        let mut state = self.state.clone();
        state.alive_at(self.at.time_ms + i64::from(self.below(5_000)));
        let state = state.closed();
        self.left = if self.chance(2) { 3 + u32::from(self.below(60)) } else { u32::MAX };
        self.over = false;
        self.at.time_ms += if resumes { 60_000 } else { 0 };
        (self.at.iteration, self.at.attempt) = (0, 0);
        self.emit(run_started());
        let open = state.resume.open.map(|open| open.iteration);
        let unchecked = open.filter(|_| state.resume.needs_only_checks());
        if resumes {
            self.emit(Event::RunContinued {
                after: state.outcome(),
                iterations: state.resume.iterations,
                cut_off: open.filter(|_| unchecked.is_none()),
                unchecked,
                usage: state.totals.spending.reported(),
                duration_ms: state.clock.active_ms,
            });
        } else if self.chance(2) {
            self.emit(warning("the settings are odd"));
        }
        if self.chance(2) {
            self.repository();
        }
        if let Some(iteration) = unchecked {
            self.at = Stamp { iteration, attempt: 1, ..self.at };
            self.started_ms = self.at.time_ms;
            self.checks();
        }
        let first = open.filter(|_| unchecked.is_none()).unwrap_or(state.resume.iterations + 1);
        let first = if unchecked.is_some() { self.at.iteration + 1 } else { first };
        for iteration in first..first + 1 + u32::from(self.below(4)) {
            if !self.over {
                self.iteration(iteration);
            }
        }
        if !self.over && self.chance(2) {
            self.end(Outcome::LimitReached, false, None);
        }
    }

    fn iteration(&mut self, number: u32) {
        (self.at.iteration, self.at.attempt) = (number, 0);
        self.started_ms = self.at.time_ms;
        self.emit(Event::IterationStarted { max_iterations: 10 });
        self.emit(tasks(self.commits));
        loop {
            self.at.attempt += 1;
            self.emit(note());
            if self.chance(8) {
                let message = "no such program";
                self.emit(retrying(Class::NotStarted, message, self.at.attempt));
                self.wait(WaitReason::Backoff);
                continue;
            }
            let class = self.work();
            match class {
                Class::Answered => break,
                Class::RateLimited => self.wait(WaitReason::RateLimit),
                _ if self.at.attempt > 2 => {
                    self.end_iteration(class, true);
                    let failure = "exit code 1".to_owned();
                    return self.end(Outcome::AgentFailed, true, Some(failure));
                }
                _ => {
                    self.emit(retrying(class, "exit code 1", self.at.attempt));
                    self.wait(WaitReason::Backoff);
                }
            }
            if self.over || self.exhausted {
                return;
            }
        }
        self.checks();
    }

    /// Runs an agent. Returns how it ended.
    fn work(&mut self) -> Class {
        self.used = Usage::default();
        self.emit(agent_started(Purpose::Work));
        self.agents += 1;
        for _ in 0..self.below(12) {
            self.pass_time();
            let choice = self.below(STREAM_EVENTS);
            let event = self.stream_event(choice);
            self.emit(event);
        }
        self.pass_time();
        let class = match self.below(4) {
            0 | 1 => Class::Answered,
            2 => Class::RateLimited,
            _ => Class::Failed,
        };
        let event = self.agent_ended(Purpose::Work, class);
        self.emit(event);
        class
    }

    fn wait(&mut self, reason: WaitReason) {
        let until_ms = self.at.time_ms + 2_000;
        self.emit(Event::Waiting { reason, until_ms });
        if self.chance(4) {
            return self.stop(true);
        }
        self.pass_time();
        if self.chance(4) {
            self.emit(Event::PauseRequested);
            self.pause();
        }
    }

    fn pause(&mut self) {
        self.emit(Event::Paused);
        self.pass_time();
        self.emit(Event::Resumed { max_iterations: 10 });
    }

    /// Everything after an answer.
    fn checks(&mut self) {
        for index in 0..u32::from(self.below(3)) {
            self.emit(Event::GuardrailStarted { index, command: "make".into() });
            self.pass_time();
            let passed = !self.chance(3);
            self.emit(guardrail_ended(index, passed));
            if !passed {
                self.emit(feedback_set());
            }
        }
        if self.chance(3) {
            self.emit(agent_started(Purpose::CommitMessage));
            self.pass_time();
            self.used = Usage::default();
            let event = self.agent_ended(Purpose::CommitMessage, Class::Answered);
            self.emit(event);
        }
        if self.chance(2) {
            self.emit(scm_started());
            self.pass_time();
            let ok = self.chance(2);
            self.emit(scm_ended(ok));
            self.repository();
        }
        if self.chance(8) {
            return self.stop(true);
        }
        let complete = self.chance(4);
        self.emit(completion_checked(complete));
        if !complete && self.chance(3) {
            self.emit(Event::Vetoed { reason: "a story is open".into() });
        }
        self.end_iteration(Class::Answered, false);
        if complete {
            return self.end(Outcome::Complete, false, None);
        }
        self.pass_time();
        if self.chance(4) {
            self.emit(looked());
            self.emit(stalling());
        }
        if self.chance(6) {
            self.emit(Event::PauseRequested);
            self.pause();
        }
        if self.chance(8) {
            self.stop(false);
        }
    }

    fn stop(&mut self, open: bool) {
        self.emit(Event::StopRequested { signal: "SIGINT".into(), now: true });
        if open {
            self.end_iteration(Class::Interrupted, true);
        }
        self.end(Outcome::Interrupted, open, None);
    }

    fn end_iteration(&mut self, class: Class, cut_off: bool) {
        let duration_ms = u64::try_from(self.at.time_ms - self.started_ms).unwrap_or(0);
        let usage = self.closed().totals.spending.iteration();
        let (guardrails_passed, complete) = (None, false);
        self.emit(Event::IterationEnded {
            class,
            guardrails_passed,
            complete,
            cut_off,
            duration_ms,
            usage,
        });
    }

    fn end(&mut self, outcome: Outcome, cut_off: bool, last_failure: Option<String>) {
        let state = self.closed();
        let message = match &last_failure {
            Some(failure) => format!("the agent failed 3 times in a row, the last time: {failure}"),
            None => "it ended".to_owned(),
        };
        // Journals of version 0.1.0 have only the message.
        let last_failure = last_failure.filter(|_| self.chance(2));
        self.emit(Event::RunEnded {
            outcome,
            exit_code: 1,
            message: message.into(),
            iterations: self.at.iteration,
            cut_off,
            duration_ms: state.clock.active_ms,
            usage: state.totals.spending.reported(),
            tools: state.totals.tools,
            tool_errors: state.totals.tool_errors,
            notify: true,
            branch: None,
            last_failure: last_failure.map(Into::into),
            used_up: None,
        });
        if self.chance(2) {
            self.at.time_ms += 500;
            self.emit(Event::Notified { ok: true });
        }
        (self.over, self.left) = (true, 0);
    }

    fn repository(&mut self) {
        let commits = (0..self.below(3)).map(|_| {
            self.commits += 1;
            let id = format!("c{}", self.commits);
            let replaces = (self.commits % 3 == 2).then(|| format!("c{}", self.commits - 1));
            Commit { id, subject: "work".to_owned(), replaces, since: None }
        });
        let commits: Vec<Commit> = commits.collect::<Vec<_>>();
        let head = format!("c{}", self.commits);
        let by_others = self.chance(4);
        self.emit(Event::Repository { head: head.into(), commits, by_others });
    }

    /// The agent reports more than before; sometimes without a price.
    fn use_more(&mut self) -> Usage {
        let tokens = u64::from(self.below(1_000));
        self.used.input_tokens += tokens;
        self.used.output_tokens += tokens / 3;
        if tokens.is_multiple_of(3) {
            *self.used.cost_usd.get_or_insert(0.0) += tokens as f64 / 1_000.0;
        }
        self.used
    }

    fn agent_ended(&mut self, purpose: Purpose, class: Class) -> Event<'static> {
        let usage = self.use_more();
        let failed = class == Class::RateLimited;
        let (kind, resets_at) = (FailureKind::RateLimit, Some(self.at.time_ms / 1_000 + 60));
        Event::AgentEnded {
            purpose,
            exit: Some(Exit::Code(0)),
            ended_by: None,
            class,
            failure: failed.then(|| Failure { kind, message: "limit".to_owned(), resets_at }),
            duration_ms: u64::from(self.below(5_000)),
            usage,
            tools: 2,
            tool_errors: 1,
            denied: 0,
            repeats_prompt: false,
            filter_errors: 0,
            complete: (class == Class::Answered).then_some(false),
            found: None,
            commit_message: (purpose == Purpose::CommitMessage).then(|| "Fix it".into()),
        }
    }

    fn stream_event(&mut self, choice: u16) -> Event<'static> {
        let id = format!("{}-{}", self.agents, choice % 3);
        match choice {
            0 => Event::Text { text: "hello".into(), joined: false, subagent: false },
            1 | 2 => Event::Usage(self.use_more()),
            3 => {
                let usage = Some(self.use_more());
                Event::Result { failure: None, usage, turns: Some(2) }
            }
            4 | 5 => tool_started(id),
            6 | 7 => tool_ended(id, choice == 7),
            8 => stderr("  at main.js:1"),
            9 => stderr("Error: no"),
            10 => Event::Todo { items: vec![todo("a", false), todo("b", true)] },
            11 => Event::OutputOmitted { events: 3, bytes: 3_000 },
            12 => Event::ModelSilent { silent_ms: 60_000, limit_ms: 90_000 },
            13 => network_refused(),
            14 => Event::DialogOpened { dialog: "trust".into() },
            15 => Event::DialogClosed,
            16 => warning("odd"),
            _ => Event::Session { id: None, model: Some("opus".into()) },
        }
    }

    fn any_event(&mut self, choice: u16) -> Event<'static> {
        let choice = choice % 48;
        match choice {
            0..STREAM_EVENTS => self.stream_event(choice),
            18 => run_started(),
            19 => Event::RunContinued {
                after: None,
                iterations: 1,
                cut_off: None,
                unchecked: Some(2),
                usage: Usage { input_tokens: 500, ..Usage::default() },
                duration_ms: 9_000,
            },
            20 | 21 => Event::IterationStarted { max_iterations: 9 },
            22 | 23 => agent_started(Purpose::Work),
            24 => agent_started(Purpose::CommitMessage),
            25 => self.agent_ended(Purpose::Work, Class::Answered),
            26 => self.agent_ended(Purpose::Work, Class::Failed),
            27 => self.agent_ended(Purpose::Work, Class::RateLimited),
            28 => self.agent_ended(Purpose::CommitMessage, Class::Answered),
            29 => retrying(Class::Failed, "exit code 1", 2),
            30 => Event::Waiting { reason: WaitReason::RateLimit, until_ms: START_MS + 20_000 },
            31 => Event::GuardrailStarted { index: 0, command: "make".into() },
            32 => guardrail_ended(0, true),
            33 => scm_started(),
            34 => scm_ended(false),
            35 => completion_checked(true),
            36 => looked(),
            37 => feedback_set(),
            38 => tasks(1),
            39 => Event::Paused,
            40 => Event::Resumed { max_iterations: 3 },
            41 | 42 => Event::IterationEnded {
                class: Class::Answered,
                guardrails_passed: None,
                complete: choice == 41,
                cut_off: choice == 42,
                duration_ms: 700,
                usage: Usage { output_tokens: 900, ..Usage::default() },
            },
            43 => stalling(),
            44 => Event::Repository { head: "c1".into(), commits: Vec::new(), by_others: false },
            45 => Event::Recovered { run: "other".into(), processes: vec![leftover()] },
            46 => Event::Planted { message: "it was renamed".into() },
            _ => Event::RunEnded {
                outcome: Outcome::Stalled,
                exit_code: 1,
                message: "it ended".into(),
                iterations: 2,
                cut_off: false,
                duration_ms: 12_000,
                usage: Usage { cost_usd: Some(0.5), output_tokens: 1_000, ..Usage::default() },
                tools: 1,
                tool_errors: 0,
                notify: false,
                branch: None,
                last_failure: None,
                used_up: None,
            },
        }
    }
}

const STREAM_EVENTS: u16 = 18;

fn run_started() -> Event<'static> {
    Event::RunStarted {
        plain_text: false,
        setup: None,
        streams_text: false,
        name: None,
        run: "20261115-202752-0000".into(),
        version: "0.1.0".into(),
        command: "run".into(),
        directory: "/p".into(),
        pid: 7,
        agent: "claude".into(),
        prompt: "Do it.".into(),
        completion: "DONE".into(),
        max_iterations: 10,
        branch: Some("main".into()),
    }
}

fn agent_started(purpose: Purpose) -> Event<'static> {
    Event::AgentStarted { purpose, pid: 8, argv: Vec::new() }
}

fn retrying(class: Class, message: &'static str, failures: u32) -> Event<'static> {
    let delay_ms = Some(1_000);
    Event::Retrying { class, message: message.into(), delay_ms, failures, max_failures: 9 }
}

fn guardrail_ended(index: u32, passed: bool) -> Event<'static> {
    Event::GuardrailEnded {
        index,
        command: "make".into(),
        exit: Some(Exit::Code(i32::from(!passed))),
        timed_out: false,
        cut_off: false,
        passed,
        fail_action: FailAction::Append,
        log: "log".into(),
        duration_ms: 5,
    }
}

fn feedback_set() -> Event<'static> {
    let message = "make failed".to_owned();
    Event::FeedbackSet { parts: vec![Feedback { action: FailAction::Append, message }] }
}

fn scm_started() -> Event<'static> {
    let argv = ["git", "commit", "-m", "Fix it"].map(str::to_owned).to_vec();
    Event::ScmStarted { task: "commit".into(), argv }
}

fn scm_ended(ok: bool) -> Event<'static> {
    let detail = "error: no\nhint: try".into();
    Event::ScmEnded { task: "commit".into(), ok, detail, duration_ms: 4 }
}

fn completion_checked(complete: bool) -> Event<'static> {
    Event::CompletionChecked { complete, found: Some("DONE".into()), scm_failed: false }
}

fn tasks(n: u32) -> Event<'static> {
    let problems = if n.is_multiple_of(2) { Vec::new() } else { vec![format!("problem {n}")] };
    let (story, title) = (Some("s1".into()), Some("a title".into()));
    Event::Tasks { done: 1, total: 2, story, title, problems, unreadable: false, marked: vec![] }
}

fn looked() -> Event<'static> {
    Event::StallChecked { unchanged: 1, same_failures: 2, fingerprint: Some("ff".into()) }
}

fn stalling() -> Event<'static> {
    Event::StallWarning { reason: StallReason::Unchanged, iterations: 2, limit: None }
}

fn warning(message: &'static str) -> Event<'static> {
    Event::Warning { message: message.into() }
}

fn note() -> Event<'static> {
    Event::Note { message: "detail".into(), important: false }
}

fn tool_started(id: String) -> Event<'static> {
    let (name, summary) = ("Bash".into(), "make".into());
    Event::ToolStarted { id: id.into(), name, summary, edit: None, subagent: false }
}

fn tool_ended(id: String, denied: bool) -> Event<'static> {
    Event::ToolEnded {
        id: id.into(),
        name: "Bash".into(),
        failed: denied,
        denied,
        lines: 1,
        chars: 1,
        preview: "x".into(),
        subagent: false,
    }
}

fn stderr(text: &'static str) -> Event<'static> {
    Event::Output { stream: Stream::Stderr, text: text.into(), joined: false }
}

fn todo(text: &str, done: bool) -> TodoItem {
    let status = if done { TodoStatus::Completed } else { TodoStatus::Pending };
    TodoItem { text: text.to_owned(), status }
}

fn leftover() -> Leftover {
    Leftover { pid: 9, command: "sleep 1000".to_owned(), survived: false }
}

fn network_refused() -> Event<'static> {
    let (host, reason, allow) = ("example.com".into(), "not listed".into(), "example.com".into());
    Event::NetworkRefused { host, port: 443, reason, allow }
}
