//! Loops without progress.

use serde_json::{Value, json};

use crate::DONE;
use crate::support::{Output, Project};

fn run(project: &Project, stop_after: u32, script: &str) -> Output {
    let mut settings = json!({"stall": {"iterations": stop_after}});
    if project.has(".git") {
        settings["guardrails"] = json!([{"command": "echo red; test -e green"}]);
    }
    project.settings(&settings);
    let agent = project.fake_agent(&json!([{"shell": script}, {"print": DONE}]));
    project.ralph(["run", "-n", "6", "-p", "x", "--"]).args(agent).run()
}

fn iterations(project: &Project) -> Value {
    project.events().find("run_ended")["iterations"].clone()
}

#[test]
fn unchanged_repository_warns_then_stops_run() {
    let project = Project::git();
    let output = run(&project, 3, "true");
    output.code(3).stderr_has("changed nothing in the repository; the run stops at 3 in a row");
    output.stdout_has("3 iterations in a row changed nothing").stdout_has("ralph resume");
    assert_eq!(iterations(&project), 3);
    let events = project.events();
    assert_eq!(events.find("stalling")["iterations"], 2);
    assert_eq!(events.find("run_ended")["outcome"], "stalled");
    project.ralph(["report"]).run().code(0).stdout_has("changed nothing in the repository");
    project.ralph(["resume", "-n", "9"]).run().code(3).stdout_has("Resuming run");
    assert_eq!(project.events().last("run_ended")["iterations"], 6);
}

#[test]
fn resume_keeps_counting_unchanged_iterations() {
    let project = Project::git();
    project.settings(&json!({"stall": {"iterations": 3}}));
    let agent = project.fake_agent(&json!([{"print": "hm"}]));
    project.ralph(["run", "-n", "1", "-p", "x", "--"]).args(agent).run().code(1);
    project.ralph(["resume", "-n", "2"]).run().code(1);
    project.ralph(["resume", "-n", "9"]).run().code(3).stderr_has("the run stops at 3 in a row");
    assert_eq!(project.events().last("run_ended")["iterations"], 3);
}

#[test]
fn any_change_of_work_tree_or_head_is_progress() {
    let project = Project::git();
    project.settings(&json!({"stall": {"iterations": 1}}));
    project.git_command(["commit", "-q", "--allow-empty", "-m", "first"]);
    let steps = [
        // The work tree: a new file, a changed file, a name, a link.
        "echo 1 >file",
        "echo 2 >file",
        "git add file",
        "mv file 'another file'; git add -A",
        "mkdir -p d/e; echo 1 >'d/e/a file'",
        "echo 2 >'d/e/a file'",
        "ln -s 1 link",
        "ln -sfn 2 link",
        "chmod +x 'd/e/a file'",
        "git commit -q --allow-empty -m x",
        "git checkout -q -b b",
        // Only the last iteration changes nothing: refs beside the branch that is checked out do not count.
        "git tag t; git update-ref refs/remotes/origin/x HEAD; git pack-refs --all",
    ];
    let sessions: Vec<Value> =
        steps.iter().map(|step| json!([{"shell": format!("set -e; {step}")}])).collect();
    let agent = project.fake_agent(&json!({"sessions": sessions}));
    let output = project.ralph(["run", "-n", "40", "-p", "x", "--"]).args(agent).run();
    output.code(3).stdout_has("an iteration changed nothing in the repository");
    assert_eq!(iterations(&project), steps.len());
}

#[test]
fn ignored_and_own_files_are_no_progress() {
    for script in [
        "echo ignored >.gitignore; date +%s%N >ignored",
        "date +%s%N >.ralph/settings.local.json.x; rm .ralph/settings.local.json.x",
        "touch file; touch -d 2020-01-0$RALPH_ITERATION file",
        "date +%s%N >.ralph/prompt_999.txt",
    ] {
        let project = Project::git();
        run(&project, 2, script).code(3);
    }
}

#[test]
fn stall_check_works_in_subdirectory_and_without_git() {
    let project = Project::git();
    project.write("sub/x", "").settings(&json!({}));
    let agent = project.fake_agent(&json!([{"shell": "echo $RALPH_ITERATION >y"}]));
    let subdir = project.path().join("sub");
    let run_there = |stop: &str| {
        let run = project.ralph(["run", "-n", "4", "-p", "x", "--settings"]).arg(stop);
        run.arg("--").args(agent.clone()).current_dir(&subdir).run()
    };
    project.write("stop.json", r#"{"stall": {"iterations": 2}}"#);
    let settings = project.path().join("stop.json").to_string_lossy().into_owned();
    run_there(&settings).code(1);

    let project = Project::new();
    run(&project, 2, "echo $RALPH_ITERATION >file").code(0);
    let project = Project::new();
    project.settings(&json!({"stall": {"iterations": 2}}));
    let agent = project.fake_agent(&json!([{"print": "hm"}]));
    project.ralph(["run", "-n", "6", "-p", "x", "--"]).args(agent).run().code(3);
    assert_eq!(iterations(&project), 2);
}

#[test]
fn stall_check_spares_completion_and_instant_loops() {
    let project = Project::git();
    project.settings(&json!({"stall": {"iterations": 1}}));
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    let project = Project::git();
    run(&project, 0, "true").code(1).stderr_lacks("changed nothing");
    assert!(!project.events().has("stalling"));
}
