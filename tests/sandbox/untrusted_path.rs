//! Programs planted from inside the sandbox are not run outside.

use std::fs;

use serde_json::json;

use crate::landlock;
use crate::runs::{DONE, bwrap_works, run};
use crate::support::Project;

/// Plants programs first on the `PATH`, in a run in which ralph commits and notifies outside.
fn plant_from_inside(backend: &str) {
    let project = Project::git();
    let bin = project.path().join(".venv/bin");
    fs::create_dir_all(&bin).unwrap();
    project.settings(&json!({
        "scm": {"command": "git", "tasks": ["commit"]},
        "notify": {"command": "touch ../notified"},
        "sandbox": {"guardrails": false},
        "guardrails": [{"command": "true", "failAction": "APPEND"}],
    }));
    project.write(".gitignore", ".venv\n");
    let canary = project.sibling("canary");
    let script = format!(
        "case \"$(/bin/cat)\" in *\"commit message\"*) echo Made; exit;; esac\n\
         for name in git sh tmux bwrap docker sbx touch; do\n\
         printf '#!/bin/sh\\necho $0 >> {}\\n' > .venv/bin/$name; /bin/chmod +x .venv/bin/$name; done\n\
         echo > made\n{DONE}",
        canary.display()
    );
    let path = project.path_with(&[&bin]);
    let args = [&format!("--sandbox={backend}")[..]];
    // The agent's own shell started before the planting.
    run(&project, &args, &script).env("PATH", &path).run().code(0);
    assert!(project.git_command(["show", "--stat", "HEAD"]).contains("made"));
    assert!(project.sibling("notified").exists());
    assert_eq!(project.planted_runs(), Vec::<String>::new());
    for command in [&["report"][..], &["doctor"], &["sandbox", "check"]] {
        project.ralph(command).env("PATH", &path).run();
    }
    project.write("agent.sh", DONE);
    let agent = ["--", "/bin/sh", "agent.sh"];
    let second_run = project.ralph(["run", "-p", "x", "-n", "1"]).args(args).args(agent);
    second_run.env("PATH", &path).run().code(0);
    assert_eq!(project.planted_runs(), Vec::<String>::new());
    let records: Vec<_> = fs::read_dir(project.home().join(".ralph/projects")).unwrap().collect();
    assert_eq!(records.len(), 1, "a run records its project");
}

#[test]
fn programs_planted_in_bwrap_are_not_run_outside() {
    if bwrap_works() {
        plant_from_inside("bwrap");
    }
}

#[test]
fn programs_planted_in_landlock_are_not_run_outside() {
    if landlock::landlock_works(&Project::new()) {
        plant_from_inside("landlock");
    }
}

#[test]
fn writable_directory_from_settings_is_untrusted() {
    if !bwrap_works() {
        return;
    }
    let project = Project::git();
    let tools = project.sibling("tools");
    project.plant_programs(&tools, &["git", "bwrap", "sh", "touch"]);
    project.settings(&json!({
        "sandbox": {"guardrails": false, "writable": ["../tools"]},
        "scm": {"command": "git", "tasks": ["commit"]},
        "notify": {"command": "touch ../notified"},
    }));
    project.write("agent.sh", DONE);
    let path = project.path_with(&[&tools]);
    let run = ["run", "-p", "x", "-n", "1", "--sandbox=bwrap", "--", "/bin/sh", "agent.sh"];
    project.ralph(run).env("PATH", &path).run().code(0);
    // The run recorded where its agent could write, so the settings do not matter.
    project.write(".ralph/settings.json", "{}");
    project.ralph(["report"]).env("PATH", &path).run().code(0);
    assert_eq!(project.planted_runs(), Vec::<String>::new());
}

fn plant_after_run(project: &Project) -> std::ffi::OsString {
    project.ralph(["run", "-p", "x", "-n", "1", "--", "sh", "-c", DONE]).run().code(0);
    let bin = project.path().join(".venv/bin");
    project.plant_programs(&bin, &["git", "sh", "sed"]);
    project.path_with(&[&bin])
}

#[test]
fn demo_does_not_run_planted_programs() {
    let project = Project::git();
    let path = plant_after_run(&project);
    let demo = project.ralph(["demo", "--fast"]).env("PATH", path).run();
    demo.code(0).stdout_has("The commit it made");
    assert_eq!(project.planted_runs(), Vec::<String>::new());
}

#[test]
fn programs_in_moved_project_are_not_run() {
    let project = Project::git();
    plant_after_run(&project);
    let moved = project.sibling("moved");
    fs::rename(project.path(), &moved).unwrap();
    fs::create_dir(project.path()).unwrap();
    let bin = moved.join(".venv/bin");
    project.git_command(["init", "--quiet"]);
    project.write("agent.sh", DONE);
    let run = project.ralph(["run", "-p", "x", "-n", "1", "--", "/bin/sh", "agent.sh"]);
    run.env("PATH", project.path_with(&[&bin])).run().code(0);
    assert_eq!(project.planted_runs(), Vec::<String>::new());
}
