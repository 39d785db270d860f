//! Guidance, questions, parking, and a stop after the iteration.

use super::*;
use ralph_events::event::Stamp;
use ralph_events::run_state::Steering;

fn tell(id: u64) -> Input {
    Input::Tell { id, text: format!("text {id}"), now: false, every: false }
}

fn tell_now(id: u64) -> Input {
    Input::Tell { id, text: format!("text {id}"), now: true, every: false }
}

fn tell_every(id: u64) -> Input {
    Input::Tell { id, text: format!("text {id}"), now: false, every: true }
}

fn asked(id: &str, story: Option<&str>) -> Input {
    Input::Asked { id: id.into(), text: format!("{id}?"), story: story.map(str::to_owned) }
}

fn answer(id: &str) -> Input {
    Input::Answered { question: id.into(), text: "yes".into() }
}

fn waits() -> Rules {
    Rules { questions: QuestionMode::Wait, max_iterations: 9, ..rules() }
}

impl Loop {
    fn prompt(&self) -> Vec<String> {
        self.machine.messages().guidance.iter().map(|text| text.replace("text ", "")).collect()
    }

    fn delivers(&self) -> Option<(Vec<u64>, Vec<String>)> {
        self.actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::GuidanceDelivered { guidance, answers }) => {
                Some((guidance.clone(), answers.clone()))
            }
            _ => None,
        })
    }
}

#[test]
fn guidance_goes_into_the_next_prompt_once_and_in_order() {
    let mut run = Loop::start(Rules { max_iterations: 9, ..rules() });
    run.give(Input::AgentStarted).give(tell(3)).give(tell_every(4)).give(tell(7));
    assert_eq!(run.prompt(), [""; 0], "the prompt has been sent");
    run.give(tell(3));
    assert_eq!(run.actions, [], "the request came twice");
    run.give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.prompt(), ["3", "4", "7"]);
    // It arrives while the agent is being started.
    run.give(tell(8)).give(Input::AgentStarted);
    assert_eq!(run.delivers(), Some((vec![3, 4, 7], vec![])));
    run.give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.prompt(), ["4", "8"]);
    run.give(Input::AgentStarted).give(Input::ClearGuidance { id: 9 });
    run.give(tell(10)).give(Input::ClearGuidance { id: 9 });
    assert_eq!(run.actions, [], "it was cleared before the newer guidance");
    run.give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.prompt(), ["10"]);
}

#[test]
fn restarted_or_failed_iteration_carries_guidance_again() {
    let next = Rules {
        retry: Retry { scope: RetryScope::NextIteration { failures: 5 }, ..rules().retry },
        max_iterations: 9,
        ..rules()
    };
    for (name, rules, report) in [
        ("same iteration", rules(), failed(Class::Failed)),
        ("next iteration", next, failed(Class::Failed)),
        ("rate limit", rules(), limited(None)),
    ] {
        let mut run = Loop::start(rules);
        run.give(tell(1)).agent(answered());
        assert_eq!(run.prompt(), ["1"], "{name}");
        run.agent(report).until_deadline();
        assert_eq!(run.prompt(), ["1"], "{name}");
        run.give(Input::AgentStarted);
        assert_eq!(run.delivers(), Some((vec![1], vec![])), "{name}");
        run.give(Input::AgentEnded(Box::new(answered())));
        assert_eq!(run.prompt(), [""; 0], "{name}");
    }
}

#[test]
fn guidance_that_no_agent_got_is_not_delivered() {
    let mut run = Loop::start(rules());
    run.give(tell(1)).agent(answered());
    run.give(Input::AgentNotStarted { message: "no".into() }).until_deadline();
    assert_eq!((run.delivers(), run.prompt()), (None, vec!["1".to_owned()]));
}

#[test]
fn immediate_guidance_restarts_the_iteration_without_a_failure() {
    let mut run = Loop::start(Rules { guardrails: vec![None], ..rules() });
    run.give(Input::AgentStarted).give(tell_now(1));
    assert!(run.asked(&Action::EndAgent(EndCause::Guidance)));
    run.give(tell_now(2));
    assert!(!run.asked(&Action::EndAgent(EndCause::Guidance)), "it is being ended");
    run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
    assert!(run.starts_agent() && !run.asked_to_retry(1), "{:?}", run.actions);
    assert_eq!((run.position(), run.prompt()), ((1, 2), vec!["1".to_owned(), "2".to_owned()]));
    // Its answer is there already, or its checks run: the guidance waits.
    run.give(Input::AgentStarted).give(Input::ResultSeen).give(tell_now(3));
    assert!(!run.asked(&Action::EndAgent(EndCause::Guidance)));
    run.give(Input::AgentEnded(Box::new(answered()))).give(tell_now(4));
    assert!(!run.asked(&Action::EndGuardrail { timed_out: false }));
    run.give(Input::GuardrailEnded { failed: None });
    assert_eq!((run.position(), run.prompt()), ((2, 1), vec!["3".to_owned(), "4".to_owned()]));
    // It ended by itself meanwhile.
    run.give(Input::AgentStarted).give(tell_now(5));
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.asked(&Action::RunGuardrail(0)), "{:?}", run.actions);
}

#[test]
fn stop_and_pause_win_over_immediate_guidance() {
    for (input, expected) in [
        (Input::Stop { signal: "SIGINT", now: false }, Some((Outcome::Interrupted, 130))),
        (Input::Stop { signal: "SIGINT", now: true }, Some((Outcome::Interrupted, 130))),
        (Input::Pause, None),
    ] {
        let mut run = Loop::start(rules());
        run.give(Input::AgentStarted).give(tell_now(1)).give(input);
        run.give(Input::AgentEnded(Box::new(failed(Class::Interrupted))));
        assert!(!run.starts_agent());
        assert_eq!(run.outcome(), expected);
    }
}

#[test]
fn resumed_run_has_guidance_and_questions_of_its_journal() {
    let mut said = Steering::default();
    let at = Stamp { time_ms: 0, iteration: 2, attempt: 1 };
    for event in [
        Event::GuidanceReceived { id: 1, text: "text 1".into(), every: false },
        Event::GuidanceDelivered { guidance: vec![1], answers: vec![] },
        Event::QuestionAsked { id: "q1".into(), text: "q1?".into(), story: None },
    ] {
        said.apply(at, &event);
    }
    let mut state = RunState::default();
    (state.steering, state.resume.iterations) = (said, 1);
    let mut run = Loop::of(LoopMachine::resumed(rules(), state.clone()));
    assert_eq!(run.prompt(), ["1"]);
    run.give(tell(1)).give(asked("q1", None));
    assert_eq!(run.actions, []);
    let mut run = Loop::of(LoopMachine::resumed(waits(), state));
    assert!(run.machine.is_parked() && !run.starts_agent());
    run.give(answer("q1"));
    assert!(run.starts_agent(), "{:?}", run.actions);
}

#[test]
fn question_is_recorded_once_and_its_answer_delivered() {
    let mut run = Loop::start(Rules { max_iterations: 9, ..rules() });
    run.give(Input::AgentStarted).give(asked("q1", None));
    let event = Event::QuestionAsked { id: "q1".into(), text: "q1?".into(), story: None };
    assert!(run.emitted(&event));
    run.give(asked("q1", None));
    assert_eq!(run.actions, []);
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.starts_agent(), "the loop continues");
    run.give(Input::AgentStarted).give(answer("q1")).give(answer("q1"));
    assert_eq!(run.actions, [], "the first answer counts");
    run.give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.machine.messages().answers, [("q1?", "yes")]);
    run.agent(answered());
    assert_eq!(run.machine.messages().answers, []);
    // A later agent does not know the answer.
    run.give(Input::AgentStarted).give(asked("q1", None));
    assert_eq!(run.actions, []);
    run.give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.machine.messages().answers, [("q1?", "yes")]);
}

#[test]
fn questions_are_limited_or_off() {
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted);
    let mut recorded = 0;
    let mut warnings = 0;
    for n in 0..50 {
        run.give(asked(&format!("q{n}"), None));
        for action in &run.actions {
            recorded += u32::from(matches!(action, Action::Emit(_, Event::QuestionAsked { .. })));
            warnings += u32::from(matches!(action, Action::Emit(_, Event::Warning { .. })));
        }
    }
    assert_eq!((recorded, warnings), (Rules::MAX_QUESTIONS, 1));
    let mut run = Loop::start(Rules { questions: QuestionMode::Off, ..rules() });
    run.give(Input::AgentStarted).give(asked("q1", None));
    assert_eq!(run.actions, []);
}

#[test]
fn run_parks_after_the_iteration_until_every_question_is_answered() {
    let limit = Budget { duration_ms: Some(60_000), ..Budget::default() };
    let mut run = Loop::start(Rules { guardrails: vec![None], budget: limit, ..waits() });
    run.give(Input::AgentStarted).give(asked("q1", None)).give(asked("q2", None));
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.asked(&Action::RunGuardrail(0)), "the iteration is finished first");
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.emitted(&Event::Parked) && !run.starts_agent(), "{:?}", run.actions);
    assert_eq!(run.machine.deadline(), None, "the clock stands still");
    run.after(10_000_000).give(tell_now(1)).give(answer("q1"));
    assert!(run.machine.is_parked());
    run.give(answer("q2"));
    assert!(run.emitted(&Event::Unparked) && run.starts_agent(), "{:?}", run.actions);
    assert_eq!(run.machine.messages().answers.len(), 2);
    run.agent(done()).give(Input::GuardrailEnded { failed: None });
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)), "the budget was not used");
}

#[test]
fn complete_run_and_last_iteration_do_not_park() {
    for (report, most, outcome) in
        [(done(), 9, Outcome::Complete), (answered(), 1, Outcome::LimitReached)]
    {
        let mut run = Loop::start(Rules { max_iterations: most, ..waits() });
        run.give(Input::AgentStarted).give(asked("q1", None));
        run.give(Input::AgentEnded(Box::new(report)));
        assert_eq!(run.outcome().map(|(outcome, _)| outcome), Some(outcome));
    }
}

#[test]
fn parked_run_can_be_paused_and_stopped() {
    let parked = || {
        let mut run = Loop::start(waits());
        run.give(Input::AgentStarted).give(asked("q1", None));
        run.give(Input::AgentEnded(Box::new(answered())));
        run
    };
    for stop in [
        Input::Stop { signal: "SIGINT", now: false },
        Input::StopAfterIteration { signal: "kill" },
        Input::Signal(StopSignal::Interrupt),
    ] {
        let mut run = parked();
        run.give(stop);
        assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    }
    let mut run = parked();
    run.give(Input::Pause);
    assert!(run.emitted(&Event::Unparked) && run.machine.is_paused(), "{:?}", run.actions);
    run.give(Input::Resume { max_iterations: None });
    assert!(run.emitted(&Event::Parked) && run.machine.is_parked(), "{:?}", run.actions);
    run.give(Input::Pause).give(answer("q1"));
    assert!(run.machine.is_paused());
    run.give(Input::Resume { max_iterations: None });
    assert!(run.starts_agent());
}

#[test]
fn run_with_stories_parks_only_if_none_can_start() {
    let mut run = Loop::start(Rules { gates: true, ..waits() });
    run.give(Input::Briefed { feedback: vec![] }).give(Input::AgentStarted);
    run.give(asked("q1", Some("s1"))).give(asked("q2", Some("s2")));
    run.give(Input::AgentEnded(Box::new(answered())));
    run.give(Input::GatesChecked(GateVerdict::Neutral));
    assert!(run.asked(&Action::FindStory));
    assert_eq!(run.machine.parked_stories(), [Some("s1"), Some("s2")]);
    let mut other = Loop { machine: run.machine.clone(), now: run.now, actions: Vec::new() };
    other.give(Input::StoryFound(true));
    assert!(other.asked(&Action::CollectBriefing) && !other.emitted(&Event::Parked));
    run.give(Input::StoryFound(false));
    assert!(run.machine.is_parked());
    run.give(answer("q1"));
    assert!(run.asked(&Action::FindStory) && run.machine.is_parked());
    run.give(Input::StoryFound(true));
    assert!(run.emitted(&Event::Unparked));
    // It asks again before the next iteration: another question is still open.
    assert!(run.asked(&Action::FindStory));
}

#[test]
fn stop_after_iteration_finishes_checks_and_commit() {
    let stop = || Input::StopAfterIteration { signal: "kill" };
    let all = Rules { guardrails: vec![None], scm: vec![ScmTaskKind::Other], ..rules() };
    let mut run = Loop::start(all.clone());
    run.give(Input::AgentStarted).give(stop());
    assert_eq!(run.actions, [run.emit(Event::StopRequested { signal: "kill".into(), now: false })]);
    run.give(Input::AgentEnded(Box::new(answered())));
    assert!(run.asked(&Action::RunGuardrail(0)));
    run.give(Input::GuardrailEnded { failed: None });
    assert!(run.asked(&Action::RunScmTask(0)));
    run.give(Input::ScmTaskEnded { ok: true, feedback: None });
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    let cut_off = run.actions.iter().any(|action| {
        matches!(action, Action::Emit(_, Event::IterationEnded { cut_off: true, .. }))
    });
    assert!(!cut_off, "the iteration is complete");
    // A claim is judged, a failed attempt is not retried, and a later signal does not wait.
    let mut run = Loop::start(rules());
    run.give(Input::AgentStarted).give(stop()).give(Input::AgentEnded(Box::new(done())));
    assert_eq!(run.outcome(), Some((Outcome::Complete, 0)));
    for report in [failed(Class::Failed), limited(None)] {
        let mut run = Loop::start(rules());
        run.give(Input::AgentStarted).give(stop()).give(Input::AgentEnded(Box::new(report)));
        assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)));
    }
    let mut run = Loop::start(all);
    run.give(Input::AgentStarted).give(stop()).give(Input::Signal(StopSignal::Interrupt));
    run.give(stop()).give(Input::AgentEnded(Box::new(answered())));
    assert_eq!(run.outcome(), Some((Outcome::Interrupted, 130)), "after the running job");
}
