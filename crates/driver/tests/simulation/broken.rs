//! Engines that are broken on purpose. What looks at histories must notice each of them; if it does not,
//! it would not notice such a fault in the real one either.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ralph_driver::run_spec::RunSpec;
use ralph_driver::world::{
    Control, Files, Journal, Part, PathKind, Processes, Repository, RunStep, Started, Uncommitted,
    World,
};
use ralph_engine::machine::Now;
use ralph_engine::rules::QuestionMode;
use ralph_events::event::{Entry, Event, Exit};
use ralph_events::run_state::{Pending, RunState};
use ralph_git::branch::DetachedReason;
use ralph_git::head_log::NewCommits;
use ralph_git::lock_files::LockStatus;
use ralph_process::{ChildEnd, ChildId, Launch, Occurrence, Signal, TerminalSize};
use ralph_report::summary::Summary;
use ralph_sandbox::proxy::Refusal;
use ralph_store::requests::Request;

const RUN_ENDED: &[u8] = br#""run_ended""#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Ignores the result of guardrails.
    GuardrailsIgnored,
    /// Shows events before they are in the journal.
    JournalLate,
    /// Resumes without the pending feedback.
    FeedbackForgotten,
    /// Resumes without the usage so far.
    SpendingForgotten,
    /// Resumes at the first iteration.
    IterationsForgotten,
    /// Resumes without the decision made before the kill.
    DecisionForgotten,
    /// Resumes without the answer given before the kill.
    AnswerForgotten,
    /// Resumes without the commit message.
    MessageForgotten,
    /// Resumes as if the answer had been checked.
    ChecksForgotten,
    /// Resumes as if the last SCM task had not failed.
    ScmFailureForgotten,
    /// Resumes without the failures in a row.
    FailuresForgotten,
    /// Resumes as if no iteration had succeeded.
    SuccessForgotten,
    /// Resumes without the rate limits in a row.
    LimitsForgotten,
    /// It does not end what it should.
    NobodyEnded,
    /// It takes every lock of git's for left behind.
    LocksTaken,
    /// It does not care what else an agent does that is asked for a commit message.
    MeddlingUnseen,
    /// It ends the running job at the first signal.
    FirstSignalEnds,
    /// It waits for the running job after a second signal.
    SecondSignalWaits,
    /// It grants the running job its grace period after a third signal.
    ThirdSignalWaits,
    /// It stops at a SIGTERM that asks for a pause.
    TermStops,
    /// It reports every refused host.
    RefusalsUncapped,
    /// It exits with its outcome though the journal does not have it.
    EndLost,
    /// It does not look for uncommitted work at the end.
    FinalChecksSkipped,
    /// It ends without a notification.
    NotifyForgotten,
    /// It does not notice that a silent agent is done.
    DoneUnnoticed,
    /// It takes commits from outside for its own.
    CommitsClaimed,
    /// It stamps the end of an iteration with the next one.
    StampsLate,
    /// Resumes without the guidance that waits.
    GuidanceForgotten,
    /// Resumes as if no guidance had been delivered.
    GuidanceRepeated,
    /// It does not recognize guidance that it took before a kill.
    GuidanceDoubled,
    /// It takes later guidance first.
    GuidanceReversed,
    /// It acknowledges requests before they are in the journal.
    AcknowledgedEarly,
    /// It keeps guidance that the user has dropped.
    ClearIgnored,
    /// It does not restart the iteration for guidance that must not wait.
    RestartForgotten,
    /// Resumes without the answers that wait.
    AnswersForgotten,
    /// It continues though it should wait for an answer.
    ParkingForgotten,
    /// It works while it is parked.
    WorksParked,
    /// It starts another iteration after a request to stop.
    StopForgotten,
}

impl Fault {
    pub(crate) const ALL: [Fault; 38] = [
        Fault::GuardrailsIgnored,
        Fault::JournalLate,
        Fault::FeedbackForgotten,
        Fault::SpendingForgotten,
        Fault::IterationsForgotten,
        Fault::DecisionForgotten,
        Fault::AnswerForgotten,
        Fault::MessageForgotten,
        Fault::ChecksForgotten,
        Fault::ScmFailureForgotten,
        Fault::FailuresForgotten,
        Fault::SuccessForgotten,
        Fault::LimitsForgotten,
        Fault::NobodyEnded,
        Fault::LocksTaken,
        Fault::MeddlingUnseen,
        Fault::FirstSignalEnds,
        Fault::SecondSignalWaits,
        Fault::ThirdSignalWaits,
        Fault::TermStops,
        Fault::RefusalsUncapped,
        Fault::EndLost,
        Fault::FinalChecksSkipped,
        Fault::NotifyForgotten,
        Fault::DoneUnnoticed,
        Fault::CommitsClaimed,
        Fault::StampsLate,
        Fault::GuidanceForgotten,
        Fault::GuidanceRepeated,
        Fault::GuidanceDoubled,
        Fault::GuidanceReversed,
        Fault::AcknowledgedEarly,
        Fault::ClearIgnored,
        Fault::RestartForgotten,
        Fault::AnswersForgotten,
        Fault::ParkingForgotten,
        Fault::WorksParked,
        Fault::StopForgotten,
    ];

    /// The spec as the broken engine reads it.
    pub(crate) fn misread(fault: Option<Fault>, spec: &RunSpec) -> Cow<'_, RunSpec> {
        let mut misread = Cow::Borrowed(spec);
        match fault {
            Some(Fault::TermStops) => misread.to_mut().rules.term_pauses = false,
            Some(Fault::RefusalsUncapped) => misread.to_mut().rules.max_refusals = usize::MAX,
            Some(Fault::NotifyForgotten) => misread.to_mut().notify = None,
            Some(Fault::ParkingForgotten) if spec.rules.questions == QuestionMode::Wait => {
                misread.to_mut().rules.questions = QuestionMode::Continue;
            }
            Some(Fault::DoneUnnoticed) => misread.to_mut().rules.check_done_ms = None,
            _ => {}
        }
        misread
    }

    /// Lines of the journal as the broken engine writes them.
    pub(crate) fn miswrite(fault: Option<Fault>, lines: &[u8]) -> Cow<'_, [u8]> {
        let miswrites = [Fault::StampsLate, Fault::CommitsClaimed, Fault::WorksParked];
        if !fault.is_some_and(|fault| miswrites.contains(&fault)) {
            return Cow::Borrowed(lines);
        }
        let miswritten = |line: &str| {
            let mut entry: Entry<'_> = serde_json::from_str(line).expect("a line of the journal");
            match &mut entry.event {
                Event::IterationEnded { .. } if fault == Some(Fault::StampsLate) => {
                    entry.at.iteration += 1;
                }
                // The run continues as if it had not said this.
                Event::Unparked if fault == Some(Fault::WorksParked) => {
                    entry.event = Event::Warning { message: "".into() };
                }
                Event::Repository { by_others, .. } if fault == Some(Fault::CommitsClaimed) => {
                    *by_others = false;
                }
                _ => {}
            }
            serde_json::to_string(&entry).expect("a line of the journal") + "\n"
        };
        let lines = String::from_utf8_lossy(lines);
        lines.lines().map(miswritten).collect::<String>().into_bytes().into()
    }

    /// Applies the fault to the state from which the run is resumed.
    pub(crate) fn remember(fault: Option<Fault>, mut state: RunState) -> RunState {
        let point = &mut state.resume;
        match (fault, &point.pending) {
            (Some(Fault::AnswerForgotten), Pending::Unchecked(_)) => {
                point.pending = Pending::Nothing;
            }
            (Some(Fault::ChecksForgotten), Pending::Unchecked(report)) => {
                let (class, complete) = (report.class, report.complete);
                point.pending = Pending::Checked { class, complete, found: None };
            }
            (Some(Fault::FeedbackForgotten), _) => point.feedback.clear(),
            (Some(Fault::SpendingForgotten), _) => state.totals.spending = Default::default(),
            (Some(Fault::IterationsForgotten), _) => point.iterations = 0,
            (Some(Fault::DecisionForgotten), _) => point.pending = Pending::Nothing,
            (Some(Fault::MessageForgotten), _) => point.commit_message = None,
            (Some(Fault::ScmFailureForgotten), _) => point.scm_failed = false,
            (Some(Fault::FailuresForgotten), _) => point.failures = 0,
            (Some(Fault::SuccessForgotten), _) => point.any_succeeded = false,
            (Some(Fault::GuidanceForgotten), _) => state.steering.guidance.clear(),
            (Some(Fault::GuidanceRepeated), _) => {
                state.steering.guidance.iter_mut().for_each(|it| it.is_used = false);
            }
            (Some(Fault::AnswersForgotten), _) => {
                let answered =
                    state.steering.questions.iter_mut().filter_map(|it| it.answer.as_mut());
                answered.for_each(|answer| answer.is_used = true);
            }
            (Some(Fault::LimitsForgotten), _) => point.limits = Default::default(),
            _ => {}
        }
        state
    }
}

/// The hands and ears of such an engine.
#[derive(Debug)]
pub(crate) struct Through<'w, W> {
    pub(crate) world: &'w mut W,
    pub(crate) fault: Option<Fault>,
    pub(crate) guardrails: Vec<ChildId>,
    pub(crate) late: Vec<u8>,
    /// The last look at what is staged.
    pub(crate) staged: Option<ChildId>,
    pub(crate) signals: u32,
    pub(crate) repeated: Option<Signal>,
    /// Where a broken engine starts to count requests.
    pub(crate) numbers_from: u64,
}

impl<'w, W> Through<'w, W> {
    pub(crate) fn new(world: &'w mut W, fault: Option<Fault>) -> Self {
        Through {
            world,
            fault,
            guardrails: Vec::new(),
            late: Vec::new(),
            staged: None,
            signals: 0,
            repeated: None,
            numbers_from: 0,
        }
    }
}

/// Methods that do what the world does.
macro_rules! forward {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $output:ty)?;)*) => {
        $(fn $name(&mut self $(, $arg: $type)*) $(-> $output)? {
            self.world.$name($($arg),*)
        })*
    };
}

impl<W: World> Processes for Through<'_, W> {
    fn now(&self) -> Now {
        self.world.now()
    }

    fn start(&mut self, part: Part, launch: &Launch<'_>) -> io::Result<Started> {
        let started = self.world.start(part, launch)?;
        if part == Part::Check && launch.program == "sh" {
            self.guardrails.push(started.child);
        }
        if launch.args.iter().any(|word| word == "--no-renames") {
            self.staged = Some(started.child);
        }
        Ok(started)
    }

    fn end(&mut self, child: ChildId, at_once: bool) {
        if self.fault != Some(Fault::NobodyEnded) {
            let at_once = at_once && self.fault != Some(Fault::ThirdSignalWaits);
            self.world.end(child, at_once);
        }
    }

    fn wait(&mut self, until_mono_ms: Option<u64>, buf: &mut Vec<u8>) -> Occurrence {
        if let Some(signal) = self.repeated.take() {
            return Occurrence::Signal(signal);
        }
        match self.world.wait(until_mono_ms, buf) {
            Occurrence::Signal(signal) if signal != Signal::Resize => {
                self.signals += 1;
                match (self.fault, self.signals) {
                    (Some(Fault::FirstSignalEnds), 1) if signal == Signal::Interrupt => {
                        self.repeated = Some(signal);
                    }
                    (Some(Fault::SecondSignalWaits), 2) => {
                        return Occurrence::Signal(Signal::Resize);
                    }
                    _ => {}
                }
                Occurrence::Signal(signal)
            }
            Occurrence::Ended(child, _)
                if self.fault == Some(Fault::GuardrailsIgnored)
                    && self.guardrails.contains(&child) =>
            {
                let exit = Some(Exit::Code(0));
                Occurrence::Ended(child, ChildEnd { exit, leftovers: Vec::new() })
            }
            Occurrence::Output(child, stream)
                if self.fault == Some(Fault::MeddlingUnseen) && self.staged == Some(child) =>
            {
                *buf = b"# branch.oid 1\0# branch.head main\0".to_vec();
                Occurrence::Output(child, stream)
            }
            other => other,
        }
    }

    forward! {
        fn feed(&mut self, child: ChildId, bytes: &[u8]) -> bool;
        fn ask(&mut self, child: ChildId, question: &[u8], patience_ms: u64) -> io::Result<Vec<u8>>;
        fn close_input(&mut self, child: ChildId);
        fn resize(&mut self, child: ChildId) -> TerminalSize;
        fn reads_keys(&mut self, child: ChildId) -> bool;
        fn rest(&mut self);
    }
}

impl<W: World> Files for Through<'_, W> {
    forward! {
        fn kind(&mut self, path: &Path) -> PathKind;
        fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
        fn read_tasks(&mut self, path: &Path) -> io::Result<Vec<u8>>;
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
        fn save(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
        fn remove(&mut self, path: &Path) -> io::Result<()>;
        fn open_log(&mut self, path: &Path) -> io::Result<()>;
        fn append_log(&mut self, bytes: &[u8]) -> io::Result<()>;
        fn file_fingerprint(&mut self, path: &Path, budget: u64) -> (u64, u64);
        fn tree_fingerprint(&mut self, path: &Path, most: usize) -> Option<u64>;
    }
}

impl<W: World> Journal for Through<'_, W> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.fault == Some(Fault::JournalLate) {
            self.late.extend_from_slice(bytes);
            return Ok(());
        }
        let bytes = &*Fault::miswrite(self.fault, bytes);
        let is_end = bytes.windows(RUN_ENDED.len()).any(|window| window == RUN_ENDED);
        match self.world.append(bytes) {
            Err(_) if self.fault == Some(Fault::EndLost) && is_end => Ok(()),
            appended => appended,
        }
    }

    fn sync(&mut self) {
        let late = std::mem::take(&mut self.late);
        if !late.is_empty() {
            let _ = self.world.append(&late);
        }
        self.world.sync();
    }

    forward! {
        fn append_raw(&mut self, bytes: &[u8]) -> io::Result<()>;
        fn make_room(&mut self) -> bool;
        fn run_state(&mut self) -> RunState;
    }
}

impl<W: World> Repository for Through<'_, W> {
    fn abandoned(&mut self, lock: &Path) -> LockStatus {
        let abandoned = self.world.abandoned(lock);
        if self.fault == Some(Fault::LocksTaken) { LockStatus::Stale } else { abandoned }
    }

    fn uncommitted(&mut self) -> Uncommitted {
        match self.fault {
            Some(Fault::FinalChecksSkipped) => Uncommitted::default(),
            _ => self.world.uncommitted(),
        }
    }

    forward! {
        fn new_commits(&mut self, thorough: bool) -> Option<NewCommits>;
        fn replaced(&mut self) -> Option<PathBuf>;
        fn branch(&mut self) -> Option<String>;
        fn no_branch(&mut self) -> Option<DetachedReason>;
        fn read_only_git_args(&mut self) -> Vec<OsString>;
        fn look_up(&mut self, facts: &mut Summary);
    }
}

impl<W: World> Control for Through<'_, W> {
    fn requests(&mut self) -> Vec<(u64, Request)> {
        let mut requests = self.world.requests();
        match self.fault {
            Some(Fault::AcknowledgedEarly) => self.world.acknowledge_requests(),
            Some(Fault::GuidanceReversed) => requests.reverse(),
            Some(Fault::GuidanceDoubled) => {
                requests.iter_mut().for_each(|(number, _)| *number += self.numbers_from);
            }
            Some(Fault::ClearIgnored) => {
                requests.retain(|(_, request)| *request != Request::ClearGuidance);
            }
            Some(Fault::StopForgotten) => {
                requests.retain(|(_, request)| *request != Request::Stop { now: false });
            }
            Some(Fault::RestartForgotten) => {
                for (_, request) in &mut requests {
                    if let Request::Tell { now, .. } = request {
                        *now = false;
                    }
                }
            }
            _ => {}
        }
        requests
    }

    forward! {
        fn questions(&mut self) -> Vec<String>;
        fn acknowledge_requests(&mut self);
        fn refusals(&mut self) -> Vec<Refusal>;
        fn cleanup(&mut self) -> io::Result<Vec<String>>;
        fn obstacle(&mut self, next: RunStep) -> Option<String>;
    }
}
