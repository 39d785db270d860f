//! Invariants that hold in random histories.

use proptest::prelude::*;

use super::*;

/// Answers in any order that a driver could.
#[derive(Default)]
struct World {
    agent: Option<Purpose>,
    starting: bool,
    guardrail: bool,
    guardrail_failed: bool,
    looking: bool,
    looking_again: bool,
    unseen: bool,
    looking_around: bool,
    scm: bool,
    briefing: bool,
    gates: bool,
    finding_story: bool,
    parked: bool,
    agents_started: u32,
    iterations: u32,
    open_iterations: u32,
    spent: f64,
    budget: Option<f64>,
    stop_asked: bool,
    stop_at_once: bool,
    end_agent_asked: bool,
    complete_claimed: bool,
    finished: Option<Outcome>,
}

impl World {
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert_eq!(self.finished, None, "action after the end: {action:?}");
            match action {
                Action::StartAgent(purpose) => {
                    assert!(!self.parked, "an agent started while the run is parked");
                    let budget = self.budget.unwrap_or(f64::INFINITY);
                    assert!(self.spent < budget, "an agent started without budget");
                    assert!(self.idle(), "two jobs at once");
                    assert!(!self.stop_asked, "a start after a stop");
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
                Action::CheckScmStatus => {
                    assert!(self.idle() && !self.stop_asked && !self.guardrail_failed);
                    self.looking = true;
                }
                Action::CheckStaged => {
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
                Action::CheckStall => {
                    assert!(self.idle() && !self.stop_asked && self.open_iterations == 0);
                    self.looking_around = true;
                }
                Action::FindStory => {
                    assert!(self.agent.is_none() && !self.stop_asked && self.open_iterations == 0);
                    self.finding_story = true;
                }
                Action::Emit(_, Event::Parked) => {
                    assert!(self.idle() && !self.parked && self.open_iterations == 0);
                    self.parked = true;
                }
                Action::Emit(_, Event::Unparked) => {
                    assert!(std::mem::take(&mut self.parked));
                    // The last answer came before the story that an earlier one may have freed.
                    self.finding_story = false;
                }
                Action::CollectBriefing => {
                    assert!(self.idle() && !self.stop_asked);
                    self.briefing = true;
                }
                Action::CheckGates { claimed, checks_passed } => {
                    assert!(self.idle());
                    assert!(!(claimed || checks_passed) || !self.guardrail_failed);
                    self.gates = true;
                }
                Action::SkipScmTask(..) | Action::Save | Action::KillJob => {}
                Action::CheckDone => assert!(self.agent.is_some()),
                Action::RunFinalChecks(_) => {
                    // The end of a parked run does not wait for the story that an answer may have freed.
                    self.finding_story &= !self.parked;
                    assert!(self.idle());
                }
                Action::Emit(_, Event::IterationStarted { max_iterations }) => {
                    self.iterations += 1;
                    self.open_iterations += 1;
                    assert_eq!(self.open_iterations, 1, "iterations overlap");
                    assert!(self.iterations <= max_iterations, "more iterations than the limit");
                }
                Action::Emit(_, Event::IterationEnded { complete, .. }) => {
                    self.open_iterations -= 1;
                    assert!(!complete || !(self.guardrail_failed || self.unseen));
                }
                Action::Emit(..) => {}
                Action::Finish { outcome, .. } => {
                    assert!(self.idle(), "a job is still running");
                    assert_eq!(self.open_iterations, 0, "an iteration without an end");
                    let complete =
                        matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed);
                    if complete {
                        assert!(!self.guardrail_failed, "complete with a failed guardrail");
                        assert!(!self.unseen, "complete with unchecked work");
                        assert!(self.complete_claimed, "complete without a signal");
                        assert!(!self.stop_at_once, "a stop was ignored");
                    }
                    self.finished = Some(outcome);
                }
            }
        }
    }

    fn idle(&self) -> bool {
        self.agent.is_none()
            && !(self.guardrail || self.looking || self.scm || self.briefing || self.gates)
            && !(self.looking_again || self.looking_around || self.finding_story)
    }
}

fn report(choice: u8, complete: bool) -> AgentReport {
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
    AgentReport {
        class,
        failure,
        usage,
        complete,
        has_message: choice.is_multiple_of(2),
        ..answered()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn machine_invariants_hold_for_any_history(
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
        waits: bool,
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
            exit_without_prompt: exit_code::USAGE,
            inactivity_fails,
            inactivity_ms: Some(60_000),
            silent_model_ms: Some(40_000),
            iteration_timeout_ms: Some(100_000),
            budget: Budget { cost_usd: budget, ..Budget::default() },
            iteration_budget: Budget { cost_usd: iteration_budget, ..Budget::default() },
            guardrails: vec![Some(10_000); guardrails],
            scm: [ScmTaskKind::Commit, ScmTaskKind::Other][..scm].to_vec(),
            gates,
            stall: StallRule::stop_after(stall),
            questions: if waits { QuestionMode::Wait } else { QuestionMode::Continue },
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
                    Input::InternalError { message: "disk full".into() }
                }
                2 | 3 => Input::Timer,
                9 if choice.is_multiple_of(4) => Input::Pause,
                10 if choice.is_multiple_of(4) => Input::Tell {
                    id: u64::from(choice),
                    text: "x".into(),
                    now: flag,
                    every: choice.is_multiple_of(8),
                },
                11 if choice.is_multiple_of(8) => Input::ClearGuidance { id: u64::from(choice) },
                12 if choice.is_multiple_of(3) => {
                    let (id, text) = (format!("q{}", choice % 5), "x".to_owned());
                    Input::Asked { id, text, story: flag.then(|| "s".to_owned()) }
                }
                13 if flag || world.parked => {
                    Input::Answered { question: format!("q{}", choice % 5), text: "x".into() }
                }
                _ if machine.is_paused() => {
                    let limit = machine.max_iterations();
                    Input::Resume { max_iterations: flag.then_some(limit) }
                }
                4 if world.agent.is_some() && choice.is_multiple_of(3) => Input::ToolRunning(flag),
                4 if world.agent.is_some() => Input::Output,
                5 if world.agent.is_some() => Input::UsageReported(spent(f64::from(choice) / 200.0)),
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
                        Input::StallChecked { fingerprint }
                    } else if std::mem::take(&mut world.finding_story) {
                        Input::StoryFound(flag)
                    } else if std::mem::take(&mut world.looking) {
                        Input::ScmStatus(if flag {
                            ScmStatus::Dirty { has_message: false }
                        } else if choice.is_multiple_of(3) {
                            ScmStatus::Failed(None)
                        } else {
                            ScmStatus::Clean
                        })
                    } else if std::mem::take(&mut world.looking_again) {
                        let unseen = UncheckedChange { reason: "x".into(), feedback: feedback("look") };
                        world.unseen = !flag;
                        Input::CommitGuardChecked(match (flag, choice % 2) {
                            (true, _) => CommitGuardResult::Same,
                            (false, 0) => CommitGuardResult::ChangedBeside(unseen),
                            (false, _) => CommitGuardResult::Moved(unseen),
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
                            GateVerdict::Neutral
                        })
                    } else {
                        Input::Timer
                    }
                }
            };
            world.carry_out(machine.step(now, input));
            if world.finished.is_some() {
                break;
            }
        }
        if world.finished.is_none() {
            world.stop_asked = true;
            world.carry_out(machine.step(now, Input::Stop { signal: "SIGHUP", now: true }));
            let input = if world.agent.take().is_some() {
                Some(Input::AgentEnded(Box::new(report(0, true))))
            } else if std::mem::take(&mut world.guardrail) {
                Some(Input::GuardrailEnded { failed: None })
            } else if std::mem::take(&mut world.looking_around) {
                Some(Input::StallChecked { fingerprint: None })
            } else if std::mem::take(&mut world.finding_story) {
                Some(Input::StoryFound(true))
            } else if std::mem::take(&mut world.looking) {
                Some(Input::ScmStatus(ScmStatus::Dirty { has_message: false }))
            } else if std::mem::take(&mut world.looking_again) {
                Some(Input::CommitGuardChecked(CommitGuardResult::Same))
            } else if std::mem::take(&mut world.scm) {
                Some(Input::ScmTaskEnded { ok: true, feedback: None })
            } else if std::mem::take(&mut world.briefing) {
                Some(Input::Briefed { feedback: vec![] })
            } else if std::mem::take(&mut world.gates) {
                Some(Input::GatesChecked(GateVerdict::Neutral))
            } else {
                None
            };
            if let Some(input) = input {
                world.carry_out(machine.step(now, input));
            }
            let expected = if broken { Outcome::InternalError } else { Outcome::Interrupted };
            prop_assert_eq!(world.finished, Some(expected));
        }
        prop_assert!(machine.is_finished());
        prop_assert_eq!(machine.step(now, Input::Timer), vec![]);
    }
}
