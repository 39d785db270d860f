//! Claude Code with ralph's hooks: in a run, from the plugin, and in a person's session.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::real::RealAgent;
use crate::support::{Output, Project};

const DONE: &str = "<response>DONE</response>";
const RUN: [&str; 4] = ["-p", "Say <response>DONE</response> when you are done.", "-n", "1"];

fn plugin() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("plugin")
}

fn claude(turns: impl FnOnce(&Project) -> Value) -> Option<RealAgent> {
    let real = RealAgent::new("claude", turns)?;
    // The plugin's hooks look for ralph on the `PATH`.
    let link = real.project.sibling("bin").join("ralph");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ralph"), link).expect("a link");
    Some(real)
}

fn outside_dir(project: &Project) -> PathBuf {
    let outside_dir = project.sibling("treasure");
    fs::create_dir(&outside_dir).expect("a directory");
    fs::write(outside_dir.join("gold"), "").expect("a file");
    outside_dir
}

/// A command that waits until Claude Code has saved an answer's token count. That takes a tenth of
/// a second, so the hook of a fast tool misses it and the alert comes with the next tool.
fn wait_for_saved_tokens(project: &Project, tokens: u64) -> String {
    let script = format!(
        "until grep -rqs '\"input_tokens\":{tokens},' \"$HOME/.claude/projects\"; do sleep 0.05; done\n"
    );
    fs::write(project.sibling("written-down.sh"), script).expect("a script");
    "sh ../written-down.sh".to_owned()
}

fn new_messages(real: &RealAgent) -> Vec<String> {
    let requests = real.requests();
    let main = requests.iter().filter(|request| request["kind"] == "main");
    main.map(|request| {
        let messages = request["body"]["messages"].as_array().expect("messages");
        let last = messages.iter().rposition(|message| message["role"] == "assistant");
        let new = messages.iter().skip(last.map_or(0, |nth| nth + 1));
        new.map(Value::to_string).collect()
    })
    .collect()
}

fn with_plugin(real: &RealAgent, run: Option<&str>) -> Output {
    let plugin = plugin();
    let plugin = plugin.to_str().expect("UTF-8");
    let args = ["-p", "--dangerously-skip-permissions", "--plugin-dir", plugin, "--", "Work."];
    let mut agent = real.without_ralph(&args);
    if let Some(run) = run {
        agent = agent.env("RALPH_RUN_ID", run);
    }
    agent.run()
}

#[test]
fn unsandboxed_run_is_guarded_by_hook() {
    let Some(real) = claude(
        |project| json!([{"text": "I clean up.", "sh": format!("rm -rf {}", outside_dir(project).display())}, DONE]),
    ) else {
        return;
    };
    let output = real.run(&RUN).run();
    output.code(0).stdout_has("only known-dangerous ones are blocked");
    let events = real.project.events();
    assert!(real.project.sibling("treasure/gold").exists());
    assert_eq!(events.last("agent_ended")["denied"], 1);
    assert!(
        new_messages(&real)[1].contains("treasure"),
        "the model learns why: {:?}",
        new_messages(&real)[1]
    );
    assert!(!real.project.home().join(".claude/settings.json").exists());
    assert!(!real.project.has(".claude"));
}

/// claude honours only one `--settings`, so ralph's are merged into the user's.
#[test]
fn user_settings_and_hooks_apply_beside_ours() {
    let Some(real) = claude(|project| {
        let delete = format!("rm -rf {}", outside_dir(project).display());
        json!([{"text": "I look.", "sh": "ls"}, {"text": "I clean up.", "sh": delete}, DONE])
    }) else {
        return;
    };
    let project = &real.project;
    let hook = "cat >>../hook.log";
    let own = json!({
        "env": {"OWN_KEY": "hidden"},
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": hook}]}]},
    });
    let file = project.sibling("own.json");
    fs::write(&file, own.to_string()).expect("settings");
    let flags = ["--settings", file.to_str().expect("UTF-8")];
    real.run_with(&RUN, &flags).run().code(0);
    assert!(project.sibling("treasure/gold").exists());
    let log = fs::read_to_string(project.sibling("hook.log")).expect("the user's hook was called");
    assert_eq!(log.matches("\"tool_name\":\"Bash\"").count(), 2, "{log}");
    let events = project.events();
    assert_eq!(events.last("agent_ended")["denied"], 1);
    assert!(
        !events.find("agent_started").to_string().contains("hidden"),
        "nor in any process list"
    );
    let leftovers = fs::read_dir(project.sibling("tmp")).expect("temporary files");
    let mut leftovers = leftovers.map(|entry| entry.expect("an entry").file_name());
    assert!(leftovers.all(|name| !name.to_string_lossy().contains("ralph-settings")));
}

#[test]
fn plugin_denies_alerts_and_holds_stop_in_loop() {
    let Some(real) = claude(|project| {
        let delete = format!("rm -rf {}", outside_dir(project).display());
        let file = project.path().join("work.txt");
        json!([
            {"text": "I clean up.", "sh": delete, "usage": {"in": 150_000}},
            {"text": "I write.", "write": {"path": file, "content": "work\n"}, "usage": {"in": 150_000}},
            {"text": "I wait.", "sh": wait_for_saved_tokens(project, 150_000), "usage": {"in": 150_000}},
            {"text": "I tidy up.", "sh": "rm -rf build", "usage": {"in": 150_000}},
            "That is it.",
            {"text": "I commit.", "sh": "git add work.txt && git commit -qm 'Work'"},
            DONE,
        ])
    }) else {
        return;
    };
    let plugin = plugin();
    let flags = ["--plugin-dir", plugin.to_str().expect("UTF-8")];
    real.run_with(&RUN, &flags).run().code(0);
    assert!(real.project.sibling("treasure/gold").exists());
    let messages = new_messages(&real);
    assert_eq!(messages.len(), 7, "{messages:#?}");
    assert!(messages[1].contains("treasure"), "{}", messages[1]);
    let alerts: Vec<bool> =
        messages.iter().map(|message| message.contains("WARNING: about 7")).collect();
    assert!(alerts[2] != alerts[3], "once, by the second tool at the latest: {messages:#?}");
    assert_eq!(messages[4].matches("ralph warns about").count(), 1, "{}", messages[4]);
    assert!(messages[5].contains("uncommitted changes: work.txt"), "{}", messages[5]);
    assert!(!messages[6].contains("uncommitted") && !alerts[4..].contains(&true), "{messages:#?}");
    assert_eq!(real.project.git_command(["log", "--format=%s"]), "Work\nBegin\n");
    assert_eq!(real.project.processes(), []);
}

#[test]
fn stop_hook_holds_agent_once() {
    let Some(real) = claude(|project| {
        let file = project.path().join("work.txt");
        json!([
            {"text": "I write.", "write": {"path": file, "content": "work\n"}},
            "That is it.",
            "I will not commit.",
            "This is never asked for.",
        ])
    }) else {
        return;
    };
    with_plugin(&real, Some("a-run")).code(0).stdout_has("I will not commit.");
    let messages = new_messages(&real);
    assert_eq!(messages.len(), 3, "{messages:#?}");
    assert!(messages[2].contains("uncommitted changes: work.txt"), "{}", messages[2]);
}

/// The loop commits after its guardrails; a commit of the agent would bypass them.
#[test]
fn agent_is_not_asked_to_commit_if_loop_does() {
    let Some(real) = claude(|project| {
        let file = project.path().join("work.txt");
        let write = json!({"text": "I write.", "write": {"path": file, "content": "work\n"}});
        json!({"sessions": [[write, DONE], ["Add work.txt"]]})
    }) else {
        return;
    };
    real.project.settings(&json!({"scm": {"command": "git", "tasks": ["commit"]}}));
    let plugin = plugin();
    let flags = ["--plugin-dir", plugin.to_str().expect("UTF-8")];
    real.run_with(&RUN, &flags).run().code(0);
    assert!(new_messages(&real).iter().all(|message| !message.contains("uncommitted")));
    assert_eq!(real.project.git_command(["log", "-1", "--format=%s"]), "Add work.txt\n");
}

#[test]
fn plugin_outside_loop_only_alerts() {
    let Some(real) = claude(|project| {
        let delete = format!("rm -rf {}", outside_dir(project).display());
        let file = project.path().join("work.txt");
        json!([
            {"text": "I clean up.", "sh": delete},
            {"text": "I write.", "write": {"path": file, "content": "work\n"}, "usage": {"in": 190_000}},
            {"text": "I wait.", "sh": wait_for_saved_tokens(project, 190_000), "usage": {"in": 190_000}},
            "That is it.",
        ])
    }) else {
        return;
    };
    with_plugin(&real, None).code(0).stdout_has("That is it.");
    assert!(!real.project.sibling("treasure").exists());
    let messages = new_messages(&real);
    assert_eq!(messages.len(), 4, "{messages:#?}");
    let alerts: Vec<bool> =
        messages.iter().map(|message| message.contains("CRITICAL: about 95%")).collect();
    assert!(alerts[2] != alerts[3], "once, by the second tool at the latest: {messages:#?}");
}

#[test]
fn claude_accepts_plugin() {
    let Some(real) = claude(|_| json!([DONE])) else { return };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let plugin = plugin();
    for path in [root, plugin.to_str().expect("UTF-8")] {
        let output = real.without_ralph(&["plugin", "validate", "--strict", path]).run();
        output.code(0).stdout_has("Validation passed");
    }
    let exported = real.project.path().join("exported");
    let exported = exported.to_str().expect("UTF-8");
    real.project.ralph(["plugin", "export", exported]).run().code(0);
    real.without_ralph(&["plugin", "validate", "--strict", exported]).run().code(0);
    real.without_ralph(&["plugin", "marketplace", "add", root]).run().code(0);
    real.without_ralph(&["plugin", "install", "ralph@ralph"]).run().code(0);
    real.without_ralph(&["plugin", "list"])
        .run()
        .code(0)
        .stdout_has("ralph@ralph")
        .stdout_has("enabled");
    let args = ["-p", "--output-format", "stream-json", "--verbose", "--", "Hello."];
    real.without_ralph(&args).run().code(0).stdout_has("ralph:ralph-plan");
}
