//! The pre-tool-use hook.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Output, Project};
use crate::{INVALID_INPUT, hook, in_loop, long_invalid_input, recorded_input};

fn call(project: &Project, tool: &str, input: Value) -> Value {
    let mut call = recorded_input(project, "PreToolUse");
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
fn unintelligible_tool_call_is_denied_in_loop() {
    let project = Project::new();
    let short = INVALID_INPUT.map(<[u8]>::to_vec);
    for input in short.into_iter().chain(long_invalid_input()) {
        let output = in_loop(project.ralph(["hook", "pre-tool-use"])).stdin(&input).run();
        assert!(denial(&output).contains("cannot parse"));
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
        hook(&project, "pre-tool-use", &broken).run().assert_silent();
    }
    // A denial that cannot be written is still a denial.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let running =
        in_loop(hook(&project, "pre-tool-use", &json!({}))).start_with_stdout(Some(full.into()));
    running.wait().code(2).stderr_has("cannot parse");
}

#[test]
fn large_harmless_tool_call_passes() {
    let project = Project::new();
    let path = project.path().join("large.txt");
    // Larger than a pipe buffer, small enough for a busy machine to judge in time.
    let large = json!({"file_path": path, "content": "x".repeat(4 << 20)});
    for call in [recorded_input(&project, "PreToolUse"), call(&project, "Write", large)] {
        in_loop(hook(&project, "pre-tool-use", &call)).run().assert_silent();
    }
}

fn bash(project: &Project, command: &str) -> Value {
    call(project, "Bash", json!({"command": command}))
}

fn run_bash_hook(project: &Project, command: &str) -> Output {
    in_loop(hook(project, "pre-tool-use", &bash(project, command))).run()
}

/// A directory outside the project that must survive.
fn outside_dir(project: &Project) -> String {
    let outside_dir = project.sibling("treasure");
    std::fs::create_dir_all(&outside_dir).expect("a directory");
    outside_dir.to_str().expect("UTF-8").to_owned()
}

#[test]
fn tool_call_leaving_project_is_denied() {
    let project = Project::git();
    let outside_dir = outside_dir(&project);
    std::os::unix::fs::symlink(&outside_dir, project.path().join("link")).expect("a link");
    project.write("build/x", "");
    let message = denial(&run_bash_hook(&project, &format!("rm -rf {outside_dir}")));
    assert!(message.contains(&outside_dir), "{message}");
    denial(&run_bash_hook(&project, "rm -rf ../treasure"));
    denial(&run_bash_hook(&project, "rm -rf link/"));
    denial(&run_bash_hook(&project, "bash -c 'rm -rf $HOME'"));
    let answer = run_bash_hook(&project, "rm -rf build").answer();
    let context = answer["hookSpecificOutput"]["additionalContext"].as_str().expect("a word");
    assert!(context.contains("build"), "{context}");
    assert_eq!(answer["systemMessage"], context);
    assert!(
        answer["hookSpecificOutput"].get("permissionDecision").is_none(),
        "the agent's own rules stay"
    );
    run_bash_hook(&project, "git commit -m 'rm -rf ../treasure'").assert_silent();
}

#[test]
fn home_behind_link_is_protected() {
    let project = Project::git();
    let volume = project.sibling("volume");
    std::fs::create_dir(&volume).expect("a directory");
    let home = project.sibling("linked-home");
    std::os::unix::fs::symlink(&volume, &home).expect("a link");
    let call = bash(&project, "cat ~/.ssh/id_ed25519.pub ~/.aws/credentials");
    denial(&in_loop(hook(&project, "pre-tool-use", &call)).env("HOME", &home).run());
    let call = bash(&project, "cat ~/notes");
    in_loop(hook(&project, "pre-tool-use", &call)).env("HOME", &home).run().assert_silent();
}

#[test]
fn project_is_session_start_directory() {
    let project = Project::git();
    project.write("sub/build/x", "");
    let mut call = bash(&project, "rm -rf ../other");
    call["cwd"] = json!(project.path().join("sub"));
    project.write("other/x", "");
    let ask = |call: &Value| in_loop(hook(&project, "pre-tool-use", call));
    denial(&ask(&call).env("CLAUDE_PROJECT_DIR", project.path().join("sub")).run());
    let output = ask(&call).env("CLAUDE_PROJECT_DIR", project.path()).run();
    output.code(0).stdout_has("systemMessage").stdout_lacks("deny");
}

#[test]
fn guard_is_off_outside_loop_unless_set_to_always() {
    let project = Project::git();
    let call = bash(&project, "rm -rf ~");
    let ask = || hook(&project, "pre-tool-use", &call);
    ask().run().assert_silent();
    ask().env("RALPH_RUN_ID", "").run().assert_silent();
    denial(&ask().env("RALPH_HOOKS__ALWAYS", "1").run());
    project.settings(&json!({"hooks": {"always": true}}));
    denial(&ask().run());
    project.write(".ralph/settings.local.json", r#"{"hooks": {"always": false}}"#);
    ask().run().assert_silent();
    // The unreadable file may contain the setting.
    project.write(".ralph/settings.local.json", r#"{"hooks": {"always": true"#);
    project.settings(&json!({}));
    ask().run().code(0).stdout_has("systemMessage").stdout_has(".ralph/settings.local.json: EOF");
}

#[test]
fn allow_list_of_project_is_respected() {
    let project = Project::git();
    let command = "git push --force origin main";
    denial(&run_bash_hook(&project, command));
    project.settings(&json!({"hooks": {"allow": ["git push --force origin main"]}}));
    run_bash_hook(&project, command).assert_silent();
    denial(&run_bash_hook(&project, "git push --force origin other"));
    // A run passes on the settings it started with.
    let call = bash(&project, command);
    let ask = || in_loop(hook(&project, "pre-tool-use", &call));
    denial(&ask().env("RALPH_HOOKS__ALLOW", "[]").run());
    project.settings(&json!({"hooks": {"allow": "broken"}}));
    denial(&ask().run());
}

#[test]
fn slow_verdict_is_denied() {
    let project = Project::new();
    let mut command = project.command(env!("CARGO_BIN_EXE_ralph"));
    command.args(["hook", "pre-tool-use"]).env("RALPH_RUN_ID", "a-run");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ralph");
    let question = child.stdin.take();
    let output = child.wait_with_output().expect("ralph");
    drop(question);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let output =
        Output { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) };
    assert!(denial(&output).contains("took too long"));
}

/// Tools change directory, and the reported directory is theirs.
#[test]
fn repository_is_project_without_session_directory() {
    let project = Project::git();
    project.write("sub/deep/file", "").write("build/x", "");
    let ask = |cwd: &std::path::Path, command: &str| {
        let mut input = bash(&project, command);
        input["cwd"] = json!(cwd);
        let ralph = in_loop(hook(&project, "pre-tool-use", &input));
        ralph.run().answer()["hookSpecificOutput"]["permissionDecision"].clone()
    };
    let deep = project.path().join("sub/deep");
    assert_eq!(ask(&deep, "rm -rf ../../build"), Value::Null);
    assert_eq!(ask(&deep, "rm -rf ../.."), "deny");
    assert_eq!(ask(&deep, "rm -rf ../../../home"), "deny");
}
