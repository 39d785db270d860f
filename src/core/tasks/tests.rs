use super::ledger::{Finding, Ledger};
use super::order::{self, Standing};
use super::verdict::{briefing, opening, verdict};
use super::*;
use crate::core::machine::GateVerdict;
use proptest::prelude::*;
use serde_json::json;

fn story(id: &str, more: &Value) -> Value {
    let mut story = json!({
        "id": id, "title": format!("Title of {id}"), "acceptanceCriteria": ["it works"],
        "priority": 1, "passes": false, "notes": "",
    });
    for (key, value) in more.as_object().unwrap() {
        story[key] = value.clone();
    }
    story
}

fn document(stories: &[Value]) -> Value {
    json!({
        "project": "p", "branchName": "ralph/p", "description": "d",
        "verifyCommands": ["make test"], "userStories": stories,
    })
}

fn read(value: &Value) -> Result<TaskList, Broken> {
    parse(value.to_string().as_bytes())
}

fn list(stories: &[Value]) -> TaskList {
    read(&document(stories)).unwrap()
}

fn open(id: &str) -> Value {
    story(id, &json!({}))
}

fn passing(id: &str) -> Value {
    story(id, &json!({"passes": true, "notes": "done"}))
}

fn after(id: &str, others: &[&str]) -> Value {
    story(id, &json!({"dependsOn": others}))
}

/// Everything that is wrong with a text, a line each.
fn complaints(text: &[u8]) -> Vec<String> {
    match parse(text) {
        Ok(list) => list.problems().iter().map(ToString::to_string).collect(),
        Err(broken) => broken.problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_complaint_names_the_story_and_the_field() {
    let with = |field: &str, value: Value| {
        let mut story = open("US-1");
        story[field] = value;
        document(&[story])
    };
    let without = |field: &str| {
        let mut story = open("US-1");
        story.as_object_mut().unwrap().remove(field);
        document(&[story])
    };
    let top = |field: &str, value: Value| {
        let mut document = document(&[]);
        document[field] = value;
        document
    };
    let cases = [
        (json!([]), "must be an object, not an array"),
        (json!({}), "project: is missing; it must be a string"),
        (top("project", json!(1)), "project: must be a string, not 1"),
        (top("branchName", json!(null)), "branchName: must be a string, not null"),
        (top("description", json!({})), "description: must be a string, not an object"),
        (top("userStories", json!({})), "userStories: must be an array, not an object"),
        (
            top("verifyCommands", json!("make")),
            "verifyCommands: must be an array, not the string \"make\"",
        ),
        (top("verifyCommands", json!([1])), "verifyCommands: entry 0 must be a string, not 1"),
        (document(&[json!("x")]), "userStories[0]: must be an object, not the string \"x\""),
        (without("id"), "userStories[0]: id: is missing; it must be a string"),
        (with("id", json!(" ")), "userStories[0]: id: must not be empty"),
        (with("id", json!(7)), "userStories[0]: id: must be a string, not 7"),
        (with("title", json!(7)), "US-1: title: must be a string, not 7"),
        (without("title"), "US-1: title: is missing; it must be a string"),
        (
            with("passes", json!("yes")),
            "US-1: passes: must be true or false, not the string \"yes\"",
        ),
        (without("passes"), "US-1: passes: is missing; it must be true or false"),
        (with("priority", json!("1")), "US-1: priority: must be a number, not the string \"1\""),
        (without("priority"), "US-1: priority: is missing; it must be a number"),
        (
            with("acceptanceCriteria", json!([])),
            "US-1: acceptanceCriteria: must have at least one entry",
        ),
        (
            with("acceptanceCriteria", json!("x")),
            "US-1: acceptanceCriteria: must be an array with entries, not the string \"x\"",
        ),
        (
            with("acceptanceCriteria", json!(["a", {}])),
            "US-1: acceptanceCriteria: entry 1 must be a string, not an object",
        ),
        (with("notes", json!(["n"])), "US-1: notes: must be a string, not an array"),
        (
            with("dependsOn", json!("US-2")),
            "US-1: dependsOn: must be an array, not the string \"US-2\"",
        ),
        (
            with("passes", json!(true)),
            "US-1: notes: is empty, though passes is true; say in it what was done",
        ),
        (
            document(&[open("a"), open("b"), open("a")]),
            "userStories[2]: id: is \"a\", as that of userStories[0]; give it another",
        ),
        (document(&[after("a", &["b"])]), "a: dependsOn: names \"b\", and there is no such story"),
        (
            document(&[after("a", &["a"])]),
            "a: dependsOn: names the story itself, so that it could never begin",
        ),
        (
            document(&[after("a", &["b"]), after("b", &["c"]), after("c", &["a"])]),
            "a: dependsOn: goes in a circle: a -> b -> c -> a",
        ),
    ];
    for (document, expected) in cases {
        let complaints = complaints(document.to_string().as_bytes());
        assert_eq!(complaints.first().map(String::as_str), Some(expected), "{document}");
    }
}

#[test]
fn what_is_no_json_is_told_by_its_place_and_what_ends_too_early_is_known_as_torn() {
    for (text, torn, says) in [
        (&b""[..], true, "is empty"),
        (b" \n", true, "is empty"),
        (b"{\"project\": \"p\", \"userSto", true, "line 1 column 25"),
        (b"{\"project\": \"p\",}", false, "line 1 column 17"),
        (b"\xff\xfe", false, "line 1 column 1"),
        (b"{} trailing", false, "trailing characters"),
    ] {
        let broken = parse(text).unwrap_err();
        assert_eq!(broken.torn, torn, "{text:?}");
        let told = broken.problems[0].to_string();
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn all_is_told_at_once() {
    let mut first = open("US-1");
    first["passes"] = json!("no");
    first["priority"] = json!(null);
    let told = complaints(document(&[first, json!(3), passing("US-2")]).to_string().as_bytes());
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn what_may_be_missing_may_be_missing() {
    let text =
        br#"{"project": "", "branchName": "", "description": "", "extra": 1, "userStories": []}"#;
    let list = parse(text).unwrap();
    assert!(!list.is_complete(), "a list without stories promises nothing");
    let marked = [b"\xef\xbb\xbf", &text[..]].concat();
    assert_eq!(parse(&marked).unwrap(), list);
}

#[test]
fn next_is_what_waits_for_nothing_and_has_the_smallest_priority() {
    let prio = |id: &str, priority: f64, more: &[&str]| {
        story(id, &json!({"priority": priority, "dependsOn": more}))
    };
    let cases: [(&[Value], Option<&str>); 6] = [
        (&[], None),
        (&[passing("a")], None),
        (&[prio("a", 2.0, &[]), prio("b", 1.0, &[])], Some("b")),
        (&[prio("a", 1.0, &[]), prio("b", 1.0, &[])], Some("a")),
        (&[prio("a", 1.0, &["b"]), prio("b", 9.5, &[])], Some("b")),
        (&[prio("a", 1.0, &["b"]), passing("b")], Some("a")),
    ];
    for (stories, expected) in cases {
        let list = list(stories);
        assert_eq!(order::next(&list).map(|story| story.id.as_str()), expected);
    }
}

#[test]
fn to_depend_on_a_story_that_was_split_is_to_depend_on_its_parts() {
    let mut parts = [passing("a1"), open("a2")];
    for part in &mut parts {
        part["replaces"] = json!(["a"]);
    }
    let [a1, a2] = parts;
    let split = list(&[after("b", &["a"]), a1, a2]);
    assert_eq!(split.problems(), []);
    assert_eq!(order::standings(&split)[0], Standing::Waits(vec![2]));
}

#[test]
fn ten_thousand_stories_in_one_chain_or_circle() {
    let id = |n: usize| format!("US-{n}");
    let chain = |last: Value| {
        let mut stories: Vec<Value> = (0..9_999).map(|n| after(&id(n), &[&id(n + 1)])).collect();
        stories.push(last);
        list(&stories)
    };
    let straight = chain(open(&id(9_999)));
    assert_eq!(straight.problems(), []);
    assert_eq!(order::next(&straight).unwrap().id, id(9_999));
    let circle = chain(after(&id(9_999), &[&id(0)]));
    assert_eq!(circle.problems().len(), 1);
}

/// What a run that began with `start` and has seen `then` says to `now`.
fn findings(start: &[Value], then: &[Value], now: &[Value]) -> Vec<String> {
    let mut ledger = Ledger::new(&list(start));
    ledger.review(&Ok(list(then)));
    ledger.review(&Ok(list(now))).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_story_may_go_only_if_another_stands_for_it() {
    let replacing = |id: &str, others: &[&str]| story(id, &json!({"replaces": others}));
    let gone = |id: &str| vec![format!("{id} (Title of {id}) is gone, and no story replaces it")];
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
    for (what, then, now, expected) in cases {
        assert_eq!(findings(&start, then, now), expected, "{what}");
    }
}

#[test]
fn a_list_that_cannot_be_read_is_a_finding_and_nothing_is_forgotten() {
    let mut ledger = Ledger::new(&list(&[open("a"), open("b")]));
    let review = ledger.review(&parse(b"{"));
    assert!(matches!(review.findings.as_slice(), [Finding::Broken { .. }]));
    let told = &briefing(&review, &[], "ralph/tasks.json")[0].message;
    for part in ["ralph/tasks.json", "not valid JSON", "\"id\": \"a\"", "\"id\": \"b\""] {
        assert!(told.contains(part), "{told}");
    }
    assert!(matches!(verdict(&review, true, true, "t"), GateVerdict::Veto { .. }));
    assert_eq!(ledger.review(&Ok(list(&[open("a")]))).findings.len(), 1);
}

#[test]
fn the_agent_is_given_back_what_it_lost() {
    let mut lost = open("b");
    lost["mine"] = json!("kept");
    let mut ledger = Ledger::new(&list(&[open("a"), lost]));
    let review = ledger.review(&Ok(list(&[open("a")])));
    let told = &briefing(&review, &[], "t")[0].message;
    assert!(told.contains("\"mine\": \"kept\""), "{told}");
}

#[test]
fn other_verify_commands_are_reported_and_veto_if_one_is_gone() {
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
        assert!(matches!(review.findings.as_slice(), [Finding::VerifyCommandsChanged { .. }]));
        assert!(briefing(&review, &[], "t")[0].message.contains("`make test`"));
        let complete = verdict(&review, false, true, "t") == GateVerdict::Complete;
        assert_eq!(complete, !vetoes, "{commands}");
    }
}

#[test]
fn criteria_of_the_start_may_be_added_to_and_not_be_lost() {
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
                Finding::CriteriaLost { lost, .. } => lost.as_slice(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, lost);
        let complete = verdict(&review, true, true, "t") == GateVerdict::Complete;
        assert_eq!(complete, lost.is_empty(), "{now:?}");
    }
    // What an agent added itself it may think over.
    let mut ledger = Ledger::new(&list(&[open("b")]));
    let both =
        |criteria: &str| list(&[open("b"), story("a", &json!({"acceptanceCriteria": [criteria]}))]);
    ledger.review(&Ok(both("one")));
    assert_eq!(ledger.review(&Ok(both("two"))).findings, []);
}

#[test]
fn the_work_is_complete_when_every_story_passes_and_nothing_speaks_against_it() {
    #[derive(Debug, PartialEq)]
    enum Is {
        Complete,
        Goes,
        /// With this reason, and whether the verdict itself has something to tell the agent.
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
            Is::Vetoed(
                "t: a: notes: is empty, though passes is true; say in it what was done",
                false,
            ),
        ),
        ("a check fails", &[passing("a")], true, false, Is::Vetoed("a check failed", true)),
    ];
    for (what, stories, claimed, checks, expected) in cases {
        // The run began when nothing was there yet.
        let mut ledger = Ledger::new(&list(&[]));
        let review = ledger.review(&Ok(list(stories)));
        let is = match verdict(&review, claimed, checks, "t") {
            GateVerdict::Complete => Is::Complete,
            GateVerdict::Stands => Is::Goes,
            GateVerdict::Veto { reason, feedback } => {
                Is::Vetoed(String::leak(reason), !feedback.is_empty())
            }
        };
        assert_eq!(is, expected, "{what}");
    }
}

#[test]
fn a_story_is_unverified_until_the_checks_have_passed_once() {
    let now = list(&[passing("a"), passing("b")]);
    let mut ledger = Ledger::new(&list(&[passing("a"), open("b")]));
    for _ in 0..2 {
        assert_eq!(ledger.review(&Ok(now.clone())).unverified, ["b"]);
    }
    ledger.checks_passed(&now);
    assert_eq!(ledger.review(&Ok(now)).unverified, [""; 0]);
}

/// What a run knows that begins with `now`, after one that began with `start`, saw `seen` last, and came to
/// its end if `closed`: what its owner is told, what is found, what is in doubt.
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
        ledger.close(&read(seen));
    }
    let kept = serde_json::to_vec(&ledger).unwrap();
    let ledger: Ledger = serde_json::from_slice(&kept).unwrap();
    let now = read(now).unwrap();
    let (mut ledger, since) = ledger.after(&now, has_checks);
    let found = ledger.review(&Ok(now)).findings.iter().map(ToString::to_string).collect();
    (since.told(), found, since.doubtful)
}

#[test]
fn what_was_done_between_runs_is_its_owners_doing_and_what_was_done_in_one_is_not() {
    let start = document(&[open("a"), open("b")]);
    let weak = |stories: &[Value]| {
        let mut list = document(stories);
        list["verifyCommands"] = json!(["true"]);
        list
    };
    let easy = story("b", &json!({"acceptanceCriteria": ["easy"]}));
    let only_a = document(&[open("a")]);
    let gone = "b (Title of b) is gone, and no story replaces it";
    let changed = "verifyCommands: was changed; this run goes on with `make test`";
    let lost = "b: acceptanceCriteria: was changed; gone is \"it works\"";
    let told_of_commands =
        ["verifyCommands has lost `make test`", "verifyCommands has gained `true`"];
    let same = [open("a"), open("b")];
    type Case<'a> = (&'a str, &'a Value, bool, &'a Value, &'a [&'a str], &'a [&'a str]);
    let (weak_same, eased) = (weak(&same), document(&[open("a"), easy]));
    let cases: [Case<'_>; 11] = [
        ("nothing", &start, true, &start, &[], &[]),
        ("the agent dropped it", &only_a, true, &only_a, &[], &[gone]),
        ("its owner dropped it", &start, true, &only_a, &["the story b (Title of b) is gone"], &[]),
        ("somebody dropped it", &start, false, &only_a, &[], &[gone]),
        ("the agent dropped it and its owner put it back", &only_a, true, &start, &[], &[]),
        ("commands, the agent", &weak_same, true, &weak_same, &[], &[changed]),
        ("commands, the owner", &start, true, &weak_same, &told_of_commands, &[]),
        ("commands, somebody", &start, false, &weak_same, &[], &[changed]),
        ("criteria, the agent", &eased, true, &eased, &[], &[lost]),
        (
            "criteria, the owner",
            &start,
            true,
            &eased,
            &["acceptance criteria were changed: b"],
            &[],
        ),
        ("criteria, somebody", &start, false, &eased, &[], &[lost]),
    ];
    for (what, seen, closed, now, told, found) in cases {
        let (is_told, is_found, doubtful) = again(&start, seen, closed, now, true);
        assert_eq!((is_told, is_found), (owned(told), owned(found)), "{what}");
        assert_eq!(doubtful, [""; 0], "{what}");
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn what_passes_by_the_word_of_an_unfinished_iteration_is_in_doubt() {
    let start = document(&[open("a")]);
    let done = document(&[passing("a")]);
    for (what, seen, closed, has_checks, doubtful) in [
        ("the run was killed", &start, false, true, true),
        ("it was killed after a look", &done, false, true, true),
        ("it was interrupted, and there are checks", &done, true, true, false),
        ("it was interrupted, and there is none", &done, true, false, true),
        ("its owner marked it", &start, true, false, false),
    ] {
        let (_, found, in_doubt) = again(&start, seen, closed, &done, has_checks);
        assert_eq!(!in_doubt.is_empty(), doubtful, "{what}");
        assert_eq!(found, [""; 0]);
    }
}

#[test]
fn there_is_nothing_to_do_only_if_nothing_speaks_against_it() {
    let review = |now: &[Value]| Ledger::new(&list(&[open("a")])).review(&Ok(list(now)));
    let doubt = ["a".to_owned()];
    assert_eq!(opening(&review(&[passing("a")]), &[], true, "t"), GateVerdict::Complete);
    for (review, doubtful, checks) in [
        (review(&[passing("a")]), &[][..], false),
        (review(&[passing("a")]), &doubt, true),
        (review(&[passing("b")]), &[], true),
    ] {
        let verdict = opening(&review, doubtful, checks, "t");
        assert!(matches!(verdict, GateVerdict::Veto { .. }), "{verdict:?}");
    }
    // It was taken back meanwhile.
    assert_eq!(opening(&review(&[open("a")]), &[], true, "t"), GateVerdict::Stands);
}

mod edits {
    use super::*;
    use serde_json::Map;

    const LIST: &str = r#"{
    "project": "p", "mine": [1.50, 1e3],
    "branchName": "b",
    "description": "d",
    "userStories": [
        {
            "id": "US-1", "passes": false,
            "title": "One: \"quoted\" { [",
            "extra": {"z": 1, "a": 2}
        },
        {"id": "US-2", "title": "Two", "passes": false}
    ]
}
"#;

    #[test]
    fn a_value_changes_and_nothing_else() {
        let set = |changes: &[edit::Change<'_>]| edit::set_in_story(LIST, "US-1", changes).unwrap();
        assert_eq!(
            set(&[("passes", json!(true))]),
            LIST.replacen("\"passes\": false", "\"passes\": true", 1)
        );
        assert_eq!(
            set(&[("notes", json!("n\nm")), ("passes", json!(true))]),
            LIST.replacen("\"passes\": false", "\"passes\": true", 1)
                .replace(r#""a": 2}"#, "\"a\": 2},\n            \"notes\": \"n\\nm\"")
        );
        assert_eq!(
            edit::set_in_story(LIST, "US-2", &[("dependsOn", json!(["US-1", "x"]))]).unwrap(),
            LIST.replacen(
                r#""title": "Two", "passes": false"#,
                r#""title": "Two", "passes": false, "dependsOn": ["US-1", "x"]"#,
                1
            )
        );
        assert_eq!(edit::set_in_story(LIST, "US-3", &[]), None);
        assert_eq!(edit::set_in_story("{", "US-1", &[]), None);
    }

    #[test]
    fn a_story_is_added_in_the_layout_of_the_others() {
        let story = json!({"id": "US-3", "dependsOn": ["US-1"]});
        let added = edit::add_story(LIST, story.as_object().unwrap()).unwrap();
        let expected = LIST.replace(
            "\"Two\", \"passes\": false}",
            "\"Two\", \"passes\": false},\n        {\n            \"id\": \"US-3\",\n            \
             \"dependsOn\": [\n                \"US-1\"\n            ]\n        }",
        );
        assert_eq!(added, expected);
        let empty = "{\n  \"userStories\": [\n  ]\n}\n";
        assert_eq!(
            edit::add_story(empty, json!({"id": "a"}).as_object().unwrap()).unwrap(),
            "{\n  \"userStories\": [\n    {\n      \"id\": \"a\"\n    }\n  ]\n}\n"
        );
        assert_eq!(
            edit::add_story("{\"userStories\":[]}", json!({"id": "a"}).as_object().unwrap()),
            Some("{\"userStories\":[{\"id\": \"a\"}]}".to_owned())
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((".{0,3}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_edit_of_the_text_is_an_edit_of_the_value(
            fields in prop::collection::vec((".{0,4}", value()), 0..5),
            key in ".{0,4}",
            new in value(),
            pretty in any::<bool>(),
        ) {
            let mut story: Map<String, Value> = fields.into_iter().collect();
            story.insert("id".to_owned(), json!("x"));
            let list = json!({"userStories": [{"id": "y"}, story, {"id": "z"}]});
            let text = if pretty { format!("{list:#}") } else { list.to_string() };
            prop_assume!(key != "id");
            let edited = edit::set_in_story(&text, "x", &[(&key, new.clone())]).unwrap();
            let mut expected = list;
            expected["userStories"][1][&key] = new;
            prop_assert_eq!(edit::value(&edited), Some(expected.clone()));
            let added = edit::add_story(&edited, json!({"id": "w"}).as_object().unwrap()).unwrap();
            expected["userStories"].as_array_mut().unwrap().push(json!({"id": "w"}));
            prop_assert_eq!(edit::value(&added), Some(expected));
        }

        #[test]
        fn whatever_the_text_nothing_panics(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
            let _ = parse(text.as_bytes());
            let _ = edit::set(&text, &[("a", json!(1))]);
            let _ = edit::set_in_story(&text, "a", &[("a", json!(1))]);
        }
    }
}

/// Random lists, with dependencies that may lead anywhere.
fn any_list() -> impl Strategy<Value = TaskList> {
    let facts = (any::<bool>(), 0..3_i8, prop::collection::vec(0..8_usize, 0..3));
    prop::collection::vec(facts, 0..8).prop_map(|stories| {
        let one = |(n, (passes, priority, after)): (usize, &(bool, i8, Vec<usize>))| {
            let after: Vec<String> = after.iter().map(|n| format!("s{n}")).collect();
            let notes = if *passes { "n" } else { "" };
            story(
                &format!("s{n}"),
                &json!({"passes": passes, "priority": priority, "dependsOn": after, "notes": notes}),
            )
        };
        list(&stories.iter().enumerate().map(one).collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn a_list_without_problems_can_be_worked_off_in_the_order_it_gives(mut list in any_list()) {
        prop_assume!(list.problems().is_empty());
        let open = list.stories.len() - list.done();
        for _ in 0..open {
            let next = order::next(&list).map(|story| story.id.clone());
            let next = next.expect("while a story is open, one is next");
            for story in &mut list.stories {
                if story.id == next {
                    let after = story.depends_on.clone();
                    story.passes = true;
                    let passing: Vec<&str> =
                        list.stories.iter().filter(|s| s.passes).map(|s| s.id.as_str()).collect();
                    prop_assert!(after.iter().all(|id| passing.contains(&id.as_str())));
                    break;
                }
            }
        }
        prop_assert!(order::next(&list).is_none());
        prop_assert!(list.stories.is_empty() || list.is_complete());
    }

    #[test]
    fn nothing_that_is_never_taken_out_is_ever_missed(histories in prop::collection::vec(any_list(), 1..5)) {
        // Each list is added to the one before, so that nothing ever goes.
        let mut stories: Vec<Value> = Vec::new();
        let mut ledger = None;
        for (n, more) in histories.iter().enumerate() {
            for story in &more.stories {
                let mut story = story.source.clone();
                story["id"] = json!(format!("{n}-{}", story["id"].as_str().unwrap()));
                story["dependsOn"] = json!([]);
                stories.insert(stories.len() / 2, story);
            }
            let now = list(&stories);
            let ledger = ledger.get_or_insert_with(|| Ledger::new(&now));
            prop_assert_eq!(ledger.review(&Ok(now)).findings, []);
        }
    }

    /// Whatever agents do to a list, one after the other: a run that is complete has lost nothing.
    #[test]
    fn complete_means_that_every_story_there_ever_was_passes_or_was_replaced(
        start in any_list(),
        steps in prop::collection::vec(any::<(u8, prop::sample::Index, prop::sample::Index)>(), 0..24),
        claimed: bool,
        checks: bool,
    ) {
        let mut stories: Vec<Value> = start.stories.iter().map(|it| it.source.clone()).collect();
        for story in &mut stories {
            story["dependsOn"] = json!([]);
        }
        let mut ledger = Ledger::new(&list(&stories));
        // Who stands for whom, by what was ever written.
        let mut ever: std::collections::BTreeMap<String, Vec<String>> = Default::default();
        for (n, (kind, at, other)) in steps.into_iter().enumerate() {
            let id = |stories: &[Value], at: prop::sample::Index| match stories.len() {
                0 => "none".to_owned(),
                len => stories[at.index(len)]["id"].as_str().unwrap().to_owned(),
            };
            let (one, two) = (id(&stories, at), id(&stories, other));
            match kind % 6 {
                0 => stories.retain(|story| story["id"] != one.as_str()),
                1 => stories.push(story(&format!("n{n}"), &json!({"replaces": [one, two]}))),
                _ => {
                    for story in stories.iter_mut().filter(|story| story["id"] == one.as_str()) {
                        story["passes"] = json!(true);
                        story["notes"] = json!(if kind > 20 { "done" } else { "" });
                    }
                }
            }
            let now = list(&stories);
            for story in &now.stories {
                ever.insert(story.id.clone(), story.replaces.clone());
            }
            let review = ledger.review(&Ok(now.clone()));
            if verdict(&review, claimed, checks, "t") == GateVerdict::Complete {
                prop_assert!(checks && !now.stories.is_empty());
                prop_assert!(now.stories.iter().all(|story| story.passes && !story.is_undocumented()));
                let mut kept: Vec<&String> = now.stories.iter().map(|story| &story.id).collect();
                let mut seen = 0;
                while let Some(id) = kept.get(seen).copied() {
                    seen += 1;
                    for replaced in ever.get(id).into_iter().flatten() {
                        if !kept.contains(&replaced) {
                            kept.push(replaced);
                        }
                    }
                }
                for id in ever.keys().chain(start.stories.iter().map(|story| &story.id)) {
                    prop_assert!(kept.contains(&id), "{} is lost", id);
                }
            }
        }
    }
}
