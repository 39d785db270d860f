//! Runs that have not ended, were interrupted, or were resumed.

use super::*;

#[test]
fn summary_of_interrupted_iteration_shows_how_far_it_got() {
    let begun = || {
        vec![
            (1, 0, run_started()),
            (1, 1, iteration_started()),
            (2, 1, agent_started()),
            (3, 1, agent_ended(Class::Answered, Usage::default())),
        ]
    };
    let commit = |detail: &'static str| Event::ScmEnded {
        task: "commit".into(),
        ok: true,
        detail: detail.into(),
        duration_ms: 1,
    };
    let unchecked_work = "The work of iteration 1 is in the work tree, unchecked";
    let committed = "Iteration 1 passed its checks and was interrupted after: commit.";
    let resumed = |outcome, unchecked| {
        let (after, cut_off, usage) = (outcome, None, Usage::default());
        Event::RunContinued { after, iterations: 0, cut_off, unchecked, usage, duration_ms: 1 }
    };
    let over = || run_ended(Outcome::LimitReached, 1);
    let again = || vec![(5, 0, run_started()), (5, 0, resumed(None, Some(1)))];
    for (more, said) in [
        (vec![], Some(unchecked_work)),
        (vec![(4, 1, commit(""))], Some(committed)),
        // Killed once more while it was checked again.
        ([vec![(4, 1, commit(""))], again()].concat(), Some(committed)),
        // Not begun again, by a limit or because a worker counts it.
        (
            vec![(5, 0, run_started()), (5, 0, resumed(None, None)), (6, 0, over())],
            Some(unchecked_work),
        ),
        (vec![(4, 1, iteration_ended(Class::Answered, false)), (6, 1, over())], None),
        (vec![(6, 1, run_ended(Outcome::Complete, 1))], None),
    ] {
        let text = unwrapped(&read([begun(), more].concat(), None));
        for words in [unchecked_work, committed] {
            let times = usize::from(said == Some(words));
            assert_eq!(text.matches(words).count(), times, "{words:?} in {text}");
        }
    }
    let mut lowered = read(begun(), None);
    lowered.iterations.extend(lowered.iterations.clone());
    lowered.info.max_iterations = 1;
    assert!(terminal(&lowered).contains("2 iterations (limit now 1)\n"), "{lowered:?}");
}

#[test]
fn summary_merges_restarted_iteration_into_one_row() {
    let half = Usage { cost_usd: Some(0.5), ..Usage::default() };
    let facts = read(
        vec![
            (0, 0, run_started()),
            (10, 1, iteration_started()),
            (10, 1, agent_started()),
            (20, 1, agent_ended(Class::Answered, half)),
            (30, 1, guardrail(false)),
            // Killed here, and resumed an hour later; killed again while the agent works.
            (4_000, 0, run_started()),
            (4_000, 1, iteration_started()),
            (4_000, 1, agent_started()),
            (4_010, 1, Event::Usage(half)),
            (8_000, 0, run_started()),
            (8_000, 1, iteration_started()),
            (8_000, 1, agent_started()),
            (8_020, 1, agent_ended(Class::Answered, half)),
            (8_030, 1, guardrail(true)),
            (8_060, 1, iteration_ended(Class::Answered, false)),
            (8_060, 1, run_ended(Outcome::Complete, 100_000)),
        ],
        None,
    );
    let only = &facts.iterations[0];
    assert_eq!(
        (only.record.duration_ms, only.record.usage.cost_usd),
        (20_000 + 10_000 + 60_000, Some(1.5))
    );
    assert_eq!((only.record.starts, only.record.attempts, facts.duration_ms), (3, 3, 100_000));
    let text = terminal(&facts);
    assert!(text.contains("  1  answered                1m30s     $1.50      6  started 3 times"));
    assert!(text.contains("  + make test"), "the last result of its checks: {text}");
}

#[test]
fn summary_of_iteration_checked_later_shows_last_checks() {
    for stopped in [false, true] {
        let mut events = vec![
            (0, 0, run_started()),
            (10, 1, iteration_started()),
            (10, 1, agent_started()),
            (20, 1, agent_ended(Class::Answered, dollars(0.5))),
            (30, 1, guardrail(false)),
        ];
        if stopped {
            events.push((30, 1, iteration_ended(Class::Answered, true)));
            events.push((30, 1, run_ended(Outcome::Interrupted, 30_000)));
        }
        let after = stopped.then_some(Outcome::Interrupted);
        let continued = Event::RunContinued {
            after,
            iterations: 0,
            cut_off: None,
            unchecked: Some(1),
            usage: dollars(0.5),
            duration_ms: 30_000,
        };
        events.extend([
            (4_000, 0, run_started()),
            (4_000, 0, continued),
            (4_010, 1, guardrail(true)),
            (4_010, 1, iteration_ended(Class::Answered, false)),
            (4_010, 1, run_ended(Outcome::Complete, 40_000)),
        ]);
        let facts = read(events, None);
        let only = &facts.iterations[0];
        assert_eq!(
            (only.record.starts, only.record.attempts, only.record.usage.cost_usd),
            (1, 1, Some(0.5))
        );
        assert!(only.record.ended && !only.record.cut_off);
        let text = unwrapped(&facts);
        assert!(text.contains(" 1 answered "), "{text}");
        assert!(text.contains(" + make test"), "{text}");
        assert!(text.contains("; checked the work of iteration 1"), "{text}");
        assert!(!text.contains("unchecked"), "{text}");
    }
}

#[test]
fn summary_shows_actual_duration_of_wait() {
    let wait =
        |until_s: i64| Event::Waiting { reason: WaitReason::RateLimit, until_ms: until_s * 1000 };
    let stop = || Event::StopRequested { signal: "SIGINT".into(), now: false };
    let begin = || vec![(1, 0, run_started()), (1, 1, iteration_started())];
    let killed = || vec![(10, 1, wait(70)), (500, 0, run_started()), (501, 1, agent_started())];
    for (events, now, expected) in [
        (vec![(10, 1, wait(70)), (71, 1, agent_started())], None, Some("1m1s")),
        (vec![(10, 1, wait(70)), (20, 1, stop())], None, Some("10.0s")),
        // The length of a wait in which the run was killed is unknown.
        (vec![(10, 1, wait(70))], None, None),
        (killed(), None, None),
        (vec![(10, 1, wait(70))], Some(20), None),
    ] {
        let facts = read(begin().into_iter().chain(events).collect(), now);
        let text = terminal(&facts);
        let waited = expected.map(|time| format!("; waited {time} for rate limits\n"));
        match waited {
            Some(waited) => assert!(text.contains(&waited), "{waited:?} in {text}"),
            None => assert!(!text.contains("for rate limits"), "{text}"),
        }
    }
}

#[test]
fn resumed_run_killed_in_wait_is_shown_as_working() {
    let wait = Event::Waiting { reason: WaitReason::RateLimit, until_ms: 70_000 };
    let events = vec![
        (1, 0, run_started()),
        (1, 1, iteration_started()),
        (2, 1, wait),
        (30, 0, run_started()),
        (30, 1, iteration_started()),
        (31, 1, agent_started()),
    ];
    assert_eq!(read(events, Some(40)).activity, Some(RunActivity::Working));
}

#[test]
fn summary_of_unfinished_run_shows_its_state() {
    let begin = || vec![(1, 0, run_started()), (5, 1, iteration_started())];
    let with = |event: Event<'static>| begin().into_iter().chain([(7, 1, event)]).collect();
    let wait = Event::Waiting { reason: WaitReason::RateLimit, until_ms: 70_000 };
    for (events, now, state, lead) in [
        (begin(), Some(65), "working", "Working in iteration 1."),
        (
            with(wait),
            Some(9),
            "waiting",
            "Rate limit reached: waiting until 1970-01-01 00:01:10 in iteration 1.",
        ),
        (
            with(Event::Paused),
            Some(9),
            "paused",
            "Paused since 1970-01-01 00:00:07 in iteration 1.",
        ),
        (
            begin(),
            None,
            "interrupted",
            "Interrupted in iteration 1: ralph was killed, or the machine went down. Last seen",
        ),
        (Vec::new(), None, "interrupted", "Its journal is empty or cannot be read: nothing else"),
    ] {
        let facts = read(events, now);
        let text = unwrapped(&facts);
        assert!(text.contains(&format!(" — {state} run")), "{state} in {text}");
        assert!(text.contains(lead), "{lead} in {text}");
        assert_eq!(serde_json::to_value(&facts).unwrap()["state"], state);
    }
    let live = terminal(&read(begin(), Some(65)));
    assert!(live.contains("  So far  1m4s, 1 of 10 iterations\n"), "{live}");
    assert!(live.contains("    1  working                  1m0s "), "{live}");
    assert!(!live.contains("Next"), "{live}");
    // A command can be copied as it is.
    let killed = read(begin(), None);
    assert!(terminal(&killed).ends_with("\nNext\n  ralph resume ab12\n"));
    let page = html::render(&killed, &TimeZone::UTC);
    assert!(page.contains("<pre tabindex=\"0\">ralph resume ab12</pre>"), "{page}");
    let unknown = read(Vec::new(), None);
    assert!(!terminal(&unknown).contains("1970"));
    assert!(terminal(&unknown).starts_with("Untitled run — interrupted "));
    let json = serde_json::to_value(&unknown).unwrap();
    assert_eq!((&json["started_ms"], &json["ended_ms"]), (&Value::Null, &Value::Null));
    // A journal whose beginning is lost.
    let commit = || vec![committed("one", "first that is known", None)];
    let lost =
        vec![(5, 1, repository("one", commit(), false)), (6, 1, repository("x", vec![], false))];
    let text = terminal(&read(lost, None));
    assert!(text.contains(" 1 commit.\n") && !text.contains("git log"), "{text}");
    let text = terminal(&read(begin().split_off(1), None));
    assert!(text.contains("Started  unknown\n") && !text.contains("Command"), "{text}");
    assert!(text.contains("  Took    0ms, 1 of 10 iterations\n"), "{text}");
    assert!(text.contains("Interrupted in iteration 1"), "{text}");
}
