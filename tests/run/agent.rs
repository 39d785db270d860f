//! Agent command lines and environments.

use serde_json::{Value, json};

use crate::support::{LONG, Project, wait_until};
use crate::{DONE, argv, prompts, recorded_steps, run, run_id, run_with, sessions};

fn arguments(settings: &Value, args: &[&str], stream: &Value) -> Vec<String> {
    let project = Project::new();
    let agent = settings["agent"]["command"].as_str().expect("an agent");
    project.install_agent(agent, &recorded_steps(&project, stream));
    project.settings(settings);
    project.ralph(["run", "-p", "do it", "-n", "1"]).args(args).run().code(0);
    assert_eq!(prompts(&project), ["do it"], "by standard input");
    assert_eq!(project.agent_starts()[0]["stdin_eof"], true);
    argv(&project).remove(0)
}

fn claude() -> Value {
    json!([{"claude": {"text": DONE}}, {"claude": {"result": {}}}])
}

fn codex() -> Value {
    json!([{"codex": {"text": DONE}}, {"codex": {"result": {}}}])
}

const PLAIN: &[&str] = &["--no-stream-agent-output"];

#[test]
fn claude_command_line_matches_settings() {
    let plain = json!([{"print": DONE}]);
    let settings = |agent: Value| json!({"agent": agent});
    for (settings, args, stream, expected) in [
        (
            settings(json!({"command": "claude"})),
            &[][..],
            claude(),
            "-p --output-format stream-json --verbose --dangerously-skip-permissions --settings HOOK",
        ),
        (
            settings(json!({"command": "claude"})),
            PLAIN,
            plain,
            "-p --output-format text --dangerously-skip-permissions --settings HOOK",
        ),
        (
            settings(
                json!({"command": "claude", "autonomous": false, "flags": ["--model opus", "--append-system-prompt=be brief"]}),
            ),
            &[],
            claude(),
            "-p --output-format stream-json --verbose --model opus --append-system-prompt=be+brief",
        ),
        (
            settings(json!({"command": "claude", "autonomous": false})),
            &["--model", "haiku"],
            claude(),
            "-p --output-format stream-json --verbose --model haiku",
        ),
    ] {
        // Without a sandbox, it asks ralph before each tool call.
        let hook = json!({"hooks": {"PreToolUse": [{"hooks": [{
            "type": "command",
            "command": env!("CARGO_BIN_EXE_ralph"),
            "args": ["hook", "pre-tool-use"],
            "timeout": 10,
        }]}]}});
        let argv = arguments(&settings, args, &stream);
        let argv = argv.iter().map(|arg| match serde_json::from_str::<Value>(arg) {
            Ok(settings) if settings == hook => "HOOK".to_owned(),
            _ => arg.clone(),
        });
        let argv: Vec<String> = argv.collect();
        // A plus stands for a space inside an argument.
        let argv: Vec<String> = argv.iter().map(|arg| arg.replace(' ', "+")).collect();
        assert_eq!(argv.join(" "), expected);
    }
}

#[test]
fn codex_command_line_matches_settings() {
    let settings = json!({"agent": {"command": "codex", "flags": ["--model o3"]}});
    let mut structured = arguments(&settings, &[], &codex());
    let at = structured.iter().position(|arg| arg == "--add-dir").expect("a git directory") + 1;
    let git = std::path::PathBuf::from(structured.remove(at));
    assert!(git.is_absolute() && git.ends_with(".git"), "{}", git.display());
    assert_eq!(
        structured.join(" "),
        "exec --json --skip-git-repo-check -s workspace-write --add-dir --model o3 -"
    );
    let plain = arguments(&settings, PLAIN, &json!([{"answer": DONE}]));
    let at = plain.iter().position(|arg| arg == "-o").expect("an answer file");
    assert!(plain[at + 1].ends_with(".ralph/side_001.txt"), "{plain:?}");
    assert!(!plain.contains(&"--json".to_owned()));
}

#[test]
fn agent_without_tools_in_three_iterations_warns_once() {
    let project = Project::new();
    let stream = json!([
        {"stderr": "bwrap: Can't mkdir /x/.git"}, {"claude": {"text": "not yet"}}, {"claude": {"result": {}}},
    ]);
    project.install_agent("claude", &stream);
    let run = |n: &str| project.ralph(["run", "-p", "x", "--agent", "claude", "-n", n]).run();
    run("2").code(1).stderr_lacks("used no tools");
    let output = run("7");
    output.code(1).stderr_has("Last lines of its stderr: bwrap: Can't mkdir /x/.git");
    assert_eq!(output.stderr.matches("claude used no tools in 3 iterations").count(), 1);
    project.install_agent("other", &json!([{"print": "not yet"}]));
    let other = project.ralph(["run", "-p", "x", "--agent", "other", "-n", "3"]).run();
    other.code(1).stderr_lacks("used no tools");
}

#[test]
fn agent_without_git_config_gets_identity_of_user() {
    let project = Project::git();
    let identity = "[user]\nname = Ann\nemail = ann@example.com\n";
    std::fs::write(project.home().join(".gitconfig"), identity).unwrap();
    let look = "GIT_CONFIG_GLOBAL=/dev/null; export GIT_CONFIG_GLOBAL; \
                git var GIT_AUTHOR_IDENT >../author; git var GIT_COMMITTER_IDENT >../committer";
    let agent = project.fake_agent(&json!([{"shell": look}, {"print": DONE}]));
    let identities = |settings: Value, variables: &[(&str, &str)]| {
        project.settings(&settings);
        let mut ralph = project.ralph(["run", "-p", "x", "--"]).args(&agent).without_git_identity();
        for (name, value) in variables {
            ralph = ralph.env(name, value);
        }
        ralph.run().code(0);
        ["../author", "../committer"].map(|file| {
            let ident = project.read(file);
            ident.split_inclusive('>').next().unwrap_or_default().to_owned()
        })
    };
    let ann = "Ann <ann@example.com>";
    assert_eq!(identities(json!({}), &[]), [ann, ann]);
    let variables = [("GIT_AUTHOR_NAME", "Bea")];
    assert_eq!(identities(json!({}), &variables), ["Bea <ann@example.com>", ann]);
    let settings = json!({"agent": {"env": {"GIT_COMMITTER_EMAIL": "bot@example.com"}}});
    assert_eq!(identities(settings, &[]), [ann, "Ann <bot@example.com>"]);
}

#[test]
fn secret_argument_reaches_only_the_agent() {
    let project = Project::new();
    project.install_agent("my-agent", &recorded_steps(&project, &json!([{"print": DONE}])));
    project.settings(&json!({"agent": {
        "command": "my-agent", "flags": ["--api-key", "s3cr3t", "--token=s3cr3t", "--key s3cr3t"],
    }}));
    let output = project.ralph(["run", "--verbose", "-p", "do it"]).run();
    output.code(0).stdout_lacks("s3cr3t").stderr_lacks("s3cr3t").stderr_has("--api-key");
    let argv = &argv(&project)[0];
    assert_eq!(argv[..5], ["--api-key", "s3cr3t", "--token=s3cr3t", "--key", "s3cr3t"]);
    let journal = std::fs::read_to_string(project.newest_run().join("events.jsonl")).unwrap();
    assert!(!journal.contains("s3cr3t"), "{journal}");
    project.ralph(["settings"]).run().code(0).stdout_lacks("s3cr3t");
}

#[test]
fn agent_files_are_ignored_by_git() {
    let project = Project::git();
    let files = ".ralph/side_001.txt .ralph/prompt_001.txt";
    let look = format!("git check-ignore {files} >../ignored");
    let agent = project.fake_agent(&json!([{"shell": look}, {"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    assert_eq!(project.read("../ignored"), files.replace(' ', "\n") + "\n");
}

#[test]
fn amp_command_line_matches_settings() {
    let settings = json!({"agent": {"command": "amp", "flags": ["--visibility private"]}});
    let result =
        json!({"json": {"type": "result", "subtype": "success", "is_error": false, "result": ""}});
    assert_eq!(
        arguments(&settings, &[], &json!([{"claude": {"text": DONE}}, result])).join(" "),
        "--visibility private --stream-json --dangerously-allow-all -x"
    );
    assert_eq!(
        arguments(&settings, PLAIN, &json!([{"print": DONE}])).join(" "),
        "--visibility private --dangerously-allow-all -x"
    );
}

#[test]
fn command_after_dashes_is_passed_word_by_word() {
    let project = Project::new();
    let words = ["--model opus", "", "$HOME", "a'b", "--", "-x"];
    let script = json!([project.record_step(), {"print": DONE}]);
    run(&project, &["-p", "do it"], &script).args(words).run().code(0);
    assert_eq!(argv(&project), [words]);
}

#[test]
fn command_line_agent_ignores_flags_from_settings() {
    let project = Project::new();
    project.settings(
        &json!({"agent": {"command": "claude", "flags": ["--model", "opus"], "type": "claude"}}),
    );
    let script = json!([project.record_step(), {"print": DONE}]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    project.ralph(["run", "-p", "do it", "--agent", "robot"]).run().code(0);
    assert_eq!(argv(&project), [[""; 0], [""; 0]]);
}

#[test]
fn agent_program_with_space_is_not_split() {
    let project = Project::with_awkward_path();
    project.install_agent("my agent", &json!([project.record_step(), {"print": DONE}]));
    project.settings(&json!({"agent": {"command": "my agent"}}));
    project.ralph(["run", "-p", "do it"]).run().code(0);
    assert_eq!(project.agent_starts()[0]["cwd"], project.path().to_str().unwrap());
}

#[test]
fn agent_environment_is_inherited_with_changes() {
    let project = Project::new();
    project.settings(&json!({"agent": {
        "env": {"ADDED": "yes", "CHANGED": "new"}, "envExclude": ["SECRET_TOKEN"],
    }}));
    let script = json!([project.record_step(), {"shell": "test $RALPH_ITERATION -lt 2 || echo '<response>DONE</response>'"}]);
    run(&project, &["-p", "do it", "-n", "5"], &script)
        .env("CHANGED", "old")
        .env("KEPT", "as it was")
        .env("SECRET_TOKEN", "hunter2")
        .env("RALPH_ITERATION", "77")
        .run()
        .code(0);
    let id = run_id(&project);
    let records = project.agent_starts();
    for (record, iteration) in records.iter().zip(["1", "2"]) {
        let env = &record["env"];
        for (name, value) in [
            ("ADDED", json!("yes")),
            ("CHANGED", json!("new")),
            ("KEPT", json!("as it was")),
            ("SECRET_TOKEN", json!(null)),
            ("RALPH_RUN_ID", json!(id)),
            ("RALPH_ITERATION", json!(iteration)),
            ("RALPH_MAX_ITERATIONS", json!("5")),
        ] {
            assert_eq!(env[name], value, "{name}");
        }
    }
    assert_eq!(records.len(), 2);
}

#[test]
fn prompt_is_passed_as_argument_file_or_stdin() {
    for prompt in ["do it", "--help", "- a list\n- of things"] {
        let project = Project::new();
        project.install_agent("robot", &json!([project.record_step(), {"print": DONE}]));
        let via = |via: &str| {
            project.settings(
                &json!({"agent": {"command": "robot", "flags": ["-v"], "promptVia": via}}),
            );
            project.ralph(["run".to_owned(), format!("--prompt={prompt}")]).run().code(0);
            assert!(!project.has(".ralph/prompt_001.txt"), "written for the agent only");
        };
        via("argument");
        via("file");
        via("stdin");
        let argv = argv(&project);
        assert_eq!(argv[0], ["-v", prompt]);
        assert!(argv[1][1].ends_with(".ralph/prompt_001.txt"), "{argv:?}");
        assert_eq!(argv[2], ["-v"]);
        assert_eq!(prompts(&project), ["", "", prompt], "standard input is at its end");
    }
}

#[test]
fn prompt_file_exists_while_agent_runs() {
    let project = Project::new();
    project.settings(&json!({"agent": {"command": "sh", "flags": ["-c", "cat \"$0\"; cat \"$0\" > seen; echo '<response>OK</response>'"], "promptVia": "file"}}));
    project.ralph(["run", "-p", "read this", "-c", "OK"]).run().code(0);
    assert_eq!(project.read("seen"), "read this");
}

#[test]
fn known_agents_accept_prompt_starting_with_dash() {
    for (agent, stream, expected) in
        [("claude", claude(), vec!["--", "--help"]), ("codex", codex(), vec!["--", "--help"])]
    {
        let project = Project::new();
        project.install_agent(agent, &recorded_steps(&project, &stream));
        project.settings(&json!({"agent": {"command": agent, "promptVia": "argument"}}));
        project.ralph(["run", "--prompt=--help"]).run().code(0);
        let argv = argv(&project).remove(0);
        assert_eq!(argv[argv.len() - 2..], expected, "{agent}");
    }
}

#[test]
fn agent_runs_in_project_directory() {
    let project = Project::new();
    project.write("PROMPT.md", "in the project").write("sub/keep", "");
    std::fs::write(project.sibling("PROMPT.md"), "beside the project").unwrap();
    let script = json!([project.record_step(), {"print": DONE}]);
    project.install_agent("robot", &script);
    for flag in ["-C", "-d", "--project-dir"] {
        let dir = project.path().to_str().unwrap();
        let ralph = project.ralph(["run", flag, dir, "-f", "PROMPT.md", "--", "robot"]);
        ralph.current_dir(project.sibling("")).run().code(0);
        // Global flags may come first, as with git.
        let ralph = project.ralph([flag, dir, "run", "-f", "PROMPT.md", "--", "robot"]);
        ralph.current_dir(project.sibling("")).run().code(0);
    }
    for record in project.agent_starts() {
        assert_eq!(record["cwd"], project.path().to_str().unwrap());
        // Relative paths are resolved there, as with git.
        assert_eq!(record["prompt"], "in the project");
    }
    assert!(!std::path::Path::new(&project.sibling(".ralph")).exists());
    assert!(project.has(".ralph/runs"));
}

#[test]
fn processes_left_by_agent_are_ended_and_reported() {
    let project = Project::new();
    let pid_file = project.sibling("tool.pid");
    let script = json!([{"stray": {"pid_file": pid_file}}, {"print": DONE}]);
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(0).stderr_has("that the agent left behind");
    assert_eq!(project.processes(), []);
    let events = project.events();
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert_eq!(events.find("leftovers")["processes"][0]["pid"], pid);
}

#[test]
fn processes_left_by_agent_can_be_kept() {
    let project = Project::new();
    project.settings(&json!({"agent": {"keepBackground": true}}));
    let script = json!([{"stray": {"pid_file": project.sibling("tool.pid")}}, {"print": DONE}]);
    run(&project, &["-p", "do it"], &script).run().code(0);
    assert_eq!(project.processes().len(), 1);
    assert_eq!(project.events().find("leftovers")["kept"], true);
}

#[test]
fn disabled_approvals_are_warned_about_once() {
    let project = Project::new();
    let mut steps = vec![json!({"claude": {"text": "not yet"}}), json!({"claude": {"result": {}}})];
    let first = json!(steps);
    steps[0] = json!({"claude": {"text": DONE}});
    let script = json!({"sessions": [first, steps]});
    let output = run_with("claude", &project, &["-p", "do it"], &script).run();
    output.code(0).stdout_has("sandbox  none: claude can run any command as you; only known-");
    let quiet = run_with("claude", &project, &["-p", "do it", "-q"], &script).run();
    assert_eq!(quiet.stderr.matches("no sandbox: claude can run").count(), 1, "{}", quiet.stderr);
}

#[test]
fn second_run_in_same_directory_is_refused() {
    let project = Project::new();
    // The first iteration removes the lock, too.
    let script = sessions([
        json!([{"shell": "rm -rf .ralph"}]),
        json!([{"print": "here"}, {"wait_for": project.sibling("go")}, {"print": DONE}]),
    ]);
    let first = run(&project, &["-p", "do it"], &script).start();
    wait_until(LONG, || first.stdout().contains("here"));
    let pid = first.pid().to_string();
    let output = run(&project, &["-p", "do it"], &script).run();
    output.code(2).stderr_has(&pid).stderr_has("in use");
    std::fs::write(project.sibling("go"), "").unwrap();
    first.wait().code(0);
}

#[test]
fn adapter_is_selected_by_program_name_or_settings() {
    let project = Project::new();
    project.install_agent("claude", &recorded_steps(&project, &claude()));
    let path = project.sibling("bin/claude").to_str().unwrap().to_owned();
    project.ralph(["run", "-p", "do it", "--", &path]).run().code(0);
    project.install_agent("wrapper", &recorded_steps(&project, &claude()));
    project.settings(&json!({"agent": {"command": "wrapper", "type": "claude"}}));
    project.ralph(["run", "-p", "do it"]).run().code(0);
    for argv in argv(&project) {
        assert_eq!(argv[..3], ["-p", "--output-format", "stream-json"]);
    }
    project.settings(&json!({"agent": {"command": "claude", "type": "text"}}));
    project.install_agent("claude", &json!([{"print": DONE}]));
    project.ralph(["run", "-p", "do it"]).run().code(0);
}

#[test]
fn invalid_utf8_and_long_lines_are_accepted() {
    let project = Project::new();
    let script = json!([
        {"hex": "ff fe 00 0a"}, {"long_line_megabytes": 2}, {"claude": {"long_text": 2}},
        {"claude": {"text": DONE}}, {"raw": "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"\"}"},
    ]);
    let args = ["-p", "do it", "--output", "json"];
    run_with("claude", &project, &args, &script).run().code(0);
}
