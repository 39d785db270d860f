//! `ralph work`.

use rustix::process::Signal;

use super::support::{Ralph, wait_until};
use super::*;

pub(super) const PROMISE: &str = "<promise>COMPLETE</promise>";

pub(super) fn work(project: &Project, args: &[&str], sessions: &[Value]) -> Ralph {
    let recorded = project.record_sessions(sessions);
    project.install_agent("robot", &json!({"sessions": recorded}));
    // The fake agent's files are outside the project, where a sandbox would hide them.
    project.ralph(["work", "--no-sandbox"]).args(args).args(["--", "robot"])
}

pub(super) fn project_with(stories: &[Value]) -> Project {
    let project = Project::new();
    project.settings(&json!({"retry": {"backoffSeconds": 0}}));
    project.write("ralph/prompt.md", "Iteration $RALPH_ITERATION of ${RALPH_MAX_ITERATIONS}.");
    write_list(&project, &list(stories));
    project
}

pub(super) fn write_stories_step(stories: &[Value]) -> Value {
    write_text_step(&format!("{:#}\n", list(stories)))
}

pub(super) fn write_text_step(text: &str) -> Value {
    json!({"write": {"path": "ralph/tasks.json", "text": text}})
}

pub(super) fn print_step(text: &str) -> Value {
    json!({"print": text})
}

pub(super) fn prompts(project: &Project) -> Vec<String> {
    let text = |record: &Value| record["prompt"].as_str().unwrap_or_default().to_owned();
    project.agent_starts().iter().map(text).collect()
}

#[test]
fn work_runs_until_all_stories_pass() {
    let (a, b) = (open("a", &json!({})), open("b", &json!({"dependsOn": ["a"]})));
    let project = project_with(&[a, b.clone()]);
    let sessions = [
        json!([write_stories_step(&[passing("a"), b]), print_step("a is done")]),
        json!([write_stories_step(&[passing("a"), passing("b")]), print_step(PROMISE)]),
    ];
    work(&project, &["-n", "5"], &sessions)
        .run()
        .success()
        .stdout_has("Stories: 0 of 2 pass, next a: Title of a")
        .stdout_has("Stories: 1 of 2 pass, next b: Title of b")
        .stdout_has("Stories: 2 of 2 pass\n");
    assert_eq!(prompts(&project), ["Iteration 1 of 5.", "Iteration 2 of 5."]);
    let events = project.events();
    assert_eq!(events.find("run_started")["command"], "work");
    let progress: Vec<_> = events.all("tasks").iter().map(|event| event["done"].clone()).collect();
    assert_eq!(progress, [0, 1, 1, 2]);
    assert!(!project.has(".ralph-active"));
}

#[test]
fn work_completes_without_agent_claim() {
    let project = project_with(&[open("a", &json!({}))]);
    work(&project, &[], &[json!([write_stories_step(&[passing("a")]), print_step("ok")])])
        .run()
        .success();
    assert_eq!(project.events().all("iteration_started").len(), 1);
}

#[test]
fn promise_with_open_story_is_vetoed() {
    let project = project_with(&[open("a", &json!({})), passing("b")]);
    work(&project, &["-n", "2"], &[json!([print_step(PROMISE)])])
        .run()
        .code(1)
        .stdout_has("Not done: 1 of 2 stories does not pass yet: a");
    let prompts = prompts(&project);
    assert!(
        prompts[1].contains("You said that the work is complete, but 1 of 2 stories does not pass"),
        "{prompts:?}"
    );
}

#[test]
fn list_without_stories_is_refused() {
    let project = project_with(&[]);
    work(&project, &[], &[json!([print_step(PROMISE)])]).run().code(2).stderr_has("no stories in");
    assert_eq!(prompts(&project), [""; 0]);
}

#[test]
fn removed_story_is_reported_and_restored() {
    let lost = open("b", &json!({"mine": "kept"}));
    let project = project_with(&[open("a", &json!({})), lost.clone()]);
    let sessions = [
        json!([write_stories_step(&[passing("a")]), print_step(PROMISE)]),
        json!([print_step("what was that?")]),
        json!([write_stories_step(&[passing("a"), passing("b")]), print_step(PROMISE)]),
    ];
    work(&project, &["-n", "5"], &sessions)
        .run()
        .success()
        .stderr_has("b (Title of b) was removed, and no story replaces it");
    let prompts = prompts(&project);
    assert!(!prompts[0].contains("gone"), "{prompts:?}");
    for prompt in &prompts[1..] {
        assert!(prompt.contains("Story b (Title of b) was removed"), "{prompts:?}");
        assert!(prompt.contains("\"mine\": \"kept\""), "{prompts:?}");
    }
    assert_eq!(prompts.len(), 3);
    // The ledger is kept outside the work tree.
    let snapshot = std::fs::read(memory(&project)).expect("a snapshot");
    let snapshot: Value = serde_json::from_slice(&snapshot).expect("JSON");
    assert_eq!(snapshot["stories"]["b"]["id"], "b");
    let list = project.path().join("ralph/tasks.json");
    assert_eq!(snapshot["list"], list.to_str().expect("UTF-8"));
}

pub(super) fn memory(project: &Project) -> std::path::PathBuf {
    let run = project.newest_run();
    let name = run.file_name().expect("a name").to_str().expect("UTF-8");
    let only = |dir: std::path::PathBuf| {
        let mut entries = std::fs::read_dir(dir).expect("a directory");
        entries.next().expect("an entry").expect("an entry").path()
    };
    let tasks = only(project.home().join(".ralph/projects")).join("tasks");
    only(tasks).join(format!("{name}.json"))
}

#[test]
fn unwritable_home_is_error_before_agent_starts() {
    let project = project_with(&[open("a", &json!({}))]);
    let sessions = [json!([print_step(PROMISE)])];
    let output = work(&project, &[], &sessions).env("RALPH_HOME", "/dev/null/home").run();
    output.code(2).stderr_has("cannot write /dev/null/home").stderr_has("set RALPH_HOME");
    assert_eq!(prompts(&project), [""; 0]);
}

#[test]
fn split_story_may_be_replaced_by_parts() {
    let project = project_with(&[open("a", &json!({}))]);
    let part = |id: &str, passes: bool| {
        open(id, &json!({"passes": passes, "notes": "done", "replaces": ["a"]}))
    };
    let sessions = [
        json!([write_stories_step(&[part("a1", true), part("a2", false)]), print_step(PROMISE)]),
        json!([
            write_stories_step(&[part("a1", false), part("a2", false)]),
            print_step("as you like")
        ]),
        json!([write_stories_step(&[part("a1", true), part("a2", true)]), print_step(PROMISE)]),
    ];
    work(&project, &["-n", "3"], &sessions)
        .run()
        .success()
        .stderr_has("ralph/tasks.json: a1 replaces a (Title of a), a2 replaces a (Title of a)");
    // The replacement passed at once, without having been open.
    let feedback = "Story a1 replaces a (Title of a) and was added as passing";
    assert!(prompts(&project)[1].contains(feedback), "{:?}", prompts(&project));
    project.ralph(["report"]).run().success().stdout_has("a1 replaces a (Title of a)");
    project.ralph(["archive", "--force"]).run().success();
}

#[test]
fn story_passing_without_notes_does_not_count() {
    let project = project_with(&[open("a", &json!({}))]);
    let undocumented = open("a", &json!({"passes": true, "notes": " "}));
    let sessions = [
        json!([write_stories_step(&[undocumented]), print_step(PROMISE)]),
        json!([write_stories_step(&[passing("a")]), print_step(PROMISE)]),
    ];
    work(&project, &[], &sessions)
        .run()
        .success()
        .stdout_has("Not done: ralph/tasks.json: a: notes: empty, but passes is true");
    assert!(prompts(&project)[1].contains("a: notes: empty"), "{:?}", prompts(&project));
}

#[test]
fn broken_list_becomes_feedback() {
    let wrong = list(&[open("a", &json!({"passes": "yes"})), json!(3)]).to_string();
    let twice = list(&[open("a", &json!({})), open("a", &json!({}))]).to_string();
    let many: Vec<Value> = (0..1_000).map(|n| json!(n)).collect();
    let cases = [
        (
            "half-written",
            write_text_step("{\"project\": \"Shop\", \"userSt"),
            "is not valid JSON: EOF",
        ),
        ("empty", write_text_step(""), "is empty"),
        ("removed", json!({"shell": "rm ralph/tasks.json"}), "the file is missing"),
        (
            "a directory",
            json!({"shell": "rm ralph/tasks.json; mkdir ralph/tasks.json"}),
            "directory",
        ),
        (
            "a pipe",
            json!({"shell": "rm ralph/tasks.json; mkfifo ralph/tasks.json"}),
            "regular file",
        ),
        ("another type", write_text_step("[]"), "must be an object, not an array"),
        ("wrong types", write_text_step(&wrong), "a: passes: must be true or false"),
        ("one id twice", write_text_step(&twice), "userStories[1]: id: \"a\" is already used"),
        ("no objects", write_text_step(&list(&many).to_string()), "and 990 more problems"),
    ];
    for (case, break_it, feedback) in cases {
        let project = project_with(&[open("a", &json!({}))]);
        let mend = json!({"shell": "rm -rf ralph/tasks.json"});
        let sessions = [
            json!([break_it, print_step(PROMISE)]),
            json!([mend, write_stories_step(&[passing("a")]), print_step(PROMISE)]),
        ];
        let output = work(&project, &[], &sessions).run();
        output.success().stdout_has("Stories: unknown, the task list cannot be read");
        let prompts = prompts(&project);
        assert!(prompts[1].contains("repair ralph/tasks.json"), "{case}: {prompts:?}");
        assert!(prompts[1].contains(feedback), "{case}: {prompts:?}");
        assert!(prompts[1].len() < 3_000, "{case}");
    }
}

#[test]
fn list_broken_by_failed_attempt_is_fed_back() {
    let project = project_with(&[open("a", &json!({}))]);
    let sessions = [
        json!([write_text_step("{"), print_step("oh no"), {"exit": 1}]),
        json!([write_stories_step(&[passing("a")]), print_step(PROMISE)]),
    ];
    work(&project, &[], &sessions).run().success();
    assert!(prompts(&project)[1].contains("is not valid JSON"), "{:?}", prompts(&project));
    assert_eq!(project.events().all("iteration_started").len(), 1, "an attempt, not an iteration");
}

#[test]
fn verify_commands_from_start_must_pass() {
    let project = project_with(&[]);
    let mut start = list(&[open("a", &json!({}))]);
    start["verifyCommands"] = json!(["test -e made"]);
    write_list(&project, &start);
    let mut cheated = list(&[passing("a")]);
    cheated["verifyCommands"] = json!(["true"]);
    let mut honest = cheated.clone();
    honest["verifyCommands"] = start["verifyCommands"].clone();
    let sessions = [
        json!([write_text_step(&cheated.to_string()), print_step(PROMISE)]),
        json!([{"shell": "touch made"}, print_step("made it")]),
        json!([write_text_step(&honest.to_string()), print_step("put back")]),
    ];
    work(&project, &["-n", "3"], &sessions).run().success();
    let prompt = &prompts(&project)[1];
    assert!(prompt.contains("Guardrail \"test -e made\" failed with exit code 1."), "{prompt}");
    assert!(
        prompt.contains("a was marked as passing in ralph/tasks.json while a check fails"),
        "{prompt}"
    );
    assert!(prompt.contains("\"verifyCommands\" was changed. That has no effect"), "{prompt}");
    // The checks pass in the second iteration, but the list is still reduced.
    assert_eq!(project.events().all("iteration_started").len(), 3);
}

#[test]
fn empty_answer_is_retried_three_times() {
    let project = project_with(&[open("a", &json!({}))]);
    work(&project, &[], &[json!([])]).run().code(4).stdout_has("the agent said nothing");
    assert_eq!(prompts(&project).len(), 4);
    let sessions =
        [json!([]), json!([]), json!([write_stories_step(&[passing("a")]), print_step("there")])];
    work(&project, &[], &sessions).run().success();
}

#[test]
fn invalid_list_at_start_is_error() {
    let cases = [
        (list(&[open("a", &json!({"passes": true}))]), "a: notes: empty, but passes is true"),
        (list(&[open("a", &json!({"dependsOn": ["a"]}))]), "a: dependsOn: names the story itself"),
        (list(&[open("a", &json!({"acceptanceCriteria": []}))]), "must have at least one entry"),
    ];
    let project = project_with(&[]);
    for (list, message) in cases {
        write_list(&project, &list);
        work(&project, &[], &[json!([])]).run().code(2).stderr_has(message);
    }
    std::fs::remove_dir_all(project.path().join("ralph")).expect("the documents");
    work(&project, &[], &[json!([])]).run().code(2).stderr_has("task list not found");
    project.ralph(["new"]).run().success();
    work(&project, &[], &[json!([])]).run().code(2).stderr_has("no stories in");
    assert_eq!(prompts(&project), [""; 0], "nobody was asked anything");
}

#[test]
fn work_uses_claude_by_default() {
    let project = project_with(&[open("a", &json!({}))]);
    project.install_agent("claude", &json!([]));
    let output = project.ralph(["work", "--dry-run"]).run();
    output
        .success()
        .stdout_has("adapter claude")
        .stdout_has("0 of 1 story passes, next a")
        .stdout_has("bytes from ralph/prompt.md");
    assert!(!project.has(".ralph-active"));
}

#[test]
fn work_without_prompt_file_uses_built_in_prompt() {
    let project = project_with(&[open("a", &json!({}))]);
    std::fs::remove_file(project.path().join("ralph/prompt.md")).expect("the prompt");
    work(&project, &["-n", "1"], &[json!([print_step("hm")])]).run().code(1);
    let prompt = &prompts(&project)[0];
    assert!(prompt.starts_with("# Ralph Loop: iteration 1 of 1\n"), "{prompt}");
    assert!(prompt.contains("Hard rules"));
    let output = project.ralph(["work", "--print-prompt", "-n", "1"]).run();
    assert_eq!(output.success().stdout, *prompt);
}

#[test]
fn removed_prompt_is_replaced_by_built_in_prompt() {
    for (case, remove) in [("gone", "rm ralph/prompt.md"), ("empty", ": > ralph/prompt.md")] {
        let project = project_with(&[open("a", &json!({}))]);
        let sessions = [
            json!([{"shell": remove}, print_step("oh")]),
            json!([write_stories_step(&[passing("a")]), print_step("ok")]),
        ];
        let output = work(&project, &[], &sessions).run();
        output.success().stderr_has("using the built-in prompt");
        let prompt = &prompts(&project)[1];
        assert!(prompt.starts_with("# Ralph Loop: iteration 2 of 10\n"), "{case}: {prompt}");
    }
}

#[test]
fn weakened_acceptance_criteria_are_fed_back() {
    let project =
        project_with(&[open("a", &json!({"acceptanceCriteria": ["it is fast", "it works"]}))]);
    let mut eased = passing("a");
    eased["acceptanceCriteria"] = json!(["it works"]);
    let mut honest = eased.clone();
    honest["acceptanceCriteria"] = json!(["it works", "it is fast"]);
    let sessions = [
        json!([write_stories_step(&[eased]), print_step(PROMISE)]),
        json!([write_stories_step(&[honest]), print_step(PROMISE)]),
    ];
    work(&project, &[], &sessions).run().success().stdout_has("removed \"it is fast\"");
    let prompt = &prompts(&project)[1];
    assert!(prompt.contains("Put back: \"it is fast\""), "{prompt}");
}

#[test]
fn passing_but_incomplete_list_explains_why() {
    let project =
        project_with(&[open("a", &json!({"acceptanceCriteria": ["it is fast", "it works"]}))]);
    let output = work(
        &project,
        &["-n", "2"],
        &[json!([write_stories_step(&[passing("a")]), print_step("ok")])],
    )
    .run();
    let finding = "ralph/tasks.json: a: acceptanceCriteria: removed \"it is fast\"";
    output.code(1).stdout_has(&format!("Stories: 1 of 1 pass; not done: {finding}"));
    let report = project.ralph(["report"]).run().stdout;
    assert!(report.contains(&format!("\n  Left to do\n    Not done: {finding}")), "{report}");
    assert_eq!(report.matches(finding).count(), 2, "among the warnings, too: {report}");
}

pub(super) fn waiting_session(project: &Project) -> Value {
    json!([{"print": "here"}, {"wait_for": project.sibling("go")}, {"print": "there"}])
}

#[test]
fn active_marker_exists_while_work_runs() {
    let project = project_with(&[open("a", &json!({}))]);
    project.git_init();
    let running = work(&project, &["-n", "1"], &[waiting_session(&project)]).start();
    let sign = project.wait_for_file(".ralph-active");
    let sign: Value = serde_json::from_str(&sign).expect("JSON");
    assert_eq!(sign["pid"], running.pid());
    assert_eq!(sign["max_iterations"], 1);
    assert_eq!(sign["mode"], "direct");
    assert_eq!(sign["ralph_dir"], project.path().join("ralph").to_str().expect("UTF-8"));
    assert!(sign["timestamp"].as_str().expect("a time").ends_with('Z'));
    let run = project.newest_run();
    assert_eq!(sign["run_id"], run.file_name().expect("a name").to_str().expect("UTF-8"));
    assert_eq!(project.git_command(["status", "--porcelain", ".ralph-active"]), "");
    // A second run is refused without harm to the first.
    project.wait_for_event("agent_started");
    project
        .ralph(["work", "--no-sandbox", "--", "robot"])
        .run()
        .code(2)
        .stderr_has(&format!("pid {}", running.pid()));
    assert!(project.has(".ralph-active"));
    std::fs::write(project.sibling("go"), "").expect("the word");
    running.wait().code(1);
    assert!(!project.has(".ralph-active"));
}

#[test]
fn active_marker_is_removed_by_signal_and_next_run() {
    let project = project_with(&[open("a", &json!({}))]);
    let running = work(&project, &[], &[waiting_session(&project)]).start();
    project.wait_for_event("text");
    running.signal(Signal::TERM);
    project.wait_for_event("stop_requested");
    running.signal(Signal::TERM);
    running.wait().code(130);
    assert!(!project.has(".ralph-active"));

    let running = work(&project, &[], &[waiting_session(&project)]).start();
    wait_until(super::support::LONG, || project.has(".ralph-active"));
    project.wait_for_event("text");
    running.signal(Signal::KILL);
    running.wait().killed_by(Signal::KILL);
    assert!(project.has(".ralph-active"));
    work(&project, &[], &[json!([write_stories_step(&[passing("a")]), print_step("ok")])])
        .run()
        .success();
    assert!(!project.has(".ralph-active"));
    assert_eq!(project.processes(), []);
}

#[test]
fn foreign_active_marker_is_kept() {
    let project = project_with(&[open("a", &json!({}))]);
    let other = json!({"write": {"path": ".ralph-active", "text": "{\"pid\": 1}"}});
    work(&project, &[], &[json!([other, write_stories_step(&[passing("a")]), print_step("ok")])])
        .run()
        .success();
    assert_eq!(project.read(".ralph-active"), "{\"pid\": 1}");
}

#[test]
fn archive_during_run_is_refused() {
    let project = project_with(&[open("a", &json!({}))]);
    let running = work(&project, &["-n", "1"], &[waiting_session(&project)]).start();
    project.wait_for_event("agent_started");
    project.ralph(["archive"]).run().code(2).stderr_has("is in use by `ralph work`");
    project.ralph(["new", "--force"]).run().code(2).stderr_has("is in use by `ralph work`");
    let other = project_with(&[open("a", &json!({}))]);
    let from_elsewhere = |words: &[&str]| {
        let list = project.path().join("ralph");
        let ralph = project.ralph(words).current_dir(other.path()).args(["--ralph-dir"]).arg(list);
        ralph.run()
    };
    for words in [
        &["new", "--force"][..],
        &["archive"],
        &["work", "--no-sandbox", "--agent", "cat", "--accept-list"],
    ] {
        let output = from_elsewhere(words);
        output.code(2).stderr_has("ralph/tasks.json is in use by `ralph work` (pid ");
    }
    assert!(!other.has(".ralph-active"));
    // A person may add a story meanwhile.
    project.ralph(["tasks", "add", "b", "--criterion", "c"]).run().success();
    std::fs::write(project.sibling("go"), "").expect("the word");
    running.wait().code(1).stdout_has("Stories: 0 of 2 pass");
}

#[test]
fn long_garbled_list_is_restored_through_file() {
    let stories: Vec<Value> = (0..120).map(|n| open(&format!("s{n}"), &json!({}))).collect();
    let project = project_with(&stories);
    let sessions = [
        json!([write_text_step("{ garbled"), print_step("oops")]),
        json!([{"shell": "cp .ralph/tasks.before.json seen.json"}, write_stories_step(&stories), print_step("back")]),
    ];
    work(&project, &["-n", "3"], &sessions).run().code(1);
    let prompts = prompts(&project);
    assert!(prompts[1].contains("They are in .ralph/tasks.before.json"), "{}", prompts[1]);
    assert!(!prompts[2].contains("tasks.before.json"), "{}", prompts[2]);
    let snapshot: Value = serde_json::from_str(&project.read("seen.json")).expect("JSON");
    assert_eq!(snapshot["userStories"], json!(stories));
    assert!(!project.has(".ralph/tasks.before.json"), "it has them again");
}

#[test]
fn work_handles_ten_thousand_stories() {
    let stories: Vec<Value> =
        (0..10_000).map(|n| open(&format!("US-{n:05}"), &json!({"priority": n}))).collect();
    let project = project_with(&stories);
    let sessions = [
        json!([write_stories_step(&stories[..1]), print_step(PROMISE)]),
        json!([write_stories_step(&stories), print_step("sorry")]),
    ];
    work(&project, &["-n", "2"], &sessions).run().code(1).stdout_has("Stories: 0 of 10000 pass");
    let prompt = &prompts(&project)[1];
    assert!(prompt.contains("- 9979 more like these"), "{prompt}");
    assert!(prompt.len() < 20_000, "{}", prompt.len());
    assert!(project.events().last("tasks")["problems"].is_null());
}

#[test]
fn story_with_open_question_is_skipped_and_parks_the_run_last() {
    let (a, b) = (open("a", &json!({})), open("b", &json!({})));
    let project = project_with(&[a.clone(), b]);
    project.settings(&json!({"retry": {"backoffSeconds": 0}, "questions": "wait"}));
    let next = format!("{} tasks next > ../next", env!("CARGO_BIN_EXE_ralph"));
    let sessions = [
        json!([print_step("<question>Which colour has a?</question>")]),
        json!([{"shell": next}, write_stories_step(&[a, passing("b")]), print_step("b is done")]),
        json!([write_stories_step(&[passing("a"), passing("b")]), print_step(PROMISE)]),
    ];
    let run = work(&project, &["-n", "5"], &sessions).start();
    project.wait_for_event("parked");
    assert_eq!(project.agent_starts().len(), 2);
    let second = &prompts(&project)[1];
    assert!(second.contains("wait for an answer from the user: a."), "{second}");
    assert!(second.contains("The next story is b (Title of b)."), "{second}");
    let next = std::fs::read_to_string(project.sibling("next")).unwrap();
    assert!(next.contains("Title of b"), "{next}");
    let events = project.events();
    let asked = events.find("question_asked");
    assert_eq!(asked["story"], "a");
    let marked: Vec<_> = events.all("tasks").iter().map(|event| event["marked"].clone()).collect();
    assert!(marked.contains(&json!(["b"])), "{marked:?}");
    project.ralph(["answer", asked["id"].as_str().unwrap(), "green"]).run().success();
    run.wait().success();
    assert!(prompts(&project)[2].contains("green"), "{:?}", prompts(&project)[2]);
}
