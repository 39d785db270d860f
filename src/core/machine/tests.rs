mod resumed;

use super::*;
use crate::core::event::{EndCause, FailAction, Failure, FailureKind, Usage};
use crate::core::exit;
use crate::core::rules::{Budget, RateLimit, Retry, RetryScope, ScmTask};
use crate::core::stall::StallRule;
use proptest::prelude::*;

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
        exit_without_prompt: exit::INPUT,
        inactivity_fails: true,
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
    }
}

fn answered() -> Report {
    Report {
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

fn done() -> Report {
    Report { complete: true, found: Some("DONE".into()), ..answered() }
}

fn failed(class: Class) -> Report {
    Report { class, exit: "exit code 1".into(), ..answered() }
}

fn limited(resets_at: Option<i64>) -> Report {
    let failure =
        Failure { kind: FailureKind::RateLimit, message: "hit your limit".into(), resets_at };
    Report { failure: Some(failure), ..failed(Class::RateLimited) }
}

fn spent(cost: f64) -> Usage {
    Usage { cost_usd: Some(cost), ..Usage::default() }
}

fn feedback(message: &str) -> Feedback {
    Feedback { action: FailAction::Append, message: message.into() }
}

/// A machine with a clock that the test moves, and a memory of what it asked for.
struct Loop {
    machine: LoopMachine,
    now: Now,
    actions: Vec<Action>,
}

impl Loop {
    fn start(rules: Rules) -> Self {
        let now = Now { mono_ms: 5_000, wall_ms: 1_000_000_000 };
        let mut this = Loop { machine: LoopMachine::new(rules), now, actions: Vec::new() };
        this.give(Input::Start);
        this
    }

    fn give(&mut self, input: Input) -> &mut Self {
        self.actions = self.machine.step(self.now, input);
        self
    }

    /// The agent that is being started runs and ends so.
    fn agent(&mut self, report: Report) -> &mut Self {
        if self.asked(&Action::Brief) {
            self.give(Input::Briefed { feedback: Vec::new() });
        }
        self.give(Input::AgentStarted).give(Input::AgentEnded(Box::new(report)))
    }

    /// The same of one that is asked for a commit message, and what it did besides.
    fn asked_for_message(&mut self, report: Report, look: StagedLook) -> &mut Self {
        assert!(self.asked(&Action::StartAgent(Purpose::CommitMessage)), "{:?}", self.actions);
        self.agent(report);
        assert_eq!(self.actions, [Action::LookAtStaged]);
        self.give(Input::StagedLooked(look))
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now.mono_ms += ms;
        self.now.wall_ms += i64::try_from(ms).unwrap();
        self
    }

    /// Lets the time pass until the machine wants to be woken.
    fn until_deadline(&mut self) -> &mut Self {
        let deadline = self.machine.deadline().expect("something is waited for");
        self.after(deadline - self.now.mono_ms).give(Input::Deadline)
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

    fn asked_to_retry(&self, nth: u32) -> bool {
        self.actions.iter().any(|action| {
            matches!(action, Action::Emit(Event::Retrying { failures, .. }) if *failures == nth)
        })
    }

    fn starts_agent(&self) -> bool {
        self.asked(&Action::StartAgent(Purpose::Work))
    }
}

#[test]
fn completes_when_the_agent_says_so() {
    let mut run = Loop::start(rules());
    assert!(run.starts_agent());
    run.agent(answered());
    assert!(run.starts_agent());
    run.agent(done());
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    assert_eq!(run.machine.iteration(), 2);
}

#[test]
fn the_limit_ends_the_run_with_its_exit_code() {
    for exit_at_limit in [0, 1] {
        let mut run = Loop::start(Rules { max_iterations: 2, exit_at_limit, ..rules() });
        run.agent(answered()).agent(answered());
        assert_eq!(run.outcome(), Some((Outcome::LimitReached, exit_at_limit)));
    }
}

#[test]
fn a_failed_guardrail_vetoes_completion_and_feeds_the_next_prompt() {
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
}

#[test]
fn feedback_survives_a_retry_of_the_iteration_that_carries_it() {
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.agent(answered()).give(Input::GuardrailEnded { failed: Some(feedback("f")) });
    run.agent(failed(Class::Failed)).until_deadline();
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("f")]);
}

#[test]
fn failures_back_off_and_then_end_the_run() {
    let mut run = Loop::start(rules());
    for delay in [1_000, 2_000] {
        run.agent(failed(Class::Failed));
        assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + delay));
        run.until_deadline();
        assert!(run.starts_agent());
    }
    run.agent(failed(Class::ContextExhausted));
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 4)));
    assert_eq!(run.machine.iteration(), 1, "retries are attempts of the same iteration");
}

#[test]
fn a_success_resets_the_count_of_failures() {
    let mut run = Loop::start(rules());
    for _ in 0..3 {
        run.agent(failed(Class::Failed)).until_deadline();
        run.agent(failed(Class::TimedOut)).until_deadline();
        run.agent(answered());
    }
    assert_eq!(run.outcome(), Some((Outcome::LimitReached, 1)));
}

#[test]
fn failures_can_use_up_iterations_instead() {
    let retry = Retry {
        scope: RetryScope::NextIteration { failures: 5 },
        backoff_ms: 1_000,
        backoff_cap_ms: 300_000,
        exit_code: 1,
    };
    let mut run = Loop::start(Rules { max_iterations: 100, retry, ..rules() });
    for (n, delay) in [1_000, 2_000, 4_000, 8_000].into_iter().enumerate() {
        run.agent(failed(Class::Failed));
        assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + delay));
        run.until_deadline();
        assert_eq!(run.machine.iteration() as usize, n + 2);
    }
    run.agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 1)));

    let mut run = Loop::start(Rules { max_iterations: 1, exit_at_limit: 0, retry, ..rules() });
    run.agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::LimitReached, 0)));
}

#[test]
fn backoff_doubles_up_to_its_cap() {
    let retry = rules().retry;
    let delays: Vec<u64> = [1, 2, 3, 9, 10, 64, u32::MAX].map(|n| retry.backoff(n)).to_vec();
    assert_eq!(delays, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000, 300_000]);
}

#[test]
fn a_limit_is_waited_for_and_counts_as_no_failure() {
    let mut run = Loop::start(rules());
    for _ in 0..5 {
        let reset = run.now.wall_ms / 1000 + 500;
        run.agent(limited(Some(reset)));
        while !run.starts_agent() {
            run.until_deadline();
        }
        assert_eq!(run.now.wall_ms, (reset + 1) * 1000);
    }
    assert_eq!(run.machine.iteration(), 1);
    run.agent(done());
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn a_limit_that_ended_while_the_machine_slept_is_noticed() {
    let mut run = Loop::start(rules());
    let reset = run.now.wall_ms / 1000 + 3_000;
    run.agent(limited(Some(reset)));
    run.now.wall_ms += 4_000_000;
    run.until_deadline();
    assert!(run.starts_agent());
}

#[test]
fn a_limit_without_a_time_backs_off() {
    let mut run = Loop::start(rules());
    for delay in [1_000, 2_000, 4_000] {
        run.agent(limited(None));
        assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + delay));
        run.until_deadline();
    }
    // So does one that is over already.
    run.agent(limited(Some(1)));
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 8_000));
}

#[test]
fn a_limit_is_not_waited_for_too_long_or_not_at_all() {
    let mut run = Loop::start(rules());
    run.agent(limited(Some(run.now.wall_ms / 1000 + 3_700)));
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 4)));

    let mut run = Loop::start(rules());
    let half = run.now.wall_ms / 1000 + 2_000;
    run.agent(limited(Some(half)));
    while !run.starts_agent() {
        run.until_deadline();
    }
    let reset = run.now.wall_ms / 1000 + 2_000;
    run.agent(limited(Some(reset)));
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 4)), "waits in a row add up");

    let rate_limit = RateLimit { wait: false, max_wait_ms: 3_600_000 };
    let mut run = Loop::start(Rules { rate_limit, ..rules() });
    run.agent(limited(None));
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 4)));
}

#[test]
fn refused_credentials_stop_at_once() {
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Credentials));
    assert_eq!(run.outcome(), Some((Outcome::CredentialsRefused, 4)));
}

#[test]
fn empty_answers_are_retried_only_where_asked() {
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Empty));
    assert_eq!(run.machine.iteration(), 2);

    let mut run = Loop::start(Rules { retry_empty: true, ..rules() });
    run.agent(failed(Class::Empty)).until_deadline();
    assert_eq!(run.machine.iteration(), 1);
}

#[test]
fn a_limited_attempt_is_checked_but_never_complete() {
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.agent(Report { class: Class::Limited, ..done() });
    assert!(run.asked(&Action::RunGuardrail(0)));
    assert!(!run.machine.agent_came_to_its_end());
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.starts_agent());
}

#[test]
fn silence_ends_the_agent_and_output_resets_it() {
    let mut run = Loop::start(Rules { inactivity_ms: Some(60_000), ..rules() });
    run.give(Input::AgentStarted).after(50_000).give(Input::Output).after(50_000);
    run.give(Input::Deadline);
    assert_eq!(run.actions, []);
    run.until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Inactivity)]);
    run.give(Input::Deadline);
    assert_eq!(run.actions, [], "it is ended once");
    run.give(Input::AgentEnded(Box::new(failed(Class::TimedOut))));
    assert!(run.machine.deadline().is_some(), "a back-off");
}

#[test]
fn silence_may_simply_end_the_iteration() {
    let mut run = Loop::start(Rules { inactivity_fails: false, ..rules() });
    run.agent(Report { class: Class::TimedOut, ..done() });
    assert_eq!((run.machine.iteration(), run.starts_agent()), (2, true));
}

#[test]
fn an_agent_that_stays_after_its_result_is_ended() {
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::ResultSeen).after(9_000).give(Input::Output);
    run.until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::ResultGrace)]);

    // Not while its background tasks run, nor when it works on.
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::BackgroundTasks(1)).give(Input::ResultSeen);
    assert_eq!(run.machine.deadline(), None);
    run.after(60_000).give(Input::BackgroundTasks(0));
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 10_000));
    run.give(Input::Working);
    assert_eq!(run.machine.deadline(), None);
}

#[test]
fn an_agent_that_goes_on_with_refused_credentials_is_ended() {
    // Whatever it announced, and even if answers are never waited for.
    let mut run = Loop::start(Rules { result_grace_ms: None, ..rules() });
    run.give(Input::AgentStarted).give(Input::BackgroundTasks(1)).give(Input::Refused);
    run.after(2_000).give(Input::Output).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Refused)]);

    // It found others, by which it works.
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::Refused).give(Input::Working);
    assert_eq!(run.machine.deadline(), None);
    run.give(Input::ResultSeen).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::ResultGrace)]);
}

#[test]
fn no_other_limit_takes_away_an_answer() {
    let limit = Some(4_000);
    let time = Budget { duration_ms: limit, ..Budget::default() };
    for rules in [
        Rules { inactivity_ms: limit, ..rules() },
        Rules { iteration_timeout_ms: limit, ..rules() },
        Rules { budget: time, ..rules() },
        Rules { iteration_budget: time, ..rules() },
    ] {
        let mut run = Loop::start(rules);
        run.give(Input::AgentStarted).give(Input::ResultSeen).until_deadline();
        assert!(run.asked(&Action::EndAgent(EndCause::ResultGrace)), "{:?}", run.actions);
    }
    let money = Budget { cost_usd: Some(1.0), ..Budget::default() };
    for rules in [Rules { budget: money, ..rules() }, Rules { iteration_budget: money, ..rules() }]
    {
        let mut run = Loop::start(rules);
        run.give(Input::AgentStarted).give(Input::ResultSeen).give(Input::Used(spent(2.0)));
        assert!(!run.actions.iter().any(|action| matches!(action, Action::EndAgent(_))));
        run.agent(Report { usage: spent(2.0), ..done() });
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    }
}

#[test]
fn budgets_end_the_agent_and_the_run() {
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(Report { usage: spent(0.6), ..answered() });
    run.give(Input::AgentStarted).give(Input::Used(spent(0.3)));
    assert_eq!(run.actions, []);
    run.give(Input::Used(spent(0.4)));
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
    run.give(Input::AgentEnded(Box::new(Report { usage: spent(0.4), ..failed(Class::Limited) })));
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));

    // A run that completes with its last cent is complete.
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(Report { usage: spent(2.0), ..done() });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn a_wait_that_would_outlast_the_time_of_the_run_is_not_begun() {
    let budget = Budget { duration_ms: Some(60_000), ..Budget::default() };
    let start = || {
        let mut run = Loop::start(Rules { budget, ..rules() });
        run.after(20_000);
        run
    };
    let message = |run: &Loop| {
        run.actions.iter().find_map(|action| match action {
            Action::Emit(Event::RunEnded { message, .. }) => Some(message.to_string()),
            _ => None,
        })
    };
    // The second that everybody waits after a limit counts.
    for (seconds, waits) in [(30, true), (38, true), (39, false), (1_800, false)] {
        let mut run = start();
        run.agent(limited(Some(run.now.wall_ms / 1000 + seconds)));
        assert_eq!(run.outcome().is_none(), waits, "{seconds}");
        let waiting = |action: &Action| matches!(action, Action::Emit(Event::Waiting { .. }));
        assert_eq!(run.actions.iter().any(waiting), waits, "{seconds}");
        if !waits {
            assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));
        }
    }
    let mut run = start();
    run.agent(limited(Some(run.now.wall_ms / 1000 + 1_800)));
    let said = "the limit ends at 1970-01-12 14:17 UTC, in 30m1s, and the time of this run is used up in 40.0s";
    assert_eq!(message(&run).as_deref(), Some(said));
    // Nor is one for another reason.
    let retry = Retry { backoff_ms: 50_000, backoff_cap_ms: 50_000, ..rules().retry };
    let mut run = Loop::start(Rules { budget, retry, ..rules() });
    run.agent(failed(Class::Failed));
    assert_eq!(run.outcome(), None);
    run.until_deadline().agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));
    let said = "the next attempt is due in 50.0s, and the time of this run is used up in 10.0s";
    assert_eq!(message(&run).as_deref(), Some(said));
}

#[test]
fn time_is_a_budget_too() {
    let budget = Budget { duration_ms: Some(1_000), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.give(Input::AgentStarted).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
    let mut run = Loop::start(Rules { iteration_budget: budget, ..rules() });
    run.give(Input::AgentStarted).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::IterationBudget)]);
    run.give(Input::AgentEnded(Box::new(failed(Class::Limited))));
    assert!(run.starts_agent(), "the next iteration has a budget of its own");
}

#[test]
fn the_runs_time_ends_everything_else_too() {
    let budget = Budget { duration_ms: Some(1_000), ..Budget::default() };
    let used_up = Some((Outcome::Budget, 3));

    let mut run = Loop::start(Rules { budget, guardrails: vec![None, None], ..rules() });
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndGuardrail { timed_out: false }]);
    run.give(Input::GuardrailEnded { failed: Some(feedback("x")) });
    assert_eq!(run.outcome(), used_up);

    let mut run = Loop::start(Rules { budget, scm: vec![ScmTask::Commit], ..rules() });
    let begun = run.now.mono_ms;
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndScmTask { timed_out: false }], "a look may hang as well");
    assert_eq!(run.now.mono_ms, begun + 1_000 + 30_000, "and has its time for what was checked");
    run.give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
    assert_eq!(run.outcome(), used_up);

    let mut run = Loop::start(Rules { budget, scm: vec![ScmTask::Other], ..rules() });
    let begun = run.now.mono_ms;
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndScmTask { timed_out: false }]);
    assert_eq!(run.now.mono_ms, begun + 1_000 + 30_000);
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert_eq!(run.outcome(), used_up);

    // What comes to its end within that is kept: the look, a commit with a message that need not be paid for.
    let mut run = Loop::start(Rules { budget, scm: vec![ScmTask::Commit], ..rules() });
    run.agent(done()).after(20_000).give(Input::Deadline);
    assert_eq!(run.actions, []);
    run.give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
    assert!(run.asked(&Action::RunScmTask(0)) && !run.starts_agent());
    run.after(29_000).give(Input::Deadline);
    assert_eq!(run.actions, []);
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));

    let mut run = Loop::start(Rules { budget, ..rules() });
    let until = run.now.wall_ms / 1000 + 600;
    run.agent(limited(Some(until)));
    assert_eq!(run.outcome(), used_up, "a limit is not waited for beyond it");
}

#[test]
fn scm_tasks_have_a_time_of_their_own() {
    let scm = vec![ScmTask::Commit, ScmTask::Other];
    let mut run = Loop::start(Rules { scm, scm_timeout_ms: Some(60_000), ..rules() });
    let ended = [Action::EndScmTask { timed_out: true }];
    let begun = run.now.mono_ms;
    run.agent(answered()).until_deadline();
    assert_eq!((&run.actions[..], run.now.mono_ms), (&ended[..], begun + 60_000), "staging");
    run.give(Input::ScmLooked(ScmLook::Failed(Some(feedback("it hangs")))));
    assert_eq!(run.machine.feedback(), [feedback("it hangs")]);
    run.agent(answered()).give(Input::ScmLooked(ScmLook::Clean)).until_deadline();
    assert_eq!(run.actions, ended, "a task");
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert!(run.starts_agent(), "the loop goes on");
    // One that has ended meanwhile has not failed.
    run.agent(done()).give(Input::ScmLooked(ScmLook::Clean)).until_deadline();
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn a_second_stop_ends_a_look_at_the_repository() {
    let mut run = Loop::start(Rules { scm: vec![ScmTask::Commit], ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn a_first_stop_lets_the_agent_finish_and_a_second_ends_it() {
    let stop = |now| Input::Stop { signal: "SIGINT", now };
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.give(Input::AgentStarted).give(stop(false));
    assert!(!run.asked(&Action::EndAgent(EndCause::Interrupt)));
    let mut patient = Loop { machine: run.machine.clone(), now: run.now, actions: Vec::new() };
    patient.give(Input::AgentEnded(Box::new(done())));
    assert_eq!(patient.outcome(), Some((Outcome::Interrupted, 130)), "guardrails did not pass");
    run.give(stop(true));
    assert!(run.asked(&Action::EndAgent(EndCause::Interrupt)));
    assert_eq!(run.outcome(), None, "not before the agent is gone");
    run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn a_stop_ends_a_wait_and_a_guardrail_gets_its_turn() {
    let stop = |now| Input::Stop { signal: "SIGTERM", now };
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Failed)).give(stop(false));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));

    let mut run = Loop::start(Rules { guardrails: vec![None, None], ..rules() });
    run.agent(done()).give(stop(false));
    assert_eq!(run.outcome(), None);
    run.give(stop(true));
    assert!(run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: None });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn what_is_stopped_before_another_attempt_was_interrupted_and_did_not_fail() {
    for report in [failed(Class::Failed), limited(None)] {
        let mut this = Loop::start(rules());
        this.agent(report).give(Input::Stop { signal: "SIGINT", now: false });
        assert_eq!(this.outcome(), Some((Outcome::Interrupted, 130)));
        let ended = this.actions.iter().find_map(|action| match action {
            Action::Emit(Event::IterationEnded { class, .. }) => Some(*class),
            _ => None,
        });
        assert_eq!(ended, Some(Class::Interrupted));
    }
}

#[test]
fn a_pause_waits_for_what_is_running_and_for_nothing_else() {
    let go_on = Input::Resume { max_iterations: None };
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.give(Input::AgentStarted).give(Input::Pause);
    assert_eq!(run.actions, [Action::Emit(Event::PauseRequested)]);
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.asked(&Action::RunGuardrail(0)), "an iteration is not left half done");
    run.give(Input::GuardrailEnded { failed: Some(feedback("red")) });
    assert!(run.asked(&Action::Emit(Event::Paused)) && !run.starts_agent());
    assert_eq!((run.machine.deadline(), run.machine.iteration()), (None, 1));
    run.give(Input::Pause);
    assert_eq!(run.actions, [], "once is enough");
    run.give(go_on.clone());
    assert!(run.starts_agent());
    assert_eq!((run.machine.iteration(), run.machine.feedback().len()), (2, 1));
    run.give(go_on);
    assert_eq!(run.actions, [], "it goes on already");
}

#[test]
fn a_pause_ends_a_back_off_at_once() {
    let retry = Retry { scope: RetryScope::NextIteration { failures: 5 }, ..rules().retry };
    for (rules, iteration) in [(rules(), 1), (Rules { retry, ..rules() }, 2)] {
        let mut run = Loop::start(rules);
        run.agent(failed(Class::Failed)).give(Input::Pause);
        assert!(run.machine.is_paused());
        run.after(1_000_000).give(Input::Resume { max_iterations: None });
        assert!(run.starts_agent());
        assert_eq!(run.machine.iteration(), iteration);
    }
}

#[test]
fn a_pause_costs_no_time_and_may_change_the_limit() {
    let budget = Budget { duration_ms: Some(10_000), ..Budget::default() };
    let mut run = Loop::start(Rules { max_iterations: 2, budget, ..rules() });
    run.give(Input::Pause).agent(answered()).after(1_000_000);
    run.give(Input::Resume { max_iterations: Some(3) });
    assert!(run.starts_agent());
    run.agent(answered()).agent(answered());
    assert_eq!(
        (run.outcome().map(|(outcome, _)| outcome), run.machine.iteration()),
        (Some(Outcome::LimitReached), 3)
    );
}

#[test]
fn a_pause_can_be_taken_back_and_a_stop_ends_it() {
    let mut run = Loop::start(rules());
    run.give(Input::Pause).give(Input::Resume { max_iterations: None }).agent(answered());
    assert!(run.starts_agent());
    run.give(Input::Pause).agent(answered());
    run.give(Input::Stop { signal: "SIGTERM", now: false });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));

    let mut run = Loop::start(Rules { max_iterations: 1, ..rules() });
    run.give(Input::Pause).agent(answered());
    assert!(run.machine.is_finished(), "there is nothing left to pause");
}

#[test]
fn a_resumed_run_goes_on_with_all_its_counts() {
    let progress = || {
        let mut spending = Spending::default();
        spending.attempt_ends(&spent(0.7));
        Progress {
            iterations: 2,
            failures: 1,
            feedback: vec![feedback("red")],
            tools: 7,
            spending,
            active_ms: 9_000,
            ..Progress::default()
        }
    };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let rules = || Rules { max_iterations: 4, budget, ..rules() };
    let begin = |progress| {
        let machine = LoopMachine::resumed(rules(), progress);
        let mut run = Loop { machine, now: Now::default(), actions: Vec::new() };
        run.give(Input::Start);
        run
    };
    let mut run = begin(progress());
    assert!(run.starts_agent());
    assert_eq!((run.machine.iteration(), run.machine.feedback().len()), (3, 1));
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(2), "{:?}", run.actions);

    let mut run = begin(progress());
    run.agent(Report { usage: spent(0.4), ..answered() });
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)), "0.7 before, and 0.4 now");
    assert!(run.actions.iter().any(|action| matches!(
        action,
        Action::Emit(Event::RunEnded { iterations: 3, tools: 8, duration_ms: 9_000.., .. })
    )));

    // Time is up when it would have been without the cut.
    let machine = LoopMachine::resumed(
        Rules { budget: Budget { duration_ms: Some(10_000), ..Budget::default() }, ..rules() },
        progress(),
    );
    let mut run = Loop { machine, now: Now::default(), actions: Vec::new() };
    run.give(Input::Start).give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(1_000));

    // One that somebody stopped has not been helped by that; one that had given up has.
    let mut run = begin(Progress { outcome: Some(Outcome::Interrupted), ..progress() });
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(2));
    let mut run = begin(Progress { outcome: Some(Outcome::AgentFailed), ..progress() });
    run.agent(failed(Class::Failed));
    assert!(run.asked_to_retry(1));
}

#[test]
fn a_slow_guardrail_is_ended() {
    let mut run = Loop::start(Rules { guardrails: vec![Some(5_000)], ..rules() });
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndGuardrail { timed_out: true }]);
    run.give(Input::GuardrailEnded { failed: Some(feedback("slow")) });
    assert!(run.starts_agent());
}

#[test]
fn scm_asks_for_a_message_only_when_there_is_something_to_commit() {
    let scm = vec![ScmTask::Commit, ScmTask::Other];
    let message = Report { has_message: true, ..answered() };
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    assert!(run.asked(&Action::LookAtScm));
    run.give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
    run.asked_for_message(message, StagedLook::Same);
    assert!(run.asked(&Action::RunScmTask(0)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.starts_agent());
    run.agent(done()).give(Input::ScmLooked(ScmLook::Clean));
    assert!(run.asked(&Action::SkipScmTask(0, "nothing to commit")));
    assert!(run.asked(&Action::RunScmTask(1)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn what_an_agent_does_that_is_asked_for_a_message_is_not_taken_for_checked() {
    let message = || Report { has_message: true, ..answered() };
    let unseen = || Unseen { reason: "a was changed".into(), feedback: feedback("look at a") };
    let vetoed = Action::Emit(Event::Vetoed { reason: "a was changed".into() });
    let rules = |gates| Rules {
        scm: vec![ScmTask::Commit, ScmTask::Other],
        guardrails: vec![None],
        gates,
        ..rules()
    };
    let dirty = |run: &mut Loop, report: Report| {
        run.agent(report).give(Input::GuardrailEnded { failed: None });
        run.give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
    };
    for gates in [false, true] {
        // What was staged is committed, and pushed, and that is all that the claim is worth.
        let mut run = Loop::start(rules(gates));
        dirty(&mut run, done());
        run.asked_for_message(message(), StagedLook::Beside(unseen()));
        assert_eq!(run.actions, [Action::RunScmTask(0)]);
        run.give(Input::ScmTaskEnded { ok: true, feedback: None })
            .give(Input::ScmTaskEnded { ok: true, feedback: None });
        assert!(run.asked(&vetoed), "{:?}", run.actions);
        let is_noted =
            |action: &Action| matches!(action, Action::Emit(Event::CompletionChecked { .. }));
        assert!(!run.actions.iter().any(is_noted), "whoever goes on has to check it");
        if gates {
            // Not even if every story passes.
            assert!(run.asked(&Action::CheckGates { claimed: false, checks_passed: false }));
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(
            (run.machine.iteration(), run.machine.feedback()),
            (2, &[feedback("look at a")][..])
        );

        // What is not what was staged is not committed, nor is anything pushed.
        dirty(&mut run, done());
        run.asked_for_message(answered(), StagedLook::Moved(unseen()));
        let is_task = |action: &Action| matches!(action, Action::RunScmTask(_));
        assert!(!run.actions.iter().any(is_task) && run.asked(&vetoed), "{:?}", run.actions);
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(run.machine.feedback(), [feedback("look at a")]);
        // The guardrails of the next iteration have seen it.
        run.agent(done()).give(Input::GuardrailEnded { failed: None });
        run.give(Input::ScmLooked(ScmLook::Clean))
            .give(Input::ScmTaskEnded { ok: true, feedback: None });
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Complete));
        }
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)), "nothing to commit is no failure");
    }
    // One that gave none may have done something all the same.
    let mut run = Loop::start(rules(false));
    dirty(&mut run, done());
    run.asked_for_message(failed(Class::Failed), StagedLook::Same);
    assert!(run.asked(&Action::RunScmTask(0)));
    // The look may hang.
    let mut run = Loop::start(rules(false));
    dirty(&mut run, done());
    run.agent(message()).give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::StagedLooked(StagedLook::Moved(unseen())));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn a_failed_scm_task_spoils_only_the_end() {
    let scm = vec![ScmTask::Other, ScmTask::Other];
    let mut run = Loop::start(Rules { scm, ..rules() });
    run.agent(answered());
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert!(run.starts_agent(), "the loop goes on");
    run.agent(done());
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn a_commit_that_failed_is_told_to_the_next_agent_and_its_message_is_used_again() {
    let refused =
        || Input::ScmTaskEnded { ok: false, feedback: Some(feedback("the hook says no")) };
    let look = |has_message| Input::ScmLooked(ScmLook::Dirty { has_message });
    let message = Report { has_message: true, ..answered() };
    let mut run = Loop::start(Rules { scm: vec![ScmTask::Commit], ..rules() });
    run.agent(answered()).give(look(false)).asked_for_message(message.clone(), StagedLook::Same);
    run.give(refused());
    assert_eq!(run.machine.feedback(), [feedback("the hook says no")]);
    // The same is to be committed.
    run.agent(answered()).give(look(true));
    assert_eq!(run.actions, [Action::RunScmTask(0)]);
    run.give(refused());
    assert_eq!(run.machine.feedback(), [feedback("the hook says no")]);
    // Something else is.
    run.agent(done()).give(look(false)).asked_for_message(message, StagedLook::Same);
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn changes_that_cannot_be_staged_spoil_the_end_too() {
    let mut run = Loop::start(Rules { scm: vec![ScmTask::Commit], ..rules() });
    run.agent(done()).give(Input::ScmLooked(ScmLook::Failed(None)));
    assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
}

#[test]
fn conflicts_are_told_to_the_next_agent_and_nobody_is_asked_for_a_message() {
    let look = || Input::ScmLooked(ScmLook::Failed(Some(feedback("conflict in a"))));
    let scm = || Rules { scm: vec![ScmTask::Commit, ScmTask::Other], ..rules() };
    let told = [feedback("conflict in a")];
    let mut run = Loop::start(scm());
    run.agent(answered()).give(look());
    assert!(run.starts_agent() && !run.asked(&Action::StartAgent(Purpose::CommitMessage)));
    assert_eq!(run.machine.feedback(), told);
    // Once they are resolved, there is nothing to tell.
    run.agent(answered()).give(Input::ScmLooked(ScmLook::Clean));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert!(run.starts_agent() && run.machine.feedback().is_empty());

    // The gates have something to say, too.
    let mut run = Loop::start(Rules { gates: true, ..scm() });
    run.agent(answered()).give(look()).give(veto(&["open: US-2"]));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2"), feedback("conflict in a")]);

    // Whoever is done is told nothing.
    for gates in [false, true] {
        let mut run = Loop::start(Rules { gates, ..scm() });
        run.agent(done()).give(look());
        if gates {
            run.give(Input::GatesChecked(GateVerdict::Stands));
        }
        assert_eq!(run.outcome(), Some((Outcome::CompleteScmFailed, 5)));
        assert!(run.machine.feedback().is_empty());
    }
}

/// What the gates are asked after guardrails that passed.
fn check_gates(claimed: bool) -> Action {
    Action::CheckGates { claimed, checks_passed: true }
}

fn veto(told: &[&str]) -> Input {
    let feedback = told.iter().map(|told| feedback(told)).collect();
    Input::GatesChecked(GateVerdict::Veto { reason: "open".to_owned(), feedback })
}

#[test]
fn a_gate_can_veto() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done());
    assert!(run.asked(&check_gates(true)));
    run.give(veto(&["open: US-2"]));
    assert!(run.asked(&Action::Emit(Event::Vetoed { reason: "open".into() })));
    assert_eq!(run.machine.feedback(), [feedback("open: US-2")]);
    run.agent(done()).give(Input::GatesChecked(GateVerdict::Stands));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn there_is_nothing_to_veto_where_nothing_is_claimed() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered());
    assert!(run.asked(&check_gates(false)));
    run.give(veto(&[]));
    let vetoed = |action: &Action| matches!(action, Action::Emit(Event::Vetoed { .. }));
    assert!(!run.actions.iter().any(vetoed));
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Stands));
    assert_eq!(run.outcome(), None);
}

#[test]
fn gates_are_asked_after_failed_guardrails_too_and_cannot_overrule_them() {
    for verdict in [veto(&["marked"]), Input::GatesChecked(GateVerdict::Complete)] {
        let adds = matches!(verdict, Input::GatesChecked(GateVerdict::Veto { .. }));
        let mut run = Loop::start(Rules { gates: true, guardrails: vec![None], ..rules() });
        run.agent(done()).give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
        assert!(run.asked(&Action::CheckGates { claimed: false, checks_passed: false }));
        run.give(verdict);
        assert_eq!(run.outcome(), None);
        let told =
            if adds { vec![feedback("lint"), feedback("marked")] } else { vec![feedback("lint")] };
        assert_eq!(run.machine.feedback(), told);
        let set = Action::Emit(Event::FeedbackSet { parts: told });
        assert!(run.asked(&set), "told of once, and whole");
    }
}

#[test]
fn every_attempt_is_briefed_anew() {
    let brief = |told: &str| Input::Briefed { feedback: vec![feedback(told)] };
    let mut run = Loop::start(Rules { gates: true, guardrails: vec![None], ..rules() });
    assert!(run.asked(&Action::Brief) && !run.starts_agent());
    run.give(brief("one"));
    assert!(run.starts_agent());
    assert_eq!(run.machine.feedback(), [feedback("one")]);
    // The same iteration again, with what there is to say now and not what there was.
    run.agent(failed(Class::Failed)).until_deadline();
    assert!(run.asked(&Action::Brief));
    run.give(brief("two"));
    assert_eq!(run.machine.feedback(), [feedback("two")]);
    // What failed comes first and stays through a retry; the briefing is new each time.
    run.agent(answered()).give(Input::GuardrailEnded { failed: Some(feedback("lint")) });
    run.give(Input::GatesChecked(GateVerdict::Stands)).give(brief("three"));
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("three")]);
    run.agent(failed(Class::Failed)).until_deadline();
    run.give(Input::Briefed { feedback: Vec::new() });
    assert_eq!(run.machine.feedback(), [feedback("lint")]);
}

#[test]
fn a_briefing_is_given_beside_what_a_resumed_run_had_to_tell() {
    let progress = Progress { feedback: vec![feedback("lint")], ..Progress::default() };
    let machine = LoopMachine::resumed(Rules { gates: true, ..rules() }, progress);
    let mut run = Loop { machine, now: Now::default(), actions: Vec::new() };
    run.give(Input::Start).give(Input::Briefed { feedback: vec![feedback("gone")] });
    assert_eq!(run.machine.feedback(), [feedback("lint"), feedback("gone")]);
}

/// A machine that has been asked to look whether there is anything to do.
fn opened(guardrails: usize) -> Loop {
    let rules = Rules {
        gates: true,
        guardrails: vec![None; guardrails],
        scm: vec![ScmTask::Commit],
        ..rules()
    };
    let now = Now { mono_ms: 5_000, wall_ms: 1_000_000_000 };
    let machine = LoopMachine::new(rules).checking_first();
    let mut run = Loop { machine, now, actions: Vec::new() };
    run.give(Input::Start);
    run
}

#[test]
fn work_that_is_done_already_is_checked_and_nobody_is_asked_to_do_it() {
    let mut run = opened(1);
    assert!(run.asked(&Action::RunGuardrail(0)) && run.machine.is_opening());
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.asked(&check_gates(false)), "and nothing is committed: {:?}", run.actions);
    run.give(Input::GatesChecked(GateVerdict::Complete));
    assert!(run.asked(&Action::Finish { outcome: Outcome::Complete, exit_code: 0 }));
    assert_eq!(run.machine.iteration(), 0);
}

#[test]
fn work_that_turns_out_not_to_be_done_is_begun_with_what_was_found() {
    let mut run = opened(1);
    run.give(Input::GuardrailEnded { failed: Some(feedback("it fails")) });
    let told = vec![feedback("so look")];
    let reason = "a check failed".to_owned();
    run.give(Input::GatesChecked(GateVerdict::Veto { reason, feedback: told }));
    let vetoed = |action: &Action| matches!(action, Action::Emit(Event::Vetoed { .. }));
    assert!(run.actions.iter().any(vetoed), "{:?}", run.actions);
    assert_eq!(run.machine.iteration(), 1);
    assert_eq!(run.machine.feedback(), [feedback("it fails"), feedback("so look")]);
    assert!(!run.machine.is_opening());
}

#[test]
fn a_stop_while_the_work_is_checked_first_is_heeded() {
    let mut run = opened(1);
    run.give(Input::Stop { signal: "SIGINT", now: true });
    assert!(run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: Some(feedback("ended")) });
    assert!(run.asked(&Action::Finish { outcome: Outcome::Interrupted, exit_code: 130 }));
}

#[test]
fn a_pause_while_the_gates_are_asked_is_one_before_the_attempt() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.give(Input::Pause).give(Input::Briefed { feedback: Vec::new() });
    assert!(run.machine.is_paused() && !run.starts_agent());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.asked(&Action::Brief));
    assert_eq!((run.machine.iteration(), run.machine.attempt()), (1, 1));
}

#[test]
fn a_stop_while_the_gates_are_asked_is_heeded() {
    let stop = || Input::Stop { signal: "SIGINT", now: false };
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.give(stop()).give(Input::Briefed { feedback: Vec::new() });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done()).give(stop()).give(veto(&["open"]));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGINT", now: true });
    run.give(Input::GatesChecked(GateVerdict::Complete));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

/// A first stop, while the agent works: with these rules, that answer, and what comes after it.
#[test]
fn what_was_let_finish_is_judged_if_nothing_has_to_be_started_for_it() {
    let checked = || Rules { guardrails: vec![None], ..rules() };
    let committing = || Rules { scm: vec![ScmTask::Other], ..rules() };
    let gated = || Rules { gates: true, ..rules() };
    let passed = || Input::GuardrailEnded { failed: None };
    let fails = || Input::GuardrailEnded { failed: Some(feedback("no")) };
    let complete = (Outcome::Complete, 0, false);
    let ended = (Outcome::Interrupted, 130, false);
    let cut_off = (Outcome::Interrupted, 130, true);
    // Before the stop, after it, and what it comes to.
    let agent_ends = |report| Input::AgentEnded(Box::new(report));
    let table = [
        ("said done", rules(), vec![], vec![agent_ends(done())], complete),
        ("said nothing of it", rules(), vec![], vec![agent_ends(answered())], ended),
        ("failed", rules(), vec![], vec![agent_ends(failed(Class::Failed))], cut_off),
        ("limited", rules(), vec![], vec![agent_ends(failed(Class::Limited))], cut_off),
        ("unchecked", checked(), vec![], vec![agent_ends(done())], cut_off),
        ("uncommitted", committing(), vec![], vec![agent_ends(done())], cut_off),
        ("checked", checked(), vec![agent_ends(done())], vec![passed()], complete),
        ("no claim", checked(), vec![agent_ends(answered())], vec![passed()], ended),
        ("found wanting", checked(), vec![agent_ends(done())], vec![fails()], cut_off),
        (
            "a guardrail left",
            Rules { guardrails: vec![None, None], ..rules() },
            vec![agent_ends(done())],
            vec![passed()],
            cut_off,
        ),
        (
            "a commit left",
            Rules { guardrails: vec![None], ..committing() },
            vec![agent_ends(done())],
            vec![passed()],
            cut_off,
        ),
        (
            "the last task",
            committing(),
            vec![agent_ends(done())],
            vec![Input::ScmTaskEnded { ok: true, feedback: None }],
            complete,
        ),
        (
            "a gate agrees",
            gated(),
            vec![],
            vec![agent_ends(done()), Input::GatesChecked(GateVerdict::Stands)],
            complete,
        ),
        ("a gate objects", gated(), vec![], vec![agent_ends(done()), veto(&["open"])], ended),
    ];
    for (name, rules, before, after, expected) in table {
        let mut run = Loop::start(rules);
        if run.asked(&Action::Brief) {
            run.give(Input::Briefed { feedback: Vec::new() });
        }
        run.give(Input::AgentStarted);
        for input in before {
            run.give(input);
        }
        run.give(Input::Stop { signal: "SIGINT", now: false });
        assert_eq!(run.outcome(), None, "{name}: it may finish");
        for input in after {
            run.give(input);
        }
        let end = run.actions.iter().find_map(|action| match action {
            Action::Emit(Event::RunEnded { outcome, exit_code, cut_off, .. }) => {
                Some((*outcome, *exit_code, *cut_off))
            }
            _ => None,
        });
        assert_eq!(end, Some(expected), "{name}");
        let iteration = run.actions.iter().find_map(|action| match action {
            Action::Emit(Event::IterationEnded { cut_off, .. }) => Some(*cut_off),
            _ => None,
        });
        assert_eq!(iteration, Some(expected.2), "{name}: whether it is begun again");
    }
}

#[test]
fn a_gate_can_know_better_than_an_agent_that_forgot_to_say_so() {
    let mut run = Loop::start(Rules { gates: true, ..rules() });
    run.agent(answered()).give(Input::GatesChecked(GateVerdict::Complete));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn only_an_answer_completes() {
    for class in [Class::Empty, Class::Limited, Class::TimedOut] {
        let mut run = Loop::start(Rules { inactivity_fails: false, ..rules() });
        run.agent(Report { class, ..done() });
        assert!(run.starts_agent(), "{class:?}");
    }
}

#[test]
fn work_within_its_budget_is_committed_though_the_budget_is_used_up() {
    let scm = vec![ScmTask::Commit];
    let money = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let iteration_money = Rules { scm: scm.clone(), iteration_budget: money, ..rules() };
    for rules in [iteration_money, Rules { scm, budget: money, ..rules() }] {
        // Nothing may be asked any more, and the work is kept all the same.
        let mut run = Loop::start(rules);
        run.agent(Report { usage: spent(1.5), ..done() })
            .give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
        assert!(run.asked(&Action::RunScmTask(0)), "{:?}", run.actions);
    }
}

#[test]
fn a_commit_message_is_bound_by_every_budget_and_its_lack_loses_no_work() {
    use EndCause::{Budget as OfRun, IterationBudget, IterationTimeout};
    let (dollar, ten_s) = (
        Budget { cost_usd: Some(1.0), ..Budget::default() },
        Budget { duration_ms: Some(10_000), ..Budget::default() },
    );
    let tokens = Budget { tokens: Some(1_000), ..Budget::default() };
    let limits = |budget, iteration_budget| Rules {
        scm: vec![ScmTask::Commit],
        max_iterations: 1,
        inactivity_ms: None,
        budget,
        iteration_budget,
        ..rules()
    };
    let none = Budget::default();
    let much = || Usage { input_tokens: 2_000, ..spent(0.7) };
    for (rules, used, cause) in [
        (limits(none, dollar), Some(much()), IterationBudget),
        (limits(none, tokens), Some(much()), IterationBudget),
        (limits(none, ten_s), None, IterationBudget),
        (limits(dollar, none), Some(much()), OfRun),
        (limits(tokens, none), Some(much()), OfRun),
        (limits(ten_s, none), None, OfRun),
        // One that works on and on and tells nothing has no limit but this.
        (limits(none, none), None, IterationTimeout),
    ] {
        let mut run = Loop::start(rules.clone());
        run.agent(Report { usage: spent(0.5), ..done() })
            .give(Input::ScmLooked(ScmLook::Dirty { has_message: false }));
        assert!(run.asked(&Action::StartAgent(Purpose::CommitMessage)), "{rules:?}");
        run.give(Input::AgentStarted);
        match used {
            Some(used) => run.give(Input::Used(used)),
            None => run.until_deadline(),
        };
        assert_eq!(run.actions, [Action::EndAgent(cause)], "{rules:?}");
        run.give(Input::AgentEnded(Box::new(Report {
            usage: used.unwrap_or_default(),
            ..failed(Class::Limited)
        })));
        run.give(Input::StagedLooked(StagedLook::Same));
        assert!(run.asked(&Action::RunScmTask(0)), "{rules:?}: {:?}", run.actions);
        // There is time for the commit itself, though the run has none left.
        assert!(run.machine.deadline().is_none_or(|at| at >= run.now.mono_ms + 10_000));
        run.after(5_000).give(Input::ScmTaskEnded { ok: true, feedback: None });
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)), "{rules:?}");
    }
}

#[test]
fn waiting_is_no_work() {
    let iteration_budget = Budget { duration_ms: Some(600_000), ..Budget::default() };
    let mut run = Loop::start(Rules { iteration_budget, ..rules() });
    let reset = run.now.wall_ms / 1000 + 1_800;
    run.give(Input::AgentStarted)
        .after(200_000)
        .give(Input::AgentEnded(Box::new(limited(Some(reset)))));
    while !run.starts_agent() {
        run.until_deadline();
    }
    run.give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 400_000));
}

#[test]
fn an_iteration_that_has_used_up_its_budget_is_not_tried_again() {
    let iteration_budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { iteration_budget, ..rules() });
    run.agent(Report { usage: spent(1.5), ..failed(Class::Failed) }).until_deadline();
    assert_eq!((run.machine.iteration(), run.starts_agent()), (2, true));
}

#[test]
fn a_price_that_is_not_told_counts_by_what_tokens_have_cost() {
    let tokens = |cost_usd| Usage { cost_usd, input_tokens: 1_000, ..Usage::default() };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(Report { usage: tokens(Some(0.4)), ..answered() });
    run.agent(Report { usage: tokens(None), ..failed(Class::TimedOut) }).until_deadline();
    run.give(Input::AgentStarted).give(Input::Used(tokens(None)));
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
}

#[test]
fn a_clock_that_is_set_back_makes_no_wait_longer() {
    let mut run = Loop::start(rules());
    run.agent(limited(Some(run.now.wall_ms / 1000 + 100)));
    run.now.wall_ms -= 86_400_000;
    let mut waited = 0;
    while !run.starts_agent() {
        let before = run.now.mono_ms;
        run.until_deadline();
        waited += run.now.mono_ms - before;
    }
    assert_eq!(waited, 101_000);
}

#[test]
fn what_breaks_ends_the_agent_first() {
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::Broken { message: "disk full".into() });
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Broken)]);
    run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
    assert_eq!(run.outcome(), Some((Outcome::Broken, 2)));
}

#[test]
fn a_lost_prompt_ends_the_run() {
    let mut run = Loop::start(rules());
    run.give(Input::PromptFailed { message: "gone".into() });
    assert_eq!(run.outcome(), Some((Outcome::PromptLost, 2)));
}

/// What the world of a random history holds: the things that the machine started and that have not
/// ended. It answers as a driver would, in any order and at any time that a driver could.
#[derive(Default)]
struct World {
    agent: Option<Purpose>,
    starting: bool,
    guardrail: bool,
    guardrail_failed: bool,
    looking: bool,
    looking_again: bool,
    /// Something is there that no guardrail has seen.
    unseen: bool,
    looking_around: bool,
    scm: bool,
    briefing: bool,
    gates: bool,
    agents_started: u32,
    iterations: u32,
    open_iterations: u32,
    spent: f64,
    budget: Option<f64>,
    stop_asked: bool,
    /// Not only asked to stop when what is running has finished.
    stop_at_once: bool,
    end_agent_asked: bool,
    complete_claimed: bool,
    finished: Option<Outcome>,
}

impl World {
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert_eq!(self.finished, None, "nothing comes after the end: {action:?}");
            match action {
                Action::StartAgent(purpose) => {
                    let budget = self.budget.unwrap_or(f64::INFINITY);
                    assert!(self.spent < budget, "nobody starts on a budget that is used up");
                    assert!(self.idle(), "never two things at once");
                    assert!(!self.stop_asked, "nothing is started after a stop");
                    self.agent = Some(purpose);
                    self.starting = true;
                    self.end_agent_asked = false;
                    if purpose == Purpose::Work {
                        self.agents_started += 1;
                        self.guardrail_failed = false;
                        self.unseen = false;
                    }
                }
                Action::EndAgent(_) => {
                    assert!(self.agent.is_some() && !self.end_agent_asked);
                    self.end_agent_asked = true;
                }
                Action::RunGuardrail(_) => {
                    assert!(self.idle() && !self.stop_asked);
                    self.guardrail = true;
                }
                Action::EndGuardrail { .. } => assert!(self.guardrail),
                Action::LookAtScm => {
                    assert!(self.idle() && !self.stop_asked && !self.guardrail_failed);
                    self.looking = true;
                }
                Action::LookAtStaged => {
                    assert!(self.idle() && !self.stop_asked);
                    self.looking_again = true;
                }
                Action::RunScmTask(_) => {
                    assert!(self.idle() && !self.stop_asked && !self.guardrail_failed);
                    self.scm = true;
                }
                Action::EndScmTask { .. } => {
                    let looks = self.looking || self.looking_again || self.looking_around;
                    assert!(self.scm || looks);
                }
                Action::LookAtRepository => {
                    assert!(self.idle() && !self.stop_asked && self.open_iterations == 0);
                    self.looking_around = true;
                }
                Action::Brief => {
                    assert!(self.idle() && !self.stop_asked);
                    self.briefing = true;
                }
                Action::CheckGates { claimed, checks_passed } => {
                    assert!(self.idle());
                    assert!(!(claimed || checks_passed) || !self.guardrail_failed);
                    self.gates = true;
                }
                Action::SkipScmTask(..) | Action::Save => {}
                Action::Emit(Event::IterationStarted { max_iterations }) => {
                    self.iterations += 1;
                    self.open_iterations += 1;
                    assert_eq!(self.open_iterations, 1, "every iteration ends before the next");
                    assert!(self.iterations <= max_iterations, "never more than the limit");
                }
                Action::Emit(Event::IterationEnded { complete, .. }) => {
                    self.open_iterations -= 1;
                    assert!(!complete || !(self.guardrail_failed || self.unseen));
                }
                Action::Emit(_) => {}
                Action::Finish { outcome, .. } => {
                    assert!(self.idle(), "nothing is left running");
                    assert_eq!(self.open_iterations, 0, "every start has an end");
                    let complete =
                        matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
                    if complete {
                        assert!(!self.guardrail_failed, "never complete with a failed guardrail");
                        assert!(!self.unseen, "never complete with what no guardrail has seen");
                        assert!(self.complete_claimed, "never complete unsaid");
                        assert!(!self.stop_at_once, "a stop is always honoured");
                    }
                    self.finished = Some(outcome);
                }
            }
        }
    }

    fn idle(&self) -> bool {
        self.agent.is_none()
            && !(self.guardrail || self.looking || self.scm || self.briefing || self.gates)
            && !(self.looking_again || self.looking_around)
    }
}

fn report(choice: u8, complete: bool) -> Report {
    let class = [
        Class::Answered,
        Class::Answered,
        Class::Answered,
        Class::Empty,
        Class::Failed,
        Class::RateLimited,
        Class::Overloaded,
        Class::Credentials,
        Class::ContextExhausted,
        Class::Limited,
        Class::TimedOut,
    ][usize::from(choice) % 11];
    let failure = (class == Class::RateLimited).then(|| Failure {
        kind: FailureKind::RateLimit,
        message: "limit".into(),
        resets_at: (choice > 127).then(|| i64::from(choice) * 10_000),
    });
    let usage = spent(0.1);
    Report { class, failure, usage, complete, has_message: choice.is_multiple_of(2), ..answered() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_history_keeps_the_promises(
        max_iterations in 1u32..6,
        guardrails in 0usize..3,
        scm in 0usize..3,
        gates: bool,
        next_iteration: bool,
        retry_empty: bool,
        inactivity_fails: bool,
        budget in proptest::option::of(0.05f64..2.0),
        iteration_budget in proptest::option::of(0.05f64..0.5),
        stall in 0u32..5,
        choices in proptest::collection::vec(any::<(u8, u8, bool)>(), 1..120),
    ) {
        let scope = if next_iteration {
            RetryScope::NextIteration { failures: 3 }
        } else {
            RetryScope::SameIteration { retries: 2 }
        };
        let rules = Rules {
            max_iterations,
            retry: Retry { scope, ..rules().retry },
            retry_empty,
            exit_without_prompt: exit::INPUT,
            inactivity_fails,
            inactivity_ms: Some(60_000),
            iteration_timeout_ms: Some(100_000),
            budget: Budget { cost_usd: budget, ..Budget::default() },
            iteration_budget: Budget { cost_usd: iteration_budget, ..Budget::default() },
            guardrails: vec![Some(10_000); guardrails],
            scm: [ScmTask::Commit, ScmTask::Other][..scm].to_vec(),
            gates,
            stall: StallRule::stopping_after(stall),
            ..rules()
        };
        let mut machine = LoopMachine::new(rules);
        let mut world = World { budget, ..World::default() };
        let mut now = Now { mono_ms: 1, wall_ms: 1_000_000 };
        world.carry_out(machine.step(now, Input::Start));
        let mut broken = false;
        for (kind, choice, flag) in choices {
            let elapsed = u64::from(choice) * 100;
            now.mono_ms += elapsed;
            now.wall_ms += elapsed as i64;
            if kind.is_multiple_of(7) && let Some(deadline) = machine.deadline() {
                now.wall_ms += deadline.saturating_sub(now.mono_ms) as i64;
                now.mono_ms = now.mono_ms.max(deadline);
            }
            // What comes from outside at any time, and else the end of whatever is running.
            let input = match kind % 16 {
                0 if choice.is_multiple_of(8) => {
                    world.stop_asked = true;
                    world.stop_at_once |= flag;
                    Input::Stop { signal: "SIGINT", now: flag }
                }
                1 if choice == 0 => {
                    broken = true;
                    world.stop_asked = true;
                    world.stop_at_once = true;
                    Input::Broken { message: "disk full".into() }
                }
                2 | 3 => Input::Deadline,
                9 if choice.is_multiple_of(4) => Input::Pause,
                _ if machine.is_paused() => {
                    let limit = machine.max_iterations();
                    Input::Resume { max_iterations: flag.then_some(limit) }
                }
                4 if world.agent.is_some() => Input::Output,
                5 if world.agent.is_some() => Input::Used(spent(f64::from(choice) / 200.0)),
                6 if world.agent.is_some() => Input::ResultSeen,
                7 if world.agent.is_some() => Input::BackgroundTasks(u32::from(choice % 3)),
                8 if world.agent.is_some() && flag => Input::Refused,
                8 if world.agent.is_some() => Input::Working,
                _ => {
                    if world.starting {
                        world.starting = false;
                        match choice % 16 {
                            0 => { world.agent = None; Input::AgentNotStarted { message: "x".into() } }
                            1 if world.agent == Some(Purpose::Work) => {
                                world.agent = None;
                                Input::PromptFailed { message: "x".into() }
                            }
                            _ => Input::AgentStarted,
                        }
                    } else if let Some(purpose) = world.agent.take() {
                        let report = report(choice, flag && purpose == Purpose::Work);
                        if purpose == Purpose::Work {
                            world.complete_claimed =
                                report.complete && report.class == Class::Answered;
                        }
                        world.spent += 0.1;
                        Input::AgentEnded(Box::new(report))
                    } else if std::mem::take(&mut world.guardrail) {
                        world.guardrail_failed |= flag;
                        Input::GuardrailEnded { failed: flag.then(|| feedback("no")) }
                    } else if std::mem::take(&mut world.looking_around) {
                        let fingerprint = flag.then_some(u64::from(choice % 2));
                        Input::RepositoryLooked { fingerprint }
                    } else if std::mem::take(&mut world.looking) {
                        Input::ScmLooked(if flag {
                            ScmLook::Dirty { has_message: false }
                        } else if choice.is_multiple_of(3) {
                            ScmLook::Failed(None)
                        } else {
                            ScmLook::Clean
                        })
                    } else if std::mem::take(&mut world.looking_again) {
                        let unseen = Unseen { reason: "x".into(), feedback: feedback("look") };
                        world.unseen = !flag;
                        Input::StagedLooked(match (flag, choice % 2) {
                            (true, _) => StagedLook::Same,
                            (false, 0) => StagedLook::Beside(unseen),
                            (false, _) => StagedLook::Moved(unseen),
                        })
                    } else if std::mem::take(&mut world.scm) {
                        Input::ScmTaskEnded { ok: flag, feedback: None }
                    } else if std::mem::take(&mut world.briefing) {
                        Input::Briefed { feedback: vec![] }
                    } else if std::mem::take(&mut world.gates) {
                        Input::GatesChecked(if flag {
                            world.complete_claimed = false;
                            GateVerdict::Veto { reason: "open".into(), feedback: vec![] }
                        } else if choice.is_multiple_of(4) {
                            world.complete_claimed = true;
                            GateVerdict::Complete
                        } else {
                            GateVerdict::Stands
                        })
                    } else {
                        Input::Deadline
                    }
                }
            };
            world.carry_out(machine.step(now, input));
            if world.finished.is_some() {
                break;
            }
        }
        // Whatever the history was, a stop ends it as soon as what is running has ended.
        if world.finished.is_none() {
            world.stop_asked = true;
            world.carry_out(machine.step(now, Input::Stop { signal: "SIGHUP", now: true }));
            let input = if world.agent.take().is_some() {
                Some(Input::AgentEnded(Box::new(report(0, true))))
            } else if std::mem::take(&mut world.guardrail) {
                Some(Input::GuardrailEnded { failed: None })
            } else if std::mem::take(&mut world.looking_around) {
                Some(Input::RepositoryLooked { fingerprint: None })
            } else if std::mem::take(&mut world.looking) {
                Some(Input::ScmLooked(ScmLook::Dirty { has_message: false }))
            } else if std::mem::take(&mut world.looking_again) {
                Some(Input::StagedLooked(StagedLook::Same))
            } else if std::mem::take(&mut world.scm) {
                Some(Input::ScmTaskEnded { ok: true, feedback: None })
            } else if std::mem::take(&mut world.briefing) {
                Some(Input::Briefed { feedback: vec![] })
            } else if std::mem::take(&mut world.gates) {
                Some(Input::GatesChecked(GateVerdict::Stands))
            } else {
                None
            };
            if let Some(input) = input {
                world.carry_out(machine.step(now, input));
            }
            let expected = if broken { Outcome::Broken } else { Outcome::Interrupted };
            prop_assert_eq!(world.finished, Some(expected));
        }
        prop_assert!(machine.is_finished());
        prop_assert_eq!(machine.step(now, Input::Deadline), vec![]);
    }
}

#[test]
fn a_loop_that_gets_nowhere_is_looked_at_warned_of_and_stopped() {
    let stall = StallRule::stopping_after(2);
    let mut run = Loop::start(Rules { max_iterations: 9, stall, ..rules() });
    let stalling = |run: &Loop| {
        run.actions.iter().any(|action| matches!(action, Action::Emit(Event::Stalling { .. })))
    };
    for fingerprint in [Some(1), Some(2)] {
        assert!(run.asked(&Action::LookAtRepository));
        run.give(Input::RepositoryLooked { fingerprint }).agent(answered());
    }
    run.give(Input::RepositoryLooked { fingerprint: Some(2) });
    assert!(stalling(&run), "{:?}", run.actions);
    // Somebody pauses it: it is not looked at again for that.
    run.agent(answered()).give(Input::Pause);
    run.give(Input::RepositoryLooked { fingerprint: Some(3) });
    assert!(run.machine.is_paused());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.starts_agent(), "{:?}", run.actions);
    for _ in 0..2 {
        run.agent(answered()).give(Input::RepositoryLooked { fingerprint: Some(3) });
    }
    assert_eq!(run.outcome(), Some((Outcome::Stalled, 3)));
    assert_eq!(run.machine.iteration(), 5);
}

#[test]
fn a_look_that_takes_too_long_is_ended_and_a_stop_ends_it() {
    let stall = StallRule::stopping_after(1);
    let mut run = Loop::start(Rules { stall, ..rules() });
    run.until_deadline();
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::RepositoryLooked { fingerprint: None });
    assert!(run.starts_agent(), "nobody can tell");
    run.agent(answered()).give(Input::Stop { signal: "SIGHUP", now: true });
    assert!(run.asked(&Action::EndScmTask { timed_out: false }));
    run.give(Input::RepositoryLooked { fingerprint: None });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
}

#[test]
fn what_guardrails_have_said_is_kept_for_whoever_goes_on() {
    let guardrails = vec![None; 3];
    let told = |run: &Loop| {
        run.actions.iter().find_map(|action| match action {
            Action::Emit(Event::FeedbackSet { parts }) => Some(parts.clone()),
            _ => None,
        })
    };
    // The first has failed, and the second is ended with the run: that says nothing of the work.
    let mut run = Loop::start(Rules { guardrails: guardrails.clone(), ..rules() });
    run.agent(done()).give(Input::GuardrailEnded { failed: Some(feedback("red")) });
    run.give(Input::Stop { signal: "SIGHUP", now: true });
    run.give(Input::GuardrailEnded { failed: Some(feedback("signal 15")) });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    assert_eq!(told(&run), Some(vec![feedback("red")]));
    // Nothing had failed: what was said before still holds.
    let mut run = Loop::start(Rules { guardrails, ..rules() });
    run.agent(done()).give(Input::Stop { signal: "SIGHUP", now: true });
    run.give(Input::GuardrailEnded { failed: Some(feedback("signal 15")) });
    assert_eq!(told(&run), None);
}
