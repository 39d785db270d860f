//! When a run is complete, and when it is not.

use serde_json::{Value, json};

use crate::support::Project;
use crate::{DONE, run, run_with, sessions};

fn completes(args: &[&str], agent: &str, steps: &Value) -> bool {
    let project = Project::new();
    let output =
        run_with(agent, &project, &[&["-p", "do it", "-n", "1"], args].concat(), steps).run();
    let complete = match output.status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => panic!("{steps}\n{output:?}"),
    };
    assert_eq!(project.events().find("completion_checked")["complete"], complete);
    complete
}

fn says(text: &str) -> Value {
    json!([{"print": text}])
}

#[test]
fn first_response_decides_case_insensitively() {
    for (text, complete) in [
        (DONE, true),
        ("<RESPONSE>done</Response>", true),
        ("words <response> Done\n</response> words", true),
        ("<response>\nDONE\n</response>", true),
        ("<response>DONE</response><response>no</response>", true),
        ("<response>no</response><response>DONE</response>", false),
        ("<response>not DONE yet</response>", false),
        ("<response>undone</response>", false),
        ("DONE", false),
        ("<response>DONE", false),
        ("<response></response>", false),
        ("<promise>DONE</promise>", false),
    ] {
        assert_eq!(completes(&[], "robot", &says(text)), complete, "{text:?}");
    }
}

#[test]
fn completion_response_promise_and_pattern_are_configurable() {
    for (args, text, complete) in [
        (&["-c", "All Good"][..], "<response>all good</response>", true),
        (&["-c", "All Good"], DONE, false),
        (&["--completion-response", "x.y"], "<response>xzy</response>", false),
        (&["--completion-promise", "COMPLETE"], "<promise> COMPLETE </promise>", true),
        (&["--completion-promise", "COMPLETE"], "<promise>COMPLETELY</promise>", false),
        (&["--completion-promise", "COMPLETE"], "COMPLETE", false),
        (&["--done-pattern", r"^\d+ of \d+ passed$"], "12 of 12 passed", true),
        (&["--done-pattern", r"(?<!not )finished"], "not finished", false),
        (&["--done-pattern", r"(?<!not )finished"], "is finished", true),
    ] {
        assert_eq!(completes(args, "robot", &says(text)), complete, "{args:?} {text:?}");
    }
}

#[test]
fn invalid_completion_rule_is_refused_before_start() {
    let project = Project::new();
    for (args, says) in [
        (&["--done-pattern", "("][..], "--done-pattern"),
        (&["-c", ""], "completion"),
        (&["-c", "x", "--completion-promise", "y"], "cannot be used with"),
    ] {
        let args = [&["-p", "x"], args].concat();
        run(&project, &args, &json!([project.record_step()])).run().code(2).stderr_has(says);
    }
    assert_eq!(project.agent_starts().len(), 0);
}

#[test]
fn echoed_prompt_does_not_complete() {
    let project = Project::new();
    let prompt = format!("Work.\nWhen all is done answer {DONE}\n");
    project.write("PROMPT.md", prompt);
    project.ralph(["run", "-n", "1", "-f", "PROMPT.md", "--", "cat"]).run().code(1);
    // Nor if the agent continues the prompt's last line.
    let talks_on = ["sh", "-c", "cat; echo ' (working)'"];
    let prompt = format!("When all is done answer {DONE}");
    project.ralph(["run", "-n", "1", "-p", &prompt, "--"]).args(talks_on).run().code(1);
    // Feedback and the iteration line are part of the prompt.
    project.settings(&json!({
        "includeIterationCountInPrompt": true, "guardrails": [{"command": "test $RALPH_ITERATION -gt 1"}],
    }));
    project.ralph(["run", "-n", "3", "-f", "PROMPT.md", "--", "cat"]).run().code(1);
}

#[test]
fn reformatted_prompt_echo_does_not_complete() {
    let project = Project::new();
    project.write(
        "PROMPT.md",
        format!("Work.\n\n  One thing at a time.\nWhen all is done:\n\n{DONE}\n"),
    );
    for (agent, code) in [
        ("printf '\\033[1m'; cat; printf '\\033[0m'", 1),
        ("sed 's/.*/\\x1b[1m&\\x1b[0m/'", 1),
        ("printf 'user: '; cat", 1),
        ("printf 'Running with prompt \"'; cat; echo '\"'", 1),
        ("sed 's/^ *//' | grep .", 1),
        ("sed 's/^/2026-11-16 04:00:00 INFO /'", 1),
        ("cat -n", 1),
        ("cut -c1-60", 1),
        ("tail -n +2", 1),
        ("p=$(cat); set -x; : \"$p\" 2>&1", 1),
        ("cat -n; echo Done.; echo '<response>DONE</response>'", 0),
    ] {
        let run =
            project.ralph(["run", "-n", "1", "-f", "PROMPT.md", "--", "sh", "-c", agent]).run();
        assert_eq!(run.status.code(), Some(code), "{agent}");
    }
}

#[test]
fn stderr_does_not_complete() {
    assert!(!completes(&[], "robot", &json!([{"stderr": DONE}, {"print": "working"}])));
}

#[test]
fn completion_is_found_in_split_output() {
    for steps in [
        json!([{"raw": "<respo"}, {"raw": "nse>DO"}, {"raw": "NE</response>"}]),
        json!([{"print": "<response>"}, {"print": "DONE"}, {"print": "</response>"}]),
        json!([{"split": DONE}]),
        json!([{"long_line_megabytes": 1}, {"print": DONE}]),
        json!([{"raw": "x".repeat(65_530)}, {"raw": DONE}]),
    ] {
        assert!(completes(&[], "robot", &steps), "{steps}");
    }
}

#[test]
fn claude_completes_only_by_its_own_text() {
    let text = |text: &str| json!({"claude": {"text": text}});
    let result = json!({"claude": {"result": {}}});
    for (case, steps, complete) in [
        ("text", json!([{"claude": "init"}, text(DONE), result]), true),
        (
            "text in several messages",
            json!([text("<response>"), text("DONE</response>"), result]),
            false,
        ),
        ("thinking", json!([{"claude": {"thinking": DONE}}, text("no"), result]), false),
        (
            "tool input and output",
            json!([{"claude": {"bash": format!("echo '{DONE}'")}}, text("ran it"), result]),
            false,
        ),
        (
            "a subagent",
            json!([
                {"json": {
                    "type": "assistant", "parent_tool_use_id": "toolu_1",
                    "message": {"role": "assistant", "content": [{"type": "text", "text": DONE}]},
                }},
                text("it said so"), result,
            ]),
            false,
        ),
        (
            "a message of the user",
            json!([
                {"json": {"type": "user", "message": {"role": "user", "content": DONE}}},
                text("no"), result,
            ]),
            false,
        ),
        ("a line that is not of the stream", json!([{"print": DONE}, text("no"), result]), false),
        (
            "partial messages, which come whole as well",
            json!([
                {"json": {"type": "stream_event", "event": {
                    "type": "content_block_delta", "delta": {"type": "text_delta", "text": DONE},
                }}},
                text("no"), result,
            ]),
            false,
        ),
    ] {
        assert_eq!(completes(&[], "claude", &steps), complete, "{case}");
    }
}

#[test]
fn codex_completes_only_by_its_own_text() {
    let text = |text: &str| json!({"codex": {"text": text}});
    let result = json!({"codex": {"result": {}}});
    for (case, steps, complete) in [
        ("text", json!([{"codex": "init"}, text(DONE), result]), true),
        (
            "a command and its output",
            json!([{"codex": {"command": format!("echo '{DONE}'")}}, text("ran it"), result]),
            false,
        ),
        (
            "reasoning",
            json!([
                {"json": {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": DONE}}},
                text("no"), result,
            ]),
            false,
        ),
    ] {
        assert_eq!(completes(&[], "codex", &steps), complete, "{case}");
    }
}

#[test]
fn amp_completes_by_its_own_text_not_by_prompt_echo() {
    let prompt = json!({"json": {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": DONE}]}}});
    let result = json!({"json": {
        "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 1,
    }});
    assert!(!completes(&[], "amp", &json!([prompt, {"claude": {"text": "no"}}, result])));
    assert!(completes(&[], "amp", &json!([prompt, {"claude": {"text": DONE}}, result])));
}

#[test]
fn plain_mode_completes_by_answer() {
    let args = ["--no-stream-agent-output"];
    assert!(completes(&args, "claude", &says(DONE)));
    // codex writes its answer to a file; its output is only a log.
    for (printed, answer, complete) in [("working", DONE, true), (DONE, "no", false)] {
        let project = Project::new();
        let script = json!([{"print": printed}, {"answer": answer}]);
        let args = ["-p", "x", "-n", "1", args[0]];
        run_with("codex", &project, &args, &script).run().code(if complete { 0 } else { 1 });
        assert!(!project.has(".ralph/side_001.txt"), "read, and gone");
    }
}

#[test]
fn completion_of_earlier_iteration_is_forgotten() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": "test $RALPH_ITERATION -gt 1"}]}));
    let script = sessions([json!([{"print": DONE}]), json!([{"print": "not yet"}])]);
    run(&project, &["-p", "do it", "-n", "2"], &script).run().code(1);
}

#[test]
fn completion_rule_matching_empty_output_is_refused() {
    let project = Project::new();
    for (flag, value) in
        [("--done-pattern", ""), ("--done-pattern", "a*"), ("--completion-promise", " ")]
    {
        run(&project, &["-p", "do it", flag, value], &json!([]))
            .run()
            .code(2)
            .stderr_has(&format!("{flag} matches an empty answer"));
    }
}

#[test]
fn stale_answer_file_does_not_complete() {
    let project = Project::new();
    for name in ["side_001.txt", "answer_001.txt"] {
        project.write(&format!(".ralph/{name}"), DONE);
    }
    let args = ["-p", "do it", "-n", "1", "--no-stream-agent-output"];
    run_with("codex", &project, &args, &json!([{"print": "a log"}])).run().code(1);
}

#[test]
fn prompt_without_completion_signal_warns() {
    let project = Project::new();
    let script = json!([{"print": "working"}]);
    let output = run(&project, &["-n", "2", "-p", "Fix it."], &script).run();
    output.code(1);
    let signal = "<response>DONE</response>";
    output.stderr_has(&format!("the prompt never mentions {signal}, which completes the run"));
    output.stderr_has(&format!("the agent was never asked for {signal}, so only the limit"));
    assert_eq!(output.stderr.matches(signal).count(), 2, "{}", output.stderr);
    for (args, mentioned) in [
        (&["-p", "Answer <response>done</response> at the end."][..], true),
        (&["-p", "Put DONE into a response tag."], true),
        (&["--completion-promise", "OK", "-p", "Fix it."], false),
        (&["--completion-promise", "OK", "-p", "Say <promise>OK</promise>."], true),
        (&["--done-pattern", "(?m)^ALL DONE$", "-p", "Print ALL DONE on a line of its own."], true),
        (&["--done-pattern", "(?m)^ALL DONE$", "-p", "Fix it."], false),
    ] {
        let output = run(&project, &[args, &["--dry-run"]].concat(), &script).run();
        output.code(0);
        assert_eq!(!output.stderr.contains("the prompt never mentions"), mentioned, "{args:?}");
    }
}

#[test]
fn ignored_signal_echo_is_reported_but_own_line_completes() {
    let line = format!("All tasks are complete. {DONE}");
    let prompt = format!("Work.\nWhen all is done, print exactly:\n{line}");
    let project = Project::new();
    let echo = json!([{"print": format!("user: {prompt}")}, {"print": "I am at it."}]);
    let output = run(&project, &["-p", &prompt, "-n", "2"], &echo).run();
    output.code(1).stdout_has("A completion signal was ignored");
    assert_eq!(project.events().all("notice").len(), 2, "once in each iteration");
    let project = Project::new();
    let output = run(&project, &["-p", &prompt, "-n", "1"], &json!([{"print": line}])).run();
    output.code(0).stdout_lacks("was ignored");
}
