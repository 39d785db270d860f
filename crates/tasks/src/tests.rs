use super::ledger::{Ledger, TaskFinding};
use super::order::{self, StoryStatus};
use super::verdict::{
    TaskVerdict, briefing, final_verdict, initial_verdict, overflowing_stories, unfinished_verdict,
};
use super::*;
use proptest::prelude::*;
use serde_json::json;

mod edits;
mod ledger;

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

fn read(value: &Value) -> Result<TaskList, InvalidTaskList> {
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

fn complaints(text: &[u8]) -> Vec<String> {
    match parse(text) {
        Ok(list) => list.problems().iter().map(ToString::to_string).collect(),
        Err(broken) => broken.problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn task_list_error_names_story_and_field() {
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
        (json!({}), "project: missing; must be a string"),
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
        (without("id"), "userStories[0]: id: missing; must be a string"),
        (with("id", json!(" ")), "userStories[0]: id: must not be empty"),
        (with("id", json!(7)), "userStories[0]: id: must be a string, not 7"),
        (with("title", json!(7)), "US-1: title: must be a string, not 7"),
        (without("title"), "US-1: title: missing; must be a string"),
        (
            with("passes", json!("yes")),
            "US-1: passes: must be true or false, not the string \"yes\"",
        ),
        (without("passes"), "US-1: passes: missing; must be true or false"),
        (with("priority", json!("1")), "US-1: priority: must be a number, not the string \"1\""),
        (without("priority"), "US-1: priority: missing; must be a number"),
        (
            with("acceptanceCriteria", json!([])),
            "US-1: acceptanceCriteria: must have at least one entry",
        ),
        (
            with("acceptanceCriteria", json!("x")),
            "US-1: acceptanceCriteria: must be a non-empty array, not the string \"x\"",
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
            "US-1: notes: empty, but passes is true; describe what was done",
        ),
        (
            document(&[open("a"), open("b"), open("a")]),
            "userStories[2]: id: \"a\" is already used by userStories[0]",
        ),
        (document(&[after("a", &["b"])]), "a: dependsOn: unknown story \"b\""),
        (document(&[after("a", &["a"])]), "a: dependsOn: names the story itself"),
        (
            document(&[after("a", &["b"]), after("b", &["c"]), after("c", &["a"])]),
            "a: dependency cycle: a -> b -> c -> a",
        ),
    ];
    for (document, expected) in cases {
        let complaints = complaints(document.to_string().as_bytes());
        assert_eq!(complaints.first().map(String::as_str), Some(expected), "{document}");
    }
}

#[test]
fn invalid_json_error_has_position_and_detects_truncation() {
    for (text, torn, says) in [
        (&b""[..], true, "is empty"),
        (b" \n", true, "is empty"),
        (b"{\"project\": \"p\", \"userSto", true, "line 1 column 25"),
        (b"{\"project\": \"p\",}", false, "line 1 column 17"),
        (b"\xff", false, "line 1 column 1"),
        (b"\xff\xfe{\0}\0", false, "is UTF-16"),
        (b"{\0}\0", false, "is UTF-16"),
        (b"{} trailing", false, "trailing characters"),
    ] {
        let broken = parse(text).unwrap_err();
        assert_eq!(is_truncated(text), torn, "{text:?}");
        let message = broken.problems[0].to_string();
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn task_list_errors_are_reported_together() {
    let mut first = open("US-1");
    first["passes"] = json!("no");
    first["priority"] = json!(null);
    let problems = complaints(document(&[first, json!(3), passing("US-2")]).to_string().as_bytes());
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn optional_task_list_fields_may_be_missing() {
    let text =
        br#"{"project": "", "branchName": "", "description": "", "extra": 1, "userStories": []}"#;
    let list = parse(text).unwrap();
    assert!(!list.is_complete(), "a list without stories promises nothing");
    let marked = [b"\xef\xbb\xbf", &text[..]].concat();
    assert_eq!(parse(&marked).unwrap(), list);
}

#[test]
fn next_story_is_unblocked_with_lowest_priority() {
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
fn dependency_on_split_story_covers_its_parts() {
    let mut parts = [passing("a1"), open("a2")];
    for part in &mut parts {
        part["replaces"] = json!(["a"]);
    }
    let [a1, a2] = parts;
    let split = list(&[after("b", &["a"]), a1, a2]);
    assert_eq!(split.problems(), []);
    assert_eq!(order::story_statuses(&split)[0], StoryStatus::Blocked(vec!["a2"]));
}

#[test]
fn long_dependency_chain_and_cycle_are_handled() {
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

/// Random lists in any order, without dependency cycles: a story depends on lower numbers only.
fn any_list() -> impl Strategy<Value = TaskList> {
    let facts = (any::<bool>(), 0..3_i8, prop::collection::vec(0..8_usize, 0..3));
    let stories = prop::collection::vec(facts, 0..8).prop_map(|stories| {
        let one = |(n, (passes, priority, after)): (usize, &(bool, i8, Vec<usize>))| {
            let after = after.iter().filter(|other| **other < n);
            let after: Vec<String> = after.map(|n| format!("s{n}")).collect();
            let notes = if *passes { "n" } else { "" };
            story(
                &format!("s{n}"),
                &json!({"passes": passes, "priority": priority, "dependsOn": after, "notes": notes}),
            )
        };
        stories.iter().enumerate().map(one).collect::<Vec<_>>()
    });
    stories.prop_shuffle().prop_map(|stories| list(&stories))
}

proptest! {
    #[test]
    fn valid_task_list_can_be_completed_in_order(mut list in any_list()) {
        prop_assume!(list.problems().is_empty());
        let open = list.stories.len() - list.passing_count();
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
    fn ledger_reports_nothing_when_stories_are_only_added(histories in prop::collection::vec(any_list(), 1..5)) {
        // Lists only grow, so nothing is ever removed.
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

    /// Whatever agents do, and whenever runs are killed, a complete list has lost nothing.
    #[test]
    fn ledger_completes_only_if_no_story_was_lost(
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
        // Replacements by everything ever written.
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
            if kind % 7 == 0 {
                // The run is killed and the next one starts.
                ledger = ledger.after_previous_run(&now, checks).0;
            }
            let review = ledger.review(&Ok(now.clone()));
            if final_verdict(&review, claimed, checks, "t") == TaskVerdict::Complete {
                prop_assert!(checks && !now.stories.is_empty());
                prop_assert!(now.stories.iter().all(|story| story.passes && !story.lacks_notes()));
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
