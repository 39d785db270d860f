//! Docker sandboxes with a fake `sbx` that records its calls; nothing here has seen a real one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::{Project, Ralph};

const FAKE_SBX: &str = include_str!("../support/sbx.sh");

fn install_fake_sbx(project: &Project, name: &str) {
    let path = project.sibling("bin").join(name);
    fs::write(&path, FAKE_SBX).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The calls since the last time, each word in angle brackets.
fn calls(project: &Project) -> Vec<String> {
    let path = project.sibling("bin").join("calls");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text.lines().map(str::to_owned).collect()
}

fn run(project: &Project, args: &[&str]) -> Ralph {
    project.write(
        "agent.sh",
        "cat > prompt; echo \"$RALPH_ITERATION\"; echo '<response>DONE</response>'\n",
    );
    project.ralph(["run", "--sandbox=docker", "-p", "Work.", "-n", "1"]).args(args)
}

#[test]
fn docker_sandbox_is_created_once_and_reused() {
    let project = Project::new();
    install_fake_sbx(&project, "sbx");
    project.settings(&json!({
        "guardrails": [{"command": "test -e prompt", "failAction": "APPEND"}],
        "sandbox": {"allowedDomains": ["api.example.com"]},
    }));
    run(&project, &["--", "sh", "agent.sh"]).run().code(0);
    assert_eq!(project.read("prompt"), "Work.");
    let first = calls(&project);
    let name = fs::read_to_string(project.sibling("bin").join("made")).unwrap();
    let name = name.trim();
    let (dir, state) = (project.path().display(), project.home().join(".ralph/docker"));
    let state = state.display();
    assert_eq!(first[0], "<ls><--json>");
    assert_eq!(first[1], format!("<create><--name><{name}><claude><{dir}><{state}>"));
    assert!(
        first[2].starts_with(&format!("<exec><-u><root><{name}><bash><-c><#!/usr/bin/env bash"))
    );
    assert!(first[2].ends_with(&format!("<setup.sh><{state}><{state}/ralph>")), "{}", first[2]);
    assert_eq!(
        first[3],
        format!("<policy><allow><network><--sandbox><{name}><api.example.com:443>")
    );
    assert!(first[4].starts_with(&format!("<exec><{name}><sh><-c>")), "{}", first[4]);
    assert!(first[5].starts_with(&format!("<exec><-i><-w><{dir}><-e><")), "{}", first[5]);
    for variable in
        ["GIT_AUTHOR_NAME=Tess Ter", "GIT_COMMITTER_EMAIL=tess@example.com", "RALPH_RUN_ID="]
    {
        assert!(first[5].contains(&format!("<-e><{variable}")), "{variable}: {}", first[5]);
    }
    assert!(first[5].ends_with(&format!("<{name}><sh><agent.sh>")), "{}", first[5]);
    assert!(first[6].ends_with("<sh><-c><test -e prompt>"), "{}", first[6]);
    assert_eq!(first.last().unwrap(), &format!("<stop><{name}>"));
    assert_eq!(project.events().find("sandbox_ready")["backend"], "docker");

    run(&project, &["--", "sh", "agent.sh"]).run().code(0);
    assert!(!calls(&project).iter().any(|call| call.contains("create") || call.contains("setup")));

    project.ralph(["sandbox", "ls"]).run().code(0).stdout_has(name);
    project.ralph(["sandbox", "stop", name]).run().code(0);
    project.ralph(["sandbox", "rm", name]).run().code(0);
    let managed = calls(&project);
    assert!(
        managed.contains(&format!("<stop><{name}>"))
            && managed.contains(&format!("<rm><-f><{name}>"))
    );
    project.ralph(["sandbox", "stop", name]).run().code(2);
}

#[test]
fn docker_runs_claude_as_sandbox_agent_with_older_cli() {
    let project = Project::new();
    install_fake_sbx(&project, "docker");
    project.install_agent("claude", &json!([]));
    let output =
        run(&project, &["--no-stream-agent-output", "--", "claude", "--model", "opus"]).run();
    output.code(0);
    let calls = calls(&project);
    let run = calls.iter().find(|call| call.starts_with("<run>")).unwrap();
    assert!(run.starts_with("<run><ralph-project-"), "{run}");
    assert!(run.contains("<-p>") && run.contains("<--model><opus>"), "{run}");
    let id = project.newest_run();
    let id = id.file_name().unwrap().to_str().unwrap();
    assert!(run.contains("><--><--settings><{\"env\":{"), "{run}");
    assert!(run.contains(&format!("\"RALPH_RUN_ID\":\"{id}\"")), "{run}");
}

#[test]
fn docker_uses_existing_login_state() {
    for exists in [false, true] {
        let project = Project::new();
        install_fake_sbx(&project, "sbx");
        let state = project.home().join(".dclaude_state");
        if exists {
            fs::create_dir(&state).unwrap();
        }
        run(&project, &["--", "sh", "-c", "echo '<response>DONE</response>'"]).run().code(0);
        let calls = calls(&project);
        let create = calls.iter().find(|call| call.starts_with("<create>")).unwrap();
        assert_eq!(create.contains(".dclaude_state>"), exists, "{create}");
    }
}

#[test]
fn docker_reads_task_list_inside_vm() {
    let project = Project::new();
    install_fake_sbx(&project, "sbx");
    let list = json!({"project": "p", "branchName": "b", "description": "", "userStories": [{
        "id": "a", "title": "A", "description": "", "acceptanceCriteria": ["it works"], "priority": 1,
        "passes": false, "notes": "", "dependsOn": [],
    }]});
    project.write("ralph/tasks.json", list.to_string());
    let agent = [
        "sh",
        "-c",
        r#"sed -i 's/"passes":false/"passes":true/; s/"notes":""/"notes":"x"/' ralph/tasks.json; echo done"#,
    ];
    let work = project.ralph(["work", "--sandbox=docker", "-n", "1", "--"]).args(agent);
    work.run().code(0);
    let calls = calls(&project);
    assert!(
        calls.iter().any(|call| call.contains("<cat><--><") && call.contains("tasks.json>")),
        "{calls:?}"
    );
}

#[test]
fn docker_sandbox_failing_setup_is_removed() {
    let project = Project::new();
    install_fake_sbx(&project, "sbx");
    let script = FAKE_SBX.replace("*setup.sh*) ;;", "*setup.sh*) echo no user >&2; exit 1 ;;");
    fs::write(project.sibling("bin").join("sbx"), script).unwrap();
    run(&project, &["--", "sh", "agent.sh"]).run().code(2).stderr_has("no user");
    assert!(calls(&project).iter().any(|call| call.starts_with("<rm><-f>")));
    assert!(!project.sibling("bin").join("made").exists());
}

/// Makes `create` and the probe fail for directories that do not match a shell pattern.
fn works_only_in(project: &Project, pattern: &str) {
    let create = format!(
        "create) case \"$5\" in {pattern}) ;; *) echo cannot share it >&2; exit 1 ;; esac; echo"
    );
    let script = FAKE_SBX.replace("create) echo", &create);
    assert_ne!(script, FAKE_SBX);
    fs::write(project.sibling("bin").join("sbx"), script).unwrap();
}

#[test]
fn docker_failure_only_in_project_is_error() {
    let project = Project::new();
    install_fake_sbx(&project, "sbx");
    let go = |args: &[&str]| run(&project, args).args(["--", "sh", "agent.sh"]).run();
    works_only_in(&project, "*/sandboxes/run-*/project");
    let output = go(&[]);
    output
        .code(2)
        .stderr_has("docker works on this machine, but not in")
        .stderr_has("cannot share");
    assert!(!project.has("prompt"), "no agent was started");
    let made = calls(&project);
    assert!(made.last().unwrap().starts_with("<rm><-f><ralph-project-"), "{made:?}");
    works_only_in(&project, "nowhere");
    go(&[]).code(2).stderr_has("sandbox docker: ").stderr_lacks("works on this machine");
}

#[test]
fn docker_undoes_permission_changes_by_agent() {
    let project = Project::git();
    install_fake_sbx(&project, "sbx");
    project.write("agent.sh", "chmod 0 .git .ralph .; echo '<response>DONE</response>'\n");
    let args = ["run", "--sandbox=docker", "-p", "Work.", "-n", "1", "--", "sh", "agent.sh"];
    project.ralph(args).run().code(0).stderr_has("permissions were changed inside the sandbox");
    for name in [".git", ".ralph", ""] {
        let mode = fs::metadata(project.path().join(name)).unwrap().permissions().mode();
        assert_ne!(mode & 0o777, 0, "{name}");
    }
}
