//! Runs interrupted between the agent's answer and the last check of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Output, Project, Ralph, wait_until};
use crate::{DONE, prompts};

const SLOW: &str = "echo x >>.ralph/checked; until test -e .ralph/go; do sleep 0.01; done";

/// Interrupts a run in its guardrail: by KILL, or by one Ctrl+C, which lets the guardrail finish.
fn interrupt_in_guardrail(project: &Project, run: Ralph, signal: Signal) {
    let run = run.start();
    project.wait_for_file(".ralph/checked");
    run.signal(signal);
    if signal == Signal::INT {
        wait_until(LONG, || run.stderr().contains("Received signal"));
        project.write(".ralph/go", "");
        run.wait().code(130).stdout_has("ralph resume ");
    } else {
        run.wait().killed_by(signal);
        project.write(".ralph/go", "");
    }
}

fn resume(project: &Project) -> Output {
    let output = project.ralph(["resume"]).run();
    let words = "checking the work of iteration 1 of ";
    output.stdout_has(words).stdout_lacks("restarting");
    output
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn guardrail_runs(project: &Project) -> usize {
    project.read(".ralph/checked").lines().count()
}

#[test]
fn resume_checks_and_commits_answer_without_paying_again() {
    // Work is committed even if the answer has used up the budget.
    for (signal, budget, subject) in
        [(Signal::KILL, 1.0, "More"), (Signal::INT, 0.5, "ralph: iteration 1")]
    {
        let project = Project::git();
        project.settings(&json!({
            "guardrails": [{"command": SLOW}, {"command": "test -s work"}],
            "scm": {"command": "git", "tasks": ["commit"]},
            "budget": {"costUsd": budget},
        }));
        let says = |text: &str| json!({"claude": {"text": text}});
        let ends = json!({"claude": {"result": {"total_cost_usd": 0.5}}});
        let work = json!([project.record_step(), {"shell": "echo x >work"}, says(DONE), ends]);
        let script = json!({"sessions": [work], "commit_message": [says("More"), ends]});
        project.install_agent("claude", &script);
        let run = project.ralph(["run", "-p", "do it", "-n", "1", "--", "claude"]);
        interrupt_in_guardrail(&project, run, signal);
        resume(&project).code(0);
        assert_eq!((prompts(&project).len(), guardrail_runs(&project)), (1, 2), "{signal:?}");
        assert_eq!(project.git_command(["status", "--porcelain"]), "");
        assert_eq!(project.git_command(["log", "-1", "--format=%s"]).trim(), subject);
        let events = project.events();
        assert_eq!(events.all("iteration_started").len(), 1);
        assert_eq!(events.find("run_continued")["unchecked"], 1);
        let answer = events.find("agent_ended");
        assert_eq!((&answer["complete"], &answer["found"]), (&json!(true), &json!("DONE")));
        let ended = events.last("iteration_ended");
        assert_eq!((&ended["attempt"], ended.get("cut_off")), (&json!(1), None));
        let report = project.ralph(["report"]).run();
        report.code(0).stdout_has("; checked the work of iteration 1");
    }
}

#[test]
fn resume_reports_failed_check_to_next_agent_once() {
    let project = Project::new();
    let check = format!("{SLOW}; test -e made");
    project.settings(&json!({"guardrails": [{"command": check, "hint": "make it"}]}));
    let sessions = [json!([{"print": DONE}]), json!([{"shell": "touch made"}, {"print": DONE}])];
    project.install_agent("robot", &json!({"sessions": project.record_sessions(&sessions)}));
    interrupt_in_guardrail(
        &project,
        project.ralph(["run", "-p", "do it", "--", "robot"]),
        Signal::INT,
    );
    // The failure was recorded while the run stopped, and again after it.
    assert_eq!(project.events().last("iteration_ended")["guardrails_passed"], false);
    resume(&project).code(0);
    let mentions: Vec<usize> =
        prompts(&project).iter().map(|prompt| prompt.matches("make it").count()).collect();
    assert_eq!((mentions, guardrail_runs(&project)), (vec![0, 1], 3));
}

#[test]
fn resume_judges_task_list_marked_before_kill() {
    let project = Project::new();
    let list = |passes: bool| {
        json!({
            "project": "Shop", "branchName": "ralph/shop", "description": "Prices.",
            "verifyCommands": [SLOW],
            "userStories": [{
                "id": "a", "title": "A", "description": "", "acceptanceCriteria": ["it works"],
                "priority": 1, "passes": passes, "notes": "done", "dependsOn": [],
            }],
        })
        .to_string()
    };
    project.write("ralph/prompt.md", "Work.").write("ralph/tasks.json", list(false));
    let mark: Value = json!({"write": {"path": "ralph/tasks.json", "text": list(true)}});
    let sessions = project.record_sessions(&[json!([mark, {"print": "marked"}])]);
    project.install_agent("robot", &json!({"sessions": sessions}));
    let run = project.ralph(["work", "--no-sandbox", "--", "robot"]);
    interrupt_in_guardrail(&project, run, Signal::KILL);
    // The story was marked by a complete attempt, so it needs no second look.
    resume(&project).code(0).stderr_lacks("marked as passing by an iteration");
    assert_eq!((prompts(&project).len(), guardrail_runs(&project)), (1, 2));
    // The task event is written even though the list has not changed.
    let tasks = project.events().last("tasks").clone();
    assert_eq!((&tasks["done"], &tasks["total"]), (&json!(1), &json!(1)));
    project.ralph(["report"]).run().code(0).stdout_lacks("Left to do").stdout_lacks("Next story");
}

#[test]
fn resume_for_checks_needs_no_prompt_plan_or_agent() {
    const PLAN: &str = ".ralph/implementation_plan.md";
    let settings = |check: &str| {
        json!({
            "agent": {"command": "./robot"},
            "guardrails": [{"command": format!("{SLOW}; {check}")}],
            "scm": {"command": "git", "tasks": ["commit"]},
        })
    };
    let done = "#!/bin/sh\necho '<response>DONE</response><promise>COMPLETE</promise>'\n";
    let run = ["run", "-f", "P.md"];
    for (words, removed, check, code, expected) in [
        (&run[..], &["P.md", "robot"][..], "true", 0, "Done after"),
        (&["build"], &[PLAN, "specs/a.md", "robot"], "true", 0, "Done after"),
        (&["prompt", "P.md"], &["P.md", "robot"], "true", 0, "Done after"),
        (&run, &["P.md"], "false", 2, "prompt file not found"),
    ] {
        let project = Project::git();
        project.settings(&settings(check));
        project.write("P.md", "<promise>COMPLETE</promise>").write("specs/a.md", "x");
        project.write(PLAN, "x").write("robot", done);
        make_executable(&project.path().join("robot"));
        interrupt_in_guardrail(&project, project.ralph(words), Signal::KILL);
        for file in removed {
            fs::remove_file(project.path().join(file)).unwrap();
        }
        let resumed = resume(&project);
        resumed.code(code);
        let printed = format!("{}{}", resumed.stdout, resumed.stderr);
        assert!(printed.contains(expected), "{words:?}: {printed}");
        assert_eq!(guardrail_runs(&project), 2, "{words:?}");
        let commits = project.git_command(["log", "--all", "--format=%s"]);
        let committed = if code == 0 { "ralph: iteration 1" } else { "" };
        assert_eq!(commits.trim(), committed, "{words:?}");
    }
    let project = Project::git();
    project.settings(&settings("true"));
    project.write("robot", "#!/bin/sh\ntouch .ralph/checked\nsleep 600\n").write("P.md", "x");
    make_executable(&project.path().join("robot"));
    interrupt_in_guardrail(&project, project.ralph(run), Signal::KILL);
    fs::remove_file(project.path().join("robot")).unwrap();
    project.ralph(["resume"]).run().code(2).stderr_has("agent not found: ./robot");
}
