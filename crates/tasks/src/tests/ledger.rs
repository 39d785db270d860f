use super::*;

/// A run started with `start` and has seen `then`.
fn findings(start: &[Value], then: &[Value], now: &[Value]) -> Vec<String> {
    let mut ledger = Ledger::new(&list(start));
    ledger.review(&Ok(list(then)));
    ledger.review(&Ok(list(now))).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn removed_story_is_reported_unless_replaced() {
    let replacing = |id: &str, others: &[&str]| story(id, &json!({"replaces": others}));
    let gone =
        |id: &str| vec![format!("{id} (Title of {id}) was removed, and no story replaces it")];
    let (a, b) = (open("a"), open("b"));
    let only_a = std::slice::from_ref(&a);
    let start = [a.clone(), b.clone()];
    type Case<'a> = (&'a str, &'a [Value], &'a [Value], Vec<String>);
    let cases: [Case<'_>; 8] = [
        ("reordered", &start, &[b.clone(), a.clone()], vec![]),
        ("left out", &start, only_a, gone("b")),
        ("replaced", &start, &[a.clone(), replacing("c", &["b"])], vec![]),
        ("came later, and went", &[a.clone(), b.clone(), open("c")], &start, gone("c")),
        ("went, and came back", only_a, &start, vec![]),
        (
            "its replacement was replaced",
            &[a.clone(), replacing("b1", &["b"])],
            &[a.clone(), replacing("b2", &["b1"])],
            vec![],
        ),
        (
            "its replacement went, too",
            &[a.clone(), replacing("b1", &["b"])],
            only_a,
            [gone("b"), gone("b1")].concat(),
        ),
        (
            "two that replace each other and are both gone",
            &[a.clone(), replacing("b", &["c"]), replacing("c", &["b"])],
            only_a,
            [gone("b"), gone("c")].concat(),
        ),
    ];
    for (case, then, now, expected) in cases {
        assert_eq!(findings(&start, then, now), expected, "{case}");
    }
}

#[test]
fn replacement_of_open_story_must_be_open_first() {
    let replacing = |id: &str, passes: bool, others: &[&str]| {
        story(id, &json!({"passes": passes, "notes": "done", "replaces": others}))
    };
    let done = |id: &str| story(id, &json!({"passes": true, "notes": "done"}));
    let start = [open("a"), open("b")];
    let finding = |id: &str, others: &str| {
        vec![format!("{id} replaces {others} but was added as passing, so it does not count yet")]
    };
    let both = "a (Title of a), b (Title of b)";
    let at_once = [replacing("x", true, &["a", "b"])];
    type Case<'a> = (&'a str, &'a [Value], &'a [Value], Vec<String>);
    let cases: [Case<'_>; 7] = [
        ("at once", &start, &at_once, finding("x", both)),
        ("and left so", &at_once, &at_once, finding("x", both)),
        ("was open", &[replacing("x", false, &["a", "b"])], &at_once, vec![]),
        ("those passed", &[done("a"), done("b")], &at_once, vec![]),
        ("an old one", &start, &[replacing("a", true, &["b"])], finding("a", "b (Title of b)")),
        (
            "one after the other",
            &at_once,
            &[replacing("y", true, &["x"])],
            finding("y", "x (Title of x)"),
        ),
        (
            "dropped first",
            &[done("a")],
            &[done("a"), replacing("x", true, &["b"])],
            finding("x", "b (Title of b)"),
        ),
    ];
    for (case, then, now, expected) in cases {
        assert_eq!(findings(&start, then, now), expected, "{case}");
    }
    assert_eq!(findings(&at_once, &at_once, &at_once), [""; 0], "its owner wrote it so");
}

#[test]
fn replacement_must_keep_acceptance_criteria() {
    let with = |id: &str, criteria: &[&str], replaces: &[&str]| {
        story(id, &json!({"acceptanceCriteria": criteria, "replaces": replaces}))
    };
    let a = with("a", &["one", "two"], &[]);
    let b = with("b", &["three"], &[]);
    let start = [a.clone(), b.clone()];
    let lost = |id: &str, by: &str, criteria: &str| {
        format!(
            "{id} (Title of {id}) was replaced by {by} without its acceptanceCriteria {criteria}"
        )
    };
    type Case<'a> = (&'a str, &'a [Value], &'a [Value], Vec<String>);
    let cases: [Case<'_>; 8] = [
        ("all in one", &start, &[with("z", &["three", "two", "one"], &["a", "b"])], vec![]),
        (
            "split",
            &start,
            &[with("a1", &["one"], &["a"]), with("a2", &["two", "new"], &["a"]), b.clone()],
            vec![],
        ),
        (
            "none",
            &start,
            &[with("z", &["x"], &["a", "b"])],
            vec![lost("a", "z", "\"one\", \"two\""), lost("b", "z", "\"three\"")],
        ),
        (
            "one of two, by two",
            &start,
            &[with("a1", &["one"], &["a"]), with("a2", &["Two"], &["a"]), b.clone()],
            vec![lost("a", "a1, a2", "\"two\"")],
        ),
        (
            "lost on the second step",
            &[with("a1", &["one", "two"], &["a"]), b.clone()],
            &[with("a2", &["two"], &["a1"]), b.clone()],
            vec![lost("a", "a2", "\"one\"")],
        ),
        ("it is still there", &start, &[a, with("z", &["x"], &["a"]), b.clone()], vec![]),
        (
            "in a story that stands for another",
            &start,
            &[with("a1", &["x"], &["a"]), with("b", &["one", "two", "three"], &[])],
            vec![lost("a", "a1", "\"one\", \"two\"")],
        ),
        (
            "in a circle",
            &[with("c", &["x"], &["a", "d"]), with("d", &["x"], &["c"]), b.clone()],
            &[with("d", &["one", "two"], &["c"]), b],
            vec![],
        ),
    ];
    for (case, then, now, expected) in cases {
        assert_eq!(findings(&start, then, now), expected, "{case}");
    }
    let mut ledger = Ledger::new(&list(&start));
    let eased = list(&[with("z", &["three"], &["a", "b"])]);
    let review = ledger.review(&Ok(eased.clone()));
    assert!(matches!(final_verdict(&review, true, true, "t"), TaskVerdict::Veto { .. }));
    let message = &briefing(&review, "t")[0].message;
    assert!(
        message.contains("a (Title of a)") && message.contains("\"one\", \"two\""),
        "{message}"
    );
    // The next run does not forgive an agent's change, and reports the user's once.
    let (doc, eased) = (document(&start), document(&[with("z", &["three"], &["a", "b"])]));
    let found = [lost("a", "z", "\"one\", \"two\"")];
    let changed = ["acceptance criteria changed: a".to_owned()];
    for (case, seen, closed, changed, found) in [
        ("the agent", &eased, true, &[][..], &found[..]),
        ("somebody", &doc, false, &[], &found),
        ("the owner", &doc, true, &changed, &[]),
    ] {
        let (actual_changes, actual_findings, _) = again(&doc, seen, closed, &eased, true);
        assert_eq!((&actual_changes[..], &actual_findings[..]), (changed, found), "{case}");
    }
}

#[test]
fn removed_stories_count_as_open() {
    let mut ledger = Ledger::new(&list(&[open("a"), open("b"), open("c")]));
    let review = ledger.review(&Ok(list(&[passing("a")])));
    let progress = review.progress.unwrap();
    assert_eq!((progress.done, progress.total), (1, 3));
    let many: Vec<Value> = (0..9).map(|n| open(&format!("s{n}"))).collect();
    let mut ledger = Ledger::new(&list(&many));
    let review = ledger.review(&Ok(list(&[passing("a")])));
    let TaskVerdict::Veto { reason, .. } = final_verdict(&review, true, true, "t") else {
        panic!()
    };
    assert!(reason.contains("s3") && reason.ends_with("; and 5 more"), "{reason}");
}

#[test]
fn unreadable_list_is_reported_and_stories_are_remembered() {
    let mut ledger = Ledger::new(&list(&[open("a"), open("b")]));
    let review = ledger.review(&parse(b"{"));
    assert!(matches!(review.findings.as_slice(), [TaskFinding::InvalidList { .. }]));
    let message = &briefing(&review, "ralph/tasks.json")[0].message;
    for part in ["ralph/tasks.json", "not valid JSON", "\"id\": \"a\"", "\"id\": \"b\""] {
        assert!(message.contains(part), "{message}");
    }
    assert!(matches!(final_verdict(&review, true, true, "t"), TaskVerdict::Veto { .. }));
    assert_eq!(ledger.review(&Ok(list(&[open("a")]))).findings.len(), 1);
}

#[test]
fn briefing_contains_lost_story() {
    let mut lost = open("b");
    lost["mine"] = json!("kept");
    let mut ledger = Ledger::new(&list(&[open("a"), lost]));
    let review = ledger.review(&Ok(list(&[open("a")])));
    let message = &briefing(&review, "t")[0].message;
    assert!(message.contains("\"mine\": \"kept\""), "{message}");
}

#[test]
fn many_lost_stories_are_restored_through_file() {
    let many: Vec<Value> = (0..120).map(|n| open(&format!("s{n}"))).collect();
    let long = story("s0", &json!({"description": "x".repeat(5_000)}));
    let few = &many[..3];
    let broken = || parse(b"{");
    type Case<'a> = (&'a str, &'a [Value], Result<TaskList, InvalidTaskList>, usize);
    let cases: [Case<'_>; 7] = [
        ("nothing is lost", &many, Ok(list(&many)), 0),
        ("a few, broken", few, broken(), 0),
        ("many, broken", &many, broken(), 120),
        ("a few are gone", &many, Ok(list(&many[9..])), 0),
        ("many are gone", &many, Ok(list(&many[30..])), 30),
        ("a long one is gone", &[long, open("a")], Ok(list(&[open("a")])), 1),
        ("none were there", &[], broken(), 0),
    ];
    for (case, start, now, kept) in cases {
        let mut review = Ledger::new(&list(start)).review(&now);
        let stories = overflowing_stories(&review).map_or(0, |stories| stories.len());
        assert_eq!(stories, kept, "{case}");
        if kept > 1 {
            review.removed_stories_file = Some("there.json".to_owned());
            let message = &briefing(&review, "t")[0].message;
            assert!(message.contains("there.json") && !message.contains("git may"), "{message}");
        }
    }
}

#[test]
fn changed_verify_commands_veto_if_one_is_removed() {
    for (commands, vetoes) in [
        (json!(["true"]), true),
        (json!([]), true),
        (json!(["make test || true"]), true),
        (json!(["make lint", "make test"]), false),
    ] {
        let mut ledger = Ledger::new(&list(&[passing("a")]));
        let mut changed = document(&[passing("a")]);
        changed["verifyCommands"] = commands.clone();
        let review = ledger.review(&read(&changed));
        assert!(matches!(review.findings.as_slice(), [TaskFinding::VerifyCommandsChanged { .. }]));
        assert!(briefing(&review, "t")[0].message.contains("`make test`"));
        let complete = final_verdict(&review, false, true, "t") == TaskVerdict::Complete;
        assert_eq!(complete, !vetoes, "{commands}");
    }
}

#[test]
fn original_acceptance_criteria_must_not_be_removed() {
    let with = |criteria: &[&str]| {
        list(&[story("a", &json!({"acceptanceCriteria": criteria, "passes": true, "notes": "n"}))])
    };
    for (now, lost) in [
        (&["one", "two"][..], &[][..]),
        (&["new", "two", "one"], &[]),
        (&["one"], &["two"]),
        (&["one", "two, more or less"], &["two"]),
    ] {
        let mut ledger = Ledger::new(&with(&["one", "two"]));
        let review = ledger.review(&Ok(with(now)));
        let found: Vec<&String> = review
            .findings
            .iter()
            .flat_map(|finding| match finding {
                TaskFinding::CriteriaRemoved { lost, .. } => lost.as_slice(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, lost);
        let complete = final_verdict(&review, true, true, "t") == TaskVerdict::Complete;
        assert_eq!(complete, lost.is_empty(), "{now:?}");
    }
    // An agent may change criteria that it added itself.
    let mut ledger = Ledger::new(&list(&[open("b")]));
    let both =
        |criteria: &str| list(&[open("b"), story("a", &json!({"acceptanceCriteria": [criteria]}))]);
    ledger.review(&Ok(both("one")));
    assert_eq!(ledger.review(&Ok(both("two"))).findings, []);
}

#[test]
fn work_is_complete_when_all_stories_pass_without_findings() {
    #[derive(Debug, PartialEq)]
    enum Is {
        Complete,
        Goes,
        /// The reason, and whether the verdict has feedback.
        Vetoed(&'static str, bool),
    }
    let undocumented = story("a", &json!({"passes": true}));
    let cases: [(&str, &[Value], bool, bool, Is); 9] = [
        ("all pass, with the tag", &[passing("a")], true, true, Is::Complete),
        ("all pass, without it", &[passing("a")], false, true, Is::Complete),
        ("open, nothing claimed", &[open("a")], false, true, Is::Goes),
        (
            "open, claimed",
            &[open("a"), passing("b")],
            true,
            true,
            Is::Vetoed("1 of 2 stories does not pass yet: a", true),
        ),
        (
            "two open, claimed",
            &[open("a"), open("b")],
            true,
            true,
            Is::Vetoed("2 of 2 stories do not pass yet: a, b", true),
        ),
        ("no stories, claimed", &[], true, true, Is::Vetoed("t has no stories", true)),
        ("no stories", &[], false, true, Is::Goes),
        (
            "without notes",
            &[undocumented],
            true,
            true,
            Is::Vetoed("t: a: notes: empty, but passes is true; describe what was done", false),
        ),
        ("a check fails", &[passing("a")], true, false, Is::Vetoed("a check failed", true)),
    ];
    for (case, stories, claimed, checks, expected) in cases {
        let mut ledger = Ledger::new(&list(&[]));
        let review = ledger.review(&Ok(list(stories)));
        let is = match final_verdict(&review, claimed, checks, "t") {
            TaskVerdict::Complete => Is::Complete,
            TaskVerdict::Stands => Is::Goes,
            TaskVerdict::Veto { reason, feedback } => {
                Is::Vetoed(String::leak(reason), !feedback.is_empty())
            }
        };
        assert_eq!(is, expected, "{case}");
    }
}

#[test]
fn story_is_unverified_until_checks_pass() {
    let now = list(&[passing("a"), passing("b")]);
    let mut ledger = Ledger::new(&list(&[passing("a"), open("b")]));
    for _ in 0..2 {
        assert_eq!(ledger.review(&Ok(now.clone())).unverified, ["b"]);
    }
    ledger.iteration_ended(&now, true);
    assert_eq!(ledger.review(&Ok(now)).unverified, [""; 0]);
}

/// The user's changes, findings and doubtful stories of a run that starts with `now` after one that
/// started with `start`, last saw `seen`, and ended if `closed`.
fn again(
    start: &Value,
    seen: &Value,
    closed: bool,
    now: &Value,
    has_checks: bool,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut ledger = Ledger::new(&read(start).unwrap());
    ledger.review(&read(seen));
    if closed {
        ledger.finish_run(&read(seen));
    }
    let kept = serde_json::to_vec(&ledger).unwrap();
    let ledger: Ledger = serde_json::from_slice(&kept).unwrap();
    let now = read(now).unwrap();
    let (mut ledger, since) = ledger.after_previous_run(&now, has_checks);
    let found = ledger.review(&Ok(now)).findings.iter().map(ToString::to_string).collect();
    (since.messages(), found, since.unverified)
}

#[test]
fn list_changes_between_runs_are_accepted_but_not_during() {
    let start = document(&[open("a"), open("b")]);
    let weak = |stories: &[Value]| {
        let mut list = document(stories);
        list["verifyCommands"] = json!(["true"]);
        list
    };
    let easy = story("b", &json!({"acceptanceCriteria": ["easy"]}));
    let only_a = document(&[open("a")]);
    let gone = "b (Title of b) was removed, and no story replaces it";
    let changed = "verifyCommands: changed; this run still uses `make test`";
    let lost = "b: acceptanceCriteria: removed \"it works\"";
    let told_of_commands = ["verifyCommands: removed `make test`", "verifyCommands: added `true`"];
    let same = [open("a"), open("b")];
    type Case<'a> = (&'a str, &'a Value, bool, &'a Value, &'a [&'a str], &'a [&'a str]);
    let (weak_same, eased) = (weak(&same), document(&[open("a"), easy]));
    let cases: [Case<'_>; 11] = [
        ("nothing", &start, true, &start, &[], &[]),
        ("the agent dropped it", &only_a, true, &only_a, &[], &[gone]),
        ("its owner dropped it", &start, true, &only_a, &["story removed: b (Title of b)"], &[]),
        ("the user dropped it", &start, false, &only_a, &[], &[gone]),
        ("the agent dropped it and its owner put it back", &only_a, true, &start, &[], &[]),
        ("commands, the agent", &weak_same, true, &weak_same, &[], &[changed]),
        ("commands, the owner", &start, true, &weak_same, &told_of_commands, &[]),
        ("commands, by the user", &start, false, &weak_same, &[], &[changed]),
        ("criteria, the agent", &eased, true, &eased, &[], &[lost]),
        ("criteria, the owner", &start, true, &eased, &["acceptance criteria changed: b"], &[]),
        ("criteria, by the user", &start, false, &eased, &[], &[lost]),
    ];
    for (case, seen, closed, now, changed, found) in cases {
        let (actual_changes, actual_findings, doubtful) = again(&start, seen, closed, now, true);
        assert_eq!((actual_changes, actual_findings), (owned(changed), owned(found)), "{case}");
        assert_eq!(doubtful, [""; 0], "{case}");
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn story_marked_in_unfinished_iteration_is_doubtful() {
    let start = document(&[open("a")]);
    let done = document(&[passing("a")]);
    for (case, seen, closed, has_checks, doubtful) in [
        ("the run was killed", &start, false, true, true),
        ("it was killed after a look", &done, false, true, true),
        ("it was interrupted, and there are checks", &done, true, true, true),
        ("it was interrupted, and there is none", &done, true, false, true),
        ("its owner marked it", &start, true, false, false),
    ] {
        let (_, found, in_doubt) = again(&start, seen, closed, &done, has_checks);
        assert_eq!(!in_doubt.is_empty(), doubtful, "{case}");
        assert_eq!(found, [""; 0]);
    }
}

#[test]
fn story_mark_is_doubtful_until_iteration_ends() {
    let (neither, one) = (list(&[open("a"), open("b")]), list(&[passing("a"), open("b")]));
    let both = list(&[passing("a"), passing("b")]);
    // Lists in the order seen, and whether an iteration finished with them.
    type Case<'a> = (&'a str, &'a [(&'a TaskList, bool)], &'a [&'a str]);
    let cases: [Case<'_>; 6] = [
        ("marked", &[(&both, false)], &["a", "b"]),
        ("ended", &[(&both, true)], &[]),
        ("one of them", &[(&one, true), (&both, false)], &["b"]),
        ("and then the other", &[(&one, false), (&both, true)], &[]),
        ("taken back and marked again", &[(&both, true), (&one, false), (&both, false)], &["b"]),
        ("taken back", &[(&both, false), (&neither, false)], &[]),
    ];
    for (case, seen, doubtful) in cases {
        let mut ledger = Ledger::new(&neither);
        let mut last = None;
        for (list, ended) in seen {
            ledger.review(&Ok((*list).clone()));
            if *ended {
                // The result of checks does not matter here.
                ledger.iteration_ended(list, false);
            }
            last = Some(*list);
        }
        let last = last.unwrap().clone();
        let review = ledger.review(&Ok(last.clone()));
        assert_eq!(review.doubtful, owned(doubtful), "{case}");
        let is_mentioned =
            briefing(&review, "t").iter().any(|it| it.message.contains("was interrupted"));
        assert_eq!(is_mentioned, !doubtful.is_empty(), "{case}");
        let complete = last.is_complete() && doubtful.is_empty();
        assert_eq!(
            unfinished_verdict(&review, true, "t") == TaskVerdict::Complete,
            complete,
            "{case}"
        );
        // The next run agrees.
        ledger.finish_run(&Ok(last.clone()));
        assert_eq!(ledger.after_previous_run(&last, true).1.unverified, owned(doubtful), "{case}");
    }
    let (mut ledger, since) = Ledger::with_marks_in_doubt(&one);
    assert_eq!(since.unverified, ["a"]);
    assert_eq!(ledger.review(&Ok(one)).doubtful, ["a"]);
}

#[test]
fn opening_check_completes_only_without_objections() {
    let review = |then: &[Value], now: &[Value]| {
        let mut ledger = Ledger::new(&list(&[open("a")]));
        ledger.iteration_ended(&list(then), true);
        ledger.review(&Ok(list(now)))
    };
    let (done, other) = (&[passing("a")][..], &[passing("b")][..]);
    assert_eq!(initial_verdict(&review(done, done), true, "t"), TaskVerdict::Complete);
    for (review, checks) in [
        (review(done, done), false),
        (review(&[open("a")], done), true),
        (review(other, other), true),
    ] {
        let verdict = initial_verdict(&review, checks, "t");
        assert!(matches!(verdict, TaskVerdict::Veto { .. }), "{verdict:?}");
    }
    // The mark was withdrawn meanwhile.
    assert_eq!(initial_verdict(&review(done, &[open("a")]), true, "t"), TaskVerdict::Stands);
}
