//! Strange output of agents and guardrails, and large prompts.

use std::time::Duration;

use serde_json::json;

use crate::support::Project;

const DONE: &str = "<response>DONE</response>";

#[test]
fn arbitrary_bytes_are_recorded_and_run_completes() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([
        {"hex": "ff fe 80 41 0a"},
        {"hex": "00 01 1b 5b 33 31 6d 72 65 64 1b 5b 30 6d 0d 0a"},
        {"shell": "printf '\\377\\000err' >&2"},
        {"split": "größer 🦀\n"},
        {"print": "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[Hgone"},
        {"raw": DONE},
    ]));
    let output = project.ralph(["run", "-p", "x", "-n", "1", "--"]).args(agent).run();
    output.code(0).stdout_has("größer 🦀").stdout_lacks("\u{1b}").stdout_lacks("\0");
    let raw = project.raw();
    assert!(raw.starts_with(b"\xff\xfe\x80A\n\0\x01\x1b[31mred"), "{raw:?}");
    assert!(raw.ends_with(DONE.as_bytes()));
    let texts = project.events();
    assert!(texts.all("text").iter().any(|event| event["text"] == "größer 🦀"));
    project.ralph(["replay"]).run().code(0).stdout_has("größer 🦀").stdout_lacks("\u{1b}");
}

/// C1 controls, direction marks, line separators, a byte order mark, a zero-width space.
const INVISIBLE: &str = "a\u{9b}2J\u{85}b\u{202e}c\u{2066}d\u{200f}e\u{61c}f\u{2028}g\u{2029}h\u{feff}i\u{200b}j\u{7f}k";

fn is_invisible(c: char) -> bool {
    c != '\n' && (c.is_control() || INVISIBLE.contains(c) && !c.is_ascii())
}

#[test]
fn json_output_escapes_invisible_characters() {
    let project = Project::new();
    project.settings(&json!({
        "agent": {"env": {"LABEL": INVISIBLE}},
        "guardrails": [{"command": format!("true '{INVISIBLE}'")}],
        "notify": {"command": "cat > notified"},
    }));
    let agent = project.fake_agent(&json!([{"print": INVISIBLE}, {"print": DONE}]));
    let live = project.ralph(["run", "-p", INVISIBLE, "--output", "json", "--"]).args(agent).run();
    let journal = std::fs::read_to_string(project.newest_run().join("events.jsonl")).unwrap();
    let outputs = [
        ("run", live.code(0).stdout.clone()),
        ("journal", journal),
        ("notify", project.read("notified")),
        ("replay", project.ralph(["replay", "--output", "json"]).run().stdout),
        ("report", project.ralph(["report", "--format", "json"]).run().stdout),
        ("settings", project.ralph(["settings", "--json"]).run().stdout),
        ("settings", project.ralph(["settings"]).run().stdout),
    ];
    for (name, output) in &outputs {
        assert!(output.contains("a\\u009b2J\\u0085b\\u202ec"), "{name}: {output:?}");
        assert!(!output.contains(is_invisible), "{name}: {output:?}");
    }
    let events = live.json_lines();
    assert!(events.all("text").iter().any(|event| event["text"] == INVISIBLE));
}

#[test]
fn human_output_omits_invisible_characters() {
    let project = Project::new();
    project.settings(&json!({"guardrails": [{"command": format!("true '{INVISIBLE}'")}]}));
    let agent = project.fake_agent(&json!([{"print": INVISIBLE}, {"print": DONE}]));
    let dry = project.ralph(["run", "-p", INVISIBLE, "--dry-run", "--"]).args(&agent).run();
    let live = project.ralph(["run", "-V", "-p", INVISIBLE, "--"]).args(&agent).run();
    live.code(0).stdout_has("bcdef g h");
    let mut outputs = vec![dry.code(0).stdout.clone(), live.stdout.clone(), live.stderr.clone()];
    for form in ["text", "markdown", "html"] {
        outputs.push(project.ralph(["report", "--format", form]).run().code(0).stdout.clone());
    }
    for output in outputs {
        let is_control = |c: char| is_invisible(c) && c != '\u{200b}';
        assert!(!output.contains(is_control), "{output:?}");
    }
}

#[test]
fn html_report_contains_no_agent_script() {
    let project = Project::git();
    let nasty = "\"><img src=x onerror=alert(1)><script>alert(2)</script><a href=\"javascript:alert(3)\">x</a>";
    project.write("subject", nasty);
    let agent = project.fake_agent(&json!([
        {"shell": "git commit -q --allow-empty -F subject"}, {"print": nasty}, {"print": DONE},
    ]));
    project.settings(&json!({"guardrails": [{"command": format!("false '{nasty}'")}]}));
    project.ralph(["run", "-p", nasty, "-n", "1", "--"]).args(agent).run().code(1);
    let page = project.ralph(["report", "--format", "html"]).run().code(0).stdout.clone();
    assert!(page.contains("&lt;script&gt;alert(2)&lt;/script&gt;"), "{page}");
    for tag in ["<img", "<script", "<a "] {
        assert!(!page.contains(tag), "{tag} in {page}");
    }
    assert!(
        page.contains(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        )
    );
}

#[test]
fn fifty_megabyte_text_line_is_handled() {
    let project = Project::new();
    let agent = project.fake_agent(&json!([{"long_line_megabytes": 50}, {"print": DONE}]));
    project.ralph(["run", "-q", "-p", "x", "--"]).args(agent).run().code(0);
}

#[test]
fn fifty_megabyte_stream_line_is_handled() {
    let project = Project::new();
    project.install_agent(
        "claude",
        &json!([
            {"claude": "init"}, {"claude": {"long_text": 50}}, {"claude": {"text": DONE}},
            {"claude": {"result": {}}},
        ]),
    );
    project.ralph(["run", "-q", "-p", "x", "--", "claude"]).run().code(0);
    assert_eq!(project.processes(), []);
}

#[test]
fn hundred_megabytes_of_lines_are_handled() {
    let project = Project::new();
    project.settings(&json!({"runs": {"maxRawMegabytes": 20}}));
    let agent = project.fake_agent(&json!([{"lines_megabytes": 100}, {"print": DONE}]));
    let started = std::time::Instant::now();
    project
        .ralph(["run", "-q", "-p", "x", "--"])
        .args(agent)
        .deadline(Duration::from_secs(120))
        .run()
        .code(0);
    let raw = project.newest_run().join("raw.ndjson").metadata().unwrap().len();
    assert!(raw <= 21 << 20, "{raw} bytes are kept after {:?}", started.elapsed());
}

#[test]
fn malformed_stream_is_handled() {
    let project = Project::new();
    let script = json!([
        {"print": "{\"type\":\"assistant\",\"message\":"},
        {"print": "[1,2,3]"},
        {"print": "{\"type\":7}"},
        {"print": "null"},
        {"hex": "7b22ff227d0a"},
        {"json": {"type": "assistant", "message": {"content": [{"type": "text", "text": 9}]}}},
        {"json": {"type": "result", "result": [], "usage": "none", "total_cost_usd": "free"}},
        {"json": {"type": "result", "subtype": "success", "is_error": false, "result": "",
            "usage": {"input_tokens": u64::MAX, "output_tokens": u64::MAX,
                "cache_read_input_tokens": u64::MAX}}},
        {"print": "last words without an end"},
    ]);
    project.install_agent("claude", &script);
    let output = project.ralph(["run", "-p", "x", "-n", "2", "--", "claude"]).run();
    output.code(1).stderr_lacks("panicked");
    assert_eq!(project.events().last("run_ended")["iterations"], 2);
    project.ralph(["runs"]).run().code(0);
}

#[test]
fn ten_megabyte_prompt_is_delivered_or_ignored() {
    let project = Project::new();
    let prompt = "x".repeat(10 << 20);
    project.write("PROMPT.md", &prompt);
    let agent = project.fake_agent(&json!([{"shell": ""}, project.record_step(), {"print": DONE}]));
    project.ralph(["run", "-f", "PROMPT.md", "--"]).args(agent).run().code(0);
    assert_eq!(project.agent_starts()[0]["prompt"].as_str().map(str::len), Some(prompt.len()));
    assert_eq!(project.agent_starts()[0]["stdin_eof"], true);

    let ignoring = project.fake_agent(&json!({"stdin": "ignore", "sessions": [[{"print": DONE}]]}));
    project.ralph(["run", "-f", "PROMPT.md", "--"]).args(ignoring).run().code(0);

    // As much as an argument holds.
    let agent = project.fake_agent(&json!([project.record_step(), {"print": DONE}]));
    project.ralph(["run", "-p", &prompt[..120 << 10], "--"]).args(agent.clone()).run().code(0);
    assert_eq!(project.agent_starts()[1]["prompt"].as_str().map(str::len), Some(120 << 10));

    project.settings(&json!({"agent": {"command": agent[0], "flags": agent[1..],
        "promptVia": "argument"}, "retry": {"max": 0}}));
    let output = project.ralph(["run", "-f", "PROMPT.md"]).run();
    output.code(4).stdout_has("does not fit into an argument").stdout_has("promptVia");
}

#[test]
fn misbehaving_guardrails_are_contained() {
    let project = Project::new();
    // Expensive only once; the next prompt has the output.
    let guardrail = |command: &str, seconds: u64| {
        let command = format!("test $RALPH_ITERATION = 1 || exit 1; {command}");
        json!({"command": command, "timeoutSeconds": seconds})
    };
    project.settings(&json!({"guardrails": [
        guardrail("head -c 104857600 /dev/zero | tr '\\0' x; false", 0),
        guardrail("trap '' TERM; sleep 100 & sleep 100; wait", 1),
        guardrail("kill -9 $$", 0),
        guardrail("setsid sleep 100 & exit 0", 0),
        guardrail("exec >&- 2>&-; sleep 0.1; exit 3", 0),
        guardrail("printf '\\377\\376no newline'; exit 1", 0),
        guardrail("no-such-command-here", 0),
        guardrail("cat", 0),
    ]}));
    let agent = project.fake_agent(&json!([project.record_step(), {"print": DONE}]));
    let output = project.ralph(["run", "-p", "x", "-n", "2", "--"]).args(agent).run();
    output.code(1);
    let events = project.events();
    let ended: Vec<_> = events.all("guardrail_ended").into_iter().take(8).cloned().collect();
    let passed: Vec<_> = ended.iter().map(|event| event["passed"] == true).collect();
    assert_eq!(passed, [false, false, false, true, false, false, false, true]);
    assert_eq!(ended[1]["timed_out"], true);
    assert_eq!(ended[2]["exit"]["signal"], 9);
    assert_eq!(ended[4]["exit"]["code"], 3);
    assert_eq!(ended[6]["exit"]["code"], 127);
    let log = project.path().join(ended[0]["log"].as_str().unwrap());
    assert_eq!(log.metadata().unwrap().len(), 100 << 20);
    let leftovers = events.find("leftovers");
    assert!(leftovers["processes"][0]["command"].as_str().unwrap().contains("sleep 100"));
    let prompt = project.agent_starts()[1]["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("... [truncated]") && prompt.contains("exit code 137"), "{prompt}");
    assert_eq!(project.processes(), []);
}
