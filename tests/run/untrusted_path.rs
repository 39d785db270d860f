//! Programs that an agent planted on the `PATH` are not run outside the sandbox.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use crate::support::Project;
use crate::{DONE, run};

/// Programs that ralph runs outside the sandbox, and agents whose version it asks for.
const PLANTED: [&str; 9] =
    ["git", "sh", "tmux", "bwrap", "docker", "sbx", "claude", "codex", "notify"];

/// Plants programs and returns the `PATH` entries that lead to them.
type Scene = fn(&Project) -> Vec<OsString>;

const SCENES: [(&str, Scene); 6] = [
    ("virtual environment", |project| planted_in(project, ".venv/bin")),
    ("node_modules", |project| planted_in(project, "node_modules/.bin")),
    ("relative entries", |project| {
        project.plant_programs(project.path(), &PLANTED);
        project.plant_programs(&project.path().join("bin"), &PLANTED);
        vec![".".into(), "bin".into(), "".into()]
    }),
    ("link to a directory", |project| {
        planted_in(project, "tools");
        let link = project.sibling("tools");
        symlink(project.path().join("tools"), &link).expect("a link");
        vec![link.into()]
    }),
    ("links to programs", |project| {
        planted_in(project, "tools");
        let dir = project.sibling("tools");
        std::fs::create_dir(&dir).expect("a directory");
        // Not `notify`: a link that the user's own command names is followed.
        for name in PLANTED.iter().filter(|name| **name != "notify") {
            symlink(project.path().join("tools").join(name), dir.join(name)).expect("a link");
        }
        vec![dir.into()]
    }),
    ("another project", |project| {
        let other = project.sibling("other");
        std::fs::create_dir(&other).expect("another project");
        run(project, &["-p", "x"], &json!([{"print": DONE}])).current_dir(&other).run().code(0);
        project.plant_programs(&other.join("bin"), &PLANTED);
        vec![other.join("bin").into()]
    }),
];

fn planted_in(project: &Project, dir: &str) -> Vec<OsString> {
    let dir: PathBuf = project.path().join(dir);
    project.plant_programs(&dir, &PLANTED);
    vec![dir.into()]
}

#[test]
fn planted_programs_are_never_run() {
    for (name, scene) in SCENES {
        let project = Project::git();
        let path = project.path_with(&scene(&project));
        project.settings(&json!({
            "scm": {"command": "git", "tasks": ["commit"]},
            "notify": {"command": "touch ../notified; notify x"},
            "agent": {"displayFilter": "cat; notify x"},
            "guardrails": [{"command": "test -e work", "failAction": "APPEND"}],
        }));
        project.write("work", "w");
        project.write(".gitignore", "*\n!work\n");
        let script =
            json!({"sessions": [[{"print": DONE}]], "commit_message": [{"print": "Work"}]});
        let run = run(&project, &["-p", "x"], &script).env("PATH", &path).run();
        run.code(0);
        assert_eq!(project.git_command(["log", "--format=%s"]), "Work\n", "{name}");
        assert!(project.sibling("notified").exists(), "{name}: notify.command was run");
        project.ralph(["report"]).env("PATH", &path).run().code(0).stdout_has("Work");
        for command in
            [&["runs"][..], &["replay"], &["doctor"], &["sandbox", "check"], &["sandbox", "ls"]]
        {
            project.ralph(command).env("PATH", &path).run();
        }
        assert_eq!(project.planted_runs(), Vec::<String>::new(), "{name}");
        let agents = project.ralph(["agents"]).env("PATH", &path).run();
        agents.code(0);
        agents.stdout_has("claude    not used: agents can change it");
        assert_eq!(project.planted_runs(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn program_found_only_in_project_is_error() {
    let project = Project::git();
    let dir = project.path().join(".venv/bin");
    project.plant_programs(&dir, &["hg"]);
    project.settings(&json!({"scm": {"command": "hg", "tasks": ["commit"]}}));
    let path = project.path_with(&[&dir]);
    let script = json!([{"print": DONE}]);
    let only = format!("hg was found only in {}, which agents can write to", dir.display());
    let output = run(&project, &["-p", "x"], &script).env("PATH", &path).run();
    output.code(2).stderr_has(&only).stderr_has("install it outside the project");
    // An absolute path typed by the user is trusted.
    project.settings(&json!({"scm": {"command": dir.join("hg"), "tasks": ["commit"]}}));
    run(&project, &["-p", "x"], &script).env("PATH", &path).run().code(0);
    assert_eq!(project.planted_runs().len(), 1);
}

#[test]
fn checks_and_unsandboxed_agents_use_path_of_user() {
    let project = Project::new();
    let dir = project.path().join(".venv/bin");
    project.plant_programs(&dir, &["pytest", "robot"]);
    let path = project.path_with(&[&dir]);
    project.settings(&json!({"guardrails": [{"command": "pytest -q", "failAction": "APPEND"}]}));
    project.ralph(["run", "-p", "x", "-n", "1", "--", "robot"]).env("PATH", &path).run().code(1);
    let runs = project.planted_runs();
    assert!(runs.iter().any(|line| line.ends_with("bin/robot ")), "{runs:?}");
    assert!(runs.iter().any(|line| line.ends_with("bin/pytest -q")), "{runs:?}");
}

#[test]
fn commit_hooks_get_path_of_trusted_directories() {
    let project = Project::git();
    let dir = project.path().join(".venv/bin");
    project.plant_programs(&dir, &["linter"]);
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    project.write("work", "w");
    project.write(".git/hooks/pre-commit", "#!/bin/sh\necho \"$PATH\" > ../hook-path\n");
    let hook = project.path().join(".git/hooks/pre-commit");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(hook, mode).expect("an executable hook");
    let script = json!({"sessions": [[{"print": DONE}]], "commit_message": [{"print": "Work"}]});
    run(&project, &["-p", "x"], &script).env("PATH", project.path_with(&[&dir])).run().code(0);
    let path = std::fs::read_to_string(project.sibling("hook-path")).expect("the hook ran");
    assert!(!path.contains(".venv") && path.contains("/bin"), "{path}");
}

#[test]
fn home_as_project_still_finds_system_git() {
    let project = Project::git();
    let dir = project.path().join(".local/bin");
    project.plant_programs(&dir, &["git"]);
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    project.write("work", "w");
    let script = json!({"sessions": [[{"print": DONE}]], "commit_message": [{"print": "Work"}]});
    let output = run(&project, &["-p", "x"], &script)
        .env("HOME", project.path())
        .env("RALPH_HOME", project.sibling("ralph-home"))
        .env("PATH", project.path_with(&[&dir]))
        .run();
    output.code(0);
    assert_eq!(project.git_command(["log", "--format=%s"]), "Work\n");
    assert_eq!(project.planted_runs(), Vec::<String>::new());
}
