//! `.ralph/config`: data in the form of shell assignments.

use serde_json::json;

use crate::{COMPLETE, argv, project};

#[test]
fn invalid_config_is_refused_and_never_executed() {
    let project = project(&json!([]));
    for (config, words) in [
        ("A=1\nB=$(touch ran)\n", ".ralph/config:2: $(…) would run a command"),
        ("A=1\n\nB=\"x `touch ran`\"\n", ".ralph/config:3: `…` would run a command"),
        ("touch ran\n", ".ralph/config:1: not an assignment: touch ran"),
        ("A=b touch ran\n", ".ralph/config:1: not an assignment: touch ran"),
        ("A=1\nB='open\nC=2\n", ".ralph/config:2: unclosed quote (')"),
        ("A=\"open\n", ".ralph/config:1: unclosed quote (\")"),
        ("AGENT_ARGS=\"-p 'x\"\n", ".ralph/config:1: AGENT_ARGS: unclosed quote"),
        (
            "MAX_RETRIES=many\n",
            ".ralph/config:1 (MAX_RETRIES): must be a whole number from 0 to 4294967295, not \"many\"",
        ),
        ("A=1\nMAX_RETRIES=-1\n", ".ralph/config:2 (MAX_RETRIES): must be a whole number from 0"),
        ("MAX_RETRIES=99999999999999999999\n", "config:1 (MAX_RETRIES): must be a whole number"),
        ("MAX_ITERATIONS=0\n", ".ralph/config:1 (MAX_ITERATIONS): must be a whole number from 1"),
        ("A=1\nB=${B\nC=2\n", ".ralph/config:2: unclosed ${B"),
        ("A=\"${B\"\n", ".ralph/config:1: unclosed ${B"),
        ("A=1\nB=x\0y\n", ".ralph/config:2: a NUL character"),
        ("A=1\nexport B='\0'\n", ".ralph/config:2: a NUL character"),
        ("AGENT_CLI=robot\nAGENT_OUTPUT_FORMAT=xml\n", ".ralph/config:2 (AGENT_OUTPUT_FORMAT)"),
        ("AGENT_CLI=robot\nAGENT_RESPONSE_FILTER='.a | nope'\n", "unknown filter nope"),
    ] {
        project.write(".ralph/config", config);
        let output = project.ralph(["plan"]).run();
        output.code(2).stderr_has(words).stderr_lacks("panicked");
    }
    project.write(".ralph/config", b"A=1\nB=\xff\n");
    project.ralph(["plan"]).run().code(2).stderr_has(".ralph/config:2: not valid UTF-8");
    assert!(!project.has("ran") && !project.has(".ralph/runs"));
}

#[test]
fn invalid_filter_in_config_shows_position() {
    let project = project(&json!([]));
    project.write(".ralph/config", "AGENT_CLI=robot\n\nAGENT_RESPONSE_FILTER='.a | nope'\n");
    project.ralph(["plan"]).run().code(2).stderr_has(
        ".ralph/config:3 (AGENT_RESPONSE_FILTER): agent.responseFilter: unknown filter nope\n  \
         1 | .a | nope\n    |      ^^^^\n",
    );
}

#[test]
fn config_flag_names_other_file() {
    let project = project(&json!([project_record(), {"print": COMPLETE}]));
    project.write("ci.config", "AGENT_CLI=robot\nAGENT_ARGS='from ci'\n");
    project.ralph(["plan", "--config", "ci.config"]).run().code(0);
    project
        .ralph(["plan", "--config", "nowhere"])
        .run()
        .code(2)
        .stderr_has("config file not found: nowhere");
    project
        .ralph(["plan", "--config", "specs"])
        .run()
        .code(2)
        .stderr_has("config file is a directory");
    assert_eq!(argv(&project), ["from ci"]);
}

fn project_record() -> serde_json::Value {
    json!({"record": "../record.jsonl"})
}

#[test]
fn config_overrides_settings_but_not_environment_or_flags() {
    let project = project(&json!([project_record(), {"print": COMPLETE}]));
    project.settings(&json!({
        "agent": {"command": "missing", "flags": ["--of-missing"], "model": "m"}, "maximumIterations": 9,
    }));
    project.write(".ralph/config", "AGENT_CLI=robot\nAGENT_ARGS=config\nMAX_ITERATIONS=8\n");
    let limit = || project.events().find("run_started")["max_iterations"].clone();
    project.ralph(["plan"]).run().code(0);
    assert_eq!(limit(), 8);
    project.ralph(["plan"]).env("RALPH_MAXIMUM_ITERATIONS", "7").run().code(0);
    assert_eq!(limit(), 7);
    project.ralph(["plan", "6", "--", "robot", "typed"]).run().code(0);
    assert_eq!(limit(), 6);
    assert_eq!(argv(&project), ["config", "config", "typed"]);
    let output = project.ralph(["run", "-p", "x", "--dry-run"]).run();
    output.code(2).stderr_has("missing");
}

#[test]
fn exported_config_variables_reach_agent() {
    let project = project(&json!([]));
    project.install_agent(
        "robot",
        &json!([
            {"shell": "echo \"[$MINE][$OTHER][$TWICE][$LATE][$INHERITED]\" >seen"},
            {"print": COMPLETE},
        ]),
    );
    let config = "AGENT_CLI=robot\nexport MINE='a b'\nOTHER=x\nexport TWICE=config\n\
                  export LATE\nLATE=late\nINHERITED=config\n";
    project.write(".ralph/config", config);
    project.settings(&json!({"agent": {"env": {"TWICE": "settings"}}}));
    project.ralph(["plan"]).env("INHERITED", "environment").run().code(0);
    assert_eq!(project.read("seen"), "[a b][][config][late][config]\n");
}

#[test]
fn agent_is_found_on_path_from_config() {
    let project = project(&json!([]));
    project.install_agent("hidden", &json!([{"print": COMPLETE}]));
    std::fs::create_dir(project.sibling("tools")).unwrap();
    std::fs::rename(project.sibling("bin/hidden"), project.sibling("tools/hidden")).unwrap();
    project.write(".ralph/config", "AGENT_CLI=hidden\n");
    project.ralph(["plan"]).run().code(2).stderr_has("agent not found: hidden");
    let tools = project.sibling("tools");
    let config = format!("AGENT_CLI=hidden\nexport PATH=\"{}:$PATH\"\n", tools.display());
    project.write(".ralph/config", config);
    project.ralph(["plan"]).run().code(0);
    assert_eq!(project.events().find("run_ended")["outcome"], "complete");
}
