//! The checks of a run, each with its result by iteration.

use serde::Serialize;

use crate::status_line::one_line;
use ralph_events::event::Exit;
use ralph_events::run_state::{Activity, GuardrailResult, IterationRecord, RunState};

/// A check of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckView {
    pub command: String,
    /// One for each iteration of the run.
    pub history: Vec<CheckMark>,
    /// How often it passed, and how often it ran to its end.
    pub passed: u32,
    pub runs: u32,
    /// It runs now, since this time.
    pub running_since_ms: Option<i64>,
    pub latest: Option<CheckRun>,
    pub last_failure: Option<CheckRun>,
}

/// One run of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckRun {
    pub iteration: u32,
    pub mark: CheckMark,
    pub exit: Option<Exit>,
    pub duration_ms: u64,
    pub ended_ms: i64,
    /// The file with its output, relative to the project's directory.
    pub log: String,
}

/// The result of a check in an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckMark {
    Passed,
    Failed,
    /// It was ended together with the run.
    Interrupted,
    NotRun,
}

impl CheckMark {
    pub fn of(result: Option<&GuardrailResult>) -> CheckMark {
        match result {
            None => CheckMark::NotRun,
            Some(check) if check.passed => CheckMark::Passed,
            Some(check) if check.cut_off => CheckMark::Interrupted,
            Some(_) => CheckMark::Failed,
        }
    }

    pub fn sign(self) -> char {
        self.signs().0
    }

    pub fn ascii_sign(self) -> char {
        self.signs().1
    }

    pub fn as_str(self) -> &'static str {
        self.signs().2
    }

    fn signs(self) -> (char, char, &'static str) {
        match self {
            CheckMark::Passed => ('✓', '+', "passed"),
            CheckMark::Failed => ('✗', '-', "failed"),
            CheckMark::Interrupted => ('~', '~', "interrupted"),
            CheckMark::NotRun => ('·', '.', "not run yet"),
        }
    }
}

impl CheckView {
    /// The latest result passes, and an earlier one failed.
    pub fn passes_since_failure(&self) -> bool {
        self.latest.as_ref().is_some_and(|run| run.mark == CheckMark::Passed)
            && self.last_failure.is_some()
    }

    /// All runs of the check, oldest first.
    pub fn runs_of(run: &RunState, command: &str) -> Vec<CheckRun> {
        run.iterations.iter().filter_map(|record| run_in(record, command)).collect()
    }
}

/// The checks of a run: those it was started with, then others that ran.
pub fn checks(run: &RunState) -> Vec<CheckView> {
    commands(run).into_iter().map(|command| check(run, command)).collect()
}

fn commands(run: &RunState) -> Vec<&str> {
    let setup = run.info.setup.iter().flat_map(|setup| &setup.checks);
    let ran = run.iterations.iter().flat_map(|it| it.guardrails.iter().map(|it| &it.command));
    let mut commands: Vec<&str> = Vec::new();
    for command in setup.chain(ran) {
        if !commands.contains(&command.as_str()) {
            commands.push(command);
        }
    }
    commands
}

/// Checks whose last result is a pass, and all checks.
pub(crate) fn passing_checks(run: &RunState) -> (u32, u32) {
    let commands = commands(run);
    let passes = |command: &&&str| {
        let results = run.iterations.iter().rev().find_map(|record| result_in(record, command));
        results.is_some_and(|result| result.passed)
    };
    let passing = commands.iter().filter(passes).count();
    (count(passing), count(commands.len()))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn result_in<'r>(record: &'r IterationRecord, command: &str) -> Option<&'r GuardrailResult> {
    record.guardrails.iter().rfind(|check| check.command == command)
}

fn run_in(record: &IterationRecord, command: &str) -> Option<CheckRun> {
    let result = result_in(record, command)?;
    Some(CheckRun::of(record.number, result))
}

impl CheckRun {
    pub(crate) fn of(iteration: u32, result: &GuardrailResult) -> CheckRun {
        CheckRun {
            iteration,
            mark: CheckMark::of(Some(result)),
            exit: result.exit,
            duration_ms: result.duration_ms,
            ended_ms: result.ended_ms,
            log: result.log.clone(),
        }
    }
}

fn check(run: &RunState, command: &str) -> CheckView {
    let runs = CheckView::runs_of(run, command);
    let of_mark = |mark: CheckMark| count(runs.iter().filter(|run| run.mark == mark).count());
    let (passed, failed) = (of_mark(CheckMark::Passed), of_mark(CheckMark::Failed));
    let running_since_ms = match &run.activity {
        Activity::Guardrail { command: running, since_ms } if running == command => Some(*since_ms),
        _ => None,
    };
    CheckView {
        command: one_line(command),
        history: (run.iterations.iter())
            .map(|record| CheckMark::of(result_in(record, command)))
            .collect(),
        passed,
        runs: passed.saturating_add(failed),
        running_since_ms,
        last_failure: runs.iter().rfind(|run| run.mark == CheckMark::Failed).cloned(),
        latest: runs.into_iter().next_back(),
    }
}
