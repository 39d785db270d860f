//! A simulated world: agents, guardrails, git, clocks, a disk, signals and requests, at their
//! worst.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ralph_driver::run_spec::RunSpec;
use ralph_driver::world::{
    Control, Files, Journal, Part, PathKind, Processes, Repository, RunStep, Started, Uncommitted,
};
use ralph_engine::machine::Now;
use ralph_engine::prompt::COMMIT_MESSAGE_PROMPT;
use ralph_events::event::{Commit, Exit, Purpose, Stream};
use ralph_events::run_state::{Activity, RunState};
use ralph_git::branch::DetachedReason;
use ralph_git::head_log::NewCommits;
use ralph_git::lock_files::LockStatus;
use ralph_process::{ChildEnd, ChildId, Launch, Occurrence, Signal, TerminalSize};
use ralph_report::summary::Summary;
use ralph_sandbox::proxy::Refusal;
use ralph_store::requests::Request;

use crate::rng::Rng;
use crate::truth::{Start, Truth, numbers, numbers_after};

/// Thrown through the engine when the process dies.
pub(crate) struct Crash;

/// Faults in one life of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The process dies before, after or during this effect.
    pub(crate) crash_at: Option<u64>,
    /// The disk is full between these effects.
    pub(crate) full: Option<(u64, u64)>,
    /// The percentage of agents, guardrails and git calls that misbehave.
    pub(crate) misbehaviour: u64,
    /// Signals and requests arrive.
    pub(crate) company: bool,
    pub(crate) jumps: bool,
}

const DONE: &str = "<response>DONE</response>";
const INDEX_LOCK: &str = "/p/.git/index.lock";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Work,
    CommitMessage,
    Guardrail(usize),
    Scm,
    /// Inspects the index, before and after the commit message.
    Staged,
    Look,
    Notify,
}

/// How agents talk in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentKind {
    /// Their stream ends with a result.
    Structured,
    PlainText,
    /// Their completion signal is a result; they are ended after this time of silence.
    PlainTextFinal {
        ends_after_ms: u64,
    },
}

impl AgentKind {
    pub(crate) fn of(spec: &RunSpec) -> AgentKind {
        let rules = &spec.rules;
        let times = rules.check_done_ms.zip(rules.result_grace_ms);
        match times.filter(|_| spec.completion_is_final) {
            _ if !spec.agent.is_plain_text() => AgentKind::Structured,
            Some((silence_ms, grace_ms)) => {
                AgentKind::PlainTextFinal { ends_after_ms: silence_ms + grace_ms }
            }
            None => AgentKind::PlainText,
        }
    }
}

#[derive(Debug)]
enum Step {
    Print(Stream, Vec<u8>),
    End(Option<Exit>),
}

#[derive(Debug)]
struct Child {
    id: ChildId,
    kind: Kind,
    steps: VecDeque<(u64, Step)>,
    /// Claims completion once its output is complete.
    claims: bool,
    /// Its last line is a result, and whether that is out.
    has_result: bool,
    gave_result: bool,
    /// What an agent without a stream has printed, and when it did last.
    printed: Vec<u8>,
    printed_ms: u64,
    changes: u64,
    /// It is a job of the run that could make commits.
    may_commit: bool,
    ended_by_us: bool,
    killed: bool,
}

#[derive(Debug)]
pub(crate) struct SimWorld {
    rng: Rng,
    faults: Faults,
    agents: AgentKind,
    now: Now,
    effects: u64,
    children: Vec<Child>,
    next_child: u64,
    /// Signals, requests and clock jumps by time.
    outside: VecDeque<(u64, Outside)>,
    requests: Vec<Request>,
    /// The number of the last letter that the run has taken.
    taken: u64,
    /// An agent that guidance has to end before anything else happens.
    must_restart: Option<ChildId>,
    refusals: Vec<Refusal>,
    paused: bool,
    patience: u32,
    /// Signals since the start or the last resume.
    signals: u32,
    lock: Option<GitLock>,
    /// Commits that the run has not seen.
    commits: Vec<Commit>,
    truth: Rc<RefCell<Truth>>,
}

/// A lock without a holder was left by a killed git.
#[derive(Debug, Clone, Copy)]
struct GitLock {
    since_ms: u64,
    held_until_ms: Option<u64>,
}

/// The age at which a lock counts as abandoned.
const LEFT_BEHIND_MS: u64 = 60_000;

#[derive(Debug, Clone)]
enum Outside {
    Signal(Signal),
    Request(Request),
    Tell {
        now: bool,
        every: bool,
    },
    ClearGuidance,
    /// Answers an open question.
    Answer,
    Jump(i64),
    Commit,
}

impl SimWorld {
    pub(crate) fn new(
        mut rng: Rng,
        faults: Faults,
        wall_ms: i64,
        agents: AgentKind,
        truth: Rc<RefCell<Truth>>,
    ) -> Self {
        let mut outside = Vec::new();
        if faults.company {
            for _ in 0..rng.below(4) {
                let what = match rng.below(14) {
                    0 => Outside::Signal(Signal::Interrupt),
                    1 => Outside::Signal(Signal::Terminate),
                    2 => Outside::Signal(Signal::HangUp),
                    3 => Outside::Signal(Signal::Resize),
                    4 => Outside::Request(Request::Stop { now: rng.chance(50) }),
                    9..=11 => Outside::Tell { now: rng.chance(40), every: rng.chance(20) },
                    12 => Outside::ClearGuidance,
                    13 => Outside::Answer,
                    5 | 6 => Outside::Commit,
                    _ => Outside::Request(Request::Pause),
                };
                let at_ms = rng.below(60_000);
                outside.push((at_ms, what.clone()));
                if matches!(what, Outside::Signal(_)) && rng.chance(30) {
                    let repeats = (1..=rng.below(3)).map(|n| (at_ms + n * 200, what.clone()));
                    outside.extend(repeats);
                }
            }
        }
        if faults.jumps {
            for _ in 0..rng.below(3) {
                let hours = rng.below(50) as i64 - 25;
                outside.push((rng.below(60_000), Outside::Jump(hours * 3_600_000)));
            }
        }
        outside.sort_by_key(|(at, _)| *at);
        SimWorld {
            rng,
            faults,
            agents,
            now: Now { mono_ms: 0, wall_ms },
            effects: 0,
            children: Vec::new(),
            next_child: 0,
            outside: outside.into(),
            requests: Vec::new(),
            taken: 0,
            must_restart: None,
            refusals: Vec::new(),
            paused: false,
            patience: 0,
            signals: 0,
            lock: None,
            commits: Vec::new(),
            truth,
        }
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        self.now.wall_ms
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.children.is_empty()
    }

    /// An effect that leaves a trace; the process may die before, after or during it.
    fn effect<T>(&mut self, part: impl FnOnce(&mut Self), whole: impl FnOnce(&mut Self) -> T) -> T {
        self.effects += 1;
        if self.faults.crash_at != Some(self.effects) {
            return whole(self);
        }
        match self.rng.below(3) {
            0 => {}
            1 => part(self),
            _ => drop(whole(self)),
        }
        std::panic::resume_unwind(Box::new(Crash))
    }

    fn is_full(&self) -> bool {
        self.faults.full.is_some_and(|(from, to)| (from..to).contains(&self.effects))
    }

    fn lock(&mut self) -> Option<GitLock> {
        let now_ms = self.now.mono_ms;
        self.lock = self.lock.filter(|lock| lock.held_until_ms.is_none_or(|until| now_ms < until));
        self.lock
    }

    fn commit(&mut self, by_others: bool) {
        let mut truth = self.truth.borrow_mut();
        let id = format!("{:040x}", truth.by_others.len() + 1);
        truth.by_others.insert(id.clone(), by_others);
        self.commits.push(Commit { id, subject: "x".to_owned(), replaces: None, since: None });
    }

    fn refuse(&mut self) -> io::Error {
        let mut truth = self.truth.borrow_mut();
        (truth.refused, truth.has_holes) = (true, true);
        drop(truth);
        io::ErrorKind::StorageFull.into()
    }

    fn launch(&mut self, kind: Kind, launch: &Launch<'_>) -> io::Result<Started> {
        if kind != Kind::Notify && self.jobs().next().is_some() {
            self.truth.borrow_mut().violated("two jobs at once");
        }
        let bad = self.rng.chance(self.faults.misbehaviour);
        if bad && self.rng.chance(10) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.next_child += 1;
        let id = ChildId(self.next_child);
        let mut child = Child {
            id,
            kind,
            steps: VecDeque::new(),
            claims: false,
            has_result: false,
            gave_result: false,
            printed: Vec::new(),
            printed_ms: 0,
            changes: 0,
            may_commit: match kind {
                Kind::Scm => ["commit", "push"].iter().any(|task| launch.args[0] == *task),
                Kind::Staged | Kind::Look | Kind::Notify => false,
                _ => true,
            },
            ended_by_us: false,
            killed: false,
        };
        match kind {
            Kind::Work => {
                let prompt = String::from_utf8_lossy(launch.stdin);
                let (guidance, answers) =
                    (numbers_after(&prompt, "guidance#"), numbers_after(&prompt, "answer#"));
                let mut truth = self.truth.borrow_mut();
                if guidance.iter().any(|number| *number < truth.cleared) {
                    truth.violated("a prompt with guidance that was cleared");
                }
                let (purpose, journal) = (Purpose::Work, truth.journal.len());
                let told = numbers(&prompt);
                truth.starts.push(Start { purpose, told, guidance, answers, journal });
                truth.claimed = false;
                truth.unseen = false;
                truth.checks.clear();
                drop(truth);
                if bad && self.rng.chance(20) {
                    let hosts = self.rng.below(70);
                    self.refusals.extend((0..hosts).map(|n| refusal(n % 60)));
                }
                match self.agents {
                    AgentKind::Structured => self.work(&mut child, bad),
                    _ => self.work_in_plain_text(&mut child, bad),
                }
            }
            Kind::CommitMessage => {
                let mut truth = self.truth.borrow_mut();
                let (purpose, journal) = (Purpose::CommitMessage, truth.journal.len());
                let (told, guidance, answers) = (Vec::new(), Vec::new(), Vec::new());
                truth.starts.push(Start { purpose, told, guidance, answers, journal });
                drop(truth);
                self.message(&mut child, bad);
            }
            Kind::Guardrail(index) => {
                let fails = self.rng.chance(if self.faults.misbehaviour == 0 { 10 } else { 40 });
                let mut truth = self.truth.borrow_mut();
                if index == 0 && std::mem::take(&mut truth.goes_on) {
                    truth.unseen = false;
                    truth.checks.clear();
                }
                let number = truth.failures + 1;
                truth.failures += u64::from(fails);
                drop(truth);
                let words = if fails { format!("failure#{number}\n") } else { "fine\n".to_owned() };
                self.print(&mut child, words.into_bytes());
                if !(bad && self.rng.chance(20)) {
                    self.end_with(&mut child, Some(Exit::Code(i32::from(fails))));
                }
            }
            Kind::Scm => {
                let staged = launch.args.first().is_some_and(|word| word == "diff");
                if bad && self.lock.is_none() && self.rng.chance(30) {
                    let since_ms = self.now.mono_ms;
                    let held_until_ms = self.rng.maybe(50, |rng| since_ms + rng.below(20_000));
                    self.lock = Some(GitLock { since_ms, held_until_ms });
                }
                let locked = self.lock().is_some();
                if locked {
                    let words = format!("fatal: Unable to create '{INDEX_LOCK}': File exists.\n");
                    self.print(&mut child, words.into_bytes());
                }
                let mut truth = self.truth.borrow_mut();
                let code = match locked || bad && self.rng.chance(30) {
                    true => 128,
                    false => i32::from(staged && truth.dirty),
                };
                match launch.args.first().and_then(|word| word.to_str()) {
                    Some("add") if code == 0 => truth.beside = 0,
                    Some("commit") if code == 0 => {
                        // Unstaged files stay.
                        truth.dirty = truth.beside > 0;
                        truth.commits += 1;
                        child.changes = 1;
                    }
                    _ => {}
                }
                drop(truth);
                if !(bad && self.rng.chance(5)) {
                    self.end_with(&mut child, Some(Exit::Code(code)));
                }
            }
            Kind::Staged => {
                let truth = self.truth.borrow();
                let (commits, beside) = (truth.commits, truth.beside);
                drop(truth);
                let words = format!("# branch.oid {commits}\0# branch.head main\0");
                let besides = (0..beside).map(|n| format!("? file{n}\0")).collect::<String>();
                self.print(&mut child, (words + &besides).into_bytes());
                if bad && self.rng.chance(20) {
                    if self.rng.chance(50) {
                        self.end_with(&mut child, Some(Exit::Code(128)));
                    }
                } else {
                    self.end_with(&mut child, Some(Exit::Code(0)));
                }
            }
            Kind::Look => {
                let changes = self.truth.borrow().changes;
                self.print(&mut child, format!("# branch.oid {changes}\0").into_bytes());
                if bad && self.rng.chance(20) {
                    // It hangs, or this is not a repository.
                    if self.rng.chance(50) {
                        self.end_with(&mut child, Some(Exit::Code(128)));
                    }
                } else {
                    self.truth.borrow_mut().looks.push(changes);
                    self.end_with(&mut child, Some(Exit::Code(0)));
                }
            }
            Kind::Notify => {
                if !(bad && self.rng.chance(20)) {
                    let code = i32::from(bad && self.rng.chance(50));
                    self.end_with(&mut child, Some(Exit::Code(code)));
                }
            }
        }
        self.children.push(child);
        Ok(Started::new((id, 1000 + self.next_child as u32)))
    }

    fn work(&mut self, child: &mut Child, bad: bool) {
        let rng = &mut self.rng;
        child.changes = u64::from(rng.chance(60));
        let tokens = 100 + rng.below(2_000);
        let cost = rng.below(50) as f64 / 100.0;
        let done = rng.chance(40);
        let assistant = |content: String| {
            format!(
                r#"{{"type":"assistant","message":{{"id":"m","role":"assistant","content":[{content}],"usage":{{"input_tokens":{tokens},"output_tokens":1}}}},"parent_tool_use_id":null,"session_id":"s"}}"#
            )
        };
        let text = |words: &str| assistant(format!(r#"{{"type":"text","text":"{words}"}}"#));
        let result = |more: &str| {
            format!(
                r#"{{"type":"result","subtype":"success","session_id":"s","num_turns":1,"total_cost_usd":{cost},"usage":{{"input_tokens":{tokens},"output_tokens":2}},{more}}}"#
            )
        };
        let good = r#""is_error":false,"result":"ok""#;
        // Tool output and similar words complete nothing.
        let tool = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"<response>DONE</response>"}]},"parent_tool_use_id":null,"session_id":"s"}"#;
        let words = if done { "Ready. <response>DONE</response>" } else { "not DONE yet" };
        let mut lines = vec![text("working"), tool.to_owned(), text(words)];
        if rng.chance(15) {
            let number = rng.below(4);
            lines.insert(1, text(&format!("<question>ask {number}?</question>")));
        }
        let (mut exit, mut ends) = (Exit::Code(0), true);
        child.claims = done;
        // A limit may last.
        let mut truth = self.truth.borrow_mut();
        let how = match bad {
            _ if truth.limited && rng.chance(50) => 3,
            true => rng.below(10),
            false => 10,
        };
        truth.limited = how == 3;
        drop(truth);
        match how {
            0 => exit = Exit::Code(1),
            1 => ends = false,
            2 => {
                lines.push(result(good));
                (child.has_result, ends) = (true, false);
            }
            3 => {
                lines = vec![result(r#""is_error":true,"api_error_status":429,"result":"limit""#)];
                (child.claims, exit) = (false, Exit::Code(1));
            }
            4 => {
                lines = vec![result(r#""is_error":true,"api_error_status":401,"result":"login""#)];
                (child.claims, exit) = (false, Exit::Code(1));
            }
            5 => {
                lines.clear();
                child.claims = false;
            }
            6 => {
                // The last line is cut off.
                let last = lines.pop().unwrap_or_default();
                lines.push(last[..last.len() / 2].to_owned());
                child.claims = false;
            }
            7 => exit = Exit::Signal(9),
            8 => {
                lines.push("no JSON at all".to_owned());
                lines.push(result(good));
                child.has_result = true;
            }
            _ => {
                lines.push(result(good));
                child.has_result = true;
            }
        }
        // A flood of output first.
        if self.rng.chance(10) {
            let flood = text(&"so much to say ".repeat(20));
            lines.splice(0..0, std::iter::repeat_n(flood, 30));
        }
        let cut = lines.len().saturating_sub(1);
        for (n, line) in lines.into_iter().enumerate() {
            let mut bytes = line.into_bytes();
            if n != cut || self.rng.chance(90) {
                bytes.push(b'\n');
            }
            // In pieces, as from a pipe.
            let at = self.rng.below(bytes.len() as u64 + 1) as usize;
            let rest = bytes.split_off(at);
            self.print(child, bytes);
            self.print(child, rest);
        }
        if ends {
            self.end_with(child, Some(exit));
        }
    }

    fn work_in_plain_text(&mut self, child: &mut Child, bad: bool) {
        child.changes = u64::from(self.rng.chance(60));
        let words = if self.rng.chance(40) { DONE } else { "not yet" };
        self.print(child, b"working\n".to_vec());
        let mut line = words.as_bytes().to_vec();
        if self.rng.chance(90) {
            line.push(b'\n');
        }
        let rest = line.split_off(self.rng.below(line.len() as u64 + 1) as usize);
        self.print(child, line);
        self.print(child, rest);
        match if bad { self.rng.below(4) } else { 4 } {
            0 => {}
            1 => self.end_with(child, Some(Exit::Signal(9))),
            2 => self.end_with(child, Some(Exit::Code(1))),
            _ => self.end_with(child, Some(Exit::Code(0))),
        }
    }

    fn message(&mut self, child: &mut Child, bad: bool) {
        let said = if bad && self.rng.chance(50) { "" } else { "Do it" };
        if self.agents != AgentKind::Structured {
            self.print(child, format!("{said}\n").into_bytes());
            child.changes = u64::from(self.faults.misbehaviour > 0 && self.rng.chance(40));
            return self.end_with(child, Some(Exit::Code(0)));
        }
        // It does more than asked.
        child.changes = u64::from(self.faults.misbehaviour > 0 && self.rng.chance(40));
        let line = format!(
            r#"{{"type":"assistant","message":{{"id":"m","role":"assistant","content":[{{"type":"text","text":"{said}"}}]}},"parent_tool_use_id":null,"session_id":"s"}}"#
        );
        self.print(child, format!("{line}\n").into_bytes());
        self.print(
            child,
            b"{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"x\",\"total_cost_usd\":0.01}\n".to_vec(),
        );
        self.end_with(child, Some(Exit::Code(0)));
    }

    fn later(&mut self, child: &Child) -> u64 {
        let last = child.steps.back().map_or(self.now.mono_ms, |(at, _)| *at);
        last + self.rng.pick(&[0, 1, 20, 500, 3_000])
    }

    fn print(&mut self, child: &mut Child, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let at = self.later(child);
            child.steps.push_back((at, Step::Print(Stream::Stdout, bytes)));
        }
    }

    fn end_with(&mut self, child: &mut Child, exit: Option<Exit>) {
        let at = self.later(child);
        child.steps.push_back((at, Step::End(exit)));
    }

    /// Applies the effects of a child that has ended.
    fn gone(&mut self, child: &Child, exit: Option<Exit>) {
        let commits = child.kind == Kind::CommitMessage && self.rng.chance(50);
        if child.changes > 0 && (commits || child.kind == Kind::Scm) {
            self.commit(false);
        }
        let mut truth = self.truth.borrow_mut();
        match child.kind {
            Kind::Work => {
                // An agent that is ended may have done half of its work.
                truth.changes += child.changes;
                truth.dirty |= child.changes > 0;
                let is_final = matches!(self.agents, AgentKind::PlainTextFinal { .. });
                truth.claimed = child.claims
                    && (is_final
                        || child.gave_result
                        || (!child.ended_by_us && exit == Some(Exit::Code(0))));
                if child.changes > 0
                    && let Some(open) = truth.stories.iter_mut().find(|passes| !**passes)
                {
                    *open = true;
                }
            }
            Kind::Guardrail(index) => {
                let passed = exit == Some(Exit::Code(0)) && !child.ended_by_us;
                truth.checks.push((index, passed));
            }
            Kind::Scm => truth.changes += child.changes,
            Kind::CommitMessage if child.changes > 0 => {
                truth.changes += child.changes;
                (truth.unseen, truth.meddled) = (true, truth.meddled + 1);
                if commits {
                    (truth.commits, truth.dirty, truth.beside) = (truth.commits + 1, false, 0);
                } else {
                    (truth.beside, truth.dirty) = (truth.beside + 1, true);
                }
            }
            Kind::CommitMessage | Kind::Staged | Kind::Look | Kind::Notify => {}
        }
    }

    fn next_step(&self) -> Option<(usize, u64)> {
        let steps = self.children.iter().enumerate();
        let steps = steps.filter_map(|(n, child)| Some((n, child.steps.front()?.0)));
        steps.min_by_key(|(_, at)| *at)
    }

    /// A person answers the oldest open question.
    fn answer(&mut self) {
        let mut truth = self.truth.borrow_mut();
        truth.read();
        let state = truth.state();
        if let Some(open) = state.steering.open_questions().next() {
            let question = open.id.clone();
            truth.send(|number| Request::Answer { question, text: format!("answer#{number}") });
        }
    }

    fn is_parked(&self) -> bool {
        let mut truth = self.truth.borrow_mut();
        truth.read();
        matches!(truth.state().activity, Activity::Parked { .. })
    }

    /// Guidance that does not wait ends a working agent at once.
    fn check_restart(&mut self) {
        let Some(id) = self.must_restart.take() else { return };
        if self.jobs().any(|child| child.id == id && !child.ended_by_us) {
            self.truth.borrow_mut().violated("an agent was not ended for immediate guidance");
        }
    }

    fn send_signal(&mut self, signal: Signal) -> Occurrence {
        if signal != Signal::Resize {
            self.signals += 1;
            self.truth.borrow_mut().signals.push((signal, self.signals));
        }
        Occurrence::Signal(signal)
    }

    /// A second signal ends what is running, a third kills it.
    fn check_signals(&self) {
        let mut truth = self.truth.borrow_mut();
        if self.signals >= 2 && self.jobs().any(|child| !child.ended_by_us) {
            truth.violated("a job was not terminated after a second signal");
        }
        if self.signals >= 3 && self.jobs().any(|child| !child.killed) {
            truth.violated("a job was not killed after a third signal");
        }
    }

    /// Children that the run waits for.
    fn jobs(&self) -> impl Iterator<Item = &Child> {
        self.children.iter().filter(|child| child.kind != Kind::Notify)
    }

    /// A silent agent that is done does not hold up the run.
    fn check_done(&self, mono_ms: u64) {
        let AgentKind::PlainTextFinal { ends_after_ms } = self.agents else { return };
        let is_late = |child: &Child| {
            child.claims && !child.ended_by_us && mono_ms > child.printed_ms + ends_after_ms
        };
        if self.jobs().any(is_late) {
            self.truth.borrow_mut().violated("a finished agent was not terminated");
        }
    }

    fn pass_to(&mut self, mono_ms: u64) {
        self.check_done(mono_ms);
        let passed = mono_ms.saturating_sub(self.now.mono_ms);
        self.now.mono_ms += passed;
        self.now.wall_ms += passed as i64;
    }
}

impl Processes for SimWorld {
    fn now(&self) -> Now {
        self.now
    }

    fn start(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<Started> {
        let kind = match part {
            Part::InteractiveAgent | Part::Filter => return Err(io::ErrorKind::Unsupported.into()),
            Part::Agent if launch.stdin == COMMIT_MESSAGE_PROMPT.as_bytes() => Kind::CommitMessage,
            Part::Agent => Kind::Work,
            Part::Notify => Kind::Notify,
            Part::Check if launch.program == "sh" => {
                let command = launch.args[1].to_string_lossy().into_owned();
                let index = command.strip_prefix("check ").and_then(|n| n.parse().ok());
                Kind::Guardrail(index.unwrap_or(usize::MAX))
            }
            Part::Scm if launch.args.iter().any(|word| word == "--no-renames") => Kind::Staged,
            Part::Scm if launch.args.iter().any(|word| word == "status") => Kind::Look,
            Part::Scm | Part::Check => Kind::Scm,
        };
        // A child of a process that dies at once has started all the same.
        self.effect(|_| (), |world| world.launch(kind, launch))
    }

    fn feed(&mut self, _child: ChildId, _bytes: &[u8]) -> bool {
        false
    }

    fn ask(&mut self, _child: ChildId, _question: &[u8], _patience_ms: u64) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close_input(&mut self, _child: ChildId) {}

    fn end(&mut self, child: ChildId, at_once: bool) {
        let grace = if at_once { 0 } else { self.rng.pick(&[1, 100, 5_000]) };
        let at = self.now.mono_ms + grace;
        self.effect(
            |_| (),
            |world| {
                if let Some(child) = world.children.iter_mut().find(|it| it.id == child) {
                    child.ended_by_us = true;
                    child.killed |= at_once;
                    // Output due before its end is printed; the rest is lost.
                    let is_print = |step: &Step| matches!(step, Step::Print(..));
                    let is_cut = |(when, step): &(u64, Step)| *when >= at && is_print(step);
                    if world.agents == AgentKind::Structured && child.steps.iter().any(is_cut) {
                        (child.has_result, child.claims) = (false, false);
                    }
                    child.steps.retain(|(when, step)| *when < at && is_print(step));
                    child.steps.push_back((at, Step::End(Some(Exit::Signal(15)))));
                }
            },
        );
    }

    fn resize(&mut self, _child: ChildId) -> TerminalSize {
        TerminalSize::DEFAULT
    }

    fn reads_keys(&mut self, _child: ChildId) -> bool {
        true
    }

    fn rest(&mut self) {}

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        self.check_signals();
        self.check_restart();
        loop {
            let step = self.next_step();
            let outside = self.outside.front().map(|(at, _)| *at);
            let soonest = [step.map(|(_, at)| at), outside].into_iter().flatten().min();
            match (soonest, until_mono_ms) {
                (Some(at), until) if until.is_none_or(|until| at <= until) => self.pass_to(at),
                (_, Some(until)) => {
                    self.pass_to(until);
                    return Occurrence::Deadline;
                }
                (_, None) if self.paused => {
                    self.paused = false;
                    let at = self.now.mono_ms + 1_000;
                    let resume = Request::Resume { max_iterations: None };
                    self.outside.push_front((at, Outside::Request(resume)));
                    continue;
                }
                (_, None) if self.is_parked() => {
                    if self.jobs().next().is_some() {
                        self.truth.borrow_mut().violated("a job runs while the run is parked");
                    }
                    self.outside.push_front((self.now.mono_ms + 1_000, Outside::Answer));
                    continue;
                }
                (_, None) => {
                    // Nothing will happen any more: send a signal.
                    self.patience += 1;
                    if self.patience > 5 {
                        self.truth.borrow_mut().violated("it hangs and ignores signals");
                        std::panic::resume_unwind(Box::new(Crash));
                    }
                    self.pass_to(self.now.mono_ms + 60_000);
                    return self.send_signal(Signal::Interrupt);
                }
            }
            if outside == soonest
                && let Some((_, what)) = self.outside.pop_front()
            {
                match what {
                    Outside::Signal(signal) => return self.send_signal(signal),
                    Outside::Jump(by) => self.now.wall_ms += by,
                    // Seen while a job runs, it is taken for the job's.
                    Outside::Commit => {
                        let by_others = !self.jobs().any(|child| child.may_commit);
                        self.commit(by_others);
                    }
                    Outside::Tell { now, every } => {
                        let text = |number| format!("guidance#{number}");
                        self.truth.borrow_mut().send(|number| Request::Tell {
                            text: text(number),
                            now,
                            every,
                        });
                        let works = |child: &&Child| {
                            child.kind == Kind::Work && !child.gave_result && !child.ended_by_us
                        };
                        let ends = now && self.agents == AgentKind::Structured;
                        let working = self.jobs().find(works).map(|child| child.id);
                        self.must_restart = working.filter(|_| ends);
                        return Occurrence::ControlRequest;
                    }
                    Outside::ClearGuidance => {
                        self.truth.borrow_mut().send(|_| Request::ClearGuidance);
                        return Occurrence::ControlRequest;
                    }
                    Outside::Answer => {
                        self.answer();
                        return Occurrence::ControlRequest;
                    }
                    Outside::Request(request) => {
                        self.paused |= request == Request::Pause;
                        if let Request::Resume { .. } = request {
                            self.signals = 0;
                        }
                        self.requests.push(request);
                        return Occurrence::ControlRequest;
                    }
                }
                continue;
            }
            let Some((index, _)) = step else { continue };
            let child = &mut self.children[index];
            let id = child.id;
            match child.steps.pop_front() {
                Some((_, Step::Print(stream, bytes))) => {
                    *buf = bytes;
                    let is_last = child.steps.iter().all(|(_, step)| matches!(step, Step::End(_)));
                    child.gave_result = child.has_result && is_last;
                    if self.agents != AgentKind::Structured && child.kind == Kind::Work {
                        child.printed.extend_from_slice(buf);
                        child.printed_ms = self.now.mono_ms;
                        child.claims = String::from_utf8_lossy(&child.printed).contains(DONE);
                    }
                    return Occurrence::Output(id, stream);
                }
                Some((_, Step::End(exit))) => {
                    let child = self.children.remove(index);
                    self.gone(&child, exit);
                    return Occurrence::Ended(id, ChildEnd { exit, leftovers: Vec::new() });
                }
                None => {}
            }
        }
    }
}

impl Files for SimWorld {
    fn kind(&mut self, path: &Path) -> PathKind {
        match path == Path::new(INDEX_LOCK) && self.lock().is_none() {
            true => PathKind::Missing,
            false => PathKind::File,
        }
    }

    fn read(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn read_tasks(&mut self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(task_list(&self.truth.borrow().stories))
    }

    fn write(&mut self, _path: &Path, _bytes: &[u8]) -> io::Result<()> {
        self.effect(|_| (), |world| if world.is_full() { Err(world.refuse()) } else { Ok(()) })
    }

    fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write(path, bytes)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        if path != Path::new(INDEX_LOCK) {
            return Ok(());
        }
        let age_ms = self.lock().map(|lock| self.now.mono_ms - lock.since_ms);
        let is_held = self.lock.take().is_some_and(|lock| lock.held_until_ms.is_some());
        let mut truth = self.truth.borrow_mut();
        if is_held || age_ms.is_some_and(|age_ms| age_ms < LEFT_BEHIND_MS) {
            truth.violated("a lock was removed that may be in use");
        }
        truth.unlocked += 1;
        Ok(())
    }

    fn open_log(&mut self, path: &Path) -> io::Result<()> {
        self.write(path, b"")
    }

    fn append_log(&mut self, _bytes: &[u8]) -> io::Result<()> {
        if self.is_full() { Err(self.refuse()) } else { Ok(()) }
    }

    fn file_fingerprint(&mut self, _path: &Path, _budget: u64) -> (u64, u64) {
        (self.truth.borrow().changes, 0)
    }

    fn tree_fingerprint(&mut self, _path: &Path, _most: usize) -> Option<u64> {
        None
    }
}

impl Journal for SimWorld {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let torn = self.rng.below(bytes.len() as u64 + 1) as usize;
        self.effect(
            |world| world.truth.borrow_mut().journal.extend_from_slice(&bytes[..torn]),
            |world| {
                if world.is_full() {
                    return Err(world.refuse());
                }
                world.truth.borrow_mut().journal.extend_from_slice(bytes);
                Ok(())
            },
        )
    }

    fn append_raw(&mut self, _bytes: &[u8]) -> io::Result<()> {
        if self.is_full() { Err(self.refuse()) } else { Ok(()) }
    }

    fn make_room(&mut self) -> bool {
        false
    }

    fn sync(&mut self) {
        self.effect(|_| (), |_| ());
    }

    fn run_state(&mut self) -> RunState {
        let mut truth = self.truth.borrow_mut();
        truth.read();
        truth.state()
    }
}

impl Repository for SimWorld {
    fn new_commits(&mut self, _thorough: bool) -> Option<NewCommits> {
        let commits = std::mem::take(&mut self.commits);
        Some(NewCommits { head: commits.last()?.id.clone(), commits })
    }

    fn abandoned(&mut self, _lock: &Path) -> LockStatus {
        match self.lock() {
            Some(GitLock { since_ms, held_until_ms: None }) => {
                match (since_ms + LEFT_BEHIND_MS).saturating_sub(self.now.mono_ms) {
                    0 => LockStatus::Stale,
                    left => LockStatus::MaybeStale(left),
                }
            }
            _ => LockStatus::InUse,
        }
    }

    fn replaced(&mut self) -> Option<PathBuf> {
        None
    }

    fn branch(&mut self) -> Option<String> {
        None
    }

    fn uncommitted(&mut self) -> Uncommitted {
        let files = self.truth.borrow().dirty.then(|| "file".to_owned());
        Uncommitted { files: files.into_iter().collect(), submodules: Vec::new() }
    }

    fn no_branch(&mut self) -> Option<DetachedReason> {
        None
    }

    fn read_only_git_args(&mut self) -> Vec<OsString> {
        Vec::new()
    }

    fn look_up(&mut self, _facts: &mut Summary) {}
}

impl Control for SimWorld {
    fn requests(&mut self) -> Vec<(u64, Request)> {
        let control = std::mem::take(&mut self.requests).into_iter().map(|request| (0, request));
        let truth = self.truth.borrow();
        let mailbox = truth.mailbox.iter().filter(|(number, _)| *number > self.taken).cloned();
        let taken: Vec<(u64, Request)> = control.chain(mailbox).collect();
        drop(truth);
        self.taken = taken.last().map_or(self.taken, |(number, _)| self.taken.max(*number));
        taken
    }

    fn questions(&mut self) -> Vec<String> {
        match self.faults.company && self.rng.chance(2) {
            true => vec![format!("ask {}?", self.rng.below(4))],
            false => Vec::new(),
        }
    }

    fn acknowledge_requests(&mut self) {
        let taken = self.taken;
        self.effect(|_| (), |world| world.truth.borrow_mut().acknowledge(taken));
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refusals)
    }

    fn cleanup(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn obstacle(&mut self, _next: RunStep) -> Option<String> {
        None
    }
}

fn refusal(n: u64) -> Refusal {
    Refusal { host: format!("host{n}.example"), port: 443, private: false }
}

pub(crate) fn task_list(stories: &[bool]) -> Vec<u8> {
    let story = |(n, passes): (usize, &bool)| {
        format!(
            r#"{{"id":"s{n}","title":"t","acceptanceCriteria":["c"],"priority":1,"passes":{passes},"notes":"n"}}"#
        )
    };
    let stories: Vec<String> = stories.iter().enumerate().map(story).collect();
    format!(
        r#"{{"project":"p","branchName":"b","description":"d","userStories":[{}]}}"#,
        stories.join(",")
    )
    .into_bytes()
}
