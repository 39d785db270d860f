//! Bad input: a clear error, exit code 2, nothing started, nothing written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Output, Project};

const DONE: &str = "<response>DONE</response>";

#[track_caller]
fn assert_refused(output: &Output) -> &Output {
    output.code(2).stderr_has("error: ").stderr_lacks("panicked");
    assert!(output.stderr.ends_with('\n'), "the shell's prompt must not follow: {output:?}");
    output
}

#[test]
fn invalid_settings_are_named_and_nothing_starts() {
    let cases: [(&str, &[&str]); 16] = [
        (
            r#"{"agnet": {}}"#,
            &["agnet: unknown key (", "settings.json:1)\nhint: did you mean agent?"],
        ),
        (r#"{"agent": {"comand": "x"}}"#, &["agent.comand", "did you mean agent.command?"]),
        (r#"{"maximumIterations": "ten"}"#, &["maximumIterations", "\"ten\""]),
        (r#"{"maximumIterations": 0}"#, &["maximumIterations", "at least 1"]),
        (r#"{"maximumIterations": 4294967296}"#, &["maximumIterations", "at most 4294967295"]),
        (r#"{"guardrails": [{"failAction": "APPEND"}]}"#, &["guardrails[0].command", "missing"]),
        (
            r#"{"guardrails": [{"command": "x", "failAction": "EXPLODE"}]}"#,
            &["guardrails[0].failAction"],
        ),
        (r#"{"guardrails": {"command": "x"}}"#, &["guardrails", "expected"]),
        (r#"{"inactivityTimeoutSeconds": 1e18}"#, &["inactivityTimeoutSeconds", "a duration"]),
        (r#"{"budget": {"costUsd": -1}}"#, &["budget.costUsd", "more than 0"]),
        (r#"{"agent": {"flags": ["a\u0000b"]}}"#, &["agent.flags[0]", "NUL"]),
        (r#"{"agent": {"flags": ["'unclosed"]}}"#, &["agent.flags"]),
        (r#"{"a": 1, }"#, &["settings.json:1:", "not valid JSON", "comma"]),
        ("{", &["settings.json:1:1", "not valid JSON"]),
        ("", &["settings.json: is empty"]),
        ("[]", &["expected an object"]),
    ];
    for (text, expected) in cases {
        for file in ["settings.json", "settings.local.json"] {
            let project = Project::new();
            project.write(&format!(".ralph/{file}"), text);
            let agent = project.fake_agent(&json!([project.record_step()]));
            let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
            // Words after `--` replace the flags of the settings.
            if text.contains("unclosed") {
                continue;
            }
            assert_refused(&output);
            for part in expected {
                output.stderr_has(&part.replace("settings.json", file));
            }
            assert!(project.agent_starts().is_empty(), "{text}");
            assert!(!project.has(".ralph/runs"), "{text}");
            assert_eq!(project.read(&format!(".ralph/{file}")), text);
        }
    }
}

#[test]
fn invalid_prompts_are_refused_before_start() {
    let project = Project::new();
    project.write("blank.md", " \n\t\n").write("PROMPT.md", "do it");
    let agent = project.fake_agent(&json!([project.record_step()]));
    let cases: [(&[&str], &str); 8] = [
        (&["-f", "missing.md"], "prompt file not found: missing.md"),
        (&["-f", "."], "prompt file is a directory: ."),
        (&["-f", "blank.md"], "prompt file is empty: blank.md"),
        (&["-p", " "], "the prompt is empty"),
        (&[], "exactly one of --prompt and --prompt-file"),
        (&["-p", "x", "-n", "0"], "must be a whole number from 1 to 4294967295"),
        (&["-p", "x", "-C", "missing"], "cannot use missing"),
        (&["-p", "x", "-C", "PROMPT.md"], "not a directory: PROMPT.md"),
    ];
    for (args, expected) in cases {
        let output = project.ralph(["run"]).args(args).arg("--").args(agent.clone()).run();
        output.code(2).stderr_has(expected);
        assert!(output.stderr.ends_with('\n'));
    }
    project
        .ralph(["run", "-p", "x", "-f", "PROMPT.md", "--"])
        .args(agent)
        .run()
        .code(2)
        .stderr_has("--prompt-file");
    assert!(project.agent_starts().is_empty());
}

#[test]
fn vanished_prompt_file_ends_run() {
    for (how, expected) in [
        ("rm PROMPT.md", "prompt file not found"),
        ("rm PROMPT.md; mkdir PROMPT.md", "cannot read prompt file"),
        (": > PROMPT.md", "prompt file is empty"),
    ] {
        let project = Project::new();
        project.write("PROMPT.md", "do it");
        let agent = project.fake_agent(&json!([{"print": "on it"}, {"shell": how}]));
        let output = project.ralph(["run", "-f", "PROMPT.md", "--"]).args(agent).run();
        output.code(2).stdout_has(expected).stdout_has("PROMPT.md");
        let events = project.events();
        assert_eq!(events.last("run_ended")["outcome"], "prompt_lost");
        assert_eq!(events.last("run_ended")["iterations"], 2);
    }
}

#[test]
fn piped_prompt_is_used_for_all_iterations() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([project.record_step(), {"print": "more"}]));
    let output = project
        .ralph(["run", "-n", "2", "-f", "/dev/stdin", "--"])
        .args(agent)
        .stdin("do it")
        .run();
    output.code(1);
    // Tests use a file as standard input, which can be read twice; a pipe cannot.
    let agent = project.fake_agent(&json!([project.record_step(), {"print": "more"}])).join(" ");
    let ralph = env!("CARGO_BIN_EXE_ralph");
    let script = format!("echo do it | {ralph} run -n 2 -f /dev/stdin -- {agent}");
    project.program("sh", ["-c", &script]).run().code(1);
    let prompts: Vec<_> =
        project.agent_starts().iter().map(|start| start["prompt"].clone()).collect();
    assert_eq!(prompts, ["do it", "do it", "do it\n", "do it\n"]);
}

#[test]
fn missing_agent_error_names_installed_agents() {
    let project = Project::new();
    project.install_agent("codex", &json!([]));
    assert_refused(&project.ralph(["run", "-p", "x"]).run())
        .stderr_has("no agent configured")
        .stderr_has("found on the PATH")
        .stderr_has("codex");
    // The `PATH` of the project must not provide the program.
    let project = Project::new();
    assert_refused(
        &project.ralph(["run", "-p", "x", "--", "claude"]).env("PATH", "/nowhere").run(),
    )
    .stderr_has("agent not found: claude")
    .stderr_has("install it: npm install -g @anthropic-ai/claude-code");
}

#[test]
fn unusable_agent_programs_are_refused() {
    let project = Project::new();
    project.write("plain", "#!/bin/sh\n").write("lost", "#!/no/such/interpreter\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(project.path().join("lost"), mode).unwrap();
    for (agent, expected) in [
        ("./missing", "check the path"),
        ("~/bin/agent", "use the absolute path"),
        ("./plain", "chmod +x ./plain"),
        ("/", "agent is a directory: /"),
        ("no-such-agent", "it is not on the PATH"),
    ] {
        assert_refused(&project.ralph(["run", "-p", "x", "--", agent]).run()).stderr_has(expected);
    }
    project.settings(&json!({"retry": {"max": 0}}));
    let output = project.ralph(["run", "-p", "x", "--", "./lost"]).run();
    output.code(4).stdout_has("interpreter").stdout_has("./lost");
}

#[test]
fn script_without_shebang_is_run_by_shell() {
    let project = Project::new();
    project.write("my agent", format!("cat >/dev/null; echo '{DONE}'"));
    let path = project.path().join("my agent");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    project.settings(&json!({"agent": {"command": path}}));
    project.ralph(["run", "-p", "x"]).run().code(0);
}

#[test]
fn agent_is_found_on_path_from_agent_env() {
    let project = Project::new();
    project.install_agent("only-there", &json!([{"print": DONE}]));
    let path = format!("{}:/usr/bin:/bin", project.sibling("bin").display());
    project.settings(&json!({"agent": {"command": "only-there", "env": {"PATH": path}}}));
    project.ralph(["run", "-p", "x"]).env("PATH", "/usr/bin:/bin").run().code(0);
}

#[test]
fn unusable_scm_is_refused_before_start() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([project.record_step()]));
    project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let run = || project.ralph(["run", "-p", "x", "--"]).args(agent.clone());
    assert_refused(&run().run()).stderr_has("not a git repository").stderr_has("git init");
    assert_refused(&run().env("PATH", "/nowhere").run()).stderr_has("scm.command not found: git");
    project.settings(&json!({}));
    let with_flag = project.ralph(["run", "-p", "x", "--commit", "--"]).args(agent.clone()).run();
    assert_refused(&with_flag)
        .stderr_has("hint: --commit needs one: run `git init`\nhint: or run without --commit\n");
    assert!(project.agent_starts().is_empty());
}

#[test]
fn wrong_file_type_in_ralph_directory_is_refused() {
    for (setup, path) in
        [("touch .ralph", "/.ralph"), ("mkdir -p .ralph/settings.json", ".ralph/settings.json")]
    {
        let project = Project::new();
        project.program("sh", ["-c", setup]).run().success();
        let agent = project.fake_agent(&json!([project.record_step()]));
        let output = project.ralph(["run", "-p", "x", "--"]).args(agent).run();
        assert_refused(&output).stderr_has(path);
        assert!(project.agent_starts().is_empty());
    }
    // Only a link for people.
    let project = Project::new();
    project.program("sh", ["-c", "mkdir .ralph; touch .ralph/runs"]).run().success();
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    project.ralph(["runs"]).run().code(0).stdout_has("complete");
}

#[test]
fn deleted_current_directory_is_error() {
    let project = Project::new();
    let ralph = env!("CARGO_BIN_EXE_ralph");
    for command in ["run -p x -- cat", "runs", "doctor", "agents", "settings", "init", "replay"] {
        project.write("gone/x", "");
        let script = format!("cd gone; rm -r ../gone; {ralph} {command}");
        let output = project.program("sh", ["-c", &script]).run();
        output.code(2).stderr_has("cannot read the current directory").stderr_lacks("panicked");
    }
}

#[test]
fn unusual_directory_names_work() {
    let names: [&[u8]; 4] = [b"with space", b"quo'te\"s", b"new\nline", b"not utf-8 \xff\xfe"];
    for name in names {
        let project = Project::git();
        let dir = project.path().join(OsStr::from_bytes(name));
        std::fs::create_dir_all(dir.join(".ralph")).unwrap();
        let settings = json!({
            "guardrails": [{"command": "test -e made"}],
            "scm": {"command": "git", "tasks": ["commit"]},
        });
        std::fs::write(dir.join(".ralph/settings.json"), settings.to_string()).unwrap();
        let agent = project.fake_agent(&json!({
            "sessions": [[{"write": {"path": "made", "text": ""}}, {"print": DONE}]],
            "commit_message": [{"print": "Make it"}],
        }));
        let output = project.ralph(["run", "-p", "x", "--"]).args(agent).current_dir(&dir).run();
        output.code(0).stderr_lacks("make it writable");
        assert!(dir.join("made").exists());
        assert_eq!(project.git_command(["log", "--format=%s"]), "Make it\n");
        project.ralph(["runs", "-C"]).arg(&dir).run().code(0).stdout_has("complete");
    }
}

#[test]
fn unusual_environments_and_closed_streams_work() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"print": DONE}])).join(" ");
    let ralph = env!("CARGO_BIN_EXE_ralph");
    for environment in ["-i", "-u HOME", "-u TERM", "-u PATH", "-i LANG=C", "-i TERM=dumb HOME="] {
        let env = "/usr/bin/env";
        let script = format!("exec {env} {environment} {ralph} run -p x -- {agent}");
        let output = project.program("sh", ["-c", &script]).run();
        if environment.contains("-i") || environment.contains("HOME") {
            output.code(2).stderr_has("neither RALPH_HOME nor HOME is set").stdout_is("");
        } else {
            output.code(0).stdout_has("Done after");
        }
        let script = format!("exec {env} {environment} {ralph} doctor");
        project.program("sh", ["-c", &script]).run().code(0);
    }
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"] {
        let script = format!("exec {ralph} run -p x -- {agent} {closed}");
        project.program("sh", ["-c", &script]).run().code(0);
        assert_eq!(project.events().last("run_ended")["outcome"], "complete");
    }
    assert_eq!(project.processes(), []);
}

#[test]
fn ralph_variables_are_applied_or_refused() {
    let project = Project::new();
    let agent = project
        .fake_agent(&json!([project.record_step(), {"print": "FINISHED <response>ok</response>"}]));
    let run = || project.ralph(["run", "-p", "x", "--"]).args(agent.clone());
    run()
        .env("RALPH_COMPLETION_RESPONSE", "OK")
        .env("RALPH_MAXIMUM_ITERATIONS", "1")
        .env("RALPH_BOGUS", "1")
        .env("RALPH_HOME", "/nowhere")
        .env("RALPH_RUN_ID", "not-ours")
        .run()
        .code(0)
        .stderr_has("RALPH_BOGUS");
    let env = project.agent_starts()[0]["env"].clone();
    assert_ne!(env["RALPH_RUN_ID"], "not-ours");
    assert_eq!(env["RALPH_ITERATION"], "1");
    for (name, value) in [
        ("RALPH_MAXIMUM_ITERATIONS", "many"),
        ("RALPH_AGENT", "7"),
        ("RALPH_RETRY__MAX", "-1"),
        ("RALPH_STREAM_AGENT_OUTPUT", "perhaps"),
    ] {
        assert_refused(&run().env(name, value).run()).stderr_has(name);
    }
    let odd = OsStr::from_bytes(b"\xff");
    assert_refused(&run().env("RALPH_COMPLETION_RESPONSE", odd).run())
        .stderr_has("RALPH_COMPLETION_RESPONSE");
}

#[test]
fn thousands_of_guardrails_work() {
    let project = Project::new();
    let guardrails: Vec<Value> = (0..10_000).map(|_| json!({"command": "true"})).collect();
    project.settings(&json!({"guardrails": guardrails}));
    let output = project.ralph(["run", "-p", "x", "--dry-run", "--", "cat"]).run();
    output.code(0);
    // All of them would take half a minute; 300 show that each has its log.
    project.settings(&json!({"guardrails": guardrails[..300].to_vec()}));
    let agent = project.fake_agent(&json!([{"print": DONE}]));
    project.ralph(["run", "-p", "x", "--"]).args(agent).run().code(0);
    assert!(project.has(".ralph/guardrail_001_true_299.log"));
}

#[test]
fn maximum_iteration_limit_is_accepted() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([project.record_step(), {"print": DONE}]));
    project.settings(&json!({"includeIterationCountInPrompt": true}));
    project.ralph(["run", "-p", "x", "-n", "4294967295", "--"]).args(agent).run().code(0);
    let prompt = project.agent_starts()[0]["prompt"].clone();
    assert!(
        prompt.as_str().unwrap().starts_with("Iteration 1 of 4294967295, 4294967294 remaining.")
    );
}

#[test]
fn relative_ralph_home_is_refused_by_every_command() {
    let project = Project::new();
    for command in [&["ls"][..], &["runs"], &["doctor"], &["run", "-p", "x", "--", "true"]] {
        let output = project.ralph(command).env("RALPH_HOME", "here").run();
        output.code(2).stderr_has("RALPH_HOME is not an absolute path: here");
    }
    assert!(!project.has("here"));
}
