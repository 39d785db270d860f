//! Looking at workers.

use serde_json::{Value, json};

use crate::Workshop;
use crate::support::{LONG, wait_until};

#[test]
fn workers_are_listed_for_people_programs_and_shells() {
    let shop = Workshop::new();
    shop.ralph(["ls"]).run().code(0).stdout_is("no workers yet; ralph spawn starts one\n");
    shop.ralph(["ls", "--format", "json"]).run().code(0).stdout_is("[]\n");
    shop.ralph(["status"]).run().code(0).stdout_has("no workers are running");
    let agent = shop.fake_agent(&json!([{"wait_for": shop.beside("go")}]));
    shop.spawn(7, &[]).args(&agent).run().code(0);
    shop.ralph(["ls", "--format", "names"]).run().code(0).stdout_is("agent\n");
    let listed = shop.ralph(["ls", "--format", "json"]).run();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["name"], "agent");
    assert_eq!(listed[0]["metadata"], json!({"ralph": true, "ralph_iteration": 1}));
    assert_eq!((&listed[0]["status"], &listed[0]["alive"]), (&json!("running"), &json!(true)));
    let table = shop.ralph(["ls"]).run();
    table.stdout_has("NAME").stdout_has("running").stdout_has("1/7");
    let told = shop.ralph(["status", "agent"]).run();
    told.code(0).stdout_has("Ralph Loop: agent\nStatus: running\nIteration: 1/7\nStarted: 2");
    shop.ralph(["kill", "agent"]).run().code(0);
    shop.ralph(["status"]).run().code(0).stdout_has("no workers are running");
    shop.ralph(["status", "--all"]).run().code(0).stdout_has("Status: stopped");
}

#[test]
fn what_a_worker_does_can_be_followed() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!([
        {"print": "first words"},
        {"wait_for": shop.beside("go")},
        {"print": "last words"},
    ]));
    shop.spawn(1, &[]).args(&agent).run().code(0);
    let following = shop.ralph(["logs", "-f", "agent"]).start();
    wait_until(LONG, || following.stdout().contains("first words"));
    assert!(!following.stdout().contains("last words"));
    std::fs::write(shop.beside("go"), "").unwrap();
    following.wait().code(0).stdout_has("last words");
    shop.ralph(["logs", "agent"]).run().code(0).stdout_has("last words");
}

#[test]
fn the_window_shows_the_loop_and_somebody_can_attach_to_it() {
    let shop = Workshop::new();
    let agent = shop.fake_agent(&json!({"sessions": [
        [{"print": "hello"}],
        [{"print": "again"}, {"wait_for": shop.beside("go")}],
    ]}));
    shop.spawn(2, &[]).args(&agent).run().code(0);
    let terminal = shop.ralph(["attach", "agent"]).env("TERM", "xterm").in_tmux();
    let screen = terminal.wait_for_text(LONG, "[ralph] agent: starting iteration 2/2");
    assert!(screen.contains("[ralph] agent: iteration 1 completed (exit: 0, duration: 0s)"));
    std::fs::write(shop.beside("go"), "").unwrap();
    shop.ralph(["wait", "agent"]).run().code(0);
    shop.ralph(["attach", "agent"]).run().code(1).stderr_has("its loop is not running");
}

#[test]
fn a_prompt_to_start_from_is_printed_or_written() {
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
