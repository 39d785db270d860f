//! Claude Code hooks, with input recorded from Claude Code.

#[path = "../support/mod.rs"]
mod support;

mod context;
mod plugin;
mod stop;
mod tools;

use serde_json::{Value, json};
use support::{Output, Project, Ralph};

/// The recorded input of a hook event, with the project as its directory.
fn recorded_input(project: &Project, event: &str) -> Value {
    let logs = [
        include_str!("../fixtures/claude/hooks_log_all.hooklog.jsonl"),
        include_str!("../fixtures/claude/hooks_stop_block_once.hooklog.jsonl"),
    ];
    let lines = logs.iter().flat_map(|log| log.lines());
    let mut inputs = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let found = inputs.find(|entry| entry["stdin"]["hook_event_name"] == event);
    let mut input = found.unwrap_or_else(|| panic!("no {event} was recorded"))["stdin"].take();
    input["cwd"] = json!(project.path());
    input["transcript_path"] = json!(project.sibling("transcript.jsonl"));
    input
}

fn hook(project: &Project, name: &str, input: &Value) -> Ralph {
    project.ralph(["hook", name]).stdin(input.to_string())
}

/// A hook call in a session that a loop started.
fn in_loop(ralph: Ralph) -> Ralph {
    ralph.env("RALPH_RUN_ID", "20261115-230000-abcd")
}

impl Output {
    #[track_caller]
    fn answer(&self) -> Value {
        self.code(0).stderr_is("");
        serde_json::from_str(&self.stdout).unwrap_or_else(|err| panic!("{err}: {:?}", self.stdout))
    }

    #[track_caller]
    fn assert_silent(&self) {
        self.code(0).stdout_is("").stderr_is("");
    }
}

const INVALID_INPUT: [&[u8]; 10] = [
    b"",
    b"\n",
    b"{",
    b"not JSON",
    b"[]",
    b"null",
    b"7",
    b"\xff\xfe{}",
    br#"{"session_id": 7, "cwd": [], "tool_name": {}, "stop_hook_active": "yes"}"#,
    br#"{"tool_name": "Bash", "tool_name": "Read"}"#,
];

fn long_invalid_input() -> [Vec<u8>; 3] {
    let long = 20 << 20;
    let cut_off = br#"{"tool_input": {"command": ""#;
    [vec![b'x'; long], vec![b'['; long], [cut_off, vec![b'x'; long].as_slice()].concat()]
}

#[test]
fn malformed_hook_input_is_ignored() {
    let project = Project::git();
    project.write("work.txt", "not committed");
    for input in INVALID_INPUT {
        for name in ["session-start", "post-tool-use", "stop"] {
            in_loop(project.ralph(["hook", name])).stdin(input).run().assert_silent();
            project.ralph(["hook", name]).stdin(input).run().assert_silent();
        }
        project.ralph(["hook", "pre-tool-use"]).stdin(input).run().assert_silent();
    }
    for input in long_invalid_input() {
        in_loop(project.ralph(["hook", "stop"])).stdin(input).run().assert_silent();
    }
}

#[test]
fn unknown_hook_name_is_ignored() {
    let project = Project::new();
    for args in [&["hook", "pre-compact"][..], &["hook"], &["hook", ""], &["hook", "stop!", "x"]] {
        let output = project.ralph(args).stdin("{}").run();
        output.code(0).stdout_is("").stderr_has("unknown hook");
    }
    project.ralph(["hook", "--help"]).run().code(0).stdout_has("pre-tool-use");
    project.ralph(["-C", ".", "hook", "stop"]).stdin("{").run().assert_silent();
}
