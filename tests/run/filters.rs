//! The response filter (jq) and the display filter.

use serde_json::{Value, json};

use crate::DONE;
use crate::support::{LONG, Project, wait_until};

/// A project with `robot`, an agent without an adapter.
fn project(agent: &Value, script: &Value) -> Project {
    let project = Project::new();
    project.install_agent("robot", script);
    let mut settings = json!({"agent": {"command": "robot"}});
    let agent_settings = settings["agent"].as_object_mut().expect("an object");
    agent_settings.extend(agent.as_object().expect("an object").clone());
    project.settings(&settings);
    project
}

const SAYS: &str = r#"select(.who == "robot") | .says"#;

#[test]
fn response_filter_extracts_text_of_unknown_agent() {
    let script = json!([
        {"json": {"who": "user", "says": DONE}},
        {"json": {"who": "tool", "output": DONE}},
        {"print": "a warning, not JSON"},
        {"json": {"who": "robot", "says": "Working."}},
    ]);
    let project = project(&json!({"responseFilter": SAYS}), &script);
    project.ralph(["run", "-p", "x", "-n", "1"]).run().code(1).stdout_has("Working.");
    let events = project.events();
    let texts: Vec<&Value> = events.all("text").iter().map(|event| &event["text"]).collect();
    assert_eq!(texts, ["Working."], "neither the prompt's echo nor a tool's output");
    assert_eq!(events.all("output").len(), 3, "and nothing is lost");

    let script = json!([{"json": {"who": "robot", "says": DONE}}]);
    project.install_agent("robot", &script);
    project.ralph(["run", "-p", "x", "-n", "1"]).run().code(0);
}

#[test]
fn filtered_known_agent_with_other_stream_needs_no_result() {
    let script = json!([{"json": {"who": "robot", "says": DONE}}]);
    let agent = json!({"type": "claude", "responseFilter": SAYS});
    let other = project(&agent, &script);
    other.ralph(["run", "-p", "x", "-n", "1"]).run().code(0);
    // A recognized stream must end with a result.
    let cut = json!([{"claude": "init"}, {"json": {"who": "robot", "says": DONE}}]);
    let own = project(&agent, &cut);
    let output = own.ralph(["run", "-p", "x"]).env("RALPH_RETRY__MAX", "0").run();
    output.code(4).stdout_has("the stream ended without a result");
}

#[test]
fn response_filter_failing_on_every_line_fails_attempt() {
    let lines = json!([{"json": {"says": DONE}}, {"json": {"says": "more"}}]);
    let project = project(&json!({"responseFilter": ".says[]"}), &lines);
    let output = project.ralph(["run", "-p", "x"]).env("RALPH_RETRY__MAX", "0").run();
    output.code(4).stdout_has("the response filter failed for all 2 lines of the stream (");
    output.stdout_has("fix agent.responseFilter");
    assert_eq!(project.events().find("agent_ended")["filter_errors"], 2);
    let settings =
        json!({"agent": {"command": "robot", "responseFilter": ".says[]?, (.more | .[])"}});
    project.settings(&settings);
    project.install_agent("robot", &json!([{"json": {"more": [DONE]}}, {"json": {"says": "x"}}]));
    let output = project.ralph(["run", "-p", "x", "-n", "1"]).run();
    output.code(0).stdout_has("The response filter failed for 1 line of its output");
}

#[test]
fn response_filter_without_json_output_fails_attempt() {
    let project = project(&json!({"responseFilter": SAYS}), &json!([{"print": DONE}]));
    let output = project.ralph(["run", "-p", "x"]).env("RALPH_RETRY__MAX", "0").run();
    output.code(4).stdout_has("the agent did not print JSON");
}

#[test]
fn invalid_response_filter_is_refused_before_start() {
    let project = project(&json!({"responseFilter": "select(.who) | .says |"}), &json!([]));
    let output = project.ralph(["run", "-p", "x"]).run();
    output.code(2).stderr_has(
        "settings.json: agent.responseFilter: expected term\n  1 | select(.who) | .says |\n    |                       ^\n",
    );
    assert!(!project.has(".ralph/runs"));
}

#[test]
fn endless_response_filter_fails_attempt() {
    let lines = json!([
        {"json": {"n": 1}}, {"json": {"n": 2}}, {"json": {"n": 3}}, {"json": {"n": 4}}, "hang",
    ]);
    for (expression, why) in
        [("def f: f; f", "took longer than 3 s"), ("def f: 1 + f; f", "needed too much stack")]
    {
        let project = project(&json!({"responseFilter": expression}), &lines);
        let output = project
            .ralph(["run", "-p", "x", "--output", "plain"])
            .env("RALPH_RETRY__MAX", "0")
            .env("RALPH_RESULT_GRACE_SECONDS", "0")
            .run();
        output.code(4).stderr_has(&format!("the response filter {why}"));
        output.stdout_has(", 3 times; fix agent.responseFilter");
        assert_eq!(project.events().all("output").len(), 4, "nothing is lost");
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn line_exceeding_filter_limits_is_skipped() {
    let lines = json!([
        {"json": {"says": "one"}}, {"json": {"loop": true}}, {"json": {"says": DONE}},
    ]);
    let expression = "def f: 1 + f; if .loop then f else .says end";
    let project = project(&json!({"responseFilter": expression}), &lines);
    let output = project.ralph(["run", "-p", "x", "-n", "1"]).run();
    output.code(0).stderr_has("too much stack").stderr_has(r#"for this line: {"loop":true}"#);
    assert_eq!(project.events().all("text").len(), 2);
    assert_eq!(project.processes(), []);
}

#[test]
fn signal_does_not_wait_for_endless_response_filter() {
    let lines = json!([{"json": {"n": 1}}, "hang"]);
    let project = project(&json!({"responseFilter": "def f: f; f"}), &lines);
    let running = project.ralph(["run", "-p", "x"]).start();
    project.wait_for_event("agent_started");
    // The filter is busy with the line, or will be in a moment.
    running.signal(rustix::process::Signal::INT);
    project.wait_for_event("stop_requested");
    running.signal(rustix::process::Signal::INT);
    running.wait().code(130);
    assert_eq!(project.processes(), []);
}

#[test]
fn too_deeply_nested_response_filter_is_refused() {
    let deep = format!("{}.{}", "(".repeat(30_000), ")".repeat(30_000));
    let project = project(&json!({"responseFilter": deep}), &json!([]));
    let output = project.ralph(["run", "-p", "x"]).run();
    output.code(2).stderr_has("agent.responseFilter: cannot be parsed");
    output.stderr_has("nested too deeply");
    assert!(!project.has(".ralph/runs"));
}

#[test]
fn response_filter_counts_only_strings() {
    let lines = json!([{"json": {"says": [DONE]}}, {"json": {"says": 7}},
        {"json": {"says": "not yet"}}]);
    let project = project(&json!({"responseFilter": ".says"}), &lines);
    let output = project.ralph(["run", "-p", "x", "-n", "1"]).run();
    output.code(1).stderr_has("the response filter returned an array instead of a string");
    assert_eq!(project.events().all("text").len(), 1);
    assert_eq!(output.stderr.matches("instead of a string").count(), 1, "{}", output.stderr);
}

#[test]
fn json_format_for_unknown_agent_is_refused() {
    let project = project(&json!({"outputFormat": "json"}), &json!([]));
    let output = project.ralph(["run", "-p", "x"]).run();
    output.code(2).stderr_has("the JSON format of robot is unknown");
}

#[test]
fn agent_args_setting_replaces_all_arguments() {
    let project = Project::new();
    project.install_agent("claude", &json!([project.record_step(), {"print": DONE}]));
    let agent = json!({"command": "claude", "args": ["--plain", "a b"], "flags": ["--not-this"],
        "outputFormat": "text"});
    project.settings(&json!({"agent": agent}));
    project.ralph(["run", "-p", "do it"]).run().code(0);
    let record = &project.agent_starts()[0];
    assert_eq!(record["argv"].as_array().expect("arguments")[1..], ["--plain", "a b"]);
    assert_eq!(record["prompt"], "do it");
    project
        .ralph(["run", "-p", "x", "--model", "m"])
        .run()
        .code(2)
        .stderr_has("--model has no effect");
}

#[test]
fn display_filter_changes_only_shown_output() {
    let script = json!([
        {"print": "one"}, {"stderr": "two"}, {"print": DONE}, {"raw": "no newline"},
    ]);
    let filter = "sed 's/^/shown: /' | tr a-z A-Z";
    let project = project(&json!({"displayFilter": filter}), &script);
    let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
    output.code(0).stdout_has("SHOWN: ONE\n").stdout_has("SHOWN: TWO\n");
    output.stdout_has("SHOWN: NO NEWLINE\n").stdout_lacks("\none\n");
    let last_line = output.stdout.find("SHOWN: NO NEWLINE").expect("the last line");
    let ended = output.stdout.rfind("omplete").expect("the end");
    assert!(last_line < ended, "before what comes next: {}", output.stdout);
    assert_eq!(project.events().find("text")["text"], "one");
    assert_eq!(project.raw(), format!("one\n{DONE}\nno newline").as_bytes());
    assert_eq!(project.processes(), []);

    for args in [&["--quiet"][..], &["--output", "json"], &["--no-stream-agent-output"]] {
        let output = project.ralph(["run", "-p", "x"]).args(args).run();
        output.code(0).stdout_lacks("SHOWN");
    }
}

#[test]
fn failed_display_filter_falls_back_to_plain_output() {
    let script =
        json!([{"print": "one"}, {"wait_for": "../go"}, {"print": "two"}, {"print": DONE}]);
    for (filter, warning) in [
        ("exit 3", "the display filter failed: exit code 3"),
        ("no-such-command-at-all", "exit code 127; is a command in AGENT_DISPLAY_FILTER"),
        ("kill -9 $$", "the display filter failed: signal 9"),
    ] {
        let project = project(&json!({"displayFilter": filter}), &script);
        let running = project.ralph(["run", "-p", "x", "--output", "plain"]).start();
        wait_until(LONG, || running.stderr().contains(warning));
        project.write("../go", "");
        let output = running.wait();
        // Includes what the filter had read but not shown.
        output.code(0).stdout_has("one\n").stdout_has("two\n");
        assert_eq!(output.stdout.matches("one\n").count(), 1, "{}", output.stdout);
        assert_eq!(project.processes(), []);
    }
}

#[test]
fn display_filter_failing_after_agent_loses_no_output() {
    let script = json!([{"print": "one"}, {"print": "two"}, {"print": DONE}]);
    let project = project(&json!({"displayFilter": "sleep 0.2; exit 3"}), &script);
    let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
    output.code(0).stdout_has("one\n").stdout_has("two\n").stderr_has("exit code 3");
}

#[test]
fn failed_display_filter_does_not_repeat_shown_output() {
    let script = json!([{"print": "one of two"}, {"print": "two of two"}, {"print": DONE}]);
    for (filter, warning) in [
        ("cat; exit 3", "the display filter failed: exit code 3"),
        ("tr a-z A-Z; sleep 1000", "the display filter did not exit and was killed"),
    ] {
        let project = project(&json!({"displayFilter": filter}), &script);
        let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
        output.code(0).stderr_has(warning);
        let stdout = output.stdout.to_lowercase();
        assert_eq!(stdout.matches("of two\n").count(), 2, "{stdout}");
    }
}

#[test]
fn display_filter_without_match_shows_nothing() {
    let script = json!([{"print": "one"}, {"print": DONE}]);
    let project = project(&json!({"displayFilter": "grep nothing-like-it"}), &script);
    let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
    output.code(0).stdout_lacks("one\n").stderr_lacks("filter");
}

#[test]
fn display_filter_ending_early_is_no_failure() {
    let script = json!([{"print": "one"}, {"print": "two"}, {"print": DONE}]);
    let project = project(&json!({"displayFilter": "head -n 1"}), &script);
    let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
    output.code(0).stdout_has("one\n").stdout_lacks("two").stderr_lacks("filter");
}

#[test]
fn hanging_display_filter_is_ended_once() {
    let script = json!({"sessions": [
        [{"print": "first"}, {"lines_megabytes": 8}, {"print": "last of it"}],
        [{"print": "second"}], [{"print": DONE}],
    ]});
    // It reads nothing, and its child ignores TERM.
    let filter = "trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000; cat";
    let project = project(&json!({"displayFilter": filter}), &script);
    let output = project.ralph(["run", "-p", "x", "--output", "plain"]).run();
    output.code(0);
    assert_eq!(output.stderr.matches("the display filter did not exit and was killed").count(), 1);
    output.stderr_has("is too slow").stdout_has("second\n").stdout_has("last of it\n");
    output.stdout_has("were not shown; `ralph replay` has them");
    assert_eq!(project.events().all("iteration_started").len(), 3);
    assert_eq!(project.processes(), []);
}

#[test]
fn signal_does_not_wait_for_display_filter() {
    let project = project(&json!({"displayFilter": "sleep 1000"}), &json!(["hang"]));
    let running = project.ralph(["run", "-p", "x"]).start();
    project.wait_for_event("agent_started");
    running.signal(rustix::process::Signal::INT);
    project.wait_for_event("stop_requested");
    running.signal(rustix::process::Signal::INT);
    running.wait().code(130);
    assert_eq!(project.processes(), []);
}

#[test]
fn display_filter_colors_pass_but_other_escapes_do_not() {
    let script = json!([{"print": "x"}, {"print": DONE}]);
    let filter = r"printf '\033[31mred\033[0m \033]0;title\007\033[2Jend\n'; cat >/dev/null";
    let project = project(&json!({"displayFilter": filter}), &script);
    let tmux = project.ralph(["run", "-p", "x"]).in_tmux();
    assert_eq!(tmux.wait_for_exit(LONG), 0);
    let screen = tmux.capture_with_colors();
    assert!(screen.contains("\u{1b}[31m"), "{screen:?}");
    assert!(tmux.capture().contains("red end"), "{screen}");
}
