//! Tests of the test support: a helper that finds nothing would let every test pass.

#[allow(dead_code, reason = "it is for the program that records, what it rests on is tested")]
#[path = "../testing/record_fixtures/compare.rs"]
mod compare;
mod support;

use rustix::process::Signal;
use serde_json::json;
use support::{LONG, Project, is_alive, wait_until};

fn agent(project: &Project, script: &serde_json::Value) -> support::Ralph {
    let argv = project.fake_agent(script);
    project.program(&argv[0], &argv[1..])
}

#[test]
fn fake_agent_sessions_run_in_order_and_last_repeats() {
    let project = Project::new();
    project.install_agent(
        "claude",
        &json!({
            "sessions": [[{"print": "one"}, {"exit": 7}], [{"print": "two"}]],
            "commit_message": [{"print": "Add it"}],
        }),
    );
    let start = |prompt: &str| project.program("claude", ["-p"]).stdin(prompt).run();
    start("work").code(7).stdout_is("one\n");
    start("Provide a short imperative commit message for the changes.").stdout_is("Add it\n");
    start("work").code(0).stdout_is("two\n");
    start("work").code(0).stdout_is("two\n");
}

#[test]
fn fake_agent_records_how_it_was_started() {
    let project = Project::with_awkward_path();
    agent(&project, &json!([project.record_step()]))
        .arg("--flag")
        .stdin("do ümlaut")
        .run()
        .success();
    let [record] = &project.agent_starts()[..] else {
        panic!("one start, one record");
    };
    assert_eq!(record["prompt"], "do ümlaut");
    assert_eq!(record["stdin_eof"], true);
    assert_eq!(record["cwd"], project.path().to_str().unwrap());
    assert_eq!(record["env"]["HOME"], project.home().to_str().unwrap());
    assert_eq!(record["env"]["CARGO"], json!(null), "the tester's environment leaks");
    let argv = record["argv"].as_array().unwrap();
    assert_eq!(argv.last().unwrap(), "--flag");
}

#[test]
fn fake_claude_stream_matches_adapter() {
    let project = Project::new();
    let output = agent(
        &project,
        &json!([
            {"claude": "init"},
            {"claude": {"thinking": "hm"}},
            {"claude": {"bash": "echo out; exit 3"}},
            {"claude": {"todo": [["Read", "completed"], ["Edit", "in_progress"]]}},
            {"claude": {"text": "<response>DONE</response>"}},
            {"claude": {"result": {"total_cost_usd": 1.5}}},
        ]),
    )
    .run();
    let lines = output.success().json_lines().0;
    let content = |at: usize| &lines[at]["message"]["content"][0];
    assert_eq!(lines[0]["subtype"], "init");
    assert_eq!(content(1)["thinking"], "hm");
    assert_eq!(content(2)["input"]["command"], "echo out; exit 3");
    assert_eq!(content(3)["tool_use_id"], content(2)["id"]);
    assert_eq!((&content(3)["content"], &content(3)["is_error"]), (&json!("out"), &json!(true)));
    assert_eq!(content(4)["input"]["todos"][1]["status"], "in_progress");
    assert_ne!(content(4)["id"], content(2)["id"]);
    assert_eq!(content(6)["text"], "<response>DONE</response>");
    assert_eq!(lines[7]["result"], "<response>DONE</response>");
    assert_eq!(lines[7]["total_cost_usd"], 1.5);
    assert_eq!(lines[7]["usage"]["output_tokens"], 20);
}

#[test]
fn fake_codex_stream_matches_adapter() {
    let project = Project::new();
    let output = agent(
        &project,
        &json!([
            {"codex": "init"},
            {"codex": {"command": "echo out"}},
            {"codex": {"text": "done"}},
            {"codex": {"result": {"output_tokens": 5}}},
        ]),
    )
    .run();
    let lines = output.success().json_lines().0;
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "thread.started",
            "turn.started",
            "item.started",
            "item.completed",
            "item.completed",
            "turn.completed"
        ]
    );
    assert_eq!(lines[2]["item"]["id"], lines[3]["item"]["id"]);
    assert_eq!(lines[3]["item"]["aggregated_output"], "out");
    assert_ne!(lines[3]["item"]["id"], lines[4]["item"]["id"]);
    assert_eq!(lines[5]["usage"]["output_tokens"], 5);
}

#[test]
fn fake_agent_writes_bytes_exactly() {
    let project = Project::new();
    let script = json!([{"split": "é\n"}, {"raw": "no newline"}, {"stderr": "oops"}]);
    agent(&project, &script).run().stdout_is("é\nno newline").stderr_is("oops\n");

    let script = json!([{"lines_megabytes": 2}, {"long_line_megabytes": 3}]);
    let output = agent(&project, &script).run();
    assert_eq!(output.stdout.len(), 5 * 1024 * 1024 + 1);
    assert_eq!(output.stdout.lines().map(str::len).max(), Some(3 * 1024 * 1024));

    let output = project.fake_agent(&json!([{"hex": "ff 00"}]));
    let output = project.command(&output[0]).args(&output[1..]).output().unwrap();
    assert_eq!(output.stdout, b"\xff\x00");
}

#[test]
fn invalid_fake_agent_script_fails() {
    let project = Project::new();
    agent(&project, &json!([{"prnt": "x"}])).run().code(99).stderr_has("prnt");
    agent(&project, &json!({"sessions": []})).run().code(99).stderr_has("no sessions");
}

#[test]
fn fake_agent_dies_by_signal() {
    let project = Project::new();
    agent(&project, &json!([{"signal": 9}])).run().killed_by(Signal::KILL);
}

#[test]
fn stray_tool_outlives_agent_and_is_found() {
    let project = Project::new();
    let pid_file = project.sibling("tool.pid");
    agent(&project, &json!([{"stray": {"pid_file": pid_file}}])).run().success();

    let [tool] = &project.processes()[..] else {
        panic!("expected the tool: {:?}", project.processes());
    };
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), tool.pid.to_string());
    let session = rustix::process::getsid(rustix::process::Pid::from_raw(tool.pid)).unwrap();
    assert_eq!(session.as_raw_nonzero().get(), tool.pid, "it leads a session of its own");

    tool.signal(Signal::TERM);
    // Signals arrive in order: once the tool has stopped and continued, it has seen the first.
    tool.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", tool.pid);
    wait_until(LONG, || std::fs::read_to_string(&stat).unwrap_or_default().contains(") T "));
    tool.signal(Signal::CONT);
    wait_until(LONG, || std::fs::read_to_string(&stat).unwrap_or_default().contains(") S "));
    assert!(is_alive(tool.pid), "it ignores the polite signal");

    tool.signal(Signal::KILL);
    wait_until(LONG, || project.processes().is_empty());
    wait_until(LONG, || !is_alive(tool.pid));
}

#[test]
fn dropped_project_ends_its_processes() {
    let project = Project::new();
    let pid_file = project.sibling("tool.pid");
    agent(&project, &json!([{"stray": {"pid_file": pid_file, "setsid": false}}])).run().success();
    let pid = std::fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert!(is_alive(pid));
    drop(project);
    wait_until(LONG, || !is_alive(pid));
}

#[test]
fn running_program_can_be_watched_and_signaled() {
    let project = Project::new();
    let running = agent(&project, &json!([{"print": "ready"}, "hang"])).start();
    wait_until(LONG, || running.stdout() == "ready\n");
    assert_eq!(project.processes().len(), 1);
    running.signal(Signal::TERM);
    running.wait().killed_by(Signal::TERM);
    assert_eq!(project.processes(), []);
}

#[test]
fn events_are_read_from_newest_run() {
    let project = Project::new();
    project.write(".ralph/runs/b/events.jsonl", "{\"event\":\"run_started\"}\n");
    let old = std::fs::File::open(project.path().join(".ralph/runs/b/events.jsonl")).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    project.write(
        ".ralph/runs/a/events.jsonl",
        "{\"event\":\"text\",\"text\":\"1\"}\n{\"event\":\"text\",\"text\":\"2\"}\n{\"event\":\"ru",
    );
    let events = project.events();
    assert_eq!(events.kinds(), ["text", "text"]);
    assert_eq!(events.find("text")["text"], "1");
    assert_eq!(events.last("text")["text"], "2");
    assert!(!events.has("run_started"));
}

#[test]
fn test_repository_ignores_git_settings_of_user() {
    let project = Project::git();
    project.write("a file", "x").git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "First"]);
    assert_eq!(project.git_command(["log", "--format=%an %s"]), "Tess Ter First\n");
}

#[test]
fn program_can_run_in_terminal() {
    let project = Project::with_awkward_path();
    let tmux = project
        .program("sh", ["-c", r#"test -t 1 && echo "[$GREETING] $PWD"; read line; exit 5"#])
        .env("GREETING", "hello")
        .in_tmux();
    let screen = tmux.wait_for_text(LONG, "[hello]");
    assert!(screen.contains("it's a"), "{screen}");
    tmux.send_keys(["go", "Enter"]);
    assert_eq!(tmux.wait_for_exit(LONG), 5);
    drop(tmux);
    wait_until(LONG, || project.processes().is_empty());
}
