//! Agents by type, and overrides.

use serde_json::{Value, json};

use crate::{COMPLETE, argv, project, prompts};

fn record() -> Value {
    json!({"record": "../record.jsonl"})
}

#[test]
fn agent_type_selects_program_and_arguments() {
    let claude = json!([record(), {"claude": {"text": COMPLETE}}, {"claude": {"result": {}}}]);
    let codex = json!([record(), {"codex": {"text": COMPLETE}}, {"codex": {"result": {}}}]);
    let plain = json!([record(), {"print": COMPLETE}]);
    for (kind, program, script, wanted) in [
        ("claude", "claude", &claude, "--output-format stream-json"),
        ("amp", "amp", &claude, "--stream-json"),
        ("codex", "codex", &codex, "exec --json"),
        ("text", "cline", &plain, ""),
    ] {
        let project = project(&json!([]));
        project.install_agent(program, script);
        project.write(".ralph/config", format!("AGENT_TYPE={kind}\n"));
        project.ralph(["plan", "1"]).run().code(0);
        assert_eq!(project.events().last("run_ended")["outcome"], "complete", "{kind}");
        assert!(argv(&project)[0].contains(wanted), "{kind}: {:?}", argv(&project));
        assert!(!argv(&project)[0].contains("json") || kind != "text", "{:?}", argv(&project));
    }
}

#[test]
fn agent_type_values_can_be_overridden() {
    let project = project(&json!([]));
    let script = json!([record(), {"json": {"say": COMPLETE}}, {"claude": {"result": {}}}]);
    project.install_agent("my claude", &script);
    project.write(
        ".ralph/config",
        r#"
AGENT_TYPE=claude
AGENT_CLI="my claude"
AGENT_ARGS="--mine 'a b'"
AGENT_RESPONSE_FILTER='
  .say // empty
'
AGENT_DISPLAY_FILTER="jq_is_not_needed() { sed -n 's/.*say.*/SHOWN/p'; }; jq_is_not_needed"
"#,
    );
    project.ralph(["plan", "1"]).run().code(0).stdout_has("SHOWN\n");
    assert_eq!(project.events().last("run_ended")["outcome"], "complete");
    let argv = project.agent_starts()[0]["argv"].clone();
    assert_eq!(argv.as_array().unwrap()[1..], ["--mine", "a b"]);
    assert!(prompts(&project)[0].starts_with("Plan the work"), "by standard input");
}

#[test]
fn json_mode_completes_only_by_agent_text() {
    let project = project(&json!([]));
    // amp's stream starts with the prompt.
    let echo = json!({"json": {"type": "user", "message": {"role": "user",
        "content": [{"type": "text", "text": format!("When done, say {COMPLETE}")}]}}});
    let tool =
        json!({"claude": {"tool": {"id": "t", "name": "Read", "input": {"file_path": COMPLETE}}}});
    let stream = |text: &str| json!([echo, tool, {"stderr": COMPLETE}, {"claude": {"text": text}}, {"claude": {"result": {}}}]);
    project.install_agent("amp", &json!({"sessions": [stream("not yet"), stream(COMPLETE)]}));
    project.write(".ralph/config", "AGENT_TYPE=amp\n");
    project.ralph(["plan", "5"]).run().code(0);
    assert_eq!(project.events().all("iteration_started").len(), 2);
}

#[test]
fn text_mode_counts_all_output_except_prompt_echo() {
    for step in [json!({"print": format!("All done: {COMPLETE}")}), json!({"stderr": COMPLETE})] {
        let project = project(&json!([step]));
        project.ralph(["plan", "1"]).run().code(0);
        assert_eq!(project.events().last("run_ended")["outcome"], "complete", "{step}");
    }
    let project = project(&json!([]));
    project.write("echo.sh", "#!/bin/sh\ncat\n");
    project.command("chmod").args(["+x", "echo.sh"]).status().unwrap();
    project.write(".ralph/config", "AGENT_CLI=./echo.sh\n");
    let output = project.ralph(["plan", "2"]).run();
    output.code(0).stderr_has("the agent's answer only repeats the prompt");
    output.stdout_has("The agent repeated its prompt and said nothing else");
    output.stdout_lacks("The agent said nothing");
    assert_eq!(output.stderr.matches("repeats the prompt").count(), 1, "{}", output.stderr);
    assert_eq!(project.events().last("run_ended")["outcome"], "limit_reached");
}

#[test]
fn text_format_is_used_for_known_agent() {
    let project = project(&json!([]));
    project.install_agent("claude", &json!([record(), {"print": COMPLETE}]));
    project.write(".ralph/config", "AGENT_TYPE=claude\nAGENT_OUTPUT_FORMAT=text\n");
    project.ralph(["plan", "1"]).run().code(0).stdout_has(COMPLETE);
    assert!(argv(&project)[0].contains("--output-format text"), "{:?}", argv(&project));
    assert_eq!(project.events().last("run_ended")["outcome"], "complete");
}

#[test]
fn conflicting_agent_arguments_warn() {
    let project = project(&json!([]));
    project.install_agent("claude", &json!([{"print": COMPLETE}]));
    let warned = |config: &str, words: &str| {
        project.write(".ralph/config", format!("AGENT_TYPE=claude\nMAX_RETRIES=0\n{config}\n"));
        project.ralph(["plan", "1"]).run().stderr_has(words);
    };
    warned("AGENT_ARGS='--model opus'", "lacks stream-json");
    warned("AGENT_OUTPUT_FORMAT=text\nAGENT_RESPONSE_FILTER=.x", "responseFilter has no effect");
    let args = "-p --output-format=stream-json --verbose";
    project
        .write(".ralph/config", format!("AGENT_TYPE=claude\nMAX_RETRIES=0\nAGENT_ARGS='{args}'\n"));
    project.ralph(["plan", "1"]).run().stderr_lacks("lacks stream-json");
}
