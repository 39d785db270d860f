//! Checks before a run starts.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::Project;
use crate::{COMPLETE, PLAN, logs, project};

fn ready_project() -> Project {
    project(&json!([{"print": COMPLETE}]))
}

#[track_caller]
fn assert_refused(project: &Project, args: &[&str], code: i32, words: &[&str]) {
    let output = project.ralph(args).run();
    output.code(code);
    for word in words {
        output.stderr_has(word);
    }
    assert!(!project.has(".ralph/runs"), "a run was begun");
    assert_eq!(logs(project), [""; 0]);
}

#[test]
fn mode_commands_require_git_repository() {
    let project = Project::new();
    project.write("specs/x.md", "x").write(PLAN, "x").write("p.md", COMPLETE);
    project.install_agent("robot", &json!([]));
    for args in [&["plan"][..], &["build"], &["prompt", "p.md"]] {
        let args = [args, &["--", "robot"]].concat();
        assert_refused(&project, &args, 2, &["not a git repository", "git init"]);
    }
}

#[test]
fn git_ownership_error_is_shown() {
    let project = ready_project();
    let output = project.ralph(["plan"]).env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1").run();
    output.code(2).stderr_has("dubious ownership").stderr_has("safe.directory");
    assert!(!output.stderr.contains("git init"), "{}", output.stderr);
    let output = project.ralph(["plan"]).env("PATH", "/nowhere").run();
    output.code(2).stderr_has("git was not found");
    assert!(!output.stderr.contains("git init"), "{}", output.stderr);
}

#[test]
fn mode_commands_require_an_agent() {
    let project = ready_project();
    project.write(".ralph/config", "");
    assert_refused(&project, &["plan"], 2, &["no agent configured", "ralph plan … --"]);
    project.write(".ralph/config", "AGENT_CLI=missing-has-this\n");
    assert_refused(&project, &["plan"], 2, &["agent not found: missing-has-this"]);
    project.write(".ralph/config", "AGENT_CLI='robot --fast'\n");
    assert_refused(&project, &["plan"], 2, &["not found: robot --fast", "AGENT_ARGS"]);
    project.write(".ralph/config", "AGNET_CLI=robot\n");
    let words = ["no agent configured", ".ralph/config:1: AGNET_CLI", "did you mean AGENT_CLI?"];
    assert_refused(&project, &["plan"], 2, &words);
    project.write(".ralph/config", "AGENT_TYPE=claudia\n");
    assert_refused(
        &project,
        &["plan"],
        2,
        &[".ralph/config:1 (AGENT_TYPE)", "agent.type", "claude"],
    );
}

#[test]
fn build_requires_plan() {
    let project = ready_project();
    std::fs::remove_file(project.path().join(PLAN)).unwrap();
    assert_refused(
        &project,
        &["build"],
        2,
        &["Implementation plan not found. Run 'ralph plan' first."],
    );
    assert_refused(&project, &["build", "--dry-run"], 2, &["Implementation plan not found."]);
    let missing = "without .ralph/implementation_plan.md";
    project.ralph(["plan"]).run().code(0).stderr_has(missing);
    project.ralph(["report"]).run().stdout_has(missing);
}

#[test]
fn specs_directory_must_exist_if_prompt_names_it() {
    let project = ready_project();
    project.write(".ralph/config", "AGENT_CLI=robot\nSPECS_DIR=docs/specs\n");
    assert_refused(&project, &["plan"], 2, &["not found: docs/specs", "SPECS_DIR"]);
    project.write("docs/specs", "a file");
    assert_refused(&project, &["plan"], 2, &["specs directory is a file: docs/specs"]);
    std::fs::remove_file(project.path().join("docs/specs")).unwrap();
    project.write("docs/specs/x.md", "x");
    project.ralph(["plan"]).run().code(0);
    project.write(".ralph/config", "AGENT_CLI=robot\nSPECS_DIR=nowhere\n");
    project.write(".ralph/prompts/plan.md", "No word of them.");
    project.ralph(["plan"]).run().code(0);
}

#[test]
fn empty_specs_dir_falls_back_to_default() {
    let project = ready_project();
    for config in ["SPECS_DIR=\"\"", "SPECS_DIR=${NOPE}", ""] {
        project.write(".ralph/config", format!("AGENT_CLI=robot\n{config}\n"));
        let output = project.ralph(["plan", "--print-prompt"]).env("SPECS_DIR", "").run();
        let prompt = &output.code(0).stdout;
        assert!(prompt.contains("`specs/`"), "{config}: {prompt}");
    }
}

#[test]
fn prompt_command_requires_completion_signal() {
    let project = ready_project();
    project.write("p.md", "Do it, then say COMPLETE.");
    let signal = "p.md does not contain the completion signal <promise>COMPLETE</promise>";
    assert_refused(&project, &["prompt", "p.md"], 1, &[signal]);
    assert_refused(&project, &["prompt", "p.md", "-c", "OK"], 1, &["<response>OK</response>"]);
    assert_refused(
        &project,
        &["prompt", "-p", "Do it."],
        1,
        &["error: the prompt does not contain"],
    );
    // A variable may contain the signal, and a pattern cannot be checked.
    project.write("p.md", "Do it, then say ${SIGNAL}.");
    project.ralph(["prompt", "p.md"]).env("SIGNAL", COMPLETE).run().code(0);
    project.ralph(["prompt", "p.md", "--done-pattern", "COMPLETE"]).run().code(0);
}

#[test]
fn project_prompt_without_completion_signal_warns() {
    let project = ready_project();
    let warning = "plan.md does not contain the completion signal <promise>COMPLETE</promise>";
    project.write(".ralph/prompts/plan.md", "Plan it.");
    project.ralph(["plan", "1"]).run().code(0).stderr_has(warning);
    project.write(".ralph/prompts/plan.md", format!("Plan it, and say {COMPLETE}."));
    project.ralph(["plan", "1"]).run().code(0).stderr_lacks("completion signal");
}

#[test]
fn print_prompt_shows_warnings_of_run() {
    let project = ready_project();
    std::fs::remove_file(project.path().join(PLAN)).unwrap();
    project.write(".ralph/config", "AGENT_CLI=robot\nA=$NOBODY\nSPECS_DIR=specs/\n");
    std::fs::write(project.path().join("p.md"), b"caf\xe9 in ${SPECS_DIR}/").unwrap();
    let output = project.ralph(["prompt", "p.md", "--print-prompt"]).run();
    output.code(0).stdout_is("caf\u{fffd} in specs/\n").stderr_has("p.md is not UTF-8");
    output.stderr_has("variable NOBODY is not set").stderr_has("does not contain the completion");
    let output = project.ralph(["build", "--print-prompt"]).run();
    output.code(0).stderr_has("Implementation plan not found").stderr_lacks("completion signal");
}

#[test]
fn paths_are_relative_to_project_directory() {
    let project = ready_project();
    project.write("p.md", COMPLETE).write("my.config", "AGENT_CLI=robot\nWHO=me\n");
    let command = ["-C", "..", "prompt", "p.md", "--config", "my.config", "--print-prompt"];
    let specs = project.path().join("specs");
    project.ralph(command).current_dir(&specs).run().code(0).stdout_has(COMPLETE);
    project.ralph(["-C", "..", "prompt", "none.md"]).current_dir(&specs).run().code(2);
}

#[test]
fn git_error_about_repository_is_shown() {
    let project = ready_project();
    project.command("rm").args(["-r", ".git"]).status().unwrap();
    project.write(".git", "nonsense");
    assert_refused(&project, &["plan"], 2, &["git cannot use the repository", "gitfile"]);
    std::fs::remove_file(project.path().join(".git")).unwrap();
    assert_refused(&project, &["plan"], 2, &["not a git repository", "git init"]);
    project.command("git").args(["init", "-q", "--bare", "."]).status().unwrap();
    assert_refused(&project, &["plan"], 2, &["no work tree in"]);
}

#[test]
fn invalid_prompt_files_are_refused() {
    let project = ready_project();
    project.write(".ralph/prompts/plan.md/x", "").write("empty.md", " \n");
    assert_refused(&project, &["plan"], 2, &["prompt file is a directory", "prompts/plan.md"]);
    assert_refused(&project, &["prompt", "specs"], 2, &["prompt file is a directory"]);
    assert_refused(&project, &["prompt", "nowhere.md"], 2, &["prompt file not found: nowhere.md"]);
    assert_refused(&project, &["prompt", "empty.md"], 2, &["prompt file is empty"]);
    assert_refused(&project, &["prompt"], 2, &["<FILE>"]);
    // A dangling link is an error, not a reason to use the default prompt.
    std::os::unix::fs::symlink("nowhere", project.path().join(".ralph/prompts/build.md")).unwrap();
    assert_refused(&project, &["build"], 2, &["prompt file not found"]);
    for name in ["config", "settings.json"] {
        let path = project.path().join(".ralph").join(name);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert_refused(&project, &["prompt", "-p", "x", "--print-prompt"], 2, &[name]);
        std::fs::remove_file(&path).unwrap();
        project.write(&format!(".ralph/{name}"), if name == "config" { "" } else { "{}" });
    }
}

#[test]
fn invalid_iteration_limits_are_refused() {
    let project = ready_project();
    project.write("p.md", COMPLETE);
    for limit in ["0", "-1", "x", "1.5", "99999999999"] {
        for args in [&["plan", limit][..], &["build", limit], &["prompt", "p.md", limit]] {
            assert_refused(&project, args, 2, &[limit, "must be a whole number from 1"]);
        }
        let config = format!("AGENT_CLI=robot\nMAX_ITERATIONS={limit}\n");
        project.write("other", config);
        assert_refused(&project, &["plan", "--config", "other"], 2, &["other:2 (MAX_ITERATIONS)"]);
    }
    assert_refused(&project, &["plan", "3", "-n", "4"], 2, &["cannot be used with"]);
}

#[test]
fn unwritable_ralph_directory_is_error() {
    if rustix::process::geteuid().is_root() {
        return crate::support::skipped("root may write everywhere");
    }
    let project = ready_project();
    let dir = project.path().join(".ralph");
    let permit =
        |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
    permit(0o555);
    let output = project.ralph(["plan"]).run();
    permit(0o755);
    output.code(2).stderr_has("cannot write").stderr_has("make it writable");
}

#[test]
fn unwritable_log_directory_is_found_before_start() {
    let project = ready_project();
    project.write(".ralph/logs", "a file");
    let output = project.ralph(["plan"]).run();
    output.code(2).stderr_has(".ralph/logs").stderr_has("move the existing file away");
    project.ralph(["runs"]).run().code(0).stdout_lacks("1970");
    std::fs::remove_file(project.path().join(".ralph/logs")).unwrap();
    project.ralph(["plan"]).run().code(0).stderr_lacks("cut off");
}

#[test]
fn dry_run_describes_run_and_writes_nothing() {
    let project = ready_project();
    let output = project.ralph(["build", "7", "--dry-run"]).run();
    output.code(0).stdout_has("robot").stdout_has("the built-in build prompt");
    output.stdout_has("<promise>COMPLETE</promise>").stdout_has("7 iterations");
    output.stdout_has("settings.json, .ralph/config").stdout_has("`.ralph/implementation_plan.md`");
    project.ralph(["plan", "1", "--dry-run"]).run().code(0).stdout_has("1 iteration\n");
    assert!(!project.has(".ralph/runs"));
}

#[test]
fn file_in_place_of_ralph_directory_is_error() {
    let project = Project::git();
    project.write(".ralph", "a file").write("p.md", COMPLETE).write("specs/x.md", "x");
    project.install_agent("robot", &json!([]));
    for args in [&["plan"][..], &["build"], &["prompt", "p.md"], &["run", "-p", "x"]] {
        let output = project.ralph([args, &["--", "robot"]].concat()).run();
        output.code(2).stderr_has("not a directory:").stderr_has("move the existing file away");
    }
    project.ralph(["runs"]).run().code(2).stderr_has("not a directory:");
}

#[test]
fn named_pipes_are_refused_except_from_shell() {
    let project = ready_project();
    for name in ["pipe", ".ralph/prompts/plan.md"] {
        project.write(&format!("{name}.dir/x"), "");
        let status = project.command("mkfifo").arg(name).status().expect("mkfifo");
        assert!(status.success());
    }
    assert_refused(&project, &["prompt", "pipe"], 2, &["prompt file", "a named pipe", "with -f -"]);
    assert_refused(&project, &["plan"], 2, &["prompts/plan.md", "a named pipe"]);
    assert_refused(&project, &["build", "--config", "pipe"], 2, &["pipe: ", "a named pipe"]);
    assert_refused(&project, &["build", "--settings", "pipe"], 2, &["pipe: ", "a named pipe"]);
    let script = format!(
        "'{}' prompt <(echo 'Say {COMPLETE}') --config <(echo AGENT_CLI=robot)",
        env!("CARGO_BIN_EXE_ralph")
    );
    let output = project.command("bash").args(["-c", &script]).output().expect("bash");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn plan_that_is_a_directory_is_refused() {
    let project = ready_project();
    std::fs::remove_file(project.path().join(PLAN)).unwrap();
    project.write(&format!("{PLAN}/x"), "");
    let words = ["Implementation plan not found. Run 'ralph plan' first.", "is not a file"];
    assert_refused(&project, &["build"], 2, &words);
}

#[test]
fn subdirectory_of_project_is_refused() {
    let commands: [&[&str]; 10] = [
        &["plan"],
        &["build"],
        &["prompt", "../p.md"],
        &["run", "-p", "x"],
        &["work"],
        &["settings"],
        &["runs"],
        &["replay"],
        &["new", "Thing"],
        &["tasks"],
    ];
    for set_up in [".ralph/config", ".ralph/settings.json", ".ralph/prompts/plan.md", PLAN] {
        let project = Project::git();
        project.write("p.md", COMPLETE).write("sub/specs/x.md", "x");
        project.write(set_up, if set_up.ends_with("json") { "{}" } else { "" });
        project.install_agent("robot", &json!([{"print": COMPLETE}]));
        for args in commands {
            let output = project.ralph(args).current_dir(project.path().join("sub")).run();
            output.code(2).stderr_has("sub is inside the project ").stderr_has("with -C /");
        }
        assert!(!project.has("sub/.ralph") && !project.has("sub/ralph"), "{set_up}");
    }
    // A directory with runs is the project, also from below: two runs must not share its files.
    let project = Project::git();
    project.write("sub/p.md", COMPLETE);
    project.install_agent("robot", &json!([{"print": COMPLETE}]));
    let run = |dir: &str| {
        let args = ["prompt", "p.md", "--", "robot"];
        project.ralph(args).current_dir(project.path().join(dir)).run()
    };
    project.write("p.md", COMPLETE);
    run(".").code(0);
    run("sub").code(2).stderr_has("is inside the project ");
    project.write("sub/.ralph/config", "");
    run("sub").code(0);
    project.write("other/p.md", COMPLETE).git_command(["init", "-q", "other"]);
    run("other").code(0);
    // Outside a repository, runs in a parent directory belong to another project.
    let project = Project::new();
    project.write("sub/keep", "");
    project.install_agent("robot", &json!([{"print": "<response>DONE</response>"}]));
    for dir in [".", "sub"] {
        let args = ["run", "-p", "x", "--", "robot"];
        project.ralph(args).current_dir(project.path().join(dir)).run().code(0);
    }
}

#[test]
fn plan_with_empty_specs_directory_warns() {
    let project = ready_project();
    let specs = project.path().join("specs");
    std::fs::remove_dir_all(&specs).expect("the specifications");
    std::fs::create_dir(&specs).expect("a directory");
    project.ralph(["plan", "-n", "1"]).run().code(0).stderr_has("specs/ is empty");
}
