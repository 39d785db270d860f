//! What happens before a tool is used.

use serde_json::{Value, json};

use crate::support::{Output, Project};
use crate::{RUBBISH, hook, in_loop, long_rubbish, recorded};

/// A call of a tool, as Claude Code tells of it.
fn call(project: &Project, tool: &str, input: Value) -> Value {
    let mut call = recorded(project, "PreToolUse");
    call["tool_name"] = json!(tool);
    call["tool_input"] = input;
    call
}

#[track_caller]
fn denial(output: &Output) -> String {
    let answer = output.answer();
    let answer = &answer["hookSpecificOutput"];
    assert_eq!(answer["hookEventName"], "PreToolUse");
    assert_eq!(answer["permissionDecision"], "deny");
    answer["permissionDecisionReason"].as_str().expect("a reason").to_owned()
}

#[test]
fn what_cannot_be_understood_is_denied_in_a_loop() {
    let project = Project::new();
    let short = RUBBISH.map(<[u8]>::to_vec);
    for input in short.into_iter().chain(long_rubbish()) {
        let output = in_loop(project.ralph(["hook", "pre-tool-use"])).stdin(&input).run();
        assert!(denial(&output).contains("could not understand"));
    }
    for broken in [
        json!({}),
        json!({"tool_name": "Bash"}),
        json!({"tool_input": {"command": "ls"}}),
        json!({"tool_name": "", "tool_input": {}}),
        json!({"tool_name": "Bash", "tool_input": {"command": 7}, "cwd": project.path()}),
        json!({"tool_name": "Bash", "tool_input": {"command": "ls"}, "cwd": "relative"}),
    ] {
        denial(&in_loop(hook(&project, "pre-tool-use", &broken)).run());
        hook(&project, "pre-tool-use", &broken).run().says_nothing();
    }
}

#[test]
fn a_harmless_call_passes_however_large() {
    let project = Project::new();
    let path = project.path().join("large.txt");
    let large = json!({"file_path": path, "content": "ä\n".repeat(7 << 20)});
    for call in [recorded(&project, "PreToolUse"), call(&project, "Write", large)] {
        in_loop(hook(&project, "pre-tool-use", &call)).run().says_nothing();
    }
}
