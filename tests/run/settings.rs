//! Sources of settings.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::Project;
use crate::{DONE, argv, run};

#[test]
fn flags_override_environment_and_files() {
    let project = Project::new();
    project.install_agent("robot", &json!([project.record_step()]));
    project.settings(&json!({"agent": {"command": "robot"}}));
    let iterations = |args: &[&str], env: Option<&str>| {
        let mut ralph = project.ralph(["run", "-p", "do it"]).args(args);
        if let Some(value) = env {
            ralph = ralph.env("RALPH_MAXIMUM_ITERATIONS", value);
        }
        ralph.run().code(1);
        project.events().all("iteration_started").len()
    };
    let origin = |env: Option<&str>| {
        let mut ralph = project.ralph(["settings"]);
        if let Some(value) = env {
            ralph = ralph.env("RALPH_MAXIMUM_ITERATIONS", value);
        }
        let output = ralph.run();
        let line = output.stdout.lines().find(|line| line.starts_with("maximumIterations"));
        line.expect("the setting").to_owned()
    };
    assert_eq!(iterations(&[], None), 10);
    project.settings(&json!({"agent": {"command": "robot"}, "maximumIterations": 5}));
    assert_eq!(iterations(&[], None), 5);
    assert!(origin(None).ends_with("# .ralph/settings.json"), "{}", origin(None));
    project.write(".ralph/settings.local.json", r#"{"maximumIterations": 4}"#);
    assert_eq!(iterations(&[], None), 4);
    assert!(origin(None).ends_with("# .ralph/settings.local.json"), "{}", origin(None));
    assert_eq!(iterations(&[], Some("3")), 3);
    assert!(origin(Some("3")).contains("RALPH_MAXIMUM_ITERATIONS"), "{}", origin(Some("3")));
    assert_eq!(iterations(&["-n", "2"], Some("3")), 2);
}

#[test]
fn settings_objects_merge_and_arrays_replace() {
    let project = Project::new();
    project.install_agent("robot", &json!([project.record_step(), {"print": DONE}]));
    project.settings(
        &json!({"agent": {"command": "robot", "flags": ["--one", "--two"], "env": {"A": "1"}}}),
    );
    project.write(
        ".ralph/settings.local.json",
        r#"{"agent": {"flags": ["--three"], "env": {"B": "2"}}}"#,
    );
    project.ralph(["run", "-p", "do it"]).run().code(0);
    assert_eq!(argv(&project), [["--three"]]);
    let env = &project.agent_starts()[0]["env"];
    assert_eq!((&env["A"], &env["B"]), (&json!("1"), &json!("2")));
}

#[test]
fn settings_flag_names_other_file() {
    let project = Project::new();
    project.install_agent("robot", &json!([{"print": DONE}]));
    project.settings(&json!({"agent": {"command": "missing"}}));
    project.write("ci/ralph.json", r#"{"agent": {"command": "robot"}}"#);
    project.ralph(["run", "-p", "do it", "--settings", "ci/ralph.json"]).run().code(0);
    let output = project.ralph(["run", "-p", "do it", "--settings", "ci/none.json"]).run();
    output.code(2).stderr_has("ci/none.json: no such file");
}

#[test]
fn settings_schema_prints_without_valid_settings() {
    let project = Project::new();
    let output = project.ralph(["settings", "--schema", "--settings", "none.json"]).run();
    let schema: Value = serde_json::from_str(&output.code(0).stdout).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
}

#[test]
fn settings_errors_are_reported_together_before_start() {
    let project = Project::new();
    project.settings(&json!({
        "maxmumIterations": 3,
        "agent": {"flags": "--model opus"},
        "guardrails": [{"command": "true", "failAction": "EXPLODE"}],
    }));
    project.write(".ralph/settings.local.json", "{\"verbose\": }");
    let output = run(&project, &["-p", "do it"], &json!([project.record_step()])).run();
    output
        .code(2)
        .stderr_has(".ralph/settings.json:")
        .stderr_has("maxmumIterations")
        .stderr_has("maximumIterations")
        .stderr_has("agent.flags")
        .stderr_has("guardrails[0].failAction")
        .stderr_has(".ralph/settings.local.json")
        .stdout_is("");
    assert_eq!(project.agent_starts().len(), 0);
    assert!(!project.has(".ralph/runs"));
}

#[test]
fn open_quote_in_flags_is_reported_once() {
    let project = Project::new();
    project.install_agent("robot", &json!([project.record_step()]));
    project.settings(&json!({"agent": {"command": "robot", "flags": ["--say don't"]}}));
    let output = project.ralph(["run", "-p", "do it"]).run();
    output.code(2).stderr_has("agent.flags[0]: unclosed quote");
    assert_eq!(output.stderr.matches("agent.flags").count(), 1, "{}", output.stderr);
}

#[test]
fn unknown_ralph_variable_warns() {
    let project = Project::new();
    let output = run(&project, &["-p", "do it"], &json!([{"print": DONE}]))
        .env("RALPH_MAXIMUM_ITERATION", "3")
        .env("RALPH_HOME", project.home())
        .run();
    output.code(0).stderr_has("RALPH_MAXIMUM_ITERATION").stderr_has("RALPH_MAXIMUM_ITERATIONS?");
    output.stderr_lacks("RALPH_HOME");
}

#[test]
fn verbose_shows_loaded_settings_without_secrets() {
    let project = Project::new();
    project.settings(&json!({"agent": {"env": {"API_TOKEN": "hunter2"}}}));
    project.write(".ralph/settings.local.json", r#"{"maximumIterations": 3}"#);
    let output = run(&project, &["-V", "-p", "do it"], &json!([{"print": DONE}])).run();
    output
        .code(0)
        .stderr_has("[ralph] Loading settings from .ralph/settings.json\n")
        .stderr_has("[ralph] Loading settings from .ralph/settings.local.json\n")
        .stderr_has("maximumIterations=3")
        .stderr_lacks("hunter2");
    let journal = std::fs::read_to_string(project.newest_run().join("events.jsonl")).unwrap();
    assert!(!journal.contains("hunter2"));
}

#[test]
fn secret_in_command_line_is_used_but_never_shown() {
    let project = Project::git();
    project.install_agent("robot", &json!([project.record_step(), {"print": DONE}]));
    project.settings(&json!({
        "agent": {
            "flags": ["--header=Authorization: Bearer hunter2", "--api-key", "hunter2", "--api-key=hunter2"],
            "env": {"PLAIN_NAME": "https://me:hunter2@example.com"},
        },
        "guardrails": [{"command": "true || curl -H 'X-Api-Key: hunter2' x; DB_PASS=hunter2 true --token hunter2"}],
        "scm": {"command": "git", "tasks": ["ls-remote https://me:hunter2@127.0.0.1:9/x"]},
        "notify": {"command": "cat > notified; : --token hunter2"},
    }));
    let lacks = |text: &str, place: &str| assert!(!text.contains("hunter2"), "{place}: {text}");
    let ralph = |args: &[&str]| {
        let output = project.ralph(args).run();
        lacks(&output.stdout, &args.join(" "));
        lacks(&output.stderr, &args.join(" "));
        output
    };
    ralph(&["settings"]).code(0).stdout_has("--header=Authorization: (redacted)");
    ralph(&["settings", "--json"]).code(0).stdout_has("https://me:(redacted)@127.0.0.1:9/x");
    let agent = ["--", "robot", "-H", "Cookie: hunter2", "https://me:hunter2@example.com"];
    let dry = [&["run", "-p", "x", "--dry-run"], &agent[..]].concat();
    ralph(&dry)
        .code(0)
        .stdout_has("https://me:(redacted)@example.com")
        .stdout_has("DB_PASS=(redacted)");
    ralph(&["run", "-p", "x", "--dry-run", "--agent", "robot"])
        .code(0)
        .stdout_has("--api-key=(redacted)");
    ralph(&[&["run", "-V", "-n", "1", "-p", "x"], &agent[..]].concat());
    // The agent gets the value, and it is kept, private, for `ralph resume`.
    assert!(argv(&project)[0].contains(&"Cookie: hunter2".to_owned()));
    let run = project.newest_run();
    let path = run.join("spec.json");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(path).unwrap().contains("hunter2"));
    lacks(&std::fs::read_to_string(run.join("events.jsonl")).unwrap(), "journal");
    lacks(&project.read("notified"), "notify.command");
    for form in ["text", "markdown", "html", "json"] {
        ralph(&["report", "--format", form]).code(0).stdout_has("(redacted)");
    }
    ralph(&["replay", "-V"]).code(0).stdout_has("DB_PASS=");
    ralph(&["replay", "--output", "json"]).code(0);
    ralph(&["runs", "--json"]).code(0);
    for entry in std::fs::read_dir(project.path().join(".ralph")).unwrap() {
        lacks(&entry.unwrap().file_name().to_string_lossy(), "the name of a file");
    }
}

#[test]
fn missing_agent_error_names_agents_on_path() {
    let project = Project::new();
    project
        .ralph(["run", "-p", "do it"])
        .env("PATH", "/nowhere")
        .run()
        .code(2)
        .stderr_has("no agent");
    project.install_agent("codex", &Value::Null);
    let output = project.ralph(["run", "-p", "do it"]).run();
    output.code(2).stderr_has("no agent configured").stderr_has("codex").stderr_has("ralph run");
}

#[test]
fn unknown_agent_is_refused_before_anything_is_written() {
    let project = Project::new();
    for (agent, says) in [("no-such-agent", "no-such-agent"), ("./robot", "./robot")] {
        project.ralph(["run", "-p", "x", "--", agent]).run().code(2).stderr_has(says);
    }
    let output = project.ralph(["run", "-p", "x", "--", "claude"]).env("PATH", "/nowhere").run();
    output.code(2).stderr_has("install it");
    assert!(!project.has(".ralph"));
}

#[test]
fn subdirectory_of_project_is_refused() {
    let project = Project::git();
    project.settings(&json!({"guardrails": [{"command": "false"}]})).write("src/keep", "");
    let sub = project.path().join("src");
    let ralph = project.ralph(["run", "-p", "do it", "-n", "1", "--", "true"]);
    let output = ralph.current_dir(&sub).run();
    output.code(2).stderr_has("src is inside the project").stderr_has("-C ");
    assert!(!project.has("src/.ralph"));
    project.write("src/.ralph/settings.json", "{}");
    let ralph = project.ralph(["run", "-p", "do it", "-n", "1", "--", "true"]);
    ralph.current_dir(&sub).run().code(1);
}

#[test]
fn agent_from_environment_ignores_options_of_other_agent() {
    let project = Project::new();
    let agent = json!({"command": "missing", "type": "claude", "flags": ["-x"], "args": ["-y"]});
    project.settings(&json!({ "agent": agent }));
    project.install_agent("robot", &json!([project.record_step(), {"print": DONE}]));
    let ralph = project.ralph(["run", "-p", "the prompt"]).env("RALPH_AGENT__COMMAND", "robot");
    ralph.run().code(0);
    let argv = &project.agent_starts()[0]["argv"];
    assert_eq!(argv.as_array().map(Vec::len), Some(1), "{argv}");
}

#[test]
fn settings_for_any_agent_apply_to_command_after_dashes() {
    let via = |settings: &serde_json::Value, variable: &str| {
        let project = Project::new();
        project.settings(settings);
        project.install_agent("robot", &json!([project.record_step(), {"print": DONE}]));
        let ralph = project.ralph(["run", "-p", "the prompt", "--", "robot"]);
        let ralph = match variable {
            "" => ralph,
            value => ralph.env("RALPH_AGENT__PROMPT_VIA", value),
        };
        ralph.run().code(0);
        let argv = project.agent_starts()[0]["argv"].as_array().expect("arguments").len();
        if argv > 1 { "argument" } else { "stdin" }
    };
    let named = json!({"agent": {"command": "missing", "promptVia": "argument"}});
    let same = json!({"agent": {"command": "robot", "promptVia": "argument"}});
    let unnamed = json!({"agent": {"promptVia": "argument"}});
    assert_eq!(via(&unnamed, ""), "argument", "it can only be meant for this one");
    assert_eq!(via(&same, ""), "argument");
    assert_eq!(via(&named, ""), "stdin", "that was for another agent");
    assert_eq!(via(&named, "argument"), "argument", "and this is for this run");
}

#[test]
fn settings_changed_by_agent_are_reported_at_end() {
    let project = Project::new();
    let local = ".ralph/settings.local.json";
    let guardrail = json!({"command": "false", "failAction": "APPEND"});
    project.settings(&json!({"guardrails": [guardrail], "maximumIterations": 1}));
    let plant =
        json!({"write": {"path": project.path().join(local), "text": "{\"guardrails\": []}"}});
    project.install_agent("robot", &json!([plant, {"print": DONE}]));
    let warning = format!("{local} changed during this run");
    let go = || project.ralph(["run", "-p", "do it", "--", "robot"]).run();
    go().code(1).stderr_has(&warning);
    project.ralph(["report"]).run().code(0).stdout_has(&warning);
    go().code(0).stderr_lacks("changed");
}

#[test]
fn invalid_setting_values_are_refused_on_load() {
    for (settings, problem) in [
        (json!({"scm": {"tasks": [""]}}), "scm.tasks[0]: must not be blank"),
        (json!({"scm": {"paths": []}}), "scm.paths: must not be empty"),
        (
            json!({"scm": {"paths": [".", "../"]}}),
            "scm.paths[1]: must be a path inside the project",
        ),
        (json!({"scm": {"paths": [":/"]}}), "scm.paths[0]: must be a path inside the project"),
        (
            json!({"sandbox": {"allowedDomains": ["ok.example", "http://x/"]}}),
            "sandbox.allowedDomains[1]: ",
        ),
    ] {
        let project = Project::new();
        project.settings(&settings);
        run(&project, &["-p", "x"], &json!([{"print": DONE}])).run().code(2).stderr_has(problem);
        project.ralph(["doctor"]).run().code(2).stdout_has(problem);
    }
    Project::new().ralph(["doctor"]).run().code(0);
}
