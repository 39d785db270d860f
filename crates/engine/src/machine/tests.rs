//! Tests that drive the machine step by step.

mod conversation;
mod failures;
mod gates;
mod history;
mod limits;
mod requests;
mod resumed;
mod scm;

use super::*;
use crate::rules::{Budget, QuestionMode, RateLimit, Retry, RetryScope, ScmTaskKind};
use crate::stall::StallRule;
use ralph_events::event::{EndCause, FailAction, Failure, FailureKind, Purpose, Usage};
use ralph_events::exit_code;
use ralph_events::run_state::ResumePoint;

fn rules() -> Rules {
    Rules {
        max_iterations: 3,
        exit_at_limit: 1,
        retry: Retry {
            scope: RetryScope::SameIteration { retries: 2 },
            backoff_ms: 1_000,
            backoff_cap_ms: 300_000,
            exit_code: 4,
        },
        retry_empty: false,
        inactivity_ms: None,
        exit_without_prompt: exit_code::USAGE,
        inactivity_fails: true,
        silent_model_ms: None,
        iteration_timeout_ms: None,
        result_grace_ms: Some(10_000),
        rate_limit: RateLimit { wait: true, max_wait_ms: 3_600_000 },
        budget: Budget::default(),
        iteration_budget: Budget::default(),
        guardrails: Vec::new(),
        scm: Vec::new(),
        scm_timeout_ms: None,
        gates: false,
        stall: StallRule::default(),
        term_pauses: false,
        max_refusals: Rules::MAX_REFUSALS,
        check_done_ms: None,
        notify: false,
        questions: QuestionMode::Continue,
    }
}

fn answered() -> AgentReport {
    AgentReport {
        class: Class::Answered,
        failure: None,
        exit: "exit code 0".into(),
        usage: Usage::default(),
        tools: 1,
        tool_errors: 0,
        complete: false,
        found: None,
        has_message: false,
        repeats_prompt: false,
    }
}

fn done() -> AgentReport {
    AgentReport { complete: true, found: Some("DONE".into()), ..answered() }
}

fn failed(class: Class) -> AgentReport {
    AgentReport { class, exit: "exit code 1".into(), ..answered() }
}

fn limited(resets_at: Option<i64>) -> AgentReport {
    let failure =
        Failure { kind: FailureKind::RateLimit, message: "hit your limit".into(), resets_at };
    AgentReport { failure: Some(failure), ..failed(Class::RateLimited) }
}

fn spent(cost: f64) -> Usage {
    Usage { cost_usd: Some(cost), ..Usage::default() }
}

fn feedback(message: &str) -> Feedback {
    Feedback { action: FailAction::Append, message: message.into() }
}

fn veto(told: &[&str]) -> Input {
    let feedback = told.iter().map(|told| feedback(told)).collect();
    Input::GatesChecked(GateVerdict::Veto { reason: "open".to_owned(), feedback })
}

fn state(point: ResumePoint) -> RunState {
    let mut state = RunState::default();
    state.resume = point;
    state
}

/// A machine with a test clock and the actions of its last step.
struct Loop {
    machine: LoopMachine,
    now: Now,
    actions: Vec<Action>,
}

impl Loop {
    fn start(rules: Rules) -> Self {
        Loop::of(LoopMachine::new(rules))
    }

    fn resume(rules: Rules, point: ResumePoint) -> Self {
        Loop::of(LoopMachine::resumed(rules, state(point)))
    }

    fn of(machine: LoopMachine) -> Self {
        let now = Now { mono_ms: 5_000, wall_ms: 1_000_000_000 };
        let mut this = Loop { machine, now, actions: Vec::new() };
        this.give(Input::Start);
        this
    }

    fn give(&mut self, input: Input) -> &mut Self {
        self.actions = self.machine.step(self.now, input);
        self
    }

    fn agent(&mut self, report: AgentReport) -> &mut Self {
        if self.asked(&Action::CollectBriefing) {
            self.give(Input::Briefed { feedback: Vec::new() });
        }
        self.give(Input::AgentStarted).give(Input::AgentEnded(Box::new(report)))
    }

    fn asked_for_message(&mut self, report: AgentReport, look: CommitGuardResult) -> &mut Self {
        assert!(self.asked(&Action::StartAgent(Purpose::CommitMessage)), "{:?}", self.actions);
        self.agent(report);
        assert_eq!(self.actions, [Action::CheckStaged]);
        self.give(Input::CommitGuardChecked(look))
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now.mono_ms += ms;
        self.now.wall_ms += i64::try_from(ms).unwrap();
        self
    }

    fn until_deadline(&mut self) -> &mut Self {
        let deadline = self.machine.deadline().expect("a pending deadline");
        self.after(deadline - self.now.mono_ms).give(Input::Timer)
    }

    fn outcome(&self) -> Option<(Outcome, u8)> {
        self.actions.iter().find_map(|action| match action {
            Action::Finish { outcome, exit_code } => Some((*outcome, *exit_code)),
            _ => None,
        })
    }

    fn asked(&self, action: &Action) -> bool {
        self.actions.contains(action)
    }

    fn position(&self) -> (u32, u32) {
        (self.machine.iteration(), self.machine.attempt())
    }

    /// The action that records an event now.
    fn emit(&self, event: Event<'static>) -> Action {
        Action::Emit(self.machine.stamp(self.now), event)
    }

    fn emitted(&self, event: &Event<'_>) -> bool {
        let is_it = |action: &Action| matches!(action, Action::Emit(_, other) if other == event);
        self.actions.iter().any(is_it)
    }

    fn asked_to_retry(&self, nth: u32) -> bool {
        self.actions.iter().any(|action| {
            matches!(action, Action::Emit(_, Event::Retrying { failures, .. }) if *failures == nth)
        })
    }

    fn starts_agent(&self) -> bool {
        self.asked(&Action::StartAgent(Purpose::Work))
    }
}

#[test]
fn completion_claim_ends_run() {
    let mut run = Loop::start(rules());
    assert!(run.starts_agent());
    run.agent(answered());
    assert!(run.starts_agent());
    run.agent(done());
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    assert_eq!(run.machine.iteration(), 2);
    assert!(run.machine.agent_finished_normally());
}

#[test]
fn final_checks_precede_end_and_depend_on_outcome() {
    let end = |run: &Loop| {
        let position = |action: &Action| matches!(action, Action::Emit(_, Event::RunEnded { .. }));
        let at = run.actions.iter().position(position).unwrap();
        let Action::Emit(_, Event::RunEnded { notify, .. }) = run.actions[at] else { panic!() };
        let Action::RunFinalChecks(checks) = run.actions[at - 1] else { panic!() };
        (checks.uncommitted, checks.required_outputs, checks.missing_signal, notify)
    };
    let mut run = Loop::start(Rules { notify: true, ..rules() });
    run.agent(done());
    assert_eq!(end(&run), (true, true, false, true));
    for exit_at_limit in [0, 1] {
        let mut run = Loop::start(Rules { max_iterations: 1, exit_at_limit, ..rules() });
        run.agent(answered());
        assert_eq!(end(&run), (false, exit_at_limit == 0, true, false));
    }
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::Signal(StopSignal::HangUp)).agent(answered());
    assert_eq!(end(&run), (false, false, false, false));
}

#[test]
fn stamps_follow_iterations_and_attempts() {
    let stamps = |run: &Loop| {
        let stamp = |action: &Action| match action {
            Action::Emit(at, _) => Some((at.iteration, at.attempt)),
            _ => None,
        };
        run.actions.iter().filter_map(stamp).collect::<Vec<_>>()
    };
    let mut run = Loop::start(rules());
    assert_eq!(stamps(&run), [(1, 0)]);
    run.agent(failed(Class::Failed));
    assert_eq!(stamps(&run), [(1, 1), (1, 1)], "retrying, waiting");
    run.until_deadline().agent(answered());
    assert_eq!(stamps(&run), [(1, 2), (1, 2), (2, 0)], "an end, and the next start");
    let earlier = ResumePoint { iterations: 2, ..ResumePoint::default() };
    let run = Loop::resume(Rules { max_iterations: 2, ..rules() }, earlier);
    assert_eq!(stamps(&run), [(0, 0)], "no iteration of this process");
}

#[test]
fn iteration_limit_ends_run_with_configured_exit_code() {
    for exit_at_limit in [0, 1] {
        let mut run = Loop::start(Rules { max_iterations: 2, exit_at_limit, ..rules() });
        run.agent(answered()).agent(answered());
        assert_eq!(run.outcome(), Some((Outcome::LimitReached, exit_at_limit)));
    }
}

#[test]
fn failed_guardrail_vetoes_completion_and_adds_feedback() {
    let mut run = Loop::start(Rules { guardrails: vec![None, None], ..rules() });
    run.agent(done());
    assert!(run.asked(&Action::RunGuardrail(0)));
    run.give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
    assert!(run.asked(&Action::RunGuardrail(1)), "all of them run, in order");
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("lint")]);
    run.agent(done());
    run.give(Input::GuardrailEnded { failed: None }).give(Input::GuardrailEnded { failed: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    assert_eq!(run.machine.feedback(), [], "feedback is given once");
    assert!(run.emitted(&Event::FeedbackSet { parts: Vec::new() }), "a resume must not repeat it");
}

#[test]
fn feedback_survives_retry_of_iteration() {
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.agent(answered()).give(Input::GuardrailEnded { failed: Some(feedback("f")) });
    run.agent(failed(Class::Failed)).until_deadline();
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("f")]);
}

#[test]
fn guardrail_timeout_ends_guardrail() {
    let mut run = Loop::start(Rules { guardrails: vec![Some(5_000)], ..rules() });
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndGuardrail { timed_out: true }]);
    run.give(Input::GuardrailEnded { failed: Some(feedback("slow")) });
    assert!(run.starts_agent());
}

#[test]
fn only_answered_attempt_completes() {
    for class in [Class::Empty, Class::Limited, Class::TimedOut] {
        let mut run = Loop::start(Rules { inactivity_fails: false, ..rules() });
        run.agent(AgentReport { class, ..done() });
        assert!(run.starts_agent(), "{class:?}");
    }
}

#[test]
fn stalled_run_is_warned_then_stopped() {
    let stall = StallRule::stop_after(2);
    let mut run = Loop::start(Rules { max_iterations: 9, stall, ..rules() });
    let stalling = |run: &Loop| {
        run.actions.iter().any(|action| {
            matches!(action, Action::Emit(_, Event::StallWarning { limit: Some(2), .. }))
        })
    };
    for fingerprint in [Some(1), Some(2)] {
        assert!(run.asked(&Action::CheckStall));
        run.give(Input::StallChecked { fingerprint }).agent(answered());
    }
    run.give(Input::StallChecked { fingerprint: Some(2) });
    assert!(stalling(&run), "{:?}", run.actions);
    // A pause causes no second check.
    run.agent(answered()).give(Input::Pause);
    run.give(Input::StallChecked { fingerprint: Some(3) });
    assert!(run.machine.is_paused());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.starts_agent() && !run.machine.is_paused(), "{:?}", run.actions);
    for _ in 0..2 {
        run.agent(answered()).give(Input::StallChecked { fingerprint: Some(3) });
    }
    assert_eq!(run.outcome(), Some((Outcome::Stalled, 3)));
    assert_eq!(run.machine.iteration(), 5);
}

#[test]
fn repository_check_is_ended_by_timeout_and_stop() {
    let stall = StallRule::stop_after(1);
    let mut run = Loop::start(Rules { stall, ..rules() });
    run.until_deadline();
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::StallChecked { fingerprint: None });
    assert!(run.starts_agent(), "an unknown state is no stall");
    run.agent(answered()).give(Input::Stop { signal: "SIGHUP", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::StallChecked { fingerprint: None });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn guardrail_feedback_is_saved_when_run_is_stopped() {
    let guardrails = vec![None; 3];
    let told = |run: &Loop| {
        run.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::FeedbackSet { parts }) => Some(parts.clone()),
            _ => None,
        })
    };
    // Ended with the run, which says nothing about the work.
    let mut run = Loop::start(Rules { guardrails: guardrails.clone(), ..rules() });
    run.agent(done()).give(Input::GuardrailEnded { failed: Some(feedback("red")) });
    run.give(Input::Stop { signal: "SIGHUP", now: true });
    run.give(Input::GuardrailEnded { failed: Some(feedback("signal 15")) });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    assert_eq!(told(&run), Some(vec![feedback("red")]));
    let mut run = Loop::start(Rules { guardrails, ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGHUP", now: true });
    run.give(Input::GuardrailEnded { failed: Some(feedback("signal 15")) });
    assert_eq!(told(&run), None);
}
