//! Limits of time and money.

use super::*;

#[test]
fn inactivity_timeout_ends_agent_and_output_resets_it() {
    let mut run = Loop::start(Rules { inactivity_ms: Some(60_000), ..rules() });
    run.give(Input::AgentStarted).after(50_000).give(Input::Output).after(50_000);
    run.give(Input::Timer);
    assert_eq!(run.actions, []);
    run.until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Inactivity)]);
    run.give(Input::Timer);
    assert_eq!(run.actions, [], "it is ended once");
    run.give(Input::AgentEnded(Box::new(failed(Class::TimedOut))));
    assert!(run.machine.deadline().is_some(), "a back-off");
}

#[test]
fn silence_after_output_checks_for_completion_once() {
    let mut run = Loop::start(Rules { check_done_ms: Some(1_000), ..rules() });
    run.give(Input::AgentStarted);
    assert_eq!(run.machine.deadline(), None, "it has said nothing yet");
    run.give(Input::Output).after(999).give(Input::Output).after(999).give(Input::Timer);
    assert_eq!(run.actions, []);
    run.after(1).give(Input::Timer);
    assert_eq!(run.actions, [Action::CheckDone]);
    assert_eq!(run.machine.deadline(), None, "it is checked again after more output");
    run.give(Input::ResultSeen).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::ResultGrace)]);
    // A limit at the same time does not hide the answer.
    let inactivity_ms = Some(1_000);
    let mut run = Loop::start(Rules { check_done_ms: Some(1_000), inactivity_ms, ..rules() });
    run.give(Input::AgentStarted).give(Input::Output).after(1_000).give(Input::Timer);
    assert_eq!(run.actions, [Action::CheckDone]);
    run.give(Input::Timer);
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Inactivity)]);
}

#[test]
fn silent_model_is_warned_about_once_then_ended() {
    let warned = |run: &Loop| {
        let is_warning =
            |action: &&Action| matches!(action, Action::Emit(_, Event::ModelSilent { .. }));
        run.actions.iter().filter(is_warning).count()
    };
    let limit = 20 * 60_000;
    let mut run = Loop::start(Rules { silent_model_ms: Some(limit), ..rules() });
    run.give(Input::AgentStarted).after(limit / 4 - 1).give(Input::Output).until_deadline();
    let silent = Event::ModelSilent { silent_ms: limit / 4, limit_ms: limit };
    assert_eq!(run.actions, [run.emit(silent)]);
    run.give(Input::Timer);
    assert_eq!(run.actions, []);
    run.until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::SilentModel)]);
    run.give(Input::AgentEnded(Box::new(failed(Class::Failed))));
    assert_eq!(run.outcome(), None, "it may be tried again");
    run.until_deadline();
    assert!(run.starts_agent());
    run.give(Input::AgentStarted).until_deadline();
    assert_eq!(warned(&run), 0);
    assert_eq!(run.actions, [Action::EndAgent(EndCause::SilentModel)]);
}

#[test]
fn silent_model_limit_spares_tools_background_tasks_and_results() {
    let rules = Rules { silent_model_ms: Some(60_000), result_grace_ms: None, ..rules() };
    for input in [Input::ToolRunning(true), Input::BackgroundTasks(1), Input::ResultSeen] {
        let mut run = Loop::start(rules.clone());
        run.give(Input::AgentStarted).give(input.clone());
        assert_eq!(run.machine.deadline(), None, "{input:?}");
        run.after(1_000_000).give(Input::Timer);
        assert_eq!(run.actions, [], "{input:?}");
    }
    let mut run = Loop::start(rules);
    run.give(Input::AgentStarted).give(Input::ToolRunning(true)).after(1_000_000);
    run.give(Input::Output).give(Input::ToolRunning(false));
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 15_000));
    run.give(Input::ToolRunning(true)).agent(answered()).give(Input::AgentStarted);
    assert!(run.machine.deadline().is_some());
}

#[test]
fn inactivity_ends_iteration_when_not_a_failure() {
    let mut run = Loop::start(Rules { inactivity_fails: false, ..rules() });
    run.agent(AgentReport { class: Class::TimedOut, ..done() });
    assert_eq!((run.machine.iteration(), run.starts_agent()), (2, true));
}

#[test]
fn agent_running_on_after_result_is_ended() {
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::ResultSeen).after(9_000).give(Input::Output);
    run.until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::ResultGrace)]);

    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::BackgroundTasks(1)).give(Input::ResultSeen);
    assert_eq!(run.machine.deadline(), None);
    run.after(60_000).give(Input::BackgroundTasks(0));
    assert_eq!(run.machine.deadline(), Some(run.now.mono_ms + 10_000));
    run.give(Input::Working);
    assert_eq!(run.machine.deadline(), None);
}

#[test]
fn agent_running_on_with_refused_credentials_is_ended() {
    let mut run = Loop::start(Rules { result_grace_ms: None, ..rules() });
    run.give(Input::AgentStarted).give(Input::BackgroundTasks(1)).give(Input::Refused);
    run.after(2_000).give(Input::Output).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Refused)]);

    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(Input::Refused).give(Input::Working);
    assert_eq!(run.machine.deadline(), None);
    run.give(Input::ResultSeen).until_deadline();
    assert_eq!(run.actions, [Action::EndAgent(EndCause::ResultGrace)]);
}

#[test]
fn limits_do_not_discard_answer_already_given() {
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
        run.give(Input::AgentStarted)
            .give(Input::ResultSeen)
            .give(Input::UsageReported(spent(2.0)));
        assert!(!run.actions.iter().any(|action| matches!(action, Action::EndAgent(_))));
        run.agent(AgentReport { usage: spent(2.0), ..done() });
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    }
}

#[test]
fn limited_attempt_is_checked_but_not_complete() {
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.agent(AgentReport { class: Class::Limited, ..done() });
    assert!(run.asked(&Action::RunGuardrail(0)));
    assert!(!run.machine.agent_finished_normally());
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.starts_agent());
}

#[test]
fn cost_budget_ends_agent_and_run() {
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(AgentReport { usage: spent(0.6), ..answered() });
    run.give(Input::AgentStarted).give(Input::UsageReported(spent(0.3)));
    assert_eq!(run.actions, []);
    run.give(Input::UsageReported(spent(0.4)));
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
    run.give(Input::AgentEnded(Box::new(AgentReport {
        usage: spent(0.4),
        ..failed(Class::Limited)
    })));
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));

    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(AgentReport { usage: spent(2.0), ..done() });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn run_continues_when_reported_cost_is_below_estimate() {
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let tokens = |cost_usd| Usage { cost_usd, input_tokens: 300_000, ..Usage::default() };
    for (told, ends) in [(Some(0.3), false), (Some(1.1), true), (None, true)] {
        let mut run = Loop::start(Rules { budget, ..rules() });
        run.give(Input::AgentStarted).give(Input::UsageReported(tokens(None)));
        assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
        let report = AgentReport { usage: tokens(told), ..failed(Class::Limited) };
        run.give(Input::AgentEnded(Box::new(report)));
        let expected = ends.then_some((Outcome::Budget, 3));
        let warns = |action: &Action| matches!(action, Action::Emit(_, Event::Warning { message }) if message.contains("the run continues"));
        assert_eq!((run.outcome(), run.starts_agent()), (expected, !ends), "{told:?}");
        assert_eq!(run.actions.iter().any(warns), !ends, "{told:?}");
    }
}

#[test]
fn wait_beyond_run_duration_ends_run() {
    let budget = Budget { duration_ms: Some(60_000), ..Budget::default() };
    let start = || {
        let mut run = Loop::start(Rules { budget, ..rules() });
        run.after(20_000);
        run
    };
    let message = |run: &Loop| {
        run.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::RunEnded { message, .. }) => Some(message.to_string()),
            _ => None,
        })
    };
    // Includes the slack of one second.
    for (seconds, waits) in [(30, true), (38, true), (39, false), (1_800, false)] {
        let mut run = start();
        run.agent(limited(Some(run.now.wall_ms / 1000 + seconds)));
        assert_eq!(run.outcome().is_none(), waits, "{seconds}");
        let waiting = |action: &Action| matches!(action, Action::Emit(_, Event::Waiting { .. }));
        assert_eq!(run.actions.iter().any(waiting), waits, "{seconds}");
        if !waits {
            assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));
        }
    }
    let mut run = start();
    run.agent(limited(Some(run.now.wall_ms / 1000 + 1_800)));
    let said = "the rate limit resets at 1970-01-12 14:17 UTC, in 30m1s, but the run's time is up \
                in 40.0s";
    assert_eq!(message(&run).as_deref(), Some(said));
    let retry = Retry { backoff_ms: 50_000, backoff_cap_ms: 50_000, ..rules().retry };
    let mut run = Loop::start(Rules { budget, retry, ..rules() });
    run.agent(failed(Class::Failed));
    assert_eq!(run.outcome(), None);
    run.until_deadline().agent(failed(Class::Failed));
    assert_eq!(run.outcome(), Some((Outcome::Budget, 3)));
    let said = "the next attempt is due in 50.0s, but the run's time is up in 10.0s";
    assert_eq!(message(&run).as_deref(), Some(said));
}

#[test]
fn time_budget_ends_agent() {
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
fn computer_that_sleeps_uses_no_time_budget() {
    let budget = Budget { duration_ms: Some(1_000), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, iteration_budget: budget, ..rules() });
    run.give(Input::AgentStarted);
    run.now.wall_ms += 86_400_000;
    run.give(Input::Timer);
    assert_eq!(run.actions, []);
    run.agent(done());
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
}

#[test]
fn run_time_budget_ends_guardrails_scm_tasks_and_waits() {
    let budget = Budget { duration_ms: Some(1_000), ..Budget::default() };
    let used_up = Some((Outcome::Budget, 3));

    let mut run = Loop::start(Rules { budget, guardrails: vec![None, None], ..rules() });
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndGuardrail { timed_out: false }]);
    run.give(Input::GuardrailEnded { failed: Some(feedback("x")) });
    assert_eq!(run.outcome(), used_up);

    let mut run = Loop::start(Rules { budget, scm: vec![ScmTaskKind::Commit], ..rules() });
    let begun = run.now.mono_ms;
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndScmTask { timed_out: false }], "git status may hang, too");
    assert_eq!(run.now.mono_ms, begun + 1_000 + 30_000, "with time left to commit checked work");
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    assert_eq!(run.outcome(), used_up);

    let mut run = Loop::start(Rules { budget, scm: vec![ScmTaskKind::Other], ..rules() });
    let begun = run.now.mono_ms;
    run.agent(done()).until_deadline();
    assert_eq!(run.actions, [Action::EndScmTask { timed_out: false }]);
    assert_eq!(run.now.mono_ms, begun + 1_000 + 30_000);
    run.give(Input::ScmTaskEnded { ok: false, feedback: None });
    assert_eq!(run.outcome(), used_up);

    let mut run = Loop::start(Rules { budget, scm: vec![ScmTaskKind::Commit], ..rules() });
    run.agent(done()).after(20_000).give(Input::Timer);
    assert_eq!(run.actions, []);
    run.give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
    assert!(run.asked(&Action::RunScmTask(0)) && !run.starts_agent());
    run.after(29_000).give(Input::Timer);
    assert_eq!(run.actions, []);
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));

    let mut run = Loop::start(Rules { budget, ..rules() });
    let until = run.now.wall_ms / 1000 + 600;
    run.agent(limited(Some(until)));
    assert_eq!(run.outcome(), used_up, "no wait beyond the budget");
}

#[test]
fn rate_limit_wait_does_not_use_iteration_budget() {
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
fn work_is_committed_after_budget_is_used_up() {
    let scm = vec![ScmTaskKind::Commit];
    let money = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let iteration_money = Rules { scm: scm.clone(), iteration_budget: money, ..rules() };
    for rules in [iteration_money, Rules { scm, budget: money, ..rules() }] {
        let mut run = Loop::start(rules);
        run.agent(AgentReport { usage: spent(1.5), ..done() })
            .give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
        assert!(run.asked(&Action::RunScmTask(0)), "{:?}", run.actions);
    }
}

#[test]
fn commit_message_attempt_obeys_budgets_and_work_is_kept() {
    use EndCause::{Budget as OfRun, IterationBudget, IterationTimeout};
    let (dollar, ten_s) = (
        Budget { cost_usd: Some(1.0), ..Budget::default() },
        Budget { duration_ms: Some(10_000), ..Budget::default() },
    );
    let tokens = Budget { tokens: Some(1_000), ..Budget::default() };
    let limits = |budget, iteration_budget| Rules {
        scm: vec![ScmTaskKind::Commit],
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
        (limits(none, none), None, IterationTimeout),
    ] {
        let mut run = Loop::start(rules.clone());
        run.agent(AgentReport { usage: spent(0.5), ..done() })
            .give(Input::ScmStatus(ScmStatus::Dirty { has_message: false }));
        assert!(run.asked(&Action::StartAgent(Purpose::CommitMessage)), "{rules:?}");
        run.give(Input::AgentStarted);
        match used {
            Some(used) => run.give(Input::UsageReported(used)),
            None => run.until_deadline(),
        };
        assert_eq!(run.actions, [Action::EndAgent(cause)], "{rules:?}");
        run.give(Input::AgentEnded(Box::new(AgentReport {
            usage: used.unwrap_or_default(),
            ..failed(Class::Limited)
        })));
        run.give(Input::CommitGuardChecked(CommitGuardResult::Same));
        assert!(run.asked(&Action::RunScmTask(0)), "{rules:?}: {:?}", run.actions);
        assert!(run.machine.deadline().is_none_or(|at| at >= run.now.mono_ms + 10_000));
        run.after(5_000).give(Input::ScmTaskEnded { ok: true, feedback: None });
        assert_eq!(run.outcome(), Some((Outcome::Complete, 0)), "{rules:?}");
    }
}

#[test]
fn iteration_over_budget_is_not_retried() {
    let iteration_budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { iteration_budget, ..rules() });
    run.agent(AgentReport { usage: spent(1.5), ..failed(Class::Failed) }).until_deadline();
    assert_eq!((run.machine.iteration(), run.starts_agent()), (2, true));
}

#[test]
fn missing_cost_is_estimated_from_earlier_tokens() {
    let tokens = |cost_usd| Usage { cost_usd, input_tokens: 1_000, ..Usage::default() };
    let budget = Budget { cost_usd: Some(1.0), ..Budget::default() };
    let mut run = Loop::start(Rules { budget, ..rules() });
    run.agent(AgentReport { usage: tokens(Some(0.4)), ..answered() });
    run.agent(AgentReport { usage: tokens(None), ..failed(Class::TimedOut) }).until_deadline();
    run.give(Input::AgentStarted).give(Input::UsageReported(tokens(None)));
    assert_eq!(run.actions, [Action::EndAgent(EndCause::Budget)]);
}
