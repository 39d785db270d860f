use super::*;
use crate::sample_events::{run_ended, run_started};
use ralph_events::event::{Class, Event, Exit, FailAction, Outcome, Purpose, Stamp, Usage};

const MINUTE: i64 = 60_000;
/// A quarter of an hour after the start of the run.
const NOW: i64 = 15 * MINUTE;

fn working() -> Vec<Event<'static>> {
    let agent = Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
    vec![run_started(), Event::IterationStarted { max_iterations: 5 }, agent]
}

fn tool(name: &'static str, summary: &'static str) -> Event<'static> {
    let (id, name, summary) = ("1".into(), name.into(), summary.into());
    Event::ToolStarted { id, name, summary, edit: None, subagent: false }
}

fn check(passed: bool) -> Event<'static> {
    Event::GuardrailEnded {
        index: 0,
        command: "make test".into(),
        exit: Some(Exit::Code(0)),
        timed_out: false,
        cut_off: false,
        passed,
        fail_action: FailAction::Append,
        log: "".into(),
        duration_ms: 1,
    }
}

fn iteration_ended() -> Event<'static> {
    Event::IterationEnded {
        class: Class::Answered,
        guardrails_passed: Some(true),
        complete: false,
        cut_off: false,
        duration_ms: 1,
        usage: Usage::default(),
    }
}

fn ended(outcome: Outcome) -> Event<'static> {
    run_ended(outcome, 0, "it says why", 1)
}

fn tasks(done: u32, total: u32) -> Event<'static> {
    Event::Tasks {
        done,
        total,
        story: None,
        title: None,
        problems: Vec::new(),
        unreadable: false,
        marked: Vec::new(),
    }
}

fn asked() -> Event<'static> {
    Event::QuestionAsked { id: "q1".into(), text: "410 or 303?\nWhy".into(), story: None }
}

/// The card of a run whose events happen one minute apart.
fn card(events: &[Event<'_>], is_alive: bool, now_ms: i64) -> RunCard {
    let mut run = RunState::default();
    for (event, minute) in events.iter().zip(0..) {
        let iteration = u32::from(minute > 0);
        let time_ms = minute * MINUTE;
        run.apply_event(Stamp { time_ms, iteration, attempt: iteration }, event);
    }
    let context = CardContext {
        id: "20261116-204918-10b0",
        project: "shop",
        fallback_name: None,
        is_alive,
        is_removed: false,
        reading: None,
        now_ms,
        zone: &TimeZone::UTC,
    };
    RunCard::of(&run, &context)
}

#[test]
fn card_has_word_group_sign_and_now_of_every_state() {
    let rate_limit = Event::Waiting { reason: WaitReason::RateLimit, until_ms: NOW + 59 * MINUTE };
    let backoff = Event::Waiting { reason: WaitReason::Backoff, until_ms: NOW + 30_000 };
    let guardrail = Event::GuardrailStarted { index: 0, command: "make test".into() };
    let scm = Event::ScmStarted { task: "commit".into(), argv: Vec::new() };
    let dialog = Event::DialogOpened { dialog: "trust".into() };
    let cases: Vec<(Vec<Event<'_>>, bool, &str)> = vec![
        (vec![run_started()], true, "working working ● * | working"),
        (vec![], true, "working working ● * | agent thinking 13m0s"),
        (vec![tool("Bash", "cargo test")], true, "working working ● * | Bash(cargo test) 12m0s"),
        (
            vec![tool("Edit", "/src/shop/src/a/b.rs")],
            true,
            "working working ● * | Edit(src/a/b.rs) 12m0s",
        ),
        (vec![guardrail], true, "working working ● * | check make test 12m0s"),
        (vec![scm], true, "working working ● * | SCM commit 12m0s"),
        (vec![rate_limit], true, "waiting waiting ○ o | rate limit, 59m left"),
        (vec![backoff], true, "waiting waiting ○ o | back-off, 30s left"),
        (vec![Event::PauseRequested], true, "pausing working ● * | agent thinking 13m0s"),
        (
            vec![Event::PauseRequested, Event::Paused],
            true,
            "paused waiting = = | paused by you 00:04",
        ),
        (vec![asked()], true, "asks needs you ? ? | agent thinking 13m0s"),
        (vec![asked(), Event::Parked], true, "asks needs you ? ? | waits for you 11m0s"),
        (vec![dialog], true, "asks needs you ? ? | agent thinking 13m0s"),
        (vec![], false, "interrupted needs you ! ! | process is gone"),
        (vec![asked()], false, "interrupted needs you ! ! | process is gone"),
        (
            vec![tasks(6, 6), ended(Outcome::Complete)],
            false,
            "complete done ✓ + | complete, 6/6 stories",
        ),
        (
            vec![check(true), ended(Outcome::Complete)],
            false,
            "complete done ✓ + | complete, checks pass",
        ),
        (vec![ended(Outcome::Complete)], false, "complete done ✓ + | complete, no checks"),
        (vec![ended(Outcome::LimitReached)], false, "ended done ■ # | iteration limit"),
        (vec![ended(Outcome::Budget)], false, "ended done ■ # | budget used up"),
        (vec![ended(Outcome::Interrupted)], false, "ended done ■ # | stopped by you"),
        (
            vec![ended(Outcome::CredentialsRefused)],
            false,
            "failed needs you ! ! | credentials refused",
        ),
        (vec![ended(Outcome::AgentFailed)], false, "failed needs you ! ! | agent kept failing"),
        (vec![ended(Outcome::Stalled)], false, "failed needs you ! ! | no progress"),
        (vec![ended(Outcome::PromptMissing)], false, "failed needs you ! ! | prompt is gone"),
        (vec![ended(Outcome::InternalError)], false, "failed needs you ! ! | ralph failed"),
        (vec![ended(Outcome::CompleteScmFailed)], false, "failed needs you ! ! | SCM task failed"),
    ];
    for (events, is_alive, expected) in cases {
        let events = match events.first() {
            Some(Event::RunStarted { .. }) => events,
            _ => working().into_iter().chain(events).collect(),
        };
        let card = card(&events, is_alive, NOW);
        let (word, group, now) = (card.word(), card.group.as_str(), &card.now);
        let shown = format!("{word} {group} {} {} | {now}", card.sign(), card.ascii_sign());
        assert_eq!(shown, expected, "{events:?}");
        assert_eq!(card.attention.is_some(), card.group == Group::NeedsYou);
    }
}

#[test]
fn failure_needs_a_person_for_a_day_or_until_it_is_resumed() {
    let mut events = working();
    events.push(ended(Outcome::AgentFailed));
    let last_ms = 3 * MINUTE;
    let day = crate::state_word::ATTENTION_MS;
    for (now_ms, group, sign) in
        [(last_ms + day - 1, Group::NeedsYou, "!"), (last_ms + day, Group::Done, "✗")]
    {
        let card = card(&events, false, now_ms);
        assert_eq!((card.group, card.sign()), (group, sign));
    }
    events.push(run_started());
    assert_eq!(card(&events, true, NOW).group, Group::Working);
    let killed = card(&working(), false, 2 * MINUTE + day);
    assert_eq!((killed.group, killed.sign()), (Group::Done, "✗"));
}

#[test]
fn attention_names_the_cause_and_the_remedy() {
    let attention = |more: Vec<Event<'static>>, is_alive: bool| {
        let events: Vec<_> = working().into_iter().chain(more).collect();
        let it = card(&events, is_alive, NOW).attention.unwrap();
        format!("{:?}: {} [{}] {} {:?}", it.kind, it.text, it.context, it.remedy, it.question_id)
    };
    assert_eq!(attention(vec![asked()], true), "Question: 410 or 303? [Why]  Some(\"q1\")");
    assert_eq!(
        attention(vec![ended(Outcome::CredentialsRefused)], false),
        "Problem: codex refused its credentials. [] Sign in again None"
    );
    assert_eq!(
        attention(vec![ended(Outcome::InternalError)], false),
        "Problem: it says why. []  None"
    );
    assert_eq!(attention(vec![], false), "Problem: The process of the run is gone. []  None");
}

#[test]
fn bars_tell_passed_failed_interrupted_and_running_iterations() {
    let mut run = RunState::default();
    let mut apply = |time_ms: i64, iteration: u32, event: Event<'_>| {
        run.apply_event(Stamp { time_ms, iteration, attempt: 1 }, &event);
    };
    let cost = |usd: f64| Usage { cost_usd: Some(usd), ..Usage::default() };
    let agent = || Event::AgentStarted { purpose: Purpose::Work, pid: 1, argv: Vec::new() };
    apply(0, 0, run_started());
    for (iteration, passed) in [(1, true), (2, false)] {
        let start = i64::from(iteration) * MINUTE;
        apply(start, iteration, Event::IterationStarted { max_iterations: 5 });
        apply(start, iteration, check(passed));
        apply(start + 1, iteration, iteration_ended());
    }
    apply(3 * MINUTE, 3, Event::IterationStarted { max_iterations: 5 });
    apply(3 * MINUTE, 3, agent());
    apply(4 * MINUTE, 4, Event::IterationStarted { max_iterations: 5 });
    apply(4 * MINUTE, 4, agent());
    apply(4 * MINUTE, 4, Event::Usage(cost(0.25)));
    apply(4 * MINUTE, 4, tool("Bash", "x"));
    let context = CardContext {
        id: "r",
        project: "p",
        fallback_name: None,
        is_alive: true,
        is_removed: false,
        reading: None,
        now_ms: 9 * MINUTE,
        zone: &TimeZone::UTC,
    };
    let card = RunCard::of(&run, &context);
    let signs: String = card.bars.iter().map(|bar| bar.result.ascii()).collect();
    assert_eq!(signs, "+-~*");
    assert_eq!(card.bars[3].figures(" · "), "5m0s · $0.25 · 1 tool");
    let dead = RunCard::of(&run, &CardContext { is_alive: false, ..context });
    assert_eq!(dead.bars[3].result, BarResult::Interrupted);
}

#[test]
fn estimate_is_what_the_average_iteration_leaves() {
    use BarResult::{Failed, Interrupted, Passed, Running};
    let estimate = |bars: &[(BarResult, u64, Option<f64>)]| {
        let mut card = card(&working(), true, NOW);
        let bar = |(result, minutes, reported): &(BarResult, u64, Option<f64>)| Bar {
            result: *result,
            cost: Cost { reported: *reported, estimated: None },
            ..bar(minutes * 60_000)
        };
        card.bars = bars.iter().map(bar).collect();
        card.stop_estimate().map(|it| format!("{it}, {}", it.minutes()))
    };
    let (passed, failed) = ((Passed, 6, Some(0.5)), (Failed, 4, Some(0.3)));
    let cases = [
        (vec![passed, failed, (Running, 1, Some(0.1))], "4 more minutes and $0.30, 4 minutes"),
        // Iterations that were cut off say nothing about the length of a whole one.
        (vec![passed, (Interrupted, 0, None), (Running, 5, Some(0.5))], "1 more minute, 1 minute"),
        (vec![passed, (Passed, 6, None), (Running, 1, None)], "5 more minutes, 5 minutes"),
    ];
    for (bars, expected) in cases {
        assert_eq!(estimate(&bars).as_deref(), Some(expected), "{bars:?}");
    }
    let unknown = [vec![(Running, 1, None)], vec![passed], vec![failed, (Running, 5, None)]];
    for bars in unknown {
        assert_eq!(estimate(&bars), None, "{bars:?}");
    }
}

fn bar(duration_ms: u64) -> Bar {
    Bar {
        iteration: 1,
        duration_ms,
        result: BarResult::Passed,
        cost: Cost::default(),
        tools: 0,
        ended_ms: 0,
    }
}

#[test]
fn bar_heights_follow_time() {
    let heights = [0, 24, 25, 50, 75, 99, 100, 500].map(|ms| bar(ms).eighths(100));
    assert_eq!(heights, [2, 2, 3, 4, 5, 5, 6, 6]);
    assert_eq!(bar(0).eighths(0), 2);
    assert_eq!(bar(u64::MAX).eighths(u64::MAX), 6, "no overflow");
}
