//! `ralph ls`, `status`, `logs`.

use serde_json::{Value, json};

use crate::Workshop;
use crate::support::{LONG, Project, wait_until};

#[test]
fn workers_are_listed_as_table_json_and_names() {
    let shop = Workshop::new();
    shop.ralph(["ls"])
        .run()
        .code(0)
        .stdout_is("no runs yet; start one with `ralph run` or `ralph spawn`\n");
    shop.ralph(["ls", "--format", "json"]).run().code(0).stdout_is("[]\n");
    shop.ralph(["status"]).run().code(0).stdout_has("no runs are active");
    let agent = shop.waiting_agent();
    shop.spawn(7, &[]).args(&agent).run().code(0);
    shop.ralph(["ls", "--format", "names"]).run().code(0).stdout_is("agent\n");
    let listed = shop.ralph(["ls", "--format", "json"]).run();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["name"], "agent");
    assert_eq!(listed[0]["metadata"], json!({"ralph": true, "ralph_iteration": 1}));
    assert_eq!((&listed[0]["status"], &listed[0]["alive"]), (&json!("running"), &json!(true)));
    let table = shop.ralph(["ls"]).run();
    table.stdout_has("NAME").stdout_has("working").stdout_has("1/7");
    table.stdout_has("starting iteration 1/7").stdout_has(shop.path().to_str().unwrap());
    let output = shop.ralph(["status", "agent"]).run();
    output.code(0).stdout_has("Ralph Loop: agent\nStatus: working\nIteration: 1/7\nStarted: 2");
    shop.ralph(["kill", "agent"]).run().code(0);
    shop.ralph(["status"]).run().code(0).stdout_has("no runs are active");
    shop.ralph(["status", "--all"]).run().code(0).stdout_has("Status: ended");
}

#[test]
fn status_shows_duration_and_cost() {
    let shop = Workshop::new();
    let result = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "ok",
        "total_cost_usd": 0.25, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    shop.install_agent(
        "claude",
        &json!({"sessions": [
            [{"print": result.to_string()}],
            [{"print": result.to_string()}],
            [shop.wait_step(), {"print": result.to_string()}],
        ]}),
    );
    shop.spawn(5, &["--no-sandbox"]).arg("claude").run().code(0);
    shop.wait_for_state(|state| state["current_iteration"] == 3);
    let status = shop.ralph(["status", "agent", "--format", "json"]).run();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["cost_usd"], 0.5);
    // Durations depend on the machine.
    let [average, left] =
        ["average_seconds", "left_seconds"].map(|key| status[key].as_u64().expect("whole seconds"));
    assert!(average < LONG.as_secs() && left >= average, "{status}");
    assert_eq!(status["last_event"], "starting iteration 3/5");
    assert_eq!(status["state"]["finished_iterations"], 2);
    let all = shop.ralph(["status", "--format", "json"]).run();
    assert_eq!(serde_json::from_str::<Value>(&all.stdout).unwrap()[0]["name"], "agent");
    shop.ralph(["status", "agent"])
        .run()
        .stdout_has("\nAverage iteration: ")
        .stdout_has("Cost: $0.50\n")
        .stdout_has("Last event: starting iteration 3/5 (2");
    shop.ralph(["ls"]).run().stdout_has("$0.50");
    shop.ralph(["kill", "agent"]).run().code(0);
}

#[test]
fn watched_status_is_redrawn_in_place() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!({"sessions": [
        [shop.wait_step()],
        [{"wait_for": shop.sibling("stay")}],
    ]}));
    shop.spawn(3, &[]).args(&agent).run().code(0);
    let terminal = shop.ralph(["status", "--watch"]).in_tmux();
    terminal.wait_for_text(LONG, "Iteration: 1/3");
    shop.release();
    let screen = terminal.wait_for_text(LONG, "Iteration: 2/3");
    assert_eq!(screen.matches("Ralph Loop: agent").count(), 1, "{screen}");
    assert!(screen.starts_with("Ralph Loop: agent\nStatus: working\n"), "{screen}");
    terminal.send_keys(["C-c"]);
    assert_eq!(terminal.wait_for_exit(LONG), 130);
    drop(terminal);
    shop.spawn_as("other", 3, &[]).args(&agent).run().code(0);
    let terminal = shop.ralph(["ls", "--watch"]).in_tmux();
    terminal.wait_for_text(LONG, "other  working");
    terminal.resize(30, 3);
    let screen = terminal.wait_for_text(LONG, "NAME   STATUS   ITERATION\n… and 2 more lines");
    assert_eq!(screen.trim_end().lines().count(), 2, "{screen}");
    terminal.resize(80, 40);
    terminal.wait_for_text(LONG, "  LAST\nagent  working");
    shop.ralph(["kill", "--all"]).run().code(0);
    let screen = terminal.wait_for_text(LONG, "other  ended (stopped by you)");
    assert_eq!(screen.matches("NAME").count(), 1, "{screen}");
    terminal.send_keys(["C-c"]);
    assert_eq!(terminal.wait_for_exit(LONG), 130);
    let script = format!("{} ls --watch | head -n 1", env!("CARGO_BIN_EXE_ralph"));
    shop.program("sh", ["-c", &script]).run().code(0).stdout_has("NAME");
}

#[test]
fn wait_for_several_workers_reports_failure() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"max": 0}}));
    let spawn = |name: &str, step: Value| {
        let agent = shop.fake_agent(&json!([shop.wait_step(), step]));
        shop.spawn_as(name, 1, &[]).args(&agent).run().code(0);
    };
    spawn("good", json!({"print": "x"}));
    spawn("bad", json!({"exit": 3}));
    let all = shop.ralph(["wait", "--all"]).start();
    let both = shop.ralph(["wait", "good", "bad"]).start();
    let one = shop.ralph(["wait", "good"]).start();
    shop.release();
    all.wait();
    both.wait().code(1);
    one.wait().code(0);
    shop.ralph(["wait"]).run().code(1);
}

#[test]
fn logs_can_be_followed() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([
        {"print": "first words"},
        shop.wait_step(),
        {"print": "last words"},
    ]));
    shop.spawn(1, &[]).args(&agent).run().code(0);
    let following = shop.ralph(["logs", "-f", "agent"]).start();
    wait_until(LONG, || following.stdout().contains("first words"));
    assert!(!following.stdout().contains("last words"));
    shop.release();
    following.wait().code(0).stdout_has("last words");
    shop.ralph(["logs", "agent"]).run().code(0).stdout_has("last words");
}

#[test]
fn window_shows_loop_and_can_be_attached() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"print": "hello"}],
        [{"print": "again"}, shop.wait_step()],
    ]}));
    shop.spawn(2, &[]).args(&agent).run().code(0);
    let terminal = shop.ralph(["attach", "agent"]).env("TERM", "xterm").in_tmux();
    let screen = terminal.wait_for_text(LONG, "[ralph] agent: starting iteration 2/2");
    assert!(screen.contains("[ralph] agent: iteration 1 completed (exit: 0, duration: "));
    shop.release();
    shop.wait();
    shop.ralph(["attach", "agent"]).run().code(1).stderr_has("its loop is not running");
}

#[test]
fn template_is_printed_or_written() {
    let shop = Workshop::new();
    let printed = shop.ralph(["template"]).run();
    printed.code(0).stdout_has("study specs/README.md\nstudy CLAUDE.md and pick");
    let exists = "ralph: error: PROMPT.md already exists (use --force to overwrite)\n";
    shop.ralph(["template", "--write"]).run().code(1).stderr_is(exists);
    shop.ralph(["template", "--write", "--force"])
        .run()
        .code(0)
        .stdout_is("created PROMPT.md (overwritten)\n");
    assert_eq!(shop.read("PROMPT.md"), printed.stdout);
    std::fs::remove_file(shop.path().join("PROMPT.md")).unwrap();
    shop.ralph(["template", "--write"]).run().code(0).stdout_is("created PROMPT.md\n");
}

#[test]
fn worker_with_endless_journal_line_uses_bounded_memory() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([{"print": "working"}]));
    shop.spawn(1, &["--wait"]).args(&agent).run().code(0);
    let journal = shop.newest_run().join("events.jsonl");
    Project::append_endless_line(&journal);
    let socket = shop.socket();
    for command in [&["ls"][..], &["status", "agent"], &["logs", "agent"], &["report", "agent"]] {
        let output =
            shop.ralph_with_memory_limit(400, command).env("RALPH_TMUX_SOCKET", &socket).run();
        output.code(0);
    }
    std::fs::write(shop.file("state.json"), "{").unwrap();
    for command in [&["ls"][..], &["resume", "agent"]] {
        let output =
            shop.ralph_with_memory_limit(400, command).env("RALPH_TMUX_SOCKET", &socket).run();
        output.stderr_lacks("panicked").stderr_lacks("memory");
    }
    assert!(is_private(&shop.worker("agent")), "the files of a worker are for the user only");
}

fn is_private(dir: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let mode =
        |path: &std::path::Path| path.metadata().expect("a file").permissions().mode() & 0o077;
    let files = std::fs::read_dir(dir).expect("a directory").flatten();
    mode(dir) == 0
        && files
            .map(|file| file.path())
            .filter(|path| !path.ends_with("state.json"))
            .all(|path| mode(&path) == 0)
}

#[test]
fn first_example_of_background_page_completes() {
    let shop = Workshop::new();
    std::fs::remove_file(shop.path().join("PROMPT.md")).unwrap();
    let page = include_str!("../../docs/src/how-to/background.md");
    let example = page.split("```").nth(1).unwrap().strip_prefix("sh\n").unwrap();
    shop.write(
        "agent",
        "#!/bin/sh\ngrep -q 'say \"All tasks complete\"' && echo All tasks complete\n",
    );
    let script = example
        .replace("-- claude", "-- sh ./agent")
        .replace("ralph ", &format!("{} ", env!("CARGO_BIN_EXE_ralph")));
    let shell = shop.program("sh", ["-ec", &script]).env("RALPH_TMUX_SOCKET", shop.socket());
    shell.run().code(0);
    shop.ralph(["status", "docs"]).run().code(0).stdout_has("Ralph Loop: docs");
    shop.ralph(["wait", "docs"])
        .run()
        .code(0)
        .stdout_is("[ralph] docs: done pattern matched, stopping loop\n");
}

#[test]
fn logs_match_window() {
    let shop = Workshop::new();
    shop.settings(&json!({"retry": {"backoffSeconds": 0}}));
    let agent = shop.fake_agent(&json!({"sessions": [[{"exit": 3}], [{"print": "hello"}]]}));
    shop.spawn(2, &["--wait"]).args(&agent).run().code(0).stdout_is(
        "spawned agent (tmux: ralph:agent) [ralph mode: iteration 1/2]\n\
             [ralph] agent: loop complete after 2 iterations\n",
    );
    let logs = shop.ralph(["logs", "agent"]).run();
    logs.stdout_has("[ralph] agent: starting iteration 1/2").stdout_has("hello");
    logs.stdout_has("[ralph] agent: iteration 1 failed (exit: 3), retrying in 0s (attempt 1/5)");
    logs.stdout_has("[ralph] agent: loop complete after 2 iterations").stdout_lacks("Retrying");
}
