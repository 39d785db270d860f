//! The context monitor.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Output, Project};
use crate::{hook, in_loop, recorded_input};

/// A transcript of this size. It reports no tokens, so four bytes count as one.
fn transcript(project: &Project, tokens: usize) {
    fs::write(project.sibling("transcript.jsonl"), "x".repeat(tokens * 4)).expect("a transcript");
}

fn after_a_tool(project: &Project) -> Output {
    hook(project, "post-tool-use", &recorded_input(project, "PostToolUse")).run()
}

#[track_caller]
fn alert(output: &Output) -> String {
    let answer = output.answer();
    assert_eq!(answer["hookSpecificOutput"]["hookEventName"], "PostToolUse");
    answer["hookSpecificOutput"]["additionalContext"].as_str().expect("a text").to_owned()
}

#[test]
fn context_alert_fires_once_per_threshold() {
    let project = Project::new();
    let percent = |percent: usize| {
        transcript(&project, percent * 2_000);
        after_a_tool(&project)
    };
    percent(10).assert_silent();
    percent(49).assert_silent();
    for (now, word) in
        [(50, "NOTICE"), (63, "NOTICE"), (71, "WARNING"), (80, "WARNING"), (95, "CRITICAL")]
    {
        let alert = alert(&percent(now));
        assert!(alert.starts_with(&format!("{word}: about {now}%")), "{alert}");
        percent(now).assert_silent();
    }
    percent(300).assert_silent();
}

#[test]
fn context_alert_skips_lower_thresholds() {
    let project = Project::new();
    transcript(&project, 150_000);
    assert!(alert(&after_a_tool(&project)).starts_with("WARNING: about 75%"));
    for tokens in [100_000, 120_000, 155_000] {
        transcript(&project, tokens);
        after_a_tool(&project).assert_silent();
    }
    transcript(&project, 160_000);
    assert!(alert(&after_a_tool(&project)).starts_with("WARNING: about 80%"));
}

#[test]
fn new_session_resets_context_alerts() {
    let project = Project::new();
    transcript(&project, 130_000);
    alert(&after_a_tool(&project));
    after_a_tool(&project).assert_silent();
    let mut other = recorded_input(&project, "PostToolUse");
    other["session_id"] = json!("../../another/session");
    alert(&hook(&project, "post-tool-use", &other).run());
    hook(&project, "post-tool-use", &other).run().assert_silent();

    hook(&project, "session-start", &recorded_input(&project, "SessionStart"))
        .run()
        .assert_silent();
    alert(&after_a_tool(&project));
    hook(&project, "post-tool-use", &other).run().assert_silent();

    let names = |path| -> Vec<_> {
        let entries = fs::read_dir(path).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    };
    assert_eq!(names(project.home()), [".ralph"]);
    assert_eq!(names(project.home().join(".ralph")), ["hooks"]);
    assert_eq!(names(project.home().join(".ralph/hooks")).len(), 2);
}

#[test]
fn hook_state_is_kept_in_ralph_home() {
    let project = Project::new();
    transcript(&project, 130_000);
    let input = recorded_input(&project, "PostToolUse");
    let elsewhere = project.sibling("elsewhere");
    let ask = || hook(&project, "post-tool-use", &input).env("RALPH_HOME", &elsewhere).run();
    alert(&ask());
    ask().assert_silent();
    assert!(elsewhere.join("hooks").is_dir());
    assert!(!project.home().join(".ralph").exists());
    // Without memory it stays silent: it would otherwise repeat itself at every call.
    fs::write(project.sibling("file"), "").expect("a file");
    let output =
        hook(&project, "post-tool-use", &input).env("RALPH_HOME", project.sibling("file")).run();
    output.code(0).stdout_is("").stderr_has("ralph hook: ");
}

#[test]
fn context_window_size_can_be_set() {
    let project = Project::new();
    transcript(&project, 100_000);
    let input = recorded_input(&project, "PostToolUse");
    let ask = |window: &str| {
        hook(&project, "post-tool-use", &input).env("CLAUDE_CONTEXT_WINDOW", window).run()
    };
    ask("1000000").assert_silent();
    assert!(alert(&ask("125000")).starts_with("WARNING: about 80%"));
    for rubbish in ["", "0", "-1", "many"] {
        hook(&project, "session-start", &input).run().assert_silent();
        assert!(alert(&ask(rubbish)).starts_with("NOTICE: about 50%"), "{rubbish}");
    }
}

#[test]
fn context_alert_uses_counted_tokens() {
    let project = Project::new();
    let line = |input: u64, cache: u64| {
        json!({"type": "assistant", "isSidechain": false, "message": {"role": "assistant", "usage": {
            "input_tokens": input, "cache_read_input_tokens": cache, "output_tokens": 1_000
        }}})
    };
    let noise = json!({"type": "attachment", "attachment": "x".repeat(2_000_000)});
    let text = format!("{}\n{noise}\n{}\n{noise}\n", line(190_000, 0), line(4_000, 135_000));
    fs::write(project.sibling("transcript.jsonl"), text).expect("a transcript");
    let alert = alert(&after_a_tool(&project));
    assert!(alert.starts_with("WARNING: about 70%") && alert.contains("140K of 200K"), "{alert}");
}

#[test]
fn context_alert_in_loop_names_files_that_persist() {
    let project = Project::new();
    let ask = |in_a_loop: bool| {
        hook(&project, "session-start", &recorded_input(&project, "SessionStart"))
            .run()
            .assert_silent();
        let ralph = hook(&project, "post-tool-use", &recorded_input(&project, "PostToolUse"));
        alert(&if in_a_loop { in_loop(ralph) } else { ralph }.run())
    };
    transcript(&project, 185_000);
    let person = ask(false);
    assert!(person.starts_with("CRITICAL") && !person.contains("iteration"), "{person}");
    let looped = ask(true);
    assert!(looped.contains("next iteration") && !looped.contains("tasks.json"), "{looped}");
    project.write("ralph/tasks.json", "{}");
    let listed = ask(true);
    assert!(listed.contains("ralph/tasks.json") && listed.contains("progress.txt"), "{listed}");
}

#[test]
fn context_hook_ignores_unusable_transcript() {
    let project = Project::new();
    after_a_tool(&project).assert_silent();
    let ask = |path: Value| {
        let mut input = recorded_input(&project, "PostToolUse");
        input["transcript_path"] = path;
        hook(&project, "post-tool-use", &input).run().assert_silent();
    };
    ask(json!(null));
    ask(json!(""));
    ask(json!("/"));
    ask(json!("/dev/zero"));
    let pipe = project.sibling("pipe");
    let made = project.command("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    ask(json!(pipe));
    transcript(&project, 190_000);
    let mut input = recorded_input(&project, "PostToolUse");
    input["agent_id"] = json!("a0c74c7263e3332b9");
    hook(&project, "post-tool-use", &input).run().assert_silent();
}

#[test]
fn huge_transcript_and_tool_result_are_handled() {
    let project = Project::new();
    let file = fs::File::create(project.sibling("transcript.jsonl")).expect("a transcript");
    file.set_len(100 << 20).expect("a hole");
    let mut input = recorded_input(&project, "PostToolUse");
    input["tool_response"] = json!({"stdout": "ä\n".repeat(7 << 20)});
    let alert = alert(&hook(&project, "post-tool-use", &input).run());
    assert!(alert.starts_with("CRITICAL: about 100% of"), "{alert}");
}
