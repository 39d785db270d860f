//! Continuing a run that was cut off.

use super::*;
use crate::stall::StallSeen;
use ralph_events::run_state::{OpenIteration, Pending, RateLimits, RunEnd};

fn resumed(rules: Rules, state: RunState) -> Loop {
    Loop::of(LoopMachine::resumed(rules, state))
}

/// The state of a run that has spent this much and ended so.
fn left(point: ResumePoint, cost: f64, outcome: Option<Outcome>) -> RunState {
    let mut state = state(point);
    state.totals.spending.end_attempt(&spent(cost));
    state.end = outcome.map(|outcome| RunEnd {
        time_ms: 0,
        outcome,
        exit_code: 1,
        message: String::new(),
        iterations: 2,
        cut_off: true,
        duration_ms: 0,
        stopped_by: None,
        last_failure: None,
        used_up: None,
        notify_pending: false,
    });
    state
}

fn cut_off(pending: Pending) -> ResumePoint {
    let open = Some(OpenIteration { iteration: 2, attempts: 1, worked_ms: 1_000 });
    ResumePoint { iterations: 1, open, pending, ..ResumePoint::default() }
}

fn ended(report: AgentReport) -> Pending {
    Pending::Ended(Box::new(report))
}

fn checked(complete: bool) -> Pending {
    Pending::Checked { class: Class::Answered, complete, found: None }
}

fn unchecked(report: AgentReport) -> Pending {
    Pending::Unchecked(Box::new(report))
}

fn is_told(run: &Loop, iteration_complete: bool) -> bool {
    run.actions.iter().any(|action| {
        matches!(action, Action::Emit(_, Event::IterationEnded { complete, cut_off: false, .. })
            if *complete == iteration_complete)
    })
}

#[test]
fn resume_of_decided_run_starts_no_agent() {
    let failed_twice = ResumePoint { failures: 2, ..cut_off(ended(failed(Class::Failed))) };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let complete =
        ResumePoint { iterations: 2, pending: Pending::Complete, ..ResumePoint::default() };
    let spent_all = Rules { budget, ..rules() };
    let run = resumed(spent_all, left(cut_off(Pending::Nothing), 1.0, None));
    assert_eq!(run.outcome(), Some((Outcome::Budget, exit_code::BUDGET)));
    assert!(!run.starts_agent());
    for (progress, rules, outcome) in [
        (complete.clone(), rules(), (Outcome::Complete, 0)),
        (complete.clone(), Rules { max_iterations: 2, ..rules() }, (Outcome::Complete, 0)),
        (
            ResumePoint { scm_failed: true, ..complete },
            Rules { budget: Budget { tokens: Some(0), ..Budget::default() }, ..rules() },
            (Outcome::CompleteScmFailed, exit_code::SCM_FAILED),
        ),
        (cut_off(checked(true)), rules(), (Outcome::Complete, 0)),
        (
            ResumePoint { scm_failed: true, ..cut_off(checked(true)) },
            rules(),
            (Outcome::CompleteScmFailed, exit_code::SCM_FAILED),
        ),
        (
            cut_off(checked(false)),
            Rules { max_iterations: 2, ..rules() },
            (Outcome::LimitReached, 1),
        ),
        (failed_twice, rules(), (Outcome::AgentFailed, exit_code::AGENT_FAILED)),
        (
            cut_off(ended(failed(Class::Credentials))),
            rules(),
            (Outcome::CredentialsRefused, exit_code::AGENT_FAILED),
        ),
        (
            ResumePoint { iterations: 3, ..ResumePoint::default() },
            rules(),
            (Outcome::LimitReached, 1),
        ),
    ] {
        let told = format!("{progress:?}");
        let run = Loop::resume(rules, progress);
        assert_eq!(run.outcome(), Some(outcome), "{told}");
        assert!(!run.starts_agent());
    }
}

#[test]
fn resume_repeats_gate_check_without_agent() {
    let gated = || Rules { gates: true, ..rules() };
    let mut run = Loop::resume(gated(), cut_off(checked(true)));
    assert!(run.asked(&Action::CheckGates { claimed: true, checks_passed: true }));
    assert_eq!(run.position(), (2, 1));
    run.give(Input::GatesChecked(GateVerdict::Neutral));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    assert!(is_told(&run, true));
    let mut run = Loop::resume(gated(), cut_off(checked(true)));
    run.give(Input::GatesChecked(GateVerdict::Veto {
        reason: "open".into(),
        feedback: Vec::new(),
    }));
    assert!(is_told(&run, false) && run.asked(&Action::CollectBriefing));
    assert_eq!(run.machine.iteration(), 3);
}

#[test]
fn resume_counts_earlier_failures_and_rate_limit_waits() {
    let mut run = Loop::resume(rules(), cut_off(ended(failed(Class::Failed))));
    assert!(run.asked_to_retry(1) && !run.starts_agent());
    run.until_deadline();
    assert!(run.starts_agent());
    assert_eq!(run.position(), (2, 2));
    let in_an_hour = Some(1_003_600);
    let limits = RateLimits { count: 1, waited_ms: 10_000, waiting: None };
    let progress = ResumePoint { limits, ..cut_off(ended(limited(in_an_hour))) };
    // Earlier waits count, so a run cannot wait forever by being cut off.
    assert_eq!(Loop::resume(rules(), progress.clone()).outcome(), Some((Outcome::AgentFailed, 4)));
    let patient = RateLimit { wait: true, max_wait_ms: 3_700_000 };
    let run = Loop::resume(Rules { rate_limit: patient, ..rules() }, progress.clone());
    assert!(run.outcome().is_none() && !run.starts_agent());
    let again = ResumePoint { pending: Pending::Nothing, ..progress };
    let again = left(again, 0.0, Some(Outcome::AgentFailed));
    assert!(resumed(rules(), again).starts_agent());
}

#[test]
fn resume_keeps_failure_count_unless_run_gave_up() {
    use Outcome::{
        AgentFailed, Budget, CredentialsRefused, InternalError, Interrupted, LimitReached, Stalled,
    };
    let point = || ResumePoint { failures: 1, ..cut_off(Pending::Nothing) };
    for (outcome, failures) in [
        (None, 2),
        (Some(Interrupted), 2),
        (Some(Budget), 2),
        (Some(LimitReached), 2),
        (Some(InternalError), 2),
        (Some(AgentFailed), 1),
        (Some(CredentialsRefused), 1),
        (Some(Stalled), 1),
    ] {
        let mut run = resumed(rules(), left(point(), 0.0, outcome));
        run.agent(failed(Class::Failed));
        assert!(run.asked_to_retry(failures), "{outcome:?}: {:?}", run.actions);
    }
}

#[test]
fn resumed_check_counts_as_success() {
    let retry = Retry { scope: RetryScope::NextIteration { failures: 3 }, ..rules().retry };
    let rules = Rules { retry, max_iterations: 3, ..rules() };
    let mut run = Loop::resume(rules, cut_off(checked(false)));
    run.agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::LimitReached, 1)));
}

#[test]
fn resume_counts_interrupted_wait_by_its_duration() {
    let limits = |until_ms| RateLimits {
        count: 1,
        waited_ms: 0,
        waiting: Some((1_000_000_000 - 1_000_000, until_ms)),
    };
    for (until_ms, waited_ms) in [(999_500_000, 500_000), (2_000_000_000, 1_000_000)] {
        let progress = ResumePoint { limits: limits(until_ms), ..cut_off(Pending::Nothing) };
        assert_eq!(Loop::resume(rules(), progress).machine.retries.limits.waited_ms, waited_ms);
    }
}

#[test]
fn resumed_iteration_keeps_its_remaining_budget() {
    let state = left(cut_off(Pending::Nothing), 0.75, None);
    let within = |budget| Rules { iteration_budget: budget, ..rules() };
    let money = |cost| within(Budget { cost_usd: Some(cost), ..Budget::default() });
    let time = |ms| within(Budget { duration_ms: Some(ms), ..Budget::default() });
    let mut run = resumed(money(1.0), state.clone());
    assert!(run.starts_agent());
    run.give(Input::AgentStarted).give(Input::UsageReported(spent(0.25)));
    assert!(run.asked(&Action::EndAgent(EndCause::IterationBudget)));
    let mut run = resumed(time(1_500), state.clone());
    assert!(run.starts_agent());
    run.give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 500));
    let before_retry = left(cut_off(ended(failed(Class::Failed))), 0.0, None);
    let mut run = resumed(time(1_500), before_retry);
    run.until_deadline().give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 500), "a retry gets the same time");
    for rules in [money(0.5), time(1_000)] {
        let checks = Rules { guardrails: vec![None], ..rules };
        let mut run = resumed(checks, state.clone());
        assert!(run.asked(&Action::RunGuardrail(0)) && !run.starts_agent());
        assert_eq!((run.position(), run.actions.len()), ((2, 1), 1), "it does not start again");
        run.give(Input::GuardrailEnded { failed: None });
        assert!(is_told(&run, false) && run.starts_agent());
        assert_eq!(run.machine.iteration(), 3);
        run.give(Input::AgentStarted).give(Input::UsageReported(spent(0.25)));
        assert!(run.actions.is_empty());
    }
}

#[test]
fn resume_of_stalled_run_stops_unless_repository_changed() {
    let rules = Rules { stall: StallRule::stop_after(2), ..rules() };
    let seen = StallSeen { fingerprint: Some(7), unchanged: 2, same_failures: 0 };
    let progress =
        ResumePoint { iterations: 2, stall: seen, stall_checked: true, ..ResumePoint::default() };
    let mut run = Loop::resume(rules.clone(), progress.clone());
    assert!(run.asked(&Action::CheckStall));
    run.give(Input::StallChecked { fingerprint: Some(7) });
    assert_eq!(run.outcome(), Some((Outcome::Stalled, exit_code::BUDGET)));
    let said = |action: &Action| matches!(action, Action::Emit(_, Event::RunEnded { message, .. }) if message.starts_with("2 iterations"));
    assert!(run.actions.iter().any(said), "{:?}", run.actions);
    let mut run = Loop::resume(rules, progress);
    run.give(Input::StallChecked { fingerprint: Some(8) });
    assert!(run.starts_agent());
}

#[test]
fn resume_checks_open_answer_without_starting_agent() {
    let checks = |more: Rules| Rules { guardrails: vec![None, None], ..more };
    let pass = || Input::GuardrailEnded { failed: None };
    let used_up = Rules { budget: Budget { cost_usd: Some(0.5), ..Budget::default() }, ..rules() };
    for rules in [rules(), used_up, Rules { max_iterations: 2, ..rules() }] {
        let point = ResumePoint { failures: 2, ..cut_off(unchecked(done())) };
        let mut run = resumed(checks(rules), left(point, 0.75, None));
        assert_eq!(run.position(), (2, 1), "the same attempt");
        assert!(run.asked(&Action::RunGuardrail(0)) && run.actions.len() == 1);
        assert!(run.give(pass()).asked(&Action::RunGuardrail(1)));
        assert_eq!(run.give(pass()).outcome(), Some((Outcome::Complete, 0)));
        assert!(is_told(&run, true));
    }
    let progress = ResumePoint {
        feedback: vec![feedback("half")],
        last_feedback: vec![feedback("old")],
        ..cut_off(unchecked(done()))
    };
    let mut run = Loop::resume(checks(rules()), progress);
    run.give(Input::GuardrailEnded { failed: Some(feedback("red")) }).give(pass());
    assert!(is_told(&run, false) && run.starts_agent());
    assert_eq!((run.machine.iteration(), run.machine.feedback()), (3, vec![feedback("red")]));
    let mut run = Loop::resume(checks(rules()), cut_off(unchecked(done())));
    run.give(Input::Stop { signal: "SIGINT", now: false }).give(pass());
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, exit_code::INTERRUPTED)));
    let is_cut = |action: &Action| {
        matches!(
            action,
            Action::Emit(_, Event::IterationEnded { class: Class::Answered, cut_off: true, .. })
        )
    };
    assert!(run.actions.iter().any(is_cut), "{:?}", run.actions);
}

#[test]
fn resumed_machine_names_iteration_with_unchecked_work() {
    for (pending, iteration) in [
        (unchecked(done()), Some(2)),
        (ended(failed(Class::Failed)), None),
        (checked(true), None),
        (Pending::Nothing, None),
    ] {
        let machine = LoopMachine::resumed(rules(), state(cut_off(pending)));
        assert_eq!(machine.unchecked_iteration(), iteration);
        assert_eq!(machine.max_iterations(), 3);
    }
}

#[test]
fn resume_commits_open_answer_with_saved_message() {
    let scm = || Rules { scm: vec![ScmTaskKind::Commit], ..rules() };
    let asks = |run: &Loop| run.asked(&Action::StartAgent(Purpose::CommitMessage));
    let mut run = Loop::resume(scm(), cut_off(unchecked(answered())));
    assert!(run.asked(&Action::CheckScmStatus));
    assert!(
        asks(run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }))),
        "no message was requested before"
    );
    let given =
        ResumePoint { commit_message: Some("Do it".to_owned()), ..cut_off(unchecked(answered())) };
    let mut run = Loop::resume(scm(), given.clone());
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    assert!(run.asked(&Action::RunScmTask(0)) && !asks(&run));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None }).agent(answered());
    assert!(asks(run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }))));
    let mut run = Loop::resume(scm(), given);
    run.give(Input::ScmStatus(ScmStatus::Clean)).agent(answered());
    assert!(asks(run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }))));
}

#[test]
fn resumed_answer_counts_once_for_stall_detection() {
    let rules = Rules { guardrails: vec![None, None], stall: StallRule::stop_after(3), ..rules() };
    let seen = StallSeen { fingerprint: None, unchanged: 0, same_failures: 2 };
    for (last, outcome) in [("other", None), ("red", Some((Outcome::Stalled, exit_code::BUDGET)))] {
        let progress = ResumePoint {
            stall: seen,
            feedback: vec![feedback("red")],
            last_feedback: vec![feedback(last)],
            ..cut_off(unchecked(answered()))
        };
        let mut run = Loop::resume(rules.clone(), progress);
        run.give(Input::GuardrailEnded { failed: Some(feedback("red")) });
        run.give(Input::GuardrailEnded { failed: None });
        assert!(run.asked(&Action::CheckStall));
        run.give(Input::StallChecked { fingerprint: None });
        assert_eq!(run.outcome(), outcome, "{last}");
    }
}

#[test]
fn resume_continues_all_counters() {
    let ended = |outcome| {
        let feedback = vec![feedback("red")];
        let point = ResumePoint { iterations: 2, failures: 1, feedback, ..ResumePoint::default() };
        let mut state = left(point, 0.7, outcome);
        (state.totals.tools, state.clock.active_ms) = (7, 9_000);
        state.totals.tool_errors = 2;
        state
    };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let rules = || Rules { max_iterations: 4, budget, ..rules() };
    let begin = |outcome| resumed(rules(), ended(outcome));
    let mut run = begin(None);
    assert!(run.starts_agent());
    assert_eq!((run.machine.iteration(), run.machine.feedback().len()), (3, 1));
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(2), "{:?}", run.actions);

    let mut run = begin(None);
    run.agent(AgentReport { usage: spent(0.4), ..answered() });
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)), "0.7 before, and 0.4 now");
    assert!(run.actions.iter().any(|action| matches!(
        action,
        Action::Emit(
            _,
            Event::RunEnded { iterations: 3, tools: 8, tool_errors: 2, duration_ms: 9_000.., .. }
        )
    )));

    let budget = Budget { duration_ms: Some(10_000), ..Budget::default() };
    let mut run = resumed(Rules { budget, ..rules() }, ended(None));
    run.give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 1_000));

    let mut run = begin(Some(Outcome::Interrupted));
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(2));
    let mut run = begin(Some(Outcome::AgentFailed));
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(1));
}
