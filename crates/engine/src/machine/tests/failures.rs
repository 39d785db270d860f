//! Failed attempts: retries, waits, and the end of the run.

use super::*;

#[test]
fn failures_back_off_then_end_run() {
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
fn permanent_failure_is_not_retried() {
    let message = "claude refuses as root".to_owned();
    let failure = Failure { kind: FailureKind::Usage, message, resets_at: None };
    let report = AgentReport { failure: Some(failure), ..failed(Class::Failed) };
    let next = RetryScope::NextIteration { failures: 5 };
    for scope in [rules().retry.scope, next] {
        let mut run = Loop::start(Rules { retry: Retry { scope, ..rules().retry }, ..rules() });
        run.agent(report.clone());
        assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 4)));
    }
}

#[test]
fn run_end_names_last_failure_and_used_up_budget() {
    let end = |run: &Loop| {
        run.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::RunEnded { last_failure, used_up, message, .. }) => {
                let text =
                    |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
                Some((text(last_failure), text(used_up), message.to_string()))
            }
            _ => None,
        })
    };
    let failure =
        Failure { kind: FailureKind::Usage, message: "bad flag".to_owned(), resets_at: None };
    let mut run = Loop::start(rules());
    run.agent(AgentReport { failure: Some(failure), ..failed(Class::Failed) });
    let (last_failure, used_up, message) = end(&run).expect("an end");
    assert_eq!((last_failure.as_deref(), used_up), (Some("bad flag"), None));
    assert_eq!(message, "the agent failed: bad flag");

    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(AgentReport { usage: spent(2.0), ..answered() });
    let (last_failure, used_up, message) = end(&run).expect("an end");
    assert_eq!(last_failure, None);
    assert!(used_up.is_some_and(|used_up| message.ends_with(&used_up)), "{message}");

    let mut run = Loop::start(rules());
    run.agent(done());
    assert!(matches!(end(&run), Some((None, None, _))));
}

#[test]
fn success_resets_failure_count() {
    let mut run = Loop::start(rules());
    for _ in 0..3 {
        run.agent(failed(Class::Failed)).until_deadline();
        run.agent(failed(Class::TimedOut)).until_deadline();
        run.agent(answered());
    }
    assert_eq!(run.outcome(), Some((Outcome::LimitReached, 1)));
}

#[test]
fn failures_use_up_iterations_in_next_iteration_scope() {
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
}

#[test]
fn limit_after_only_failed_iterations_is_failure() {
    let retry = Retry { scope: RetryScope::NextIteration { failures: 5 }, ..rules().retry };
    let retry = Retry { exit_code: 1, ..retry };
    let limited = || Rules { max_iterations: 2, exit_at_limit: 0, retry, ..rules() };
    let delays = |run: &Loop| -> Vec<Option<u64>> {
        let delay = |action: &Action| match action {
            Action::Emit(_, Event::Retrying { delay_ms, .. }) => Some(*delay_ms),
            _ => None,
        };
        run.actions.iter().filter_map(delay).collect()
    };
    let mut run = Loop::start(limited());
    run.agent(failed(Class::Failed));
    assert_eq!(delays(&run), [Some(1_000)]);
    run.until_deadline().agent(failed(Class::Failed));
    assert_eq!(delays(&run), [None], "no retry is announced that does not follow");
    assert_eq!(run.outcome(), Some((Outcome::AgentFailed, 1)));
    // One success is enough, also before a resume; inactivity is no failure.
    let mut run = Loop::start(Rules { inactivity_fails: false, ..limited() });
    run.agent(AgentReport { class: Class::TimedOut, ..answered() }).agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::LimitReached, 0)));
    for (any_succeeded, expected) in
        [(true, (Outcome::LimitReached, 0)), (false, (Outcome::AgentFailed, 1))]
    {
        let progress = ResumePoint { iterations: 1, any_succeeded, ..ResumePoint::default() };
        let mut run = Loop::resume(limited(), progress);
        run.agent(failed(Class::Failed));
        assert_eq!(run.outcome(), Some(expected));
    }
}

#[test]
fn retry_beyond_budget_is_not_announced() {
    let budget = Budget { duration_ms: Some(500), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(failed(Class::Failed));
    let announced = |action: &Action| {
        matches!(action, Action::Emit(_, Event::Retrying { delay_ms: Some(_), .. }))
    };
    assert!(!run.actions.iter().any(announced), "{:?}", run.actions);
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));
}

#[test]
fn backoff_doubles_up_to_its_cap() {
    let retry = rules().retry;
    let delays: Vec<u64> = [1, 2, 3, 9, 10, 64, u32::MAX].map(|n| retry.backoff(n)).to_vec();
    assert_eq!(delays, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000, 300_000]);
}

#[test]
fn empty_answer_is_retried_only_if_enabled() {
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Empty));
    assert_eq!(run.machine.iteration(), 2);

    let mut run = Loop::start(Rules { retry_empty: true, ..rules() });
    run.agent(failed(Class::Empty)).until_deadline();
    assert_eq!(run.machine.iteration(), 1);
}

#[test]
fn refused_credentials_end_run_immediately() {
    let mut run = Loop::start(rules());
    run.agent(failed(Class::Credentials));
    assert_eq!(run.outcome(), Some((Outcome::CredentialsRefused, 4)));
}

#[test]
fn internal_error_ends_agent_before_run() {
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::InternalError { message: "disk full".into() });
    assert_eq!(run.actions, [Action::EndAgent(EndCause::InternalError)]);
    run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
    assert_eq!(run.outcome(), Some((Outcome::InternalError, 2)));
}

#[test]
fn unreadable_prompt_ends_run() {
    let mut run = Loop::start(rules());
    run.give(Input::PromptFailed { message: "gone".into() });
    assert_eq!(run.outcome(), Some((Outcome::PromptMissing, 2)));
}

#[test]
fn rate_limit_wait_is_not_counted_as_failure() {
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
fn rate_limit_passed_during_sleep_is_noticed() {
    let mut run = Loop::start(rules());
    let reset = run.now.wall_ms / 1000 + 3_000;
    run.agent(limited(Some(reset)));
    run.now.wall_ms += 4_000_000;
    run.until_deadline();
    assert!(run.starts_agent());
}

#[test]
fn rate_limit_without_reset_time_backs_off() {
    let mut run = Loop::start(rules());
    for delay in [1_000, 2_000, 4_000] {
        run.agent(limited(None));
        assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + delay));
        run.until_deadline();
    }
    run.agent(limited(Some(1)));
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 8_000));
}

#[test]
fn rate_limit_beyond_max_wait_ends_run() {
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
fn clock_set_back_does_not_extend_rate_limit_wait() {
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
