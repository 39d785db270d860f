//! `ralph tasks`.

use super::*;

#[test]
fn task_list_shows_passing_next_and_waiting_stories() {
    let project = Project::new();
    write_list(
        &project,
        &list(&[
            passing("US-001"),
            open("US-002", &json!({"priority": 5})),
            open("US-003", &json!({"dependsOn": ["US-002"]})),
            open("US-004", &json!({"priority": 9})),
        ]),
    );
    project.ralph(["tasks"]).run().success().stdout_is(
        "Shop: 1 of 4 stories pass (ralph/tasks.json)\n\n  \
         US-001  passes            Title of US-001\n\
         > US-002  next              Title of US-002\n  \
         US-003  waits for US-002  Title of US-003\n  \
         US-004  ready             Title of US-004\n",
    );
    let rows = project.ralph(["tasks", "list", "--format", "json"]).run().json_lines().0;
    let states: Vec<_> = rows.iter().map(|row| row["state"].as_str().unwrap_or("?")).collect();
    assert_eq!(states, ["passes", "next", "waits", "ready"]);
    assert_eq!(rows[2]["waitsFor"], json!(["US-002"]));
    let next = project.ralph(["tasks", "next", "--format", "json"]).run();
    assert_eq!(next.success().json_lines().0[0]["id"], "US-002");
    project.ralph(["tasks", "show", "US-003"]).run().success().stdout_has("depends on US-002");
    for near in ["US-03", "us-003"] {
        project.ralph(["tasks", "show", near]).run().code(2).stderr_has("its stories: US-003");
    }
}

#[test]
fn no_story_is_next_when_all_pass() {
    let project = Project::new();
    write_list(&project, &list(&[passing("a")]));
    project.ralph(["tasks", "next"]).run().success().stdout_is("every story passes\n");
    project.ralph(["tasks", "next", "--format", "json"]).run().success().stdout_is("");
}

#[test]
fn stories_are_added_to_new_list() {
    let project = Project::new();
    project.ralph(["new"]).run().success();
    project.ralph(["tasks"]).run().success().stdout_has("no stories in ralph/tasks.json yet");
    project.ralph(["tasks", "next"]).run().success().stdout_has("has no stories yet");
    let add = ["tasks", "add", "Reset by mail", "--criterion", "A mail is sent"];
    project.ralph(add).run().success().stdout_is("added US-001\n");
    let add = ["tasks", "add", "Expiry", "--criterion", "a", "--criterion", "b", "--depends-on"];
    project.ralph(add).arg("US-001").run().success().stdout_is("added US-002\n");
    let stories = read_list(&project)["userStories"].clone();
    assert_eq!(stories.as_array().map(Vec::len), Some(2));
    assert_eq!(stories[0]["title"], "Reset by mail");
    assert_eq!(stories[1]["acceptanceCriteria"], json!(["a", "b"]));
    assert_eq!(stories[1]["dependsOn"], json!(["US-001"]));
    assert_eq!(stories[1]["priority"], 2);
}

#[test]
fn task_edit_changes_only_given_fields() {
    let project = Project::new();
    let text = "{\r\n\t\"project\": \"p\", \"branchName\": \"b\", \"description\": \"d\",\r\n\t\"mine\": 1.50,\r\n\t\
                \"userStories\": [{\"zeta\": 1, \"id\": \"a\", \"title\": \"t\", \"passes\": false, \
                \"priority\": 1, \"acceptanceCriteria\": [\"x\"], \"notes\": \"\"}]\r\n}";
    project.write("ralph/tasks.json", text);
    let set = ["tasks", "set", "a", "--passes", "--notes", "Done: \"all\" of it\n日本"];
    project.ralph(set).run().success();
    let expected = text
        .replace("\"passes\": false", "\"passes\": true")
        .replace("\"notes\": \"\"", "\"notes\": \"Done: \\\"all\\\" of it\\n日本\"");
    assert_eq!(project.read("ralph/tasks.json"), expected);
    let set = ["tasks", "set", "a", "--passes=false", "--add-note", "no", "--depends-on", ""];
    project.ralph(set).run().success();
    let story = read_list(&project)["userStories"][0].clone();
    assert_eq!(story["passes"], false);
    assert_eq!(story["dependsOn"], json!([]));
    assert_eq!(story["notes"], "Done: \"all\" of it\n日本\nno");
}

#[test]
fn task_edit_breaking_list_is_refused() {
    let project = Project::new();
    write_list(&project, &list(&[open("a", &json!({})), open("b", &json!({"dependsOn": ["a"]}))]));
    let before = project.read("ralph/tasks.json");
    let cases: [(&[&str], &str); 17] = [
        (&["set", "a", "--passes"], "a: notes: empty, but passes is true"),
        (&["set", "a", "--depends-on", "b"], "a: dependency cycle: a -> b -> a"),
        (&["set", "a", "--depends-on", "z"], "a: dependsOn: unknown story \"z\""),
        (&["set", "a"], "nothing to change"),
        (&["set", "z", "--passes"], "no story \"z\""),
        (
            &["add", "t", "--criterion", "c", "--id", "a"],
            "userStories[2]: id: \"a\" is already used",
        ),
        (&["add", " ", "--criterion", "c"], "the title is empty"),
        (&["add", "two\nlines", "--criterion", "c"], "the title contains a control character"),
        (&["add", "a\ttab", "--criterion", "c"], "the title contains a control character"),
        (&["add", "t", "--criterion", "\r\n"], "a criterion is empty"),
        (&["add", "t", "--criterion", "c", "--replaces", "z"], "no story \"z\""),
        (&["add", "t", "--criterion", "c", "--id", ""], "the id is empty"),
        (&["add", "t", "--criterion", "c", "--priority", "inf"], "not a finite number"),
        (&["set", "a", "--title", ""], "the title is empty"),
        (&["set", "a", "--passes", "--notes", " "], "a: notes: empty"),
        (&["set", "a", "--passes"], "hint: describe what was done: --passes"),
        (&["set", "a", "--passes", "maybe"], "invalid value 'maybe'"),
    ];
    for (args, message) in cases {
        project.ralph(["tasks"]).args(args).run().code(2).stderr_has(message);
        assert_eq!(project.read("ralph/tasks.json"), before);
    }
}

#[test]
fn passes_flag_accepts_common_notations() {
    let project = Project::new();
    write_list(&project, &list(&[open("a", &json!({"notes": "n"}))]));
    let all: [(&[&str], bool); 6] = [
        (&["a", "--passes"], true),
        (&["a", "--passes", "false"], false),
        (&["a", "--passes", "true"], true),
        (&["--passes=false", "a"], false),
        (&["--passes", "a"], true),
        (&["a", "--passes=false"], false),
    ];
    for (args, expected) in all {
        project.ralph(["tasks", "set"]).args(args).run().success();
        assert_eq!(read_list(&project)["userStories"][0]["passes"], expected, "{args:?}");
    }
}

#[test]
fn pasted_text_is_trimmed_and_any_priority_accepted() {
    let project = Project::new();
    project.write("ralph/tasks.json", format!("{:#}", list(&[])).replace('\n', "\r\n"));
    let add = ["tasks", "add", " First \r\n", "--criterion", "one\r\ntwo\r\n", "--priority", "-1"];
    project.ralph(add).run().success();
    let story = read_list(&project)["userStories"][0].clone();
    assert_eq!(story["title"], "First");
    assert_eq!(story["acceptanceCriteria"], json!(["one\ntwo"]));
    assert_eq!(story["priority"], -1);
    let text = project.read("ralph/tasks.json");
    assert_eq!(
        text.matches('\n').count(),
        text.matches("\r\n").count(),
        "one kind of line: {text:?}"
    );
}

#[test]
fn invalid_list_error_names_problem() {
    let mut wrong_type = list(&[open("US-7", &json!({"passes": "yes"}))]);
    wrong_type["verifyCommands"] = json!({});
    let cases = [
        (String::new(), "ralph/tasks.json: is empty"),
        ("{\"project\": ".into(), "ralph/tasks.json: is not valid JSON: EOF"),
        ("[]".into(), "must be an object, not an array"),
        (list(&[json!(3)]).to_string(), "userStories[0]: must be an object, not 3"),
        (wrong_type.to_string(), "US-7: passes: must be true or false, not the string \"yes\""),
        (
            list(&[open("a", &json!({})), open("a", &json!({}))]).to_string(),
            "userStories[1]: id: \"a\" is already used by userStories[0]",
        ),
        (
            list(&[
                open("a", &json!({"dependsOn": ["b"]})),
                open("b", &json!({"dependsOn": ["a"]})),
            ])
            .to_string(),
            "a: dependency cycle: a -> b -> a",
        ),
        (
            list(&[open("a", &json!({"dependsOn": ["gone"]}))]).to_string(),
            "a: dependsOn: unknown story \"gone\"",
        ),
        (
            list(&[open("a", &json!({"acceptanceCriteria": ["x", " "]}))]).to_string(),
            "a: acceptanceCriteria: entry 1 must not be empty",
        ),
        (list(&[open("a", &json!({"title": ""}))]).to_string(), "a: title: must not be empty"),
        (
            list(&[]).to_string().replace("\"verifyCommands\":[]", "\"verifyCommands\":[\"\"]"),
            "verifyCommands: entry 0 must not be empty",
        ),
        ("[".repeat(100_000), "is not valid JSON: recursion limit"),
    ];
    let project = Project::new();
    for (text, message) in cases {
        project.write("ralph/tasks.json", &text);
        for command in ["list", "next"] {
            project.ralph(["tasks", command]).run().code(2).stderr_has(message);
        }
    }
    for (bytes, message) in [(&b"\xff"[..], "is not valid JSON"), (b"\xff\xfe{\0}\0", "is UTF-16")]
    {
        project.write("ralph/tasks.json", bytes);
        project.ralph(["tasks"]).run().code(2).stderr_has(message);
    }
    std::fs::remove_file(project.path().join("ralph/tasks.json")).expect("the list");
    project.ralph(["tasks"]).run().code(2).stderr_has("task list not found: ralph/tasks.json");
    project.command("mkfifo").arg("ralph/tasks.json").status().expect("mkfifo");
    project.ralph(["tasks"]).run().code(2).stderr_has("not a regular file");
}

#[test]
fn concurrent_task_edits_lose_nothing() {
    let project = Project::new();
    write_list(&project, &list(&[]));
    let running: Vec<_> = (0..12)
        .map(|n| {
            let title = format!("Story {n}");
            project.ralph(["tasks", "add", &title, "--criterion", "c"]).start()
        })
        .collect();
    for ralph in running {
        ralph.wait().success();
    }
    let stories = read_list(&project)["userStories"].clone();
    let ids: std::collections::BTreeSet<_> =
        stories.as_array().expect("stories").iter().map(|story| story["id"].as_str()).collect();
    assert_eq!(ids.len(), 12, "{stories:#}");
}

#[test]
fn ten_thousand_stories_are_handled_fast() {
    let project = Project::new();
    let id = |n: usize| format!("US-{n:05}");
    let stories: Vec<Value> = (0..10_000)
        .map(|n| match n {
            0 => open(&id(0), &json!({})),
            n => open(&id(n), &json!({"dependsOn": [id(n - 1)]})),
        })
        .collect();
    write_list(&project, &list(&stories));
    // Anything quadratic would exceed the time limit.
    let output = project.ralph(["tasks"]).run();
    assert_eq!(output.success().stdout.lines().count(), 10_002);
    project.ralph(["tasks", "set", &id(0), "--passes", "--notes", "n"]).run().success();
    project.ralph(["tasks", "next"]).run().success().stdout_has(&id(1));
}

#[test]
fn leftovers_of_killed_edit_are_removed_by_next() {
    let project = Project::new();
    write_list(&project, &list(&[open("a", &json!({}))]));
    project.write("ralph/.ralph-save-old", "{").write("ralph/.ralph-save-new", "{");
    let old =
        std::fs::File::options().write(true).open(project.path().join("ralph/.ralph-save-old"));
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    old.expect("the file").set_modified(hour_ago).expect("its time");
    project.ralph(["tasks", "set", "a", "--title", "Other"]).run().success();
    assert!(!project.has("ralph/.ralph-save-old"));
    assert!(project.has("ralph/.ralph-save-new"), "another process may be saving it");
}

#[test]
fn long_dependency_cycle_is_abbreviated() {
    let project = Project::new();
    let id = |n: usize| format!("s{n}");
    let story = |n: usize| open(&id(n), &json!({"dependsOn": [id((n + 1) % 1_000)]}));
    write_list(&project, &list(&(0..1_000).map(story).collect::<Vec<_>>()));
    let output = project.ralph(["tasks", "next"]).run();
    output.code(2).stderr_has("s0 -> s1 -> ").stderr_has(" -> 990 more -> s0");
    assert!(output.stderr.len() < 1_000, "{}", output.stderr);
}
