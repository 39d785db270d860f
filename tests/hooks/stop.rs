//! The stop hook in a loop.

use serde_json::{Value, json};

use crate::support::{Output, Project};
use crate::{hook, in_loop, recorded_input};

fn stop(project: &Project) -> Output {
    in_loop(hook(project, "stop", &recorded_input(project, "Stop"))).run()
}

#[track_caller]
fn reason(output: &Output) -> String {
    let answer = output.answer();
    assert_eq!(answer["decision"], "block");
    answer["reason"].as_str().expect("a reason").to_owned()
}

const RUN: &str = "20261113-202752-0a1b";

fn committed() -> Project {
    let project = Project::git();
    project.write("README.md", "A project.\n");
    project.git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "Begin"]);
    project
}

#[test]
fn stop_hook_holds_uncommitted_work_once() {
    let project = committed();
    stop(&project).assert_silent();
    project.write("src/new file.rs", "fn main() {}\n").write("README.md", "Another.\n");
    let message = reason(&stop(&project));
    assert!(message.contains("README.md, src/"), "{message}");
    assert!(message.contains("Commit ALL changes.") && message.contains("CLAUDE.md"), "{message}");
    assert!(!message.contains("progress.txt"), "{message}");
    // The agent was held back once and stops again.
    let mut second_stop = recorded_input(&project, "Stop");
    second_stop["stop_hook_active"] = json!(true);
    in_loop(hook(&project, "stop", &second_stop)).run().assert_silent();
    project.git_command(["add", "."]);
    project.git_command(["commit", "--quiet", "-m", "Work"]);
    stop(&project).assert_silent();
}

#[test]
fn stop_hook_holds_only_agent_of_loop() {
    let project = committed();
    project.write("work.txt", "");
    let input = recorded_input(&project, "Stop");
    hook(&project, "stop", &input).run().assert_silent();
    hook(&project, "stop", &input).env("RALPH_RUN_ID", "").run().assert_silent();
    let mut subagent = input.clone();
    subagent["agent_id"] = json!("a0c74c7263e3332b9");
    in_loop(hook(&project, "stop", &subagent)).run().assert_silent();
    reason(&stop(&project));
}

#[test]
fn stop_hook_ignores_nested_sessions() {
    let project = committed();
    project.write("work.txt", "");
    let ask = |name: &str, session: &str, start: &str| {
        let event = if name == "stop" { "Stop" } else { "SessionStart" };
        let mut input = recorded_input(&project, event);
        input["session_id"] = json!(session);
        in_loop(hook(&project, name, &input)).env("RALPH_STOP_CHECK", start).run()
    };
    ask("session-start", "outer", "1.1").assert_silent();
    ask("session-start", "inner", "1.1").assert_silent();
    ask("stop", "inner", "1.1").assert_silent();
    reason(&ask("stop", "outer", "1.1"));
    ask("session-start", "next", "1.2").assert_silent();
    reason(&ask("stop", "next", "1.2"));
    reason(&ask("stop", "later", "2.1"));
    // The loop commits by itself.
    ask("stop", "outer", "").assert_silent();
}

#[test]
fn stop_hook_ignores_own_files() {
    let project = committed();
    project
        .write(".ralph-active", "{}")
        .write(".ralph/runs/x/events.jsonl", "")
        .write(".ralph/lock", "")
        .write(".ralph/guardrail_001_test.log", "");
    stop(&project).assert_silent();
    // Committed settings make git look into the directory.
    project.settings(&json!({}));
    project.git_command(["add", ".ralph/settings.json"]);
    project.git_command(["commit", "--quiet", "-m", "Settings"]);
    stop(&project).assert_silent();
    project.write(".ralph/implementation_plan.md", "A plan.\n");
    assert!(reason(&stop(&project)).contains("implementation_plan.md"));
}

#[test]
fn stop_hook_names_task_list_documents() {
    let project = committed();
    project.write("ralph/progress.txt", "").write("ralph/tasks.json", "{}");
    let message = reason(&stop(&project));
    assert!(message.contains("1. Update ralph/progress.txt"), "{message}");
    assert!(
        message.contains("3. Commit ALL changes, including progress.txt and tasks.json"),
        "{message}"
    );
}

#[test]
fn stop_hook_without_repository_says_nothing() {
    let project = Project::new();
    project.write("work.txt", "");
    stop(&project).assert_silent();
    let mut input = recorded_input(&project, "Stop");
    for cwd in [json!(project.sibling("gone")), json!(""), Value::Null] {
        input["cwd"] = cwd;
        in_loop(hook(&project, "stop", &input)).run().assert_silent();
    }
}

#[test]
fn stop_hook_counts_many_files_and_names_renamed_once() {
    let project = committed();
    project.git_command(["mv", "README.md", "READ ME.md"]);
    assert!(reason(&stop(&project)).contains("changes: READ ME.md."));
    for nth in 0..30 {
        project.write(&format!("file-{nth:02}"), "");
    }
    let message = reason(&stop(&project));
    assert!(message.contains("file-08, and 21 more."), "{message}");
}

#[test]
fn stop_hook_requires_valid_task_list() {
    let project = committed();
    let list = |stories: Value| {
        let list = json!({
            "project": "p", "branchName": "ralph/p", "description": "d", "userStories": stories
        });
        project.write("ralph/tasks.json", list.to_string());
        project.git_command(["add", "."]);
        project.git_command(["commit", "--quiet", "--allow-empty", "-m", "Stories"]);
    };
    let story = |id: &str, passes: bool, notes: &str| {
        json!({
            "id": id, "title": "t", "passes": passes, "priority": 1, "notes": notes,
            "acceptanceCriteria": ["It is there"], "dependsOn": []
        })
    };
    list(json!([{"id": "US-001"}]));
    stop(&project).assert_silent();
    project.write(".ralph-active", "{}");
    assert!(reason(&stop(&project)).contains("- ralph/tasks.json: US-001: acceptanceCriteria: "));
    list(json!([story("US-001", true, "Done."), story("US-002", false, "")]));
    stop(&project).assert_silent();
    list(json!([story("US-001", true, " ")]));
    assert!(reason(&stop(&project)).contains("US-001: notes: "));
    list(json!([story("US-001", false, ""), story("US-001", false, "")]));
    assert!(reason(&stop(&project)).contains("US-001"));
    project.write("ralph/tasks.json", "{");
    let message = reason(&stop(&project));
    assert!(
        message.contains("not valid JSON") && message.contains("uncommitted changes"),
        "{message}"
    );
    std::fs::remove_file(project.path().join("ralph/tasks.json")).expect("a file");
    assert!(reason(&stop(&project)).contains("ralph/tasks.json: cannot be read"));
}

#[test]
fn stop_hook_checks_list_of_active_run() {
    let project = committed();
    project.write("ralph/tasks.json", "{").write("loops/b/tasks.json", "{");
    let sign = json!({
        "timestamp": "2026-11-15T20:27:52Z", "pid": 1, "max_iterations": 3, "mode": "direct",
        "run_id": "x", "ralph_dir": project.path().join("loops/b"),
    });
    project.write(".ralph-active", sign.to_string());
    let message = reason(&stop(&project));
    assert!(
        message.contains("- loops/b/tasks.json: ") && !message.contains("- ralph/"),
        "{message}"
    );
}

/// The agent that dropped the story can still repair it before the iteration ends.
#[test]
fn stop_hook_reports_dropped_story() {
    let project = committed();
    let story = |id: &str, replaces: &[&str]| {
        json!({
            "id": id, "title": "Log in", "passes": false, "priority": 1, "notes": "",
            "acceptanceCriteria": ["It is there"], "dependsOn": [], "replaces": replaces
        })
    };
    let list = |stories: Value| {
        let list = json!({
            "project": "p", "branchName": "ralph/p", "description": "d", "userStories": stories
        });
        project.write("ralph/tasks.json", list.to_string());
        project.git_command(["add", "."]);
        project.git_command(["commit", "--quiet", "--allow-empty", "-m", "Stories"]);
    };
    let ledger = json!({
        "verifyCommands": [], "last": ["US-001", "US-002"], "verified": [],
        "stories": {"US-001": story("US-001", &[]), "US-002": story("US-002", &[])}
    });
    let tasks = project.path().join("ralph/tasks.json");
    let home = project.home().join(".ralph");
    let root = project.path().canonicalize().expect("a project");
    let store = ralph_store::project::Project::new(&root, &home);
    let paths = ralph_tasks::ledger_store::LedgerPaths::new(&store, &tasks);
    let remembered = paths.dir();
    std::fs::create_dir_all(remembered).expect("a directory");
    std::fs::write(remembered.join(format!("{RUN}.json")), ledger.to_string()).expect("a file");
    project.write(".ralph-active", "{}");
    let stop = |run: &str| {
        hook(&project, "stop", &recorded_input(&project, "Stop")).env("RALPH_RUN_ID", run).run()
    };
    list(json!([story("US-001", &[]), story("US-002", &[])]));
    stop(RUN).assert_silent();
    list(json!([story("US-001", &[])]));
    let message = reason(&stop(RUN));
    assert!(message.contains("- ralph/tasks.json: US-002 (Log in) was removed"), "{message}");
    stop("20261113-202752-ffff").assert_silent();
    stop("../tasks/20261113-202752-0a1b").assert_silent();
    list(json!([story("US-001", &[]), story("US-003", &["US-002"])]));
    stop(RUN).assert_silent();
    list(json!([story("US-002", &[]), story("US-001", &[])]));
    std::fs::write(remembered.join(format!("{RUN}.json")), "{").expect("a file");
    stop(RUN).assert_silent();
}
